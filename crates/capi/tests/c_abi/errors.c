/* What C can get wrong: each is a status and a text, and none of it costs memory or the process. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static hl_error error;
static hl_region *region;
static uint64_t page;

static hl_region_options good(void)
{
    hl_region_options options = {.size = sizeof options, .length_bytes = 4 * page, .ladder = "2M"};
    return options;
}

static void pointers(void)
{
    hl_region_options options = good();
    ENDS(HL_INVALID, hl_region_new(NULL, &region, &error));
    ENDS(HL_INVALID, hl_region_new(&options, NULL, &error));
    options.ladder = NULL;
    ENDS(HL_INVALID, hl_region_new(&options, &region, &error));
    ENDS(HL_INVALID, hl_region_receive(0, NULL, &error));
    ENDS(HL_INVALID, hl_region_send(NULL, 0, &error));
    ENDS(HL_INVALID, hl_region_inheritable(NULL, NULL, &error));
    ENDS(HL_INVALID, hl_region_attach_inherited(NULL, &region, &error));
    ENDS(HL_INVALID, hl_region_coverage(NULL, NULL, &error));
    CHECK(hl_region_new(NULL, NULL, NULL) == HL_INVALID);
    CHECK(hl_region_address(NULL) == NULL && hl_region_length(NULL) == 0);
    CHECK(hl_handle_line(NULL) == NULL);
    hl_region_free(NULL);
    hl_handle_free(NULL);
    CHECK(region == NULL);
}

static void sizes_of_options(void)
{
    struct {
        hl_region_options known;
        uint64_t newer;
    } longer = {.known = good(), .newer = 0};
    const size_t wrong[] = {0, 1, sizeof(size_t) - 1, sizeof longer.known * 100};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        longer.known.size = wrong[i];
        ENDS(HL_INVALID, hl_region_new(&longer.known, &region, &error));
    }
    longer.known.size = sizeof longer;
    longer.newer = 1;
    ENDS(HL_INVALID, hl_region_new(&longer.known, &region, &error));
    CHECK(strstr(error.next, "newer library") != NULL);
    CHECK(region == NULL);
    longer.newer = 0;
    ENDS(HL_OK, hl_region_new(&longer.known, &region, &error));
    hl_region_free(region);
    /* A header that ended after the ladder. */
    longer.known.size = offsetof(hl_region_options, sharing);
    longer.known.sharing = 77;
    ENDS(HL_OK, hl_region_new(&longer.known, &region, &error));
    hl_region_free(region);
    region = NULL;
}

static void ladders(void)
{
    const char *unreadable[] = {"", "3M", "2M,2M", "2M,1G", "odd:2M", "!", "\xff", "2M,"};
    hl_region_options options = good();
    for (size_t i = 0; i < sizeof unreadable / sizeof unreadable[0]; i++) {
        options.ladder = unreadable[i];
        ENDS(HL_INVALID, hl_region_new(&options, &region, &error));
    }
    options.ladder = "1E!";
    ENDS(HL_NO_SUCH_SIZE, hl_region_new(&options, &region, &error));
    char *endless = malloc(100001);
    memset(endless, 'x', 100000);
    endless[100000] = 0;
    options.ladder = endless;
    ENDS(HL_INVALID, hl_region_new(&options, &region, &error));
    CHECK(strlen(error.what) == HL_TEXT - 1 && strstr(error.what, "\xe2\x80\xa6") != NULL);
    free(endless);
    CHECK(region == NULL);
}

static void numbers(void)
{
    const uint32_t node = 0, no_node = 1000;
    hl_region_options options = good();
    options.length_bytes = 0;
    ENDS(HL_INVALID, hl_region_new(&options, &region, &error));
    options.length_bytes = page + 1;
    ENDS(HL_INVALID, hl_region_new(&options, &region, &error));
    options.length_bytes = (uint64_t)1 << 45;
    ENDS(HL_TOO_LARGE, hl_region_new(&options, &region, &error));
    options = good();
    options.sharing = 2;
    ENDS(HL_INVALID, hl_region_new(&options, &region, &error));
    options = good();
    options.node_policy = 4;
    ENDS(HL_INVALID, hl_region_new(&options, &region, &error));
    options.node_policy = HL_NODES_BIND;
    ENDS(HL_INVALID, hl_region_new(&options, &region, &error));
    options.node_count = 1;
    ENDS(HL_INVALID, hl_region_new(&options, &region, &error));
    options.nodes = &no_node;
    ENDS(HL_INVALID, hl_region_new(&options, &region, &error));
    CHECK(strstr(error.what, "1000") != NULL);
    options.nodes = &node;
    options.node_policy = HL_NODES_INHERIT;
    ENDS(HL_INVALID, hl_region_new(&options, &region, &error));
    CHECK(region == NULL);
}

