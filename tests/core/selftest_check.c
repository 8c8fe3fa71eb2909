// --numa-selftest over a made-up machine: what its answers follow from, and what it says where it cannot ask.
#define _GNU_SOURCE
#include "check.h"
#include "core.h"
#include "prim_fake.h"
#include "selftest.h"
#include "selftest_fake.h"

#include <errno.h>
#include <math.h>
#include <time.h>

#define TWO "0:0-3:65536 1:4-7:65536"

static struct selftest_cell cells[SELFTEST_NODES * SELFTEST_NODES];

static struct selftest on(const char * machine) {
    fake_machine(machine);
    return (struct selftest) {
        .topo = &fake.topo, .cells = cells, .n_nodes = fake.topo.n_nodes, .file = "", .deadline = 1e9,
        .prefetch = { .word = "" }, .cached = { .word = "" }, .unbuffered = { .word = "" }, .sets = { .word = "" }, .large = { .word = "" },
    };
}

static bool close_to(double is, double wanted) {
    return fabs(is - wanted) < 1e-9 * wanted;
}

static bool says(const char * text, const char * part) {
    const bool found = strstr(text, part) != NULL;
    if (!found) {
        printf("\"%s\" does not say \"%s\"\n", text, part);
    }
    return found;
}

// --- what counts lead to ---

CASE(where_pages_are) {
    SAME(selftest_where(&(struct selftest_seen) { .checked = 100, .on_asked = 100 }), "asked");
    SAME(selftest_where(&(struct selftest_seen) { .checked = 100, .on_thread = 95, .on_asked = 5 }), "thread");
    SAME(selftest_where(&(struct selftest_seen) { .checked = 100, .on_thread = 94, .on_asked = 6 }), "mixed");
    SAME(selftest_where(&(struct selftest_seen) { .checked = 100, .elsewhere = 100 }), "mixed");
    SAME(selftest_where(&(struct selftest_seen) { .checked = 100, .on_asked = 50, .not_resident = 50 }), "asked");
    SAME(selftest_where(&(struct selftest_seen) { .checked = 100, .on_asked = 49, .not_resident = 51 }), "");
    SAME(selftest_where(&(struct selftest_seen) { 0 }), "");
}

CASE(dropped_by_the_systems_count) {
    struct selftest_unbuffered open = { .cached_before = 1000, .cached_after = 1000, .hard_faults_cold = 9, .hard_faults_after = 9 };
    SAME(selftest_dropped(&open, true), "keeps"); // whatever the other witnesses say
    open.cached_after = 950;
    SAME(selftest_dropped(&open, true), "keeps");
    open.cached_after = 949;
    SAME(selftest_dropped(&open, true), "partly");
    open.cached_after = 50;
    SAME(selftest_dropped(&open, true), "drops");
    open.cached_after = 0;
    SAME(selftest_dropped(&open, true), "drops");
    open.cached_after = 2000; // read ahead meanwhile
    SAME(selftest_dropped(&open, true), "keeps");
}

CASE(dropped_by_where_pages_are) {
    struct selftest_unbuffered open = { .cached_before = -1, .cached_after = -1, .cached_on = 0, .asked = 1, .stayed = 1000 };
    SAME(selftest_dropped(&open, true), "keeps");
    open.stayed = 10;
    open.went   = 990;
    SAME(selftest_dropped(&open, true), "drops");
    open.stayed = 500;
    SAME(selftest_dropped(&open, true), "partly");
    SAME(selftest_dropped(&open, false), ""); // cached pages may have moved
    open.asked = 0;
    SAME(selftest_dropped(&open, true), ""); // one node says nothing
}

