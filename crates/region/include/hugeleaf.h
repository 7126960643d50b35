/*
 * hugeleaf: memory on large pages for programs that link it. Made by cbindgen of crates/region/src/ffi.rs:
 * change that, not this.
 *
 * A region (hl_region_...) is one contiguous range of memory on the best page sizes that a ladder asks for
 * and the host has. An elastic (hl_elastic_...) is a range from which components take whole large pages
 * and give them back while the program works. What was asked for and what was got can always be read.
 *
 * What holds for all functions:
 *
 * - Sizes are in bytes. Text is UTF-8 and ends in 0.
 * - A function that can fail returns an hl_status, and fills in an hl_error where it gets one; NULL is
 *   allowed. A call that fails leaves nothing behind and writes no result.
 * - NULL for a pointer that is needed is HL_INVALID. Any other pointer must point to what the function
 *   says: that cannot be checked.
 * - An object that a function hands out is the caller's until its own _free function; not free(3), and
 *   once.
 * - Any thread may call any function with any object, several at a time. Only _free needs the object
 *   alone.
 * - A child of fork(2) has the memory of shared objects, and that of private ones copied on write; private
 *   memory on reserved pages is not in it at all. It may call functions where its parent had one thread
 *   (fork(2)); those of an elastic answer HL_FORKED.
 * - Structures of options begin with their size, and zero means "as usual", so they can grow. Other
 *   structures stay as they are as long as the library's name (libhugeleaf.so.0) does.
 */


#ifndef HUGELEAF_H
#define HUGELEAF_H

#include <stddef.h>
#include <stdint.h>

// `sharing`: private to this process. The usual.
#define HL_PRIVATE 0

// `sharing`: other processes can attach it, and children inherit it.
#define HL_SHARED 1

// `node_policy`: as the thread's own policy says (set_mempolicy(2)). The usual.
#define HL_NODES_INHERIT 0

// `node_policy`: from the node of the processor that populates.
#define HL_NODES_LOCAL 1

// `node_policy`: from the nodes of `nodes` only.
#define HL_NODES_BIND 2

// `node_policy`: from the nodes of `nodes` in turn.
#define HL_NODES_INTERLEAVE 3

// The room for a text, in bytes, with the 0 at its end.
#define HL_TEXT 256

// The room for a component's name, in bytes, with the 0 at its end.
#define HL_NAME 48

// More page sizes than a ladder comes to.
#define HL_PAGE_SIZES 16

// How a call ended. The numbers stay.
enum hl_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // Done.
    HL_OK = 0,
    // An argument: NULL, a number that stands for nothing, text that is no UTF-8, a length of 0
    // or no multiple, a ladder that cannot be read.
    HL_INVALID = 1,
    // A mandatory ladder of which this host has no page size.
    HL_NO_SUCH_SIZE = 2,
    // A mandatory ladder that could not be had for all of it.
    HL_SHORT = 3,
    // More memory than there is.
    HL_TOO_LARGE = 4,
    // More than this process may lock (RLIMIT_MEMLOCK).
    HL_LOCK_LIMIT = 5,
    // A handle that is none, is of another version, or does not hold what it says.
    HL_BAD_HANDLE = 6,
    // Private memory cannot be handed to other processes.
    HL_NOT_SHARED = 7,
    // A system call failed; `sys_errno` says how.
    HL_SYSTEM = 8,
    // The host's page sizes and limits could not be read.
    HL_UNREADABLE = 9,
    // There is more than fitted into the array; what it holds is right.
    HL_MORE = 10,
    // A granule that is not held under that number: it was given back, handed on, never taken, is
    // another component's, or stands in the list twice.
    HL_NOT_HELD = 11,
    // More than the target of the elastic allows.
    HL_OVER_TARGET = 12,
    // All granules of the elastic are held.
    HL_FULL = 13,
    // There is no component of that number.
    HL_NO_COMPONENT = 14,
    // No room in the table for another component or process.
    HL_TOO_MANY = 15,
    // A component of a fixed size that has got it, or is to lose it; or one that is there already
    // and of the other kind.
    HL_FIXED_SIZE = 16,
    // This process is a copy by fork(2) of the one whose elastic it is: attach a handle.
    HL_FORKED = 17,
    // Another process holds the table's lock and does not go on.
    HL_STUCK = 18,
    // The table does not hold what this library writes.
    HL_DAMAGED = 19,
    // The granules are not held any more, but the system did not take all of their memory back;
    // `sys_errno` says why. It is tried again at the next take or recover.
    HL_NOT_YET_BACK = 20,
    // A fault of the library itself: an internal check failed. What it says belongs into a
    // report; do not use the object any more.
    HL_PANIC = 99,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum hl_status hl_status;
