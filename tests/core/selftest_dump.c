// selftest_dump text|json [NODES]: a made-up result of NODES nodes (default 2) as it is printed.
// selftest_dump run MACHINE [FLAG...]: start as the program does on a made-up machine (machine.h); with full instead of run,
// stdout is a full disk.
#define _GNU_SOURCE
#include "core.h"
#include "prim_fake.h"
#include "selftest.h"
#include "selftest_fake.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static void nap(void) {
    nanosleep(&(struct timespec) { .tv_nsec = 20000000 }, NULL);
}

static int run(const char * machine, int argc, char ** argv) {
    fake_machine(machine);
    fake.written  = true;
    fake.on_sleep = nap;
    snprintf(fake_selftest.sets.reason, sizeof(fake_selftest.sets.reason), "there are none");
    snprintf(fake_selftest.large.reason, sizeof(fake_selftest.large.reason), "there are none");
    const int done = numa_node_start(&argc, argv);
    return done < 0 ? 99 : done;
}

static struct selftest_cell cells[] = {
    { 0, 0, 10, 256 << 20, 55 << 20, { 65536, 65536, 0, 0, 0 }, 61.25, 0.99, "" },
    { 0, 1, 10, 256 << 20, 55 << 20, { 65536, 65536, 0, 0, 0 }, 24.5, 0.995, "" },
    { 1, 0, 10, 256 << 20, 55 << 20, { 65536, 65536, 0, 0, 0 }, 25, 0.5, "" },
    { 1, 1, 0, 0, 0, { 0 }, 0, 0, "node 1 has no \"room\"" },
};

static struct selftest made_up(int n) {
    struct selftest test = {
        .topo = &fake.topo, .system = "Windows 10.0.17763", .cpu = "Xeon E5-2699 v4", .seconds = 31.26, .cells = cells, .n_nodes = n,
        .file = "temporary", .file_bytes = 64 << 20, .file_note = "not the model: it is in use",
        .prefetch = { .word = "thread" }, .n_landings = 2,
        .landings = {
            { "PrefetchVirtualMemory", 0, 1, -1, 3, { 16384, 0, 16380, 1, 3 }, { .word = "thread" } },
            { "PrefetchVirtualMemory", 1, 0, -1, -1, { 0 }, { "", "the time was up" } },
        },
        .cached = { .word = "stay" }, .n_remaps = 2,
        .remaps = {
            { 0, 1, "reading", 16384, 16384, 16384, 0, 0, -1, { .word = "stay" } },
            { 1, 0, "mapping", 16384, 16384, 16000, 384, 0, 16384, { .word = "stay" } },
        },
        .unbuffered = { "", "nothing here tells" }, .n_opens = 1,
        .opens = { { false, 16384, 16384, 0, 1024, -1, 0, 1, 16384, 0, { "", "nothing here tells" } } },
        .sets = { .word = "new threads" },
        .cpu_sets = { .main_before = 3, .main_after = 3, .threads = 8, .ideal_before = 4, .ideal_after = 8, .ran_after = 8 },
        .large = { .word = "hidden" }, .n_larges = 2,
        .larges = {
            { "", "large pages", 1, 32 << 20, 32 << 20, { 8192, 0, 0, 8192, 0 } },
            { "there are none", "huge pages", 1, 0, 0, { 0 } },
        },
        .has_model = true, .model = { "A model", 20000000000, 8000000000, 8, 2 },
    };
    node_set_parse_list("4-7", 3, &test.cpu_sets.cpus);
    if (n == 1) {
        test.has_model = false;
        test.prefetch = test.cached = (struct selftest_answer) { "", "it takes two nodes" };
        test.n_landings = test.n_remaps = test.n_larges = 0;
        test.sets                       = (struct selftest_answer) { "", "there are none" };
        test.cpu_sets                   = (struct selftest_cpu_sets) { .main_before = -1, .main_after = -1 };
    }
    return test;
}

int main(int argc, char ** argv) {
    if (argc >= 3 && strcmp(argv[1], "full") == 0) {
        return freopen("/dev/full", "w", stdout) ? run(argv[2], argc - 2, argv + 2) : 99;
    }
    if (argc >= 3 && strcmp(argv[1], "run") == 0) {
        return run(argv[2], argc - 2, argv + 2); // the machine stands where the program's name would
    }
    const int n = argc > 2 ? atoi(argv[2]) : 2;
    fake_machine(n == 1 ? "0:0-3:65536" : "0:0-3:65536 1:4-7:65536");
    const struct selftest test = made_up(n);
    (argc > 1 && strcmp(argv[1], "json") == 0 ? selftest_json : selftest_print)(&test, stdout);
    return 0;
}
