#include "core.h"

// Left free on the node for what is not counted: page tables, stacks, small allocations, the kernel's own reserve.
static const uint64_t MARGIN = 64ull << 20;

static _Atomic uint64_t claimed;
static _Atomic uint64_t unfit;

void numa_lock_take(numa_lock * lock) {
    while (atomic_flag_test_and_set_explicit(lock, memory_order_acquire)) {
    }
}

void numa_lock_drop(numa_lock * lock) {
    atomic_flag_clear_explicit(lock, memory_order_release);
}

// Against what the node had at start-up counts what was claimed since, touched or not; against what it has now counts what
// others took meanwhile (file cache, so a mapping too, is among what can be had).
bool numa_fits(uint64_t bytes, uint64_t instead) {
    const uint64_t now = prim_available(numa_core.node);
    return numa_core.available + instead >= atomic_load(&claimed) + bytes + MARGIN && now >= bytes + MARGIN;
}

enum prim_policy numa_claim(uint64_t bytes) {
    const bool fits = numa_fits(bytes, 0);
    atomic_fetch_add(&claimed, bytes);
    if (!fits && numa_core.available > 0) {
        atomic_fetch_add(&unfit, bytes);
    }
    return fits ? PRIM_BIND : PRIM_PREFERRED;
}

void numa_release(uint64_t bytes) {
    atomic_fetch_sub(&claimed, bytes);
}

uint64_t numa_unfit(void) {
    return atomic_load(&unfit);
}
