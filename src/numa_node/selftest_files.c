// Questions 2, 3 and 6: where the pages of a file go, on two nodes where there are two. Each errand runs in a thread of its
// own, so that nothing of one is left for the next.
#include "core.h"
#include "selftest.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define FILE_MOST  ((size_t) 16 << 20)
#define FILE_LEAST ((size_t) 1 << 20)
#define SETTLE_MS  1000 // that a prefetch in the background is waited for, since its last page
#define LOOK_MOST  65536

enum { READ = -1 }; // through the file cache, instead of one of the ways to bring in a view

struct errand {
    struct selftest_file * file;
    int             asked;   // OS numbers
    int             other;   // a second node to look for
    int             way;
    bool            move;    // in the end, to `asked`
    bool            local;   // the thread is on `asked`: without a policy, too, pages come from there
    // What came of it.
    int             error;
    int64_t         cached, hard_faults;
    uint64_t        checked, on_asked, on_other, not_resident;
    int64_t         moved;   // on `asked` after the move; -1 = there is no such call
};

// The way that reads a byte of each page: the last one.
static int touching(void) {
    int way = 0;
    while (selftest_way_name(way + 1)) {
        way++;
    }
    return way;
}

// Prefetching may go on after the call.
static void settle(const struct selftest_file * file) {
    const int64_t all = (int64_t) (selftest_file_bytes(file) / prim_page_size());
    int64_t before    = -1;
    for (int waited = 0; waited < SETTLE_MS; waited += 20) {
        const int64_t now = selftest_file_cached(file);
        if (now < 0 || now >= all) {
            return;
        }
        waited = now > before ? 0 : waited;
        before = now > before ? now : before;
        prim_sleep_ms(20);
    }
}

static int look(const void * view, size_t bytes, int node, struct prim_residency * out) {
    bool coarse = false;
    memset(out, 0, sizeof(*out));
    return prim_look(view, bytes, node, LOOK_MOST, out, &coarse);
}

static void look_at(struct errand * errand, const void * view, size_t bytes) {
    struct prim_residency asked, other;
    errand->error = look(view, bytes, errand->asked, &asked);
    errand->error = errand->error ? errand->error : look(view, bytes, errand->other, &other);
    if (errand->error == 0) {
        errand->checked      = asked.checked;
        errand->on_asked     = asked.on_node;
        errand->on_other     = other.on_node;
        errand->not_resident = asked.not_resident;
    }
}

static void move(struct errand * errand, const void * view, size_t bytes) {
    struct prim_residency asked;
    if (prim_move((void *) (uintptr_t) view, bytes, errand->asked) == 0 && look(view, bytes, errand->asked, &asked) == 0) {
        errand->moved = (int64_t) asked.on_node;
    }
}

static void bring_in(struct errand * errand, const void * view, size_t bytes) {
    errand->error = errand->way == touching() ? 0 : selftest_way(errand->way, view, bytes);
    if (errand->error != 0) {
        return;
    }
    settle(errand->file);
    errand->cached       = selftest_file_cached(errand->file);
    const int64_t before = selftest_hard_faults();
    errand->error        = selftest_way(touching(), view, bytes); // where no page table entry is, nothing is seen
    const int64_t after  = selftest_hard_faults();
    errand->hard_faults  = before < 0 || after < 0 ? -1 : after - before;
}

static void go(void * context) {
    struct errand * errand = context;
    const size_t bytes     = selftest_file_bytes(errand->file);
    errand->error          = prim_bind_memory(errand->asked, PRIM_PREFERRED);
    errand->error          = errand->local || !prim_binds() ? 0 : errand->error; // where nothing binds, views ask
    if (errand->error != 0 || errand->way == READ) {
        errand->error = errand->error ? errand->error : selftest_file_read(errand->file);
        return;
    }
    const void * view = selftest_file_map(errand->file, errand->asked);
    if (!view) {
        errand->error = -ENOMEM;
        return;
    }
    bring_in(errand, view, bytes);
    if (errand->error == 0) {
        look_at(errand, view, bytes);
    }
    if (errand->error == 0 && errand->move) {
        move(errand, view, bytes);
    }
    selftest_file_unmap(errand->file, view);
}

// Do it in a thread on a node (index). Returns false, with the reason in answer, where it cannot be done.
static bool send(const struct selftest * test, int thread, struct errand * errand, struct selftest_answer * answer) {
    const struct node_set cores = selftest_cores(test->topo, thread);
    errand->cached = errand->hard_faults = errand->moved = -1;
    errand->local  = errand->asked == test->topo->nodes[thread].id;
    struct selftest_crew * crew = selftest_crew_start(&cores, 1, go, errand);
    if (!crew || selftest_crew_join(crew) != 1) {
        selftest_not_asked(answer, "a thread could not be kept on node %d", test->topo->nodes[thread].id);
        return false;
    }
    if (errand->error == -EPERM) {
        selftest_not_asked(answer, "memory policy is not permitted here; a container needs --cap-add SYS_NICE");
    } else if (errand->error != 0) {
        selftest_not_asked(answer, "%s: %s", errand->way == READ ? "the file cannot be read" : "its pages cannot be brought in", strerror(-errand->error));
    }
    return errand->error == 0;
}

