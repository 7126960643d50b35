/* What the guard's tests watch: memory that grows when told, and a counter whose speed follows how much of that memory
 * is on huge pages, so that what larger pages bring is known beforehand.
 *
 * worker COUNTER RATIO: reads lines from standard input and answers each with "ok".
 *   grow MB   maps and touches so much more
 *   lock      locks all of it
 *   quit
 * COUNTER is a file that holds a number which rises a thousand times a second, RATIO times as fast when all memory is
 * on huge pages; "-" for none. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const char *counter;
static double ratio;
static volatile size_t held;
static char *memory;
#define MOST ((size_t)8 << 30)

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* The part of this process's anonymous memory that is on huge pages. */
static double covered(void) {
    char line[256];
    double anon = 0, huge = 0;
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    while (f && fgets(line, sizeof line, f)) {
        sscanf(line, "Anonymous: %lf", &anon);
        sscanf(line, "AnonHugePages: %lf", &huge);
    }
    if (f) fclose(f);
    return anon > 0 ? huge / anon : 0;
}

static void *count(void *unused) {
    double value = 0, last = now(), looked = 0, part = 0;
    for (;;) {
        usleep(20000);
        double t = now();
        if (t - looked > 0.1) part = covered(), looked = t;
        value += (t - last) * 1000 * (1 + (ratio - 1) * part);
        last = t;
        char text[64];
        int n = snprintf(text, sizeof text, "%.0f\n", value);
        FILE *f = fopen(counter, "r+");
        if (!f) f = fopen(counter, "w");
        if (f) fwrite(text, 1, n, f), fclose(f);
    }
    return unused;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    counter = argv[1];
    ratio = atof(argv[2]);
    memory = mmap(0, MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return 3;
    pthread_t thread;
    if (strcmp(counter, "-")) pthread_create(&thread, 0, count, 0);
    char line[128];
    puts("ok");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        size_t mb = 0;
        if (!strncmp(line, "quit", 4)) return 0;
        if (!strncmp(line, "lock", 4) && mlock(memory, held)) return 5;
        if (sscanf(line, "grow %zu", &mb) == 1) {
            size_t to = held + (mb << 20);
            for (size_t at = held; at < to; at += 4096) memory[at] = (char)(at >> 12) | 1;
            held = to;
        }
        /* What was written is there still. */
        for (size_t at = 0; at < held; at += 4096)
            if (memory[at] != ((char)(at >> 12) | 1)) { puts("damaged"); fflush(stdout); return 4; }
        puts("ok");
        fflush(stdout);
    }
    return 0;
}
