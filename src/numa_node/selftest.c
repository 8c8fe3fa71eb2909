// --numa-selftest: what is asked, in which order.
#include "core.h"
#include "selftest.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define ENOUGH_MS 45000.0 // after this nothing new is begun

void selftest_not_asked(struct selftest_answer * answer, const char * format, ...) {
    va_list args;
    va_start(args, format);
    answer->word = "";
    vsnprintf(answer->reason, sizeof(answer->reason), format, args);
    va_end(args);
}

void selftest_progress(const char * format, ...) {
    static double start;
    const double now = prim_now_ms();
    va_list args;
    start = start > 0 ? start : now;
    va_start(args, format);
    fprintf(stderr, "selftest, %2.0f s: ", (now - start) / 1e3);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    fflush(stderr);
    va_end(args);
}

bool selftest_late(const struct selftest * test) {
    return prim_now_ms() > test->deadline;
}

struct node_set selftest_cores(const struct topology * topo, int node) {
    struct node_set cores = topo->nodes[node].cores;
    node_set_intersect(&cores, &topo->allowed_cpus);
    if (node_set_empty(&cores)) {
        cores = topo->nodes[node].cpus;
        node_set_intersect(&cores, &topo->allowed_cpus);
    }
    return cores;
}

bool selftest_usable(const struct topology * topo, int node) {
    return topo->nodes[node].cpus_allowed && topo->nodes[node].mem_allowed && topo->nodes[node].mem_bytes > 0;
}

// --- what was asked for ---

int selftest_wish_parse(struct selftest_wish * wish, int argc, char ** argv, char * err, size_t err_size) {
    memset(wish, 0, sizeof(*wish));
    for (int i = 1; i < argc; i++) {
        const bool model = strcmp(argv[i], "-m") == 0 || strcmp(argv[i], "--model") == 0;
        if (model && (i + 1 >= argc || !*argv[i + 1])) {
            snprintf(err, err_size, "%s needs a value: a GGUF file", argv[i]);
            return -1;
        }
        if (model) {
            wish->path = argv[++i];
        } else if (strcmp(argv[i], "--json") != 0) {
            snprintf(err, err_size, "--numa-selftest does not take '%s'; -m model.gguf, --json and --numa-report FILE are possible", argv[i]);
            return -1;
        }
    }
    const int result = wish->path ? selftest_model_read(wish->path, &wish->model, err, err_size) : 0;
    for (; result != 0 && *err; err++) { // a path may hold line breaks; a message is one line
        *err = (unsigned char) *err < ' ' || *err == 0x7f ? '?' : *err;
    }
    return result;
}

// --- 4: CPU sets ---

const char * selftest_sets_moved(const struct selftest_cpu_sets * sets) {
    const bool main = sets->main_after != sets->main_before && node_set_has(&sets->cpus, sets->main_after);
    const bool new_ = sets->ideal_after == sets->threads && sets->ideal_before < sets->threads;
    return main ? (new_ ? "main and new threads" : "main thread") : new_ ? "new threads" : "neither";
}

static void ask_cpu_sets(struct selftest * test) {
    struct selftest_cpu_sets * sets = &test->cpu_sets;
    selftest_cpu_sets(test->topo, sets);
    if (sets->reason[0]) {
        selftest_not_asked(&test->sets, "%s", sets->reason);
    } else if (sets->threads == 0 || sets->main_before < 0 || sets->main_after < 0) {
        selftest_not_asked(&test->sets, "the system does not tell ideal processors");
    } else if (sets->ran_after < sets->threads) {
        selftest_not_asked(&test->sets, "the CPU set was not kept: %d of %d new threads ran in it", sets->ran_after, sets->threads);
    } else {
        test->sets.word = selftest_sets_moved(sets);
    }
}

// --- 5: large pages ---

const char * selftest_large_seen(const struct selftest_large * large) {
    const uint64_t resident = large->seen.on_node + large->seen.elsewhere;
    return resident == large->seen.checked ? "seen" : resident == 0 ? "hidden" : "partly";
}

