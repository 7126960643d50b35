/* A program that says how much longer its segment is than it asked for, in pages. */
#include "check.h"
#include <sys/shm.h>

int main(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int id = shmget(IPC_PRIVATE, 16 * page, IPC_CREAT | 0600);
    MUST(id >= 0);
    struct shmid_ds facts;
    int answer = shmctl(id, IPC_STAT, &facts);
    shmctl(id, IPC_RMID, NULL);
    MUST(answer == 0);
    SAY("%zu more\n", facts.shm_segsz / page - 16);
    return 3;
}
