#include "choose.h"

#include <stdio.h>
#include <string.h>

static bool usable(const struct topology_node * node) {
    return node->mem_bytes > 0 && node->mem_allowed;
}

char * choose_nodes_here(const struct topology * topo, char * out, size_t size) {
    struct node_set yes, no;
    char text[2][96];
    node_set_clear(&yes);
    node_set_clear(&no);
    for (int i = 0; i < topo->n_nodes; i++) {
        const struct topology_node * node = &topo->nodes[i];
        const bool allowed = node->mem_bytes > 0 ? node->mem_allowed || node->cpus_allowed : false;
        node_set_add(allowed ? &yes : &no, node->id);
    }
    node_set_format(&yes, text[0], sizeof(text[0]));
    node_set_format(&no, text[1], sizeof(text[1]));
    snprintf(out, size, "%s%s%s%s%s", node_set_empty(&yes) ? "no node is usable here" : "nodes here: ", text[0],
             node_set_empty(&no) ? "" : " (not usable: ", text[1], node_set_empty(&no) ? "" : ")");
    return out;
}

static int check(const struct topology * topo, const struct numa_options * options, int index, char * err, size_t size) {
    char here[256];
    choose_nodes_here(topo, here, sizeof(here));
    const struct topology_node * node = index < 0 ? NULL : &topo->nodes[index];
    const char * name = options->from_env ? "LLAMA_ARG_NUMA_NODE" : "--numa-node";
    if (!node) {
        snprintf(err, size, "%s: there is no node %s; %s", name, options->requested, here);
    } else if (node->mem_bytes == 0) {
        snprintf(err, size, "%s: node %d has no memory; %s", name, node->id, here);
    } else if (!node->mem_allowed && !node->cpus_allowed) {
        snprintf(err, size, "%s: node %d is there, but neither its memory nor its CPUs are allowed to this process "
                 "(cpuset.mems, cpuset.cpus or CPU affinity); %s", name, node->id, here);
    } else {
        return 0;
    }
    return -1;
}

// The node this process cannot leave; confinement to the CPUs of a node without memory decides nothing about memory.
static int confined(const struct topology * topo) {
    const int node = topology_confined(topo);
    return node >= 0 && usable(&topo->nodes[node]) ? node : -1;
}

// The node that was chosen where the process was started: confinement beats the launcher's hint. -1 where there is neither.
static int given(const struct topology * topo, int start_node, const char ** how) {
    const int node = confined(topo);
    *how = node >= 0 ? "confined" : "start-node";
    return node < 0 && topo->n_nodes > 1 && start_node >= 0 && usable(&topo->nodes[start_node]) ? start_node : node;
}

// The node for "auto": what was given beats room.
static int automatic(const struct topology * topo, int start_node, const char ** how) {
    int node = given(topo, start_node, how);
    if (node < 0) {
        node = topology_emptiest(topo);
        *how = "emptiest";
    }
    return node;
}

int choose_node(const struct topology * topo, const struct numa_options * options, int start_node, struct choice * choice,
                char * err, size_t err_size) {
    *choice = (struct choice) { .node = -1, .cpu_node = -1, .how = "" };
    const char * how = options->from_env ? "env" : "flag";
    int node = -1;
    switch (options->wish) {
        case WISH_NONE:
            return 0;
        case WISH_UNSET:
            node = given(topo, start_node, &how);
            if (node < 0) {
                return 0;
            }
            break;
        case WISH_AUTO:
            node = automatic(topo, start_node, &how);
            if (node < 0) {
                snprintf(err, err_size, "--numa-node auto: no node has both memory and CPUs this process may use");
                return -1;
            }
            break;
        case WISH_NUMBER:
            node = topology_find(topo, options->number);
            if (check(topo, options, node, err, err_size) != 0) {
                return -1;
            }
            break;
    }
    *choice = (struct choice) { .node = node, .cpu_node = topology_nearest_cpus(topo, node), .how = how };
    return 0;
}
