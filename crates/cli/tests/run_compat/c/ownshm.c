/* A library that has a shmget of its own, as libhugetlbfs does: it makes each segment a page longer, and
 * hands the rest to whoever comes next. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/shm.h>
#include <unistd.h>

int shmget(key_t key, size_t size, int flags)
{
    int (*next)(key_t, size_t, int) = (int (*)(key_t, size_t, int))dlsym(RTLD_NEXT, "shmget");
    return next(key, size + (size_t)sysconf(_SC_PAGESIZE), flags);
}
