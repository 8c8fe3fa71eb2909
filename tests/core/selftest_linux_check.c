// selftest_linux.c on this machine.
#define _GNU_SOURCE
#include "check.h"
#include "selftest_os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((size_t) 1 << 20)

static int64_t pages(size_t bytes) {
    return (int64_t) (bytes / prim_page_size());
}

static struct topology topo;

static void look_around(void) {
    int start_node;
    char err[256];
    EQUAL(prim_topology(&topo, &start_node, err, sizeof(err)), 0);
}

// --- the machine ---

CASE(system_is_named) {
    char system[160], cpu[96], small[4], none[1];
    selftest_system(system, sizeof(system), cpu, sizeof(cpu));
    CHECK(strncmp(system, "Linux ", 6) == 0);
    CHECK(!strpbrk(system, "\n\"") && !strpbrk(cpu, "\n\""));
    selftest_system(small, sizeof(small), none, sizeof(none));
    SAME(small, "Lin");
}

CASE(caches_add_up) {
    look_around();
    uint64_t nodes = 0;
    for (int i = 0; i < topo.n_nodes; i++) {
        nodes += selftest_cache(&topo.nodes[i].cpus);
    }
    const struct node_set none = { { 0 } };
    EQUAL(selftest_cache(&none), 0);
    CHECK(nodes < (uint64_t) 64 << 30);
    struct node_set first = { { 0 } };
    node_set_add(&first, node_set_next(&topo.allowed_cpus, 0));
    CHECK(selftest_cache(&first) <= nodes);
}

// --- threads ---

static struct node_set seen_cpus[8];
static _Atomic int     n_seen;

static void note_cpus(void * context) {
    CHECK(context == seen_cpus);
    struct node_set * cpus = &seen_cpus[atomic_fetch_add(&n_seen, 1)];
    EQUAL(sched_getaffinity(0, sizeof(cpus->word), (cpu_set_t *) cpus->word), 0);
}

CASE(threads_run_on_a_cpu_each) {
    look_around();
    const int n = node_set_count(&topo.allowed_cpus);
    struct node_set all = { { 0 } };
    EQUAL(selftest_crew_join(selftest_crew_start(&topo.allowed_cpus, 8, note_cpus, seen_cpus)), 8);
    EQUAL(n_seen, 8);
    for (int i = 0; i < 8; i++) {
        EQUAL(node_set_count(&seen_cpus[i]), 1);
        node_set_add(&all, node_set_next(&seen_cpus[i], 0));
    }
    EQUAL(node_set_count(&all), n < 8 ? n : 8); // in turns
    CHECK(prim_thread_within(prim_thread_id(), &topo.allowed_cpus)); // this one is as it was
}

static void nothing(void * context) {
    (void) context;
}

CASE(threads_on_a_cpu_that_is_not_there_do_not_count) {
    struct node_set absent = { { 0 } };
    node_set_add(&absent, NODE_SET_MAX - 1);
    EQUAL(selftest_crew_join(selftest_crew_start(&absent, 2, nothing, NULL)), 0);
    node_set_clear(&absent);
    CHECK(selftest_crew_start(&absent, 2, nothing, NULL) == NULL);
}

// --- files ---

static int files_there(void) {
    int n = 0;
    DIR * folder = opendir(check_folder);
    for (const struct dirent * entry; (entry = readdir(folder));) {
        n += entry->d_name[0] != '.';
    }
    closedir(folder);
    return n;
}

static struct selftest_file * temporary(void) {
    char why[160];
    setenv("TMPDIR", check_folder, 1);
    struct selftest_file * file = selftest_file_temporary(4 * MIB, why, sizeof(why));
    if (!file) {
        skip(why);
    }
    EQUAL(files_there(), 0); // without a name from the start
    return file;
}

CASE(a_file_is_cold_then_cached) {
    struct selftest_file * file = temporary();
    EQUAL(selftest_file_bytes(file), 4 * MIB);
    EQUAL(selftest_file_cool(file), 0);
    EQUAL(selftest_file_cached(file), 0);
    EQUAL(selftest_file_read(file), 0);
    EQUAL(selftest_file_cached(file), pages(4 * MIB));
    EQUAL(selftest_file_unbuffered(file, true), -ENOSYS);
    const int error = selftest_file_unbuffered(file, false);
    CHECK(error == 0 || error == -EINVAL); // a file system without
    EQUAL(selftest_file_cached(file), pages(4 * MIB));
    EQUAL(selftest_file_cool(file), 0);
    EQUAL(selftest_file_cached(file), 0);
    selftest_file_close(file);
}

