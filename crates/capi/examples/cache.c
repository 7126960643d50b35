/*
 * A key-value cache of a fixed capacity that grows and shrinks under load, on huge pages. The Rust version
 * is cache.rs.
 *
 *     cache [MEGABYTES [LADDER [shared]]]
 *
 * Two components share one elastic range, as the parts of a database share its memory:
 *
 *   index     a table from keys to places. It has a fixed size and is taken once, for the maximum size of
 *             the cache.
 *   entries   granules full of entries. They are taken one at a time while the target allows. After that,
 *             the oldest granule is emptied and reused without a system call.
 *
 * Readers look up keys and insert those they miss. Meanwhile the main thread halves the target, as a database
 * would when another process needs memory. It evicts granule by granule down to the target, then raises the
 * target again. The value of each entry follows from its key, so every byte that a reader gets is checked.
 */
#define _POSIX_C_SOURCE 200809L
#include <hugeleaf.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { VALUE_BYTES = 248, READERS = 2 };

struct entry {
    uint64_t key;
    unsigned char value[VALUE_BYTES];
};

/* The position of an entry, if its block is still in the ring. */
struct place {
    uint32_t block;
    uint32_t slot;
};

/* One granule of entries. */
struct block {
    hl_granule granule;
    struct entry *entries;
    uint32_t used;
};

struct cache {
    /* Readers hold it for reading, writers for writing. So no granule is returned while it is read. */
    pthread_rwlock_t lock;
    hl_elastic *memory;
    hl_component index_component, entries_component;
    struct place *index;
    uint64_t places;
    /* A ring: the blocks from `oldest` to before `newest`, counted from 1, so that a place of zeroes is
     * invalid. Block n is blocks[n % most]. */
    struct block *blocks;
    uint32_t most, oldest, newest;
    uint32_t slots_a_block;
    /* Counts of the readers. */
    atomic_ullong looked_up, found, wrong;
    atomic_int stop;
};

/* Every error has the failure and the next action. */
static void fail(const hl_error *error)
{
    fprintf(stderr, "cache: %s (%s)\n       try: %s\n", error->what, hl_status_text(error->status),
            error->next);
    exit(1);
}

static uint64_t mixed(uint64_t number)
{
    number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9u;
    number = (number ^ (number >> 27)) * 0x94d049bb133111ebu;
    return number ^ (number >> 31);
}

/* The value of a key: arbitrary, but always the same. */
static void make_value(uint64_t key, unsigned char *value)
{
    for (uint64_t i = 0; i < VALUE_BYTES / 8; i++) {
        uint64_t word = mixed(key + i * 0x9e3779b97f4a7c15u);
        memcpy(value + i * 8, &word, 8);
    }
}

static struct place *place_of(struct cache *cache, uint64_t key)
{
    return &cache->index[mixed(key) & (cache->places - 1)];
}

/* Takes the granules of the index in one call, because its size is fixed. Taken first, they are adjacent
 * and form one table. */
static void take_index(struct cache *cache, uint64_t capacity)
{
    hl_error error;
    void *address;
    uint64_t granule = hl_elastic_granule(cache->memory);
    for (cache->places = 1; cache->places < capacity * 2;)
        cache->places *= 2;
    size_t count = (cache->places * sizeof(struct place) + granule - 1) / granule;
    hl_granule *granules = calloc(count, sizeof *granules);
    if (granules == NULL)
        abort();
    if (hl_elastic_component(cache->memory, "index", 0, &cache->index_component, &error) != HL_OK ||
        hl_elastic_take(cache->memory, cache->index_component, granules, count, &error) != HL_OK)
        fail(&error);
    for (size_t i = count; i > 0; i--)
        if (hl_elastic_address(cache->memory, granules[i - 1], &address, &error) != HL_OK)
            fail(&error);
    cache->index = address; /* Of the first; granules are zeroed when taken. */
    free(granules);
}

static void open_cache(struct cache *cache, uint64_t bytes, const char *ladder, uint32_t sharing)
{
    hl_error error;
    memset(cache, 0, sizeof *cache);
    hl_elastic_options options = {
        .size = sizeof options,
        .max_bytes = bytes,
        .ladder = ladder,
        .sharing = sharing,
    };
    if (hl_elastic_new(&options, &cache->memory, &error) != HL_OK)
        fail(&error);
    uint64_t granule = hl_elastic_granule(cache->memory);
    take_index(cache, bytes / sizeof(struct entry));
    if (hl_elastic_component(cache->memory, "entries", 1, &cache->entries_component, &error) != HL_OK)
        fail(&error);
    cache->slots_a_block = (uint32_t)(granule / sizeof(struct entry));
    cache->most = (uint32_t)(bytes / granule);
    cache->blocks = calloc(cache->most, sizeof *cache->blocks);
    if (cache->blocks == NULL)
        abort();
    cache->oldest = cache->newest = 1;
    pthread_rwlock_init(&cache->lock, NULL);
}

