// Reads the machine from SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX records. Nodes and cores have the same shape where it
// matters (NUMA_NODE_RELATIONSHIP, PROCESSOR_RELATIONSHIP): a count of groups, and a mask of CPUs for each.
#include "topology_windows.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// LOGICAL_PROCESSOR_RELATIONSHIP. What is asked for as RelationNumaNodeEx comes back as RelationNumaNode; either will do.
enum { RELATION_CORE = 0, RELATION_NODE = 1, RELATION_NODE_EX = 6 };

// Offsets in a record, bytes.
enum {
    AT_RELATION = 0,     // u32
    AT_SIZE     = 4,     // u32, of the whole record
    HEADER      = 8,     // what every record has
    AT_NODE     = 8,     // u32, nodes only
    AT_GROUPS   = 30,    // u16
    AT_MASKS    = 32,    // GROUP_AFFINITY each
    GROUP_SIZE  = 16,    // u64 mask, u16 group, reserved
    AT_GROUP_NUMBER = 8, // in GROUP_AFFINITY
};

enum { MOST_GROUPS = NODE_SET_MAX / WINDOWS_GROUP_CPUS };

// One pass over a buffer.
struct walk {
    const char *          what; // the buffer holds, for messages
    const unsigned char * at;   // the record to come
    size_t                left; // bytes from there on
    char *                err;
    size_t                err_size;
};

static uint32_t u32(const unsigned char * at) {
    uint32_t value;
    memcpy(&value, at, sizeof(value)); // records need not be aligned
    return value;
}

static uint16_t u16(const unsigned char * at) {
    uint16_t value;
    memcpy(&value, at, sizeof(value));
    return value;
}

__attribute__((format(printf, 3, 4)))
static int fail(char * err, size_t err_size, const char * format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(err, err_size, format, args);
    va_end(args);
    return -1;
}

static int senseless(const struct walk * walk, const char * why) {
    return fail(walk->err, walk->err_size, "Windows lists the %s of this machine in a way that makes no sense: %s", walk->what, why);
}

// Step over one record. Returns 1 with it in *record, 0 at the end, -1 where there is no making sense of it.
static int next_record(struct walk * walk, const unsigned char ** record) {
    if (walk->left == 0) {
        return 0;
    }
    if (walk->left < HEADER) {
        return senseless(walk, "a record is cut short");
    }
    const uint32_t size = u32(walk->at + AT_SIZE);
    if (size < HEADER || size > walk->left) {
        return senseless(walk, size < HEADER ? "a record without a size" : "a record that goes past the end");
    }
    *record = walk->at;
    walk->at += size;
    walk->left -= size;
    return 1;
}

static bool is_node(const unsigned char * record) {
    return u32(record) == RELATION_NODE || u32(record) == RELATION_NODE_EX;
}

// Add the CPUs of a node or a core.
static int add_cpus(const struct walk * walk, const unsigned char * record, struct node_set * cpus) {
    const size_t size = u32(record + AT_SIZE);
    if (size < AT_MASKS) {
        return senseless(walk, "a record is cut short");
    }
    const uint16_t count  = u16(record + AT_GROUPS);
    const size_t n_groups = count > 0 ? count : 1; // before build 20348 nodes had one group, and the field was reserved
    if (size < AT_MASKS + n_groups * GROUP_SIZE) {
        return senseless(walk, "a record with more groups than fit into it");
    }
    for (size_t i = 0; i < n_groups; i++) {
        const unsigned char * affinity = record + AT_MASKS + i * GROUP_SIZE;
        const uint16_t group = u16(affinity + AT_GROUP_NUMBER);
        uint64_t mask;
        memcpy(&mask, affinity, sizeof(mask));
        if (group >= MOST_GROUPS) {
            return senseless(walk, "a processor group beyond any there are");
        }
        cpus->word[group] |= mask;
    }
    return 0;
}

static struct walk walk_over(const void * records, size_t size, const char * what, char * err, size_t err_size) {
    return (struct walk) { .what = what, .at = records, .left = records ? size : 0, .err = err, .err_size = err_size };
}

// --- nodes -----------------------------------------------------------------------------------------------------------

static int list_ids(struct walk walk, struct node_set * ids) {
    const unsigned char * record;
    int status;
    while ((status = next_record(&walk, &record)) > 0) {
        if (!is_node(record)) {
            continue;
        }
        if (u32(record + AT_SIZE) < AT_MASKS) {
            return senseless(&walk, "a record is cut short");
        }
        const uint32_t id = u32(record + AT_NODE);
        if (id >= TOPOLOGY_MAX_NODES) {
            return senseless(&walk, "a node number beyond any there are");
        }
        node_set_add(ids, (int) id);
    }
    return status;
}

static int make_nodes(const struct walk * walk, const struct node_set * ids, struct topology * topo) {
    const size_t n = (size_t) node_set_count(ids);
    if (n == 0) {
        return fail(walk->err, walk->err_size, "Windows lists no NUMA node of this machine");
    }
    topo->nodes    = calloc(n, sizeof(*topo->nodes));
    topo->distance = calloc(n * n, sizeof(*topo->distance));
    if (!topo->nodes || !topo->distance) {
        return fail(walk->err, walk->err_size, "out of memory for %d nodes", (int) n);
    }
    for (int id = node_set_next(ids, 0); id >= 0; id = node_set_next(ids, id + 1)) {
        topo->distance[(size_t) topo->n_nodes * (n + 1)] = 10; // to the others Windows does not tell
        topo->nodes[topo->n_nodes++].id = id;
    }
    return 0;
}

