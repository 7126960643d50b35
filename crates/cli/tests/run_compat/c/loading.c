/* Loads and unloads libraries while a thread allocates.
 *
 * usage: loading PLUGIN TIMES */
#include "check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

static atomic_int stop;

static void *allocate(void *unused)
{
    (void)unused;
    uint64_t state = 5;
    while (!atomic_load(&stop)) {
        struct chunk c = { NULL, draw_size(&state), draw(&state) };
        MUST(c.at = malloc(c.length));
        chunk_fill(&c, 0);
        MUST(chunk_is_whole(&c));
        free(c.at);
    }
    return NULL;
}

int main(int count, char **words)
{
    MUST(count == 3);
    struct chunk kept = { malloc(48 * huge_size()), 48 * huge_size(), 9 };
    MUST(kept.at);
    chunk_fill(&kept, 0);
    must_be_large(kept.length / 4);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, allocate, NULL) == 0);
    int times = atoi(words[2]);
    for (int i = 0; i < times; i++) {
        void *plugin = dlopen(words[1], i % 2 ? RTLD_NOW : RTLD_LAZY);
        if (!plugin)
            check_failed(__FILE__, __LINE__, dlerror());
        int (*answer)(int) = (int (*)(int))dlsym(plugin, "answer");
        MUST(answer && answer(i) == i + 1);
        void *math = dlopen("libm.so.6", RTLD_NOW);
        MUST(math);
        MUST(dlclose(plugin) == 0);
        MUST(dlclose(math) == 0);
    }
    atomic_store(&stop, 1);
    MUST(pthread_join(thread, NULL) == 0);
    MUST(chunk_is_whole(&kept));
    SAY("%d times\n", times);
    return 0;
}
