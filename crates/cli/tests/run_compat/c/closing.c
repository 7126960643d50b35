/* Closes every descriptor it finds, its output too, and writes files under the numbers that are free
 * then, as daemons do: nothing else may come into them, and no number may be taken.
 *
 * usage: closing FOLDER MIB */
#include "check.h"

#include <pthread.h>

static void *use(void *unused)
{
    return unused;
}

int main(int count, char **words)
{
    MUST(count == 3);
    size_t length = strtoul(words[2], NULL, 10) << 20;
    for (int fd = 0; fd < 1024; fd++)
        close(fd);
    MUST(chdir(words[1]) == 0);
    static const char *names[3] = { "zero", "one", "two" };
    for (int fd = 0; fd < 3; fd++)
        if (open(names[fd], O_RDWR | O_CREAT | O_TRUNC, 0600) != fd)
            _exit(20 + fd);
    struct chunk c = { malloc(length), length, 1 };
    MUST(c.at);
    chunk_fill(&c, 0);
    unsigned char *shared =
        mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(shared != MAP_FAILED);
    memset(shared, 1, length);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, use, NULL) == 0 && pthread_join(thread, NULL) == 0);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        struct chunk own = { malloc(length), length, 2 };
        MUST(own.at);
        chunk_fill(&own, 0);
        _exit(chunk_is_whole(&c) && chunk_is_whole(&own) ? 6 : 7);
    }
    int status;
    MUST(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 6);
    MUST(chunk_is_whole(&c));
    MUST(write(1, "the program's own\n", 18) == 18);
    /* The number that comes next is free. */
    MUST(open("/dev/null", O_RDONLY) == 3);
    return 11;
}
