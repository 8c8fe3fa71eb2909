#define _GNU_SOURCE
#include "selftest_fake.h"
#include "prim_fake.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_selftest fake_selftest = { .cache_told = true, .faults_told = true };

static _Thread_local int thread_cpu = -1;
static int64_t hard_faults;

void selftest_system(char * system, size_t system_size, char * cpu, size_t cpu_size) {
    snprintf(system, system_size, "Fake 1.0");
    snprintf(cpu, cpu_size, "made up");
}

uint64_t selftest_cache(const struct node_set * cpus) {
    return node_set_empty(cpus) ? 0 : fake_selftest.cache;
}

// --- threads ---

struct member {
    pthread_t              thread;
    struct selftest_crew * crew;
    int                    cpu;
};

struct selftest_crew {
    void (*work)(void * context);
    void *        context;
    int           n;
    struct member members[256];
};

static void * member_main(void * arg) {
    struct member * member = arg;
    struct node_set only   = { { 0 } };
    node_set_add(&only, member->cpu);
    prim_bind_cpus(&only);
    thread_cpu = member->cpu;
    member->crew->work(member->crew->context);
    return NULL;
}

struct selftest_crew * selftest_crew_start(const struct node_set * cpus, int threads, void (*work)(void * context), void * context) {
    struct selftest_crew * crew = calloc(1, sizeof(*crew));
    crew->work    = work;
    crew->context = context;
    for (int cpu = -1; crew->n < threads; crew->n++) {
        struct member * member = &crew->members[crew->n];
        cpu = node_set_next(cpus, cpu + 1);
        cpu = cpu < 0 ? node_set_next(cpus, 0) : cpu;
        *member = (struct member) { .crew = crew, .cpu = cpu };
        pthread_create(&member->thread, NULL, member_main, member);
    }
    return crew;
}

int selftest_crew_join(struct selftest_crew * crew) {
    const int n = crew->n;
    for (int i = 0; i < n; i++) {
        pthread_join(crew->members[i].thread, NULL);
    }
    free(crew);
    return fake_selftest.loose ? n - 1 : n;
}

double selftest_cpu_ms(void) {
    static double ms;
    return ms += fake_selftest.cpu_ms;
}

int64_t selftest_hard_faults(void) {
    return fake_selftest.faults_told ? hard_faults : -1;
}

// --- a file: which node each of its pages is cached on ---

struct selftest_file {
    size_t n_pages;
    int *  cached; // OS numbers, -1 = not cached
};

static struct selftest_file * file_new(size_t bytes) {
    struct selftest_file * file = calloc(1, sizeof(*file));
    file->n_pages = bytes / FAKE_PAGE;
    file->cached  = calloc(file->n_pages, sizeof(*file->cached));
    for (size_t i = 0; i < file->n_pages; i++) {
        file->cached[i] = fake.topo.nodes[0].id; // somebody has just written it
    }
    fake_selftest.files++;
    return file;
}

struct selftest_file * selftest_file_open(const char * path, size_t most, char * why, size_t why_size) {
    (void) most;
    snprintf(why, why_size, "it is not there");
    return fake_selftest.no_model ? NULL : file_new(strtoull(path, NULL, 10) < most ? strtoull(path, NULL, 10) : most);
}

struct selftest_file * selftest_file_temporary(size_t bytes, char * why, size_t why_size) {
    snprintf(why, why_size, "the disk is full");
    return fake_selftest.no_temporary ? NULL : file_new(bytes);
}

void selftest_file_close(struct selftest_file * file) {
    fake_selftest.files--;
    free(file->cached);
    free(file);
}

size_t selftest_file_bytes(const struct selftest_file * file) {
    return file->n_pages * FAKE_PAGE;
}

// Bring in what is not cached: half to the node, half elsewhere with `between`.
static void bring(struct selftest_file * file, int node, int between) {
    for (size_t i = 0; i < file->n_pages; i++) {
        if (file->cached[i] < 0) {
            hard_faults += i % 16 == 0;
            file->cached[i] = i % 2 ? node : between;
        }
    }
}

static void drop(struct selftest_file * file) {
    for (size_t i = 0; i < file->n_pages; i++) {
        file->cached[i] = -1;
    }
}

