// Reads the machine from the files the kernel writes: Linux Documentation/ABI/stable/sysfs-devices-node,
// Documentation/admin-guide/cputopology.rst, proc_pid_status(5).
//
// Only the look at our own affinity needs Linux; the rest reads recorded machines on any OS.
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE // sched_getaffinity
#endif

#include "topology.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __linux__
#include <sched.h>
#endif

#define NODES "sys/devices/system/node"
#define CPUS  "sys/devices/system/cpu"

// What reading one thing can come to. ABSENT: there is no such file or line, which the caller has to judge.
enum { FAILED = -1, ABSENT = 0, FOUND = 1 };

enum {
    PATH_SIZE = 4096,
    TEXT_SIZE = 1 << 20, // a status file lists up to 65536 supplementary groups
};

struct reader {
    const char * root;
    char         path[PATH_SIZE]; // of the file read last
    char *       text;            // its content: less than TEXT_SIZE bytes without NUL, and a NUL
    size_t       len;
    char *       err;
    size_t       err_size;
};

// What holds for the whole machine.
struct machine {
    struct node_set nodes;
    struct node_set possible_nodes;
    struct node_set memory_nodes;  // nodes that the kernel counts among those with memory
    struct node_set online_cpus;
    struct node_set allowed_nodes; // this process may take memory there
};

__attribute__((format(printf, 2, 3)))
static int fail(const struct reader * r, const char * format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(r->err, r->err_size, format, args);
    va_end(args);
    return FAILED;
}

static int fail_file(const struct reader * r, const char * reason) {
    return fail(r, "%s: %s", r->path, reason);
}

// --- files -----------------------------------------------------------------------------------------------------------

static int set_path(struct reader * r, const char * format, va_list args) {
    int len = snprintf(r->path, PATH_SIZE, "%s/", r->root);
    if (len < PATH_SIZE) {
        len += vsnprintf(r->path + len, (size_t) (PATH_SIZE - len), format, args);
    }
    return len < PATH_SIZE ? FOUND : fail(r, "%.60s...: this path is too long", r->root);
}

static int absent_or_fail(const struct reader * r) {
    return errno == ENOENT || errno == ENOTDIR ? ABSENT : fail_file(r, strerror(errno));
}

static int read_file_at(struct reader * r, const char * format, va_list args) {
    if (set_path(r, format, args) < 0) {
        return FAILED;
    }
    FILE * file = fopen(r->path, "rb");
    if (!file) {
        return absent_or_fail(r);
    }
    r->len = fread(r->text, 1, TEXT_SIZE, file);
    const int error = ferror(file) ? errno : 0;
    fclose(file);
    if (error) {
        return fail_file(r, strerror(error));
    }
    if (r->len == TEXT_SIZE) {
        return fail_file(r, "longer than any file of this kind");
    }
    r->text[r->len] = '\0';
    while (r->len > 0 && r->text[r->len - 1] == '\0') { // old kernels write some behind a value
        r->len--;
    }
    return strlen(r->text) == r->len ? FOUND : fail_file(r, "not a text");
}

__attribute__((format(printf, 2, 3)))
static int read_file(struct reader * r, const char * format, ...) {
    va_list args;
    va_start(args, format);
    const int status = read_file_at(r, format, args);
    va_end(args);
    return status;
}

static int parse_list(const struct reader * r, const char * text, size_t len, struct node_set * set) {
    return node_set_parse_list(text, len, set) == 0 ? FOUND : fail_file(r, "not a list of numbers like 0-3,8");
}

__attribute__((format(printf, 3, 4)))
static int read_list(struct reader * r, struct node_set * set, const char * format, ...) {
    va_list args;
    va_start(args, format);
    const int status = read_file_at(r, format, args);
    va_end(args);
    return status == FOUND ? parse_list(r, r->text, r->len, set) : status;
}

__attribute__((format(printf, 3, 4)))
static int read_mask(struct reader * r, struct node_set * set, const char * format, ...) {
    va_list args;
    va_start(args, format);
    const int status = read_file_at(r, format, args);
    va_end(args);
    if (status == FOUND && node_set_parse_mask(r->text, r->len, set) != 0) {
        return fail_file(r, "not a mask like ff,ffffffff");
    }
    return status;
}

// Add NUMBER of every folder prefixNUMBER below path.
static int list_folders(struct reader * r, const char * path, const char * prefix, struct node_set * numbers) {
    if (snprintf(r->path, PATH_SIZE, "%s/%s", r->root, path) >= PATH_SIZE) {
        return fail(r, "%.60s...: this path is too long", r->root);
    }
    DIR * folder = opendir(r->path);
    if (!folder) {
        return absent_or_fail(r);
    }
    for (const struct dirent * entry; (entry = readdir(folder));) {
        const char * number = entry->d_name + strlen(prefix);
        struct node_set one;
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 && *number
            && node_set_parse_list(number, strlen(number), &one) == 0 && node_set_count(&one) == 1) {
            node_set_add(numbers, node_set_next(&one, 0));
        }
    }
    closedir(folder);
    return FOUND;
}

