/* mlockall(2) of all that is and will be, then memory of every kind; says what is resident, locked.
 *
 * usage: locked MIB */
#include "check.h"

#include <pthread.h>

static void *use_stack(void *unused)
{
    (void)unused;
    volatile unsigned char own[20000];
    own[0] = own[sizeof own - 1] = 1;
    return NULL;
}

int main(int count, char **words)
{
    MUST(count == 2);
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        SAY("not locked: %d\n", errno);
        return 2;
    }
    size_t wanted = strtoul(words[1], NULL, 10) << 20, held = 0;
    static struct chunk chunks[100000];
    uint64_t state = 1;
    size_t used = 0;
    while (held < wanted && used < 100000) {
        struct chunk *c = &chunks[used];
        *c = (struct chunk){ NULL, draw_size(&state), draw(&state) };
        c->at = malloc(c->length);
        if (!c->at)
            break;
        chunk_fill(c, 0);
        held += c->length;
        used++;
    }
    pthread_t thread;
    pthread_attr_t attributes;
    MUST(pthread_attr_init(&attributes) == 0);
    MUST(pthread_attr_setstacksize(&attributes, 256 << 10) == 0);
    if (pthread_create(&thread, &attributes, use_stack, NULL) == 0)
        MUST(pthread_join(thread, NULL) == 0);
    for (size_t i = 0; i < used; i++)
        MUST(chunk_is_whole(&chunks[i]));
    SAY("held %zu resident %zu locked %zu\n", held, resident_bytes(),
        (size_t)number_in("/proc/self/status", "VmLck:") * 1024);
    return 0;
}