#else
typedef int32_t hl_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Where pages come from.
enum hl_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // Any: a ladder that names a size alone.
    HL_ANY = 0,
    // The kernel's smallest pages.
    HL_BASE = 1,
    // Transparent huge pages.
    HL_THP = 2,
    // A pool of reserved pages.
    HL_HUGETLB = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum hl_kind hl_kind;
#else
typedef int32_t hl_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Why memory is not on the first size of its ladder.
enum hl_why
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // It is.
    HL_WHY_AS_ASKED = 0,
    // This host has no pages of that size.
    HL_WHY_NO_SUCH_SIZE = 1,
    // The rest of a length that is no multiple of the page size.
    HL_WHY_REST = 2,
    // Fewer reserved pages could be had than were wanted.
    HL_WHY_POOL_SHORT = 3,
    // No contiguous memory was found.
    HL_WHY_NOT_CONTIGUOUS = 4,
    // Transparent huge pages are off for this process or host.
    HL_WHY_THP_OFF = 5,
    // A knob of this host keeps pages of that size away.
    HL_WHY_KNOB_OFF = 6,
    // The kernel does not tell an ordinary program which size it chose.
    HL_WHY_NOT_TOLD = 7,
    // It was on a huge page, which was split since.
    HL_WHY_SPLIT = 8,
    // Another process made it, and that one knows.
    HL_WHY_ATTACHED = 9,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum hl_why hl_why;
#else
typedef int32_t hl_why;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A range of addresses from which components take granules, whole large pages, and to which they
// give them back. Any thread may use it, several at a time; only `hl_elastic_free` needs it alone.
//
// A granule belongs to a component, and to the process that took it: when that one has ended,
// however that happened, `hl_elastic_recover` in any other gives it back.
typedef struct hl_elastic hl_elastic;

// Descriptors on their way to a child, and the line that names them.
typedef struct hl_handle hl_handle;

// One contiguous range of memory, populated, on the best pages that could be had. Any thread may
// use it, several at a time; only `hl_region_free` needs it alone.
typedef struct hl_region hl_region;

// Is told how much is populated: `done_bytes` of `total_bytes`, some twenty times a second and at
// the end, by the thread that called the library. `data` is the options' `progress_data`. It must
// return: no longjmp(3), no C++ exception, no call with the object that is being made.
typedef void (*hl_progress)(uint64_t done_bytes, uint64_t total_bytes, void *data);

// What is asked for. Zero all of it, then set `size`, `length_bytes` and `ladder`; the rest may
// stay 0. In C: `hl_region_options o = { .size = sizeof o, .length_bytes = …, .ladder = "2M" };`
typedef struct hl_region_options {
    // `sizeof(hl_region_options)`.
    size_t size;
    // How long, in bytes: a multiple of the base page, or of a mandatory ladder's smallest page.
    uint64_t length_bytes;
    // The page sizes to try, from large to small: "1G,2M". A size alone means, for private memory,
    // transparent huge pages; for shared memory the pool of that size, then transparent huge
    // pages. "hugetlb:2M" and "thp:2M" name the kind. The rest comes on base pages, unless it ends
    // in "!": then all of it is on the named sizes, or the call fails.
    const char *ladder;
    // `HL_PRIVATE` or `HL_SHARED`.
    uint32_t sharing;
    // Not 0: lock it in memory (mlock(2)). Reserved pages always are, and count for no limit.
    uint32_t locked;
    // One of `HL_NODES_…`.
    uint32_t node_policy;
    // How many threads populate it; 0 for one a processor.
    uint32_t threads;
    // The nodes that `node_policy` speaks of; `node_count` of them.
    const uint32_t *nodes;
    // How many nodes; 0 for `HL_NODES_INHERIT` and `HL_NODES_LOCAL`.
    size_t node_count;
    // Is told how far it is; NULL for nobody.
    hl_progress progress;
    // Goes to `progress` as it is.
    void *progress_data;
} hl_region_options;

