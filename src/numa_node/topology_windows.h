// A Windows machine from the buffers that GetLogicalProcessorInformationEx fills; plain C, so that recorded machines are
// test data on any OS. Layout: SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX in winnt.h, 64-bit.
//
// A logical CPU has the number 64 * processor group + bit in the group's mask, here and everywhere in the core.
#pragma once

#include "topology.h"

#define WINDOWS_GROUP_CPUS 64

// What was read of a machine; sizes in bytes. A buffer may be null with size 0 where the call failed.
struct windows_machine {
    const void * numa;       // RelationNumaNode records (what RelationNumaNodeEx answers, too)
    size_t       numa_size;
    const void * cores;      // RelationProcessorCore records
    size_t       cores_size;
    // Bytes that can be had on a node now. False: not known.
    bool (*available)(int node, uint64_t * bytes, void * context);
    void *       context;
    uint64_t     total_bytes; // of the whole machine, used where a node's own memory is not known
    bool         confined;    // allowed_cpus says more than "all"
    struct node_set allowed_cpus;
};

// Returns 0, or -1 with a one-line reason in err: truncated or senseless records, or none at all. Free with topology_free.
// Records of kinds not asked for are stepped over, sparse and unordered node numbers are fine, records of one node that
// spans groups add up, GroupCount 0 (before Windows 11) means one group.
int topology_read_windows(struct topology * topo, const struct windows_machine * machine, char * err, size_t err_size);