// --- lines of files --------------------------------------------------------------------------------------------------

// Lines of nodeN/meminfo start with "Node N ".
static const char * skip_node(const char * line) {
    if (strncmp(line, "Node ", 5) != 0) {
        return line;
    }
    line += 5;
    line += strspn(line, "0123456789");
    return line + strspn(line, " ");
}

// The value of "KEY: value" in the file read last, without white space before it.
static const char * find_value(const struct reader * r, const char * key) {
    const size_t key_len = strlen(key);
    for (const char * line = r->text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char * name = skip_node(line);
        if (strncmp(name, key, key_len) == 0 && name[key_len] == ':') {
            const char * value = name + key_len + 1;
            return value + strspn(value, " \t");
        }
    }
    return NULL;
}

static int read_list_line(const struct reader * r, const char * key, struct node_set * set) {
    const char * value = find_value(r, key);
    return value ? parse_list(r, value, strcspn(value, "\n"), set) : ABSENT;
}

// "  1234 kB" in bytes; 0 where there is no such line.
static int read_kib_line(const struct reader * r, const char * key, uint64_t * bytes) {
    const uint64_t most = UINT64_C(1) << 50; // sums of a few of them stay within 64 bits
    const char * value  = find_value(r, key);
    *bytes = 0;
    if (!value) {
        return ABSENT;
    }
    char * end;
    const unsigned long long kib = strtoull(value, &end, 10);
    if (*value < '0' || *value > '9' || strncmp(end, " kB", 3) != 0 || kib > most) {
        return fail(r, "%s: %s is not a number of kB", r->path, key);
    }
    *bytes = (uint64_t) kib * 1024;
    return FOUND;
}

// --- nodes -----------------------------------------------------------------------------------------------------------

// From the meminfo read last.
static int read_memory(const struct reader * r, struct topology_node * node) {
    uint64_t active, inactive, slab;
    const int total = read_kib_line(r, "MemTotal", &node->mem_bytes);
    if (total == ABSENT) {
        return fail_file(r, "has no MemTotal");
    }
    if (total < 0 || read_kib_line(r, "MemFree", &node->free_bytes) < 0 || read_kib_line(r, "Active(file)", &active) < 0
        || read_kib_line(r, "Inactive(file)", &inactive) < 0 || read_kib_line(r, "SReclaimable", &slab) < 0) {
        return FAILED;
    }
    node->avail_bytes = node->free_bytes + active + inactive + slab / 2;
    return FOUND;
}

// The CPUs of a node, by list or (old kernels) by mask only.
static int read_node_cpus(struct reader * r, struct topology_node * node) {
    const int status = read_list(r, &node->cpus, NODES "/node%d/cpulist", node->id);
    return status == ABSENT ? read_mask(r, &node->cpus, NODES "/node%d/cpumap", node->id) : status;
}

static int read_node(struct reader * r, const struct machine * machine, struct topology_node * node) {
    if (read_node_cpus(r, node) < 0) {
        return FAILED;
    }
    const int meminfo = read_file(r, NODES "/node%d/meminfo", node->id);
    if (meminfo < 0 || (meminfo == FOUND && read_memory(r, node) < 0)) {
        return FAILED;
    }
    if (!node_set_has(&machine->memory_nodes, node->id)) {
        node->mem_bytes = node->free_bytes = node->avail_bytes = 0;
    }
    return FOUND;
}

// A kernel without NUMA: one node that has everything.
static int read_only_node(struct reader * r, const struct machine * machine, struct topology * topo) {
    topo->nodes[0].cpus = machine->online_cpus;
    topo->distance[0]   = 10;
    const int meminfo = read_file(r, "proc/meminfo");
    return meminfo == FOUND ? read_memory(r, &topo->nodes[0]) : meminfo;
}

// The numbers of a distance file: *count of them, at most `most`.
static int read_numbers(struct reader * r, int * numbers, int most, int * count) {
    char * at = r->text;
    for (*count = 0; *(at += strspn(at, " \n")); (*count)++) {
        char * end;
        const long number = strtol(at, &end, 10);
        if (*count == most || end == at || !strchr(" \n", *end) || number < 0 || number > 65535) {
            return fail_file(r, "not a row of distances like 10 21");
        }
        numbers[*count] = (int) number;
        at = end;
    }
    return FOUND;
}