// What failed, and what to do next. It is the caller's; each call that gets one fills it in,
// with `HL_OK` and empty texts where nothing failed. Texts are UTF-8, end in 0, and end in "…" where
// they are cut.
typedef struct hl_error {
    // The same as the call returned.
    hl_status status;
    // The kernel's answer (errno(3)) for `HL_SYSTEM` and `HL_NOT_YET_BACK`, else 0.
    int32_t sys_errno;
    // What failed: call, value, limit.
    char what[HL_TEXT];
    // What to do next: a command, or what to ask for instead.
    char next[HL_TEXT];
} hl_error;

// A stretch of memory on pages of one size and kind: what was asked for, and what was got.
typedef struct hl_extent {
    // Its first address.
    uint64_t start;
    // How long it is, in bytes; never 0.
    uint64_t length_bytes;
    // How much of it is in memory now; less than `length_bytes` only where the kernel has
    // swapped it out or taken zeroes back.
    uint64_t resident_bytes;
    // The size of the pages it is on, in bytes.
    uint64_t page_bytes;
    // The first size of the ladder, in bytes.
    uint64_t asked_page_bytes;
    // Where its pages come from: `HL_BASE`, `HL_THP` or `HL_HUGETLB`.
    hl_kind kind;
    // What the ladder's first rung says of that; `HL_ANY` where it names a size alone.
    hl_kind asked_kind;
    // Why the two are not the same.
    hl_why why;
    // Not used; 0.
    uint32_t reserved;
    // `why` as a sentence with its numbers; empty where it is as asked. UTF-8, ends in 0.
    char why_text[HL_TEXT];
    // A command, or what to ask for instead, that would change it; empty where it is as asked.
    char next[HL_TEXT];
} hl_extent;

// What is asked for. Zero all of it, then set `size`, `max_bytes` and `ladder`; the rest may stay 0.
typedef struct hl_elastic_options {
    // `sizeof(hl_elastic_options)`.
    size_t size;
    // The most there can ever be, in bytes: so many addresses are set aside. A multiple of the
    // granule.
    uint64_t max_bytes;
    // How much may be held at a time at first, in bytes; 0 for all of it.
    uint64_t target_bytes;
    // What is taken and given back as one, in bytes: a multiple of the ladder's first size; 0 for
    // just that.
    uint64_t granule_bytes;
    // The page sizes to try for each granule; as in `hl_region_options`.
    const char *ladder;
    // `HL_PRIVATE` or `HL_SHARED`.
    uint32_t sharing;
    // One of `HL_NODES_…`.
    uint32_t node_policy;
    // The nodes that `node_policy` speaks of; `node_count` of them.
    const uint32_t *nodes;
    // How many nodes; 0 for `HL_NODES_INHERIT` and `HL_NODES_LOCAL`.
    size_t node_count;
} hl_elastic_options;

// A component: a buffer pool, a lock list, a sort heap. The same number in all processes.
typedef uint32_t hl_component;

// A granule from when it is taken until it is given back or transferred. The same number in all
// processes, and never used again.
typedef uint64_t hl_granule;

// What stands around the table of components.
typedef struct hl_elastic_totals {
    // What is taken and given back as one.
    uint64_t granule_bytes;
    // The most there can ever be.
    uint64_t max_bytes;
    // How much may be held at a time.
    uint64_t target_bytes;
    // How much is, with what is being taken and given back just now.
    uint64_t held_bytes;
    // How much more may be taken.
    uint64_t free_bytes;
    // Nobody's, and not given back yet, because the system refused: `hl_elastic_recover` tries
    // again.
    uint64_t unclean_bytes;
    // How many processes have it attached, or ended without freeing it.
    uint64_t processes;
} hl_elastic_totals;

// How much is on pages of one size and kind.
typedef struct hl_share {
    // The size of the pages, in bytes; 0 ends the list.
    uint64_t page_bytes;
    // How much is on them, in bytes.
    uint64_t bytes;
    // Where they come from.
    hl_kind kind;
    // Not used; 0.
    uint32_t reserved;
} hl_share;

// One line of the table of components.
typedef struct hl_component_info {
    // Its name; UTF-8, ends in 0.
    char name[HL_NAME];
    // Its number.
    hl_component component;
    // 1 where it can take and give back at any time; 0 where its size is fixed.
    uint32_t resizable;
    // How much it holds.
    uint64_t bytes;
    // On what pages, largest first; a `page_bytes` of 0 ends the list where it is not full.
    struct hl_share by_page_size[HL_PAGE_SIZES];
} hl_component_info;