static bool cool(struct selftest_file * file, struct selftest_answer * answer) {
    const int error = selftest_file_cool(file);
    if (error != 0) {
        selftest_not_asked(answer, "the file could not be brought out of the cache: %s", strerror(-error));
    }
    return error == 0;
}

static bool late(const struct selftest * test, struct selftest_answer * answer) {
    if (selftest_late(test)) {
        selftest_not_asked(answer, "the time was up");
    }
    return answer->reason[0] != 0;
}

static int id_of(const struct selftest * test, int index) {
    return test->topo->nodes[index].id;
}

// --- 2: where prefetched pages land ---

const char * selftest_where(const struct selftest_seen * seen) {
    const uint64_t resident = seen->on_asked + seen->on_thread + seen->elsewhere;
    if (seen->checked == 0 || resident < seen->checked / 2) {
        return "";
    }
    const uint64_t nearly_all = resident - resident / 20;
    return seen->on_asked >= nearly_all ? "asked" : seen->on_thread >= nearly_all ? "thread" : "mixed";
}

static void land(const struct selftest * test, struct selftest_file * file, int way, struct selftest_landing * landing) {
    struct errand errand = { .file = file, .asked = id_of(test, landing->asked), .other = id_of(test, landing->thread), .way = way };
    landing->way = selftest_way_name(way);
    landing->cached = landing->hard_faults = -1;
    landing->answer.word = "";
    if (late(test, &landing->answer) || !cool(file, &landing->answer) || !send(test, landing->thread, &errand, &landing->answer)) {
        return;
    }
    landing->cached      = errand.cached;
    landing->hard_faults = errand.hard_faults;
    landing->seen        = (struct selftest_seen) {
        .checked = errand.checked, .on_asked = errand.on_asked, .on_thread = errand.on_other, .not_resident = errand.not_resident,
        .elsewhere = errand.checked - errand.on_asked - errand.on_other - errand.not_resident,
    };
    landing->answer.word = selftest_where(&landing->seen);
    if (way == touching() && errand.cached < 0 && errand.hard_faults == 0) {
        selftest_not_asked(&landing->answer, "touching never waited for the disk: somebody else (a virus scanner?) had the file cached");
    } else if (way != touching() && errand.cached >= 0 && (uint64_t) errand.cached < errand.checked - errand.checked / 20) {
        selftest_not_asked(&landing->answer, "it brought in %" PRId64 " of %" PRIu64 " pages; touching did the rest", errand.cached, errand.checked);
    } else if (!*landing->answer.word) {
        selftest_not_asked(&landing->answer, "hardly a page was resident afterwards");
    }
}

// One answer for all rows that have one: theirs where they agree.
static void agree(struct selftest_answer * all, const struct selftest_answer * one, bool first) {
    if (!*one->word) {
        if (first && !all->reason[0]) {
            *all = *one;
        }
    } else if (!*all->word) {
        *all = *one;
    } else if (strcmp(all->word, one->word) != 0) {
        all->word = "mixed";
    }
}

// Where the cache is not told: a way after which touching waits for the disk as often as without it has brought in nothing;
// nor has it where touching alone had not to wait either.
static void doubt(struct selftest_landing * landing, const struct selftest_landing * touched) {
    if (!*landing->answer.word || landing->cached >= 0) {
        return;
    }
    if (touched->hard_faults == 0) {
        landing->answer = touched->answer;
    } else if (touched->hard_faults > 0 && landing->hard_faults > touched->hard_faults / 2) {
        selftest_not_asked(&landing->answer, "touching waited for the disk %" PRId64 " times, and %" PRId64 " times without it", landing->hard_faults,
                           touched->hard_faults);
    }
}

static void ask_prefetch(struct selftest * test, struct selftest_file * file, int a, int b) {
    for (int way = 0; selftest_way_name(way) && test->n_landings + 2 <= SELFTEST_ROWS; way++) {
        for (int turn = 0; turn < 2; turn++) {
            struct selftest_landing * landing = &test->landings[test->n_landings++];
            landing->asked  = turn ? b : a;
            landing->thread = turn ? a : b;
            selftest_progress("%s: asked for on node %d by a thread on node %d", selftest_way_name(way), id_of(test, landing->asked),
                              id_of(test, landing->thread));
            land(test, file, way, landing);
        }
    }
    for (int i = 0; i < test->n_landings - 2; i++) {
        doubt(&test->landings[i], &test->landings[test->n_landings - 2 + i % 2]);
    }
    agree(&test->prefetch, &test->landings[0].answer, true);
    agree(&test->prefetch, &test->landings[1].answer, false);
}