// One row of the table. The kernel writes a column for each online node; in a recorded machine whose nodes were taken
// offline it can be each possible node. A row that is neither stays unknown.
static int read_distances(struct reader * r, const struct machine * machine, const struct topology * topo, int from) {
    int numbers[TOPOLOGY_MAX_NODES];
    int count;
    const int status = read_file(r, NODES "/node%d/distance", topo->nodes[from].id);
    if (status != FOUND || read_numbers(r, numbers, TOPOLOGY_MAX_NODES, &count) < 0) {
        return status == FOUND ? FAILED : status;
    }
    int * row = topo->distance + (size_t) from * (size_t) topo->n_nodes;
    if (count == topo->n_nodes) {
        memcpy(row, numbers, (size_t) count * sizeof(*row));
    } else if (count == node_set_count(&machine->possible_nodes)) {
        int column = 0;
        for (int id = node_set_next(&machine->possible_nodes, 0); id >= 0;
             id = node_set_next(&machine->possible_nodes, id + 1), column++) {
            const int to = topology_find(topo, id);
            if (to >= 0) {
                row[to] = numbers[column];
            }
        }
    }
    return FOUND;
}

// --- the whole machine -----------------------------------------------------------------------------------------------

// Nodes that are online and have a folder. Old kernels do not say which are online: those with a folder.
static int read_node_sets(struct reader * r, struct machine * machine) {
    struct node_set online;
    int status;
    if (list_folders(r, NODES, "node", &machine->nodes) < 0 || (status = read_list(r, &online, NODES "/online")) < 0) {
        return FAILED;
    }
    if (status == FOUND) {
        node_set_intersect(&machine->nodes, &online);
    }
    if (node_set_next(&machine->nodes, TOPOLOGY_MAX_NODES) >= 0) {
        return fail(r, "%s/" NODES ": node numbers above %d", r->root, TOPOLOGY_MAX_NODES - 1);
    }
    if (read_list(r, &machine->possible_nodes, NODES "/possible") < 0) {
        return FAILED;
    }
    status = read_list(r, &machine->memory_nodes, NODES "/has_memory");
    if (status == ABSENT) { // has_memory came with nodes whose memory is all movable; before, this was the whole answer
        status = read_list(r, &machine->memory_nodes, NODES "/has_normal_memory");
    }
    if (status == ABSENT) {
        machine->memory_nodes = machine->nodes;
    }
    return status < 0 ? FAILED : FOUND;
}

#ifdef __linux__
static int own_affinity(struct node_set * cpus) {
    cpu_set_t mask[NODE_SET_MAX / CPU_SETSIZE]; // for as many CPUs as any kernel has: a shorter one is refused there
    if (sched_getaffinity(0, sizeof(mask), mask) != 0) {
        return ABSENT;
    }
    for (int cpu = 0; cpu < NODE_SET_MAX; cpu++) {
        if (CPU_ISSET_S((size_t) cpu, sizeof(mask), mask)) {
            node_set_add(cpus, cpu);
        }
    }
    return FOUND;
}
#else
static int own_affinity(struct node_set * cpus) {
    (void) cpus;
    return ABSENT;
}
#endif

static bool is_this_machine(const struct reader * r) {
    return r->root[0] == '\0';
}

static void add_all(struct node_set * set, const struct node_set * other) {
    for (int i = node_set_next(other, 0); i >= 0; i = node_set_next(other, i + 1)) {
        node_set_add(set, i);
    }
}

// By cpu/online; else (old kernels) what the nodes list, else the CPU folders. What we may run on is online in any
// case: containers can show a made-up range (lxcfs) or nothing.
static int read_online_cpus(struct reader * r, const struct topology * topo, struct node_set * online) {
    const int status = read_list(r, online, CPUS "/online");
    if (status < 0) {
        return FAILED;
    }
    for (int i = 0; status == ABSENT && i < topo->n_nodes; i++) {
        add_all(online, &topo->nodes[i].cpus);
    }
    if (node_set_empty(online) && list_folders(r, CPUS, "cpu", online) < 0) {
        return FAILED;
    }
    if (is_this_machine(r)) {
        own_affinity(online);
    }
    return node_set_empty(online) ? fail(r, "%s/" CPUS ": no CPUs found", r->root) : FOUND;
}