CASE(dropped_by_faults) {
    struct selftest_unbuffered open = { .cached_before = -1, .cached_after = -1, .hard_faults_cold = 100 };
    SAME(selftest_dropped(&open, false), "keeps");
    open.hard_faults_after = 100;
    SAME(selftest_dropped(&open, false), "drops");
    open.hard_faults_after = 40;
    SAME(selftest_dropped(&open, false), "partly");
    open.hard_faults_after = -1;
    SAME(selftest_dropped(&open, false), "");
    open = (struct selftest_unbuffered) { .cached_before = -1, .cached_after = -1 };
    SAME(selftest_dropped(&open, false), ""); // a counter that counted nothing when the file was cold
}

CASE(ideal_processors) {
    struct selftest_cpu_sets sets = { .main_before = 0, .main_after = 4, .threads = 8, .ideal_before = 4, .ideal_after = 8 };
    node_set_add(&sets.cpus, 4);
    SAME(selftest_sets_moved(&sets), "main and new threads");
    sets.ideal_after = 7;
    SAME(selftest_sets_moved(&sets), "main thread");
    sets.main_after = 1; // it moved, but not into the set
    SAME(selftest_sets_moved(&sets), "neither");
    sets.ideal_after = 8;
    SAME(selftest_sets_moved(&sets), "new threads");
    sets.ideal_before = 8; // they had been there before
    SAME(selftest_sets_moved(&sets), "neither");
}

CASE(gain_is_by_the_slowest_node) {
    struct selftest test = on("0:0-3:65536 1:4-7:65536 2:8-11:65536");
    memset(cells, 0, sizeof(cells));
    cells[0].gb_per_s = 60;
    cells[1].gb_per_s = 30;
    cells[2].gb_per_s = 20;
    cells[4].gb_per_s = 60;
    struct selftest_gain gain = selftest_gain(&test, 0);
    CHECK(close_to(gain.local, 60) && close_to(gain.remote, 20) && close_to(gain.ratio, 3));
    EQUAL(gain.remote_node, 2);
    CHECK(gain.local_tokens == 0 && gain.remote_tokens == 0); // of no model
    test.has_model       = true;
    test.model.per_token = 4000000000;
    gain = selftest_gain(&test, 0);
    CHECK(close_to(gain.local_tokens, 15) && close_to(gain.remote_tokens, 5));
    gain = selftest_gain(&test, 1); // nothing was measured from elsewhere
    EQUAL(gain.remote_node, -1);
    CHECK(gain.ratio == 0 && gain.remote_tokens == 0 && close_to(gain.local_tokens, 15));
    gain = selftest_gain(&test, 2);
    CHECK(gain.local == 0 && gain.local_tokens == 0);
}

// --- files ---

static void files(struct selftest * test, const char * model) {
    selftest_files(test, model);
    EQUAL(fake_selftest.files, 0);
    EQUAL(fake_selftest.views, 0);
    EQUAL(fake_ranges(), 0);
}

CASE(files_of_a_machine_like_linux) {
    struct selftest test = on(TWO);
    fake_selftest.no_alone = true;
    files(&test, NULL);
    SAME(test.file, "temporary");
    SAME(test.file_note, "");
    SAME(test.prefetch.word, "asked");
    EQUAL(test.n_landings, 4);
    EQUAL(test.landings[0].asked, 0);
    EQUAL(test.landings[0].thread, 1);
    EQUAL(test.landings[0].seen.checked, 4096);
    EQUAL(test.landings[0].seen.on_asked, 4096);
    EQUAL(test.landings[0].cached, 4096); // before they were touched
    EQUAL(test.landings[0].hard_faults, 0);
    EQUAL(test.landings[1].asked, 1);
    SAME(test.landings[2].way, "touching");
    EQUAL(test.landings[2].cached, 0);
    EQUAL(test.landings[2].hard_faults, 256);
    SAME(test.cached.word, "stay");
    EQUAL(test.n_remaps, 2);
    EQUAL(test.remaps[1].cached_on, 1);
    EQUAL(test.remaps[1].before, 4096);
    EQUAL(test.remaps[1].stayed, 4096);
    EQUAL(test.remaps[1].went, 0);
    EQUAL(test.remaps[1].moved, 4096);
    SAME(test.unbuffered.word, "keeps");
    EQUAL(test.n_opens, 1);
    EQUAL(test.opens[0].cached_after, 4096);
}

