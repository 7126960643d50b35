/* Says where it keeps a word, waits for a line, and says what the word is then.
 *
 * usage: traced MIB */
#include "check.h"

int main(int count, char **words)
{
    MUST(count == 2);
    size_t length = strtoul(words[1], NULL, 10) << 20;
    struct chunk c = { malloc(length), length, 6 };
    MUST(c.at);
    chunk_fill(&c, 0);
    must_be_large(length / 4);
    volatile uint64_t *word = (uint64_t *)(c.at + (length / 2 & ~(size_t)511) + 8);
    *word = 0x1122334455667788;
    SAY("%d %lx %lx\n", (int)getpid(), (unsigned long)word, (unsigned long)&mmap);
    char byte;
    while (read(0, &byte, 1) == 1 && byte != '\n') {
    }
    SAY("%lx\n", (unsigned long)*word);
    unsigned char *map = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(map != MAP_FAILED);
    memset(map, 1, length);
    MUST(chunk_is_whole(&c));
    SAY("whole\n");
    return 0;
}
