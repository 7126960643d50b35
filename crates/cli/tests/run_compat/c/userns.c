/* What only a process of one thread may do: a user namespace of its own. And it has one thread.
 *
 * usage: userns MIB */
#include "check.h"

#include <dirent.h>
#include <sched.h>

static int tasks(void)
{
    DIR *folder = opendir("/proc/self/task");
    MUST(folder);
    int number = 0;
    for (struct dirent *entry; (entry = readdir(folder));)
        number += entry->d_name[0] != '.';
    closedir(folder);
    return number;
}

int main(int count, char **words)
{
    MUST(count == 2);
    struct chunk c = { NULL, strtoul(words[1], NULL, 10) << 20, 4 };
    MUST(c.at = malloc(c.length));
    chunk_fill(&c, 0);
    must_be_large(c.length / 4);
    SAY("tasks %d\n", tasks());
    if (unshare(CLONE_NEWUSER) != 0) {
        SAY("unshare: %d\n", errno);
        return 1;
    }
    unsigned char *map =
        mmap(NULL, c.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(map != MAP_FAILED);
    memset(map, 1, c.length);
    unsigned char *shared =
        mmap(NULL, c.length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(shared != MAP_FAILED);
    memset(shared, 1, c.length);
    SAY("unshared, tasks %d\n", tasks());
    return 0;
}
