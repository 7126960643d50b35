/* Random calls on parts of memory, compared with a model that knows of every page what must be in it:
 * mmap (also over parts of earlier mappings), munmap, mremap in every way, mprotect, madvise, brk,
 * fork. Ends with the seed and the step where something is not as the model has it.
 *
 * usage: model SEED STEPS THREADS FILE */
#include "check.h"

#include <pthread.h>
#include <sys/uio.h>

/* What a page must hold. */
enum state {
    GONE,   /* nothing is mapped there */
    KNOWN,  /* `value`; 0 for a page that nobody has written to */
    FREED,  /* `value`, or zeroes: MADV_FREE */
};
enum kind { PRIVATE, SHARED, OF_FILE, BREAK };

struct page {
    struct page *next;
    uintptr_t at;
    uint64_t value;
    uint64_t in_file; /* what the file holds, where the page is one of a file */
    unsigned mapping; /* pages of one mmap(2) that nothing has cut since share it */
    unsigned char state, kind, rights;
};

struct span {
    uintptr_t start;
    size_t pages;
};

enum { BUCKETS = 1 << 14, PAGES = 60000, SPANS = 200, FILE_PAGES = 64 };

struct model {
    struct page *bucket[BUCKETS];
    struct page page[PAGES];
    struct page *free;
    size_t live;
    struct span span[SPANS];
    size_t spans;
    uint64_t random, value;
    unsigned mappings;
    uintptr_t break_start, break_end; /* zero: another thread has the break */
    int file, pipe[2];
    int alone;
    unsigned long step, steps, seed;
};

static size_t page, huge;
static __thread struct model *m;

