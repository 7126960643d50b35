/* A library whose constructor starts two threads that map, allocate and unmap until they are told to
 * end: what libraries of threads do before a program's `main`. */
#include "check.h"

#include <pthread.h>

static int over;
static pthread_t threads[2];

static void *work(void *nothing)
{
    size_t page = page_size();
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        char *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(at != MAP_FAILED);
        at[page] = 1;
        MUST(mprotect(at, page, PROT_READ) == 0);
        MUST(munmap(at, 2 * page) == 0);
        struct chunk c = { malloc(300000), 300000, 5 };
        MUST(c.at);
        chunk_fill(&c, 0);
        MUST(c.at = realloc(c.at, 600000));
        MUST(chunk_holds(&c, 299999));
        free(c.at);
    }
    return nothing;
}

__attribute__((constructor)) static void begin(void)
{
    for (int i = 0; i < 2; i++)
        MUST(pthread_create(&threads[i], NULL, work, NULL) == 0);
    /* They are in the middle of it when the next constructor runs. */
    usleep(2000);
}

void end_early(void);
void end_early(void)
{
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
}
