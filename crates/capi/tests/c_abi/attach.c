/* One region, three processes: its maker, a child that gets it over a socket, and one that inherits it. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static hl_error error;

/* The child's side: sees what its parent wrote, and answers in the memory itself. */
static int child(hl_region *region, unsigned char answer)
{
    unsigned char *bytes = hl_region_address(region);
    uint64_t length = hl_region_length(region);
    for (uint64_t i = 1; i < length; i++)
        if (bytes[i] != (unsigned char)(i * 7))
            return 1;
    bytes[0] = answer;
    hl_region_free(region);
    return failures != 0;
}

static void start(const char *self, const char *how, const char *what)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        execl(self, self, how, what, (char *)NULL);
        _exit(127);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv)
{
    hl_region *region = NULL;
    if (argc == 3 && strcmp(argv[1], "socket") == 0) {
        ENDS(HL_OK, hl_region_receive(atoi(argv[2]), &region, &error));
        return region == NULL || child(region, 1);
    }
    if (argc == 3 && strcmp(argv[1], "line") == 0) {
        ENDS(HL_OK, hl_region_attach_inherited(argv[2], &region, &error));
        return region == NULL || child(region, 2);
    }

    hl_region_options options = {
        .size = sizeof options,
        .length_bytes = 3 << 20,
        .ladder = "thp:2M",
        .sharing = HL_SHARED,
    };
    ENDS(HL_OK, hl_region_new(&options, &region, &error));
    unsigned char *bytes = hl_region_address(region);
    for (uint64_t i = 0; i < hl_region_length(region); i++)
        bytes[i] = (unsigned char)(i * 7);

    int pair[2];
    char number[16];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    ENDS(HL_OK, hl_region_send(region, pair[0], &error));
    snprintf(number, sizeof number, "%d", pair[1]);
    start(argv[0], "socket", number);
    CHECK(bytes[0] == 1);

    hl_handle *handle = NULL;
    ENDS(HL_OK, hl_region_inheritable(region, &handle, &error));
    start(argv[0], "line", hl_handle_line(handle));
    CHECK(bytes[0] == 2);
    hl_handle_free(handle);

    hl_region_free(region);
    printf("%d failures\n", failures);
    return failures != 0;
}
