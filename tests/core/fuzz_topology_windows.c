// libFuzzer target: any bytes are records of nodes and of cores, read or refused.
#include "topology_windows.h"
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool available(int node, uint64_t * bytes, void * context) {
    const uint8_t how = *(const uint8_t *) context;
    *bytes = (uint64_t) (node % 4) << 30; // none on each fourth
    return how == 0 || node % how != 0;
}

static void check(const struct topology * topo, const struct windows_machine * machine) {
    HOLDS(topo->n_nodes > 0 && topo->n_nodes <= TOPOLOGY_MAX_NODES);
    for (int i = 0; i < topo->n_nodes; i++) {
        const struct topology_node * node = &topo->nodes[i];
        HOLDS(i == 0 || node->id > topo->nodes[i - 1].id);
        HOLDS(topology_find(topo, node->id) == i);
        HOLDS(node_set_within(&node->cores, &node->cpus));
        HOLDS(node_set_empty(&node->cores) == node_set_empty(&node->cpus));
        HOLDS(node->group == (node_set_empty(&node->cpus) ? 0 : node_set_next(&node->cpus, 0) / WINDOWS_GROUP_CPUS));
        HOLDS(node->free_bytes <= node->avail_bytes && node->avail_bytes <= node->mem_bytes);
        HOLDS(node->mem_allowed == (node->mem_bytes > 0));
        HOLDS(topo->distance[i * topo->n_nodes + i] == 10);
    }
    HOLDS(!machine->confined || node_set_within(&topo->allowed_cpus, &machine->allowed_cpus));
    topology_confined(topo);
    topology_emptiest(topo);
}

// how, how much of the rest (in 256ths) are nodes, then nodes and cores.
int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    if (size < 2) {
        return 0;
    }
    const size_t left      = size - 2;
    const size_t numa_size = left * data[1] / 255;
    uint8_t how            = data[0] & 7;
    void * const numa      = malloc(numa_size); // of its exact size, so that AddressSanitizer sees a byte too far
    void * const cores     = malloc(left - numa_size);
    HOLDS(numa && cores);
    memcpy(numa, data + 2, numa_size);
    memcpy(cores, data + 2 + numa_size, left - numa_size);
    struct windows_machine machine = { .numa = numa, .numa_size = numa_size, .cores = cores, .cores_size = left - numa_size,
        .available = available, .context = &how, .total_bytes = UINT64_C(64) << 30, .confined = data[0] & 8 };
    for (int cpu = 0; machine.confined && cpu < 256; cpu += 1 + (data[0] >> 4)) {
        node_set_add(&machine.allowed_cpus, cpu);
    }
    struct topology topo;
    char err[256] = "";
    if (topology_read_windows(&topo, &machine, err, sizeof(err)) == 0) {
        check(&topo, &machine);
        topology_free(&topo);
    } else {
        HOLDS(err[0] && !strchr(err, '\n') && topo.n_nodes == 0 && !topo.nodes && !topo.distance);
    }
    free(numa);
    free(cores);
    return 0;
}