/* Removes the oldest block. The block number of a place shows that its entry is gone. Needs the write lock. */
static struct block evict_oldest(struct cache *cache)
{
    return cache->blocks[cache->oldest++ % cache->most];
}

/* Returns a block with room: a new granule while the target allows, else the oldest one, emptied. Needs the
 * write lock. */
static struct block *block_with_room(struct cache *cache)
{
    hl_error error;
    struct block fresh = {0};
    void *address;
    if (cache->newest > cache->oldest) {
        struct block *last = &cache->blocks[(cache->newest - 1) % cache->most];
        if (last->used < cache->slots_a_block)
            return last;
    }
    switch (hl_elastic_take(cache->memory, cache->entries_component, &fresh.granule, 1, &error)) {
    case HL_OK:
        if (hl_elastic_address(cache->memory, fresh.granule, &address, &error) != HL_OK)
            fail(&error);
        fresh.entries = address;
        break;
    case HL_OVER_TARGET: /* the target is reached */
    case HL_FULL:        /* the whole range is held */
    case HL_SHORT:       /* a mandatory ladder has no more pages */
    case HL_TOO_LARGE:   /* the host has no more memory */
        if (cache->newest > cache->oldest) {
            fresh = evict_oldest(cache);
            fresh.used = 0;
            break;
        }
        fail(&error); /* A cache needs one granule at least. */
        break;
    default:
        fail(&error);
    }
    struct block *block = &cache->blocks[cache->newest++ % cache->most];
    *block = fresh;
    return block;
}

static void put(struct cache *cache, uint64_t key)
{
    pthread_rwlock_wrlock(&cache->lock);
    struct block *block = block_with_room(cache);
    struct entry *entry = &block->entries[block->used];
    entry->key = key;
    make_value(key, entry->value);
    struct place *place = place_of(cache, key);
    place->block = cache->newest - 1;
    place->slot = block->used++;
    pthread_rwlock_unlock(&cache->lock);
}

/* Returns 1 and copies the value if the cache has the key. */
static int get(struct cache *cache, uint64_t key, unsigned char *value)
{
    int is_there = 0;
    pthread_rwlock_rdlock(&cache->lock);
    struct place *place = place_of(cache, key);
    if (place->block >= cache->oldest && place->block < cache->newest) {
        struct entry *entry = &cache->blocks[place->block % cache->most].entries[place->slot];
        if (entry->key == key) {
            memcpy(value, entry->value, VALUE_BYTES);
            is_there = 1;
        }
    }
    pthread_rwlock_unlock(&cache->lock);
    return is_there;
}

static void *reader(void *argument)
{
    struct cache *cache = argument;
    unsigned char value[VALUE_BYTES], expected[VALUE_BYTES];
    /* A few more keys than fit, so that eviction goes on. */
    uint64_t keys = (uint64_t)cache->most * cache->slots_a_block * 5 / 4;
    uint64_t random = (uint64_t)(uintptr_t)&value;
    while (!cache->stop) {
        random = mixed(random + 0x9e3779b97f4a7c15u);
        uint64_t key = random % keys;
        cache->looked_up++;
        if (!get(cache, key, value)) {
            put(cache, key);
            continue;
        }
        make_value(key, expected);
        cache->found++;
        if (memcmp(value, expected, VALUE_BYTES) != 0)
            cache->wrong++;
    }
    return NULL;
}

/* Sets the target of the cache and returns the memory above it, one granule at a time. Readers wait for one
 * granule at most. */