static void extents(void)
{
    hl_region_options options = good();
    hl_extent extent;
    size_t count = 0;
    double coverage = -1;
    ENDS(HL_OK, hl_region_new(&options, &region, &error));
    CHECK(hl_region_length(region) == 4 * page);
    ENDS(HL_INVALID, hl_region_extents(region, &extent, NULL, &error));
    ENDS(HL_INVALID, hl_region_extents(NULL, &extent, &count, &error));
    ENDS(HL_MORE, hl_region_extents(region, NULL, &count, &error));
    CHECK(count == 1);
    ENDS(HL_INVALID, hl_region_extents(region, NULL, &count, &error));
    ENDS(HL_OK, hl_region_extents(region, &extent, &count, &error));
    CHECK(extent.start == (uint64_t)(uintptr_t)hl_region_address(region));
    CHECK(extent.length_bytes == 4 * page && extent.resident_bytes == 4 * page);
    CHECK(extent.page_bytes == page && extent.kind == HL_BASE && extent.asked_kind == HL_ANY);
    CHECK(extent.why == HL_WHY_REST || extent.why == HL_WHY_NO_SUCH_SIZE);
    CHECK(extent.why_text[0] != 0 && extent.next[0] != 0);
    ENDS(HL_INVALID, hl_region_coverage(region, NULL, &error));
    ENDS(HL_OK, hl_region_coverage(region, &coverage, &error));
    CHECK(coverage == 0.0);
    ENDS(HL_NOT_SHARED, hl_region_send(region, 0, &error));
    hl_handle *handle = NULL;
    ENDS(HL_NOT_SHARED, hl_region_inheritable(region, &handle, &error));
    CHECK(handle == NULL);
    hl_region_free(region);
    region = NULL;
}

static void handles(void)
{
    int pair[2];
    hl_region *shared = NULL;
    hl_region_options options = good();
    options.sharing = HL_SHARED;
    ENDS(HL_OK, hl_region_new(&options, &shared, &error));
    ENDS(HL_SYSTEM, hl_region_send(shared, -1, &error));
    CHECK(error.sys_errno == EBADF);
    ENDS(HL_SYSTEM, hl_region_receive(12345, &region, &error));
    const char *nonsense[] = {"", "x", "fds 0;hugeleaf-region 1;end;", "fds 9999;x", "fds -1;x",
                              "fds;hugeleaf-region 1;ladder 2M;align 4096;end;"};
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++)
        ENDS(HL_BAD_HANDLE, hl_region_attach_inherited(nonsense[i], &region, &error));
    ENDS(HL_INVALID, hl_region_attach_inherited("\xff", &region, &error));

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(write(pair[0], "nonsense", 8) == 8);
    ENDS(HL_BAD_HANDLE, hl_region_receive(pair[1], &region, &error));
    close(pair[0]);
    ENDS(HL_BAD_HANDLE, hl_region_receive(pair[1], &region, &error));
    /* No SIGPIPE either. */
    ENDS(HL_SYSTEM, hl_region_send(shared, pair[1], &error));
    CHECK(error.sys_errno == EPIPE);
    close(pair[1]);
    CHECK(region == NULL);
    hl_region_free(shared);
}

static void texts(void)
{
    CHECK(hl_version() != NULL && strchr(hl_version(), '.') != NULL);
    for (int status = -1; status <= 100; status++)
        CHECK(hl_status_text(status)[0] != 0);
    CHECK(strcmp(hl_status_text(HL_OK), "done") == 0);
    CHECK(strcmp(hl_status_text(HL_SHORT), hl_status_text(-1)) != 0);
}

int main(void)
{
    page = (uint64_t)sysconf(_SC_PAGESIZE);
    pointers();
    sizes_of_options();
    ladders();
    numbers();
    extents();
    handles();
    texts();
    printf("%d failures\n", failures);
    return failures != 0;
}
