// Weights in a file mapping: map -> touch -> look -> move -> look -> else copy. And the reader that copies.
#include "core.h"

static const size_t MAP_CHUNK    = 16 << 20; // bytes a thread takes at a time: long enough for the disk to read ahead
static const size_t READ_CHUNK   = 4 << 20;
static const size_t MOVE_CHUNK   = 64 << 20; // as fine as progress is told
static const size_t SMALLEST_READ = 64 << 10; // headers and the like go through the C library's stream
static const int    MOST_READERS = 8;

static _Atomic bool     copying;
static _Atomic bool     moved;
static _Atomic uint64_t placed_bytes; // of mappings that are in use

// A range that several threads work through, chunk by chunk.
struct shared_work {
    _Atomic size_t       next; // bytes handed out
    size_t               bytes, chunk;
    _Atomic int          error; // the first
    enum prim_policy     policy;
    const char *         base; // place: the mapping; read: null
    struct prim_reader * reader;
    uint64_t             offset;
    char *               to;
};

static int n_helpers(size_t bytes, size_t chunk) {
    const size_t chunks = (bytes + chunk - 1) / chunk;
    int n = numa_core.n_cores < MOST_READERS ? numa_core.n_cores : MOST_READERS;
    n = (size_t) n > chunks ? (int) chunks : n;
    return n < 1 ? 1 : n;
}

static bool take(struct shared_work * work, size_t * at, size_t * bytes) {
    *at = atomic_fetch_add(&work->next, work->chunk);
    if (*at >= work->bytes || atomic_load(&work->error) != 0) {
        return false;
    }
    *bytes = work->bytes - *at < work->chunk ? work->bytes - *at : work->chunk;
    return true;
}

static void keep_error(struct shared_work * work, int error) {
    int none = 0;
    if (error != 0) {
        atomic_compare_exchange_strong(&work->error, &none, error);
    }
}

static void touch_work(void * context) {
    struct shared_work * work = context;
    size_t at, bytes;
    prim_bind_cpus(&numa_core.cpus);
    prim_bind_memory(numa_core.node, work->policy); // file cache follows the policy of the thread that reads it in
    while (take(work, &at, &bytes)) {
        keep_error(work, prim_touch(work->base + at, bytes));
        numa_progress_read(bytes);
    }
    prim_bind_memory(numa_core.node, PRIM_PREFERRED); // one of the threads is the caller
}

static void read_work(void * context) {
    struct shared_work * work = context;
    size_t at, bytes;
    while (take(work, &at, &bytes)) {
        keep_error(work, prim_reader_read(work->reader, work->offset + at, work->to + at, bytes));
        numa_progress_read(bytes);
    }
}

bool numa_node_copy_weights(void) {
    return numa_core.active && (numa_core.options.weights == WEIGHTS_COPY || atomic_load(&copying));
}

void * numa_node_section(void * file) {
    return numa_core.active ? prim_section(file, numa_core.node) : NULL;
}

void * numa_node_view(void * section) {
    return numa_core.active ? prim_view(section, numa_core.node) : NULL;
}

const char * numa_weights_mode(void) {
    return atomic_load(&placed_bytes) == 0 ? "copy" : atomic_load(&moved) ? "moved" : "map";
}

static uint64_t elsewhere(const void * base, size_t bytes) {
    struct prim_residency seen = { 0 };
    bool coarse = false;
    prim_look(base, bytes, numa_core.node, NUMA_LOOK_MOST, &seen, &coarse);
    return seen.elsewhere;
}

// One thread: two took five times as long in the lab, each waiting for the other's translations to be dropped.
static void move_all(char * base, size_t bytes) {
    numa_progress_move(bytes);
    int error = 0;
    for (size_t at = 0; at < bytes && error == 0; at += MOVE_CHUNK) {
        const size_t left = bytes - at < MOVE_CHUNK ? bytes - at : MOVE_CHUNK;
        error = prim_move(base + at, left, numa_core.node);
        numa_progress_moved(left);
    }
    numa_progress_move(0);
}

static void place(const char * base, size_t bytes) {
    // A copy has room where a mapping and the tensors that are repacked out of it (up to all) would not have both.
    // Where no policy can be set, what bound threads touch first is local all the same, unless a cpuset forbids it.
    const bool local    = numa_core.memory_error == 0 || numa_core.topo.nodes[numa_core.choice.node].mem_allowed;
    const bool may_copy = numa_core.options.weights == WEIGHTS_AUTO && local;
    if (may_copy && !numa_fits(2 * (uint64_t) bytes, 0) && numa_fits(bytes, 0)) {
        atomic_store(&copying, true);
        return;
    }
    numa_region_add(base, bytes, NUMA_PLACED, false, false);
    atomic_fetch_add(&placed_bytes, bytes);
    struct shared_work job = { .bytes = bytes, .chunk = MAP_CHUNK, .base = base, .policy = numa_claim(bytes) };
    prim_parallel(n_helpers(bytes, MAP_CHUNK), touch_work, &job);

    const uint64_t before = elsewhere(base, bytes);
    if (before == 0) {
        return;
    }
    move_all((char *) base, bytes);
    const uint64_t after = elsewhere(base, bytes);
    if (after < before) {
        atomic_store(&moved, true);
    }
    // What stays, others hold where it is. A copy helps where it has room; where not, it would spill as well and cost the
    // memory twice.
    if (after > 0 && may_copy && numa_fits(bytes, bytes)) {
        atomic_store(&copying, true);
    }
}

void numa_node_place(const void * base, size_t bytes) {
    const char * const end = (const char *) base + bytes;
    const char * to = end;
    for (const char * at = base; numa_core.active && !numa_node_copy_weights(); at = to) {
        at = numa_region_eager(at, end, &to);
        if (!at) {
            break;
        }
        place(at, (size_t) (to - at));
    }
}

void numa_node_lazy(const void * base, size_t bytes) {
    if (numa_core.active && bytes > 0) {
        numa_region_add(base, bytes, NUMA_NODE_OTHER, false, true);
    }
}

void numa_node_unmapped(const void * base, size_t bytes) {
    if (numa_core.active) {
        const size_t placed = numa_region_drop(base, bytes);
        atomic_fetch_sub(&placed_bytes, placed);
        numa_release(placed);
    }
}

bool numa_node_read(int file, uint64_t offset, void * to, size_t bytes) {
    if (!numa_core.active) {
        return false;
    }
    if (bytes < SMALLEST_READ) {
        numa_progress_read(bytes);
        return false;
    }
    struct prim_reader * reader = prim_reader_open(file);
    if (!reader) {
        return false;
    }
    struct shared_work job = { .bytes = bytes, .chunk = READ_CHUNK, .reader = reader, .offset = offset, .to = to };
    prim_parallel(n_helpers(bytes, READ_CHUNK), read_work, &job);
    prim_reader_close(reader);
    return atomic_load(&job.error) == 0;
}
