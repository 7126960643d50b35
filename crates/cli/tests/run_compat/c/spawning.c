/* Starts programs in every way that there is, from a process that holds memory.
 *
 * usage: spawning TIMES */
#include "check.h"

#include <spawn.h>

extern char **environ;

static int status_of(pid_t pid)
{
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    MUST(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void by_vfork(char *const *command)
{
    pid_t pid = vfork();
    MUST(pid >= 0);
    if (pid == 0) {
        execve(command[0], command, environ);
        _exit(127);
    }
    MUST(status_of(pid) == 5);
    pid = vfork();
    MUST(pid >= 0);
    if (pid == 0) {
        char *const none[] = { "/nonexistent", NULL };
        execve(none[0], none, environ);
        _exit(21);
    }
    MUST(status_of(pid) == 21);
}

static void by_spawn(char *const *command)
{
    pid_t pid;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    MUST(posix_spawn_file_actions_init(&actions) == 0 && posix_spawnattr_init(&attributes) == 0);
    MUST(posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0) == 0);
    MUST(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF) == 0);
    MUST(posix_spawn(&pid, command[0], &actions, &attributes, command, environ) == 0);
    MUST(status_of(pid) == 5);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
}

static void by_pipe(void)
{
    char line[64] = { 0 };
    FILE *from = popen("echo from a pipe; exit 6", "r");
    MUST(from && fgets(line, sizeof line, from));
    MUST(strcmp(line, "from a pipe\n") == 0);
    MUST(WEXITSTATUS(pclose(from)) == 6);
    MUST(WEXITSTATUS(system("exit 8")) == 8);
}

int main(int count, char **words)
{
    MUST(count == 2);
    struct chunk kept = { malloc(64 * huge_size()), 64 * huge_size(), 3 };
    MUST(kept.at);
    chunk_fill(&kept, 0);
    must_be_large(kept.length / 4);
    char *const command[] = { "/bin/sh", "-c", "exit 5", NULL };
    int times = atoi(words[1]);
    for (int i = 0; i < times; i++) {
        by_vfork(command);
        by_spawn(command);
        by_pipe();
        struct chunk c = { malloc(1 << 20), 1 << 20, (uint64_t)i };
        MUST(c.at);
        chunk_fill(&c, 0);
        MUST(chunk_is_whole(&c));
        free(c.at);
    }
    MUST(chunk_is_whole(&kept));
    SAY("%d times\n", times);
    return 0;
}
