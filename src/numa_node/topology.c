#include "topology.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

void topology_free(struct topology * topo) {
    free(topo->nodes);
    free(topo->distance);
    memset(topo, 0, sizeof(*topo));
}

int topology_find(const struct topology * topo, int id) {
    for (int i = 0; i < topo->n_nodes; i++) {
        if (topo->nodes[i].id == id) {
            return i;
        }
    }
    return -1;
}

static int distance(const struct topology * topo, int from, int to) {
    const int known = topo->distance[(size_t) from * (size_t) topo->n_nodes + (size_t) to];
    return known > 0 ? known : INT_MAX;
}

int topology_nearest_cpus(const struct topology * topo, int from) {
    if (topo->nodes[from].cpus_allowed) {
        return from;
    }
    int nearest = -1;
    for (int i = 0; i < topo->n_nodes; i++) {
        if (topo->nodes[i].cpus_allowed
            && (nearest < 0 || distance(topo, from, i) < distance(topo, from, nearest))) {
            nearest = i;
        }
    }
    return nearest;
}

// The only one of the nodes with memory that may be used, where there are others; else -1.
static int confined_memory(const struct topology * topo) {
    int with_memory = 0;
    int allowed     = 0;
    int only        = -1;
    for (int i = 0; i < topo->n_nodes; i++) {
        with_memory += topo->nodes[i].mem_bytes > 0;
        if (topo->nodes[i].mem_allowed) {
            allowed++;
            only = i;
        }
    }
    return allowed == 1 && with_memory > 1 ? only : -1;
}

// The only one of the nodes with CPUs that may be run on, where there are others; else -1.
static int confined_cpus(const struct topology * topo) {
    int with_cpus = 0;
    int only      = -1;
    for (int i = 0; i < topo->n_nodes; i++) {
        with_cpus += !node_set_empty(&topo->nodes[i].cores);
        if (topo->nodes[i].cpus_allowed && node_set_within(&topo->allowed_cpus, &topo->nodes[i].cpus)) {
            only = i;
        }
    }
    return with_cpus > 1 ? only : -1;
}

int topology_confined(const struct topology * topo) {
    const int by_memory = confined_memory(topo);
    const int by_cpus   = confined_cpus(topo);
    if (by_memory >= 0) {
        return by_memory;
    }
    return by_cpus >= 0 && topo->nodes[by_cpus].mem_allowed ? by_cpus : -1;
}

int topology_emptiest(const struct topology * topo) {
    int emptiest = -1;
    for (int i = 0; i < topo->n_nodes; i++) {
        const struct topology_node * node = &topo->nodes[i];
        if (node->cpus_allowed && node->mem_allowed
            && (emptiest < 0 || node->avail_bytes > topo->nodes[emptiest].avail_bytes)) {
            emptiest = i;
        }
    }
    return emptiest;
}
