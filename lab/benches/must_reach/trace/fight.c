/* Threads that map, touch and unmap memory of one process: they fight for its one lock.
   usage: fight THREADS; answers each line with its clock in seconds and its turns so far. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static atomic_ulong turns;
static size_t length;

static void *fight(void *unused)
{
    for (;;) {
        char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            exit(1);
        memory[0] = 1;
        munmap(memory, length);
        atomic_fetch_add(&turns, 1);
    }
    return unused;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int count, char **words)
{
    if (count != 2)
        return 2;
    length = 64 * (size_t)sysconf(_SC_PAGESIZE);
    for (int n = atoi(words[1]); n > 0; n--) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, fight, NULL))
            return 1;
    }
    for (int c; (c = getchar()) != EOF;) {
        if (c != '\n')
            continue;
        printf("%.9f %lu\n", now(), turns);
        fflush(stdout);
    }
    return 0;
}