CASE(each_way_brings_it_in) {
    struct selftest_file * file = temporary();
    for (int way = 0; selftest_way_name(way); way++) {
        EQUAL(selftest_file_cool(file), 0);
        const uint64_t * view = selftest_file_map(file, 0);
        const int error = selftest_way(way, view, 4 * MIB);
        CHECK(error == 0 || (way == 1 && error == -EINVAL)); // Linux before 5.14
        for (int i = 0; i < 200 && selftest_file_cached(file) < pages(4 * MIB); i++) {
            prim_sleep_ms(10); // in the background
        }
        CHECK(error != 0 || selftest_file_cached(file) == pages(4 * MIB));
        CHECK(view[0] != 0 && view[0] != view[4 * MIB / sizeof(*view) - 1]); // noise, down to the end
        selftest_file_unmap(file, view);
    }
    CHECK(selftest_way_name(-1) == NULL);
    selftest_file_close(file);
}

CASE(a_mapped_file_does_not_get_cold) {
    struct selftest_file * file = temporary();
    const void * view = selftest_file_map(file, 0);
    EQUAL(selftest_way(2, view, 4 * MIB), 0);
    EQUAL(selftest_file_cool(file), -EBUSY);
    selftest_file_unmap(file, view);
    EQUAL(selftest_file_cool(file), 0);
    selftest_file_close(file);
}

static struct selftest_file * open_in_folder(const char * name, char * why, size_t size) {
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", check_folder, name);
    return selftest_file_open(path, 2 * MIB, why, size);
}

CASE(a_model_is_opened_from_its_beginning) {
    char why[160] = "", path[4096];
    snprintf(path, sizeof(path), "%s/model", check_folder);
    for (size_t size = 1; size <= 4 * MIB; size = size == 1 ? 3 * prim_page_size() + 1 : size * 1000) {
        const int made = open(path, O_WRONLY | O_CREAT, 0400);
        EQUAL(ftruncate(made, (off_t) size), 0);
        close(made);
        struct selftest_file * file = open_in_folder("model", why, sizeof(why));
        const size_t whole = size / prim_page_size() * prim_page_size();
        EQUAL(selftest_file_bytes(file), whole < 2 * MIB ? whole : 2 * MIB);
        selftest_file_close(file);
    }
}

CASE(what_is_no_model_is_not_opened) {
    char why[160] = "";
    CHECK(!open_in_folder("nothing", why, sizeof(why)));
    CHECK(!open_in_folder("", why, sizeof(why)));
    SAME(why, "it cannot be read, or is in an archive");
}

CASE(a_file_in_memory_will_not_do) {
    char why[160] = "";
    if (access("/dev/shm", W_OK) != 0) {
        skip("there is no /dev/shm");
    }
    setenv("TMPDIR", "/dev/shm", 1);
    struct selftest_file * file = selftest_file_temporary((size_t) 1 << 60, why, sizeof(why)); // nor is anything so large
    CHECK(!file && strstr(why, "no folder for temporary files") != NULL);
}

// --- the rest ---

CASE(cpu_sets_are_of_windows) {
    struct selftest_cpu_sets sets;
    selftest_cpu_sets(NULL, &sets);
    CHECK(strstr(sets.reason, "Linux has no CPU sets") != NULL);
    EQUAL(sets.main_before, -1);
}

CASE(large_pages_are_looked_at) {
    struct selftest_large large;
    look_around();
    const int node = topo.nodes[topology_emptiest(&topo)].id;
    for (int kind = 0; selftest_large(kind, node, &large); kind++) {
        CHECK(large.kind && large.node == node);
        CHECK(large.reason[0] != 0 || large.large_bytes > 0);
        if (!large.reason[0]) {
            EQUAL(large.seen.checked, pages(large.bytes));
            CHECK(large.large_bytes <= large.bytes);
        }
    }
    CHECK(!selftest_large(-1, node, &large));
}

CASE(counters_count) {
    const double before = selftest_cpu_ms();
    volatile uint64_t n = 0;
    while (selftest_cpu_ms() - before < 5) {
        n++;
    }
    CHECK(n > 0);
    CHECK(selftest_hard_faults() >= 0);
}
