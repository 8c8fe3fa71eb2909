// Question 1: how fast threads on one node read memory that lies on another.
#include "core.h"
#include "selftest.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define CHUNK     ((size_t) 1 << 20)
#define LEAST     ((uint64_t) 10 << 20)  // bytes that are worth it
#define USUAL     ((uint64_t) 256 << 20)
#define MOST      ((uint64_t) 1 << 30)
#define LOOK_MOST 65536                  // pages

enum { PASSES = 5, THREADS_MOST = 256 };
#define PASS_MS  100    // of a machine with few nodes
#define PASS_MIN 20
#define ALL_MS   20000.0

// Memory that several threads read round and round, a chunk at a time, so that none of them waits for a slow one.
struct sweep {
    char *           base;
    size_t           chunks;
    _Atomic uint64_t next, done; // chunks
    atomic_bool      stop;
    _Atomic uint64_t sum;        // so that reading is not left out
};

static uint64_t sum_of(const char * chunk) {
    const uint64_t * word = (const uint64_t *) (const void *) chunk;
    uint64_t sum[8] = { 0 };
    for (size_t i = 0; i < CHUNK / sizeof(*word); i += 8) {
        for (int k = 0; k < 8; k++) {
            sum[k] += word[i + (size_t) k];
        }
    }
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

static void read_on(void * context) {
    struct sweep * sweep = context;
    uint64_t sum = 0;
    while (!atomic_load_explicit(&sweep->stop, memory_order_relaxed)) {
        const uint64_t turn = atomic_fetch_add_explicit(&sweep->next, 1, memory_order_relaxed);
        sum += sum_of(sweep->base + turn % sweep->chunks * CHUNK);
        atomic_fetch_add_explicit(&sweep->done, 1, memory_order_relaxed);
    }
    atomic_fetch_add(&sweep->sum, sum);
}

static void fill(void * context) {
    struct sweep * sweep = context;
    for (uint64_t turn; (turn = atomic_fetch_add(&sweep->next, 1)) < sweep->chunks;) {
        memset(sweep->base + turn * CHUNK, (int) (turn % 251) + 1, CHUNK);
    }
}

// The best of a few passes, in GB/s, and what the threads had of their CPUs' time in all of them: clocks of CPU time are
// coarse.
static void keep_best(struct selftest_cell * cell, struct sweep * sweep, int pass_ms) {
    prim_sleep_ms(pass_ms / 2); // until all threads run and the clocks are up
    const double start = prim_now_ms(), cpu = selftest_cpu_ms();
    for (int i = 0; i < PASSES; i++) {
        const double begin    = prim_now_ms();
        const uint64_t before = atomic_load(&sweep->done);
        prim_sleep_ms(pass_ms);
        const uint64_t chunks = atomic_load(&sweep->done) - before;
        const double rate     = (double) chunks * (double) CHUNK / 1e6 / (prim_now_ms() - begin);
        cell->gb_per_s        = rate > cell->gb_per_s ? rate : cell->gb_per_s;
    }
    cell->busy = (selftest_cpu_ms() - cpu) / (prim_now_ms() - start) / cell->threads;
}

static void measure(struct selftest * test, struct selftest_cell * cell, struct sweep * sweep, int pass_ms) {
    const struct node_set cores = selftest_cores(test->topo, cell->threads_on);
    const int n   = node_set_count(&cores);
    cell->threads = n < THREADS_MOST ? n : THREADS_MOST;
    if (cell->threads == 0) {
        snprintf(cell->reason, sizeof(cell->reason), "node %d has no CPUs that this process may use", test->topo->nodes[cell->threads_on].id);
        return;
    }
    selftest_progress("bandwidth: threads on node %d, memory on node %d", test->topo->nodes[cell->threads_on].id,
                      test->topo->nodes[cell->memory_on].id);
    cell->cache_bytes = selftest_cache(&test->topo->nodes[cell->threads_on].cpus);
    atomic_store(&sweep->next, 0);
    atomic_store(&sweep->stop, false);
    struct selftest_crew * crew = selftest_crew_start(&cores, cell->threads, read_on, sweep);
    if (crew) {
        keep_best(cell, sweep, pass_ms);
    }
    atomic_store(&sweep->stop, true);
    const int bound = crew ? selftest_crew_join(crew) : 0;
    if (bound < cell->threads) {
        cell->gb_per_s = 0;
        snprintf(cell->reason, sizeof(cell->reason), "%d of %d threads could not be kept on a core of node %d", cell->threads - bound,
                 cell->threads, test->topo->nodes[cell->threads_on].id);
    } else if (cell->gb_per_s <= 0) {
        snprintf(cell->reason, sizeof(cell->reason), "no chunk of %zu MiB was read in a pass of %d ms", CHUNK >> 20, pass_ms);
    }
}

// Bytes to take of a node: more than all caches hold, but never what others may need.
static uint64_t size_for(const struct topology * topo, int node) {
    uint64_t wanted = USUAL;
    for (int i = 0; i < topo->n_nodes; i++) {
        const uint64_t caches = 4 * selftest_cache(&topo->nodes[i].cpus);
        wanted = caches > wanted ? caches : wanted;
    }
    const uint64_t room  = prim_available(topo->nodes[node].id) / 8;
    const uint64_t bytes = wanted > MOST ? MOST : wanted;
    return (room < bytes ? room : bytes) / CHUNK * CHUNK;
}

// All cells of one node's memory say the same.
__attribute__((format(printf, 3, 4))) static void say_of_all(struct selftest * test, int memory_on, const char * format, ...) {
    for (int i = 0; i < test->n_nodes; i++) {
        struct selftest_cell * cell = &test->cells[i * test->n_nodes + memory_on];
        if (!cell->reason[0]) {
            va_list args;
            va_start(args, format);
            vsnprintf(cell->reason, sizeof(cell->reason), format, args);
            va_end(args);
        }
        cell->gb_per_s = 0;
    }
}

// After all have read it, so that what was moved meanwhile is seen as well.
static void look(struct selftest * test, int memory_on, const struct sweep * sweep) {
    struct prim_residency seen = { 0 };
    bool coarse = false;
    const int error = prim_look(sweep->base, sweep->chunks * CHUNK, test->topo->nodes[memory_on].id, LOOK_MOST, &seen, &coarse);
    for (int i = 0; i < test->n_nodes; i++) {
        test->cells[i * test->n_nodes + memory_on].seen = seen;
    }
    if (error != 0) {
        say_of_all(test, memory_on, "where its pages are cannot be seen: %s", strerror(-error));
    } else if (seen.on_node < seen.checked - seen.checked / 100) {
        say_of_all(test, memory_on, "%" PRIu64 " of %" PRIu64 " pages are not on node %d, though they were asked for there",
                   seen.checked - seen.on_node, seen.checked, test->topo->nodes[memory_on].id);
    }
}

static void measure_memory(struct selftest * test, int memory_on, int pass_ms) {
    const struct topology_node * node = &test->topo->nodes[memory_on];
    const uint64_t bytes = node->mem_bytes > 0 && node->mem_allowed ? size_for(test->topo, memory_on) : 0;
    const int by         = topology_nearest_cpus(test->topo, memory_on); // writes it first: what decides where no policy holds
    if (node->mem_bytes == 0) {
        say_of_all(test, memory_on, "node %d has no memory", node->id);
        return;
    }
    if (!node->mem_allowed) {
        say_of_all(test, memory_on, "memory of node %d is not allowed to this process", node->id);
        return;
    }
    if (bytes < LEAST || by < 0) {
        say_of_all(test, memory_on, "node %d has too little room: %" PRIu64 " MiB", node->id, prim_available(node->id) >> 20);
        return;
    }
    int placed;
    struct sweep sweep = { .base = prim_alloc((size_t) bytes, node->id, PRIM_BIND, &placed), .chunks = (size_t) bytes / CHUNK };
    if (!sweep.base) {
        say_of_all(test, memory_on, "%" PRIu64 " MiB of memory could not be had", bytes >> 20);
        return;
    }
    const struct node_set cores = selftest_cores(test->topo, by);
    struct selftest_crew * crew = selftest_crew_start(&cores, node_set_count(&cores), fill, &sweep);
    if (crew) {
        selftest_crew_join(crew);
    }
    fill(&sweep); // what nobody has written
    for (int i = 0; i < test->n_nodes; i++) {
        struct selftest_cell * cell = &test->cells[i * test->n_nodes + memory_on];
        cell->bytes = bytes;
        measure(test, cell, &sweep, pass_ms);
    }
    look(test, memory_on, &sweep);
    prim_free(sweep.base, (size_t) bytes);
}

void selftest_bandwidth(struct selftest * test) {
    const int n       = test->n_nodes;
    const int fitting = (int) (ALL_MS / (n * n) / (PASSES + 1));
    const int pass_ms = fitting > PASS_MS ? PASS_MS : fitting < PASS_MIN ? PASS_MIN : fitting;
    for (int i = 0; i < n * n; i++) {
        test->cells[i] = (struct selftest_cell) { .threads_on = i / n, .memory_on = i % n };
    }
    for (int i = 0; i < n; i++) {
        if (selftest_late(test)) {
            say_of_all(test, i, "not asked: the time was up");
        } else {
            measure_memory(test, i, pass_ms);
        }
    }
}
