/* The programs of a hostile user, and the one that watches hugeleaf among them.
 *
 * As an actor it does what HOSTILE says, prints "ready" and waits until its standard input ends.
 * Started without HOSTILE it was asked about its settings, as hugeleaf asks servers: it notes as
 * whom, next to itself, and never ends.
 *
 * "watch SECONDS FILE COMMAND..." runs a command, kills it after SECONDS, and writes into FILE: its
 * status (-1 where it was killed), the most memory that it had, in KiB, and how long it waited, in ms:
 * the time it took, less that on a processor or in the queue for one, which a busy machine needs as well. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* Names that a terminal, a parser or a reader of services trips over. */
static const char *const NAMES[] = {
	"\033[2J\033[31mred", "\033]0;owned\007", "a) R 1 (b", "new\nline", " ", "\r\rgone",
	"\xff\xfe\xfd\xfc", "\xc2\x9b" "31m", "\xe2\x80\xae" "nevig", "(sd-pam)", "kworker/0:1",
	"postgres", "mysqld", "mariadbd", "redis-server", "java", "beam.smp", "mongod", "oracle",
	"%s%n%n", "$(id)", "../../etc", "-rf", "hugeleaf",
};
#define NAMED (sizeof NAMES / sizeof NAMES[0])

static void as(const char *name)
{
	prctl(PR_SET_NAME, name);
}

/* What /proc/PID/cmdline shows. */
static void shown_as(int argc, char **argv, const char *name)
{
	char *end = argv[argc - 1] + strlen(argv[argc - 1]);
	size_t room = (size_t)(end - argv[0]);
	memset(argv[0], 0, room);
	strncpy(argv[0], name, room);
}

static void ready(void)
{
	if (write(1, "ready\n", 6) != 6)
		fail("write");
	close(1);
}

static void wait_for_end(void)
{
	char c;
	while (read(0, &c, 1) > 0)
		;
	/* What was forked belongs to the group of this process. */
	signal(SIGTERM, SIG_IGN);
	kill(0, SIGKILL);
	exit(0);
}

/* A file with a name that a terminal obeys, mapped: it stands in maps. */
static void map_odd_file(void)
{
	int fd = open("\033[2J\033]0;mapped\007", O_CREAT | O_RDWR, 0600);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	if (fd < 0 || ftruncate(fd, (off_t)(64 * page)))
		fail("mapped file");
	char *p = mmap(NULL, 64 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		fail("mmap");
	memset(p, 1, 64 * page);
	close(fd);
}

static void hold(size_t bytes, int flags)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		fail("mmap");
	memset(p, 1, bytes);
}

/* Hundreds of processes, each of another name. */
static void crowd(int argc, char **argv, long count)
{
	map_odd_file();
	for (long i = 0; i < count; i++) {
		pid_t pid = fork();
		if (pid < 0)
			fail("fork");
		if (pid == 0) {
			as(NAMES[(size_t)i % NAMED]);
			shown_as(argc, argv, NAMES[(size_t)i % NAMED]);
			hold(64 << 10, MAP_PRIVATE);
			for (;;)
				pause();
		}
	}
}

