/* As many mappings as the kernel allows a process, each with a page at its end that must not be
 * touched, so that no two are one; says how many. Then all are returned, and as many are there
 * again. */
#include "check.h"

enum { MOST = 100000 };
static unsigned char *maps[MOST];

static size_t length_of(size_t number)
{
    return page_size() * (2 + number % 3);
}

int main(void)
{
    struct chunk kept = { malloc(48 * huge_size()), 48 * huge_size(), 5 };
    MUST(kept.at);
    chunk_fill(&kept, 0);
    must_be_large(kept.length / 4);
    for (int round = 0; round < 2; round++) {
        size_t used = 0;
        for (; used < MOST; used++) {
            size_t length = length_of(used);
            unsigned char *at =
                mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (at == MAP_FAILED)
                break;
            if (mprotect(at + length - page_size(), page_size(), PROT_NONE) != 0) {
                MUST(errno == ENOMEM);
                munmap(at, length);
                break;
            }
            maps[used] = at;
            at[0] = (unsigned char)used;
        }
        MUST(used < MOST && errno == ENOMEM);
        /* At the limit, memory that is there is good still. */
        MUST(chunk_is_whole(&kept));
        for (size_t i = 0; i < used; i++)
            MUST(maps[i][0] == (unsigned char)i);
        for (size_t i = used; i-- > 0;)
            MUST(munmap(maps[i], length_of(i)) == 0);
        SAY("mappings %zu\n", used);
    }
    return 0;
}
