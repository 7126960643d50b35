/* What the programs share: a check that ends the program, sizes of the host, chunks that tell when
 * somebody else wrote to them. Nothing here allocates: allocating is what is tested. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Ends the program with what did not hold. */
#define MUST(holds)                                                                              \
    do {                                                                                         \
        if (!(holds))                                                                            \
            check_failed(__FILE__, __LINE__, #holds);                                            \
    } while (0)

static inline void check_failed(const char *file, int line, const char *what)
{
    char text[512];
    int error = errno;
    int length = snprintf(text, sizeof text, "%s:%d: %s (errno %d)\n", file, line, what, error);
    if (write(2, text, (size_t)length) < 0)
        _exit(8);
    _exit(9);
}

/* Says a line on stdout, without a buffer that a forked child would write again. */
#define SAY(...)                                                                                 \
    do {                                                                                         \
        char say_text[512];                                                                      \
        int say_length = snprintf(say_text, sizeof say_text, __VA_ARGS__);                       \
        MUST(write(1, say_text, (size_t)say_length) == say_length);                              \
    } while (0)

/* The first number after `field` in a file of /proc or /sys; -1 where there is none. */
static inline long number_in(const char *path, const char *field)
{
    static __thread char text[16384];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    size_t length = 0;
    ssize_t got;
    while (length < sizeof text - 1 && (got = read(file, text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)got;
    close(file);
    text[length] = 0;
    const char *at = strstr(text, field);
    return at ? strtol(at + strlen(field), NULL, 10) : -1;
}

/* What a full transparent huge page maps; where the host has none, a size to count in. */
static inline size_t huge_size(void)
{
    long size = number_in("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "");
    return size > 0 ? (size_t)size : (size_t)sysconf(_SC_PAGESIZE) * 512;
}

static inline size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static inline size_t resident_bytes(void)
{
    return (size_t)number_in("/proc/self/smaps_rollup", "Rss:") * 1024;
}

/* Under `hugeleaf run` the test says so in COMPAT_LARGE: then so much is on huge pages now, or the
 * program would show nothing about the library. */
static inline void must_be_large(size_t least)
{
    if (!getenv("COMPAT_LARGE"))
        return;
    size_t large = (size_t)number_in("/proc/self/smaps_rollup", "AnonHugePages:") * 1024;
    if (large < least) {
        char text[128];
        snprintf(text, sizeof text, "%zu bytes are on huge pages, not %zu", large, least);
        check_failed(__FILE__, __LINE__, text);
    }
}

/* Numbers that repeat with their seed. */
static inline uint64_t draw(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline size_t below(uint64_t *state, size_t limit)
{
    return (size_t)(draw(state) % limit);
}

/* A chunk that holds a pattern of its own in every 512th byte and at both ends. */
struct chunk {
    unsigned char *at;
    size_t length;
    uint64_t seed;
};

static inline unsigned char chunk_byte(const struct chunk *c, size_t offset)
{
    return (unsigned char)((c->seed * 31 + offset * 7 + (offset >> 9)) | 1);
}

static inline void chunk_fill(struct chunk *c, size_t from)
{
    for (size_t i = from; i < c->length; i += 512)
        c->at[i] = chunk_byte(c, i);
    c->at[c->length - 1] = chunk_byte(c, c->length - 1);
}

static inline int chunk_holds(const struct chunk *c, size_t length)
{
    for (size_t i = 0; i < length; i += 512)
        if (c->at[i] != chunk_byte(c, i) && i != c->length - 1)
            return 0;
    return 1;
}

static inline int chunk_is_whole(const struct chunk *c)
{
    return chunk_holds(c, c->length) &&
           c->at[c->length - 1] == chunk_byte(c, c->length - 1);
}

/* A size from 1 byte to a few MiB, small ones much more often. */
static inline size_t draw_size(uint64_t *state)
{
    size_t bits = below(state, 100);
    if (bits < 80)
        return 1 + below(state, 2048);
    if (bits < 97)
        return 1 + below(state, 100 << 10);
    return 1 + below(state, 4 << 20);
}

#endif
