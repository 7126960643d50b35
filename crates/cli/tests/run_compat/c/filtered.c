/* Starts a program behind a filter, as service managers and container runtimes do.
 *
 * usage: filtered container|kill-madvise COMMAND... */
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

int main(int count, char **words)
{
    MUST(count > 2);
    int in_container = strcmp(words[1], "container") == 0;
    struct sock_fprog filter = { sizeof no_advice / sizeof no_advice[0], no_advice };
    if (in_container)
        filter = (struct sock_fprog){ sizeof container / sizeof container[0], container };
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
    execvp(words[2], words + 2);
    return 127;
}
