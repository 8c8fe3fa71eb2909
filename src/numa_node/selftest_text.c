// What --numa-selftest found, for people.
#include "core.h"
#include "selftest.h"

#include <inttypes.h>
#include <string.h>

static int id(const struct selftest * test, int index) {
    return test->topo->nodes[index].id;
}

// --- answers in words ---

struct phrase {
    const char * word, * text;
};

static const struct phrase PREFETCH[] = {
    { "asked", "on the node that was asked for" },
    { "thread", "on the node of the thread that prefetched" },
    { "mixed", "on both" },
    { 0 },
};
static const struct phrase CACHED[] = {
    { "stay", "no, they stay where they are" },
    { "move", "yes" },
    { "mixed", "some of them" },
    { 0 },
};
static const struct phrase SETS[] = {
    { "main and new threads", "yes, of the main thread and of new ones" },
    { "main thread", "of the main thread only" },
    { "new threads", "of new threads only" },
    { "neither", "no" },
    { 0 },
};
static const struct phrase LARGE[] = {
    { "seen", "the node of each" },
    { "hidden", "nothing: it calls them not resident" },
    { "partly", "the node of some" },
    { 0 },
};
static const struct phrase UNBUFFERED[] = {
    { "keeps", "no, they stay cached" },
    { "drops", "yes" },
    { "partly", "some of them" },
    { 0 },
};

static const char * in_words(const struct phrase * phrases, const struct selftest_answer * answer) {
    for (; phrases->word; phrases++) {
        if (strcmp(phrases->word, answer->word) == 0) {
            return phrases->text;
        }
    }
    return answer->word;
}

static void put_question(FILE * to, const char * question, const struct phrase * phrases, const struct selftest_answer * answer) {
    if (*answer->word) {
        fprintf(to, "\n%s\n  %s\n", question, in_words(phrases, answer));
    } else {
        fprintf(to, "\n%s\n  not asked: %s\n", question, answer->reason);
    }
}

static const char * count(int64_t n, char * out, size_t size) {
    snprintf(out, size, n < 0 ? "?" : "%" PRId64, n);
    return out;
}

// --- 1 ---

// The reasons, each once however many cells it holds for.
static void put_reasons(const struct selftest * test, FILE * to) {
    const int n = test->n_nodes * test->n_nodes;
    for (int i = 0; i < n; i++) {
        bool said = !test->cells[i].reason[0];
        for (int k = 0; k < i && !said; k++) {
            said = strcmp(test->cells[k].reason, test->cells[i].reason) == 0;
        }
        if (!said) {
            fprintf(to, "  not measured: %s\n", test->cells[i].reason);
        }
    }
}

static void put_how(const struct selftest * test, FILE * to) {
    uint64_t checked = 0, on_node = 0, least = 0, caches = 0;
    double busy = 1;
    for (int i = 0; i < test->n_nodes * test->n_nodes; i++) {
        const struct selftest_cell * cell = &test->cells[i];
        if (cell->gb_per_s > 0) {
            checked += cell->seen.checked;
            on_node += cell->seen.on_node;
            least  = least == 0 || cell->bytes < least ? cell->bytes : least;
            caches = cell->cache_bytes > caches ? cell->cache_bytes : caches;
            busy   = cell->busy < busy ? cell->busy : busy;
        }
    }
    if (checked > 0) {
        fprintf(to, "  one thread a core, at least %" PRIu64 " MiB of memory; of its pages %" PRIu64 " of %" PRIu64 " looked at are on the node\n",
                least >> 20, on_node, checked);
    }
    if (busy > 0 && busy < 0.9) {
        fprintf(to, "  the threads had %.0f %% of their cores' time at worst: other programs ran, so the figures may be too low\n", 100 * busy);
    }
    if (caches > 0) {
        fprintf(to, "  last-level caches of a node: %.1f MiB%s\n", (double) caches / 1048576.0,
                least > 0 && least < 2 * caches ? "; too much for this memory, so the figures are too high" : "");
    }
}

