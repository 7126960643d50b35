/* Allocates until there is no more, in chunks of one size, and says how much that was. Then lets it go
 * and does it again: as much as before must be there.
 *
 * usage: limited CHUNK_BYTES malloc|mmap|sbrk */
#include "check.h"

static void *take(size_t size, char way)
{
    if (way == 's') {
        void *at = sbrk((intptr_t)size);
        return at == (void *)-1 ? NULL : at;
    }
    if (way == 'm' + 1) {
        void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return at == MAP_FAILED ? NULL : at;
    }
    return malloc(size);
}

int main(int count, char **words)
{
    MUST(count == 3);
    size_t size = strtoul(words[1], NULL, 10);
    char way = strcmp(words[2], "mmap") == 0 ? 'm' + 1 : words[2][0];
    enum { MOST = 4000000 };
    static void *chunks[MOST];
    for (int round = 0; round < 2; round++) {
        size_t used = 0;
        while (used < MOST && (chunks[used] = take(size, way))) {
            memset(chunks[used], 1, size < 64 ? size : 64);
            for (size_t i = page_size(); i < size; i += page_size())
                ((unsigned char *)chunks[used])[i] = 2;
            used++;
        }
        MUST(used == MOST || errno == ENOMEM);
        SAY("round %d: %zu\n", round, used * size);
        for (size_t i = used; i-- > 0;) {
            if (way == 's')
                MUST(sbrk(-(intptr_t)size) != (void *)-1);
            else if (way == 'm' + 1)
                MUST(munmap(chunks[i], size) == 0);
            else
                free(chunks[i]);
        }
    }
    return 0;
}
