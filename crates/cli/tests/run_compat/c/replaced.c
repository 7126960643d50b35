/* A part of a mapping is replaced by a new one, or loses its rights for a moment; the whole is one mapping still, and is
 * made twice as long. Says how each way ended.
 *
 * usage: replaced */
#include "check.h"

static size_t huge;

enum { RW = PROT_READ | PROT_WRITE, ANONYMOUS = MAP_PRIVATE | MAP_ANONYMOUS };

static void anew(unsigned char *at, size_t size, int touched)
{
    MUST(mmap(at, size, RW, ANONYMOUS | MAP_FIXED, -1, 0) == at);
    if (touched)
        memset(at, 2, page_size());
}

static void way(size_t length, int number)
{
    unsigned char *at = mmap(NULL, length, RW, ANONYMOUS, -1, 0), *middle = at + length / 2;
    MUST(at != MAP_FAILED);
    memset(at, 1, length);
    size_t some = 16 * page_size();
    switch (number) {
    case 0:
        anew(at, length / 3 / page_size() * page_size(), 1);
        break;
    case 1:
    case 2:
        anew(middle, some, number == 1);
        break;
    case 3:
        anew(middle, page_size(), 1);
        break;
    case 4:
        anew(at + length - some, some, 1);
        break;
    default:
        MUST(mprotect(middle, some, PROT_READ) == 0 && mprotect(middle, some, RW) == 0);
    }
    unsigned char *moved = mremap(at, length, 2 * length, MREMAP_MAYMOVE);
    SAY("%zu huge pages, way %d: %s\n", length / huge, number, moved == MAP_FAILED ? strerror(errno) : "moved");
    at = moved == MAP_FAILED ? at : moved;
    MUST(at[length - 1] == (number == 4 ? 0 : 1) && at[length / 5 * 2] == 1);
    MUST(munmap(at, moved == at ? 2 * length : length) == 0);
}

int main(void)
{
    huge = huge_size();
    /* Past the size from which a program is looked at, and one mapping from before that. */
    unsigned char *before = mmap(NULL, 8 * huge, RW, ANONYMOUS, -1, 0);
    MUST(before != MAP_FAILED);
    memset(before, 1, 8 * huge);
    char *held = malloc(32 * huge);
    MUST(held);
    memset(held, 1, 32 * huge);
    for (size_t length = huge / 2; length <= 8 * huge; length *= 4)
        for (int number = 0; number < 6; number++)
            way(length, number);
    anew(before + huge / 2, 16 * page_size(), 1);
    SAY("from before: %s\n", mremap(before, 8 * huge, 16 * huge, MREMAP_MAYMOVE) == MAP_FAILED ? strerror(errno) : "moved");
    MUST(held[0] == 1);
    return 0;
}