// What came back.
typedef struct hl_recovered {
    // How many processes had ended without giving back.
    uint64_t processes;
    // What they held, or were taking or giving back.
    uint64_t bytes;
    // Memory that nobody held: what the system had refused before, and what was touched after it
    // was given back.
    uint64_t cleaned_bytes;
} hl_recovered;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, as in "0.1.0". Lives for ever; any thread.
const char *hl_version(void);

// What a status means, in a few words. Lives for ever; any thread; any number.
const char *hl_status_text(int32_t status);

// Takes, populates and, where asked, locks memory. `*region` is the caller's until
// `hl_region_free`. Takes as long as the kernel needs to zero the memory; any thread.
//
// Errors: `HL_INVALID`, `HL_NO_SUCH_SIZE`, `HL_SHORT`, `HL_TOO_LARGE`, `HL_LOCK_LIMIT`,
// `HL_SYSTEM`, `HL_UNREADABLE`. Nothing is taken then, and `*region` stays as it was.
hl_status hl_region_new(const struct hl_region_options *options,
                        struct hl_region **region,
                        struct hl_error *error);

// Gives all of its memory back; its addresses are no longer valid. NULL is nothing to do. No
// other thread may be using the region.
void hl_region_free(struct hl_region *region);

// Its first byte, zeroed when it was made; NULL of NULL. Valid for `hl_region_length` bytes until
// `hl_region_free`. It never moves. Do not use mremap(2) or munmap(2) on it. Any thread.
void *hl_region_address(const struct hl_region *region);

// Its length in bytes; 0 of NULL. Any thread.
uint64_t hl_region_length(const struct hl_region *region);

// What it is on now, in order of address: read back from the kernel at each call. `*count` is the
// room of `extents` and becomes how many there are. With more than fit the answer is `HL_MORE`, and
// those that fit are right; with a room of 0 `extents` may be NULL. Any thread.
//
// Errors: `HL_INVALID`, `HL_MORE`, `HL_SYSTEM`.
hl_status hl_region_extents(const struct hl_region *region,
                            struct hl_extent *extents,
                            size_t *count,
                            struct hl_error *error);

// How much of it is on pages larger than the base page, from 0.0 to 1.0, in `*coverage`. Any
// thread.
//
// Errors: `HL_INVALID`, `HL_SYSTEM`.
hl_status hl_region_coverage(const struct hl_region *region,
                             double *coverage,
                             struct hl_error *error);

// Sends a shared region to the process at the other end of a connected Unix stream socket
// (unix(7), SCM_RIGHTS): that one calls `hl_region_receive`. The socket stays open and the
// caller's. Its memory lives until the last process has freed it. Any thread.
//
// Errors: `HL_INVALID`, `HL_NOT_SHARED`, `HL_SYSTEM`.
hl_status hl_region_send(const struct hl_region *region, int32_t socket, struct hl_error *error);

// Waits for what `hl_region_send` sends, and maps it here, at an address of this process's own.
// Nothing in it is believed: descriptors that do not hold what they should are refused. `*region`
// is the caller's until `hl_region_free`. Set a time-out on the socket (SO_RCVTIMEO) where the other
// side may be silent. Any thread.
//
// Errors: `HL_INVALID`, `HL_BAD_HANDLE`, `HL_SYSTEM`; `*region` stays as it was.
hl_status hl_region_receive(int32_t socket,
                            struct hl_region **region,
                            struct hl_error *error);

// Readies a shared region for children that this process starts with exec(3): `hl_handle_line`
// is what such a child needs. `*handle` is the caller's until `hl_handle_free`, and must live until
// the children have started; others that start meanwhile inherit the descriptors as well. Any
// thread.
//
// Errors: `HL_INVALID`, `HL_NOT_SHARED`, `HL_SYSTEM`; `*handle` stays as it was.
hl_status hl_region_inheritable(const struct hl_region *region,
                                struct hl_handle **handle,
                                struct hl_error *error);

// One line for an environment variable or an argument of a child; NULL of NULL. Lives as long as
// the handle. Any thread.
const char *hl_handle_line(const struct hl_handle *handle);