CASE(files_of_a_machine_like_windows_may_be) {
    struct selftest test = on(TWO);
    fake_selftest = (struct fake_selftest) { .prefetched = FAKE_OF_THREAD, .drops_alone = true, .faults_told = true, .no_model = true };
    fake.move_error = -ENOSYS;
    files(&test, "1000000000");
    SAME(test.file, "temporary");
    CHECK(says(test.file_note, "it is not there"));
    SAME(test.prefetch.word, "thread");
    EQUAL(test.landings[0].seen.on_thread, 4096);
    EQUAL(test.landings[0].cached, -1);
    SAME(test.landings[2].answer.word, "asked");
    SAME(test.cached.word, "stay");
    EQUAL(test.remaps[0].moved, -1);
    EQUAL(test.n_opens, 2);
    SAME(test.opens[0].answer.word, "keeps"); // by where its pages are
    SAME(test.opens[1].answer.word, "drops");
    EQUAL(test.opens[1].went, 4096);
    SAME(test.unbuffered.word, "drops");
}

CASE(cached_pages_that_move) {
    struct selftest test = on(TWO);
    fake_selftest.moves = true;
    files(&test, NULL);
    SAME(test.cached.word, "move");
    EQUAL(test.remaps[0].went, 4096);
}

CASE(prefetching_that_is_not_of_one_kind) {
    struct selftest test = on(TWO);
    fake_selftest.prefetched = FAKE_HALF;
    files(&test, NULL);
    SAME(test.prefetch.word, "mixed");
    EQUAL(test.landings[0].seen.on_asked, 2048);
    EQUAL(test.landings[0].seen.on_thread, 2048);
}

CASE(nothing_becomes_resident) {
    struct selftest test = on(TWO);
    fake_selftest.prefetched = FAKE_NOWHERE;
    fake_selftest.cache_told = false;
    files(&test, NULL);
    SAME(test.prefetch.word, "");
    CHECK(says(test.prefetch.reason, "hardly a page was resident"));
    EQUAL(test.landings[0].seen.not_resident, 4096);
}

CASE(prefetching_that_brings_in_nothing) {
    struct selftest test = on(TWO);
    fake_selftest.prefetched = FAKE_LATER;
    files(&test, NULL);
    SAME(test.prefetch.word, "");
    CHECK(says(test.prefetch.reason, "it brought in 0 of 4096 pages"));
    EQUAL(test.landings[0].seen.on_asked, 4096); // by touching
    SAME(test.landings[2].answer.word, "asked");
}

CASE(prefetching_that_only_the_disk_betrays) {
    struct selftest test = on(TWO);
    fake_selftest.prefetched = FAKE_LATER;
    fake_selftest.cache_told = false;
    files(&test, NULL);
    SAME(test.prefetch.word, "");
    CHECK(says(test.prefetch.reason, "touching waited for the disk 256 times, and 256 times without it"));
}

CASE(a_file_that_somebody_else_reads_first) {
    struct selftest test = on(TWO);
    fake_selftest.scanned    = true;
    fake_selftest.cache_told = false;
    files(&test, NULL);
    SAME(test.prefetch.word, "");
    CHECK(says(test.prefetch.reason, "had the file cached"));
    CHECK(says(test.landings[2].answer.reason, "had the file cached"));
    SAME(test.remaps[0].answer.word, "stay"); // it happened to be there
    CHECK(says(test.remaps[1].answer.reason, "could not be cached on node 1: 0 of 4096 pages"));
    SAME(test.cached.word, "stay");
}

