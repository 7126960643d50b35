/* Components of two processes that take, hand on and return; and all that can be wrong with it. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GRANULES = 8, GRANULE = 1 << 20 };

static hl_error error;
static hl_elastic *elastic;
static hl_component pool, sort;

/* Granules of 1 MB on base pages: the same on every host. */
static hl_elastic_options good(uint32_t sharing)
{
    hl_elastic_options options = {
        .size = sizeof options,
        .max_bytes = GRANULES * (uint64_t)GRANULE,
        .granule_bytes = GRANULE,
        .ladder = "1K", /* No page is smaller than the base page. */
        .sharing = sharing,
    };
    return options;
}

static void options(void)
{
    hl_elastic_options wrong = good(HL_PRIVATE);
    ENDS(HL_INVALID, hl_elastic_new(NULL, &elastic, &error));
    ENDS(HL_INVALID, hl_elastic_new(&wrong, NULL, &error));
    wrong.size = 3;
    ENDS(HL_INVALID, hl_elastic_new(&wrong, &elastic, &error));
    wrong = good(HL_PRIVATE);
    wrong.max_bytes = 0;
    ENDS(HL_INVALID, hl_elastic_new(&wrong, &elastic, &error));
    wrong.max_bytes = GRANULE + 1;
    ENDS(HL_INVALID, hl_elastic_new(&wrong, &elastic, &error));
    wrong = good(HL_PRIVATE);
    wrong.granule_bytes = 3;
    ENDS(HL_INVALID, hl_elastic_new(&wrong, &elastic, &error));
    wrong = good(HL_PRIVATE);
    wrong.target_bytes = wrong.max_bytes + GRANULE;
    ENDS(HL_INVALID, hl_elastic_new(&wrong, &elastic, &error));
    wrong = good(2);
    ENDS(HL_INVALID, hl_elastic_new(&wrong, &elastic, &error));
    wrong = good(HL_PRIVATE);
    wrong.ladder = "1E!";
    ENDS(HL_NO_SUCH_SIZE, hl_elastic_new(&wrong, &elastic, &error));
    CHECK(elastic == NULL);
    hl_elastic_free(NULL);
    CHECK(hl_elastic_granule(NULL) == 0 && hl_elastic_max(NULL) == 0);
    CHECK(hl_elastic_target(NULL) == 0 && hl_elastic_held(NULL) == 0);
}

static void pointers(void)
{
    hl_granule granule = 0;
    uint64_t above;
    ENDS(HL_INVALID, hl_elastic_set_target(NULL, 0, &above, &error));
    ENDS(HL_INVALID, hl_elastic_component(NULL, "a", 1, &pool, &error));
    ENDS(HL_INVALID, hl_elastic_component(elastic, NULL, 1, &pool, &error));
    ENDS(HL_INVALID, hl_elastic_component(elastic, "a", 1, NULL, &error));
    ENDS(HL_INVALID, hl_elastic_component(elastic, "\xff", 1, &pool, &error));
    ENDS(HL_INVALID, hl_elastic_component(elastic, "", 1, &pool, &error));
    ENDS(HL_INVALID, hl_elastic_component(
                         elastic, "a name of fifty bytes, which is a few more than fit", 1, &pool, &error));
    ENDS(HL_INVALID, hl_elastic_take(NULL, 0, &granule, 1, &error));
    ENDS(HL_INVALID, hl_elastic_take(elastic, 0, NULL, 1, &error));
    ENDS(HL_INVALID, hl_elastic_give_back(elastic, 0, NULL, 1, &error));
    ENDS(HL_INVALID, hl_elastic_transfer(elastic, 0, 0, NULL, 1, &error));
    ENDS(HL_INVALID, hl_elastic_address(elastic, 0, NULL, &error));
    ENDS(HL_INVALID, hl_elastic_extents(elastic, NULL, NULL, &error));
    ENDS(HL_INVALID, hl_elastic_info(elastic, NULL, NULL, NULL, &error));
    ENDS(HL_INVALID, hl_elastic_recover(NULL, NULL, &error));
    ENDS(HL_INVALID, hl_elastic_send(NULL, 0, &error));
    ENDS(HL_INVALID, hl_elastic_receive(0, NULL, &error));
    ENDS(HL_INVALID, hl_elastic_inheritable(elastic, NULL, &error));
    ENDS(HL_INVALID, hl_elastic_attach_inherited(NULL, &elastic, &error));
    CHECK(hl_elastic_held(elastic) == 0);
}

