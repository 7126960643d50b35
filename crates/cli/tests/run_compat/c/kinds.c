/* Asks for memory in every way that a program can, touches all of it, and says of each what it got: "large"
 * (all whole large pages of it are), "base" (not all), "refused" (the call failed with ENOMEM). The names are those of the
 * tables in docs/guide/run.md.
 *
 * usage: kinds private|shared MIB */
#include "check.h"

#include <pthread.h>
#include <sys/shm.h>

static size_t huge, length;
static unsigned char fill = 1;

/* Bytes of `[at, at + size)` that are on large pages, by mapping of `/proc/self/smaps`: all of a mapping that lies inside,
 * what there is of one that does not, up to the part that does. */
static size_t large_bytes(const unsigned char *at, size_t size)
{
    static char line[4096];
    FILE *file = fopen("/proc/self/smaps", "r");
    MUST(file);
    unsigned long from = 0, to = 0, start = (unsigned long)at, end = start + size;
    size_t large = 0, inside = 0, left = 0;
    while (fgets(line, sizeof line, file)) {
        char rights[8];
        unsigned long kilobytes;
        if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) == 3) {
            unsigned long low = from > start ? from : start, high = to < end ? to : end;
            inside = high > low ? high - low : 0;
            left = inside;
        } else if (sscanf(line, "AnonHugePages: %lu", &kilobytes) == 1 ||
                   sscanf(line, "ShmemPmdMapped: %lu", &kilobytes) == 1 ||
                   sscanf(line, "Shared_Hugetlb: %lu", &kilobytes) == 1 ||
                   sscanf(line, "Private_Hugetlb: %lu", &kilobytes) == 1) {
            size_t bytes = kilobytes * 1024;
            bytes = bytes < left ? bytes : left;
            left -= bytes;
            large += bytes;
        }
    }
    fclose(file);
    return large;
}

/* What whole large pages of a range come to. */
static size_t whole(const unsigned char *at, size_t size)
{
    size_t start = ((size_t)at + huge - 1) & ~(huge - 1), end = ((size_t)at + size) & ~(huge - 1);
    return end > start ? end - start : 0;
}

static void told(const char *kind, const unsigned char *at, size_t size)
{
    SAY("%s %s\n", kind, large_bytes(at, size) >= whole(at, size) ? "large" : "base");
}

/* Fills what was got and says what it is; `size` bytes from `at` on. */
static void say(const char *kind, unsigned char *at, size_t size)
{
    if (at == MAP_FAILED || at == NULL) {
        MUST(errno == ENOMEM);
        SAY("%s refused\n", kind);
        return;
    }
    memset(at, ++fill, size);
    told(kind, at, size);
    for (size_t i = 0; i < size; i += 512)
        MUST(at[i] == fill);
}

/* Chunks of malloc, one behind the other. */
static void chunks(const char *kind)
{
    enum { CHUNK = 100000 };
    unsigned char *low = NULL, *high = NULL;
    for (size_t got = 0; got < length; got += CHUNK) {
        unsigned char *at = malloc(CHUNK);
        if (!at) {
            MUST(errno == ENOMEM);
            SAY("%s refused\n", kind);
            return;
        }
        memset(at, 1, CHUNK);
        low = low && low < at ? low : at;
        high = high > at + CHUNK ? high : at + CHUNK;
    }
    told(kind, low, (size_t)(high - low));
}

enum { RW = PROT_READ | PROT_WRITE, ANONYMOUS = MAP_PRIVATE | MAP_ANONYMOUS };

static unsigned char *map(size_t size, int rights, int flags)
{
    return mmap(NULL, size, rights, flags, -1, 0);
}

/* Addresses without memory, at a multiple of the huge page. */
static unsigned char *reserved(size_t size)
{
    unsigned char *at = map(size + huge, PROT_NONE, ANONYMOUS | MAP_NORESERVE);
    MUST(at != MAP_FAILED);
    return (unsigned char *)(((size_t)at + huge - 1) & ~(huge - 1));
}

static void *in_thread(void *kind)
{
    chunks(kind);
    return NULL;
}

/* Memory that was reserved and is made usable in steps. */
static void committed(const char *kind, size_t step, int by_mapping)
{
    unsigned char *at = reserved(length);
    for (size_t i = 0; i < length; i += step) {
        void *got = at + i;
        if (by_mapping)
            got = mmap(at + i, step, RW, ANONYMOUS | MAP_FIXED, -1, 0);
        else if (mprotect(at + i, step, RW) != 0)
            got = MAP_FAILED;
        if (got == MAP_FAILED) {
            say(kind, MAP_FAILED, 0);
            return;
        }
        memset(at + i, 1, step);
    }
    say(kind, at, length);
}

