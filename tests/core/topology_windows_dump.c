// topology_windows_dump NODES CORES TOTAL ALLOWED [NODE=BYTES...]: what topology_read_windows makes of the records in two
// files ("-": the call failed), as JSON. TOTAL: bytes of the machine. ALLOWED: a list of CPUs, or "all". NODE=BYTES: what
// can be had on a node; of others that is not known.
// What makes no sense ends it with exit code 1 and one line "error: ...".
#include "topology_windows.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Memory of exactly the size of the file, so that AddressSanitizer sees a byte too far.
static void * read_file(const char * name, size_t * size) {
    static char text[1 << 20];
    FILE * file = strcmp(name, "-") == 0 ? NULL : fopen(name, "rb");
    *size = 0;
    if (!file) {
        return NULL;
    }
    *size = fread(text, 1, sizeof(text), file);
    fclose(file);
    void * copy = malloc(*size > 0 ? *size : 1);
    return copy ? memcpy(copy, text, *size) : NULL;
}

static bool available(int node, uint64_t * bytes, void * context) {
    for (char ** arg = context; *arg; arg++) {
        int named;
        uint64_t amount;
        if (sscanf(*arg, "%d=%" SCNu64, &named, &amount) == 2 && named == node) {
            *bytes = amount;
            return true;
        }
    }
    return false;
}

static void print_set(const char * name, const struct node_set * set) {
    static char text[1 << 16];
    printf("\"%s\":\"%s\"", name, node_set_format(set, text, sizeof(text)));
}

static void print_node(const struct topology * topo, int index) {
    const struct topology_node * node = &topo->nodes[index];
    printf("%s{\"node\":%d,", index ? "," : "", node->id);
    print_set("cpus", &node->cpus);
    printf(",");
    print_set("cores", &node->cores);
    printf(",\"group\":%d,\"mem_bytes\":%" PRIu64 ",\"free_bytes\":%" PRIu64 ",\"avail_bytes\":%" PRIu64, node->group,
           node->mem_bytes, node->free_bytes, node->avail_bytes);
    printf(",\"cpus_allowed\":%s,\"mem_allowed\":%s,\"distance\":[", node->cpus_allowed ? "true" : "false",
           node->mem_allowed ? "true" : "false");
    for (int i = 0; i < topo->n_nodes; i++) {
        printf("%s%d", i ? "," : "", topo->distance[index * topo->n_nodes + i]);
    }
    printf("]}");
}

int main(int argc, char ** argv) {
    struct topology topo;
    char err[256];
    if (argc < 5) {
        fprintf(stderr, "usage: topology_windows_dump NODES CORES TOTAL ALLOWED [NODE=BYTES...]\n");
        return 2;
    }
    struct windows_machine machine = { .available = available, .context = argv + 5, .total_bytes = strtoull(argv[3], NULL, 10) };
    void * const numa  = read_file(argv[1], &machine.numa_size);
    void * const cores = read_file(argv[2], &machine.cores_size);
    machine.numa     = numa;
    machine.cores    = cores;
    machine.confined = strcmp(argv[4], "all") != 0;
    if (machine.confined && node_set_parse_list(argv[4], strlen(argv[4]), &machine.allowed_cpus) != 0) {
        return 2;
    }
    const int result = topology_read_windows(&topo, &machine, err, sizeof(err));
    free(numa);
    free(cores);
    if (result != 0) {
        fprintf(stderr, "error: %s\n", err);
        return topo.n_nodes == 0 && !topo.nodes && !topo.distance ? 1 : 3;
    }
    printf("{\"nodes\":[");
    for (int i = 0; i < topo.n_nodes; i++) {
        print_node(&topo, i);
    }
    printf("],");
    print_set("allowed_cpus", &topo.allowed_cpus);
    printf(",\"confined\":%d,\"emptiest\":%d}\n", topology_confined(&topo), topology_emptiest(&topo));
    topology_free(&topo);
    return 0;
}
