/* Reads its own maps as garbage collectors, sanitizers and crash reporters do: what it allocated is in
 * a range that may be written, its stack is where pthread says, and every range that may be read can be read to its end.
 *
 * usage: ownmaps MIB */
#include "check.h"

#include <pthread.h>

struct range {
    uintptr_t start, end;
    char rights[5];
    char name[200];
};
static struct range ranges[20000];
static size_t ranges_used;
static char text[4 << 20];

static void read_maps(void)
{
    int file = open("/proc/self/maps", O_RDONLY);
    MUST(file >= 0);
    size_t length = 0;
    ssize_t got;
    while ((got = read(file, text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)got;
    MUST(got == 0 && length < sizeof text - 1);
    close(file);
    text[length] = 0;
    ranges_used = 0;
    uintptr_t last = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        struct range *r = &ranges[ranges_used++];
        MUST(ranges_used < 20000);
        r->name[0] = 0;
        MUST(sscanf(line, "%lx-%lx %4s %*s %*s %*s %199[^\n]", &r->start, &r->end, r->rights, r->name) >= 3);
        MUST(r->start >= last && r->end > r->start);
        last = r->end;
    }
}

static const struct range *find(const void *at)
{
    for (size_t i = 0; i < ranges_used; i++)
        if ((uintptr_t)at >= ranges[i].start && (uintptr_t)at < ranges[i].end)
            return &ranges[i];
    return NULL;
}

static void must_be_writable(const void *at)
{
    const struct range *r = find(at);
    MUST(r && r->rights[0] == 'r' && r->rights[1] == 'w');
}

static void stack_is_where_it_says(void)
{
    pthread_attr_t attributes;
    void *low;
    size_t length;
    volatile int here = 1;
    MUST(pthread_getattr_np(pthread_self(), &attributes) == 0);
    MUST(pthread_attr_getstack(&attributes, &low, &length) == 0);
    MUST((uintptr_t)&here >= (uintptr_t)low && (uintptr_t)&here < (uintptr_t)low + length);
    MUST(here == 1);
    pthread_attr_destroy(&attributes);
}

static void *in_thread(void *unused)
{
    stack_is_where_it_says();
    return unused;
}

/* As a conservative collector does: every word that may be read and belongs to no file. */
static uint64_t scan(void)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < ranges_used; i++) {
        const struct range *r = &ranges[i];
        if (r->rights[0] != 'r' || r->rights[1] != 'w' || r->rights[3] != 'p' || r->name[0] == '/')
            continue;
        for (uintptr_t at = r->start; at < r->end; at += page_size())
            sum += *(volatile unsigned char *)at;
    }
    return sum;
}

int main(int count, char **words)
{
    MUST(count == 2);
    size_t wanted = strtoul(words[1], NULL, 10) << 20, held = 0, used = 0;
    static struct chunk chunks[100000];
    uint64_t state = 8;
    while (held < wanted && used < 100000) {
        struct chunk *c = &chunks[used++];
        *c = (struct chunk){ NULL, draw_size(&state), draw(&state) };
        MUST(c->at = malloc(c->length));
        chunk_fill(c, 0);
        held += c->length;
    }
    must_be_large(wanted / 4);
    stack_is_where_it_says();
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, in_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
    read_maps();
    for (size_t i = 0; i < used; i++) {
        must_be_writable(chunks[i].at);
        must_be_writable(chunks[i].at + chunks[i].length - 1);
    }
    must_be_writable(&used);
    const struct range *heap = find((char *)sbrk(0) - 1);
    MUST(heap && strcmp(heap->name, "[heap]") == 0);
    size_t before = resident_bytes();
    scan();
    size_t after = resident_bytes();
    for (size_t i = 0; i < used; i++)
        MUST(chunk_is_whole(&chunks[i]));
    SAY("ranges %zu before %zu after %zu\n", ranges_used, before, after);
    return 0;
}