#define HOLDS(what)                                                                              \
    do {                                                                                         \
        if (!(what)) {                                                                           \
            char holds_text[200];                                                                \
            snprintf(holds_text, sizeof holds_text, "seed %lu step %lu: %s", m->seed, m->step,   \
                     #what);                                                                     \
            check_failed(__FILE__, __LINE__, holds_text);                                        \
        }                                                                                        \
    } while (0)

static struct page **place(uintptr_t at)
{
    struct page **p = &m->bucket[(at / page * 2654435761u >> 8) % BUCKETS];
    while (*p && (*p)->at != at)
        p = &(*p)->next;
    return p;
}

static struct page *look(uintptr_t at)
{
    return *place(at);
}

static struct page *add(uintptr_t at)
{
    struct page **p = place(at);
    /* An address that is in use is never handed out a second time. */
    HOLDS(!*p);
    struct page *new = m->free;
    HOLDS(new);
    m->free = new->next;
    *new = (struct page){ .at = at, .state = KNOWN, .rights = PROT_READ | PROT_WRITE };
    *p = new;
    m->live++;
    return new;
}

static void drop(uintptr_t at)
{
    struct page **p = place(at), *old = *p;
    if (!old)
        return;
    *p = old->next;
    old->next = m->free;
    m->free = old;
    m->live--;
}

/* A value lies in three words of a page, so that half a page cannot pass for a whole one. */
static void put(uintptr_t at, uint64_t value)
{
    volatile uint64_t *word = (uint64_t *)at;
    size_t last = page / 8 - 1;
    word[0] = value;
    word[value % (last - 1) + 1] = value * 3;
    word[last] = ~value;
}

static int has(uintptr_t at, uint64_t value)
{
    volatile uint64_t *word = (uint64_t *)at;
    size_t last = page / 8 - 1;
    if (value == 0)
        return word[0] == 0 && word[last] == 0 && word[last / 2] == 0;
    return word[0] == value && word[value % (last - 1) + 1] == value * 3 && word[last] == ~value;
}

static void check_page(struct page *p)
{
    if (!(p->rights & PROT_READ))
        return;
    if (p->state == FREED) {
        HOLDS(has(p->at, p->value) || has(p->at, 0));
        return;
    }
    HOLDS(has(p->at, p->value));
}

static void add_span(uintptr_t start, size_t pages)
{
    HOLDS(m->spans < SPANS);
    m->span[m->spans++] = (struct span){ start, pages };
}

/* Whether the kernel lets the byte be read: asked of a system call, so that nobody is killed. */
static int can_read(uintptr_t at)
{
    char byte;
    ssize_t wrote = write(m->pipe[1], (void *)at, 1);
    if (wrote == 1)
        HOLDS(read(m->pipe[0], &byte, 1) == 1);
    else
        HOLDS(errno == EFAULT);
    return wrote == 1;
}

/* A part of a span that is still mapped from its first page to its last; 0 pages where there is none. */
static struct span part(size_t most)
{
    size_t held = (m->break_end - m->break_start) / page, choice = below(&m->random, m->spans + 1);
    struct span s = { m->break_start, held };
    if (choice < m->spans)
        s = m->span[choice];
    if (s.pages == 0)
        return s;
    size_t from = below(&m->random, 3) ? below(&m->random, s.pages) : 0;
    size_t pages = 1 + below(&m->random, below(&m->random, 4) ? 32 : s.pages);
    if (pages > s.pages - from)
        pages = s.pages - from;
    if (pages > most)
        pages = most;
    struct span found = { s.start + from * page, 0 };
    while (found.pages < pages && look(found.start + found.pages * page))
        found.pages++;
    return found;
}

#define EACH(p, s)                                                                               \
    for (uintptr_t each_at = (s).start; each_at < (s).start + (s).pages * page; each_at += page) \
        for (struct page *p = look(each_at); p; p = NULL)

/* Whether there is something, and all of it of these kinds. */
static int all_are(struct span s, unsigned kinds)
{
    size_t pages = 0;
    EACH(p, s)
    {
        if (!(kinds & 1u << p->kind))
            return 0;
        pages++;
    }
    return pages > 0 && pages == s.pages;
}

static size_t draw_pages(void)
{
    size_t dice = below(&m->random, 20);
    if (dice == 0)
        return huge / page + below(&m->random, 2 * huge / page);
    if (dice < 4)
        return 1 + below(&m->random, huge / page);
    return 1 + below(&m->random, 64);
}

static void register_new(uintptr_t at, size_t pages, enum kind kind, int rights)
{
    m->mappings++;
    for (size_t i = 0; i < pages; i++) {
        struct page *new = add(at + i * page);
        new->kind = (unsigned char)kind;
        new->rights = (unsigned char)rights;
        new->mapping = m->mappings;
        if (kind == OF_FILE)
            new->value = new->in_file = i + 1;
    }
}

/* What lies behind a place that was cut is no longer one mapping with what lies before it. */
static void cut(struct span s)
{
    uintptr_t at = s.start + s.pages * page;
    struct page *p = look(at);
    unsigned old = p ? p->mapping : 0, new = ++m->mappings;
    for (; (p = look(at)) && p->mapping == old; at += page)
        p->mapping = new;
}

/* Cut out, pages that belonged together still do. */
static void cut_out(struct span s)
{
    unsigned old = 0;
    cut(s);
    EACH(p, s)
    {
        if (p->mapping != old)
            m->mappings++;
        old = p->mapping;
        p->mapping = m->mappings;
    }
}

static void do_map(void)
{
    if (m->spans > SPANS - 8 || m->live > PAGES - 6 * huge / page)
        return;
    size_t pages = draw_pages();
    int flags = MAP_ANONYMOUS, shared = below(&m->random, 8) == 0;
    flags |= shared ? MAP_SHARED : MAP_PRIVATE;
    if (below(&m->random, 6) == 0)
        flags |= MAP_NORESERVE;
    if (below(&m->random, 10) == 0)
        flags |= MAP_POPULATE;
    if (below(&m->random, 20) == 0)
        flags |= MAP_STACK;
    int rights = below(&m->random, 8) ? PROT_READ | PROT_WRITE : PROT_NONE;
    void *hint = below(&m->random, 10) || m->spans == 0
                     ? NULL
                     : (void *)m->span[below(&m->random, m->spans)].start;
    /* A length need not be whole pages. */
    void *at = mmap(hint, pages * page - below(&m->random, page), rights, flags, -1, 0);
    HOLDS(at != MAP_FAILED);
    register_new((uintptr_t)at, pages, shared ? SHARED : PRIVATE, rights);
    add_span((uintptr_t)at, pages);
}

/* MAP_FIXED over a part: what was there is gone, what is around it stays. */
static void do_map_over(void)
{
    struct span s = part(FILE_PAGES);
    if (!all_are(s, 1 << PRIVATE | 1 << SHARED | 1 << OF_FILE))
        return;
    cut(s);
    int of_file = below(&m->random, 3) == 0;
    void *at = of_file ? mmap((void *)s.start, s.pages * page, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_FIXED, m->file, 0)
                       : mmap((void *)s.start, s.pages * page, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0);
    HOLDS(at == (void *)s.start);
    for (size_t i = 0; i < s.pages; i++)
        drop(s.start + i * page);
    register_new(s.start, s.pages, of_file ? OF_FILE : PRIVATE, PROT_READ | PROT_WRITE);
    /* MAP_FIXED_NOREPLACE leaves it alone. */
    at = mmap((void *)s.start, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    HOLDS(at == MAP_FAILED && errno == EEXIST);
}

static void do_write(void)
{
    struct span s = part(512);
    EACH(p, s)
    {
        if (!(p->rights & PROT_WRITE))
            continue;
        if (p->rights & PROT_READ)
            check_page(p);
        p->value = ++m->value;
        p->state = KNOWN;
        put(p->at, p->value);
    }
}

static void do_check(void)
{
    struct span s = part(2048);
    EACH(p, s)
    {
        check_page(p);
    }
    if (s.pages > 0)
        HOLDS(can_read(s.start) == !!(look(s.start)->rights & PROT_READ));
}

static void unmap(struct span s)
{
    cut(s);
    HOLDS(munmap((void *)s.start, s.pages * page - below(&m->random, page)) == 0);
    for (size_t i = 0; i < s.pages; i++)
        drop(s.start + i * page);
    if (m->alone) {
        HOLDS(!can_read(s.start));
        HOLDS(!can_read(s.start + s.pages * page - 1));
    }
}

static void do_unmap(void)
{
    struct span s = part(600);
    if (all_are(s, 1 << PRIVATE | 1 << SHARED | 1 << OF_FILE))
        unmap(s);
}

/* All that is left of a mapping goes, range by range. */
static void do_unmap_whole(void)
{
    size_t which = below(&m->random, m->spans);
    struct span s = m->span[which], piece = { 0, 0 };
    m->span[which] = m->span[--m->spans];
    for (size_t i = 0; i <= s.pages; i++) {
        uintptr_t at = s.start + i * page;
        if (i < s.pages && look(at)) {
            if (piece.pages++ == 0)
                piece.start = at;
        } else if (piece.pages > 0) {
            unmap(piece);
            piece.pages = 0;
        }
    }
}

static void do_protect(void)
{
    struct span s = part(600);
    if (s.pages == 0)
        return;
    static const int choices[] = { PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE };
    int rights = choices[below(&m->random, 4)];
    cut_out(s);
    HOLDS(mprotect((void *)s.start, s.pages * page, rights) == 0);
    EACH(p, s)
    {
        p->rights = (unsigned char)rights;
    }
}

static void do_advise(void)
{
    static const int hints[] = { MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_WILLNEED, MADV_COLD,
                                 MADV_POPULATE_READ, 25 /* MADV_COLLAPSE */ };
    struct span s = part(700);
    if (s.pages == 0)
        return;
    size_t way = below(&m->random, 8);
    if (way < 3) {
        HOLDS(madvise((void *)s.start, s.pages * page, MADV_DONTNEED) == 0);
        EACH(p, s)
        {
            if (p->kind == SHARED)
                continue;
            p->value = p->kind == OF_FILE ? p->in_file : 0;
            p->state = KNOWN;
        }
    } else if (way < 5 && all_are(s, 1 << PRIVATE | 1 << BREAK)) {
        HOLDS(madvise((void *)s.start, s.pages * page, MADV_FREE) == 0);
        EACH(p, s)
        {
            p->state = FREED;
        }
    } else {
        /* Moves pages at most; what it answers is the kernel's business. The first two are remembered
         * with the range, which is cut by that. */
        cut_out(s);
        madvise((void *)s.start, s.pages * page, hints[below(&m->random, 6)]);
    }
}

static struct page saved[PAGES];
static pthread_mutex_t saving = PTHREAD_MUTEX_INITIALIZER;

/* The pages of `from` lie at `to` now; behind them are new ones of zeroes. */
static void moved(struct span from, uintptr_t to, size_t pages, int keep)
{
    size_t kept = from.pages < pages ? from.pages : pages;
    pthread_mutex_lock(&saving);
    for (size_t i = 0; i < from.pages; i++) {
        struct page *p = look(from.start + i * page);
        saved[i] = *p;
        if (!keep) {
            drop(p->at);
        } else {
            p->value = 0;
            p->state = KNOWN;
        }
    }
    m->mappings++;
    for (size_t i = 0; i < pages; i++) {
        struct page *new = add(to + i * page);
        if (i < kept) {
            new->value = saved[i].value;
            new->state = saved[i].state;
        }
        new->kind = saved[0].kind;
        new->rights = saved[0].rights;
        new->mapping = m->mappings;
    }
    pthread_mutex_unlock(&saving);
}

/* A whole mapping that nothing has cut, private; 0 pages where the dice found none. */
static struct span uncut(void)
{
    struct span s = part(PAGES);
    if (!all_are(s, 1 << PRIVATE))
        return (struct span){ 0, 0 };
    struct page *first = look(s.start), *p;
    struct span whole = { s.start, 0 };
    for (uintptr_t at = s.start - page; (p = look(at)) && p->mapping == first->mapping; at -= page)
        whole.start = at;
    for (uintptr_t at = whole.start; (p = look(at)) && p->mapping == first->mapping; at += page)
        whole.pages++;
    return whole.pages < PAGES / 8 ? whole : (struct span){ 0, 0 };
}

static void do_remap(void)
{
    struct span s = uncut();
    if (s.pages == 0 || m->spans > SPANS - 8 || m->live > PAGES - 16 * huge / page)
        return;
    size_t pages = below(&m->random, 2) ? s.pages + draw_pages() : 1 + below(&m->random, s.pages);
    size_t way = below(&m->random, 4);
    if (way == 0) { /* In its place, or not at all. */
        void *at = mremap((void *)s.start, s.pages * page, pages * page, 0);
        HOLDS(at == (void *)s.start || (at == MAP_FAILED && pages > s.pages && errno == ENOMEM));
        if (at != MAP_FAILED)
            moved(s, s.start, pages, 0);
    } else if (way < 3) { /* Wherever: then it can be done. */
        void *at = mremap((void *)s.start, s.pages * page, pages * page, MREMAP_MAYMOVE);
        HOLDS(at != MAP_FAILED);
        moved(s, (uintptr_t)at, pages, 0);
        add_span((uintptr_t)at, pages);
        return;
    } else { /* To an address that is chosen, over what is there. */
        int keep = below(&m->random, 3) == 0;
        size_t size = keep ? s.pages : pages;
        void *to = mmap(NULL, size * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        HOLDS(to != MAP_FAILED);
        int flags = MREMAP_MAYMOVE | MREMAP_FIXED | (keep ? MREMAP_DONTUNMAP : 0);
        void *at = mremap((void *)s.start, s.pages * page, size * page, flags, to);
        HOLDS(at == to);
        moved(s, (uintptr_t)at, size, keep);
        add_span((uintptr_t)at, size);
        return;
    }
    if (look(s.start))
        add_span(s.start, pages);
}

static void do_break(void)
{
    if (!m->break_start)
        return;
    size_t by = page * (1 + below(&m->random, below(&m->random, 10) ? 40 : huge / page * 2));
    size_t held = m->break_end - m->break_start;
    if (held < 8 * huge && m->live < PAGES - 6 * huge / page && below(&m->random, 5) < 3) {
        HOLDS((uintptr_t)sbrk((intptr_t)by) == m->break_end);
        for (uintptr_t at = m->break_end; at < m->break_end + by; at += page)
            add(at)->kind = BREAK;
        m->break_end += by;
    } else if (by <= held) {
        HOLDS((uintptr_t)sbrk(-(intptr_t)by) == m->break_end);
        for (uintptr_t at = m->break_end - by; at < m->break_end; at += page)
            drop(at);
        m->break_end -= by;
    }
}

static void check_all(void)
{
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct page *p = m->bucket[i]; p; p = p->next)
            check_page(p);
}

/* What a child writes to shared memory its parent would find. */
static void leave_shared(void)
{
    for (size_t i = 0; i < m->spans; i++)
        for (size_t n = 0; n < m->span[i].pages; n++) {
            struct span one = { m->span[i].start + n * page, 1 };
            if (all_are(one, 1 << SHARED))
                unmap(one);
        }
}

static void one_step(void);

/* A child has all of it, and goes on by itself with what came to it. */
static void do_fork(void)
{
    /* A child that comes of another thread's middle of `moved` would wait for ever. */
    pthread_mutex_lock(&saving);
    pid_t pid = fork();
    pthread_mutex_unlock(&saving);
    HOLDS(pid >= 0);
    if (pid == 0) {
        m->alone = 1;
        check_all();
        leave_shared();
        /* One step on: this one would fork again. */
        m->step++;
        for (int i = 0; i < 500; i++)
            one_step();
        check_all();
        _exit(0);
    }
    int status;
    HOLDS(waitpid(pid, &status, 0) == pid);
    HOLDS(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* What the program has had on huge pages at most: without any, nothing was tried. */
static size_t most_large;

static void note_large(void)
{
    size_t large = (size_t)number_in("/proc/self/smaps_rollup", "AnonHugePages:") * 1024;
    if (large > most_large)
        most_large = large;
}

static void one_step(void)
{
    size_t dice = below(&m->random, 1000);
    if (dice < 180)
        do_map();
    else if (dice < 240)
        do_map_over();
    else if (dice < 500)
        do_write();
    else if (dice < 620)
        do_check();
    else if (dice < 740)
        do_unmap();
    else if (dice < 800)
        do_protect();
    else if (dice < 880)
        do_advise();
    else if (dice < 950)
        do_remap();
    else
        do_break();
    while (m->spans > SPANS - 16 || (m->spans > 0 && m->live > PAGES - 16 * huge / page))
        do_unmap_whole();
    if (m->step % 20000 == 19999)
        do_fork();
    if (m->step % 2000 == 1999)
        note_large();
}

static void *run_model(void *of)
{
    m = of;
    HOLDS(pipe(m->pipe) == 0);
    for (size_t i = 0; i < PAGES; i++) {
        m->page[i].next = m->free;
        m->free = &m->page[i];
    }
    for (m->step = 0; m->step < m->steps; m->step++)
        one_step();
    check_all();
    return NULL;
}

static int make_file(const char *path)
{
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    MUST(file >= 0);
    unsigned char *text = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(text != MAP_FAILED);
    for (size_t i = 0; i < FILE_PAGES; i++) {
        memset(text, 0, page);
        put((uintptr_t)text, i + 1);
        MUST(pwrite(file, text, page, (off_t)(i * page)) == (ssize_t)page);
    }
    munmap(text, page);
    return file;
}

int main(int count, char **words)
{
    MUST(count == 5);
    page = page_size();
    huge = huge_size();
    size_t threads = strtoul(words[3], NULL, 10);
    static struct model models[4];
    pthread_t thread[4];
    MUST(threads >= 1 && threads <= 4);
    int file = make_file(words[4]);
    for (size_t i = 0; i < threads; i++) {
        models[i].seed = strtoul(words[1], NULL, 10) + i;
        models[i].random = models[i].seed;
        models[i].steps = strtoul(words[2], NULL, 10) / threads;
        models[i].file = file;
        models[i].alone = threads == 1;
        /* Values of file pages are small numbers; those of others begin above them. */
        models[i].value = 1000 + (i << 40);
    }
    /* Threads take from malloc, which takes from the break: it is the model's when it is alone. */
    if (threads == 1) {
        uintptr_t at = (uintptr_t)sbrk(0);
        MUST(sbrk((intptr_t)(page - at % page)) != (void *)-1);
        models[0].break_start = models[0].break_end = (uintptr_t)sbrk(0);
        run_model(&models[0]);
    } else {
        for (size_t i = 0; i < threads; i++)
            MUST(pthread_create(&thread[i], NULL, run_model, &models[i]) == 0);
        for (size_t i = 0; i < threads; i++)
            MUST(pthread_join(thread[i], NULL) == 0);
    }
    if (getenv("COMPAT_LARGE"))
        MUST(most_large >= 4 * huge);
    SAY("as the model has it\n");
    return 0;
}
