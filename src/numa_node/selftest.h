// --numa-selftest: what a machine does that nobody documents, each answer with the counts it rests on.
//
//   selftest.c            the order, and what is asked of whom
//   selftest_bandwidth.c  question 1    selftest_files.c  questions 2, 3, 6    selftest_model.c  bytes a token reads
//   selftest_gain.c       question 7    selftest_text.c, selftest_json.c       what is printed
//   selftest_os.h         the operating system
//
// An answer is one of a few fixed words, or "" where there is none, and then the reason says why. docs/selftest.md lists
// them with all keys of the JSON.
#pragma once

#include "selftest_os.h"

#include <stdio.h>

#define SELFTEST_NODES 64 // more are not measured against each other
#define SELFTEST_ROWS  8

// The weights of a model (selftest_model.c).
struct selftest_model {
    char     name[96];      // general.name, without control characters; "" = none
    uint64_t weights;       // bytes of all tensors
    uint64_t per_token;     // bytes of those that generating a token reads
    int      experts, used; // of a mixture of experts: how many there are, how many a token uses; 0 = no such model
};
// Returns 0, or -1 with one line in err. Reads all parts of a split model, of which path is the first.
int selftest_model_read(const char * path, struct selftest_model * model, char * err, size_t err_size);

// What was asked for: the words of argv that the other flags have left.
struct selftest_wish {
    const char *          path; // of the model; null = none
    struct selftest_model model;
};
int selftest_wish_parse(struct selftest_wish * wish, int argc, char ** argv, char * err, size_t err_size);

struct selftest_answer {
    const char * word;
    char         reason[160];
};
__attribute__((format(printf, 2, 3))) void selftest_not_asked(struct selftest_answer * answer, const char * format, ...);

// 1. Threads on a node (index) that read memory on a node (index).
struct selftest_cell {
    int                   threads_on, memory_on;
    int                   threads;
    uint64_t              bytes, cache_bytes; // of the memory; of the last-level caches of the threads' node, 0 = not known
    struct prim_residency seen;               // on_node: on memory_on
    double                gb_per_s;           // 0 = not measured
    double                busy;               // CPU time that the threads had, of the time that passed: less than 1 where others ran
    char                  reason[160];
};

// Pages of a view of which one node was asked for by a thread on another one; not asked for by anybody: elsewhere.
struct selftest_seen {
    uint64_t checked, on_asked, on_thread, elsewhere, not_resident;
};

// 2. Pages brought in from disk. cached: pages in the cache right before they were touched, -1 = not known.
struct selftest_landing {
    const char *         way;
    int                  asked, thread; // indices
    int64_t              cached, hard_faults; // of touching; -1 = not known
    struct selftest_seen seen;
    struct selftest_answer answer; // "asked", "thread", "mixed"
};

// 3. Pages cached on one node, then mapped by a thread on another one that also asked for it.
struct selftest_remap {
    int      cached_on, asked; // indices
    const char * cached_by;    // "reading" or "mapping"
    uint64_t checked, before;  // pages on cached_on when they were read
    uint64_t stayed, went, not_resident; // on cached_on, on asked, by then
    int64_t  moved;            // on `asked` after they were to be moved by a call; -1 = no such call
    struct selftest_answer answer; // "stay", "move", "mixed"
};

// 6. A file that is cached, before and after it was opened past the cache.
struct selftest_unbuffered {
    bool     alone;                // nobody else had it open for cached reading
    uint64_t pages;
    int64_t  cached_before, cached_after;
    int64_t  hard_faults_cold, hard_faults_after; // of touching all of it; -1 = not known
    int      cached_on, asked;     // indices; the same where there is one node
    uint64_t stayed, went;         // as in selftest_remap, of mapping it afterwards
    struct selftest_answer answer; // "keeps", "drops", "partly"
};

struct selftest {
    const struct topology * topo;
    char                    system[160], cpu[96];
    double                  seconds; // that all of it took
    double                  deadline; // of prim_now_ms, for what can be left out

    struct selftest_cell * cells; // n_nodes x n_nodes, by the threads' node first
    int                    n_nodes;

    const char *              file; // what was read: "model", "temporary", "" = nothing
    size_t                    file_bytes;
    char                      file_note[200]; // why it was not the model
    struct selftest_answer     prefetch, cached, unbuffered;
    struct selftest_landing    landings[SELFTEST_ROWS];
    struct selftest_remap      remaps[SELFTEST_ROWS];
    struct selftest_unbuffered opens[SELFTEST_ROWS];
    int                        n_landings, n_remaps, n_opens;

    struct selftest_answer   sets;       // "main and new threads", "new threads", "main thread", "neither"
    struct selftest_cpu_sets cpu_sets;

    struct selftest_answer large;        // "seen", "hidden", "partly"
    struct selftest_large  larges[SELFTEST_ROWS];
    int                    n_larges;

    bool                  has_model;
    struct selftest_model model;
};

// CPUs of a node (index) that this process may use, one per physical core; empty where there are none.
struct node_set selftest_cores(const struct topology * topo, int node);
bool selftest_usable(const struct topology * topo, int node); // with CPUs and memory for this process
// True where it is too late for one more thing.
bool selftest_late(const struct selftest * test);
// A line of progress.
__attribute__((format(printf, 1, 2))) void selftest_progress(const char * format, ...);

void selftest_bandwidth(struct selftest * test);
// path: the model, or null.
void selftest_files(struct selftest * test, const char * path);

// The word that pages speak for: "asked" or "thread" where nearly all of those resident are there, "mixed"; "" where few are
// resident.
const char * selftest_where(const struct selftest_seen * seen);
// "keeps", "drops", "partly", or "" where nothing tells. stay: cached pages are known to stay where they are.
const char * selftest_dropped(const struct selftest_unbuffered * open, bool stay);
const char * selftest_sets_moved(const struct selftest_cpu_sets * sets);
const char * selftest_large_seen(const struct selftest_large * large);

// 7. What generation could gain on a node (index): each token reads the weights once, so no more tokens a second than the
// bandwidth carries.
struct selftest_gain {
    double local, remote; // GB/s: from the node's own memory, and from the slowest other node's; 0 = not measured
    int    remote_node;   // index, -1 = none
    double local_tokens, remote_tokens; // per second, at most; 0 = not known
    double ratio;         // local / remote; 0 = not known
};
struct selftest_gain selftest_gain(const struct selftest * test, int node);

void selftest_print(const struct selftest * test, FILE * to);
void selftest_json(const struct selftest * test, FILE * to);

// Run it, print what --json or its absence asks for to stdout, and the JSON to report (null = none, or stdout). Returns the
// code to exit with: 0, or 1 where nothing could be measured or not be written.
int selftest_run(const struct topology * topo, const struct selftest_wish * wish, bool json, FILE * report);
