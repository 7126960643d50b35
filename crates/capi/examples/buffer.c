/*
 * A buffer on huge pages, such as a buffer pool, a sort heap or a log buffer.
 *
 *     buffer [MEGABYTES [LADDER [shared]]]
 *
 * Shows the progress of populating, the pages of each extent with the reason for smaller ones, and frees
 * the buffer. Without arguments: 64 megabytes on "2M".
 */
#include <hugeleaf.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every error has the failure and the next action. */
static int failed(const hl_error *error)
{
    fprintf(stderr, "buffer: %s (%s)\n        try: %s\n", error->what,
            hl_status_text(error->status), error->next);
    return 1;
}

/* Called about twenty times a second, and at the end. */
static void show_progress(uint64_t done, uint64_t total, void *data)
{
    uint64_t *seen = data;
    *seen = done;
    fprintf(stderr, "\rpopulated %3d %%", (int)(done * 100 / total));
}

/* A region can have several extents, so read their number first. It can change between the two calls, if
 * the kernel promotes or splits huge pages. So repeat until all of them fit. */
static hl_extent *extents_of(const hl_region *region, size_t *count, hl_error *error)
{
    hl_extent *extents = NULL;
    *count = 0;
    for (;;) {
        size_t room = *count;
        hl_status status = hl_region_extents(region, extents, count, error);
        if (status == HL_OK)
            return extents;
        free(extents);
        if (status != HL_MORE)
            return NULL;
        *count += room / 2;
        extents = malloc(*count * sizeof *extents);
        if (extents == NULL) {
            snprintf(error->what, sizeof error->what, "malloc of %zu extents", *count);
            return NULL;
        }
    }
}

static const char *kind_name(hl_kind kind)
{
    switch (kind) {
    case HL_HUGETLB:
        return "reserved pages";
    case HL_THP:
        return "transparent huge pages";
    default:
        return "base pages";
    }
}

int main(int argc, char **argv)
{
    hl_error error;
    hl_region *region = NULL;
    uint64_t seen = 0;
    size_t count;
    double coverage;

    hl_region_options options = {
        .size = sizeof options,
        .length_bytes = (uint64_t)(argc > 1 ? atoi(argv[1]) : 64) << 20,
        .ladder = argc > 2 ? argv[2] : "2M",
        .sharing = argc > 3 && strcmp(argv[3], "shared") == 0 ? HL_SHARED : HL_PRIVATE,
        .progress = show_progress,
        .progress_data = &seen,
    };
    if (hl_region_new(&options, &region, &error) != HL_OK)
        return failed(&error);
    fprintf(stderr, "\n");

    /* The whole region is populated: an access neither fails nor stalls in the kernel. */
    memset(hl_region_address(region), 0x5a, hl_region_length(region));

    printf("length: %llu of %llu populated\n", (unsigned long long)hl_region_length(region),
           (unsigned long long)seen);
    hl_extent *extents = extents_of(region, &count, &error);
    if (extents == NULL)
        return failed(&error);
    for (size_t i = 0; i < count; i++) {
        printf("extent: %lluK on %s of %lluK\n", (unsigned long long)extents[i].length_bytes / 1024,
               kind_name(extents[i].kind), (unsigned long long)extents[i].page_bytes / 1024);
        if (extents[i].why != HL_WHY_AS_ASKED)
            printf("   why: %s\n  next: %s\n", extents[i].why_text, extents[i].next);
    }
    free(extents);
    if (hl_region_coverage(region, &coverage, &error) != HL_OK)
        return failed(&error);
    printf("coverage: %.3f\n", coverage);
    hl_region_free(region);
    return 0;
}
