/* One thread makes the heap grow, which the pool cannot serve; another maps and unmaps all the time, as long as what the heap
 * grows by, and sees that nobody else writes to or takes what it mapped.
 *
 * usage: gaps STEPS */
#include "check.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <stdatomic.h>

static size_t huge;
static atomic_int done;

static void *maps(void *unused)
{
    enum { HELD = 8 };
    static unsigned char *held[HELD];
    int rights = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    for (size_t turn = 0; !done; turn++) {
        unsigned char **slot = &held[turn % HELD];
        if (*slot) {
            MUST(**slot == (unsigned char)(turn - HELD));
            MUST(syscall(SYS_munmap, *slot, huge) == 0);
        }
        /* Past the library, which would cut it from memory of its own. */
        *slot = (unsigned char *)syscall(SYS_mmap, NULL, huge, rights, flags, -1, 0);
        MUST(*slot != MAP_FAILED);
        **slot = (unsigned char)turn;
    }
    return unused;
}

int main(int count, char **words)
{
    MUST(count == 2);
    huge = huge_size();
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, maps, NULL) == 0);
    MUST(sbrk(64 * (intptr_t)huge) != (void *)-1); /* More than the pool has. */
    for (long step = atol(words[1]); step > 0; step--) {
        MUST(sbrk((intptr_t)huge) != (void *)-1);
        MUST(sbrk(-(intptr_t)huge) != (void *)-1);
    }
    done = 1;
    MUST(pthread_join(thread, NULL) == 0);
    SAY("nothing was taken\n");
    return 0;
}