static int read_nodes(struct walk walk, struct topology * topo) {
    const unsigned char * record;
    struct node_set ids;
    int status;
    node_set_clear(&ids);
    if (list_ids(walk, &ids) < 0 || make_nodes(&walk, &ids, topo) < 0) {
        return -1;
    }
    while ((status = next_record(&walk, &record)) > 0) {
        if (is_node(record)) {
            const int index = topology_find(topo, (int) u32(record + AT_NODE));
            if (add_cpus(&walk, record, &topo->nodes[index].cpus) < 0) {
                return -1;
            }
        }
    }
    for (int i = 0; i < topo->n_nodes; i++) {
        const int first = node_set_next(&topo->nodes[i].cpus, 0);
        topo->nodes[i].group = first < 0 ? 0 : first / WINDOWS_GROUP_CPUS;
    }
    return status;
}

// --- memory ----------------------------------------------------------------------------------------------------------

// Windows tells what is free on a node, never what is installed there. So the size is an estimate: an equal share for each
// node that has memory, or what is free there if that is more.
static void read_memory(const struct windows_machine * machine, struct topology * topo) {
    uint64_t n_with_memory = 0;
    bool without[TOPOLOGY_MAX_NODES];
    for (int i = 0; i < topo->n_nodes; i++) {
        struct topology_node * node = &topo->nodes[i];
        uint64_t bytes   = 0;
        const bool known = machine->available && machine->available(node->id, &bytes, machine->context);
        without[i]       = known && bytes == 0;
        node->free_bytes = node->avail_bytes = known ? bytes : 0;
        n_with_memory += !without[i];
    }
    for (int i = 0; i < topo->n_nodes; i++) {
        struct topology_node * node = &topo->nodes[i];
        const uint64_t share = without[i] ? 0 : machine->total_bytes / n_with_memory;
        node->mem_bytes   = share > node->free_bytes ? share : node->free_bytes;
        node->mem_allowed = node->mem_bytes > 0;
    }
}

// --- CPUs ------------------------------------------------------------------------------------------------------------

static void read_allowed(const struct windows_machine * machine, struct topology * topo) {
    for (int i = 0; i < topo->n_nodes; i++) {
        for (int group = 0; group < MOST_GROUPS; group++) {
            topo->allowed_cpus.word[group] |= topo->nodes[i].cpus.word[group];
        }
    }
    if (machine->confined) {
        node_set_intersect(&topo->allowed_cpus, &machine->allowed_cpus);
    }
    for (int i = 0; i < topo->n_nodes; i++) {
        struct node_set both = topo->nodes[i].cpus;
        node_set_intersect(&both, &topo->allowed_cpus);
        topo->nodes[i].cpus_allowed = !node_set_empty(&both);
    }
}

// Take the CPUs of one core out of *left; those of them that were in it stand for one core of the node.
static void take_core(const struct node_set * core, const struct topology * topo, struct node_set * left, struct topology_node * node) {
    struct node_set here = *core;
    node_set_intersect(&here, left);
    const int lowest = node_set_next(&here, 0);
    if (lowest < 0) {
        return;
    }
    for (int cpu = lowest; cpu >= 0; cpu = node_set_next(&here, cpu + 1)) {
        node_set_remove(left, cpu);
    }
    node_set_intersect(&here, &topo->allowed_cpus);
    node_set_add(&node->cores, node_set_empty(&here) ? lowest : node_set_next(&here, 0));
}

static int read_cores(struct walk walk, const struct topology * topo, struct topology_node * node) {
    const unsigned char * record;
    struct node_set left = node->cpus;
    int status;
    while ((status = next_record(&walk, &record)) > 0) {
        struct node_set core = { { 0 } };
        if (u32(record) == RELATION_CORE) {
            if (add_cpus(&walk, record, &core) < 0) {
                return -1;
            }
            take_core(&core, topo, &left, node);
        }
    }
    // A CPU that is in no core is one by itself.
    for (int cpu = node_set_next(&left, 0); cpu >= 0; cpu = node_set_next(&left, cpu + 1)) {
        node_set_add(&node->cores, cpu);
    }
    return status;
}

// --- the whole machine -----------------------------------------------------------------------------------------------

static int read_machine(struct topology * topo, const struct windows_machine * machine, char * err, size_t err_size) {
    const struct walk cores = walk_over(machine->cores, machine->cores_size, "cores", err, err_size);
    if (read_nodes(walk_over(machine->numa, machine->numa_size, "NUMA nodes", err, err_size), topo) < 0) {
        return -1;
    }
    read_memory(machine, topo);
    read_allowed(machine, topo);
    for (int i = 0; i < topo->n_nodes; i++) {
        if (read_cores(cores, topo, &topo->nodes[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

int topology_read_windows(struct topology * topo, const struct windows_machine * machine, char * err, size_t err_size) {
    memset(topo, 0, sizeof(*topo));
    if (read_machine(topo, machine, err, err_size) < 0) {
        topology_free(topo);
        return -1;
    }
    return 0;
}
