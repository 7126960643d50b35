/* A program that grows as its arguments say, in their order:
 *   data N     allocates N MiB in chunks of 100 KiB and writes to all of it
 *   shared N   N MiB of shared anonymous memory, written to
 *   child N    starts a child that reads the shared memory, takes N MiB and ends before this goes on
 *   spike N    takes N MiB, writes to all of it, and returns it
 *   pause N    sleeps N milliseconds
 *   clean      writes over its environment, as servers do that set their title
 *   noise      says nonsense to the socket that the settings name
 *   wait       prints "ready" and waits for a line or the end of its input
 *   abort      ends by SIGABRT
 *   status N   ends with this status
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1024UL * 1024UL)

extern char **environ;
static volatile char *shared;
static size_t shared_size;

static void fail(const char *what)
{
    perror(what);
    exit(99);
}

static void grow(size_t mib)
{
    const size_t piece = 100 * 1024;
    for (size_t done = 0; done < mib * MIB; done += piece) {
        char *memory = malloc(piece);
        if (memory == NULL)
            fail("malloc");
        memset(memory, 1, piece);
        /* The compiler must not see that nobody reads it. */
        __asm__ volatile("" : : "r"(memory) : "memory");
    }
}

static void share(size_t mib)
{
    shared_size = mib * MIB;
    shared = mmap(NULL, shared_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        fail("mmap");
    memset((void *)shared, 2, shared_size);
}

static void spike(size_t mib)
{
    char *memory = mmap(NULL, mib * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        fail("mmap");
    memset(memory, 3, mib * MIB);
    if (munmap(memory, mib * MIB) != 0)
        fail("munmap");
}

static void child(size_t mib)
{
    pid_t pid = fork();
    if (pid < 0)
        fail("fork");
    if (pid == 0) {
        long sum = 0;
        for (size_t at = 0; at < shared_size; at += 512)
            sum += shared[at];
        grow(mib);
        exit(sum == (long)(shared_size / 512 * 2) ? 0 : 98);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || status != 0)
        fail("child");
}

static void clean(void)
{
    for (char **entry = environ; *entry != NULL; entry++)
        memset(*entry, ' ', strlen(*entry));
}

static int reach(void)
{
    const char *settings = getenv("HUGELEAF_RUN");
    const char *path = settings == NULL ? NULL : strstr(settings, ";report=");
    if (path == NULL)
        fail("no socket is named");
    path += strlen(";report=");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strcspn(path, ";");
    if (length >= sizeof address.sun_path)
        fail("the socket's path");
    memcpy(address.sun_path, path, length);
    int file = socket(AF_UNIX, SOCK_STREAM, 0);
    if (file < 0 || connect(file, (struct sockaddr *)&address, sizeof address) != 0)
        fail("connect");
    return file;
}

static void noise(void)
{
    char answer;
    if (write(reach(), "no line, and it stays open", 26) != 26)
        fail("write");
    int stranger = reach();
    if (write(stranger, "exit 1\n", 7) != 7 || read(stranger, &answer, 1) != 1)
        fail("a stranger's end was not answered");
    int large = reach();
    if (write(large, "exit 99999999999999999999999999999999999999999\n", 46) != 46)
        fail("write");
}

int main(int count, char **words)
{
    for (int i = 1; i < count; i++) {
        const char *word = words[i];
        size_t number = i + 1 < count ? strtoul(words[i + 1], NULL, 10) : 0;
        if (strcmp(word, "data") == 0) {
            grow(number);
            i++;
        } else if (strcmp(word, "shared") == 0) {
            share(number);
            i++;
        } else if (strcmp(word, "spike") == 0) {
            spike(number);
            i++;
        } else if (strcmp(word, "child") == 0) {
            child(number);
            i++;
        } else if (strcmp(word, "pause") == 0) {
            usleep((useconds_t)number * 1000);
            i++;
        } else if (strcmp(word, "clean") == 0) {
            clean();
        } else if (strcmp(word, "noise") == 0) {
            noise();
        } else if (strcmp(word, "wait") == 0) {
            char line[16];
            puts("ready");
            fflush(stdout);
            if (fgets(line, sizeof line, stdin) == NULL)
                return 0;
        } else if (strcmp(word, "abort") == 0) {
            struct rlimit none = {0, 0};
            setrlimit(RLIMIT_CORE, &none);
            abort();
        } else if (strcmp(word, "status") == 0) {
            return (int)number;
        } else {
            fprintf(stderr, "%s?\n", word);
            return 97;
        }
    }
    return 0;
}