struct large_errand {
    int                   kind, node;
    struct selftest_large large;
    bool                  more;
};

static void take_large(void * context) {
    struct large_errand * errand = context;
    prim_bind_memory(errand->node, PRIM_PREFERRED); // where it is refused, memory comes from where the thread runs
    errand->more = selftest_large(errand->kind, errand->node, &errand->large);
}

// On the last node: its number is the least likely to be there by chance.
static void ask_large(struct selftest * test) {
    int node = -1;
    for (int i = 0; i < test->topo->n_nodes; i++) {
        node = selftest_usable(test->topo, i) ? i : node;
    }
    if (node < 0) {
        selftest_not_asked(&test->large, "no node has CPUs and memory that this process may use");
        return;
    }
    const struct node_set cores = selftest_cores(test->topo, node);
    for (int kind = 0; kind < SELFTEST_ROWS; kind++) {
        struct large_errand errand  = { .kind = kind, .node = test->topo->nodes[node].id };
        struct selftest_crew * crew = selftest_crew_start(&cores, 1, take_large, &errand);
        if (!crew || (selftest_crew_join(crew), !errand.more)) {
            break;
        }
        test->larges[test->n_larges++] = errand.large;
        if (errand.large.reason[0] && !*test->large.word && !test->large.reason[0]) {
            selftest_not_asked(&test->large, "%s: %s", errand.large.kind, errand.large.reason);
        } else if (!errand.large.reason[0] && !*test->large.word) {
            test->large = (struct selftest_answer) { .word = selftest_large_seen(&errand.large) };
        }
    }
}

// --- all ---

static bool printed(FILE * to) {
    return fflush(to) == 0 && !ferror(to);
}

static bool tell(const struct selftest * test, bool json, FILE * report) {
    (json || report == stdout ? selftest_json : selftest_print)(test, stdout);
    if (report && report != stdout) {
        selftest_json(test, report);
    }
    if (printed(stdout) && (!report || printed(report))) {
        return true;
    }
    fprintf(stderr, "llamafile-numa: error: what was found cannot be written\n");
    return false;
}

static bool measured(const struct selftest * test) {
    for (int i = 0; i < test->n_nodes * test->n_nodes; i++) {
        if (test->cells[i].gb_per_s > 0) {
            return true;
        }
    }
    fprintf(stderr, "llamafile-numa: error: no bandwidth could be measured; the reasons are among what was printed\n");
    return false;
}

// CPU sets come first, while no thread of ours has been bound; files last, as disks are slow.
static void ask_all(struct selftest * test, const struct selftest_wish * wish) {
    const double begin = prim_now_ms();
    test->deadline     = begin + ENOUGH_MS;
    selftest_system(test->system, sizeof(test->system), test->cpu, sizeof(test->cpu));
    ask_cpu_sets(test);
    selftest_bandwidth(test);
    ask_large(test);
    selftest_files(test, wish->path);
    test->seconds = (prim_now_ms() - begin) / 1e3;
}

int selftest_run(const struct topology * topo, const struct selftest_wish * wish, bool json, FILE * report) {
    const int n = topo->n_nodes < SELFTEST_NODES ? topo->n_nodes : SELFTEST_NODES;
    struct selftest * test = calloc(1, sizeof(*test));
    struct selftest_cell * cells = calloc((size_t) (n * n), sizeof(*cells));
    int code = 1;
    if (!test || !cells) {
        fprintf(stderr, "llamafile-numa: error: out of memory\n");
    } else {
        *test = (struct selftest) {
            .topo = topo, .cells = cells, .n_nodes = n, .file = "", .has_model = wish->path != NULL, .model = wish->model,
            .prefetch = { .word = "" }, .cached = { .word = "" }, .unbuffered = { .word = "" }, .sets = { .word = "" }, .large = { .word = "" },
        };
        ask_all(test, wish);
        code = tell(test, json, report) && measured(test) ? 0 : 1;
    }
    free(cells);
    free(test);
    return code;
}
