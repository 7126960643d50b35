/* Loops over one kind of call each, to be run with and without hugeleaf. Says how many a second.
 *
 * usage: rates KIND COUNT BYTES MAPPINGS
 */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { SLOTS = 1024 };

static size_t bytes;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void await(pid_t child)
{
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        fail("a child failed");
}

static void forks(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        pid_t child = fork();
        if (child < 0)
            fail("fork");
        if (child == 0)
            _exit(0);
        await(child);
    }
}

static void spawns(size_t count)
{
    char *arguments[] = {"true", NULL};
    for (size_t i = 0; i < count; i++) {
        pid_t child;
        if (posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ))
            fail("posix_spawn");
        await(child);
    }
}

/* Sizes and places come from a counter, so that every run does the same. */
static void mallocs(size_t count, size_t least, size_t most)
{
    static char *slots[SLOTS];
    uint64_t x = 1;
    for (size_t i = 0; i < count; i++) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        char **slot = &slots[(x >> 33) % SLOTS];
        free(*slot);
        *slot = malloc(least + (x >> 43) % (most - least + 1));
        if (!*slot)
            fail("malloc");
        **slot = 1;
    }
}

/* One large block at a time. */
static void blocks(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char *volatile block = malloc(bytes);
        if (!block)
            fail("malloc");
        block[0] = 1;
        free(block);
    }
}

static void maps(size_t count, int touched)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < count; i++) {
        char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED)
            fail("mmap");
        for (size_t offset = 0; touched && offset < bytes; offset += page)
            at[offset] = 1;
        if (munmap(at, bytes))
            fail("munmap");
    }
}

/* What mmap(2) and fork(2) cost depends on how many mappings there are already: the kernel keeps
 * them in nodes of a few, and where one is just full, every new mapping splits it and every
 * munmap(2) joins it again (a quarter less a second). Any library has such an effect, for better
 * or worse; so the number is varied, the same in both arms of a round. */
static void more_mappings(size_t count)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < count; i++)
        /* Neighbours that differ are not made one. */
        if (mmap(NULL, page, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
            MAP_FAILED)
            fail("mmap");
}

/* Holds memory and does nothing until its input ends. */
static void idle(void)
{
    printf("ready\n");
    fflush(stdout);
    /* read(2) wakes up once, at the end. */
    char byte;
    (void)!read(0, &byte, 1);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    const char *kind = argv[1];
    size_t count = strtoull(argv[2], NULL, 10);
    bytes = strtoull(argv[3], NULL, 10);
    more_mappings(strtoull(argv[4], NULL, 10));
    int holds = !strcmp(kind, "fork") || !strcmp(kind, "spawn") || !strcmp(kind, "idle");
    if (holds && bytes) {
        /* Chunk by chunk, as a program grows. */
        size_t piece = 65536; /* not a page size */
        for (size_t held = 0; held < bytes; held += piece) {
            char *at = malloc(piece);
            if (!at)
                fail("malloc");
            memset(at, 1, piece);
        }
    }
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    if (!strcmp(kind, "fork"))
        forks(count);
    else if (!strcmp(kind, "spawn"))
        spawns(count);
    else if (!strcmp(kind, "small"))
        mallocs(count, 16, 1024);
    else if (!strcmp(kind, "block"))
        blocks(count);
    else if (!strcmp(kind, "map"))
        maps(count, 0);
    else if (!strcmp(kind, "map-touch"))
        maps(count, 1);
    else if (!strcmp(kind, "idle"))
        idle();
    else
        return 2;
    clock_gettime(CLOCK_MONOTONIC, &to);
    double took = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    printf("rate work %f\n", (double)count / took);
    return 0;
}
