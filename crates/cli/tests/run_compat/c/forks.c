/* Sixteen threads allocate and check while 200 children are forked, half of them from a thread. A
 * child sees the memory of its parent as it was, changes it for itself, allocates in every way, and
 * allocates in threads of its own.
 *
 * usage: forks CHILDREN */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 16, SLOTS = 64 };
static atomic_int stop;
static unsigned char *inherited;
static size_t inherited_length;

static void churn(uint64_t *state, struct chunk *slots, int times)
{
    for (int i = 0; i < times; i++) {
        struct chunk *c = &slots[below(state, SLOTS)];
        if (c->at) {
            MUST(chunk_is_whole(c));
            free(c->at);
        }
        c->length = draw_size(state);
        c->seed = draw(state);
        MUST(c->at = malloc(c->length));
        chunk_fill(c, 0);
    }
}

static void let_go(struct chunk *slots)
{
    for (int i = 0; i < SLOTS; i++) {
        if (slots[i].at)
            MUST(chunk_is_whole(&slots[i]));
        free(slots[i].at);
    }
}

static void *allocate(void *number)
{
    struct chunk slots[SLOTS] = { 0 };
    uint64_t state = (uint64_t)(uintptr_t)number;
    while (!atomic_load(&stop)) {
        churn(&state, slots, 10);
        /* The children are to get on as well. */
        usleep(10000);
    }
    let_go(slots);
    return NULL;
}

static void *allocate_once(void *number)
{
    struct chunk slots[SLOTS] = { 0 };
    uint64_t state = (uint64_t)(uintptr_t)number;
    churn(&state, slots, 15);
    let_go(slots);
    return NULL;
}

static void map_and_break(void)
{
    size_t length = huge_size() + (64 << 10);
    unsigned char *map = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(map != MAP_FAILED);
    for (size_t i = 0; i < length; i += 1024) {
        MUST(map[i] == 0);
        map[i] = 1;
    }
    MUST(munmap(map, length) == 0);
    unsigned char *old = sbrk(1 << 20);
    MUST(old != (void *)-1);
    for (size_t i = 0; i < (1 << 20); i += 1024) {
        MUST(old[i] == 0);
        old[i] = 2;
    }
}

static int child(uint64_t number)
{
    for (size_t i = 0; i < inherited_length; i += 64 << 10) {
        MUST(inherited[i] == (unsigned char)(i >> 10));
        if (i % (1 << 20) == 0)
            inherited[i] = (unsigned char)~inherited[i];
    }
    map_and_break();
    allocate_once((void *)(uintptr_t)number);
    pthread_t own[2];
    for (int i = 0; i < 2; i++)
        MUST(pthread_create(&own[i], NULL, allocate_once, (void *)(uintptr_t)(number + (uint64_t)i)) == 0);
    for (int i = 0; i < 2; i++)
        MUST(pthread_join(own[i], NULL) == 0);
    return 3;
}

static void *fork_children(void *count)
{
    for (uint64_t i = 0; i < (uint64_t)(uintptr_t)count; i++) {
        pid_t pid = fork();
        MUST(pid >= 0);
        if (pid == 0)
            _exit(child(1000 + i));
        int status;
        MUST(waitpid(pid, &status, 0) == pid);
        MUST(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    }
    return NULL;
}

int main(int count, char **words)
{
    uintptr_t children = count > 1 ? strtoul(words[1], NULL, 10) : 200;
    inherited_length = 20 * huge_size();
    MUST(inherited = malloc(inherited_length));
    for (size_t i = 0; i < inherited_length; i += 1024)
        inherited[i] = (unsigned char)(i >> 10);
    must_be_large(inherited_length / 4);
    pthread_t threads[THREADS], forker;
    for (uintptr_t i = 0; i < THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, allocate, (void *)(i + 1)) == 0);
    fork_children((void *)(children / 2));
    MUST(pthread_create(&forker, NULL, fork_children, (void *)(children - children / 2)) == 0);
    MUST(pthread_join(forker, NULL) == 0);
    atomic_store(&stop, 1);
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    for (size_t i = 0; i < inherited_length; i += 1024)
        MUST(inherited[i] == (unsigned char)(i >> 10));
    SAY("all children ended as they should\n");
    return 0;
}