// What this process may use. The status file is that of the main thread, so our own affinity beats it.
static int read_allowed(struct reader * r, struct machine * machine, struct node_set * cpus) {
    int has_cpus = is_this_machine(r) ? own_affinity(cpus) : ABSENT;
    int has_mems = ABSENT;
    const int status = read_file(r, "proc/self/status");
    if (status == FOUND) {
        has_mems = read_list_line(r, "Mems_allowed_list", &machine->allowed_nodes);
        has_cpus = has_cpus == FOUND ? FOUND : read_list_line(r, "Cpus_allowed_list", cpus);
    }
    if (status < 0 || has_mems < 0 || has_cpus < 0) {
        return FAILED;
    }
    if (has_mems == ABSENT) {
        machine->allowed_nodes = machine->nodes;
    }
    if (has_cpus == ABSENT) {
        *cpus = machine->online_cpus;
    }
    node_set_intersect(cpus, &machine->online_cpus);
    return FOUND;
}

// The CPUs of one physical core by the names they had over the years; none where the kernel does not say.
static int read_siblings(struct reader * r, int cpu, struct node_set * siblings) {
    int status = read_list(r, siblings, CPUS "/cpu%d/topology/core_cpus_list", cpu);
    if (status == ABSENT) {
        status = read_list(r, siblings, CPUS "/cpu%d/topology/thread_siblings_list", cpu);
    }
    return status == ABSENT ? read_mask(r, siblings, CPUS "/cpu%d/topology/thread_siblings", cpu) : status;
}

static int read_cores(struct reader * r, const struct machine * machine, const struct node_set * allowed,
                      struct topology_node * node) {
    struct node_set left = node->cpus;
    node_set_intersect(&left, &machine->online_cpus);
    for (int cpu; (cpu = node_set_next(&left, 0)) >= 0;) {
        struct node_set core = { 0 };
        if (read_siblings(r, cpu, &core) < 0) {
            return FAILED;
        }
        node_set_add(&core, cpu);
        node_set_intersect(&core, &left);
        for (int i = cpu; i >= 0; i = node_set_next(&core, i + 1)) {
            node_set_remove(&left, i);
        }
        node_set_intersect(&core, allowed);
        node_set_add(&node->cores, node_set_empty(&core) ? cpu : node_set_next(&core, 0));
    }
    return FOUND;
}

static bool intersects(const struct node_set * a, const struct node_set * b) {
    struct node_set both = *a;
    node_set_intersect(&both, b);
    return !node_set_empty(&both);
}

static int make_nodes(const struct reader * r, const struct node_set * ids, struct topology * topo) {
    const size_t n = (size_t) node_set_count(ids);
    topo->nodes    = calloc(n, sizeof(*topo->nodes));
    topo->distance = calloc(n * n, sizeof(*topo->distance));
    if (!topo->nodes || !topo->distance) {
        return fail(r, "out of memory for %d nodes", (int) n);
    }
    for (int id = node_set_next(ids, 0); id >= 0; id = node_set_next(ids, id + 1)) {
        topo->nodes[topo->n_nodes++].id = id;
    }
    return FOUND;
}

static int read_nodes(struct reader * r, const struct machine * machine, struct topology * topo) {
    for (int i = 0; i < topo->n_nodes; i++) {
        if (read_node(r, machine, &topo->nodes[i]) < 0 || read_distances(r, machine, topo, i) < 0) {
            return FAILED;
        }
    }
    return FOUND;
}

static int read_machine(struct reader * r, struct machine * machine, struct topology * topo) {
    if (read_node_sets(r, machine) < 0) {
        return FAILED;
    }
    const bool numa = !node_set_empty(&machine->nodes);
    if (!numa) {
        node_set_add(&machine->nodes, 0);
    }
    if (make_nodes(r, &machine->nodes, topo) < 0 || (numa && read_nodes(r, machine, topo) < 0)
        || read_online_cpus(r, topo, &machine->online_cpus) < 0
        || (!numa && read_only_node(r, machine, topo) < 0)
        || read_allowed(r, machine, &topo->allowed_cpus) < 0) {
        return FAILED;
    }
    for (int i = 0; i < topo->n_nodes; i++) {
        struct topology_node * node = &topo->nodes[i];
        if (read_cores(r, machine, &topo->allowed_cpus, node) < 0) {
            return FAILED;
        }
        node->cpus_allowed = intersects(&node->cpus, &topo->allowed_cpus);
        node->mem_allowed  = node->mem_bytes > 0 && node_set_has(&machine->allowed_nodes, node->id);
    }
    return FOUND;
}

int topology_read_linux(struct topology * topo, const char * root, char * err, size_t err_size) {
    struct machine machine = { 0 };
    struct reader r = { .root = root, .text = malloc(TEXT_SIZE), .err = err, .err_size = err_size };
    memset(topo, 0, sizeof(*topo));
    const int status = r.text ? read_machine(&r, &machine, topo) : fail(&r, "out of memory");
    free(r.text);
    if (status < 0) {
        topology_free(topo);
        return -1;
    }
    return 0;
}
