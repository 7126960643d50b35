/* Shuts itself in a system-call filter, as Chromium's and OpenSSH's children do, and goes on
 * allocating. Only what bare malloc needs is allowed; the rest fails with EPERM, or kills.
 *
 * usage: sandbox errno|kill|strict prctl|seccomp MIB */
#include "check.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define ALLOW(number)                                                                            \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1),                                         \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void shut_in(unsigned otherwise, int by_prctl)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_read),   ALLOW(SYS_write),  ALLOW(SYS_exit),         ALLOW(SYS_exit_group),
        ALLOW(SYS_mmap),   ALLOW(SYS_munmap), ALLOW(SYS_rt_sigreturn), ALLOW(SYS_brk),
        ALLOW(SYS_mremap), BPF_STMT(BPF_RET | BPF_K, otherwise),
    };
    struct sock_fprog filter = { sizeof rules / sizeof rules[0], rules };
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (by_prctl)
        MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
    else
        MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0);
}

static struct chunk first[4096], later[4096];

static void fill(struct chunk *chunks, size_t wanted, uint64_t seed)
{
    uint64_t state = seed;
    size_t held = 0;
    for (int i = 0; i < 4096 && held < wanted; i++) {
        chunks[i] = (struct chunk){ NULL, draw_size(&state), draw(&state) };
        MUST(chunks[i].at = malloc(chunks[i].length));
        chunk_fill(&chunks[i], 0);
        held += chunks[i].length;
    }
}

static void let_go(struct chunk *chunks)
{
    for (int i = 0; i < 4096 && chunks[i].at; i++) {
        MUST(chunk_is_whole(&chunks[i]));
        free(chunks[i].at);
        chunks[i].at = NULL;
    }
}

int main(int count, char **words)
{
    MUST(count == 4);
    size_t wanted = strtoul(words[3], NULL, 10) << 20;
    fill(first, wanted, 1);
    if (wanted >= 64 * huge_size())
        must_be_large(wanted / 4);
    if (strcmp(words[1], "strict") == 0) {
        /* read, write, exit and sigreturn only: nothing is taken any more, all is still there. */
        MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
        for (int i = 0; i < 4096 && first[i].at; i++)
            MUST(chunk_is_whole(&first[i]));
        SAY("done\n");
        syscall(SYS_exit, 4);
    }
    shut_in(strcmp(words[1], "kill") == 0 ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM,
            strcmp(words[2], "prctl") == 0);
    fill(later, wanted, 2);
    let_go(first);
    fill(first, wanted, 3);
    let_go(later);
    let_go(first);
    SAY("done\n");
    return 4;
}
