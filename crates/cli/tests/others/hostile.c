/* A program of an unprivileged user that root looks at: it calls itself what it likes, maps what it likes, and
 * then waits until its standard input ends.
 *
 *   hostile NAME WHAT...
 *     file PATH     maps that file, whose name may be anything
 *     maps N        N mappings that cannot be joined
 *     objects N     N mappings of as many objects of shared memory, each of two megabytes
 *     memory MIB    private memory that is all touched
 *     swap ONE TWO  exchanges two files all the time, in a process of its own
 *     made          runs code that is in no file, in a thread of its own
 *     stop          stops (SIGSTOP) once it is ready
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *must(void *mapped)
{
	if (mapped == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return mapped;
}

static void *run(void *code)
{
	((void (*)(void))code)();
	return NULL;
}

/* A jump to itself. */
static void made(void)
{
#if defined(__x86_64__)
	static const unsigned char jump[] = { 0xeb, 0xfe };
#else
	static const unsigned char jump[] = { 0x00, 0x00, 0x00, 0x14 };
#endif
	pthread_t thread;
	void *code = must(mmap(NULL, 64, PROT_READ | PROT_WRITE | PROT_EXEC,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));

	memcpy(code, jump, sizeof(jump));
	__builtin___clear_cache((char *)code, (char *)code + sizeof(jump));
	pthread_create(&thread, NULL, run, code);
}

int main(int argc, char **argv)
{
	int at, n, stop = 0;
	long page = sysconf(_SC_PAGESIZE);

	prctl(PR_SET_NAME, argv[1]);
	for (at = 2; at < argc; at++) {
		if (!strcmp(argv[at], "file")) {
			int fd = open(argv[++at], O_RDONLY);

			must(mmap(NULL, page, PROT_READ, MAP_PRIVATE, fd, 0));
			close(fd);
		} else if (!strcmp(argv[at], "maps")) {
			n = atoi(argv[++at]);
			char *all = must(mmap(NULL, n * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));

			for (int i = 0; i < n; i += 2)
				if (mprotect(all + i * page, page, PROT_READ))
					break;
		} else if (!strcmp(argv[at], "objects")) {
			n = atoi(argv[++at]);
			for (int i = 0; i < n; i++) {
				int fd = memfd_create("object", 0);

				if (ftruncate(fd, 2 << 20))
					return 1;
				must(mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
				close(fd);
			}
		} else if (!strcmp(argv[at], "memory")) {
			size_t size = (size_t)atoi(argv[++at]) << 20;

			memset(must(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
			       1, size);
		} else if (!strcmp(argv[at], "swap")) {
			if (fork() == 0) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				for (;; usleep(20))
					syscall(SYS_renameat2, AT_FDCWD, argv[at + 1], AT_FDCWD, argv[at + 2], 2);
			}
			at += 2;
		} else if (!strcmp(argv[at], "made")) {
			made();
		} else if (!strcmp(argv[at], "stop")) {
			stop = 1;
		}
	}
	puts("ready");
	fflush(stdout);
	if (stop)
		raise(SIGSTOP);
	while (getchar() != EOF)
		;
	return 0;
}
