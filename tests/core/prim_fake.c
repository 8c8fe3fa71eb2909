#define _GNU_SOURCE
#include "prim_fake.h"
#include "core.h"
#include "machine.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct fake fake = { .start_node = -1, .unreadable = UINT64_MAX };

struct page {
    signed char node;   // index; -1 = not resident
    signed char cached; // index of the node it is cached on; -1 = it would be read in
    bool        stays;
};

struct range {
    char *           base;
    size_t           bytes, n_pages;
    int              node; // index
    enum prim_policy policy;
    struct page *    pages;
    struct range *   next;
};

struct thread {
    bool             living, bound;
    struct node_set  cpus;
    int              node; // OS number
    enum prim_policy policy;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct range * ranges;
static struct thread threads[4096];
static int n_threads;
static pthread_key_t at_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void lock(void) {
    pthread_mutex_lock(&mutex);
}

static void unlock(void) {
    pthread_mutex_unlock(&mutex);
}

static int at_of(int node) {
    return topology_find(&fake.topo, node);
}

// --- machine ---

void fake_machine(const char * text) {
    topology_free(&fake.topo);
    machine_parse(text, &fake.topo);
    for (int i = 0; i < fake.topo.n_nodes; i++) {
        fake.room[i] = fake.topo.nodes[i].avail_bytes;
    }
}

void fake_choose(int node) {
    struct numa_options * options = &numa_core.options;
    int start;
    char err[8];
    topology_free(&numa_core.topo);
    prim_topology(&numa_core.topo, &start, err, sizeof(err));
    *options = (struct numa_options) { .wish = WISH_NUMBER, .number = node, .weights = options->weights };
    numa_core.choice.node     = topology_find(&numa_core.topo, node);
    numa_core.choice.cpu_node = topology_nearest_cpus(&numa_core.topo, numa_core.choice.node);
    numa_core.choice.how      = "flag";
    numa_core.node            = node;
    numa_core.cpus            = numa_core.topo.nodes[numa_core.choice.cpu_node].cpus;
    numa_core.n_cores         = node_set_count(&numa_core.topo.nodes[numa_core.choice.cpu_node].cores);
    numa_core.memory_error    = fake.memory_error;
    numa_core.cpus_error      = fake.cpus_error;
    numa_core.available       = prim_available(node);
    numa_core.active          = true;
}

int prim_topology(struct topology * topo, int * start_node, char * err, size_t err_size) {
    *start_node = fake.start_node;
    memset(topo, 0, sizeof(*topo));
    if (fake.no_topology) {
        snprintf(err, err_size, "/nodes: cannot be read");
        return -1;
    }
    const size_t n = (size_t) fake.topo.n_nodes;
    *topo          = fake.topo;
    topo->nodes    = memcpy(calloc(n, sizeof(*topo->nodes)), fake.topo.nodes, n * sizeof(*topo->nodes));
    topo->distance = memcpy(calloc(n * n, sizeof(*topo->distance)), fake.topo.distance, n * n * sizeof(*topo->distance));
    return 0;
}

// Free, or file cache.
uint64_t prim_available(int node) {
    lock();
    const int at   = at_of(node);
    uint64_t bytes = at < 0 ? 0 : fake.room[at];
    for (const struct range * range = ranges; range; range = range->next) {
        for (size_t i = 0; i < range->n_pages; i++) {
            bytes += range->pages[i].cached == at ? FAKE_PAGE : 0;
        }
    }
    unlock();
    return at < 0 || fake.room_unknown ? 0 : bytes;
}

uint64_t prim_resident(void) {
    return fake.resident;
}

// --- threads ---

static void thread_ends(void * thread) {
    lock();
    ((struct thread *) thread)->living = false;
    unlock();
}

static void make_key(void) {
    pthread_key_create(&at_end, thread_ends);
}

static struct thread * self(void) {
    pthread_once(&once, make_key);
    struct thread * thread = pthread_getspecific(at_end);
    if (!thread) {
        lock();
        if (n_threads == (int) (sizeof(threads) / sizeof(threads[0]))) {
            abort();
        }
        thread  = &threads[n_threads++];
        *thread = (struct thread) { .living = true, .cpus = fake.topo.allowed_cpus, .node = -1 };
        unlock();
        pthread_setspecific(at_end, thread);
    }
    return thread;
}

int prim_bind_cpus(const struct node_set * cpus) {
    struct thread * thread = self();
    if (fake.cpus_error == 0) {
        lock();
        thread->cpus  = *cpus;
        thread->bound = true;
        unlock();
    }
    return fake.cpus_error;
}

int prim_bind_memory(int node, enum prim_policy policy) {
    struct thread * thread = self();
    if (fake.memory_error == 0) {
        thread->node   = node;
        thread->policy = policy;
    }
    return fake.memory_error;
}

int fake_memory_node(void) {
    return self()->node;
}

enum prim_policy fake_policy(void) {
    return self()->policy;
}

int64_t prim_thread_id(void) {
    return 1000 + (self() - threads);
}

int prim_thread_within(int64_t thread, const struct node_set * cpus) {
    lock();
    const struct thread * at = &threads[thread - 1000];
    const int within = !at->living ? -1 : node_set_within(&at->cpus, cpus) ? 1 : 0;
    unlock();
    return within;
}

struct parallel {
    void (*work)(void * context);
    void *         context;
    struct thread * parent;
};

static void * parallel_main(void * arg) {
    const struct parallel * job = arg;
    struct thread * thread = self();
    lock();
    *thread = *job->parent;
    unlock();
    job->work(job->context);
    return NULL;
}

void prim_parallel(int n, void (*work)(void * context), void * context) {
    pthread_t started[64];
    struct thread parent = *self();
    struct parallel job  = { work, context, &parent };
    if (n < 1 || n > 64) {
        abort();
    }
    fake.most_threads = n > fake.most_threads ? n : fake.most_threads;
    const int more = fake.alone ? 0 : n - 1;
    for (int i = 0; i < more; i++) {
        pthread_create(&started[i], NULL, parallel_main, &job);
    }
    work(context);
    for (int i = 0; i < more; i++) {
        pthread_join(started[i], NULL);
    }
}

void prim_sleep_ms(int ms) {
    (void) ms;
    fake.sleeps++;
    if (fake.on_sleep) {
        fake.on_sleep();
    }
}

double prim_now_ms(void) {
    static double now;
    return now += 1.5;
}

size_t prim_page_size(void) {
    return FAKE_PAGE;
}

// --- pages ---

static char * range_new(size_t bytes, int node, enum prim_policy policy) {
    const size_t n = (bytes + FAKE_PAGE - 1) / FAKE_PAGE;
    struct range * range = calloc(1, sizeof(*range));
    *range = (struct range) { .bytes = bytes, .n_pages = n, .node = node, .policy = policy };
    range->pages = calloc(n, sizeof(*range->pages));
    range->base = mmap(NULL, n * FAKE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range->base == MAP_FAILED) {
        abort();
    }
    for (size_t i = 0; i < n; i++) {
        range->pages[i] = (struct page) { -1, -1, false };
    }
    lock();
    range->next = ranges;
    ranges      = range;
    unlock();
    return range->base;
}

static void range_free(const void * base, size_t bytes) {
    lock();
    struct range ** at = &ranges;
    while (*at && (*at)->base != base) {
        at = &(*at)->next;
    }
    struct range * range = *at;
    if (range && (bytes == 0 || bytes == range->bytes)) {
        *at = range->next;
        for (size_t i = 0; i < range->n_pages; i++) {
            const int node = range->pages[i].cached >= 0 ? range->pages[i].cached : range->pages[i].node;
            if (node >= 0) {
                fake.room[node] += FAKE_PAGE;
            }
        }
        munmap(range->base, range->n_pages * FAKE_PAGE);
        free(range->pages);
        free(range);
    } else {
        fake.bad_frees++;
    }
    unlock();
}

int fake_ranges(void) {
    int n = 0;
    for (const struct range * range = ranges; range; range = range->next) {
        n++;
    }
    return n;
}

// Do something with each page that the bytes lie on, under the lock. n_most < all of them: that many, evenly spread.
static void each_page(const void * base, size_t bytes, uint64_t n_most, void (*what)(struct page *, struct range *, void *),
                      void * context) {
    const char * const first = (const char *) ((uintptr_t) base / FAKE_PAGE * FAKE_PAGE);
    const uint64_t total     = (uint64_t) ((const char *) base + bytes - first + FAKE_PAGE - 1) / FAKE_PAGE;
    const uint64_t n         = total < n_most ? total : n_most;
    lock();
    struct range * range = NULL;
    for (uint64_t i = 0; i < n; i++) {
        const char * at = first + total * i / n * FAKE_PAGE;
        if (!range || at < range->base || at >= range->base + range->n_pages * FAKE_PAGE) {
            for (range = ranges; range && (at < range->base || at >= range->base + range->n_pages * FAKE_PAGE);) {
                range = range->next;
            }
        }
        if (!range) {
            fprintf(stderr, "no page at %p: such a call would fault\n", (const void *) at);
            abort();
        }
        what(&range->pages[(size_t) (at - range->base) / FAKE_PAGE], range, context);
    }
    unlock();
}

// A page of the node, or (preferred) of any that has one.
static int take_page(int node, enum prim_policy policy) {
    if (node >= 0 && fake.room[node] >= FAKE_PAGE) {
        fake.room[node] -= FAKE_PAGE;
        return node;
    }
    if (node >= 0 && policy == PRIM_BIND) {
        fake.killed++;
        return -1;
    }
    for (int i = 0; i < fake.topo.n_nodes; i++) {
        if (fake.room[i] >= FAKE_PAGE) {
            fake.room[i] -= FAKE_PAGE;
            return i;
        }
    }
    return -1;
}

void * prim_alloc(size_t bytes, int node, enum prim_policy policy, int * placed) {
    *placed = fake.memory_error ? fake.memory_error : fake.placed_error;
    lock();
    *(policy == PRIM_BIND ? &fake.binds : &fake.prefers) += 1;
    unlock();
    const int at = fake.memory_error ? -1 : at_of(node);
    char * const base = fake.no_memory ? NULL : range_new(bytes, at, policy);
    if (base && fake.written) {
        fake_write(base, bytes);
    }
    return base;
}

void prim_free(void * base, size_t bytes) {
    range_free(base, bytes);
}

char * fake_map(size_t bytes) {
    return range_new(bytes, -1, PRIM_PREFERRED);
}

// A system whose mappings take a node: handle, section and view are one pointer.
void * prim_section(void * file, int node) {
    fake.section_node = node;
    return file;
}

void * prim_view(void * section, int node) {
    fake.view_node = node;
    return section;
}

void fake_unmap(char * base) {
    range_free(base, 0);
}

static void put_page(struct page * page, struct range * range, void * context) {
    const struct page * put = context;
    (void) range;
    fake.room[put->cached >= 0 ? put->cached : put->node] -= FAKE_PAGE;
    *page = *put;
}

void fake_cached(const char * base, size_t bytes, int node, bool stays) {
    struct page page = { -1, (signed char) at_of(node), stays };
    each_page(base, bytes, UINT64_MAX, put_page, &page);
}

void fake_put(const void * base, size_t bytes, int node) {
    struct page page = { (signed char) at_of(node), -1, false };
    each_page(base, bytes, UINT64_MAX, put_page, &page);
}

static void write_page(struct page * page, struct range * range, void * context) {
    (void) context;
    if (page->node < 0) {
        page->node = (signed char) take_page(range->node, range->policy);
    }
}

void fake_write(const void * base, size_t bytes) {
    each_page(base, bytes, UINT64_MAX, write_page, NULL);
}

struct count {
    int      node;
    uint64_t bytes;
};

static void count_page(struct page * page, struct range * range, void * context) {
    struct count * count = context;
    (void) range;
    count->bytes += page->node == count->node ? FAKE_PAGE : 0;
}

uint64_t fake_on(const void * base, size_t bytes, int node) {
    struct count count = { node < 0 ? -1 : at_of(node), 0 };
    each_page(base, bytes, UINT64_MAX, count_page, &count);
    return count.bytes;
}

static void touch_page(struct page * page, struct range * range, void * context) {
    const struct thread * thread = context;
    (void) range;
    if (page->node < 0 && page->cached < 0) {
        page->cached = (signed char) take_page(at_of(thread->node), thread->policy);
    }
    page->node = page->cached;
}

int prim_touch(const void * base, size_t bytes) {
    struct thread * thread = self();
    lock();
    fake.touches++;
    fake.unbound_touches += !thread->bound;
    *(thread->policy == PRIM_BIND ? &fake.binds : &fake.prefers) += 1;
    const int node = at_of(numa_core.node);
    fake.room[node] -= fake.room[node] < fake.others_take ? fake.room[node] : fake.others_take;
    fake.others_take = 0;
    unlock();
    if (fake.touch_error == 0) {
        each_page(base, bytes, UINT64_MAX, touch_page, thread);
    }
    return fake.touch_error;
}

static void move_page(struct page * page, struct range * range, void * context) {
    const int node = *(int *) context;
    (void) range;
    if (page->node >= 0 && page->node != node && !page->stays && fake.room[node] >= FAKE_PAGE) {
        fake.room[node] -= FAKE_PAGE;
        fake.room[(int) page->node] += FAKE_PAGE;
        page->node = page->cached = (signed char) node;
    }
}

bool prim_binds(void) {
    return !fake.prefers_only;
}

int prim_move(void * base, size_t bytes, int node) {
    int at = at_of(node);
    lock();
    fake.moves++;
    unlock();
    if (fake.on_move) {
        fake.on_move();
    }
    if (fake.move_error == 0) {
        each_page(base, bytes, UINT64_MAX, move_page, &at);
    }
    return fake.move_error;
}

struct look {
    int                     node;
    struct prim_residency * out;
};

static void look_page(struct page * page, struct range * range, void * context) {
    const struct look * look = context;
    (void) range;
    look->out->checked++;
    look->out->large += fake.large && page->node >= 0;
    *(page->node < 0 ? &look->out->not_resident : page->node == look->node ? &look->out->on_node : &look->out->elsewhere) += 1;
}

int prim_look(const void * base, size_t bytes, int node, uint64_t most, struct prim_residency * out, bool * coarse) {
    struct look look = { at_of(node), out };
    fake.looks++;
    *coarse |= fake.coarse;
    if (fake.look_error != 0 && (!fake.unseen || fake.unseen == base)) {
        return fake.look_error;
    }
    each_page(base, bytes, fake.coarse ? UINT64_MAX : most, look_page, &look);
    return 0;
}

// --- files ---

struct prim_reader {
    int file;
};

char fake_byte(uint64_t offset) {
    return (char) ((offset * UINT64_C(0x9e3779b97f4a7c15)) >> 56);
}

struct prim_reader * prim_reader_open(int file) {
    struct prim_reader * reader = fake.no_reader ? NULL : malloc(sizeof(*reader));
    if (reader) {
        reader->file = file;
        fake.open_readers++;
    }
    return reader;
}

int prim_reader_read(struct prim_reader * reader, uint64_t offset, void * to, size_t bytes) {
    (void) reader;
    lock();
    fake.reads++;
    fake.most_read = bytes > fake.most_read ? bytes : fake.most_read;
    unlock();
    if (offset + bytes > fake.unreadable) {
        return -EIO;
    }
    for (size_t i = 0; i < bytes; i++) {
        ((char *) to)[i] = fake_byte(offset + i);
    }
    return 0;
}

void prim_reader_close(struct prim_reader * reader) {
    free(reader);
    fake.open_readers--;
}

void prim_set_env(const char * name, const char * value) {
    setenv(name, value, 1);
}

FILE * prim_create(const char * name) {
    return fopen(name, "w");
}

FILE * prim_open(const char * name) {
    struct stat info;
    return stat(name, &info) == 0 && S_ISREG(info.st_mode) ? fopen(name, "r") : NULL;
}
