/* A program that is linked with early.c: it allocates MIB in chunks of 100,000 bytes while the threads
 * of that library do. */
#include "check.h"

void end_early(void);

int main(int count, char **words)
{
    MUST(count == 2);
    size_t wanted = strtoul(words[1], NULL, 10) << 20;
    size_t pieces = wanted / 100000;
    struct chunk *all = calloc(pieces, sizeof *all);
    MUST(all);
    for (size_t i = 0; i < pieces; i++) {
        all[i] = (struct chunk){ malloc(100000), 100000, i };
        MUST(all[i].at);
        chunk_fill(&all[i], 0);
    }
    for (size_t i = 0; i < pieces; i++)
        MUST(chunk_is_whole(&all[i]));
    must_be_large(wanted / 2);
    end_early();
    SAY("whole\n");
    return 3;
}