static void put_bandwidth(const struct selftest * test, FILE * to) {
    fputs("\nHow fast do threads read memory? (GB/s, best of 5 passes)\n  threads on", to);
    for (int k = 0; k < test->n_nodes; k++) {
        fprintf(to, "  memory on %3d", id(test, k));
    }
    for (int i = 0; i < test->n_nodes; i++) {
        fprintf(to, "\n  node %5d", id(test, i));
        for (int k = 0; k < test->n_nodes; k++) {
            const double rate = test->cells[i * test->n_nodes + k].gb_per_s;
            rate > 0 ? fprintf(to, "  %13.1f", rate) : fprintf(to, "  %13s", "-");
        }
    }
    fputs("\n", to);
    put_how(test, to);
    put_reasons(test, to);
}

// --- 2, 3, 6 ---

static void put_prefetch(const struct selftest * test, FILE * to) {
    char cached[24], faults[24];
    put_question(to, "Where do prefetched pages of a file land?", PREFETCH, &test->prefetch);
    if (test->n_landings > 0) {
        fputs("  brought in by            asked  thread     pages  on asked  on thread's  elsewhere  not resident  cached before  disk faults\n", to);
    }
    for (int i = 0; i < test->n_landings; i++) {
        const struct selftest_landing * row = &test->landings[i];
        fprintf(to, "  %-23s  %5d  %6d", row->way, id(test, row->asked), id(test, row->thread));
        if (row->seen.checked == 0) {
            fprintf(to, "  not asked: %s\n", row->answer.reason);
            continue;
        }
        fprintf(to, "  %8" PRIu64 "  %8" PRIu64 "  %11" PRIu64 "  %9" PRIu64 "  %12" PRIu64 "  %13s  %11s\n", row->seen.checked,
                row->seen.on_asked, row->seen.on_thread, row->seen.elsewhere, row->seen.not_resident, count(row->cached, cached, sizeof(cached)),
                count(row->hard_faults, faults, sizeof(faults)));
    }
}

static void put_cached(const struct selftest * test, FILE * to) {
    char moved[24];
    put_question(to, "Does asking for a node move pages that are cached on another one?", CACHED, &test->cached);
    if (test->n_remaps > 0) {
        fputs("  cached on  by       asked     pages  stayed    went  not resident  moved by a call\n", to);
    }
    for (int i = 0; i < test->n_remaps; i++) {
        const struct selftest_remap * row = &test->remaps[i];
        fprintf(to, "  %9d  %-7s  %5d", id(test, row->cached_on), row->cached_by, id(test, row->asked));
        if (row->checked == 0) {
            fprintf(to, "  not asked: %s\n", row->answer.reason);
            continue;
        }
        fprintf(to, "  %8" PRIu64 "  %6" PRIu64 "  %6" PRIu64 "  %12" PRIu64 "  %15s\n", row->checked, row->stayed, row->went, row->not_resident,
                row->moved < 0 ? "no such call" : count(row->moved, moved, sizeof(moved)));
    }
}

static void put_unbuffered(const struct selftest * test, FILE * to) {
    char before[24], after[24], cold[24], faults[24];
    put_question(to, "Does opening a file past the cache drop its cached pages?", UNBUFFERED, &test->unbuffered);
    if (test->n_opens > 0) {
        fputs("  open by others     pages  cached before  after  stayed    went  disk faults cold  after\n", to);
    }
    for (int i = 0; i < test->n_opens; i++) {
        const struct selftest_unbuffered * row = &test->opens[i];
        fprintf(to, "  %-14s", row->alone ? "no" : "yes");
        if (row->pages == 0) {
            fprintf(to, "  not asked: %s\n", row->answer.reason);
            continue;
        }
        fprintf(to, "  %8" PRIu64 "  %13s  %5s  %6" PRIu64 "  %6" PRIu64 "  %16s  %5s\n", row->pages, count(row->cached_before, before, sizeof(before)),
                count(row->cached_after, after, sizeof(after)), row->stayed, row->went, count(row->hard_faults_cold, cold, sizeof(cold)),
                count(row->hard_faults_after, faults, sizeof(faults)));
    }
}

static void put_file(const struct selftest * test, FILE * to) {
    if (*test->file) {
        fprintf(to, "\nFile for the questions above: %s, %zu MiB%s%s\n", strcmp(test->file, "model") == 0 ? "the model's beginning" : "a temporary one",
                test->file_bytes >> 20, *test->file_note ? "; " : "", test->file_note);
    }
}

