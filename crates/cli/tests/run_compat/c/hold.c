/* Takes memory by malloc until it has MIB or gets no more, says how much it got and how much of that is reserved, then forks
 * and asks for more in both processes.
 *
 * usage: hold MIB */
#include "check.h"

static const char *more(size_t size)
{
    char *at = malloc(size);
    if (at)
        memset(at, 1, size);
    return at ? "some" : "none";
}

int main(int count, char **words)
{
    enum { CHUNK = 1000000 };
    MUST(count == 2);
    size_t wanted = strtoul(words[1], NULL, 10) << 20, got = 0;
    while (got < wanted) {
        char *at = malloc(CHUNK);
        if (!at) {
            MUST(errno == ENOMEM);
            break;
        }
        memset(at, 1, CHUNK);
        got += CHUNK;
    }
    SAY("got %zu of %zu\n", got >> 20, wanted >> 20);
    SAY("reserved %ld\n", number_in("/proc/self/status", "HugetlbPages:") >> 10);
    pid_t process = fork();
    if (process < 0) {
        MUST(errno == ENOMEM);
        SAY("fork refused\n");
        return 0;
    }
    if (process == 0) {
        SAY("in the child %s\n", more(CHUNK * 3));
        _exit(0);
    }
    int status;
    MUST(waitpid(process, &status, 0) == process && status == 0);
    SAY("after the fork %s\n", more(CHUNK * 3));
    return 0;
}
