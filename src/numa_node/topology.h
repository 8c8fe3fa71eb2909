// The NUMA nodes of a machine and what this process may use of them, on any OS.
//
// Filled by one reader per OS (topology_linux.c; Windows beside it). Readers take a root folder or a buffer, so that
// recorded machines are test data on any OS.
#pragma once

#include "node_set.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TOPOLOGY_MAX_NODES 1024

struct topology_node {
    int             id;          // as the OS numbers it; may be sparse
    struct node_set cpus;        // logical CPUs of the node as the OS lists them, allowed to this process or not.
                                 // Current kernels list those online; some recorded machines list offline ones too,
                                 // which are never in cores or allowed_cpus
    struct node_set cores;       // one online logical CPU per physical core: the lowest this process may use, else the
                                 // lowest; so cores within allowed_cpus = the physical cores it may use
    int             group;       // processor group of its first CPU (Windows); 0 elsewhere
    uint64_t        mem_bytes;   // installed and managed by the OS; 0 = a node without memory
    uint64_t        free_bytes;  // free now
    uint64_t        avail_bytes; // free plus what the kernel can drop at once (file cache); >= free_bytes
    bool            cpus_allowed; // this process may run on at least one of its CPUs
    bool            mem_allowed;  // it has memory, and this process may take it
};

struct topology {
    int                    n_nodes;
    struct topology_node * nodes;      // n_nodes, ascending by id
    int *                  distance;   // n_nodes x n_nodes, row-major by index (not id); 10 = local;
                                       // 0 = not known, which counts as farther than any
    struct node_set        allowed_cpus; // online CPUs this process (this machine: the calling thread) may run on
};

// Read a Linux machine from `root` ("" = this machine, else a folder that holds sys/devices/system/{node,cpu} and
// perhaps proc/self/status). Without a node folder (kernel without NUMA) there is one node 0 with all CPUs.
// Without proc/self/status everything is allowed. What is missing counts as "none" or "not known"; a file that is there
// but makes no sense is an error.
// Returns 0, or -1 with a one-line reason in err and *topo zeroed. Free with topology_free.
int topology_read_linux(struct topology * topo, const char * root, char * err, size_t err_size);

void topology_free(struct topology * topo);

// Index of the node with this OS number, or -1.
int topology_find(const struct topology * topo, int id);

// Index of the node with usable CPUs that is nearest to node index `from` by the distance table (ties: the lowest id;
// `from` itself where it has some), or -1 where no node has any.
int topology_nearest_cpus(const struct topology * topo, int from);

// Index of the only node this process can run on or take memory from, or -1 where it is confined to none in particular.
// Memory confinement: one node with memory is allowed and others are not. It beats CPU confinement: every allowed CPU
// belongs to one node whose memory is allowed, and others have CPUs too. So a machine with one node, or one node with
// CPUs and some with memory only, confines nobody by itself.
int topology_confined(const struct topology * topo);

// Index of the node with usable CPUs and memory that has most avail_bytes (ties: the lowest id), or -1.
int topology_emptiest(const struct topology * topo);

#ifdef __cplusplus
}
#endif