// Closes a handle's descriptors in this process. NULL is nothing to do.
void hl_handle_free(struct hl_handle *handle);

// In a child: maps the region behind the line that its parent got from `hl_handle_line`. The
// inherited descriptors stay open. `*region` is the caller's until `hl_region_free`. Any thread.
//
// Errors: `HL_INVALID`, `HL_BAD_HANDLE`, `HL_SYSTEM`; `*region` stays as it was.
hl_status hl_region_attach_inherited(const char *line,
                                     struct hl_region **region,
                                     struct hl_error *error);

// Sets addresses aside; takes no memory for granules yet. `*elastic` is the caller's until
// `hl_elastic_free`. Any thread.
//
// Errors: `HL_INVALID`, `HL_NO_SUCH_SIZE`, `HL_TOO_LARGE`, `HL_SYSTEM`, `HL_UNREADABLE`; `*elastic`
// stays as it was.
hl_status hl_elastic_new(const struct hl_elastic_options *options,
                         struct hl_elastic **elastic,
                         struct hl_error *error);

// Gives back what this process took, and its addresses. Other processes keep what they took. NULL
// is nothing to do. No other thread may be using the elastic.
void hl_elastic_free(struct hl_elastic *elastic);

// What is taken and given back as one, in bytes; 0 of NULL. Any thread.
uint64_t hl_elastic_granule(const struct hl_elastic *elastic);

// The most there can ever be, in bytes; 0 of NULL. Any thread.
uint64_t hl_elastic_max(const struct hl_elastic *elastic);

// How much may be held at a time, in bytes; 0 of NULL. Any thread.
uint64_t hl_elastic_target(const struct hl_elastic *elastic);

// How much is held by all components, in bytes, with what is being taken and given back just now;
// 0 of NULL. Any thread.
uint64_t hl_elastic_held(const struct hl_elastic *elastic);

// Raises or lowers the target, in bytes, for all processes. Lowering takes nothing away: `*above`
// (may be NULL) is how much is held above it, which the components are to give back; until they
// have, nothing more can be taken. Any thread.
//
// Errors: `HL_INVALID` for more than the maximum; `HL_FORKED`, `HL_STUCK`.
hl_status hl_elastic_set_target(const struct hl_elastic *elastic,
                                uint64_t target_bytes,
                                uint64_t *above,
                                struct hl_error *error);

// Finds the component of that name (1 to 47 bytes), or makes it. One that is not `resizable` (0)
// takes granules in one call, and keeps them until the process that took them ends. Any thread.
//
// Errors: `HL_INVALID`, `HL_TOO_MANY`, `HL_FIXED_SIZE` where it is there and of the other kind;
// `HL_FORKED`, `HL_STUCK`.
hl_status hl_elastic_component(const struct hl_elastic *elastic,
                               const char *name,
                               uint32_t resizable,
                               hl_component *component,
                               struct hl_error *error);

// Takes `count` granules into `granules`, or none: populated, zeroed, within all limits, and so
// never a SIGBUS later. They are neighbours where there are so many, and in order of address in any case.
// Each is on the first rung of the ladder that has the pages. Any thread.
//
// Errors: `HL_OVER_TARGET`, `HL_FULL`, `HL_SHORT` on a mandatory ladder, `HL_TOO_LARGE` where memory is
// short, `HL_NO_COMPONENT`, `HL_FIXED_SIZE`, `HL_INVALID`, `HL_SYSTEM`, `HL_FORKED`, `HL_STUCK`. None is
// taken then.
hl_status hl_elastic_take(const struct hl_elastic *elastic,
                          hl_component component,
                          hl_granule *granules,
                          size_t count,
                          struct hl_error *error);

// Gives `count` granules of a component back, all or none: their memory goes to the pool or the
// system at once, in all processes. Nobody may touch them any more. Any thread.
//
// Errors: `HL_NOT_HELD` for one that is not held, not by this component, or stands in the list twice;
// `HL_NO_COMPONENT`, `HL_FIXED_SIZE`, `HL_INVALID`, `HL_FORKED`, `HL_STUCK`: none was given back then.
// `HL_NOT_YET_BACK`: none is held any more, but the system refused some of the memory.
hl_status hl_elastic_give_back(const struct hl_elastic *elastic,
                               hl_component component,
                               const hl_granule *granules,
                               size_t count,
                               struct hl_error *error);