CASE(a_file_that_others_read_ahead) {
    struct selftest test = on(TWO);
    fake_selftest.read_ahead = true;
    files(&test, NULL);
    SAME(test.remaps[0].cached_by, "reading");
    SAME(test.remaps[1].cached_by, "mapping");
    SAME(test.remaps[1].answer.word, "stay");
    SAME(test.cached.word, "stay");
}

CASE(pages_on_a_third_node_count_apart) {
    struct selftest test = on("0:0-3:65536 1:4-7:65536 5:8-11:65536");
    files(&test, NULL);
    EQUAL(test.landings[0].thread, 2); // the first and the last
    EQUAL(test.landings[0].seen.elsewhere, 0);
    SAME(test.prefetch.word, "asked");
}

CASE(files_with_one_node) {
    struct selftest test = on("0:0-3:65536");
    files(&test, "10000000");
    SAME(test.file, "model");
    EQUAL(test.file_bytes, 2441 * FAKE_PAGE);
    CHECK(says(test.prefetch.reason, "two nodes"));
    CHECK(says(test.cached.reason, "two nodes"));
    EQUAL(test.n_landings, 0);
    SAME(test.unbuffered.word, "keeps");
}

CASE(files_with_one_node_and_faults_only) {
    struct selftest test = on("0:0-3:65536");
    fake_selftest.cache_told  = false;
    fake_selftest.drops_alone = true;
    files(&test, NULL);
    SAME(test.opens[0].answer.word, "keeps");
    EQUAL(test.opens[0].hard_faults_cold, 256);
    EQUAL(test.opens[0].hard_faults_after, 0);
    SAME(test.opens[1].answer.word, "drops");
    SAME(test.unbuffered.word, "drops");
}

CASE(files_with_one_node_and_no_witness) {
    struct selftest test = on("0:0-3:65536");
    fake_selftest.cache_told = fake_selftest.faults_told = false;
    files(&test, NULL);
    SAME(test.unbuffered.word, "");
    CHECK(says(test.unbuffered.reason, "nothing here tells"));
}

CASE(only_nodes_that_can_be_used_are_asked) {
    struct selftest test = on("0:0-3:65536 1:-:65536 2:4-7:0 3:8-11:65536:m 4:12-15:65536:c 5:16-19:65536");
    files(&test, NULL);
    EQUAL(test.landings[0].asked, 0);
    EQUAL(test.landings[0].thread, 5);
    SAME(test.prefetch.word, "asked");
}

CASE(no_node_can_be_used) {
    struct selftest test = on("0:0-3:0 1:-:65536");
    files(&test, NULL);
    CHECK(says(test.prefetch.reason, "no node"));
    CHECK(says(test.unbuffered.reason, "no node"));
    SAME(test.file, "");
}

CASE(a_system_that_tells_no_nodes) {
    struct selftest test = on(TWO);
    memset(cells, 0, sizeof(cells));
    cells[0].seen = (struct prim_residency) { .checked = 100, .on_node = 100 };
    cells[3].seen = (struct prim_residency) { .checked = 100, .elsewhere = 100 };
    fake_selftest.cache_told = fake_selftest.faults_told = false;
    files(&test, NULL);
    CHECK(says(test.prefetch.reason, "no page is seen on node 1"));
    CHECK(says(test.cached.reason, "no page is seen on node 1"));
    EQUAL(test.n_landings + test.n_remaps, 0);
    SAME(test.unbuffered.word, ""); // where pages are does not tell either
    cells[3].seen.on_node = 1;
    test = on(TWO);
    files(&test, NULL);
    SAME(test.prefetch.word, "asked");
}

CASE(no_policy_is_needed_where_views_ask) {
    struct selftest test = on(TWO);
    fake.prefers_only = true;
    fake.memory_error = -ENOSYS;
    files(&test, NULL);
    SAME(test.prefetch.word, "thread"); // as the fake's views do not
    SAME(test.cached.word, "stay");
}