// --- 4, 5 ---

static void put_cpu_sets(const struct selftest * test, FILE * to) {
    const struct selftest_cpu_sets * sets = &test->cpu_sets;
    char cpus[128];
    put_question(to, "Do CPU sets change ideal processors?", SETS, &test->sets);
    if (sets->threads > 0) {
        fprintf(to, "  set %s: main thread's ideal processor %d, then %d; of %d new threads %d, then %d were given one in it; %d ran in it\n",
                node_set_format(&sets->cpus, cpus, sizeof(cpus)), sets->main_before, sets->main_after, sets->threads, sets->ideal_before,
                sets->ideal_after, sets->ran_after);
    }
}

static void put_large(const struct selftest * test, FILE * to) {
    put_question(to, "What does looking at large pages say?", LARGE, &test->large);
    if (test->n_larges > 0) {
        fputs("  kind                            asked  MiB large     pages  on asked  elsewhere  not resident\n", to);
    }
    for (int i = 0; i < test->n_larges; i++) {
        const struct selftest_large * row = &test->larges[i];
        fprintf(to, "  %-30s  %5d", row->kind, row->node);
        if (row->reason[0]) {
            fprintf(to, "  not asked: %s\n", row->reason);
            continue;
        }
        fprintf(to, "  %3" PRIu64 " of %2" PRIu64 "  %8" PRIu64 "  %8" PRIu64 "  %9" PRIu64 "  %12" PRIu64 "\n", row->large_bytes >> 20, row->bytes >> 20,
                row->seen.checked, row->seen.on_node, row->seen.elsewhere, row->seen.not_resident);
    }
}

// --- 7 ---

static void put_node_gain(const struct selftest * test, int node, FILE * to) {
    const struct selftest_gain gain = selftest_gain(test, node);
    const bool tokens = gain.local_tokens > 0 || gain.remote_tokens > 0;
    if (gain.local <= 0) {
        return;
    }
    fprintf(to, "  threads on node %d, weights there too: ", id(test, node));
    tokens ? fprintf(to, "at most %.1f tokens/s", gain.local_tokens) : fprintf(to, "at least %.1f ms a token for each GB of weights", 1e3 / gain.local);
    if (gain.remote > 0) {
        fprintf(to, "; weights on node %d: ", id(test, gain.remote_node));
        tokens ? fprintf(to, "at most %.1f", gain.remote_tokens) : fprintf(to, "at least %.1f ms", 1e3 / gain.remote);
        fprintf(to, "; ratio %.2f", gain.ratio);
    }
    fputs("\n", to);
}

static void put_gain(const struct selftest * test, FILE * to) {
    const struct selftest_model * model = &test->model;
    int usable = 0;
    fputs("\nWhat is there to gain?\n", to);
    if (test->has_model) {
        fprintf(to, "  %s: a token reads %.2f GB of %.2f GB of weights%s\n", *model->name ? model->name : "the model", (double) model->per_token / 1e9,
                (double) model->weights / 1e9, model->experts > 0 ? " (a mixture of experts: those it uses)" : "");
    }
    for (int i = 0; i < test->n_nodes; i++) {
        usable += test->topo->nodes[i].mem_bytes > 0;
        put_node_gain(test, i, to);
    }
    if (usable < 2) {
        fputs("  There is one node with memory, so nothing is to be gained by choosing one.\n", to);
    }
    fputs("  Expected from bandwidth alone, not promised: one sequence reads the weights once a token, and can be no faster than that.\n"
          "  What else takes time (arithmetic, the KV cache) makes both figures lower and the ratio smaller.\n", to);
}

void selftest_print(const struct selftest * test, FILE * to) {
    fprintf(to, "llamafile-numa selftest\n  system  %s\n  CPU     %s\n\n", *test->system ? test->system : "?", *test->cpu ? test->cpu : "?");
    numa_list_print(test->topo, to);
    put_bandwidth(test, to);
    put_prefetch(test, to);
    put_cached(test, to);
    put_unbuffered(test, to);
    put_file(test, to);
    put_cpu_sets(test, to);
    put_large(test, to);
    put_gain(test, to);
    fprintf(to, "\n%.0f seconds\n", test->seconds);
}
