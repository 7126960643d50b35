/* Two caches of one process under one target: who asks for more keys gets the memory. And what can be wrong with it. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { GRANULES = 64, GRANULE = 1 << 16, ITEMS = 64, TOUCHES = 2000 };

static hl_error error;
static hl_elastic *elastic;

/* A cache: its granules, its keys, and what it remembers of those that it does not hold. */
struct cache {
    pthread_mutex_t lock;
    hl_granule held[GRANULES];
    size_t count;
    uint64_t keys, next;
    unsigned char mark;
    hl_ghost *ghost;
};

static void mark(struct cache *cache, hl_granule granule)
{
    void *address;
    ENDS(HL_OK, hl_elastic_address(elastic, granule, &address, &error));
    memset(address, cache->mark, GRANULE);
}

static void is_marked(struct cache *cache, hl_granule granule)
{
    void *address;
    ENDS(HL_OK, hl_elastic_address(elastic, granule, &address, &error));
    const unsigned char *bytes = address;
    CHECK(bytes[0] == cache->mark && bytes[GRANULE - 1] == cache->mark);
}

static void benefit(void *data, double elapsed_seconds, hl_benefit *benefit)
{
    struct cache *cache = data;
    pthread_mutex_lock(&cache->lock);
    hl_ghost_set_capacity(cache->ghost, cache->count * ITEMS);
    for (int i = 0; i < TOUCHES; i++) {
        cache->next = cache->next * 6364136223846793005u + 1442695040888963407u;
        /* Small keys more often than large ones. */
        double part = (double)(cache->next >> 11) / (double)(1ull << 53);
        hl_ghost_touch(cache->ghost, (uint64_t)(part * part * (double)cache->keys));
    }
    ENDS(HL_OK, hl_ghost_benefit(cache->ghost, elapsed_seconds, ITEMS, 1e-3, benefit, &error));
    pthread_mutex_unlock(&cache->lock);
}

static void grow(void *data, const hl_granule *granules, size_t count)
{
    struct cache *cache = data;
    pthread_mutex_lock(&cache->lock);
    for (size_t i = 0; i < count; i++) {
        mark(cache, granules[i]);
        cache->held[cache->count++] = granules[i];
    }
    pthread_mutex_unlock(&cache->lock);
}

static size_t shrink(void *data, hl_granule *granules, size_t count)
{
    struct cache *cache = data;
    pthread_mutex_lock(&cache->lock);
    size_t freed = 0;
    while (freed < count && cache->count > 0) {
        granules[freed] = cache->held[--cache->count];
        is_marked(cache, granules[freed++]);
    }
    pthread_mutex_unlock(&cache->lock);
    return freed;
}

static struct cache busy = {PTHREAD_MUTEX_INITIALIZER, {0}, 0, 2 * GRANULES * ITEMS, 1, 0xb5, NULL};
static struct cache idle = {PTHREAD_MUTEX_INITIALIZER, {0}, 0, 6 * ITEMS, 2, 0x1d, NULL};

static size_t held(struct cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    size_t count = cache->count;
    pthread_mutex_unlock(&cache->lock);
    return count;
}

