// numa_node: keep one process (weights, buffers, threads) on one NUMA node, and look whether it worked.
//
// This is the whole contract with llama.cpp: the hooks of the patch series call nothing else. Every function may be called
// at any time from any thread; as long as no node was chosen each of them does nothing and says so by its return value.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// How the symbols leave a shared library; set by the build.
#ifndef NUMA_NODE_API
#define NUMA_NODE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// Exit codes of the program.
#define NUMA_NODE_EXIT_USAGE  2 // bad input, nothing was loaded
#define NUMA_NODE_EXIT_STRICT 3 // --numa-strict, and something is not on the node

// --- start-up ---

// To be called first in main, before any thread is started or memory of size is allocated: reads and removes the --numa-*
// flags from argv (and their environment twins), chooses the node, binds the process. Returns -1 to go on, else the code
// to exit with (the message, or the list, has been written).
NUMA_NODE_API int numa_node_start(int * argc, char ** argv);

// True where a node was chosen and the process is bound to it.
NUMA_NODE_API bool numa_node_active(void);

// The --numa-* flags as a table, for the help texts: name, argument ("" for none), environment twin, explanation. Ends
// with a null name.
struct numa_node_flag {
    const char * name;
    const char * argument;
    const char * env;
    const char * help;
};
NUMA_NODE_API const struct numa_node_flag * numa_node_flags(void);
NUMA_NODE_API void numa_node_print_flags(FILE * to, int column); // aligned, explanations from this column on

// --- threads ---

// Physical cores of the node that this process may use: the default for -t and -tb. 0 = not active.
NUMA_NODE_API int numa_node_default_threads(void);
// A worker is about to be started / runs: the latter binds the calling thread once and remembers it for the verdict.
NUMA_NODE_API void numa_node_worker_created(void);
NUMA_NODE_API void numa_node_bind_worker(void);

// --- buffers ---

// Zeroed memory in a region of its own on the node, 64-byte aligned or better; null where not active, too small to be
// worth a region, or out of memory: the caller then allocates as ever.
NUMA_NODE_API void * numa_node_alloc(size_t bytes);
// True where base came from numa_node_alloc; it is freed then.
NUMA_NODE_API bool numa_node_free(void * base);

// What a buffer is for; the memory at base is counted under that name in the verdict. Weights that lie in memory of
// somebody else (a file mapping) are looked at as well.
enum numa_node_use { NUMA_NODE_OTHER, NUMA_NODE_WEIGHTS, NUMA_NODE_REPACK, NUMA_NODE_KV, NUMA_NODE_COMPUTE, NUMA_NODE_USES };
NUMA_NODE_API void numa_node_tag(const void * base, size_t bytes, enum numa_node_use use);
// Weights in memory that the host cannot read as they are have been repacked for its matrix kernels.
static inline enum numa_node_use numa_node_use_of(bool weights, bool compute, bool host) {
    return weights ? (host ? NUMA_NODE_WEIGHTS : NUMA_NODE_REPACK) : compute ? NUMA_NODE_COMPUTE : NUMA_NODE_OTHER;
}

// --- weights ---

// Where a file mapping takes a node itself (Windows): a section of the open file handle, and a read-only view of all of it,
// both asking for the node. Null where not active, where the system has no such thing, or on failure; the caller then maps
// as ever.
NUMA_NODE_API void * numa_node_section(void * file);
NUMA_NODE_API void * numa_node_view(void * section);
// True where weights are to be copied, not mapped (--numa-weights copy, or the mapping could not be had on the node).
NUMA_NODE_API bool numa_node_copy_weights(void);
// Bring this range of a fresh file mapping into memory on the node, except what numa_node_lazy() was told of: touched by
// bound threads, looked at, moved. What cannot be had makes numa_node_copy_weights() true, where copying is allowed and the
// copy has room.
NUMA_NODE_API void numa_node_place(const void * base, size_t bytes);
// This range of a file mapping is read on demand: left alone, counted as "other".
NUMA_NODE_API void numa_node_lazy(const void * base, size_t bytes);
// The mapping goes away.
NUMA_NODE_API void numa_node_unmapped(const void * base, size_t bytes);
// Read bytes at offset of an open C file descriptor to memory, by several bound readers, without leaving the file in the
// cache. False where not active, not worth it or not possible; nothing is known of *to then.
NUMA_NODE_API bool numa_node_read(int file, uint64_t offset, void * to, size_t bytes);

// --- loading ---

// A model is about to be loaded whose weights have so many bytes; once more where loading starts again. It is over with
// numa_node_verdict().
NUMA_NODE_API void numa_node_loading(uint64_t bytes);
// Called by the thread that loads, with true when it begins and with false before the verdict is printed. Set once.
NUMA_NODE_API void numa_node_on_loading(void (*changed)(bool loading));
// How far it is; bytes. False where nothing is being loaded. moving: what has been read is brought to the node.
struct numa_node_load {
    uint64_t done, total;
    bool     moving;
};
NUMA_NODE_API bool numa_node_progress(struct numa_node_load * now);

// --- verdict ---

// The model is loaded: look at the pages of every region and the affinity of every worker, print the verdict, write the
// report. Ends the process with NUMA_NODE_EXIT_STRICT where --numa-strict was given and something is not on the node.
NUMA_NODE_API void numa_node_verdict(void);

// The last verdict as JSON, as the report has it, or as metrics for Prometheus ("" where no node was chosen), cut to size and
// with a null at its end. Returns its whole length; 0 = there is none.
enum numa_node_form { NUMA_NODE_JSON, NUMA_NODE_METRICS };
NUMA_NODE_API size_t numa_node_seen(enum numa_node_form form, char * to, size_t size);

#ifdef __cplusplus
}
#endif
