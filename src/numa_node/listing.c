// --numa-list: the nodes of the machine and what this process may use of them.
#include "core.h"

#include <inttypes.h>
#include <string.h>

static const char * what_is_allowed(const struct topology_node * node) {
    const bool cpus = node->cpus_allowed, mem = node->mem_allowed && node->mem_bytes > 0;
    return cpus && mem ? "CPUs, memory" : cpus ? "CPUs" : mem ? "memory" : "nothing";
}

void numa_list_print(const struct topology * topo, FILE * to) {
    int width = (int) strlen("CPUs");
    char cpus[128];
    for (int i = 0; i < topo->n_nodes; i++) {
        const int len = (int) strlen(node_set_format(&topo->nodes[i].cpus, cpus, sizeof(cpus)));
        width = len > width ? len : width;
    }
    fprintf(to, "node  %-*s  cores  group  memory MiB    free MiB  may use       distances\n", width, "CPUs");
    for (int i = 0; i < topo->n_nodes; i++) {
        const struct topology_node * node = &topo->nodes[i];
        node_set_format(&node->cpus, cpus, sizeof(cpus));
        fprintf(to, "%4d  %-*s  %5d  %5d  %10" PRIu64 "  %10" PRIu64 "  %-12s ", node->id, width, cpus[0] ? cpus : "-",
                node_set_count(&node->cores), node->group, node->mem_bytes >> 20, node->free_bytes >> 20, what_is_allowed(node));
        for (int k = 0; k < topo->n_nodes; k++) {
            const int distance = topo->distance[i * topo->n_nodes + k];
            fprintf(to, distance ? " %d" : " ?", distance);
        }
        fputc('\n', to);
    }
}

static void print_id(FILE * to, const char * key, const struct topology * topo, int index) {
    if (index < 0) {
        fprintf(to, ",\"%s\":null", key);
    } else {
        fprintf(to, ",\"%s\":%d", key, topo->nodes[index].id);
    }
}

void numa_list_json_nodes(const struct topology * topo, FILE * to) {
    fputc('[', to);
    for (int i = 0; i < topo->n_nodes; i++) {
        const struct topology_node * node = &topo->nodes[i];
        fprintf(to, "%s{\"node\":%d,\"cpus\":[", i ? "," : "", node->id);
        const char * comma = "";
        for (int cpu = node_set_next(&node->cpus, 0); cpu >= 0; cpu = node_set_next(&node->cpus, cpu + 1)) {
            fprintf(to, "%s%d", comma, cpu);
            comma = ",";
        }
        fprintf(to, "],\"cores\":%d,\"group\":%d,\"memory\":%" PRIu64 ",\"free\":%" PRIu64 ",\"available\":%" PRIu64 ",\"distances\":{",
                node_set_count(&node->cores), node->group, node->mem_bytes, node->free_bytes, node->avail_bytes);
        comma = "";
        for (int k = 0; k < topo->n_nodes; k++) {
            const int distance = topo->distance[i * topo->n_nodes + k];
            if (distance) {
                fprintf(to, "%s\"%d\":%d", comma, topo->nodes[k].id, distance);
                comma = ",";
            }
        }
        fprintf(to, "},\"cpus_allowed\":%s,\"memory_allowed\":%s}", node->cpus_allowed ? "true" : "false",
                node->mem_allowed && node->mem_bytes > 0 ? "true" : "false");
    }
    fputc(']', to);
}

void numa_list_json(const struct topology * topo, FILE * to) {
    fputs("{\"schema\":1,\"nodes\":", to);
    numa_list_json_nodes(topo, to);
    print_id(to, "confined", topo, topology_confined(topo));
    print_id(to, "emptiest", topo, topology_emptiest(topo));
    fputs("}\n", to);
}
