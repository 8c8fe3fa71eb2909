// What was asked for against what is seen. No line or field here says more than the pages and threads themselves did.
#include "core.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char * const USES[NUMA_NODE_USES] = {
    [NUMA_NODE_OTHER] = "other", [NUMA_NODE_WEIGHTS] = "weights", [NUMA_NODE_REPACK] = "repack",
    [NUMA_NODE_KV] = "kv", [NUMA_NODE_COMPUTE] = "compute",
};
// In the order people read them.
static const enum numa_node_use ORDER[] = { NUMA_NODE_WEIGHTS, NUMA_NODE_REPACK, NUMA_NODE_KV, NUMA_NODE_COMPUTE, NUMA_NODE_OTHER };
enum { N_ORDER = sizeof(ORDER) / sizeof(ORDER[0]) };

struct verdict {
    struct numa_sight sight[NUMA_NODE_USES];
    const char *      policy;
    char              note[1024];
    int               workers, bound;
    double            look_ms;
    bool              ok;
};

static void add_note(struct verdict * verdict, const char * text) {
    const size_t used = strlen(verdict->note);
    snprintf(verdict->note + used, sizeof(verdict->note) - used, "%s%s", used ? "; " : "", text);
}

static const char * policy_held(void) {
    const bool bound = prim_binds() && numa_unfit() == 0 && numa_region_error() == 0 && numa_core.available > 0;
    return numa_core.memory_error == 0 ? (bound ? "bind" : "preferred") : numa_core.cpus_error == 0 ? "cpus-only" : "none";
}

static void judge(struct verdict * verdict) {
    char text[256];
    bool coarse = false;
    memset(verdict, 0, sizeof(*verdict));
    add_note(verdict, numa_core.note);

    const double begin = prim_now_ms();
    const int error    = numa_region_look(verdict->sight, &coarse);
    verdict->look_ms   = prim_now_ms() - begin;
    numa_worker_count(&verdict->workers, &verdict->bound);

    uint64_t elsewhere = 0, large = 0;
    for (int i = 0; i < NUMA_NODE_USES; i++) {
        elsewhere += verdict->sight[i].pages.elsewhere;
        large += verdict->sight[i].pages.large;
    }
    verdict->policy = policy_held();
    verdict->ok     = error == 0 && elsewhere == 0 && verdict->workers == verdict->bound && verdict->bound > 0;

    if (numa_unfit() > 0) {
        snprintf(text, sizeof(text), "%" PRIu64 " MiB did not fit beside what was there: %" PRIu64 " MiB could be had on node %d at start",
                 numa_unfit() >> 20, numa_core.available >> 20, numa_core.node);
        add_note(verdict, text);
    }
    if (numa_core.memory_error == 0 && numa_region_error() != 0) {
        snprintf(text, sizeof(text), "a buffer could not be given to the node: %s", strerror(-numa_region_error()));
        add_note(verdict, text);
    }
    if (large > 0) {
        snprintf(text, sizeof(text), "%" PRIu64 " of the pages that were looked at are parts of large pages", large);
        add_note(verdict, text);
    }
    if (error != 0) {
        snprintf(text, sizeof(text), "pages could not be looked at: %s", strerror(-error));
        add_note(verdict, text);
    } else if (coarse) {
        add_note(verdict, "pages were counted from numa_maps, whole mappings: move_pages is not permitted, or hides pages where no policy holds");
    }
}

static void print_text(const struct verdict * verdict, FILE * to) {
    char cpus[96];
    node_set_format(&numa_core.cpus, cpus, sizeof(cpus));
    fprintf(to, "NUMA node %d: %s (node chosen by: %s)\n", numa_core.node,
            verdict->ok ? "everything that was looked at is on the node" : "NOT everything is on the node", numa_core.choice.how);
    fprintf(to, "  %-8s  %10s  %8s  %8s  %9s  %12s\n", "region", "size", "pages", "on node", "elsewhere", "not resident");
    for (int i = 0; i < N_ORDER; i++) {
        const struct numa_sight * sight = &verdict->sight[ORDER[i]];
        const double pages = (double) sight->pages.checked / 100.0;
        if (sight->pages.checked > 0) {
            fprintf(to, "  %-8s  %6.1f MiB  %8" PRIu64 "  %6.1f %%  %7.1f %%  %10.1f %%\n", USES[ORDER[i]], (double) sight->bytes / 1048576.0,
                    sight->pages.checked, (double) sight->pages.on_node / pages, (double) sight->pages.elsewhere / pages,
                    (double) sight->pages.not_resident / pages);
        }
    }
    fprintf(to, "  threads   %d of %d on CPUs %s\n", verdict->bound, verdict->workers, cpus);
    fprintf(to, "  weights   %s; memory policy %s; looked for %.0f ms\n", numa_weights_mode(), verdict->policy, verdict->look_ms);
    if (verdict->note[0]) {
        fprintf(to, "  note      %s\n", verdict->note);
    }
    fflush(to);
}

