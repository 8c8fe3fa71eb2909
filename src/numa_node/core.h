// What the files of the core share: the choice that was made at start-up, and the memory that is watched since.
#pragma once

#include "choose.h"
#include "numa_node.h"
#include "options.h"
#include "prim.h"

#include <stdatomic.h>

// Written once by numa_node_start, before there is a second thread, except what says otherwise.
struct numa_core {
    bool                active;
    struct numa_options options;
    struct topology     topo;
    struct choice       choice;
    int                 node;         // OS number of the chosen node
    struct node_set     cpus;         // where threads run: CPUs of the (nearest) node that this process may use
    int                 n_cores;      // physical cores among them
    int                 memory_error; // of prim_bind_memory: 0 = the system takes our word for the node
    int                 cpus_error;   // of prim_bind_cpus
    uint64_t            available;    // bytes that could be had on the node at start-up; 0 = unknown
    FILE *              report;       // open from the start, so that a reader at the other end of a pipe waits; null = none
    char                note[512];    // what does not hold and what would mend it; "" where all holds
};
extern struct numa_core numa_core;

// Locks are held for operations on short lists: spinning is enough.
typedef atomic_flag numa_lock;
void numa_lock_take(numa_lock * lock);
void numa_lock_drop(numa_lock * lock);

// --- claims (claim.c): will it fit? ---

// The policy for `bytes` more on the node: bind where they fit into what the node had and has, else preferred, which spills
// instead of ending the process when the node is full. Claimed until released.
enum prim_policy numa_claim(uint64_t bytes);
void             numa_release(uint64_t bytes);
// Would they fit, if `instead` bytes that are claimed already were given back first?
bool             numa_fits(uint64_t bytes, uint64_t instead);
// Bytes that did not fit when they were claimed.
uint64_t         numa_unfit(void);

// --- regions (region.c): what is looked at ---

struct numa_region {
    const char *       base;
    size_t             bytes;
    enum numa_node_use use;
    bool               owned;  // from numa_node_alloc
    bool               lazy;   // read on demand
    struct numa_region * next;
};

void numa_region_add(const void * base, size_t bytes, enum numa_node_use use, bool owned, bool lazy);
// Forget regions that are not owned within the range. Returns the bytes of those with use NUMA_PLACED.
size_t numa_region_drop(const void * base, size_t bytes);
// The next piece of [at, end) in a mapping that is not read on demand, null where there is none. *to: its end.
const char * numa_region_eager(const char * at, const char * end, const char ** to);
// The use of a range that was brought to the node but is not looked at by itself: tensors in it are tagged later.
#define NUMA_PLACED NUMA_NODE_USES

struct numa_sight {
    uint64_t              bytes;
    struct prim_residency pages;
};
// Pages that are looked at of one use, at most: 10 to 60 ms of move_pages (docs/how-it-works.md), whatever the
// size. All of them up to 256 MiB with pages of 4 KiB; beyond, 0.4 % is the 95 % error of a sample of this size.
#define NUMA_LOOK_MOST 65536
// Look at all regions; out[NUMA_NODE_USES].
// Returns 0, or the first error of looking; *coarse as prim_look says.
int numa_region_look(struct numa_sight * out, bool * coarse);
// The first error of asking for the node for a region; 0 = the system took our word for all of them.
int numa_region_error(void);

// --- weights (weights.c) ---

const char * numa_weights_mode(void); // "map", "moved", "copy"

// --- progress (progress.c) ---

// So many bytes more of the weights were read.
void numa_progress_read(uint64_t bytes);
// So many bytes are now moved to the node, none yet (0: no more), and so many more of them were.
void numa_progress_move(uint64_t bytes);
void numa_progress_moved(uint64_t bytes);
void numa_progress_end(void);

// --- workers (worker.c) ---

// Wait (a moment) for workers that were created but do not run yet, then count them, and those that run on the node only.
void numa_worker_count(int * workers, int * bound);

// --- listing (listing.c) ---

void numa_list_print(const struct topology * topo, FILE * to);
void numa_list_json(const struct topology * topo, FILE * to);
void numa_list_json_nodes(const struct topology * topo, FILE * to); // the array alone

// --- json (json.c) ---

// Text that grows. Start with { 0 }; `chars` stays null where nothing was added or there was no memory for it (`failed`).
struct numa_text {
    char * chars;
    size_t used, room;
    bool   failed;
};
__attribute__((format(printf, 2, 3))) void numa_text_add(struct numa_text * text, const char * format, ...);
void numa_text_free(struct numa_text * text);
void numa_text_json(struct numa_text * to, const char * text); // quoted and escaped
void numa_json_string(FILE * to, const char * text);           // the same
