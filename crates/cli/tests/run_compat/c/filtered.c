/* Starts a program behind a filter, as service managers and container runtimes do.
 *
 * usage: filtered container|kill-madvise|no-new-code|no-code-files|half-new-code COMMAND... */
#include "check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define ENDS_IN(number, how)                                                                     \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), BPF_STMT(BPF_RET | BPF_K, (how))
#define REFUSED (SECCOMP_RET_ERRNO | EPERM)
#define LOAD BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define ALLOWED BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* What containers refuse: file systems, other processes' memory, memory policies, events. */
static struct sock_filter container[] = {
    LOAD,
    ENDS_IN(SYS_mount, REFUSED),
    ENDS_IN(SYS_fsopen, REFUSED),
    ENDS_IN(SYS_fsconfig, REFUSED),
    ENDS_IN(SYS_fsmount, REFUSED),
    ENDS_IN(SYS_ptrace, REFUSED),
    ENDS_IN(SYS_process_madvise, REFUSED),
    ENDS_IN(SYS_set_mempolicy, REFUSED),
    ENDS_IN(SYS_mbind, REFUSED),
    ENDS_IN(SYS_perf_event_open, REFUSED),
    ALLOWED,
};
static struct sock_filter no_advice[] = {
    LOAD,
    ENDS_IN(SYS_madvise, SECCOMP_RET_KILL_PROCESS),
    ALLOWED,
};

/* The lower half of an argument of the call. */
#define LOAD_ARGUMENT(n)                                                                         \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[n]))
#define SKIP_UNLESS(value, count) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, (count))

/* What was writable may not become code, as where a service manager says so. */
#define NO_NEW_CODE                                                                              \
    SKIP_UNLESS(SYS_mprotect, 3), LOAD_ARGUMENT(2),                                              \
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),                                   \
        BPF_STMT(BPF_RET | BPF_K, REFUSED), LOAD
static struct sock_filter no_new_code[] = { LOAD, NO_NEW_CODE, ALLOWED };
/* Nor may files in memory be made. */
static struct sock_filter no_code_files[] = {
    LOAD,
    NO_NEW_CODE,
    ENDS_IN(SYS_memfd_create, REFUSED),
    ALLOWED,
};
/* The second part of such a file cannot be mapped over what is there, and nothing is opened to be
 * written. */
static struct sock_filter half_new_code[] = {
    LOAD,
    NO_NEW_CODE,
    SKIP_UNLESS(SYS_mmap, 5),
    LOAD_ARGUMENT(3),
    SKIP_UNLESS(MAP_PRIVATE | MAP_FIXED, 3),
    LOAD_ARGUMENT(5),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
    LOAD,
    SKIP_UNLESS(SYS_openat, 3),
    LOAD_ARGUMENT(2),
    SKIP_UNLESS(O_RDWR | O_CLOEXEC, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
    ALLOWED,
};

#define FILTER(name, list) { name, { sizeof list / sizeof list[0], list } }
static struct {
    const char *name;
    struct sock_fprog filter;
} kinds[] = {
    FILTER("container", container),         FILTER("kill-madvise", no_advice),
    FILTER("no-new-code", no_new_code),     FILTER("no-code-files", no_code_files),
    FILTER("half-new-code", half_new_code),
};

int main(int count, char **words)
{
    MUST(count > 2);
    size_t kind = 0;
    while (strcmp(words[1], kinds[kind].name) != 0)
        MUST(++kind < sizeof kinds / sizeof kinds[0]);
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &kinds[kind].filter) == 0);
    execvp(words[2], words + 2);
    return 127;
}
