/* Programs that use a part of what they ask for, or all of it: `uses PATTERN PIECE_K USED_K TOTAL_M WHENCE`.
 * WHENCE: `map`, `malloc`, or `zeros` (mapped, and written with zeros only).
 * Says what is resident and what of it is on huge pages, in bytes. */
#include "check.h"
#include <pthread.h>

static size_t piece, used, total;
static const char *whence;

static char *ask(size_t length)
{
    if (strcmp(whence, "malloc") == 0)
        return malloc(length);
    char *at = mmap(0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    return at;
}

static void fill(char *at, size_t length)
{
    MUST(at);
    for (size_t i = 0; i < length; i += 256)
        ((volatile char *)at)[i] = strcmp(whence, "zeros") == 0 ? 0 : 1;
}

/* So many bytes used, in mappings of which `length` is used. */
static void each(size_t bytes, size_t length)
{
    for (size_t done = 0; done < bytes; done += length)
        fill(ask(piece), length);
}

static void *one_thread(void *nothing)
{
    each(total / 4, used);
    return nothing;
}

static void threads(void)
{
    pthread_t running[4];
    for (int i = 0; i < 4; i++)
        MUST(pthread_create(&running[i], NULL, one_thread, NULL) == 0);
    for (int i = 0; i < 4; i++)
        MUST(pthread_join(running[i], NULL) == 0);
}

/* All is asked for before any of it is used. */
static void late(void)
{
    size_t count = total / used;
    char **pieces = malloc(count * sizeof *pieces);
    for (size_t i = 0; i < count; i++)
        pieces[i] = ask(piece);
    for (size_t i = 0; i < count; i++)
        fill(pieces[i], used);
}

/* As many pages, but all over the mapping. */
static void scattered(void)
{
    size_t step = piece / (used / page_size());
    for (size_t done = 0; done < total; done += used) {
        char *at = ask(piece);
        for (size_t i = 0; i < piece; i += step)
            fill(at + i, 1);
    }
}

/* One size used as a whole, and then mappings of all other sizes, of which a part is used. */
static void others(void)
{
    size_t whole = piece;
    each(total, whole);
    for (size_t done = 0, length = 64 << 10; done < total; done += used) {
        piece = length;
        fill(ask(piece), used);
        length = length >= 32 << 20 ? 64 << 10 : length * 2;
        if (length == whole)
            length *= 2;
    }
}

static void in_turn(void)
{
    for (size_t done = 0, i = 0; done < total; i++) {
        size_t length = i % 2 ? used : piece;
        fill(ask(piece), length);
        done += length;
    }
}

/* One mapping of which one page in each huge page is used, then others that are used as a whole:
 * nothing looks at the one before something is asked for again. */
static void one_large(void)
{
    char *at = ask(piece);
    for (size_t i = 0; i < piece; i += huge_size())
        fill(at + i, 1);
    for (size_t done = 0; done < total; done += 1000000)
        memset(malloc(1000000), 1, 1000000);
    for (size_t i = 0; i < piece; i += huge_size())
        MUST(at[i] == 1);
}

/* Whether this kernel keeps no page of zeros of a huge page that it splits: by trying. */
static void says_zeros_go(void)
{
    size_t huge = huge_size();
    char *at = mmap(0, 2 * huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    char *block = (char *)(((uintptr_t)at + huge - 1) & ~(huge - 1));
    madvise(block, huge, MADV_HUGEPAGE);
    block[0] = 1;
    size_t before = resident_bytes();
    madvise(block, page_size(), MADV_COLD);
    SAY("zeros-go %d\n", resident_bytes() + huge / 2 < before);
}

int main(int count, char **words)
{
    MUST(count == 6);
    const char *pattern = words[1];
    if (strcmp(pattern, "zeros-go") == 0) {
        says_zeros_go();
        return 0;
    }
    piece = (size_t)atol(words[2]) << 10;
    used = (size_t)atol(words[3]) << 10;
    total = (size_t)atol(words[4]) << 20;
    whence = words[5];
    if (strcmp(pattern, "each") == 0)
        each(total, used);
    else if (strcmp(pattern, "late") == 0)
        late();
    else if (strcmp(pattern, "whole-then-part") == 0)
        each(total, piece), each(total, used);
    else if (strcmp(pattern, "part-then-whole") == 0)
        each(total, used), each(total, piece);
    else if (strcmp(pattern, "in-turn") == 0)
        in_turn();
    else if (strcmp(pattern, "whole-then-others") == 0)
        others();
    else if (strcmp(pattern, "whole-then-most") == 0)
        each(total, piece), piece *= 4, each(total, 3 * piece / 4);
    else if (strcmp(pattern, "scattered") == 0)
        scattered();
    else if (strcmp(pattern, "threads") == 0)
        threads();
    else if (strcmp(pattern, "one-large") == 0)
        one_large();
    else
        MUST(!"a pattern");
    SAY("resident %zu\n", resident_bytes());
    SAY("huge %zu\n", (size_t)number_in("/proc/self/smaps_rollup", "AnonHugePages:") * 1024);
    return 0;
}
