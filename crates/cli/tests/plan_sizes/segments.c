/* Makes and attaches SysV segments of the sizes it is given, all on pages of the pool after
 * "huge", says so, and holds them until its standard input ends. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <unistd.h>

#ifndef SHM_HUGETLB
#define SHM_HUGETLB 04000
#endif

int main(int argc, char **argv)
{
    int huge = argc > 1 && strcmp(argv[1], "huge") == 0;
    for (int i = 1 + huge; i < argc; i++) {
        size_t length = strtoull(argv[i], NULL, 10);
        int id = shmget(IPC_PRIVATE, length, IPC_CREAT | 0600 | (huge ? SHM_HUGETLB : 0));
        if (id < 0) {
            printf("shmget: %s\n", strerror(errno));
            return 1;
        }
        char *at = shmat(id, NULL, 0);
        /* Removed when the last one detaches, also when this program is killed. */
        shmctl(id, IPC_RMID, NULL);
        if (at == (char *)-1) {
            printf("shmat: %s\n", strerror(errno));
            return 1;
        }
        at[0] = 1;
    }
    puts("ready");
    fflush(stdout);
    char end;
    while (read(0, &end, 1) > 0) {
    }
    return 0;
}
