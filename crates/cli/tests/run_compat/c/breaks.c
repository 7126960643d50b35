/* A program with an allocator of its own on sbrk(2): it grows and shrinks the break, finds zeroes where
 * it grows again, and its old data where it did not shrink. Meanwhile malloc does the same.
 *
 * usage: breaks STEPS */
#include "check.h"

int main(int count, char **words)
{
    MUST(count == 2);
    int steps = atoi(words[1]);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), held = 0, most = 128 << 20;
    uint64_t state = 21;
    /* malloc keeps off the break from here on: what is there is all ours. */
    unsigned char *start = sbrk(0);
    MUST(start != (void *)-1);
    for (int i = 0; i < steps; i++) {
        size_t by = 1 + below(&state, i % 16 ? 64 << 10 : 6 << 20);
        if (held < most && (held < by || below(&state, 5) < 3)) {
            unsigned char *old = sbrk((intptr_t)by);
            MUST(old == start + held);
            /* Bytes of the page that was there before may be old ones. */
            unsigned char *fresh = (unsigned char *)(((uintptr_t)old + page - 1) & ~(page - 1));
            for (unsigned char *at = fresh; at < old + by; at += 512)
                MUST(*at == 0);
            for (unsigned char *at = old; at < old + by; at++)
                *at = (unsigned char)((at - start) * 7 >> 3 | 1);
            held += by;
        } else if (by <= held) {
            MUST(sbrk(-(intptr_t)by) == start + held);
            held -= by;
        }
        MUST(sbrk(0) == start + held);
        if (held > 0)
            for (int look = 0; look < 50; look++) {
                size_t at = below(&state, held);
                MUST(start[at] == (unsigned char)(at * 7 >> 3 | 1));
            }
    }
    size_t more = held < 64 * huge_size() ? 64 * huge_size() - held : 0;
    MUST(sbrk((intptr_t)more) == start + held);
    memset(start + held, 3, more);
    must_be_large(16 * huge_size());
    for (size_t at = 0; at < held; at++)
        MUST(start[at] == (unsigned char)(at * 7 >> 3 | 1));
    MUST(brk(start) == 0 && sbrk(0) == start);
    SAY("%d steps\n", steps);
    return 0;
}