// --- 3: whether asking for a node moves what is cached ---

static const char * which(uint64_t stayed, uint64_t went, uint64_t resident, const char * stay, const char * go_, const char * between) {
    const uint64_t nearly_all = resident - resident / 20;
    return stayed >= nearly_all ? stay : went >= nearly_all ? go_ : between;
}

// Have the file cached on one node (index), as seen through a mapping. Returns false with the reason in answer.
static bool cache_on(const struct selftest * test, struct selftest_file * file, int node, bool by_mapping, struct errand * seen,
                     struct selftest_answer * answer) {
    struct errand reading = { .file = file, .asked = id_of(test, node), .other = id_of(test, node), .way = READ };
    *seen     = reading;
    seen->way = touching();
    if (!cool(file, answer) || (!by_mapping && !send(test, node, &reading, answer)) || !send(test, node, seen, answer)) {
        return false;
    }
    if (seen->on_asked < seen->checked - seen->checked / 20) {
        selftest_not_asked(answer, "the file could not be cached on node %d: %" PRIu64 " of %" PRIu64 " pages are there", id_of(test, node),
                           seen->on_asked, seen->checked);
        return false;
    }
    return true;
}

static void remap(const struct selftest * test, struct selftest_file * file, struct selftest_remap * remap) {
    struct errand before = { 0 };
    struct errand after  = { .file = file, .asked = id_of(test, remap->asked), .other = id_of(test, remap->cached_on), .way = touching(),
                            .move = true };
    remap->answer.word = "";
    remap->cached_by   = "reading";
    remap->moved       = -1;
    if (late(test, &remap->answer)) {
        return;
    }
    if (!cache_on(test, file, remap->cached_on, false, &before, &remap->answer) && before.checked > 0) { // read ahead by others
        remap->cached_by        = "mapping";
        remap->answer.reason[0] = 0;
        cache_on(test, file, remap->cached_on, true, &before, &remap->answer);
    }
    if (remap->answer.reason[0] || !send(test, remap->asked, &after, &remap->answer)) {
        return;
    }
    remap->checked      = after.checked;
    remap->before       = before.on_asked;
    remap->stayed       = after.on_other;
    remap->went         = after.on_asked;
    remap->not_resident = after.not_resident;
    remap->moved        = after.moved;
    if (after.not_resident > after.checked / 2) {
        selftest_not_asked(&remap->answer, "hardly a page was resident afterwards");
    } else {
        remap->answer.word = which(remap->stayed, remap->went, after.checked - after.not_resident, "stay", "move", "mixed");
    }
}

static void ask_cached(struct selftest * test, struct selftest_file * file, int a, int b) {
    for (int turn = 0; turn < 2; turn++) {
        struct selftest_remap * one = &test->remaps[test->n_remaps++];
        one->cached_on = turn ? b : a;
        one->asked     = turn ? a : b;
        selftest_progress("cached on node %d, then mapped for node %d", id_of(test, one->cached_on), id_of(test, one->asked));
        remap(test, file, one);
        agree(&test->cached, &one->answer, turn == 0);
    }
}

// --- 6: whether an open past the cache drops what is cached ---

// Of three witnesses the best there is: the system's count of cached pages; where pages are after mapping the file for
// another node, if cached ones are known to stay; faults that waited for the disk, if reading it cold had some.
const char * selftest_dropped(const struct selftest_unbuffered * open, bool stay) {
    if (open->cached_before > 0 && open->cached_after >= 0) {
        const uint64_t before = (uint64_t) open->cached_before, after = (uint64_t) open->cached_after;
        return which(after, after > before ? 0 : before - after, before, "keeps", "drops", "partly");
    }
    if (stay && open->cached_on != open->asked && open->stayed + open->went > 0) {
        return which(open->stayed, open->went, open->stayed + open->went, "keeps", "drops", "partly");
    }
    if (open->hard_faults_cold > 0 && open->hard_faults_after >= 0) {
        const int64_t part = open->hard_faults_after * 100 / open->hard_faults_cold;
        return part < 5 ? "keeps" : part > 80 ? "drops" : "partly";
    }
    return "";
}

