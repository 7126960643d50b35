/* Shared memory of every kind, written by a process and read by its child, and the other way round;
 * parts of it returned, grown and shrunk.
 *
 * usage: sharing MIB */
#include "check.h"

#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/stat.h>

static size_t length;

static void pattern(unsigned char *at, size_t from, size_t to, unsigned char seed)
{
    for (size_t i = from; i < to; i += 1024)
        at[i] = (unsigned char)(seed + (i >> 10));
}

static void must_hold(const unsigned char *at, size_t from, size_t to, unsigned char seed)
{
    for (size_t i = from; i < to; i += 1024)
        MUST(at[i] == (unsigned char)(seed + (i >> 10)));
}

/* A child reads what is there and writes something else. */
static void hand_over(unsigned char *at, unsigned char seed)
{
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        must_hold(at, 0, length, seed);
        pattern(at, 0, length, (unsigned char)(seed + 1));
        _exit(0);
    }
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    must_hold(at, 0, length, (unsigned char)(seed + 1));
}

static void anonymous(void)
{
    unsigned char *at =
        mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    for (size_t i = 0; i < length; i += page_size())
        MUST(at[i] == 0);
    pattern(at, 0, length, 1);
    hand_over(at, 1);
    /* The second half goes; the first stays as it is. */
    MUST(munmap(at + length / 2, length / 2) == 0);
    must_hold(at, 0, length / 2, 2);
    MUST(munmap(at, length / 2) == 0);
    SAY("anonymous\n");
}

static void system_five(void)
{
    int id = shmget(IPC_PRIVATE, length, IPC_CREAT | 0600);
    MUST(id >= 0);
    unsigned char *at = shmat(id, NULL, 0), *again = shmat(id, NULL, 0);
    MUST(at != (void *)-1 && again != (void *)-1 && at != again);
    MUST(shmctl(id, IPC_RMID, NULL) == 0);
    pattern(at, 0, length, 3);
    must_hold(again, 0, length, 3);
    hand_over(again, 3);
    struct shmid_ds status;
    MUST(shmctl(id, IPC_STAT, &status) == 0);
    MUST(status.shm_segsz == length && status.shm_nattch == 2);
    MUST(shmdt(again) == 0);
    must_hold(at, 0, length, 4);
    MUST(shmdt(at) == 0);
    MUST(shmdt(at) == -1 && errno == EINVAL);
    SAY("system five\n");
}

/* A file of memory, by its descriptor: mapped twice, read and written as a file, grown. */
static void file(int fd, const char *name)
{
    MUST(fd >= 0);
    MUST(ftruncate(fd, (off_t)length) == 0);
    struct stat status;
    MUST(fstat(fd, &status) == 0 && (size_t)status.st_size == length);
    unsigned char *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    unsigned char *again = mmap(NULL, length / 2, PROT_READ, MAP_SHARED, fd, (off_t)(length / 2));
    MUST(at != MAP_FAILED && again != MAP_FAILED);
    pattern(at, 0, length, 5);
    must_hold(again, 0, length / 2, (unsigned char)(5 + (length / 2 >> 10)));
    hand_over(at, 5);
    unsigned char byte = 0;
    MUST(pread(fd, &byte, 1, 1024) == 1 && byte == 7);
    byte = 99;
    MUST(pwrite(fd, &byte, 1, 77) == 1 && at[77] == 99);
    /* A private mapping of it is a copy. */
    unsigned char *copy = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    MUST(copy != MAP_FAILED);
    copy[0] = 111;
    MUST(at[0] == 6);
    MUST(munmap(copy, length) == 0);
    /* It grows; what is new is zero. */
    MUST(ftruncate(fd, (off_t)length * 2) == 0);
    unsigned char *more = mmap(NULL, length * 2, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MUST(more != MAP_FAILED);
    must_hold(more, 0, length, 6);
    for (size_t i = length; i < length * 2; i += page_size())
        MUST(more[i] == 0);
    MUST(ftruncate(fd, (off_t)length / 2) == 0);
    must_hold(more, 0, length / 2, 6);
    MUST(munmap(more, length * 2) == 0 && munmap(again, length / 2) == 0);
    MUST(munmap(at, length) == 0 && close(fd) == 0);
    SAY("%s\n", name);
}

int main(int count, char **words)
{
    MUST(count == 2);
    length = strtoul(words[1], NULL, 10) << 20;
    anonymous();
    system_five();
    file(memfd_create("compat", MFD_CLOEXEC), "memfd");
    char name[64];
    snprintf(name, sizeof name, "/hugeleaf-compat-%d", (int)getpid());
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    int same = shm_open(name, O_RDWR, 0);
    MUST(shm_unlink(name) == 0 && same >= 0 && close(same) == 0);
    file(fd, "POSIX");
    return 0;
}
