/* A program that calls the library as it should not, or at bad times: one part a run, named by the first argument. */
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GRANULES = 16, GRANULE = 1 << 18, THREADS = 4, HELD = 4, RUBBISH = 9000, DESCRIPTORS = 250 };

#define COUNT(array) (sizeof(array) / sizeof *(array))

static _Thread_local hl_error error;
static hl_elastic *elastic;
static hl_component pool, sort;

/* On base pages: the same on every host. */
static hl_elastic_options options(uint32_t sharing)
{
    hl_elastic_options options = {
        .size = sizeof options,
        .max_bytes = (uint64_t)GRANULES * GRANULE,
        .granule_bytes = GRANULE,
        .ladder = "1K", /* No page is smaller than the base page. */
        .sharing = sharing,
    };
    return options;
}

static void two_components(uint32_t sharing)
{
    hl_elastic_options e = options(sharing);
    ENDS(HL_OK, hl_elastic_new(&e, &elastic, &error));
    ENDS(HL_OK, hl_elastic_component(elastic, "pool", 1, &pool, &error));
    ENDS(HL_OK, hl_elastic_component(elastic, "sort", 1, &sort, &error));
}

static hl_region *region_of(uint64_t bytes, uint32_t sharing)
{
    hl_region *region = NULL;
    hl_region_options r = { .size = sizeof r, .length_bytes = bytes, .ladder = "1K", .sharing = sharing };
    ENDS(HL_OK, hl_region_new(&r, &region, &error));
    return region;
}

static void pause_ms(long milliseconds)
{
    struct timespec pause = { milliseconds / 1000, milliseconds % 1000 * 1000000 };
    nanosleep(&pause, NULL);
}

static const uint64_t odd[] = { 0, 1, GRANULE - 1, UINT64_MAX, UINT64_MAX - 4095, (uint64_t)1 << 63,
                                (uint64_t)1 << 62, (uint64_t)1 << 57, (uint64_t)1 << 47 };

/* Refused: nothing is made, and why is said. */
#define REFUSED(made, call)                                                                      \
    do {                                                                                         \
        hl_status got = (call);                                                                  \
        CHECK(got != HL_OK && got != HL_PANIC && (made) == NULL && error.what[0] && error.next[0]); \
    } while (0)

static void odd_lengths(uint32_t sharing)
{
    hl_region *region = NULL;
    hl_elastic *made = NULL;
    uint32_t node = 0;
    for (size_t i = 0; i < COUNT(odd); i++) {
        hl_region_options r = { .size = sizeof r, .length_bytes = odd[i], .ladder = "2M", .sharing = sharing };
        REFUSED(region, hl_region_new(&r, &region, &error));
        hl_elastic_options e = options(sharing);
        e.max_bytes = odd[i];
        REFUSED(made, hl_elastic_new(&e, &made, &error));
        e = options(sharing);
        e.granule_bytes = odd[i];
        if (odd[i])
            REFUSED(made, hl_elastic_new(&e, &made, &error));
        e = options(sharing);
        e.target_bytes = odd[i];
        if (odd[i] > e.max_bytes)
            REFUSED(made, hl_elastic_new(&e, &made, &error));
        e = options(sharing);
        e.node_policy = HL_NODES_BIND, e.nodes = &node, e.node_count = (size_t)odd[i];
        if (odd[i] != 1)
            REFUSED(made, hl_elastic_new(&e, &made, &error));
    }
}

