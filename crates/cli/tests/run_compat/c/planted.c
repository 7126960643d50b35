/* Built with a sanitizer: well, or with the bug that it is to find.
 *
 * usage: planted well|overflow|after-free|race|leak */
#include "check.h"

#include <pthread.h>

static int shared_number;

static void *change(void *unused)
{
    (void)unused;
    for (int i = 0; i < 100000; i++)
        shared_number++;
    return NULL;
}

int main(int count, char **words)
{
    MUST(count == 2);
    uint64_t state = 1;
    struct chunk chunks[200];
    for (int i = 0; i < 200; i++) {
        chunks[i] = (struct chunk){ NULL, draw_size(&state), draw(&state) };
        MUST(chunks[i].at = malloc(chunks[i].length));
        chunk_fill(&chunks[i], 0);
    }
    volatile unsigned char *last = chunks[0].at + chunks[0].length;
    if (strcmp(words[1], "overflow") == 0)
        *last = 1;
    if (strcmp(words[1], "race") == 0) {
        pthread_t threads[2];
        for (int i = 0; i < 2; i++)
            MUST(pthread_create(&threads[i], NULL, change, NULL) == 0);
        for (int i = 0; i < 2; i++)
            MUST(pthread_join(threads[i], NULL) == 0);
    }
    for (int i = 0; i < 200; i++) {
        MUST(chunk_is_whole(&chunks[i]));
        free(chunks[i].at);
    }
    if (strcmp(words[1], "after-free") == 0)
        SAY("%d\n", *(volatile unsigned char *)chunks[1].at);
    if (strcmp(words[1], "leak") == 0) {
        volatile unsigned char *lost = malloc(12345);
        MUST(lost);
        lost[0] = 1;
        lost = NULL;
    }
    SAY("done\n");
    return 0;
}