static void taking(void)
{
    hl_granule granules[GRANULES + 1], again[2];
    void *address = NULL;
    uint64_t above = 1;
    ENDS(HL_OK, hl_elastic_component(elastic, "pool", 1, &pool, &error));
    ENDS(HL_OK, hl_elastic_component(elastic, "sort", 1, &sort, &error));
    ENDS(HL_FIXED_SIZE, hl_elastic_component(elastic, "pool", 0, &pool, &error));
    ENDS(HL_NO_COMPONENT, hl_elastic_take(elastic, 60, granules, 1, &error));
    ENDS(HL_FULL, hl_elastic_take(elastic, pool, granules, GRANULES + 1, &error));
    ENDS(HL_FULL, hl_elastic_take(elastic, pool, granules, SIZE_MAX, &error));
    ENDS(HL_OK, hl_elastic_take(elastic, pool, NULL, 0, &error));
    ENDS(HL_OK, hl_elastic_take(elastic, pool, granules, 3, &error));
    ENDS(HL_OK, hl_elastic_address(elastic, granules[1], &address, &error));
    CHECK(address != NULL && ((char *)address)[GRANULE - 1] == 0);
    memset(address, 0x77, GRANULE);

    ENDS(HL_INVALID, hl_elastic_set_target(elastic, (GRANULES + 1) * GRANULE, NULL, &error));
    ENDS(HL_OK, hl_elastic_set_target(elastic, 2 * GRANULE, &above, &error));
    CHECK(above == GRANULE && hl_elastic_target(elastic) == 2 * GRANULE);
    ENDS(HL_OVER_TARGET, hl_elastic_take(elastic, pool, granules + 3, 1, &error));
    ENDS(HL_OK, hl_elastic_set_target(elastic, GRANULES * GRANULE, NULL, &error));

    memcpy(again, granules + 1, sizeof again);
    ENDS(HL_NOT_HELD, hl_elastic_give_back(elastic, sort, granules, 3, &error));
    again[1] = again[0];
    ENDS(HL_NOT_HELD, hl_elastic_give_back(elastic, pool, again, 2, &error));
    ENDS(HL_NO_COMPONENT, hl_elastic_transfer(elastic, pool, 60, granules + 1, 1, &error));
    CHECK(granules[1] == again[0]);
    ENDS(HL_OK, hl_elastic_transfer(elastic, pool, sort, granules + 1, 1, &error));
    CHECK(granules[1] != again[0]);
    ENDS(HL_NOT_HELD, hl_elastic_address(elastic, again[0], &address, &error));
    ENDS(HL_OK, hl_elastic_address(elastic, granules[1], &address, &error));
    CHECK(((char *)address)[GRANULE - 1] == 0x77);
    ENDS(HL_NOT_HELD, hl_elastic_give_back(elastic, sort, &(hl_granule){UINT64_MAX}, 1, &error));
    ENDS(HL_OK, hl_elastic_give_back(elastic, sort, granules + 1, 1, &error));
    ENDS(HL_NOT_HELD, hl_elastic_give_back(elastic, sort, granules + 1, 1, &error));
    CHECK(hl_elastic_held(elastic) == 2 * GRANULE);
}

static void table(void)
{
    hl_elastic_totals totals;
    hl_component_info lines[4];
    hl_extent extents[4];
    size_t count = 1;
    ENDS(HL_MORE, hl_elastic_info(elastic, &totals, lines, &count, &error));
    CHECK(count == 2 && strcmp(lines[0].name, "pool") == 0);
    count = 4;
    ENDS(HL_OK, hl_elastic_info(elastic, &totals, lines, &count, &error));
    CHECK(count == 2 && lines[0].component == pool && lines[1].component == sort);
    CHECK(strcmp(lines[1].name, "sort") == 0 && lines[1].resizable == 1 && lines[1].bytes == 0);
    CHECK(lines[0].bytes == 2 * GRANULE && lines[0].by_page_size[0].bytes == 2 * GRANULE);
    CHECK(lines[0].by_page_size[0].kind == HL_BASE && lines[0].by_page_size[1].page_bytes == 0);
    CHECK(lines[0].by_page_size[0].page_bytes == (uint64_t)sysconf(_SC_PAGESIZE));
    CHECK(totals.granule_bytes == GRANULE && totals.max_bytes == GRANULES * GRANULE);
    CHECK(totals.held_bytes == 2 * GRANULE && totals.target_bytes == GRANULES * GRANULE);
    CHECK(totals.free_bytes == totals.target_bytes - totals.held_bytes);
    CHECK(totals.processes == 1 && totals.unclean_bytes == 0);
    count = 4;
    ENDS(HL_OK, hl_elastic_extents(elastic, extents, &count, &error));
    uint64_t held = 0;
    for (size_t i = 0; i < count; i++)
        held += extents[i].length_bytes;
    CHECK(held == 2 * GRANULE);
}

static void fixed(void)
{
    hl_component log;
    hl_granule granules[2];
    ENDS(HL_OK, hl_elastic_component(elastic, "log", 0, &log, &error));
    ENDS(HL_OK, hl_elastic_take(elastic, log, granules, 1, &error));
    ENDS(HL_FIXED_SIZE, hl_elastic_take(elastic, log, granules + 1, 1, &error));
    ENDS(HL_FIXED_SIZE, hl_elastic_give_back(elastic, log, granules, 1, &error));
    ENDS(HL_FIXED_SIZE, hl_elastic_transfer(elastic, log, pool, granules, 1, &error));
}

