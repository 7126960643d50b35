/* Programs of the guard's soak: memory at one address, so that what gets a PID after another has it where that one had.
 *
 * churn MB CHILDREN huge|base: maps and touches so much, forks children that write to a quarter of it, prints a line, and
 * ends with its standard input. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    size_t bytes = strtoull(argv[1], NULL, 10) << 20;
    int children = atoi(argv[2]);
    char *memory = mmap((void *)0x200000000000, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (memory == MAP_FAILED)
        return 3;
    if (strcmp(argv[3], "huge") == 0)
        madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 7, bytes);
    pid_t parent = getpid();
    for (int i = 0; i < children; i++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                return 0;
            memset(memory, 8, bytes / 4);
            for (;;)
                pause();
        }
    puts("ok");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