int selftest_file_cool(struct selftest_file * file) {
    fake_selftest.colds++;
    if (!fake_selftest.hot) {
        drop(file);
    }
    if (fake_selftest.scanned) {
        bring(file, fake.topo.nodes[0].id, fake.topo.nodes[0].id);
    }
    return fake_selftest.hot ? -EBUSY : 0;
}

int64_t selftest_file_cached(const struct selftest_file * file) {
    int64_t n = 0;
    for (size_t i = 0; i < file->n_pages; i++) {
        n += file->cached[i] >= 0;
    }
    return fake_selftest.cache_told ? n : -1;
}

static int node_of_thread(void) {
    for (int i = 0; i < fake.topo.n_nodes; i++) {
        if (node_set_has(&fake.topo.nodes[i].cpus, thread_cpu)) {
            return fake.topo.nodes[i].id;
        }
    }
    return -1;
}

static int node_asked(void) {
    return fake_memory_node() >= 0 ? fake_memory_node() : node_of_thread();
}

int selftest_file_read(struct selftest_file * file) {
    bring(file, node_asked(), fake_selftest.read_ahead ? fake.topo.nodes[0].id : node_asked());
    return fake_selftest.unreadable ? -EIO : 0;
}

int selftest_file_unbuffered(struct selftest_file * file, bool alone) {
    if (alone && fake_selftest.no_alone) {
        return -ENOSYS;
    }
    if (alone ? fake_selftest.drops_alone : fake_selftest.drops) {
        drop(file);
    }
    return fake_selftest.unbuffered_error;
}

// --- views: ranges of prim_fake that know which file they are of ---

static struct view {
    struct selftest_file * file;
    char *                 base;
} view;

const void * selftest_file_map(struct selftest_file * file, int node) {
    (void) node;
    if (view.base) {
        abort(); // one at a time
    }
    fake_selftest.views++;
    view = (struct view) { file, fake_map(file->n_pages * FAKE_PAGE) };
    return view.base;
}

void selftest_file_unmap(struct selftest_file * file, const void * base) {
    if (file != view.file || base != view.base) {
        abort();
    }
    for (size_t i = 0; i < file->n_pages; i++) { // what prim_move may have moved
        for (int k = 0; k < fake.topo.n_nodes; k++) {
            if (fake_on(view.base + i * FAKE_PAGE, FAKE_PAGE, fake.topo.nodes[k].id) > 0) {
                file->cached[i] = fake.topo.nodes[k].id;
            }
        }
    }
    fake_unmap(view.base);
    view = (struct view) { 0 };
    fake_selftest.views--;
}

const char * selftest_way_name(int way) {
    return way == 0 ? "prefetching" : way == 1 ? "touching" : NULL;
}

static int prefetch(struct selftest_file * file) {
    const int asked = node_asked(), thread = node_of_thread();
    switch (fake_selftest.prefetched) {
        case FAKE_ASKED:     bring(file, asked, asked); break;
        case FAKE_OF_THREAD: bring(file, thread, thread); break;
        case FAKE_HALF:      bring(file, asked, thread); break;
        case FAKE_LATER:
        case FAKE_NOWHERE:   break;
    }
    return fake_selftest.no_way ? -ENOSYS : 0;
}

int selftest_way(int way, const void * base, size_t bytes) {
    struct selftest_file * file = view.file;
    if (base != view.base || bytes != file->n_pages * FAKE_PAGE) {
        abort();
    }
    if (way == 0) {
        return prefetch(file);
    }
    if (fake_selftest.prefetched == FAKE_NOWHERE && file->cached[0] < 0) {
        return 0; // nothing becomes resident
    }
    bring(file, node_asked(), node_asked());
    for (size_t i = 0; i < file->n_pages; i++) {
        file->cached[i] = fake_selftest.moves ? node_asked() : file->cached[i];
        fake_put(view.base + i * FAKE_PAGE, FAKE_PAGE, file->cached[i]);
    }
    return 0;
}

// --- the rest ---

void selftest_cpu_sets(const struct topology * topo, struct selftest_cpu_sets * out) {
    (void) topo;
    *out = fake_selftest.sets;
}

bool selftest_large(int kind, int node, struct selftest_large * out) {
    *out      = fake_selftest.large;
    out->node = node;
    out->kind = "large";
    return kind == 0;
}
