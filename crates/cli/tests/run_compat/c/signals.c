/* Signals that interrupt the program every 100 us: a handler that maps memory, on its own stack; one
 * that allocates (only while the program itself does not); one that jumps out of what it interrupted.
 *
 * usage: signals MILLISECONDS, of each */
#include "check.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>

static volatile sig_atomic_t handled;
static sigjmp_buf back;
static size_t huge;

static void every(long microseconds)
{
    struct itimerval timer = { { 0, microseconds }, { 0, microseconds } };
    MUST(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

static void handle(void (*handler)(int), int flags)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART | flags };
    MUST(sigaction(SIGALRM, &action, NULL) == 0);
}

static int is_over(struct timespec *start, long milliseconds)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long passed = (now.tv_sec - start->tv_sec) * 1000 + (now.tv_nsec - start->tv_nsec) / 1000000;
    return passed >= milliseconds;
}

static void map_once(size_t length)
{
    unsigned char *map = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(map != MAP_FAILED);
    MUST(map[0] == 0 && map[length - 1] == 0);
    map[0] = map[length - 1] = 1;
    MUST(munmap(map, length) == 0);
}

static void maps(int number)
{
    (void)number;
    int error = errno;
    map_once(huge / 8 + (size_t)handled % 3 * huge);
    handled++;
    errno = error;
}

static void allocates(int number)
{
    (void)number;
    static uint64_t state = 3;
    struct chunk c = { NULL, draw_size(&state), draw(&state) };
    MUST(c.at = malloc(c.length));
    chunk_fill(&c, 0);
    MUST(chunk_is_whole(&c));
    free(c.at);
    handled++;
}

static void jumps(int number)
{
    (void)number;
    handled++;
    siglongjmp(back, 1);
}

/* The program allocates; the handler maps. */
static void while_allocating(long milliseconds)
{
    enum { SLOTS = 200 };
    struct chunk slots[SLOTS] = { 0 };
    struct timespec start;
    uint64_t state = 11;
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (!is_over(&start, milliseconds)) {
        struct chunk *c = &slots[below(&state, SLOTS)];
        if (c->at) {
            MUST(chunk_is_whole(c));
            if (below(&state, 2)) {
                size_t length = draw_size(&state);
                MUST(c->at = realloc(c->at, length));
                c->length = length;
                chunk_fill(c, 0);
                continue;
            }
            free(c->at);
        }
        *c = (struct chunk){ NULL, draw_size(&state), draw(&state) };
        MUST(c->at = malloc(c->length));
        chunk_fill(c, 0);
    }
    for (int i = 0; i < SLOTS; i++)
        free(slots[i].at);
}

/* The program maps; the handler allocates, or jumps away from the call that it interrupted. */
static void while_mapping(long milliseconds)
{
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    volatile size_t turn = 0;
    if (sigsetjmp(back, 1))
        turn++;
    while (!is_over(&start, milliseconds))
        map_once(huge / 2 * (1 + turn++ % 4));
    MUST(sigprocmask(SIG_BLOCK, &alarm, NULL) == 0);
    every(0);
    MUST(sigprocmask(SIG_UNBLOCK, &alarm, NULL) == 0);
}

int main(int count, char **words)
{
    MUST(count == 2);
    long milliseconds = atol(words[1]);
    huge = huge_size();
    struct chunk kept = { malloc(48 * huge), 48 * huge, 3 };
    MUST(kept.at);
    chunk_fill(&kept, 0);
    must_be_large(kept.length / 4);
    static unsigned char own_stack[1 << 16];
    stack_t stack = { .ss_sp = own_stack, .ss_size = sizeof own_stack };
    MUST(sigaltstack(&stack, NULL) == 0);

    handle(maps, SA_ONSTACK);
    every(100);
    while_allocating(milliseconds);
    MUST(handled > 10);

    handled = 0;
    handle(allocates, 0);
    every(200);
    while_mapping(milliseconds);
    MUST(handled > 10);

    handled = 0;
    handle(jumps, 0);
    every(1000);
    while_mapping(milliseconds);
    MUST(handled > 10);

    handle(SIG_IGN, 0);
    while_allocating(milliseconds / 4);
    MUST(chunk_is_whole(&kept));
    SAY("interrupted\n");
    return 0;
}