static void write_json(const struct verdict * verdict, struct numa_text * to) {
    numa_text_add(to, "{\"schema\":1,\"requested\":");
    numa_text_json(to, numa_core.options.requested);
    if (numa_core.active) {
        numa_text_add(to, ",\"node\":%d", numa_core.node);
    } else {
        numa_text_add(to, ",\"node\":null");
    }
    numa_text_add(to, ",\"how\":\"%s\",\"policy\":\"%s\",\"policy_note\":", numa_core.active ? numa_core.choice.how : "", verdict->policy);
    numa_text_json(to, verdict->note);
    numa_text_add(to, ",\"weights_mode\":%s%s%s", numa_core.active ? "\"" : "", numa_core.active ? numa_weights_mode() : "null",
                  numa_core.active ? "\"" : "");
    numa_text_add(to, ",\"threads\":{\"workers\":%d,\"bound\":%d},\"regions\":[", verdict->workers, verdict->bound);
    const char * comma = "";
    for (int i = 0; i < N_ORDER; i++) {
        const struct numa_sight * sight = &verdict->sight[ORDER[i]];
        if (sight->bytes > 0) {
            numa_text_add(to, "%s{\"name\":\"%s\",\"bytes\":%" PRIu64 ",\"checked\":%" PRIu64 ",\"on_node\":%" PRIu64
                          ",\"elsewhere\":%" PRIu64 ",\"not_resident\":%" PRIu64 "}", comma, USES[ORDER[i]], sight->bytes,
                          sight->pages.checked, sight->pages.on_node, sight->pages.elsewhere, sight->pages.not_resident);
            comma = ",";
        }
    }
    numa_text_add(to, "],\"look_ms\":%.3f,\"ok\":%s}\n", verdict->look_ms, !numa_core.active ? "null" : verdict->ok ? "true" : "false");
}

static void write_metrics(const struct verdict * verdict, struct numa_text * to) {
    static const char NAME[] = "llamafile_numa_pages";
    numa_text_add(to, "# HELP %s Pages looked at once the model was loaded, by where they are.\n# TYPE %s gauge\n", NAME, NAME);
    for (int i = 0; i < N_ORDER; i++) {
        const struct prim_residency * pages = &verdict->sight[ORDER[i]].pages;
        const char * region = USES[ORDER[i]];
        if (pages->checked > 0) {
            numa_text_add(to, "%s{region=\"%s\",place=\"on_node\"} %" PRIu64 "\n", NAME, region, pages->on_node);
            numa_text_add(to, "%s{region=\"%s\",place=\"elsewhere\"} %" PRIu64 "\n", NAME, region, pages->elsewhere);
            numa_text_add(to, "%s{region=\"%s\",place=\"not_resident\"} %" PRIu64 "\n", NAME, region, pages->not_resident);
        }
    }
    numa_text_add(to, "# HELP llamafile_numa_ok 1: every page looked at, and every worker, is on the node.\n"
                      "# TYPE llamafile_numa_ok gauge\nllamafile_numa_ok{node=\"%d\"} %d\n", numa_core.node, verdict->ok);
}

// The last verdict, for whoever asks later, from any thread.
static numa_lock        seen_lock = ATOMIC_FLAG_INIT;
static struct numa_text seen[2]; // by enum numa_node_form

static void keep(enum numa_node_form form, struct numa_text text) {
    numa_lock_take(&seen_lock);
    const struct numa_text before = seen[form];
    seen[form] = text;
    numa_lock_drop(&seen_lock);
    free(before.chars);
}

size_t numa_node_seen(enum numa_node_form form, char * to, size_t size) {
    numa_lock_take(&seen_lock);
    const size_t used = seen[form].used;
    if (size > 0) {
        snprintf(to, size, "%s", used ? seen[form].chars : "");
    }
    numa_lock_drop(&seen_lock);
    return used;
}

// False, with a line on stderr, where the report could not be written. A later one (of the next model) takes the place of
// the one before.
static bool write_report(const struct numa_text * json) {
    static bool again;
    if (again && numa_core.report != stdout) {
        numa_core.report = freopen(numa_core.options.report, "w", numa_core.report);
    }
    again = true;
    if (numa_core.report && json->chars) {
        fputs(json->chars, numa_core.report);
        if (fflush(numa_core.report) == 0 && !ferror(numa_core.report)) {
            return true;
        }
    }
    fprintf(stderr, "llamafile-numa: error: --numa-report: cannot write %s: %s\n", numa_core.options.report, strerror(errno));
    return false;
}

void numa_node_verdict(void) {
    struct verdict verdict = { .policy = "none", .note = "no node was asked for, so nothing was bound or looked at", .ok = true };
    numa_progress_end();
    if (numa_core.active) {
        judge(&verdict);
        print_text(&verdict, stderr);
    }
    struct numa_text json = { 0 }, metrics = { 0 };
    write_json(&verdict, &json);
    if (numa_core.active) {
        write_metrics(&verdict, &metrics);
    }
    const bool written = !numa_core.options.report || write_report(&json);
    keep(NUMA_NODE_JSON, json);
    keep(NUMA_NODE_METRICS, metrics);
    if (numa_core.options.strict && !(verdict.ok && written)) {
        fprintf(stderr, "llamafile-numa: error: --numa-strict: %s\n",
                verdict.ok ? "the report could not be written" : "not everything is on the node (see above); nothing is served");
        fflush(NULL);
        _Exit(NUMA_NODE_EXIT_STRICT); // other threads run: no destructor may pull memory from under them
    }
}