static void odd_times(void)
{
    static const double seconds[] = { -1, -0.0, 1e-300, 1e19, 1e300, HUGE_VAL, -HUGE_VAL, NAN };
    for (size_t i = 0; i < COUNT(seconds); i++) {
        int is_time = seconds[i] >= 0 && seconds[i] < 1e18;
        hl_manager *manager = NULL;
        hl_status status = hl_manager_start(elastic, seconds[i], &manager, &error);
        CHECK((status == HL_OK) == (manager != NULL) && (!is_time || status == HL_OK));
        hl_manager_free(manager);
        hl_ghost *ghost = hl_ghost_new(100, 10, 10);
        hl_benefit benefit;
        status = hl_ghost_benefit(ghost, 1, 10, seconds[i], &benefit, &error);
        CHECK(status == HL_OK || status == HL_INVALID);
        CHECK(status != HL_OK || (isfinite(benefit.more.value) && isfinite(benefit.less.value)));
        status = hl_ghost_benefit(ghost, seconds[i], 10, 1e-3, &benefit, &error);
        CHECK(is_time ? status == HL_OK : status == HL_OK || status == HL_INVALID);
        hl_ghost_free(ghost);
    }
    for (int i = 0; i < 27; i++) {
        static const uint64_t items[] = { 0, 1, UINT64_MAX };
        hl_ghost *ghost = hl_ghost_new(items[i % 3], items[i / 3 % 3], (size_t)items[i / 9]);
        hl_benefit benefit;
        for (uint64_t key = 0; key < 1000; key++)
            hl_ghost_touch(ghost, key * 0x9e3779b97f4a7c15);
        hl_ghost_set_capacity(ghost, items[(i + 1) % 3]);
        ENDS(HL_OK, hl_ghost_benefit(ghost, 1, items[i % 3], 1e-3, &benefit, &error));
        hl_ghost_free(ghost);
    }
}

/* Numbers at the edges of what they can be. */
static void sizes(void)
{
    static const size_t counts[] = { SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 8, SIZE_MAX / 8 + 1, GRANULES + 1 };
    hl_granule some[GRANULES];
    odd_lengths(HL_PRIVATE);
    odd_lengths(HL_SHARED);
    two_components(HL_PRIVATE);
    ENDS(HL_OK, hl_elastic_take(elastic, pool, some, 2, &error));
    for (size_t i = 0; i < COUNT(counts); i++) {
        ENDS(HL_FULL, hl_elastic_take(elastic, pool, some, counts[i], &error));
        ENDS(HL_INVALID, hl_elastic_give_back(elastic, pool, some, counts[i], &error));
        ENDS(HL_INVALID, hl_elastic_transfer(elastic, pool, pool, some, counts[i], &error));
    }
    CHECK(hl_elastic_held(elastic) == 2 * GRANULE);
    ENDS(HL_INVALID, hl_elastic_set_target(elastic, UINT64_MAX, NULL, &error));
    odd_times();
    hl_elastic_free(elastic);
}

/* Ten thousand components: the first ones go on. */
static void many(void)
{
    hl_component first = 0, again, component;
    hl_granule granule;
    int refused = 0;
    hl_elastic_options e = options(HL_SHARED);
    ENDS(HL_OK, hl_elastic_new(&e, &elastic, &error));
    for (int i = 0; i < 10000; i++) {
        char name[HL_NAME];
        snprintf(name, sizeof name, "component %d", i);
        hl_status status = hl_elastic_component(elastic, name, 1, &component, &error);
        CHECK(status == HL_OK || status == HL_TOO_MANY);
        CHECK(!refused || status == HL_TOO_MANY);
        refused = status == HL_TOO_MANY;
        first = i == 0 ? component : first;
    }
    CHECK(refused);
    ENDS(HL_OK, hl_elastic_component(elastic, "component 0", 1, &again, &error));
    CHECK(first == again);
    ENDS(HL_OK, hl_elastic_take(elastic, first, &granule, 1, &error));
    ENDS(HL_OK, hl_elastic_give_back(elastic, first, &granule, 1, &error));
    hl_elastic_free(elastic);
}

static atomic_int stop;
static pthread_t threads[THREADS];

/* A granule of this thread: a name, the component that has it. */
struct held {
    hl_granule name;
    hl_component component;
};

static unsigned char *bytes_of(hl_granule name)
{
    void *address = NULL;
    CHECK(hl_elastic_address(elastic, name, &address, &error) == HL_OK);
    return address;
}

static int holds(const unsigned char *bytes, unsigned char mark)
{
    return bytes[0] == mark && bytes[GRANULE / 2] == mark && bytes[GRANULE - 1] == mark;
}

static void no_longer(hl_granule stale)
{
    void *address;
    CHECK(hl_elastic_give_back(elastic, pool, &stale, 1, &error) == HL_NOT_HELD);
    CHECK(hl_elastic_transfer(elastic, sort, pool, &stale, 1, &error) == HL_NOT_HELD);
    CHECK(hl_elastic_address(elastic, stale, &address, &error) == HL_NOT_HELD);
}

