/* A library that is loaded and unloaded: zeroed data larger than a huge page, and memory taken and
 * returned in its constructor and destructor. */
#include "check.h"

static unsigned char zeroed[5 << 20];
static unsigned char initialised[1 << 20] = { 1, 2, 3 };
static __thread unsigned char of_thread[1 << 16];
static struct chunk own;

__attribute__((constructor)) static void come(void)
{
    for (size_t i = 0; i < sizeof zeroed; i += 256)
        MUST(zeroed[i] == 0);
    memset(zeroed, 0xa5, sizeof zeroed);
    own = (struct chunk){ malloc(3 << 20), 3 << 20, 77 };
    MUST(own.at);
    chunk_fill(&own, 0);
}

__attribute__((destructor)) static void go(void)
{
    MUST(chunk_is_whole(&own));
    MUST(zeroed[sizeof zeroed - 1] == 0xa5);
    free(own.at);
}

int answer(int question)
{
    MUST(initialised[2] == 3 && of_thread[100] == 0);
    return question + 1;
}
