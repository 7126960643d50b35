/* Shared memory of one kind: fills it, lets a child check it and change it, checks what the child
 * did, says "ready" and waits for a line. What it says at the end depends on every byte.
 *
 * usage: shared sysv|anonymous BYTES
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static uint64_t *take(const char *kind, size_t bytes)
{
    void *at;
    if (!strcmp(kind, "sysv")) {
        int id = shmget(IPC_PRIVATE, bytes, IPC_CREAT | 0600);
        if (id < 0)
            fail("shmget");
        at = shmat(id, NULL, 0);
        if (at == (void *)-1)
            fail("shmat");
        shmctl(id, IPC_RMID, NULL);
    } else {
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED)
            fail("mmap");
    }
    return at;
}

static uint64_t sum(const uint64_t *at, size_t words)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < words; i++)
        sum = sum * 31 + at[i];
    return sum;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    size_t bytes = strtoull(argv[2], NULL, 10), words = bytes / sizeof(uint64_t);
    uint64_t *at = take(argv[1], bytes);
    for (size_t i = 0; i < words; i++) {
        if (at[i]) {
            fprintf(stderr, "new memory holds %llu\n", (unsigned long long)at[i]);
            return 1;
        }
        at[i] = i * 0x9E3779B97F4A7C15ull;
    }
    uint64_t before = sum(at, words);
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (child == 0) {
        if (sum(at, words) != before)
            _exit(1);
        for (size_t i = 0; i < words; i += 3)
            at[i] = ~at[i];
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "the child ended in %d\n", status);
        return 1;
    }
    printf("check %llu\nready\n", (unsigned long long)sum(at, words));
    fflush(stdout);
    getchar();
    return 0;
}