static void mapped_kinds(void)
{
    say("mmap", map(length, RW, ANONYMOUS), length);
    say("MAP_NORESERVE", map(length, RW, ANONYMOUS | MAP_NORESERVE), length);
    say("MAP_POPULATE", map(length, RW, ANONYMOUS | MAP_POPULATE), length);
    say("MAP_LOCKED", map(huge * 2, RW, ANONYMOUS | MAP_LOCKED), huge * 2);
#ifdef MAP_32BIT
    say("MAP_32BIT", map(length, RW, ANONYMOUS | MAP_32BIT), length);
#endif
    say("PROT_EXEC", map(length, RW | PROT_EXEC, ANONYMOUS), length);
    say("MAP_FIXED", mmap(reserved(length), length, RW, ANONYMOUS | MAP_FIXED, -1, 0), length);
    unsigned char *at = reserved(length);
    MUST(munmap(at, length) == 0);
    say("MAP_FIXED_NOREPLACE", mmap(at, length, RW, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0), length);
    at = reserved(length);
    MUST(munmap(at, length) == 0);
    say("address", mmap(at, length, RW, ANONYMOUS, -1, 0), length);
    int zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
    say("/dev/zero", mmap(NULL, length, RW, MAP_PRIVATE, zero, 0), length);
    close(zero);
}

static void private_kinds(void)
{
    mapped_kinds();
    committed("mprotect", length, 0);
    committed("mprotect 64K", 64 << 10, 0);
    committed("MAP_FIXED 1M", 1 << 20, 1);
    unsigned char *at = map(length / 4, RW, ANONYMOUS);
    if (at != MAP_FAILED) {
        memset(at, 1, length / 4);
        at = mremap(at, length / 4, length, MREMAP_MAYMOVE);
    }
    say("mremap", at, length);
    at = sbrk((intptr_t)length);
    say("sbrk", at == (void *)-1 ? NULL : at, length);
    say("malloc", malloc(length), length);
    chunks("small malloc");
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, in_thread, "malloc in a thread") == 0);
    MUST(pthread_join(thread, NULL) == 0);
    say("MAP_GROWSDOWN", map(length, RW, ANONYMOUS | MAP_GROWSDOWN), length);
}

static void child(void)
{
    pid_t process = fork();
    MUST(process >= 0);
    if (process == 0) {
        say("in a child", malloc(length), length);
        _exit(0);
    }
    int status;
    MUST(waitpid(process, &status, 0) == process && status == 0);
    say("after a fork", malloc(length), length);
}

static void file_kinds(void)
{
    int file = memfd_create("kinds", MFD_CLOEXEC);
    MUST(ftruncate(file, (off_t)length) == 0);
    say("memfd", mmap(NULL, length, RW, MAP_SHARED, file, 0), length);
    say("memfd MAP_FIXED", mmap(reserved(length), length, RW, MAP_SHARED | MAP_FIXED, file, 0), length);
    say("memfd MAP_POPULATE", mmap(NULL, length, RW, MAP_SHARED | MAP_POPULATE, file, 0), length);
    close(file);
    file = shm_open("/hugeleaf-kinds", O_RDWR | O_CREAT, 0600);
    MUST(shm_unlink("/hugeleaf-kinds") == 0 && ftruncate(file, (off_t)length) == 0);
    say("POSIX", mmap(NULL, length, RW, MAP_SHARED, file, 0), length);
    close(file);
}

static void shared_kinds(void)
{
    enum { SHARED = MAP_SHARED | MAP_ANONYMOUS };
    say("anonymous", map(length, RW, SHARED), length);
    say("anonymous MAP_NORESERVE", map(length, RW, SHARED | MAP_NORESERVE), length);
    say("anonymous MAP_POPULATE", map(length, RW, SHARED | MAP_POPULATE), length);
    say("anonymous MAP_FIXED", mmap(reserved(length), length, RW, SHARED | MAP_FIXED, -1, 0), length);
    unsigned char *at = reserved(length);
    MUST(munmap(at, length) == 0);
    say("anonymous address", mmap(at, length, RW, SHARED, -1, 0), length);
    at = map(length, PROT_READ, SHARED);
    if (at != MAP_FAILED)
        MUST(mprotect(at, length, RW) == 0);
    say("anonymous mprotect", at, length);
    int segment = shmget(IPC_PRIVATE, length, 0600 | IPC_CREAT);
    at = segment < 0 ? NULL : shmat(segment, NULL, 0);
    say("System V", at, length);
    if (segment >= 0)
        MUST(shmctl(segment, IPC_RMID, NULL) == 0);
    file_kinds();
}

int main(int count, char **words)
{
    MUST(count == 3);
    huge = huge_size();
    length = strtoul(words[2], NULL, 10) << 20;
    length = (length + huge - 1) & ~(huge - 1);
    if (words[1][0] == 'p') {
        private_kinds();
        child();
    } else {
        shared_kinds();
    }
    return 0;
}
