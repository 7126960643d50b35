/* Memory that becomes usable in other ways than by a mapping of its own: `commits WAY LENGTH_M`.
 * Says what of it is resident, and what of that on huge pages, in bytes. */
#include "check.h"

static size_t length;

static char *map(size_t bytes, int rights, int more)
{
    char *at = mmap(0, bytes, rights, MAP_PRIVATE | MAP_ANONYMOUS | more, -1, 0);
    MUST(at != MAP_FAILED);
    return at;
}

/* Reserved without rights, then made usable `step` bytes at a time. */
static char *by_rights(size_t step)
{
    char *at = map(length, PROT_NONE, MAP_NORESERVE);
    for (size_t i = 0; i < length; i += step) {
        MUST(mprotect(at + i, step, PROT_READ | PROT_WRITE) == 0);
        memset(at + i, 1, step);
    }
    return at;
}

static char *by_address(size_t step)
{
    char *at = map(length, PROT_NONE, MAP_NORESERVE);
    for (size_t i = 0; i < length; i += step) {
        MUST(mmap(at + i, step, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                  0) == at + i);
        memset(at + i, 1, step);
    }
    return at;
}

static char *by_break(size_t step)
{
    char *first = sbrk(0);
    for (size_t i = 0; i < length; i += step) {
        char *at = sbrk((intptr_t)step);
        MUST(at != (char *)-1);
        memset(at, 1, step);
    }
    return first;
}

static char *grown(void)
{
    char *at = map(length / 8, PROT_READ | PROT_WRITE, 0);
    memset(at, 1, length / 8);
    for (size_t now = length / 8; now < length; now *= 2) {
        at = mremap(at, now, 2 * now, MREMAP_MAYMOVE);
        MUST(at != MAP_FAILED);
        memset(at + now, 1, now);
    }
    return at;
}

/* Sums a field over the mappings that meet a range. */
static size_t of_range(const char *from, const char *to, const char *field)
{
    char line[512];
    size_t sum = 0;
    int meets = 0;
    FILE *file = fopen("/proc/self/smaps", "re");
    MUST(file);
    while (fgets(line, sizeof line, file)) {
        unsigned long start, end;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &start, &end, rights) == 3)
            meets = start < (unsigned long)to && end > (unsigned long)from;
        else if (meets && strncmp(line, field, strlen(field)) == 0)
            sum += (size_t)atol(line + strlen(field)) * 1024;
    }
    fclose(file);
    return sum;
}

int main(int count, char **words)
{
    MUST(count == 3);
    length = (size_t)atol(words[2]) << 20;
    const char *way = words[1];
    char *at;
    if (strcmp(way, "rights-once") == 0)
        at = by_rights(length);
    else if (strcmp(way, "rights-1M") == 0)
        at = by_rights(1 << 20);
    else if (strcmp(way, "rights-64K") == 0)
        at = by_rights(64 << 10);
    else if (strcmp(way, "address-once") == 0)
        at = by_address(length);
    else if (strcmp(way, "address-1M") == 0)
        at = by_address(1 << 20);
    else if (strcmp(way, "break-once") == 0)
        at = by_break(length);
    else if (strcmp(way, "break-64K") == 0)
        at = by_break(64 << 10);
    else if (strcmp(way, "grown") == 0)
        at = grown();
    else {
        MUST(strcmp(way, "populated") == 0);
        at = map(length, PROT_READ | PROT_WRITE, MAP_POPULATE);
        memset(at, 1, length);
    }
    for (size_t i = 0; i < length; i += page_size())
        MUST(at[i] == 1);
    SAY("resident %zu\n", of_range(at, at + length, "Rss:"));
    SAY("huge %zu\n", of_range(at, at + length, "AnonHugePages:"));
    return 0;
}