/* Takes, fills, hands on and returns, and in between tries names that are not valid any more. */
static void *churn(void *number)
{
    unsigned seed = (unsigned)(size_t)number;
    unsigned char mark = (unsigned char)(1 + seed);
    struct held all[HELD];
    size_t count = 0;
    while (!atomic_load(&stop)) {
        unsigned what = (unsigned)rand_r(&seed) % 4;
        if (what < 2 && count < HELD) {
            hl_granule name;
            hl_status status = hl_elastic_take(elastic, pool, &name, 1, &error);
            CHECK(status == HL_OK || status == HL_OVER_TARGET || status == HL_FULL);
            if (status != HL_OK)
                continue;
            CHECK(holds(bytes_of(name), 0));
            memset(bytes_of(name), mark, GRANULE);
            all[count++] = (struct held){ name, pool };
        } else if (what == 2 && count) {
            struct held last = all[--count];
            CHECK(holds(bytes_of(last.name), mark));
            CHECK(hl_elastic_give_back(elastic, last.component, &last.name, 1, &error) == HL_OK);
            no_longer(last.name);
        } else if (what == 3 && count) {
            struct held *last = &all[count - 1];
            hl_component to = last->component == pool ? sort : pool;
            hl_granule before = last->name;
            CHECK(hl_elastic_transfer(elastic, last->component, to, &last->name, 1, &error) == HL_OK);
            last->component = to;
            no_longer(before);
        }
    }
    while (count--)
        CHECK(hl_elastic_give_back(elastic, all[count].component, &all[count].name, 1, &error) == HL_OK);
    return NULL;
}

static void begin(uint32_t sharing)
{
    two_components(sharing);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, churn, (void *)i) == 0);
}

static void end(void)
{
    atomic_store(&stop, 1);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(hl_elastic_held(elastic) == 0);
    hl_elastic_free(elastic);
}

/* The target goes up and down while threads take. */
static void targets(void)
{
    begin(HL_PRIVATE);
    for (uint64_t i = 0; i < 2000; i++) {
        uint64_t above;
        ENDS(HL_OK, hl_elastic_set_target(elastic, i * 7 % (GRANULES + 1) * GRANULE, &above, &error));
        CHECK(above <= (uint64_t)GRANULES * GRANULE);
    }
    end();
}

