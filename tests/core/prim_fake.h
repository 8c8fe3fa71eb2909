// prim.h over a made-up machine, so that the core's decisions can be seen: every page has a node, and the tests say which
// calls fail, what is cached where, and how much room there is.
#pragma once

#include "prim.h"

enum { FAKE_PAGE = 4096, FAKE_NODES = 64 };

#define MIB(n) ((uint64_t) (n) << 20)

struct fake {
    // What the machine is like; fake_machine() fills the first three.
    struct topology topo;
    uint64_t        room[FAKE_NODES]; // bytes free on a node (by index); prim_available adds what is cached there
    int             start_node;
    bool            no_topology;
    bool            room_unknown;
    bool            no_memory;  // prim_alloc has none
    bool            alone;      // there is no second thread
    bool            no_reader;
    bool            prefers_only; // the system binds no memory
    bool            written;    // memory from prim_alloc is written at once
    bool            coarse;     // the exact look is not permitted
    bool            large;      // all pages are parts of large ones
    int             cpus_error, memory_error, placed_error, touch_error, move_error;
    const void *    unseen;     // looking at ranges that begin here gives look_error
    int             look_error;
    uint64_t        unreadable; // offset in the file from which on reading fails
    uint64_t        others_take; // bytes of the node that others take while a mapping is touched
    uint64_t        resident;    // bytes of this process that are in memory
    void (*on_sleep)(void);
    void (*on_move)(void);
    // What has happened.
    int             touches, moves, looks, reads, sleeps, prefers;
    int             binds;      // calls that placed memory with PRIM_BIND
    int             most_threads; // that prim_parallel was asked for
    size_t          most_read;  // bytes at a time
    int             unbound_touches; // by threads that were not confined to CPUs
    int             killed;     // pages that a full node could not give under PRIM_BIND
    int             bad_frees;
    int             section_node, view_node;
    int             open_readers;
};
extern struct fake fake;

// The machine in words (machine.h); all of what is available of a node is room.
void fake_machine(const char * text);
// What numa_node_start does with the choice of this node, done by hand.
void fake_choose(int node);

// A file mapping, none of it in memory. fake_cached: these pages of it lie in the file cache on a node; `stays`: others map
// them, so they cannot be moved.
char * fake_map(size_t bytes);
void   fake_cached(const char * base, size_t bytes, int node, bool stays);
void   fake_unmap(char * base);
// The first write to memory from prim_alloc.
void   fake_write(const void * base, size_t bytes);
// These pages lie there, however they came to.
void   fake_put(const void * base, size_t bytes, int node);
// Bytes of the range on the node (an OS number); -1: not resident.
uint64_t fake_on(const void * base, size_t bytes, int node);
// Mappings and allocations that there are.
int fake_ranges(void);

// The file that readers read, any descriptor.
char fake_byte(uint64_t offset);

// How the calling thread places memory.
int              fake_memory_node(void);
enum prim_policy fake_policy(void);
