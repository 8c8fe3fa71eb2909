// Start-up, in the order that matters: look at the machine, choose, bind the process, and only then let the program go on.
#include "core.h"
#include "selftest.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct numa_core numa_core;

static const char * environment(const char * name) {
    return getenv(name);
}

static int usage(const char * message) {
    fprintf(stderr, "llamafile-numa: error: %s\n", message);
    return NUMA_NODE_EXIT_USAGE;
}

__attribute__((format(printf, 1, 2))) static void note(const char * format, ...) {
    const size_t used = strlen(numa_core.note);
    va_list args;
    if (used > 0) {
        snprintf(numa_core.note + used, sizeof(numa_core.note) - used, "; ");
    }
    const size_t at = strlen(numa_core.note);
    va_start(args, format);
    vsnprintf(numa_core.note + at, sizeof(numa_core.note) - at, format, args);
    va_end(args);
}

// Bind the process as far as the system lets us, and note what it does not let us.
static void bind_process(void) {
    const struct topology_node * node = &numa_core.topo.nodes[numa_core.choice.node];
    char cpus[96];

    numa_core.cpus_error = numa_core.choice.cpu_node < 0 ? -1 : prim_bind_cpus(&numa_core.cpus);
    node_set_format(&numa_core.cpus, cpus, sizeof(cpus));
    if (numa_core.cpus_error != 0) {
        note("threads are not bound: %s", numa_core.choice.cpu_node < 0 ? "no CPU of any node is allowed" : strerror(-numa_core.cpus_error));
    } else if (numa_core.choice.cpu_node != numa_core.choice.node) {
        note("node %d has no CPUs this process may use, so threads run on the nearest node that has, %d", node->id,
             numa_core.topo.nodes[numa_core.choice.cpu_node].id);
    }
    numa_core.memory_error = prim_bind_memory(node->id, PRIM_PREFERRED);
    if (numa_core.memory_error != 0 && !node->mem_allowed) {
        note("memory of node %d is not allowed to this process; its cpuset.mems must include it", node->id);
    } else if (numa_core.memory_error != 0) {
        note("the memory policy cannot be set (%s), so only the CPUs decide where memory lies%s", strerror(-numa_core.memory_error),
             numa_core.memory_error == -EPERM ? "; a container needs --cap-add SYS_NICE or a seccomp profile that allows "
                                                "set_mempolicy, mbind and move_pages" : "");
    }
}

static void take_choice(void) {
    const struct topology * topo = &numa_core.topo;
    numa_core.node = topo->nodes[numa_core.choice.node].id;
    if (numa_core.choice.cpu_node >= 0) {
        const struct topology_node * at = &topo->nodes[numa_core.choice.cpu_node];
        struct node_set cores = at->cores;
        numa_core.cpus = at->cpus;
        node_set_intersect(&numa_core.cpus, &topo->allowed_cpus);
        node_set_intersect(&cores, &topo->allowed_cpus);
        const int n = node_set_count(&cores);
        numa_core.n_cores = n > 0 ? n : node_set_count(&numa_core.cpus);
    }
    if (numa_core.options.wish == WISH_UNSET && strcmp(numa_core.choice.how, "start-node") == 0) {
        note("the system started this process on node %d, and no --numa-node was given; --numa-node none uses all nodes", numa_core.node);
    }
    bind_process();
    numa_core.available = prim_available(numa_core.node);
}

// Is there a file of this name that has something in it, and is no report?
static bool is_other_file(const char * name) {
    FILE * file     = prim_open(name);
    const int first = file ? fgetc(file) : EOF;
    if (file) {
        fclose(file);
    }
    return first != EOF && first != '{';
}

// A report of an earlier run must not pass for this one's: the file is emptied now, and that it can be written is known
// before a model is loaded.
static int begin_report(void) {
    char message[512];
    const char * name = numa_core.options.report;
    if (!name || strcmp(name, "-") == 0) {
        numa_core.report = name ? stdout : NULL;
        return -1;
    }
    if (is_other_file(name)) { // the model, say; an archive's own arguments may name anything
        snprintf(message, sizeof(message), "--numa-report: %s is there and is no report, so it is left alone; another name is possible", name);
        return usage(message);
    }
    numa_core.report = prim_create(name);
    if (!numa_core.report) {
        snprintf(message, sizeof(message), "--numa-report: cannot write %s: %s; a file name or - is possible", name, strerror(errno));
        return usage(message);
    }
    return -1;
}

// Programs that this one starts (the server's router mode) run on the same node.
static void tell_children(void) {
    static const char * const WEIGHTS[] = { "auto", "map", "copy" };
    char node[16];
    snprintf(node, sizeof(node), "%d", numa_core.node);
    prim_set_env("LLAMA_ARG_NUMA_NODE", node);
    prim_set_env("LLAMA_ARG_NUMA_WEIGHTS", WEIGHTS[numa_core.options.weights]);
    prim_set_env("LLAMA_ARG_NUMA_STRICT", numa_core.options.strict ? "1" : "0");
}

static int selftest(int argc, char ** argv) {
    struct selftest_wish wish;
    char err[512];
    if (selftest_wish_parse(&wish, argc, argv, err, sizeof(err)) != 0) {
        return usage(err);
    }
    const int report = begin_report();
    return report >= 0 ? report : selftest_run(&numa_core.topo, &wish, numa_core.options.json, numa_core.report);
}

int numa_node_start(int * argc, char ** argv) {
    struct numa_options * options = &numa_core.options;
    struct topology * topo        = &numa_core.topo;
    char err[512], here[256], message[1024], why[256];
    int start_node;

    const int parsed = numa_options_parse(options, argc, argv, environment, err, sizeof(err));
    const int known  = prim_topology(topo, &start_node, why, sizeof(why));
    if (parsed != 0) {
        snprintf(message, sizeof(message), "%s; %s", err, known == 0 ? choose_nodes_here(topo, here, sizeof(here)) : why);
        return usage(message);
    }
    if (known != 0) {
        const bool needed = options->list || options->selftest || options->wish == WISH_NUMBER || options->wish == WISH_AUTO;
        return needed ? usage(why) : begin_report();
    }
    if (options->list) {
        (options->json ? numa_list_json : numa_list_print)(topo, stdout);
        return ferror(stdout) || fflush(stdout) != 0 ? 1 : 0;
    }
    if (options->selftest) {
        return selftest(*argc, argv);
    }
    if (options->wish == WISH_UNSET && options->upstream) { // its ways are not ours, so confinement alone changes nothing
        options->wish = WISH_NONE;
    }
    if (choose_node(topo, options, start_node, &numa_core.choice, err, sizeof(err)) != 0) {
        return usage(err);
    }
    const int report = begin_report();
    if (report >= 0 || numa_core.choice.node < 0) {
        return report;
    }
    take_choice();
    tell_children();
    numa_core.active = true;
    return -1;
}

bool numa_node_active(void) {
    return numa_core.active;
}
