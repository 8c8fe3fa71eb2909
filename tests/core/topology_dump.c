// topology_dump ROOT [NODE...]: what topology_read_linux reads below ROOT, as JSON; "find": the index of each NODE.
// What cannot be read ends it with exit code 1 and one line "error: ...".
#include "topology.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void print_set(const char * name, const struct node_set * set) {
    const char * separator = "";
    printf("\"%s\":[", name);
    for (int i = node_set_next(set, 0); i >= 0; i = node_set_next(set, i + 1)) {
        printf("%s%d", separator, i);
        separator = ",";
    }
    printf("]");
}

static void print_ints(const char * name, const int * numbers, int count) {
    printf("\"%s\":[", name);
    for (int i = 0; i < count; i++) {
        printf("%s%d", i ? "," : "", numbers[i]);
    }
    printf("]");
}

static void print_node(const struct topology * topo, int index) {
    const struct topology_node * node = &topo->nodes[index];
    printf("{\"node\":%d,", node->id);
    print_set("cpus", &node->cpus);
    printf(",");
    print_set("cores", &node->cores);
    printf(",\"group\":%d,\"mem_bytes\":%" PRIu64 ",\"free_bytes\":%" PRIu64 ",\"avail_bytes\":%" PRIu64, node->group,
           node->mem_bytes, node->free_bytes, node->avail_bytes);
    printf(",\"cpus_allowed\":%s,\"mem_allowed\":%s,", node->cpus_allowed ? "true" : "false",
           node->mem_allowed ? "true" : "false");
    print_ints("distance", topo->distance + (size_t) index * (size_t) topo->n_nodes, topo->n_nodes);
    printf(",\"nearest_cpus\":%d}", topology_nearest_cpus(topo, index));
}

int main(int argc, char ** argv) {
    struct topology topo;
    char err[256];
    if (argc < 2) {
        fprintf(stderr, "usage: topology_dump ROOT [NODE...]\n");
        return 2;
    }
    if (topology_read_linux(&topo, argv[1], err, sizeof(err)) != 0) {
        fprintf(stderr, "error: %s\n", err);
        return topo.n_nodes == 0 && !topo.nodes && !topo.distance ? 1 : 3;
    }
    printf("{\"nodes\":[");
    for (int i = 0; i < topo.n_nodes; i++) {
        printf("%s", i ? "," : "");
        print_node(&topo, i);
    }
    printf("],");
    print_set("allowed_cpus", &topo.allowed_cpus);
    printf(",\"confined\":%d,\"emptiest\":%d,\"find\":[", topology_confined(&topo), topology_emptiest(&topo));
    for (int i = 2; i < argc; i++) {
        printf("%s%d", i > 2 ? "," : "", topology_find(&topo, atoi(argv[i])));
    }
    printf("]}\n");
    topology_free(&topo);
    return 0;
}
