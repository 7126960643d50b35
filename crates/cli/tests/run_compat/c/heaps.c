/* Threads that take and return memory of one heap, the one that grows by brk(2), while others map
 * memory and fork: memory is nobody else's, and what calloc gives holds zeros. Malloc takes memory
 * that comes fresh from the break for zeroed, and zeroes it no more.
 *
 * usage: heaps THREADS ROUNDS */
#include "check.h"

#include <malloc.h>
#include <pthread.h>

enum { CHUNKS = 48 };

static size_t rounds;
static pthread_barrier_t begin;
/* Chunks that one thread has taken and another returns. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct chunk handed[16];

/* Mostly large enough to move the heap's end. */
static size_t size_of(uint64_t *state)
{
    return below(state, 4) ? 1 + below(state, 8 << 10) : 1 + below(state, 768 << 10);
}

static struct chunk fresh(uint64_t *state)
{
    struct chunk c = { NULL, size_of(state), draw(state) };
    MUST(c.at = calloc(1, c.length));
    for (size_t i = 0; i < c.length; i += 64)
        MUST(c.at[i] == 0);
    MUST(c.at[c.length - 1] == 0);
    chunk_fill(&c, 0);
    return c;
}

static void returned(struct chunk *c)
{
    if (!c->at)
        return;
    MUST(chunk_is_whole(c));
    /* Old content in all of it, so that it is seen where it comes back. */
    memset(c->at, 0xa5, c->length);
    free(c->at);
    c->at = NULL;
}

static void *heap_user(void *number)
{
    uint64_t state = (uintptr_t)number;
    struct chunk own[CHUNKS] = { 0 };
    pthread_barrier_wait(&begin);
    for (size_t round = 0; round < rounds; round++) {
        struct chunk *c = &own[below(&state, CHUNKS)];
        if (c->at && below(&state, 4) == 0) {
            pthread_mutex_lock(&lock);
            struct chunk *there = &handed[below(&state, 16)], swap = *there;
            *there = *c;
            *c = swap;
            pthread_mutex_unlock(&lock);
        }
        returned(c);
        *c = fresh(&state);
        /* All of it goes now and then, so that the break comes back and goes again. */
        if (below(&state, 150) == 0) {
            for (size_t i = 0; i < CHUNKS; i++)
                returned(&own[i]);
            malloc_trim(0);
        }
    }
    for (size_t i = 0; i < CHUNKS; i++)
        returned(&own[i]);
    return NULL;
}

/* Mappings in addition to the heap, whose size the library looks at meanwhile. */
static void *mapper(void *number)
{
    uint64_t state = (uintptr_t)number;
    pthread_barrier_wait(&begin);
    for (size_t round = 0; round < rounds; round++) {
        struct chunk c = { NULL, (1 + below(&state, 600)) * page_size(), draw(&state) };
        void *at = mmap(NULL, c.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(at != MAP_FAILED);
        c.at = at;
        for (size_t i = 0; i < c.length; i += 512)
            MUST(c.at[i] == 0);
        chunk_fill(&c, 0);
        MUST(chunk_is_whole(&c));
        MUST(munmap(at, c.length) == 0);
    }
    return NULL;
}

/* Children that go on with the heap as it was when another thread was in it. */
static void *forker(void *number)
{
    uint64_t state = (uintptr_t)number;
    pthread_barrier_wait(&begin);
    for (size_t round = 0; round < rounds / 100; round++) {
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) {
            struct chunk own[CHUNKS];
            for (size_t i = 0; i < CHUNKS; i++)
                own[i] = fresh(&state);
            for (size_t i = 0; i < CHUNKS; i++)
                returned(&own[i]);
            malloc_trim(0);
            _exit(0);
        }
        int status;
        MUST(waitpid(child, &status, 0) == child);
        MUST(status == 0);
    }
    return NULL;
}

int main(int count, char **words)
{
    MUST(count == 3);
    size_t users = strtoul(words[1], NULL, 10);
    rounds = strtoul(words[2], NULL, 10);
    /* One heap for all threads, which nothing bypasses, and which shrinks as soon as it can. */
    MUST(mallopt(M_ARENA_MAX, 1) && mallopt(M_MMAP_MAX, 0) && mallopt(M_TRIM_THRESHOLD, 64 << 10));
    /* Growth, or the library has nothing to do with it. */
    struct chunk large = { NULL, 24 * huge_size(), 1 };
    MUST(large.at = malloc(large.length));
    chunk_fill(&large, 0);
    static pthread_t threads[64];
    MUST(users <= 60 && pthread_barrier_init(&begin, NULL, (unsigned)users + 2) == 0);
    for (size_t i = 0; i < users + 2; i++) {
        void *(*work)(void *) = i == users ? mapper : i > users ? forker : heap_user;
        MUST(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    }
    for (size_t i = 0; i < users + 2; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    for (size_t i = 0; i < 16; i++)
        returned(&handed[i]);
    MUST(chunk_is_whole(&large));
    must_be_large(huge_size());
    SAY("whole\n");
    return 0;
}
