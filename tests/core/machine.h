// A made-up machine in words: "0:0-3:4096/100 1:4-7:8192:c 2:-:512:m", each ID:CPUS:MIB[/AVAILABLE MIB][:LIMITS].
// CPUS is a list, "-" = none; MIB 0 = no memory; LIMITS: c = its CPUs are not allowed to this process, m = its memory is not.
// The word "allowed=LIST" leaves only these CPUs. CPUs 2n and 2n+1 are one core; distances are 10 more for each node between.
#pragma once

#include "topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void machine_fail(const char * word) {
    fprintf(stderr, "no such machine: %s\n", word);
    exit(99);
}

static void machine_set(const char * word, const char * list, struct node_set * set) {
    const bool none = strcmp(list, "-") == 0;
    if (node_set_parse_list(none ? "" : list, none ? 0 : strlen(list), set) != 0) {
        machine_fail(word);
    }
}

static void machine_node(const char * word, struct topology_node * node, struct node_set * allowed) {
    char cpus[512], limits[4] = "";
    unsigned mib, available;
    memset(node, 0, sizeof(*node));
    if (sscanf(word, "%d:%511[^:]:%u/%u:%3s", &node->id, cpus, &mib, &available, limits) < 4) {
        if (sscanf(word, "%d:%511[^:]:%u:%3s", &node->id, cpus, &mib, limits) < 3) {
            machine_fail(word);
        }
        available = mib;
    }
    machine_set(word, cpus, &node->cpus);
    node->mem_bytes   = (uint64_t) mib << 20;
    node->free_bytes  = (uint64_t) available << 19;
    node->avail_bytes = (uint64_t) available << 20;
    node->mem_allowed = mib > 0 && !strchr(limits, 'm');
    for (int cpu = node_set_next(&node->cpus, 0); cpu >= 0 && !strchr(limits, 'c'); cpu = node_set_next(&node->cpus, cpu + 1)) {
        node_set_add(allowed, cpu);
    }
}

static void machine_cores(struct topology_node * node, const struct node_set * allowed) {
    for (int cpu = node_set_next(&node->cpus, 0); cpu >= 0; cpu = node_set_next(&node->cpus, cpu + 1)) {
        node->cpus_allowed |= node_set_has(allowed, cpu);
        const bool first = cpu % 2 == 0 || !node_set_has(&node->cpus, cpu - 1);
        if (first ? node_set_has(allowed, cpu) || !node_set_has(&node->cpus, cpu + 1) || !node_set_has(allowed, cpu + 1)
                  : node_set_has(allowed, cpu) && !node_set_has(allowed, cpu - 1)) {
            node_set_add(&node->cores, cpu);
        }
    }
}

static void machine_parse(const char * text, struct topology * topo) {
    struct node_set only;
    bool narrowed = false;
    char * words  = strdup(text);
    memset(topo, 0, sizeof(*topo));
    topo->nodes = calloc(64, sizeof(*topo->nodes));
    for (char * word = strtok(words, " "); word && topo->n_nodes < 64; word = strtok(NULL, " ")) {
        if (strncmp(word, "allowed=", 8) == 0) {
            machine_set(word, word + 8, &only);
            narrowed = true;
        } else {
            machine_node(word, &topo->nodes[topo->n_nodes++], &topo->allowed_cpus);
        }
    }
    free(words);
    if (narrowed) {
        node_set_intersect(&topo->allowed_cpus, &only);
    }
    const int n    = topo->n_nodes;
    topo->distance = calloc((size_t) (n * n), sizeof(*topo->distance));
    for (int i = 0; i < n; i++) {
        machine_cores(&topo->nodes[i], &topo->allowed_cpus);
        for (int k = 0; k < n; k++) {
            topo->distance[i * n + k] = 10 + 10 * abs(i - k);
        }
    }
}
