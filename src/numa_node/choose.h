// Which node it is to be: a pure function of what was asked for and what the machine and the process's limits are.
#pragma once

#include "options.h"
#include "topology.h"

struct choice {
    int          node;     // index into topo->nodes; -1 = none, nothing is to change
    int          cpu_node; // index of the node whose CPUs run the threads: `node`, or the nearest with usable CPUs
    const char * how;      // "flag", "env", "confined", "start-node", "emptiest"; "" with node -1
};

// start_node: index of the node the process was started on, or -1 (see prim_topology).
// Returns 0, or -1 with one line in err that names the nodes there are.
int choose_node(const struct topology * topo, const struct numa_options * options, int start_node, struct choice * choice,
                char * err, size_t err_size);

// "nodes here: 0-1 (not usable: 2)", "no node is usable here (not usable: 0)"; returns out.
char * choose_nodes_here(const struct topology * topo, char * out, size_t size);