static void open_past(const struct selftest * test, struct selftest_file * file, struct selftest_unbuffered * open) {
    struct errand cold;
    struct errand after = { .file = file, .asked = id_of(test, open->asked), .other = id_of(test, open->cached_on), .way = touching() };
    open->answer.word = "";
    open->cached_before = open->cached_after = open->hard_faults_cold = open->hard_faults_after = -1;
    if (late(test, &open->answer) || !cache_on(test, file, open->cached_on, true, &cold, &open->answer)) {
        return;
    }
    open->pages            = cold.checked;
    open->hard_faults_cold = cold.hard_faults;
    open->cached_before    = selftest_file_cached(file);
    const int error        = selftest_file_unbuffered(file, open->alone);
    open->cached_after     = selftest_file_cached(file);
    if (error != 0) {
        selftest_not_asked(&open->answer, "this file cannot be opened past the cache: %s", strerror(-error));
        return;
    }
    if (!send(test, open->asked, &after, &open->answer)) {
        return;
    }
    open->hard_faults_after = after.hard_faults;
    open->stayed            = after.on_other;
    open->went              = open->asked == open->cached_on ? 0 : after.on_asked;
    const bool stay         = strcmp(test->cached.word, "stay") == 0;
    open->answer.word       = selftest_dropped(open, stay);
    if (!*open->answer.word) {
        selftest_not_asked(&open->answer, "nothing here tells what is in the file cache");
    }
}

static void ask_unbuffered(struct selftest * test, struct selftest_file * file, int a, int b) {
    const bool differs = selftest_file_unbuffered(file, true) != -ENOSYS;
    for (int alone = 0; alone <= (differs ? 1 : 0); alone++) {
        struct selftest_unbuffered * one = &test->opens[test->n_opens++];
        one->alone     = alone;
        one->cached_on = a;
        one->asked     = b;
        selftest_progress("opened past the file cache%s", !differs ? "" : alone ? ", by nobody else" : ", by others as well");
        open_past(test, file, one);
        test->unbuffered = one->answer; // of the last: where it differs, alone is when it may be dropped
    }
}

// --- all ---

static struct selftest_file * choose_file(struct selftest * test, const char * path) {
    char why[160];
    struct selftest_file * file = path ? selftest_file_open(path, FILE_MOST, why, sizeof(why)) : NULL;
    if (file && selftest_file_bytes(file) < FILE_LEAST) {
        snprintf(why, sizeof(why), "it is smaller than %zu MiB", FILE_LEAST >> 20);
        selftest_file_close(file);
        file = NULL;
    }
    if (file && selftest_file_cool(file) != 0) {
        snprintf(why, sizeof(why), "its cached pages are in use, or cannot be seen");
        selftest_file_close(file);
        file = NULL;
    }
    if (path && !file) {
        snprintf(test->file_note, sizeof(test->file_note), "not the model: %s", why);
    }
    test->file = file ? "model" : "temporary";
    file       = file ? file : selftest_file_temporary(FILE_MOST, why, sizeof(why));
    if (!file) {
        test->file = "";
        selftest_not_asked(&test->prefetch, "there is no file to read: %s", why);
        test->cached = test->unbuffered = test->prefetch;
    }
    return file;
}

// A node (index) of which the system shows no page, not even of memory that was asked for there: one that tells no nodes
// would have all pages stay where they are. -1 = none.
static int hidden_node(const struct selftest * test, int a, int b) {
    const struct prim_residency * at_a = &test->cells[a * test->n_nodes + a].seen, * at_b = &test->cells[b * test->n_nodes + b].seen;
    return at_a->checked > 0 && at_a->on_node == 0 ? a : at_b->checked > 0 && at_b->on_node == 0 ? b : -1;
}

static void ask_two_nodes(struct selftest * test, struct selftest_file * file, int a, int b) {
    const int hidden = hidden_node(test, a, b);
    if (a == b) {
        selftest_not_asked(&test->prefetch, "it takes two nodes with CPUs and memory that this process may use");
    } else if (hidden >= 0) {
        selftest_not_asked(&test->prefetch, "no page is seen on node %d, not even of memory that was asked for there", id_of(test, hidden));
    } else {
        ask_prefetch(test, file, a, b);
        ask_cached(test, file, a, b);
        return;
    }
    test->cached = test->prefetch;
}

void selftest_files(struct selftest * test, const char * path) {
    int first = -1, last = -1;
    for (int i = 0; i < test->n_nodes; i++) {
        first = first < 0 && selftest_usable(test->topo, i) ? i : first;
        last  = selftest_usable(test->topo, i) ? i : last;
    }
    if (first < 0) {
        selftest_not_asked(&test->prefetch, "no node has CPUs and memory that this process may use");
        test->cached = test->unbuffered = test->prefetch;
        return;
    }
    selftest_progress("a file to read");
    struct selftest_file * file = choose_file(test, path);
    if (!file) {
        return;
    }
    test->file_bytes = selftest_file_bytes(file);
    ask_two_nodes(test, file, first, last);
    ask_unbuffered(test, file, first, last);
    selftest_file_close(file);
}