/* Children of a program with threads: each call ends, and the parent does not notice. */
static void forks(void)
{
    begin(HL_SHARED);
    for (int i = 0; i < 100; i++) {
        int status = -1;
        pid_t pid = fork();
        if (pid == 0) {
            hl_granule granule;
            void *address;
            alarm(60);
            int wrong = hl_elastic_take(elastic, pool, &granule, 1, NULL) != HL_FORKED;
            wrong |= hl_elastic_component(elastic, "x", 1, &pool, NULL) != HL_FORKED;
            wrong |= hl_elastic_address(elastic, 1, &address, NULL) != HL_FORKED;
            wrong |= hl_elastic_set_target(elastic, 0, NULL, NULL) != HL_FORKED;
            wrong |= hl_elastic_recover(elastic, NULL, NULL) != HL_FORKED;
            _exit(wrong);
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    end();
}

static atomic_int signals;

static void handler(int number)
{
    (void)number;
    atomic_fetch_add(&signals, 1);
}

/* Signals without SA_RESTART interrupt system calls: no call of the library fails for that. */
static void interrupted(void)
{
    struct sigaction action = { .sa_handler = handler };
    struct itimerval often = { { 0, 1000 }, { 0, 1000 } }, never = { { 0, 0 }, { 0, 0 } };
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int i = 0; i < 20; i++) {
        int pair[2];
        double coverage;
        hl_region *other = NULL, *region = region_of(4 << 20, HL_SHARED);
        ENDS(HL_OK, hl_region_coverage(region, &coverage, &error));
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        ENDS(HL_OK, hl_region_send(region, pair[0], &error));
        ENDS(HL_OK, hl_region_receive(pair[1], &other, &error));
        close(pair[0]);
        close(pair[1]);
        hl_region_free(other);
        hl_region_free(region);
    }
    begin(HL_SHARED);
    for (int i = 0; i < 100 || atomic_load(&signals) < 10; i++) {
        hl_recovered recovered;
        pause_ms(1);
        ENDS(HL_OK, hl_elastic_recover(elastic, &recovered, &error));
        CHECK(recovered.processes == 0 && recovered.bytes == 0);
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    end();
}

/* A second _free does nothing: memory that others have at the address by then stays. */
static void twice(void)
{
    enum { BYTES = 4 << 20 };
    hl_region *region = region_of(BYTES, HL_PRIVATE);
    void *address = hl_region_address(region);
    hl_region_free(region);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    char *others = mmap(address, BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(others == address);
    others[0] = 7;
    hl_region_free(region);
    CHECK(others[0] == 7);

    two_components(HL_PRIVATE);
    hl_elastic_free(elastic);
    hl_elastic_free(elastic);
    hl_ghost *ghost = hl_ghost_new(10, 10, 10);
    hl_ghost_free(ghost);
    hl_ghost_free(ghost);
    hl_ghost_free((hl_ghost *)others);
    hl_handle_free((hl_handle *)others);
    hl_manager_free((hl_manager *)others);
}

/* A line with some other characters: refused, or what it says is all there. */
static void forged_lines(const char *line)
{
    static const char others[] = "0123456789,:;=- fx";
    unsigned seed = 1;
    for (int i = 0; i < 2000; i++) {
        char forged[4096];
        hl_region *region = NULL;
        snprintf(forged, sizeof forged, "%s", line);
        for (int n = 0; n < 1 + i % 3; n++)
            forged[(size_t)rand_r(&seed) % strlen(line)] = others[(size_t)rand_r(&seed) % (sizeof others - 1)];
        hl_status status = hl_region_attach_inherited(forged, &region, &error);
        CHECK(status != HL_PANIC && (status == HL_OK) == (region != NULL));
        const unsigned char *bytes = hl_region_address(region);
        for (uint64_t at = 0; at < hl_region_length(region); at += 1024)
            CHECK(bytes[at] == 0);
        hl_region_free(region);
    }
}

/* A line whose descriptors are closed, or something else by now. */
static void stale_line(const char *line)
{
    static const char *const files[] = { NULL, "/dev/zero", "/dev/null", "/proc/self/maps", "memfd" };
    hl_region *region = NULL;
    for (size_t kind = 0; kind < COUNT(files); kind++) {
        int opened[32];
        for (size_t i = 0; i < COUNT(opened) && files[kind]; i++) {
            int is_memory = strcmp(files[kind], "memfd") == 0;
            opened[i] = is_memory ? memfd_create("other", MFD_CLOEXEC) : open(files[kind], O_RDONLY | O_CLOEXEC);
            CHECK(opened[i] >= 0 && (!is_memory || ftruncate(opened[i], (off_t)i << 19) == 0));
        }
        ENDS(HL_BAD_HANDLE, hl_region_attach_inherited(line, &region, &error));
        for (size_t i = 0; i < COUNT(opened) && files[kind]; i++)
            close(opened[i]);
    }
    CHECK(region == NULL);
}

static void rubbish_on_a_socket(int descriptors, unsigned *seed)
{
    static char rubbish[RUBBISH];
    int pair[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int passed[DESCRIPTORS];
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof passed)];
    } control;
    hl_region *region = NULL;
    hl_elastic *made = NULL;
    for (size_t i = 0; i < RUBBISH; i++)
        rubbish[i] = (char)rand_r(seed);
    struct iovec part = { rubbish, 1 + (size_t)rand_r(seed) % RUBBISH };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    if (descriptors) {
        size_t bytes = (size_t)descriptors * sizeof *passed;
        message.msg_control = &control, message.msg_controllen = CMSG_SPACE(bytes);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(bytes);
        for (int i = 0; i < descriptors; i++)
            passed[i] = null;
        memcpy(CMSG_DATA(head), passed, bytes);
    }
    CHECK(sendmsg(pair[0], &message, 0) > 0);
    close(pair[0]);
    int lowest = dup(null);
    close(lowest);
    REFUSED(region, hl_region_receive(pair[1], &region, &error));
    REFUSED(made, hl_elastic_receive(pair[1], &made, &error));
    int still = dup(null);
    CHECK(still == lowest); /* Nothing that was sent stays open. */
    close(still);
    close(pair[1]);
    close(null);
}

/* Lines and sockets that hold anything. */
static void handles(void)
{
    static const int descriptors[] = { 0, 1, 2, 64, DESCRIPTORS };
    char line[4096];
    unsigned seed = 1;
    hl_handle *handle = NULL;
    hl_region *other = NULL, *region = region_of(1 << 20, HL_SHARED);
    ENDS(HL_OK, hl_region_inheritable(region, &handle, &error));
    snprintf(line, sizeof line, "%s", hl_handle_line(handle));
    forged_lines(line);
    hl_handle_free(handle);
    stale_line(line);
    for (int i = 0; i < 100; i++)
        rubbish_on_a_socket(descriptors[(size_t)i % COUNT(descriptors)], &seed);
    ENDS(HL_SYSTEM, hl_region_receive(-1, &other, &error));
    CHECK(strstr(error.next, "socket") != NULL);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    ENDS(HL_SYSTEM, hl_region_receive(null, &other, &error));
    CHECK(strstr(error.next, "socket") != NULL);
    close(null);
    hl_region_free(region);
}

enum { HUGE_PAGE = 2 << 20, TAKEN = 4, RETURNED = 2 };

/* Another process takes every free page of the pool, until the descriptor is closed. */
static pid_t takes_the_pool(int *until)
{
    int ready[2], over[2];
    char some = 0;
    CHECK(pipe(ready) == 0 && pipe(over) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | 21 << 26; /* MAP_HUGE_2MB */
        char *page;
        close(over[1]);
        alarm(600);
        while ((page = mmap(NULL, HUGE_PAGE, PROT_READ | PROT_WRITE, flags, -1, 0)) != MAP_FAILED) {
            page[0] = 1;
            some = 1;
        }
        if (write(ready[1], &some, 1) == 1 && read(over[0], &some, 1) == 0)
            _exit(0);
        _exit(1);
    }
    close(over[0]);
    close(ready[1]);
    CHECK(read(ready[0], &some, 1) == 1 && some == 1);
    close(ready[0]);
    *until = over[1];
    return pid;
}

static void pool_is_taken(const char *ladder, uint32_t sharing)
{
    hl_granule first[TAKEN], more[TAKEN];
    int until, status = -1, is_mandatory = strchr(ladder, '!') != NULL;
    hl_elastic_options e = options(sharing);
    e.max_bytes = (uint64_t)64 * HUGE_PAGE, e.granule_bytes = HUGE_PAGE, e.ladder = ladder;
    ENDS(HL_OK, hl_elastic_new(&e, &elastic, &error));
    ENDS(HL_OK, hl_elastic_component(elastic, "pool", 1, &pool, &error));
    ENDS(HL_OK, hl_elastic_take(elastic, pool, first, TAKEN, &error));
    ENDS(HL_OK, hl_elastic_give_back(elastic, pool, first + TAKEN - RETURNED, RETURNED, &error));
    pid_t pid = takes_the_pool(&until);
    ENDS(is_mandatory ? HL_SHORT : HL_OK, hl_elastic_take(elastic, pool, more, TAKEN, &error));
    for (size_t i = 0; i < TAKEN && !is_mandatory; i++) {
        unsigned char *bytes = bytes_of(more[i]);
        CHECK(bytes[0] == 0 && bytes[HUGE_PAGE - 1] == 0);
        memset(bytes, 7, HUGE_PAGE);
    }
    if (!is_mandatory)
        ENDS(HL_OK, hl_elastic_give_back(elastic, pool, more, TAKEN, &error));
    CHECK(hl_elastic_held(elastic) == (TAKEN - RETURNED) * HUGE_PAGE);
    close(until);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ENDS(HL_OK, hl_elastic_take(elastic, pool, more, RETURNED, &error));
    ENDS(HL_OK, hl_elastic_give_back(elastic, pool, more, RETURNED, &error));
    ENDS(HL_OK, hl_elastic_give_back(elastic, pool, first, TAKEN - RETURNED, &error));
    CHECK(hl_elastic_held(elastic) == 0);
    hl_elastic_free(elastic);
}

/* The pages that were returned to the pool belong to another process when they are wanted again. */
static void pool_taken(void)
{
    static const uint32_t sharings[] = { HL_PRIVATE, HL_SHARED };
    for (size_t i = 0; i < COUNT(sharings); i++) {
        pool_is_taken("hugetlb:2M", sharings[i]);
        pool_is_taken("hugetlb:2M!", sharings[i]);
    }
}

static int is_written(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    int all = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
    close(file);
    return all;
}

static void fill(const hl_granule *names, size_t count, size_t bytes)
{
    for (size_t i = 0; i < count; i++)
        memset(bytes_of(names[i]), 7, bytes);
}

/* The limit of the memory cgroup is lowered while memory is held: refused, and nobody is killed. */
static void limit_lowered(const char *processes, const char *limit)
{
    enum { MEGABYTE = 1 << 20, ALL = 64, LEFT = 16, MORE = 32 };
    static hl_granule all[ALL], more[MORE];
    hl_elastic_options e = options(HL_PRIVATE);
    e.max_bytes = (uint64_t)192 * MEGABYTE, e.granule_bytes = MEGABYTE;
    CHECK(is_written(processes, "0"));
    ENDS(HL_OK, hl_elastic_new(&e, &elastic, &error));
    ENDS(HL_OK, hl_elastic_component(elastic, "pool", 1, &pool, &error));
    ENDS(HL_OK, hl_elastic_take(elastic, pool, all, ALL, &error));
    fill(all, ALL, MEGABYTE);
    /* Below the memory in use: version 1 swaps or refuses; version 2 kills by its own rules, so not there. */
    if (strstr(limit, "limit_in_bytes") && is_written(limit, "33554432"))
        ENDS(HL_TOO_LARGE, hl_elastic_take(elastic, pool, more, MORE, &error));
    CHECK(is_written(limit, "83886080"));
    ENDS(HL_TOO_LARGE, hl_elastic_take(elastic, pool, more, MORE, &error));
    CHECK(hl_elastic_held(elastic) == (uint64_t)ALL * MEGABYTE);
    ENDS(HL_OK, hl_elastic_give_back(elastic, pool, all + LEFT, ALL - LEFT, &error));
    ENDS(HL_OK, hl_elastic_take(elastic, pool, more, LEFT, &error));
    fill(more, LEFT, MEGABYTE);
    for (size_t i = 0; i < LEFT; i++) {
        const unsigned char *bytes = bytes_of(all[i]);
        CHECK(bytes[0] == 7 && bytes[MEGABYTE - 1] == 7);
    }
    hl_elastic_free(elastic);
}

/* The library is unloaded while its threads run: they go on. */
static void unloaded(const char *library)
{
    hl_status (*new_elastic)(const hl_elastic_options *, hl_elastic **, hl_error *);
    hl_status (*start)(const hl_elastic *, double, hl_manager **, hl_error *);
    hl_elastic_options e = options(HL_PRIVATE);
    hl_manager *manager = NULL;
    void *loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    CHECK(loaded != NULL);
    if (loaded == NULL)
        return;
    *(void **)&new_elastic = dlsym(loaded, "hl_elastic_new");
    *(void **)&start = dlsym(loaded, "hl_manager_start");
    ENDS(HL_OK, new_elastic(&e, &elastic, &error));
    ENDS(HL_OK, start(elastic, 0.001, &manager, &error));
    CHECK(dlclose(loaded) == 0);
    CHECK(dlopen(library, RTLD_NOW | RTLD_NOLOAD) != NULL);
    pause_ms(50);
}

static const struct {
    const char *name;
    void (*run)(void);
} parts[] = {
    { "sizes", sizes }, { "many", many },   { "targets", targets },         { "forks", forks },
    { "twice", twice }, { "handles", handles }, { "interrupted", interrupted }, { "pool", pool_taken },
};

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    int found = strcmp(part, "unloaded") == 0 && argc == 3;
    if (found)
        unloaded(argv[2]);
    if (strcmp(part, "limit") == 0 && argc == 4) {
        limit_lowered(argv[2], argv[3]);
        found = 1;
    }
    for (size_t i = 0; i < COUNT(parts); i++)
        if (strcmp(part, parts[i].name) == 0) {
            parts[i].run();
            found = 1;
        }
    CHECK(found);
    printf("%d failures\n", failures);
    return failures != 0;
}
