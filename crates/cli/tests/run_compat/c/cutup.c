/* A mapping that became two by advice about a part of it, as happens to one that is mapped anew while
 * another thread's memory is being moved: it is one to whoever mapped it, and can be moved as one.
 *
 * usage: cutup */
#include "check.h"

#include <sys/syscall.h>

static size_t huge;

/* A mapping of `pages` huge pages' length, filled, and advice about its middle that goes past the library. */
static unsigned char *cut(size_t pages)
{
    unsigned char *at = mmap(NULL, pages * huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    for (size_t i = 0; i < pages * huge; i += page_size())
        at[i] = (unsigned char)(i / page_size() | 1);
    MUST(syscall(SYS_madvise, at + page_size(), huge, MADV_HUGEPAGE) == 0);
    return at;
}

static void holds(const unsigned char *at, size_t length)
{
    for (size_t i = 0; i < length; i += page_size())
        MUST(at[i] == (unsigned char)(i / page_size() | 1));
}

int main(void)
{
    huge = huge_size();
    size_t length = 4 * huge;

    unsigned char *at = cut(4), *moved = mremap(at, length, 3 * length, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED) {
        SAY("cannot be moved: %d\n", errno);
        return 0;
    }
    holds(moved, length);

    at = cut(4);
    moved = mremap(at, length, length + huge, 0);
    MUST(moved == at || (moved == MAP_FAILED && errno == ENOMEM));
    holds(at, length);

    /* Nothing is there: that stays an error. */
    MUST(munmap(at, length + (moved == at ? huge : 0)) == 0);
    MUST(mremap(at, length, 3 * length, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
    SAY("moved\n");
    return 0;
}