/* What another process does: takes two granules, writes into both, hands the number of one on, and is
 * killed while it holds them. */
static int other(hl_elastic *shared, int answer)
{
    hl_granule granules[2];
    void *address;
    hl_component its;
    ENDS(HL_OK, hl_elastic_component(shared, "pool", 1, &its, &error));
    ENDS(HL_OK, hl_elastic_take(shared, its, granules, 2, &error));
    for (int i = 0; i < 2; i++) {
        ENDS(HL_OK, hl_elastic_address(shared, granules[i], &address, &error));
        memset(address, 0x40 + i, GRANULE);
    }
    if (failures != 0 || write(answer, granules, sizeof granules) != sizeof granules)
        return 1;
    pause();
    return 1;
}

static void other_processes(const char *self)
{
    hl_elastic_options options = good(HL_SHARED);
    hl_elastic *shared = NULL;
    hl_component its;
    hl_handle *handle = NULL;
    hl_granule granules[2];
    hl_recovered recovered;
    int pair[2], status;
    void *address;
    char number[16];
    ENDS(HL_OK, hl_elastic_new(&options, &shared, &error));
    ENDS(HL_OK, hl_elastic_component(shared, "pool", 1, &its, &error));
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    snprintf(number, sizeof number, "%d", pair[1]);
    for (int how = 0; how < 2; how++) {
        if (how == 0)
            ENDS(HL_OK, hl_elastic_send(shared, pair[0], &error));
        else
            ENDS(HL_OK, hl_elastic_inheritable(shared, &handle, &error));
        pid_t pid = fork();
        if (pid == 0) {
            execl(self, self, number, how == 0 ? NULL : hl_handle_line(handle), (char *)NULL);
            _exit(127);
        }
        CHECK(read(pair[0], granules, sizeof granules) == sizeof granules);
        CHECK(hl_elastic_held(shared) == 2 * GRANULE);
        ENDS(HL_OK, hl_elastic_recover(shared, &recovered, &error));
        CHECK(recovered.processes == 0 && recovered.bytes == 0);
        for (int i = 0; i < 2; i++) {
            ENDS(HL_OK, hl_elastic_address(shared, granules[i], &address, &error));
            CHECK(((char *)address)[GRANULE - 1] == 0x40 + i);
        }
        /* One of them is this process's from now on. */
        ENDS(HL_OK, hl_elastic_transfer(shared, its, its, granules, 1, &error));
        CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
        ENDS(HL_OK, hl_elastic_recover(shared, &recovered, &error));
        CHECK(recovered.processes == 1 && recovered.bytes == GRANULE);
        ENDS(HL_OK, hl_elastic_address(shared, granules[0], &address, &error));
        CHECK(((char *)address)[0] == 0x40);
        ENDS(HL_NOT_HELD, hl_elastic_address(shared, granules[1], &address, &error));
        ENDS(HL_OK, hl_elastic_give_back(shared, its, granules, 1, &error));
        CHECK(hl_elastic_held(shared) == 0);
    }
    hl_handle_free(handle);

    /* A copy by fork is told, and does no harm. */
    pid_t pid = fork();
    if (pid == 0) {
        ENDS(HL_FORKED, hl_elastic_take(shared, its, granules, 1, &error));
        hl_elastic_free(shared);
        _exit(failures != 0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ENDS(HL_OK, hl_elastic_take(shared, its, granules, 1, &error));

    /* A region is no elastic, nor the other way round. */
    hl_region *region = NULL;
    ENDS(HL_OK, hl_elastic_send(shared, pair[0], &error));
    ENDS(HL_BAD_HANDLE, hl_region_receive(pair[1], &region, &error));
    hl_elastic_free(shared);
    close(pair[0]);
    ENDS(HL_BAD_HANDLE, hl_elastic_receive(pair[1], &shared, &error));
    ENDS(HL_BAD_HANDLE, hl_elastic_attach_inherited("fds 0;nonsense;", &shared, &error));
    close(pair[1]);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        hl_elastic *shared = NULL;
        int socket = atoi(argv[1]);
        if (argc == 2)
            ENDS(HL_OK, hl_elastic_receive(socket, &shared, &error));
        else
            ENDS(HL_OK, hl_elastic_attach_inherited(argv[2], &shared, &error));
        return shared == NULL || other(shared, socket);
    }
    options();
    hl_elastic_options wanted = good(HL_PRIVATE);
    ENDS(HL_OK, hl_elastic_new(&wanted, &elastic, &error));
    CHECK(hl_elastic_granule(elastic) == GRANULE && hl_elastic_max(elastic) == GRANULES * GRANULE);
    pointers();
    taking();
    table();
    fixed();
    hl_handle *handle = NULL;
    ENDS(HL_NOT_SHARED, hl_elastic_inheritable(elastic, &handle, &error));
    ENDS(HL_NOT_SHARED, hl_elastic_send(elastic, 0, &error));
    hl_elastic_free(elastic);
    other_processes(argv[0]);
    printf("%d failures\n", failures);
    return failures != 0;
}
