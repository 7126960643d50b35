/* Ends with a core dump; a marker lies in a small chunk, in a large one, and in mapped memory.
 *
 * usage: dumped MIB */
#include "check.h"

#include <sys/resource.h>

int main(int count, char **words)
{
    MUST(count == 2);
    size_t length = strtoul(words[1], NULL, 10) << 20;
    struct rlimit limit;
    MUST(getrlimit(RLIMIT_CORE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    MUST(setrlimit(RLIMIT_CORE, &limit) == 0);
    char *large = malloc(length), *small = malloc(200);
    char *map = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(large && small && map != MAP_FAILED);
    memset(large, 7, length);
    memset(map, 7, length);
    must_be_large(length / 2);
    /* Made at run time: the text of the program holds no marker. */
    for (int i = 0; i < 3; i++) {
        char *at = i == 0 ? small : i == 1 ? large + length / 2 : map + length / 3;
        snprintf(at, 100, "marker-%s-%d-%d", "of the program", i, (int)getpid());
    }
    SAY("%d\n", (int)getpid());
    abort();
}
