// What the core needs of the operating system; one implementation per OS (prim_linux.c, prim_windows.c).
//
// Unless said otherwise a function returns 0, or a negative errno (-EPERM: not permitted here, -EINVAL: the node is not
// ours to use, -ENOSYS: this OS or kernel has no such call). Nothing above these functions knows which OS it runs on.
// A success code says what was asked for, not what happened: only prim_look tells where pages lie.
#pragma once

#include "node_set.h"
#include "topology.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum prim_policy {
    PRIM_PREFERRED, // take pages of the node while it has some, then of others
    PRIM_BIND,      // pages of this node only: what can be dropped there is dropped first
};

// Where the pages of a range lie, in pages of prim_page_size() bytes.
struct prim_residency {
    uint64_t checked;      // looked at: on_node + elsewhere + not_resident
    uint64_t on_node;
    uint64_t elsewhere;
    uint64_t not_resident; // no page behind the address (yet), so no node either
    uint64_t large;        // of those on a node, parts of large pages, where the OS tells (Windows)
};

// The machine and what this process may use. *start_node: index of the node the process was started on, by the launcher's
// choice (`start /NODE`) or the system's; -1 where the OS starts processes on no node, as Linux does.
// Returns 0, or -1 with a one-line reason in err.
int prim_topology(struct topology * topo, int * start_node, char * err, size_t err_size);

// Confine the calling thread, and every thread it starts from now on, to these CPUs.
int prim_bind_cpus(const struct node_set * cpus);

// Let pages that the calling thread, and threads it starts from now on, touches first come from this node.
int prim_bind_memory(int node, enum prim_policy policy);

// A number by which prim_thread_within finds this thread again. 1 where the thread runs on these CPUs only, 0 where not,
// -1 where it has ended.
int64_t prim_thread_id(void);
int     prim_thread_within(int64_t thread, const struct node_set * cpus);

// Run work(context) in `threads` threads at once (the caller is one of them) and wait for all. threads >= 1.
// Where no more threads can be had, fewer do the work.
void prim_parallel(int threads, void (*work)(void * context), void * context);
void prim_sleep_ms(int ms);
double prim_now_ms(void); // monotonic

size_t prim_page_size(void); // bytes

// True where PRIM_BIND is kept; elsewhere (Windows) a node is a preference, whatever is asked for.
bool prim_binds(void);

// Fresh, zeroed memory on the node, in a mapping of its own with nothing mapped right behind it; large pages are asked for
// where they can help, then it starts at a multiple of 2 MiB. bytes > 0. Null where there is none. *placed: the result of
// asking for the node. Free with the same size.
void * prim_alloc(size_t bytes, int node, enum prim_policy policy, int * placed);
void   prim_free(void * base, size_t bytes);

// Bytes of this process that are in memory, file mappings among them. 0 where unknown.
uint64_t prim_resident(void);

// Bytes that can be had on the node now: free, or droppable at once (file cache). 0 where unknown.
uint64_t prim_available(int node);

// A section of an open file handle that prefers the node, and a read-only view of all of it that does; null where the
// system's mappings take no node (Linux) or on failure.
void * prim_section(void * file, int node);
void * prim_view(void * section, int node);

// Make the pages of a file mapping resident, as if the calling thread had read a byte of each.
int prim_touch(const void * base, size_t bytes);

// Move the resident pages of the range that lie elsewhere to the node, if nobody else maps them. -ENOSYS: this OS cannot.
int prim_move(void * base, size_t bytes, int node);

// Count where pages of the range lie; at most `most` of them, evenly spread. Adds to *out.
// Where the OS forbids the exact look, a coarser one over the whole mapping is used, `most` or not; *coarse is then set.
int prim_look(const void * base, size_t bytes, int node, uint64_t most, struct prim_residency * out, bool * coarse);

// Read files beside the C library's stream on the same descriptor. The reader never leaves file cache behind that was not
// there before. `file`: a C file descriptor. Null on failure.
struct prim_reader;
struct prim_reader * prim_reader_open(int file);
int                  prim_reader_read(struct prim_reader * reader, uint64_t offset, void * to, size_t bytes);
void                 prim_reader_close(struct prim_reader * reader);

// Set a variable of the environment that programs started from here on see.
void prim_set_env(const char * name, const char * value);

// Open a file for text, emptied if it is there; its name is UTF-8 where the system's own names are wide (Windows). Null, and
// errno, on failure.
FILE * prim_create(const char * name);

// Open an ordinary file for reading, whose name is as above; null where there is none.
FILE * prim_open(const char * name);
