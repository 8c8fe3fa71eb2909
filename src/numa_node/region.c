#include "core.h"

#include <errno.h>
#include <stdlib.h>

// Smaller blocks stay with malloc: a mapping each would cost more than it places (and runs into vm.max_map_count); the
// policy of the process covers them.
static const size_t SMALLEST_REGION = 256 << 10;

static numa_lock lock = ATOMIC_FLAG_INIT;
static struct numa_region * regions;
static _Atomic int first_error; // of asking for the node

void numa_region_add(const void * base, size_t bytes, enum numa_node_use use, bool owned, bool lazy) {
    struct numa_region * region = malloc(sizeof(*region));
    if (!region) {
        return; // not looked at, so not claimed either
    }
    *region = (struct numa_region) { .base = base, .bytes = bytes, .use = use, .owned = owned, .lazy = lazy };
    numa_lock_take(&lock);
    region->next = regions;
    regions      = region;
    numa_lock_drop(&lock);
}

size_t numa_region_drop(const void * base, size_t bytes) {
    size_t placed = 0;
    struct numa_region * dropped = NULL;
    numa_lock_take(&lock);
    for (struct numa_region ** at = &regions; *at;) {
        struct numa_region * region = *at;
        if (!region->owned && region->base >= (const char *) base && region->base < (const char *) base + bytes) {
            *at          = region->next;
            region->next = dropped;
            dropped      = region;
        } else {
            at = &region->next;
        }
    }
    numa_lock_drop(&lock);
    while (dropped) {
        struct numa_region * next = dropped->next;
        placed += dropped->use == NUMA_PLACED ? dropped->bytes : 0;
        free(dropped);
        dropped = next;
    }
    return placed;
}

void * numa_node_alloc(size_t bytes) {
    if (!numa_core.active || bytes < SMALLEST_REGION) {
        return NULL;
    }
    int placed;
    void * base = prim_alloc(bytes, numa_core.node, numa_claim(bytes), &placed);
    if (!base) {
        numa_release(bytes);
        return NULL;
    }
    if (placed != 0) {
        int none = 0;
        atomic_compare_exchange_strong(&first_error, &none, placed);
    }
    numa_region_add(base, bytes, NUMA_NODE_OTHER, true, false);
    return base;
}

int numa_region_error(void) {
    return atomic_load(&first_error);
}

bool numa_node_free(void * base) {
    struct numa_region * found = NULL;
    if (!numa_core.active) {
        return false;
    }
    numa_lock_take(&lock);
    for (struct numa_region ** at = &regions; *at; at = &(*at)->next) {
        if ((*at)->owned && (*at)->base == base) {
            found = *at;
            *at   = found->next;
            break;
        }
    }
    numa_lock_drop(&lock);
    if (!found) {
        numa_region_drop(base, 1); // weights too small for a region
        return false;
    }
    prim_free(base, found->bytes);
    numa_release(found->bytes);
    free(found);
    return true;
}

void numa_node_tag(const void * base, size_t bytes, enum numa_node_use use) {
    bool known = false;
    if (!numa_core.active || bytes == 0) {
        return;
    }
    numa_lock_take(&lock);
    for (struct numa_region * region = regions; region && !known; region = region->next) {
        if (region->owned && (const char *) base >= region->base && (const char *) base < region->base + region->bytes) {
            region->use = use;
            known       = true;
        }
    }
    numa_lock_drop(&lock);
    if (!known && use == NUMA_NODE_WEIGHTS) { // mapped by llama.cpp
        numa_region_add(base, bytes, use, false, false);
    }
}

// --- looking ---

// The regions as they are now, so that looking needs no lock. *n: how many. Null where there is no memory for it.
static struct numa_region * snapshot(size_t * n) {
    *n = 0;
    numa_lock_take(&lock);
    for (struct numa_region * region = regions; region; region = region->next) {
        (*n)++;
    }
    struct numa_region * copy = calloc(*n + 1, sizeof(*copy));
    size_t i = 0;
    for (struct numa_region * region = regions; copy && region; region = region->next) {
        copy[i++] = *region;
    }
    numa_lock_drop(&lock);
    return copy;
}

// The first lazy region that overlaps [from, to) of a mapping, lowest address first; null where none does.
static const struct numa_region * lazy_in(const struct numa_region * all, size_t n, const char * from, const char * to) {
    const struct numa_region * first = NULL;
    for (size_t i = 0; i < n; i++) {
        if (all[i].lazy && all[i].base < to && all[i].base + all[i].bytes > from && (!first || all[i].base < first->base)) {
            first = &all[i];
        }
    }
    return first;
}

// The next piece of [at, end) that belongs to the region itself, not to a lazy tensor inside it. *to: its end.
static const char * next_piece(const struct numa_region * all, size_t n, const char * at, const char * end, const char ** to) {
    const struct numa_region * hole;
    while (at < end && (hole = lazy_in(all, n, at, end)) != NULL) {
        if (hole->base > at) {
            *to = hole->base;
            return at;
        }
        at = hole->base + hole->bytes;
    }
    *to = end;
    return at;
}

const char * numa_region_eager(const char * at, const char * end, const char ** to) {
    size_t n;
    struct numa_region * all = snapshot(&n);
    at = next_piece(all, all ? n : 0, at, end, to);
    free(all);
    return at < end ? at : NULL;
}

// Look at one region, or (pass 0) only add up its bytes: each piece is given its share of the pages that may be looked at.
static int look_at(const struct numa_region * all, size_t n, const struct numa_region * region, bool bytes_only,
                   struct numa_sight * sight, bool * coarse) {
    const char * const end = region->base + region->bytes;
    const char * to = end;
    int result = 0;
    for (const char * at = region->base; at < end; at = to) {
        const char * from = region->lazy ? at : next_piece(all, n, at, end, &to);
        const size_t bytes = from < to ? (size_t) (to - from) : 0;
        if (bytes_only) {
            sight->bytes += bytes;
        } else if (bytes > 0) {
            const uint64_t share = 1 + (uint64_t) ((double) NUMA_LOOK_MOST * (double) bytes / (double) sight->bytes);
            const int error = prim_look(from, bytes, numa_core.node, share, &sight->pages, coarse);
            result = result ? result : error;
        }
    }
    return result;
}

int numa_region_look(struct numa_sight * out, bool * coarse) {
    size_t n;
    int result = 0;
    struct numa_region * all = snapshot(&n);
    if (!all) {
        return -ENOMEM;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < n; i++) {
            if (all[i].use != NUMA_PLACED) {
                const int error = look_at(all, n, &all[i], pass == 0, &out[all[i].use], coarse);
                result = result ? result : error;
            }
        }
    }
    free(all);
    return result;
}
