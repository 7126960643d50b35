/* As many threads at once as are wanted, or as the host gives; each uses its stack, and some of them
 * allocate.
 *
 * usage: manythreads COUNT STACK_BYTES (0: as it is) */
#include "check.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static size_t arrived;
static int go;

static void *wait_here(void *number)
{
    uintptr_t n = (uintptr_t)number;
    volatile unsigned char own[6000];
    for (size_t i = 0; i < sizeof own; i += 100)
        own[i] = (unsigned char)(n + i);
    struct chunk c = { NULL, 1 + n % 3000, n };
    if (n % 16 == 0) {
        MUST(c.at = malloc(c.length));
        chunk_fill(&c, 0);
    }
    pthread_mutex_lock(&lock);
    arrived++;
    pthread_cond_broadcast(&changed);
    while (!go)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < sizeof own; i += 100)
        MUST(own[i] == (unsigned char)(n + i));
    if (c.at) {
        MUST(chunk_is_whole(&c));
        free(c.at);
    }
    return NULL;
}

int main(int count, char **words)
{
    MUST(count == 3);
    size_t wanted = strtoul(words[1], NULL, 10), size = strtoul(words[2], NULL, 10), got = 0;
    static pthread_t threads[20000];
    MUST(wanted <= 20000);
    pthread_attr_t attributes;
    MUST(pthread_attr_init(&attributes) == 0);
    if (size)
        MUST(pthread_attr_setstacksize(&attributes, size) == 0);
    while (got < wanted && pthread_create(&threads[got], &attributes, wait_here, (void *)got) == 0)
        got++;
    pthread_mutex_lock(&lock);
    while (arrived < got)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    SAY("threads %zu resident %zu\n", got, resident_bytes());
    pthread_mutex_lock(&lock);
    go = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < got; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    SAY("all ended\n");
    return 0;
}
