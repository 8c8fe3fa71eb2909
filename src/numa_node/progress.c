// How far loading is. Where a node was chosen the core reads the weights, and counts; where not, what has become resident
// since loading began is as near as can be seen from outside.
#include "core.h"

static _Atomic uint64_t total;  // bytes of the weights; 0 = nothing is being loaded
static _Atomic uint64_t done;   // of them
static _Atomic uint64_t before; // bytes that were resident when loading began
static _Atomic uint64_t to_move, moved;
static void (*_Atomic listener)(bool loading);

static void tell(bool loading) {
    void (*const changed)(bool) = atomic_load(&listener);
    if (changed) {
        changed(loading);
    }
}

void numa_node_on_loading(void (*changed)(bool loading)) {
    atomic_store(&listener, changed);
}

void numa_node_loading(uint64_t bytes) {
    atomic_store(&done, 0);
    atomic_store(&before, prim_resident());
    atomic_store(&total, bytes);
    tell(true);
}

void numa_progress_read(uint64_t bytes) {
    atomic_fetch_add(&done, bytes);
}

void numa_progress_move(uint64_t bytes) {
    atomic_store(&moved, 0);
    atomic_store(&to_move, bytes);
}

void numa_progress_moved(uint64_t bytes) {
    atomic_fetch_add(&moved, bytes);
}

void numa_progress_end(void) {
    if (atomic_load(&total) > 0) {
        tell(false); // who may look once more
        atomic_store(&total, 0);
    }
}

static uint64_t become_resident(void) {
    const uint64_t now = prim_resident(), then = atomic_load(&before);
    return now > then ? now - then : 0;
}

bool numa_node_progress(struct numa_node_load * now) {
    const uint64_t bytes = atomic_load(&total);
    now->moving = atomic_load(&to_move) > 0;
    now->total  = now->moving ? atomic_load(&to_move) : bytes;
    now->done   = now->moving ? atomic_load(&moved) : numa_core.active ? atomic_load(&done) : become_resident();
    // A file holds more than its weights, and a process more than a file.
    now->done = now->done < now->total ? now->done : now->total;
    return bytes > 0;
}
