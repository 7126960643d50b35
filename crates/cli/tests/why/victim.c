/* A program with memory that cannot be on large pages, for one reason, given as its argument.
 * Prints "START LENGTH OTHER" (hexadecimal; OTHER is a process id or 0) when the memory is there,
 * and ends when its standard input does. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static size_t huge, page, len;
static pid_t child;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* Address space at a multiple of the large page, with some more after it. */
static char *space(void)
{
	char *p = mmap(NULL, len + 3 * huge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		fail("mmap");
	char *start = (char *)(((uintptr_t)p + 2 * huge - 1) / huge * huge);
	/* Nothing before it: what follows a guard looks like the stack of a thread. */
	if (munmap(p, (size_t)(start - p)))
		fail("munmap");
	return start;
}

/* Memory that grew in steps of four base pages, each touched before the next: never large by
 * itself, whatever the settings. */
static char *grown(char *p)
{
	for (size_t at = 0; at < len; at += 4 * page) {
		if (mprotect(p + at, 4 * page, PROT_READ | PROT_WRITE))
			fail("mprotect");
		for (size_t i = 0; i < 4; i++)
			p[at + i * page] = 1;
	}
	return p;
}

static void *thread(void *unused)
{
	char room[1 << 20];
	memset(room, 1, sizeof room);
	printf("%lx %lx 0\n", (unsigned long)room, (unsigned long)sizeof room);
	fflush(stdout);
	pause();
	return unused;
}

static char *memory(const char *why)
{
	char *p = space();
	if (!strcmp(why, "steps"))
		return grown(p);
	if (!strcmp(why, "advised-late")) {
		grown(p);
		if (madvise(p, len, MADV_HUGEPAGE))
			fail("madvise");
		return p;
	}
	if (!strcmp(why, "nohuge")) {
		grown(p);
		if (madvise(p, len, MADV_NOHUGEPAGE))
			fail("madvise");
		return p;
	}
	if (!strcmp(why, "disabled")) {
		if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0))
			fail("prctl");
		return grown(p);
	}
	if (!strcmp(why, "lock")) {
		grown(p);
		if (mlock(p + huge + 8 * page, page))
			fail("mlock");
		return p;
	}
	if (!strcmp(why, "fork")) {
		grown(p);
		child = fork();
		if (child == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			pause();
			_exit(0);
		}
		return p;
	}
	if (!strcmp(why, "holes") || !strcmp(why, "sparse")) {
		size_t step = strcmp(why, "sparse") ? page : huge;
		if (mprotect(p, len, PROT_READ | PROT_WRITE) || madvise(p, len, MADV_NOHUGEPAGE))
			fail("mprotect");
		for (size_t at = 0; at < len; at += step)
			if (step == huge || at % huge)
				p[at] = 1;
		/* Without it, the reason would be the advice. HUGEPAGE is the only way back. */
		if (madvise(p, len, MADV_HUGEPAGE))
			fail("madvise");
		return p;
	}
	if (!strcmp(why, "memfd")) {
		int fd = memfd_create("victim", 0);
		if (fd < 0 || ftruncate(fd, (off_t)len))
			fail("memfd");
		p += page;
		if (mmap(p, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != p)
			fail("mmap");
		memset(p, 1, len);
		return p;
	}
	fprintf(stderr, "no case %s\n", why);
	exit(2);
}

int main(int argc, char **argv)
{
	char end;
	if (argc != 3)
		return 2;
	page = (size_t)sysconf(_SC_PAGESIZE);
	huge = strtoul(argv[2], NULL, 10);
	len = 8 * huge;
	if (!strcmp(argv[1], "thread")) {
		pthread_t id;
		if (pthread_create(&id, NULL, thread, NULL))
			fail("pthread_create");
	} else {
		char *p = memory(argv[1]);
		printf("%lx %lx %x\n", (unsigned long)p, (unsigned long)len, (unsigned)child);
		fflush(stdout);
	}
	while (read(0, &end, 1) > 0)
		;
	if (child)
		kill(child, SIGKILL);
	return 0;
}
