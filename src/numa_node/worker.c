#include "core.h"

#include <stdlib.h>

static _Atomic int created; // workers that were started, ever
static _Atomic int begun;   // workers that have run; the thread that runs the graph is one, though nobody announces it

static numa_lock lock = ATOMIC_FLAG_INIT;
static int64_t * threads; // those that may still live
static int n_threads, room;

int numa_node_default_threads(void) {
    return numa_core.active ? numa_core.n_cores : 0;
}

void numa_node_worker_created(void) {
    atomic_fetch_add(&created, 1);
}

// Ended threads make room before more is taken: a pool may be made anew for every graph.
static void remember(int64_t thread) {
    numa_lock_take(&lock);
    if (n_threads == room) {
        int living = 0;
        for (int i = 0; i < n_threads; i++) {
            if (prim_thread_within(threads[i], &numa_core.cpus) >= 0) {
                threads[living++] = threads[i];
            }
        }
        n_threads = living;
        if (n_threads * 2 >= room) {
            const int more  = room ? room * 2 : 64;
            int64_t * moved = realloc(threads, (size_t) more * sizeof(*threads));
            room    = moved ? more : room;
            threads = moved ? moved : threads;
        }
    }
    if (n_threads < room) {
        threads[n_threads++] = thread;
    }
    numa_lock_drop(&lock);
}

void numa_node_bind_worker(void) {
    static _Thread_local bool done;
    if (done || !numa_core.active) {
        return;
    }
    done = true;
    prim_bind_cpus(&numa_core.cpus);
    prim_bind_memory(numa_core.node, PRIM_PREFERRED);
    remember(prim_thread_id());
    atomic_fetch_add(&begun, 1);
}

void numa_worker_count(int * workers, int * bound) {
    for (int waited = 0; waited < 1000 && atomic_load(&begun) < atomic_load(&created); waited++) {
        prim_sleep_ms(1);
    }
    *workers = *bound = 0;
    numa_lock_take(&lock);
    for (int i = 0; i < n_threads; i++) {
        const int within = prim_thread_within(threads[i], &numa_core.cpus);
        *workers += within >= 0;
        *bound += within > 0;
    }
    numa_lock_drop(&lock);
}