CASE(a_model_that_is_in_use) {
    struct selftest test = on(TWO);
    fake_selftest.hot = true; // so is the temporary file, here
    files(&test, "100000000");
    SAME(test.file, "temporary");
    CHECK(says(test.file_note, "in use"));
    CHECK(says(test.prefetch.reason, "could not be brought out of the cache"));
    CHECK(says(test.cached.reason, "could not be brought out of the cache"));
    CHECK(says(test.unbuffered.reason, "could not be brought out of the cache"));
}

CASE(a_model_that_is_small) {
    struct selftest test = on(TWO);
    files(&test, "1000000");
    SAME(test.file, "temporary");
    CHECK(says(test.file_note, "smaller than 1 MiB"));
}

CASE(no_file_at_all) {
    struct selftest test = on(TWO);
    fake_selftest.no_temporary = true;
    files(&test, NULL);
    SAME(test.file, "");
    CHECK(says(test.prefetch.reason, "there is no file to read: the disk is full"));
    CHECK(says(test.unbuffered.reason, "the disk is full"));
}

CASE(no_memory_policy) {
    struct selftest test = on(TWO);
    fake.memory_error = -EPERM;
    files(&test, NULL);
    CHECK(says(test.prefetch.reason, "SYS_NICE"));
    SAME(test.cached.word, "stay"); // threads on a node read to it
    SAME(test.unbuffered.word, "keeps");
}

CASE(a_disk_that_fails) {
    struct selftest test = on(TWO);
    fake_selftest.unreadable = true;
    files(&test, NULL);
    CHECK(says(test.cached.reason, "the file cannot be read"));
}

CASE(a_call_that_is_missing) {
    struct selftest test = on(TWO);
    fake_selftest.no_way = true;
    files(&test, NULL);
    CHECK(says(test.prefetch.reason, "cannot be brought in"));
    SAME(test.landings[2].answer.word, "asked");
    SAME(test.cached.word, "stay");
}

CASE(an_open_that_is_refused) {
    struct selftest test = on(TWO);
    fake_selftest.unbuffered_error = -EINVAL;
    files(&test, NULL);
    SAME(test.unbuffered.word, "");
    CHECK(says(test.unbuffered.reason, "cannot be opened past the cache"));
}

CASE(threads_that_leave) {
    struct selftest test = on(TWO);
    fake_selftest.loose = true;
    files(&test, NULL);
    CHECK(says(test.prefetch.reason, "a thread could not be kept on node 1"));
}

CASE(pages_that_cannot_be_seen) {
    struct selftest test = on(TWO);
    fake.look_error = -EPERM;
    files(&test, NULL);
    SAME(test.prefetch.word, "");
    SAME(test.cached.word, "");
}

CASE(too_late_for_files) {
    struct selftest test = on(TWO);
    test.deadline = 0;
    files(&test, NULL);
    CHECK(says(test.prefetch.reason, "the time was up"));
    CHECK(says(test.cached.reason, "the time was up"));
    CHECK(says(test.unbuffered.reason, "the time was up"));
}

// --- bandwidth ---

static void nap(void) {
    nanosleep(&(struct timespec) { .tv_nsec = 20000000 }, NULL);
}

// Rooms of 80 MiB give buffers of 10.
static struct selftest bandwidth_on(const char * machine) {
    struct selftest test = on(machine);
    memset(cells, 0, sizeof(cells));
    fake.written  = true;
    fake.on_sleep = nap;
    selftest_bandwidth(&test);
    EQUAL(fake_ranges(), 0);
    return test;
}