/* Processes that come and go all the time, so many at most. */
static void storm(void)
{
	pid_t pid = fork();
	if (pid < 0)
		fail("fork");
	if (pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	as("postgres");
	for (;;) {
		for (int i = 0; i < 20; i++)
			if (fork() == 0) {
				usleep(5000);
				_exit(0);
			}
		while (wait(NULL) > 0)
			;
		usleep(20000);
	}
}

/* Every other page of other rights: a mapping each. */
static void many_mappings(long count)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *p = mmap(NULL, (size_t)count * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		fail("mmap");
	for (long i = 0; i < count; i += 2)
		if (mprotect(p + (size_t)i * page, page, PROT_READ | PROT_WRITE))
			fail("mprotect");
}

/* Code without a name, that runs half of the time: a profiler looks for its name in
 * /tmp/perf-PID.map, which is what `kind` says. */
static void jit(const char *kind, const char *elsewhere)
{
#if defined(__x86_64__)
	static const unsigned char code[] = { 0xb9, 0, 0, 0x40, 0, 0xff, 0xc9, 0x75, 0xfc, 0xc3 };
#elif defined(__aarch64__)
	static const uint32_t code[] = { 0x52a00801, 0x71000421, 0x54ffffe1, 0xd65f03c0 };
#else
	static const unsigned char code[] = { 0 };
#endif
	char path[64];
	snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
	if (!strcmp(kind, "fifo") ? mkfifo(path, 0644) : !strcmp(kind, "link") && symlink(elsewhere, path))
		fail(path);
	if (!strcmp(kind, "text")) {
		FILE *f = fopen(path, "w");
		if (!f)
			fail(path);
		fprintf(f, "0 7fffffffffff \033[2Jsymbol\033]0;owned\007\n");
		fclose(f);
	}
	if (!strcmp(kind, "large")) {
		int fd = open(path, O_CREAT | O_WRONLY, 0644);
		if (fd < 0 || ftruncate(fd, (off_t)4 << 30))
			fail(path);
	}
	void *p = mmap(NULL, sizeof code, PROT_READ | PROT_WRITE | PROT_EXEC,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		fail("mmap");
	memcpy(p, code, sizeof code);
	__builtin___clear_cache((char *)p, (char *)p + sizeof code);
	pid_t pid = getpid();
	if (fork())
		return; /* The parent waits for the end; the child is its shadow and shares the name. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
	char first[64];
	snprintf(first, sizeof first, "/tmp/perf-%d.map", (int)pid);
	if (!strcmp(kind, "link") ? symlink(elsewhere, path) : link(first, path))
		fail(path);
	for (;;) {
		if (sizeof code > 1)
			((void (*)(void))p)();
		usleep(4000);
	}
}

/* Notes as whom it was started, next to itself, and never ends. */
static int asked(int argc, char **argv)
{
	char self[PATH_MAX + 8];
	ssize_t length = readlink("/proc/self/exe", self, PATH_MAX);
	if (length < 0)
		return 1;
	strcpy(self + length, ".asked");
	FILE *f = fopen(self, "a");
	if (f) {
		fprintf(f, "%d", (int)geteuid());
		for (int i = 1; i < argc; i++)
			fprintf(f, " %s", argv[i]);
		fprintf(f, "\n");
		fclose(f);
	}
	for (;;)
		pause();
}

static pid_t watched;

static void too_long(int signal)
{
	(void)signal;
	kill(-watched, SIGKILL);
}

static long milliseconds(struct timeval t)
{
	return t.tv_sec * 1000 + t.tv_usec / 1000;
}

/* Milliseconds that a process's first thread waited for a processor (the kernel's sched-stats.rst);
 * 0 where the kernel does not say. */
static long in_queue(pid_t pid)
{
	char path[64];
	unsigned long long ran, waited = 0;
	snprintf(path, sizeof path, "/proc/%d/schedstat", (int)pid);
	FILE *f = fopen(path, "r");
	if (f && fscanf(f, "%llu %llu", &ran, &waited) != 2)
		waited = 0;
	if (f)
		fclose(f);
	return (long)(waited / 1000000);
}

static int watch(char **argv)
{
	struct timespec before, after;
	clock_gettime(CLOCK_MONOTONIC, &before);
	unsigned seconds = (unsigned)atoi(argv[2]);
	pid_t pid = watched = fork();
	if (pid == 0) {
		/* A group of its own: what it started is killed with it. */
		setpgid(0, 0);
		execv(argv[4], argv + 4);
		_exit(127);
	}
	signal(SIGALRM, too_long);
	alarm(seconds);
	int status;
	struct rusage used;
	siginfo_t ended;
	while (waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT) < 0)
		if (errno != EINTR)
			fail("waitid");
	long queued = in_queue(pid);
	while (wait4(pid, &status, 0, &used) < 0)
		if (errno != EINTR)
			fail("wait4");
	clock_gettime(CLOCK_MONOTONIC, &after);
	long took = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
	long worked = milliseconds(used.ru_utime) + milliseconds(used.ru_stime) + queued;
	FILE *f = fopen(argv[3], "w");
	if (!f)
		fail(argv[3]);
	fprintf(f, "%d %ld %ld\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1, used.ru_maxrss,
		took > worked ? took - worked : 0);
	return fclose(f);
}

int main(int argc, char **argv)
{
	if (argc > 4 && !strcmp(argv[1], "watch"))
		return watch(argv);
	char *what = getenv("HOSTILE"), *more = getenv("HOSTILE_MORE");
	if (!what)
		return asked(argc, argv);
	setpgid(0, 0);
	if (!strcmp(what, "crowd"))
		crowd(argc, argv, atol(more));
	else if (!strcmp(what, "storm"))
		storm();
	else if (!strcmp(what, "mappings"))
		many_mappings(atol(more));
	else if (!strcmp(what, "server"))
		hold(32 << 20, MAP_SHARED);
	else if (!strcmp(what, "stopped"))
		hold(8 << 20, MAP_PRIVATE);
	else
		jit(what, more);
	ready();
	if (!strcmp(what, "stopped"))
		raise(SIGSTOP);
	wait_for_end();
}
