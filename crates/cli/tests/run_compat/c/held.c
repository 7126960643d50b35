/* Allocates, resizes and frees chunks of all sizes until it has held MIB, then lets half of it go and
 * takes it again, and checks every byte that it wrote. What the other tests take as "a program".
 *
 * usage: held MIB [PAUSE: says "ready" and waits for a line] */
#include "check.h"

enum { CHUNKS = 200000 };
static struct chunk chunks[CHUNKS];
static uint64_t state = 1;

static void take(struct chunk *c)
{
    c->length = draw_size(&state);
    c->seed = draw(&state);
    int way = (int)below(&state, 8);
    if (way == 0) {
        MUST(c->at = calloc(1, c->length));
        for (size_t i = 0; i < c->length; i += 64)
            MUST(c->at[i] == 0);
    } else if (way == 1) {
        MUST(posix_memalign((void **)&c->at, (size_t)64 << below(&state, 12), c->length) == 0);
    } else {
        MUST(c->at = malloc(c->length));
    }
    chunk_fill(c, 0);
}

static void resize(struct chunk *c)
{
    size_t length = draw_size(&state), old = c->length;
    unsigned char *at = realloc(c->at, length);
    MUST(at);
    c->at = at;
    size_t kept = length < old ? length : old;
    /* The last byte of a chunk that grew holds the old end's pattern still. */
    if (kept == old)
        MUST(at[old - 1] == chunk_byte(c, old - 1));
    MUST(chunk_holds(c, kept > 0 ? kept - 1 : 0));
    c->length = length;
    chunk_fill(c, 0);
}

int main(int count, char **words)
{
    size_t wanted = strtoul(words[1], NULL, 10) << 20, held = 0;
    size_t used = 0;
    while (held < wanted && used < CHUNKS) {
        take(&chunks[used]);
        held += chunks[used++].length;
        if (below(&state, 4) == 0) {
            struct chunk *c = &chunks[below(&state, used)];
            held -= c->length;
            resize(c);
            held += c->length;
        }
    }
    SAY("held\n");
    for (size_t i = 0; i < used; i += 2) {
        MUST(chunk_is_whole(&chunks[i]));
        free(chunks[i].at);
        chunks[i].at = NULL;
    }
    for (size_t i = 0; i < used; i += 2)
        take(&chunks[i]);
    for (size_t i = 0; i < used; i++)
        MUST(chunk_is_whole(&chunks[i]));
    if (wanted >= 64 * huge_size())
        must_be_large(wanted / 2);
    if (count > 2) {
        SAY("ready\n");
        char byte;
        while (read(0, &byte, 1) == 1 && byte != '\n')
            ;
    }
    for (size_t i = 0; i < used; i++) {
        MUST(chunk_is_whole(&chunks[i]));
        free(chunks[i].at);
    }
    SAY("whole\n");
    return 7;
}