// Hands `count` granules from one component to another, all or none, with what they hold: no
// memory moves. They are this process's from then on and have new names, which replace the old
// ones in `granules`. To the same component it makes another process's granules this one's. Any
// thread.
//
// Errors: as `hl_elastic_give_back`, for either component; nothing has changed then.
hl_status hl_elastic_transfer(const struct hl_elastic *elastic,
                              hl_component from,
                              hl_component to,
                              hl_granule *granules,
                              size_t count,
                              struct hl_error *error);

// Where a granule lies in this process, in `*address`: valid for `hl_elastic_granule` bytes until it
// is given back or this elastic is freed. Other processes have it elsewhere. Any thread.
//
// Errors: `HL_NOT_HELD`, `HL_INVALID`, `HL_SYSTEM`, `HL_FORKED`, `HL_STUCK`.
hl_status hl_elastic_address(const struct hl_elastic *elastic,
                             hl_granule granule,
                             void **address,
                             struct hl_error *error);

// What every granule that is held is on now, whoever holds it, in order of address; `extents` and
// `*count` as in `hl_region_extents`. Any thread.
//
// Errors: `HL_INVALID`, `HL_MORE`, `HL_SYSTEM`, `HL_FORKED`, `HL_STUCK`, `HL_DAMAGED`.
hl_status hl_elastic_extents(const struct hl_elastic *elastic,
                             struct hl_extent *extents,
                             size_t *count,
                             struct hl_error *error);

// The table of components, as Oracle shows it in v$sgainfo: what stands around it in `*totals` (may
// be NULL), a line a component in `components`, in the order in which they were made. `*count` is
// the room of `components` and becomes how many there are; with more than fit the answer is `HL_MORE`.
// Any thread.
//
// Errors: `HL_INVALID`, `HL_MORE`, `HL_SYSTEM`, `HL_FORKED`, `HL_STUCK`, `HL_DAMAGED`.
hl_status hl_elastic_info(const struct hl_elastic *elastic,
                          struct hl_elastic_totals *totals,
                          struct hl_component_info *components,
                          size_t *count,
                          struct hl_error *error);

// Gives back what processes held that have ended, however they did; what came back in `*recovered`
// (may be NULL). Call it when a worker has died, or when memory is short. Any thread.
//
// Errors: `HL_NOT_YET_BACK`, `HL_FORKED`, `HL_STUCK`, `HL_DAMAGED`.
hl_status hl_elastic_recover(const struct hl_elastic *elastic,
                             struct hl_recovered *recovered,
                             struct hl_error *error);

// Sends a shared elastic over a connected Unix stream socket; as `hl_region_send`. Any thread.
//
// Errors: `HL_INVALID`, `HL_NOT_SHARED`, `HL_SYSTEM`, `HL_FORKED`.
hl_status hl_elastic_send(const struct hl_elastic *elastic, int32_t socket, struct hl_error *error);

// Waits for what `hl_elastic_send` sends, and attaches it; as `hl_region_receive`. `*elastic` is the
// caller's until `hl_elastic_free`. Any thread.
//
// Errors: `HL_INVALID`, `HL_BAD_HANDLE`, `HL_TOO_MANY`, `HL_DAMAGED`, `HL_SYSTEM`; `*elastic` stays as it
// was.
hl_status hl_elastic_receive(int32_t socket,
                             struct hl_elastic **elastic,
                             struct hl_error *error);

// Readies a shared elastic for children that this process starts; as `hl_region_inheritable`. Any
// thread.
//
// Errors: `HL_INVALID`, `HL_NOT_SHARED`, `HL_SYSTEM`, `HL_FORKED`; `*handle` stays as it was.
hl_status hl_elastic_inheritable(const struct hl_elastic *elastic,
                                 struct hl_handle **handle,
                                 struct hl_error *error);

// In a child: attaches the elastic behind the line that its parent got from `hl_handle_line`; as
// `hl_region_attach_inherited`. Any thread.
//
// Errors: `HL_INVALID`, `HL_BAD_HANDLE`, `HL_TOO_MANY`, `HL_DAMAGED`, `HL_SYSTEM`; `*elastic` stays as it
// was.
hl_status hl_elastic_attach_inherited(const char *line,
                                      struct hl_elastic **elastic,
                                      struct hl_error *error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HUGELEAF_H */