CASE(bandwidth_of_all_pairs) {
    fake_selftest.cache  = 1 << 20;
    fake_selftest.cpu_ms = 6; // of 1.5 ms a look at the clock
    bandwidth_on("0:0-3:4096/80 4:4-7:4096/120");
    for (int i = 0; i < 4; i++) {
        EQUAL(cells[i].threads_on, i / 2);
        EQUAL(cells[i].memory_on, i % 2);
        EQUAL(cells[i].threads, 2); // cores
        EQUAL(cells[i].bytes, MIB(i % 2 ? 15 : 10));
        EQUAL(cells[i].cache_bytes, 1 << 20);
        EQUAL(cells[i].seen.checked, cells[i].bytes / 4096);
        EQUAL(cells[i].seen.on_node, cells[i].seen.checked);
        CHECK(cells[i].gb_per_s > 0 && cells[i].busy > 0);
        SAME(cells[i].reason, "");
    }
}

CASE(bandwidth_is_beyond_the_caches) {
    fake_selftest.cache = 100 << 20;
    bandwidth_on("0:0-1:65536");
    EQUAL(cells[0].bytes, MIB(400));
}

CASE(bandwidth_of_what_is_missing) {
    bandwidth_on("0:0-1:4096/80 1:2-3:0 2:-:4096/80 3:4-5:4096/80:m 4:6-7:4096/80:c 5:8-9:4096/8");
    const char * const reasons[6] = { "", "node 1 has no memory", "", "memory of node 3 is not allowed", "", "node 5 has too little room: 8 MiB" };
    for (int i = 0; i < 36; i++) {
        const char * by = i / 6 == 2 ? "node 2 has no CPUs" : i / 6 == 4 ? "node 4 has no CPUs" : "";
        const char * of = reasons[i % 6];
        CHECK(says(cells[i].reason, *of ? of : by));
        EQUAL(cells[i].gb_per_s > 0, !*of && !*by);
    }
}

CASE(bandwidth_of_pages_that_are_elsewhere) {
    fake.placed_error = -EPERM;
    struct selftest test = on("0:0-1:4096/80 1:2-3:4096/80");
    memset(cells, 0, sizeof(cells));
    fake.written  = true;
    fake.on_sleep = nap;
    fake.room[1]  = MIB(80);
    fake.memory_error = -EPERM; // so all comes from node 0
    selftest_bandwidth(&test);
    CHECK(cells[0].gb_per_s > 0 && cells[2].gb_per_s > 0);
    CHECK(cells[1].gb_per_s == 0 && cells[3].gb_per_s == 0);
    CHECK(says(cells[3].reason, "2560 of 2560 pages are not on node 1"));
    EQUAL(cells[3].seen.elsewhere, 2560);
}

CASE(bandwidth_of_pages_that_are_not_there) {
    struct selftest test = on("0:0-1:4096/80");
    memset(cells, 0, sizeof(cells));
    fake.on_sleep = nap; // and not written: the fake knows of no page
    selftest_bandwidth(&test);
    CHECK(cells[0].gb_per_s == 0);
    CHECK(says(cells[0].reason, "2560 of 2560 pages are not on node 0"));
}

CASE(bandwidth_that_cannot_be_looked_at) {
    fake.look_error = -EPERM;
    bandwidth_on("0:0-1:4096/80");
    CHECK(cells[0].gb_per_s == 0);
    CHECK(says(cells[0].reason, "cannot be seen"));
}

CASE(bandwidth_of_threads_that_leave) {
    fake_selftest.loose = true;
    bandwidth_on("0:0-7:4096/80");
    CHECK(cells[0].gb_per_s == 0);
    CHECK(says(cells[0].reason, "1 of 4 threads could not be kept"));
}

CASE(bandwidth_without_memory) {
    fake.no_memory = true;
    bandwidth_on("0:0-1:4096/80");
    CHECK(says(cells[0].reason, "could not be had"));
}

CASE(bandwidth_when_it_is_late) {
    struct selftest test = on(TWO);
    memset(cells, 0, sizeof(cells));
    test.deadline = 0;
    selftest_bandwidth(&test);
    CHECK(says(cells[3].reason, "the time was up"));
    EQUAL(cells[1].memory_on, 1);
}
