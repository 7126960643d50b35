/* A small debugger: attaches to a running process, reads and changes a word of it, stops it at a
 * breakpoint in the function that it is told, lets it go on over that, and detaches.
 *
 * usage: tracer PID WORD FUNCTION, addresses in hexadecimal; a line on stdin starts the part with the
 * breakpoint's wait */
#include "check.h"

#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/user.h>

static void stopped_by(pid_t pid, int signal)
{
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    MUST(WIFSTOPPED(status) && WSTOPSIG(status) == signal);
}

#ifdef __x86_64__
/* The trap replaces the first byte of the function, whatever stands there. */
static void over_breakpoint(pid_t pid, unsigned long function, long before)
{
    struct user_regs_struct registers;
    stopped_by(pid, 5 /* SIGTRAP */);
    MUST(ptrace(PTRACE_GETREGS, pid, 0, &registers) == 0);
    MUST(registers.rip == function + 1);
    MUST(ptrace(PTRACE_POKETEXT, pid, function, before) == 0);
    registers.rip = function;
    MUST(ptrace(PTRACE_SETREGS, pid, 0, &registers) == 0);
    for (int i = 0; i < 5; i++) {
        MUST(ptrace(PTRACE_SINGLESTEP, pid, 0, 0) == 0);
        stopped_by(pid, 5);
    }
}
#endif

int main(int count, char **words)
{
    MUST(count == 4);
    pid_t pid = atoi(words[1]);
    unsigned long word = strtoul(words[2], NULL, 16), function = strtoul(words[3], NULL, 16);
    MUST(ptrace(PTRACE_ATTACH, pid, 0, 0) == 0);
    stopped_by(pid, 19 /* SIGSTOP */);
    errno = 0;
    MUST(ptrace(PTRACE_PEEKDATA, pid, word, 0) == 0x1122334455667788 && errno == 0);
    MUST(ptrace(PTRACE_POKEDATA, pid, word, 0x99aabbccddeeff) == 0);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", (int)pid);
    int memory = open(path, O_RDONLY);
    uint64_t read_back = 0;
    MUST(memory >= 0 && pread(memory, &read_back, 8, (off_t)word) == 8);
    MUST(read_back == 0x99aabbccddeeff);
#ifdef __x86_64__
    long before = ptrace(PTRACE_PEEKTEXT, pid, function, 0);
    MUST(ptrace(PTRACE_POKETEXT, pid, function, (before & ~0xffL) | 0xcc) == 0);
    MUST(ptrace(PTRACE_CONT, pid, 0, 0) == 0);
    SAY("running\n");
    over_breakpoint(pid, function, before);
#else
    (void)function;
    SAY("running\n");
#endif
    MUST(ptrace(PTRACE_DETACH, pid, 0, 0) == 0);
    SAY("detached\n");
    return 0;
}
