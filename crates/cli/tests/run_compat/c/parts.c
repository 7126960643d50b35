/* What a program may do with parts of its mappings, small ones next to each other. */
#include "check.h"

static char *get(size_t length)
{
    char *at = mmap(0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    for (size_t i = 0; i < length; i += 512)
        MUST(at[i] == 0);
    return at;
}

int main(void)
{
    size_t piece = huge_size() / 2, page = page_size(), part = 16 * page;
    char *a = get(piece), *b = get(piece), *c = get(3 * piece);
    memset(a, 1, piece);
    memset(b, 2, piece);
    memset(c, 3, 3 * piece);
    /* Twice: what is unmapped already is nobody's. */
    MUST(munmap(b, piece) == 0);
    MUST(munmap(b, piece) == 0);
    MUST(a[piece - 1] == 1 && c[0] == 3);

    char *d = mremap(c, 3 * piece, 7 * piece, MREMAP_MAYMOVE);
    MUST(d != MAP_FAILED && d[3 * piece - 1] == 3 && d[3 * piece] == 0);
    memset(d, 4, 7 * piece);
    d = mremap(d, 7 * piece, piece, MREMAP_MAYMOVE);
    MUST(d != MAP_FAILED && d[piece - 1] == 4);

    MUST(mprotect(a, part, PROT_READ) == 0);
    MUST(a[0] == 1 && a[piece - 1] == 1 && d[0] == 4);
    MUST(mprotect(a, part, PROT_READ | PROT_WRITE) == 0);
    a[0] = 7;
    MUST(munmap(a + part, piece - part) == 0);
    MUST(a[0] == 7 && d[0] == 4);

    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        a[0] = 8;
        d[0] = 9;
        memset(get(4 * piece), 1, 4 * piece);
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    MUST(a[0] == 7 && d[0] == 4);

    MUST(munmap(d, piece) == 0);
    MUST(munmap(a, part) == 0);
    char *e = get(4 * piece);
    memset(e, 5, 4 * piece);
    MUST(munmap(e + 2 * part, page) == 0);
    MUST(e[2 * part - 1] == 5 && e[2 * part + page] == 5);
    SAY("good\n");
    return 0;
}