static void resize(struct cache *cache, uint64_t target)
{
    hl_error error;
    uint64_t above = 0, given_back = 0;
    if (hl_elastic_set_target(cache->memory, target, &above, &error) != HL_OK)
        fail(&error);
    while (hl_elastic_held(cache->memory) > target) {
        pthread_rwlock_wrlock(&cache->lock);
        if (cache->oldest == cache->newest) { /* The rest is the index, whose size is fixed. */
            pthread_rwlock_unlock(&cache->lock);
            break;
        }
        struct block oldest = evict_oldest(cache);
        hl_status status = hl_elastic_give_back(cache->memory, cache->entries_component,
                                                &oldest.granule, 1, &error);
        pthread_rwlock_unlock(&cache->lock);
        if (status != HL_OK)
            fail(&error);
        given_back += hl_elastic_granule(cache->memory);
    }
    printf("target %lluK: %lluK above it, %lluK returned\n", (unsigned long long)target >> 10,
           (unsigned long long)above >> 10, (unsigned long long)given_back >> 10);
}

/* Lets the readers do `look_ups` more look-ups. hl_elastic_recover() finds pages created by access to
 * returned granules; there must be none. */
static void load(struct cache *cache, uint64_t look_ups)
{
    hl_error error;
    hl_recovered recovered;
    const struct timespec a_moment = {.tv_nsec = 1000000};
    uint64_t before = cache->looked_up, found = cache->found;
    while (cache->looked_up - before < look_ups)
        nanosleep(&a_moment, NULL);
    if (hl_elastic_recover(cache->memory, &recovered, &error) != HL_OK)
        fail(&error);
    cache->wrong += recovered.cleaned_bytes;
    printf("load: %llu %% found, %lluK held, %llu wrong\n",
           (unsigned long long)((cache->found - found) * 100 / (cache->looked_up - before)),
           (unsigned long long)hl_elastic_held(cache->memory) >> 10,
           (unsigned long long)cache->wrong);
}

static const char *kind_name(hl_kind kind)
{
    const char *names[] = {"any", "base", "thp", "hugetlb"};
    return names[kind];
}

/* Prints the table of components: bytes and page sizes of each. */
static void show(struct cache *cache)
{
    hl_error error;
    hl_elastic_totals totals;
    hl_component_info lines[8];
    size_t count = sizeof lines / sizeof lines[0];
    if (hl_elastic_info(cache->memory, &totals, lines, &count, &error) != HL_OK)
        fail(&error);
    printf("%-10s %10s %-9s %s\n", "COMPONENT", "BYTES", "RESIZABLE", "PAGES");
    for (size_t i = 0; i < count; i++) {
        printf("%-10s %9lluK %-9s", lines[i].name, (unsigned long long)lines[i].bytes >> 10,
               lines[i].resizable ? "yes" : "no");
        for (size_t j = 0; j < HL_PAGE_SIZES && lines[i].by_page_size[j].page_bytes != 0; j++)
            printf(" %lluK on %lluK %s", (unsigned long long)lines[i].by_page_size[j].bytes >> 10,
                   (unsigned long long)lines[i].by_page_size[j].page_bytes >> 10,
                   kind_name(lines[i].by_page_size[j].kind));
        printf("\n");
    }
    printf("%-10s %9lluK\n", "free", (unsigned long long)totals.free_bytes >> 10);

    /* The first extent has the reason if the pages are not as requested. */
    hl_extent extent;
    count = 1;
    hl_status status = hl_elastic_extents(cache->memory, &extent, &count, &error);
    if (status != HL_OK && status != HL_MORE)
        fail(&error);
    if (count > 0 && extent.why != HL_WHY_AS_ASKED)
        printf("why: %s\nnext: %s\n", extent.why_text, extent.next);
}

int main(int argc, char **argv)
{
    struct cache cache;
    pthread_t readers[READERS];
    uint64_t bytes = (uint64_t)(argc > 1 ? atoi(argv[1]) : 32) << 20;
    int is_shared = argc > 3 && strcmp(argv[3], "shared") == 0;
    open_cache(&cache, bytes, argc > 2 ? argv[2] : "2M", is_shared ? HL_SHARED : HL_PRIVATE);
    uint64_t look_ups = 4 * (uint64_t)cache.most * cache.slots_a_block;

    for (int i = 0; i < READERS; i++)
        if (pthread_create(&readers[i], NULL, reader, &cache) != 0)
            abort();
    load(&cache, look_ups);
    resize(&cache, bytes / 2); /* Another process needs memory. */
    load(&cache, look_ups);
    resize(&cache, bytes); /* The other process has returned it. */
    load(&cache, look_ups);
    cache.stop = 1;
    for (int i = 0; i < READERS; i++)
        pthread_join(readers[i], NULL);

    show(&cache);
    hl_elastic_free(cache.memory);
    free(cache.blocks);
    pthread_rwlock_destroy(&cache.lock);
    return cache.wrong != 0;
}
