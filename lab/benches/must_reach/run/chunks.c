/* A program under malloc(3), with chunks of every size from 64 bytes to 64 MB: as many bytes in
 * each doubling of the size, so that no way of allocating is left out. It grows, changes many of
 * its chunks for new ones, says "ready", waits for a line, and then reads at random.
 *
 * usage: chunks BYTES THREADS CHANGES READS
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SMALLEST = 6, LARGEST = 25, PLACES = 1 << 20 };

struct chunk {
    unsigned char *at;
    size_t size;
};

struct worker {
    pthread_t thread;
    uint64_t random;
    struct chunk *chunks;
    size_t count;
    size_t large; /* chunks from here on hold 64K and more */
    size_t *ends; /* sum of sizes up to a chunk */
    uint64_t sum;
    size_t operations;
};

static size_t total, changes, reads;
static int threads;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static uint64_t draw(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    *state = x;
    return x * 0x2545F4914F6CDD1Dull;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Every byte is written, and depends on nothing but the size: what is read later is known. */
static void fill(struct chunk *c)
{
    memset(c->at, (int)(c->size & 0xff), c->size);
}

static void take(struct chunk *c, size_t size)
{
    c->at = malloc(size);
    if (!c->at)
        fail("malloc");
    c->size = size;
    fill(c);
}

static size_t size_in(struct worker *w, int doubling)
{
    size_t low = (size_t)1 << doubling;
    return low + draw(&w->random) % low;
}

static void plan(struct worker *w)
{
    size_t share = total / (LARGEST - SMALLEST + 1) / (size_t)threads;
    size_t room = share / 64 * 2 + 1024, n = 0;
    w->chunks = malloc(room * sizeof *w->chunks);
    if (!w->chunks)
        fail("malloc");
    for (int d = SMALLEST; d <= LARGEST; d++) {
        if (d > SMALLEST && ((size_t)1 << d) > total / 4 / (size_t)threads)
            break;
        for (size_t held = 0; held < share && n < room; held += w->chunks[n++].size)
            w->chunks[n].size = size_in(w, d);
    }
    w->count = n;
}

static int by_size(const void *a, const void *b)
{
    size_t x = ((const struct chunk *)a)->size, y = ((const struct chunk *)b)->size;
    return (x > y) - (x < y);
}

static void shuffle(struct worker *w)
{
    for (size_t i = w->count; i > 1; i--) {
        size_t j = draw(&w->random) % i;
        struct chunk c = w->chunks[i - 1];
        w->chunks[i - 1] = w->chunks[j];
        w->chunks[j] = c;
    }
}

static void change(struct worker *w, size_t at)
{
    struct chunk *c = &w->chunks[at];
    int doubling = 63 - __builtin_clzll(c->size);
    free(c->at);
    take(c, size_in(w, doubling));
}

/* Grows by half and shrinks again, as a buffer does that fills up. */
static void resize(struct chunk *c)
{
    size_t size = c->size;
    unsigned char *larger = realloc(c->at, size + size / 2);
    if (!larger)
        fail("realloc");
    memset(larger + size, 1, size / 2);
    c->at = realloc(larger, size);
    if (!c->at)
        fail("realloc");
}

static void *grow(void *own)
{
    struct worker *w = own;
    plan(w);
    shuffle(w);
    for (size_t i = 0; i < w->count; i++)
        take(&w->chunks[i], w->chunks[i].size);
    qsort(w->chunks, w->count, sizeof *w->chunks, by_size);
    for (w->large = 0; w->large < w->count && w->chunks[w->large].size < 65536; w->large++)
        ;
    for (size_t i = 0; i < changes / (size_t)threads; i++) {
        if (i % 512 == 0 && w->large < w->count)
            change(w, w->large + draw(&w->random) % (w->count - w->large));
        else if (i % 512 == 256)
            resize(&w->chunks[draw(&w->random) % w->count]);
        else
            change(w, draw(&w->random) % w->count);
    }
    w->operations = w->count + changes / (size_t)threads;
    return NULL;
}

/* Where to read: any byte as likely as any other. */
static unsigned char *place(struct worker *w)
{
    size_t byte = draw(&w->random) % w->ends[w->count - 1], low = 0, high = w->count - 1;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (w->ends[middle] > byte)
            high = middle;
        else
            low = middle + 1;
    }
    return w->chunks[low].at + (w->ends[low] - byte - 1);
}

/* Each read says which comes next, so that none can be begun before the one ahead of it is done. */
static void *visit(void *own)
{
    struct worker *w = own;
    unsigned char **places = malloc(PLACES * sizeof *places);
    w->ends = malloc(w->count * sizeof *w->ends);
    if (!places || !w->ends)
        fail("malloc");
    for (size_t i = 0; i < w->count; i++)
        w->ends[i] = w->chunks[i].size + (i ? w->ends[i - 1] : 0);
    for (size_t i = 0; i < PLACES; i++)
        places[i] = place(w);
    size_t at = 0;
    for (size_t i = 0; i < reads / (size_t)threads; i++) {
        unsigned char value = *places[at & (PLACES - 1)];
        w->sum += value;
        at += 1 + (value & 7);
    }
    return NULL;
}

static void together(struct worker *workers, void *(*work)(void *))
{
    for (int i = 1; i < threads; i++)
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
            fail("pthread_create");
    work(&workers[0]);
    for (int i = 1; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    total = strtoull(argv[1], NULL, 10);
    threads = atoi(argv[2]);
    changes = strtoull(argv[3], NULL, 10);
    reads = strtoull(argv[4], NULL, 10);
    struct worker *workers = calloc((size_t)threads, sizeof *workers);
    if (!workers)
        fail("calloc");
    for (int i = 0; i < threads; i++)
        workers[i].random = 88172645463325252ull + (uint64_t)i;
    double start = now();
    together(workers, grow);
    double took = now() - start;
    size_t operations = 0;
    for (int i = 0; i < threads; i++)
        operations += workers[i].operations;
    printf("rate grow %f\nready\n", (double)operations / took);
    fflush(stdout);
    getchar();
    start = now();
    together(workers, visit);
    took = now() - start;
    uint64_t sum = 0;
    for (int i = 0; i < threads; i++)
        sum += workers[i].sum;
    printf("rate work %f\ncheck %llu\n", (double)reads / took, (unsigned long long)sum);
    return 0;
}