static void wrong(void)
{
    hl_manager *manager = NULL;
    hl_managed managed = {sizeof managed, &busy, benefit, grow, shrink};
    ENDS(HL_INVALID, hl_manager_start(NULL, 0, &manager, &error));
    ENDS(HL_INVALID, hl_manager_start(elastic, 0, NULL, &error));
    ENDS(HL_INVALID, hl_manager_start(elastic, -1, &manager, &error));
    CHECK(manager == NULL);
    hl_manager_free(NULL);
    hl_ghost_free(NULL);
    hl_ghost_touch(NULL, 1);
    hl_ghost_set_capacity(NULL, 1);
    ENDS(HL_INVALID, hl_ghost_benefit(NULL, 1, 1, 1, NULL, &error));
    ENDS(HL_OK, hl_manager_start(elastic, 3600, &manager, &error));
    uint64_t least = 4 * GRANULE, all = (uint64_t)GRANULES * GRANULE;
    ENDS(HL_INVALID, hl_manager_add(NULL, "a", least, all, &managed, NULL, &error));
    ENDS(HL_INVALID, hl_manager_add(manager, NULL, least, all, &managed, NULL, &error));
    ENDS(HL_INVALID, hl_manager_add(manager, "a", least, all, NULL, NULL, &error));
    ENDS(HL_INVALID, hl_manager_add(manager, "", least, all, &managed, NULL, &error));
    ENDS(HL_INVALID, hl_manager_add(manager, "manager", least, all, &managed, NULL, &error));
    hl_managed less = managed;
    less.shrink = NULL;
    ENDS(HL_INVALID, hl_manager_add(manager, "a", least, all, &less, NULL, &error));
    less.size = 2;
    ENDS(HL_INVALID, hl_manager_add(manager, "a", least, all, &less, NULL, &error));
    ENDS(HL_OVER_TARGET, hl_manager_add(manager, "a", all + GRANULE, all, &managed, NULL, &error));
    CHECK(held(&busy) == 0);
    uint64_t above;
    ENDS(HL_INVALID, hl_manager_set_target(NULL, all, &above, &error));
    ENDS(HL_INVALID, hl_manager_set_target(manager, 100 * all, &above, &error));
    ENDS(HL_INVALID, hl_manager_components(manager, NULL, NULL, &error));
    ENDS(HL_INVALID, hl_manager_operations(NULL, NULL, NULL, &error));
    hl_manager_free(manager);
}

static void balances(void)
{
    hl_manager *manager;
    hl_managed its = {sizeof its, &busy, benefit, grow, shrink};
    hl_managed other = {sizeof other, &idle, benefit, grow, shrink};
    uint64_t least = 4 * GRANULE, all = (uint64_t)GRANULES * GRANULE;
    ENDS(HL_OK, hl_manager_start(elastic, 0.1, &manager, &error));
    ENDS(HL_OK, hl_manager_add(manager, "busy", least, all, &its, NULL, &error));
    hl_component component;
    ENDS(HL_OK, hl_manager_add(manager, "idle", least, all, &other, &component, &error));
    ENDS(HL_INVALID, hl_manager_add(manager, "idle", least, all, &other, NULL, &error));
    struct timespec pause = {0, 50 * 1000 * 1000};
    for (int i = 0; i < 1200 && held(&busy) < 40; i++)
        nanosleep(&pause, NULL);
    CHECK(held(&busy) >= 40 && held(&idle) >= 4 && held(&idle) < 24);
    hl_managed_info components[2];
    size_t count = 2;
    ENDS(HL_OK, hl_manager_components(manager, components, &count, &error));
    CHECK(count == 2 && strcmp(components[0].name, "busy") == 0);
    CHECK(components[0].bytes >= 40 * GRANULE && components[0].operations > 0);
    CHECK(components[0].standing[0] != 0);
    count = 1;
    ENDS(HL_MORE, hl_manager_components(manager, components, &count, &error));
    hl_resize operations[256];
    count = 256;
    ENDS(HL_OK, hl_manager_operations(manager, operations, &count, &error));
    CHECK(count > 1 && operations[0].why[0] != 0);
    for (size_t i = 1; i < count; i++)
        CHECK(operations[i].id < operations[i - 1].id);
    uint64_t above;
    ENDS(HL_OK, hl_manager_set_target(manager, 16 * GRANULE, &above, &error));
    CHECK(above > 0);
    for (int i = 0; i < 1200 && hl_elastic_held(elastic) > 16 * GRANULE; i++)
        nanosleep(&pause, NULL);
    CHECK(hl_elastic_held(elastic) <= 16 * GRANULE);
    hl_manager_free(manager);
}

int main(void)
{
    hl_elastic_options options = {
        .size = sizeof options,
        .max_bytes = 2ull * GRANULES * GRANULE,
        .target_bytes = (uint64_t)GRANULES * GRANULE,
        .granule_bytes = GRANULE,
        .ladder = "1K", /* No page is smaller than the base page. */
    };
    ENDS(HL_OK, hl_elastic_new(&options, &elastic, &error));
    busy.ghost = hl_ghost_new(0, ITEMS, 2000);
    idle.ghost = hl_ghost_new(0, ITEMS, 2000);
    wrong();
    balances();
    hl_ghost_free(busy.ghost);
    hl_ghost_free(idle.ghost);
    hl_elastic_free(elastic);
    printf("%d failures\n", failures);
    return 0;
}
