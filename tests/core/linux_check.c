// prim_linux.c on this machine; the node is the first one whose memory this process may take.
#define _GNU_SOURCE
#include "check.h"
#include "prim.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/mempolicy.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB(n) ((size_t) (n) << 20)
#define HUGE   MIB(2)

static struct topology topo;
static int node = -1;

static size_t page(void) {
    return prim_page_size();
}

static size_t pages_of(size_t bytes) {
    return (bytes + page() - 1) / page();
}

__attribute__((constructor)) static void read_machine(void) {
    char err[256];
    int start;
    if (prim_topology(&topo, &start, err, sizeof(err)) != 0 || start != -1) {
        printf("prim_topology: %s\n", err);
        exit(1);
    }
    for (int i = topo.n_nodes - 1; i >= 0; i--) {
        node = topo.nodes[i].mem_allowed ? topo.nodes[i].id : node;
    }
    topology_free(&topo);
}

static void needs_pages_call(void) {
    int status;
    void * at = &status;
    if (syscall(SYS_move_pages, 0, 1UL, &at, NULL, &status, 0) < 0) {
        skip("move_pages cannot be had here: a kernel without NUMA, or a container that forbids it");
    }
}

static char * alloc(size_t bytes) {
    int placed;
    char * base = prim_alloc(bytes, node, PRIM_PREFERRED, &placed);
    if (!base) {
        printf("no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return base;
}

// A region of this size whose pages are small ones.
static char * alloc_small_pages(size_t bytes) {
    char * base = alloc(bytes);
    madvise(base, pages_of(bytes) * page(), MADV_NOHUGEPAGE);
    return base;
}

static void set_filter(struct sock_filter * filter, size_t n) {
    struct sock_fprog program = { (unsigned short) n, filter };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        skip("no seccomp filter can be set here");
    }
}

static void forbid(int number, int error) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned) number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned) error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    set_filter(filter, COUNT(filter));
}

// open() as on a file system without O_DIRECT.
static void forbid_direct(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_DIRECT, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    set_filter(filter, COUNT(filter));
}

// --- memory ---

static const size_t SIZES[] = { 1, 4095, 4096, 4097, 300 << 10, HUGE - 1, HUGE, HUGE + 1, MIB(5) + 123 };

CASE(alloc_is_zeroed_and_aligned) {
    for (size_t i = 0; i < COUNT(SIZES); i++) {
        int placed   = 1;
        char * base  = prim_alloc(SIZES[i], node, i % 2 ? PRIM_BIND : PRIM_PREFERRED, &placed);
        size_t wrong = 0;
        CHECK(base != NULL);
        CHECK(placed == 0 || placed == -EPERM || placed == -ENOSYS);
        EQUAL((uintptr_t) base % (pages_of(SIZES[i]) * page() >= HUGE ? HUGE : page()), 0);
        for (size_t k = 0; k < SIZES[i]; k++) {
            wrong += base[k] != 0;
            base[k] = 'x';
        }
        EQUAL(wrong, 0);
        prim_free(base, SIZES[i]);
    }
}

// What ended a child that writes one byte there: 0, or the signal.
static int signal_of_write(char * at) {
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        *(volatile char *) at = 1;
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

CASE(alloc_has_a_guard_behind) {
    for (size_t i = 0; i < COUNT(SIZES); i++) {
        char * base = alloc(SIZES[i]);
        char * end  = base + pages_of(SIZES[i]) * page();
        EQUAL(signal_of_write(end - 1), 0);
        EQUAL(signal_of_write(end), SIGSEGV);
        EQUAL(signal_of_write(end + page() - 1), SIGSEGV);
        prim_free(base, SIZES[i]);
    }
}

// Mappings that this process has from base to base + bytes, in bytes.
static size_t mapped(const char * base, size_t bytes) {
    unsigned char there;
    size_t found = 0;
    for (size_t i = 0; i < bytes; i += page()) {
        found += mincore((void *) (base + i), page(), &there) == 0 ? page() : 0;
    }
    return found;
}

CASE(free_unmaps_all) {
    for (size_t i = 0; i < COUNT(SIZES); i++) {
        char * base        = alloc(SIZES[i]);
        const size_t whole = pages_of(SIZES[i]) * page() + page(); // and the guard
        EQUAL(mapped(base, whole), whole);
        memset(base, 1, SIZES[i]);
        prim_free(base, SIZES[i]);
        EQUAL(mapped(base, whole), 0);
    }
}

// Pages of address space that this process has.
static long address_space(void) {
    char text[128] = "";
    const int file = open("/proc/self/statm", O_RDONLY);
    CHECK(read(file, text, sizeof(text) - 1) > 0);
    close(file);
    return atol(text);
}

CASE(free_leaves_no_address_space) {
    const long before = address_space();
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < COUNT(SIZES); i++) {
            prim_free(alloc(SIZES[i]), SIZES[i]);
        }
    }
    EQUAL(address_space(), before);
}

// Neighbours do not merge: each region is a mapping by itself.
CASE(alloc_makes_a_mapping_of_its_own) {
    enum { N = 20 };
    char * bases[N];
    char line[4096];
    int found = 0;
    for (int i = 0; i < N; i++) {
        bases[i] = alloc(MIB(3));
    }
    FILE * maps = fopen("/proc/self/maps", "re");
    while (fgets(line, sizeof(line), maps)) {
        unsigned long from, to;
        char rights[5];
        if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) == 3) {
            for (int i = 0; i < N; i++) {
                found += (char *) from == bases[i] && to - from == MIB(3) && strcmp(rights, "rw-p") == 0;
            }
        }
    }
    fclose(maps);
    EQUAL(found, N);
}

CASE(alloc_of_more_than_there_is) {
    int placed;
    CHECK(!prim_alloc(SIZE_MAX, node, PRIM_BIND, &placed));
    CHECK(!prim_alloc(SIZE_MAX - page(), node, PRIM_BIND, &placed));
    CHECK(!prim_alloc(SIZE_MAX - 2 * HUGE, node, PRIM_BIND, &placed));
    CHECK(!prim_alloc(SIZE_MAX / 2, node, PRIM_BIND, &placed));
}

CASE(alloc_on_a_node_that_is_not_there) {
    int placed  = 0;
    char * base = prim_alloc(MIB(3), TOPOLOGY_MAX_NODES - 1, PRIM_BIND, &placed);
    CHECK(base && placed < 0);
    memset(base, 1, MIB(3)); // usable all the same
    prim_free(base, MIB(3));
}

// As in a container that forbids it: memory all the same, and it is said.
CASE(alloc_without_a_policy) {
    int placed = 0;
    forbid(SYS_mbind, EPERM);
    char * base = prim_alloc(MIB(3), node, PRIM_BIND, &placed);
    CHECK(base != NULL);
    EQUAL(placed, -EPERM);
    memset(base, 1, MIB(3));
    prim_free(base, MIB(3));
}

CASE(available) {
    CHECK(prim_available(node) > 0);
    EQUAL(prim_available(TOPOLOGY_MAX_NODES - 1), 0);
    EQUAL(prim_available(-1), 0);
}

CASE(resident_is_what_was_touched) {
    char * base = alloc_small_pages(MIB(64));
    const uint64_t before = prim_resident();
    memset(base, 1, MIB(32));
    const uint64_t more = prim_resident() - before;
    CHECK(before > 0 && before < MIB(4096));
    CHECK(more > MIB(31) && more < MIB(34));
    prim_free(base, MIB(64));
}

// --- looking ---

static struct prim_residency look(const void * base, size_t bytes, int at, uint64_t most, bool coarse) {
    struct prim_residency seen = { 0 };
    bool is_coarse = false;
    EQUAL(prim_look(base, bytes, at, most, &seen, &is_coarse), 0);
    EQUAL(is_coarse, coarse);
    EQUAL(seen.checked, seen.on_node + seen.elsewhere + seen.not_resident);
    return seen;
}

// What the pages are, on the node and as seen from another.
static void check_look(const void * base, size_t bytes, uint64_t most, bool coarse, uint64_t resident, uint64_t absent) {
    const struct prim_residency here  = look(base, bytes, node, most, coarse);
    const struct prim_residency there = look(base, bytes, TOPOLOGY_MAX_NODES - 1, most, coarse);
    if (prim_available(node) < MIB(256)) {
        skip("this node has too little memory for a test of where pages lie");
    }
    EQUAL(here.on_node, resident);
    EQUAL(here.elsewhere, 0);
    EQUAL(here.not_resident, absent);
    EQUAL(there.on_node, 0);
    EQUAL(there.elsewhere, resident);
    EQUAL(there.not_resident, absent);
}

static void write_pages(char * base, size_t from, size_t to, size_t step) {
    for (size_t i = from; i < to; i += step) {
        base[i * page()] = 1;
    }
}

CASE(look_counts_each_page) {
    enum { N = 9000 }; // some batches, and a part of one
    needs_pages_call();
    char * base = alloc_small_pages(N * page());
    check_look(base, N * page(), N, false, 0, N);
    write_pages(base, 0, N, 2);
    check_look(base, N * page(), N, false, N / 2, N / 2);
    check_look(base, N * page(), UINT64_MAX, false, N / 2, N / 2);
    check_look(base, 1, N, false, 1, 0);
    check_look(base + page() - 1, 2, N, false, 1, 1);
    check_look(base + 2 * page() + 7, 3 * page(), N, false, 2, 2);
    check_look(base + page(), page(), N, false, 0, 1);
    check_look(base, 0, N, false, 0, 0);
    check_look(base, N * page(), 0, false, 0, 0);
}

CASE(look_samples_evenly) {
    enum { N = 10000 };
    needs_pages_call();
    char * base = alloc_small_pages(N * page());
    write_pages(base, 0, N / 4, 1);
    check_look(base, N * page(), 1000, false, 250, 750);
    check_look(base, N * page(), N - 1, false, N / 4, N - 1 - N / 4);
    check_look(base, N * page(), 4, false, 1, 3);
    check_look(base, N * page(), 1, false, 1, 0);
}

CASE(look_adds_up) {
    needs_pages_call();
    struct prim_residency seen = { .checked = 1000, .on_node = 100, .elsewhere = 200, .not_resident = 700 };
    bool coarse = true; // as an earlier look said
    char * base = alloc_small_pages(10 * page());
    write_pages(base, 0, 3, 1);
    EQUAL(prim_look(base, 10 * page(), node, 99, &seen, &coarse), 0);
    EQUAL(seen.checked, 1010);
    EQUAL(seen.on_node, 103);
    EQUAL(seen.not_resident, 707);
    CHECK(coarse);
}

// Where move_pages is forbidden, numa_maps says the same of a region of ours.
static void check_numa_maps(int error) {
    enum { N = 6000 };
    needs_pages_call();
    if (access("/proc/self/numa_maps", R_OK) != 0) {
        skip("no numa_maps here");
    }
    char * neighbour = alloc_small_pages(N * page());
    char * base      = alloc_small_pages(N * page());
    char * behind    = alloc_small_pages(N * page());
    char * huge      = alloc(MIB(8) + page());
    write_pages(neighbour, 0, N, 1);
    write_pages(behind, 0, N, 1);
    write_pages(base, 0, N / 3, 1);
    memset(huge, 1, MIB(5));
    const struct prim_residency exact = look(huge, MIB(8) + page(), node, UINT64_MAX, false);
    CHECK(exact.on_node >= pages_of(MIB(5)));
    check_look(base, N * page(), N, false, N / 3, N - N / 3);
    forbid(SYS_move_pages, error);
    check_look(base, N * page(), N, true, N / 3, N - N / 3);
    check_look(base + page() + 1, 2 * page(), 1, true, N / 3, N - N / 3); // the whole mapping, as there is no finer word
    check_look(neighbour, N * page(), N, true, N, 0);
    check_look(huge, MIB(8) + page(), N, true, exact.on_node, exact.not_resident);
}

CASE(numa_maps_says_the_same_after_eperm) { check_numa_maps(EPERM); }
CASE(numa_maps_says_the_same_after_enosys) { check_numa_maps(ENOSYS); }

static _Atomic int stop;

static void * map_and_unmap(void * arg) {
    while (!stop) {
        char * at[40];
        for (int i = 0; i < 40; i++) {
            at[i] = mmap(NULL, page(), i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        }
        for (int i = 0; i < 40; i++) {
            munmap(at[i], page());
        }
    }
    return arg;
}

CASE(numa_maps_while_others_map) {
    needs_pages_call();
    pthread_t thread;
    int failed  = 0;
    char * base = alloc(MIB(1));
    memset(base, 1, MIB(1));
    for (int i = 0; i < 200; i++) { // longer files, more to miss
        alloc(300 << 10);
    }
    forbid(SYS_move_pages, EPERM);
    pthread_create(&thread, NULL, map_and_unmap, NULL);
    for (int i = 0; i < 500; i++) {
        struct prim_residency seen = { 0 };
        bool coarse = false;
        const int error = prim_look(base, MIB(1), node, 1000, &seen, &coarse);
        failed += error != 0 || seen.checked != pages_of(MIB(1)) || seen.not_resident > 0;
    }
    stop = 1;
    pthread_join(thread, NULL);
    EQUAL(failed, 0);
}

CASE(move_what_lies_here_already) {
    enum { N = 5000 };
    needs_pages_call();
    char * base = alloc_small_pages(N * page());
    write_pages(base, 0, N, 3);
    EQUAL(prim_move(base + 5, N * page() - 9, node), 0);
    check_look(base, N * page(), N, false, (N + 2) / 3, N - (N + 2) / 3);
    EQUAL(prim_move(base, N * page(), TOPOLOGY_MAX_NODES - 1), -ENODEV);
    EQUAL(prim_move(base, 0, node), 0);
    check_look(base, N * page(), N, false, (N + 2) / 3, N - (N + 2) / 3);
}

// --- threads ---

static void * wait_at(void * barrier) {
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier);
    return NULL;
}

static int64_t id_of_another;

static void * tell_id(void * barrier) {
    id_of_another = prim_thread_id();
    return wait_at(barrier);
}

CASE(threads_are_where_they_were_bound) {
    struct node_set all, one, other;
    pthread_barrier_t barrier;
    pthread_t thread;
    node_set_clear(&all);
    for (int i = 0; i < NODE_SET_MAX; i++) {
        node_set_add(&all, i);
    }
    cpu_set_t now[NODE_SET_MAX / CPU_SETSIZE];
    CHECK(sched_getaffinity(0, sizeof(now), now) == 0);
    node_set_clear(&one);
    node_set_clear(&other);
    for (int cpu = 0, n = 0; cpu < NODE_SET_MAX; cpu++) {
        if (CPU_ISSET_S((size_t) cpu, sizeof(now), now)) {
            node_set_add(n++ == 0 ? &one : &other, cpu);
        }
    }
    const int64_t self = prim_thread_id();
    EQUAL(prim_thread_within(self, &all), 1);
    EQUAL(prim_thread_within(self, &one), node_set_empty(&other));

    EQUAL(prim_bind_cpus(&one), 0);
    EQUAL(prim_thread_within(self, &one), 1);
    EQUAL(prim_thread_within(self, &other), 0);
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, tell_id, &barrier);
    pthread_barrier_wait(&barrier);
    CHECK(id_of_another != self);
    EQUAL(prim_thread_within(id_of_another, &one), 1); // inherited
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    EQUAL(prim_thread_within(id_of_another, &one), -1);
    EQUAL(prim_thread_within(id_of_another, &all), -1);

    struct node_set none;
    node_set_clear(&none);
    EQUAL(prim_bind_cpus(&none), -EINVAL);
    node_set_add(&none, NODE_SET_MAX - 1);
    EQUAL(prim_bind_cpus(&none), -EINVAL);
    EQUAL(prim_thread_within(self, &one), 1);
}

CASE(memory_policy_is_the_threads_own) {
    static const struct {
        enum prim_policy policy;
        int              mode;
    } ROWS[] = { { PRIM_PREFERRED, MPOL_PREFERRED }, { PRIM_BIND, MPOL_BIND }, { PRIM_PREFERRED, MPOL_PREFERRED } };
    for (size_t i = 0; i < COUNT(ROWS); i++) {
        unsigned long mask[TOPOLOGY_MAX_NODES / (8 * sizeof(long))] = { 0 };
        int mode;
        const int result = prim_bind_memory(node, ROWS[i].policy);
        if (result == -EPERM || result == -ENOSYS) {
            skip("set_mempolicy cannot be had here: a kernel without NUMA, or a container that forbids it");
        }
        EQUAL(result, 0);
        EQUAL(syscall(SYS_get_mempolicy, &mode, mask, (unsigned long) TOPOLOGY_MAX_NODES, NULL, 0), 0);
        EQUAL(mode, ROWS[i].mode);
        for (int k = 0; k < TOPOLOGY_MAX_NODES; k++) {
            const int bits = 8 * sizeof(long);
            EQUAL(mask[k / bits] >> (k % bits) & 1, k == node);
        }
    }
    CHECK(prim_bind_memory(TOPOLOGY_MAX_NODES - 1, PRIM_BIND) < 0);
    EQUAL(prim_bind_memory(TOPOLOGY_MAX_NODES, PRIM_BIND), -EINVAL); // an empty set of nodes
    EQUAL(prim_bind_memory(-1, PRIM_BIND), -EINVAL);
    forbid(SYS_set_mempolicy, EPERM);
    EQUAL(prim_bind_memory(node, PRIM_PREFERRED), -EPERM);
}

static _Atomic int works;
static int64_t ids[128];

static void work(void * context) {
    CHECK(context == ids);
    const int i = works++;
    ids[i] = prim_thread_id();
    while (works < 3) { // all at once, or this would not end
    }
}

CASE(parallel_runs_in_as_many_threads) {
    prim_parallel(3, work, ids);
    EQUAL(works, 3);
    CHECK(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
    const int64_t self = prim_thread_id();
    CHECK(ids[0] == self || ids[1] == self || ids[2] == self);
    prim_parallel(1, work, ids);
    EQUAL(works, 4);
    EQUAL(ids[3], self);
    prim_parallel(1000, work, ids); // has an end
    CHECK(works > 4 + 8 && works < 4 + 100);
}

CASE(environment_is_set) {
    prim_set_env("NUMA_NODE_CHECK", "1");
    prim_set_env("NUMA_NODE_CHECK", "two words");
    SAME(getenv("NUMA_NODE_CHECK"), "two words");
}

// --- files ---

#define FILE_SIZE (MIB(9) + 321)

static char byte_at(uint64_t offset) {
    return (char) ((offset * UINT64_C(0x9e3779b97f4a7c15)) >> 56);
}

static const char * file_name(void) {
    static char name[4096];
    snprintf(name, sizeof(name), "%s/numbers", check_folder);
    return name;
}

static int make_file(size_t bytes) {
    const int file = open(file_name(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    char * all     = malloc(bytes);
    for (size_t i = 0; i < bytes; i++) {
        all[i] = byte_at(i);
    }
    if (file < 0 || write(file, all, bytes) != (ssize_t) bytes || fsync(file) != 0) {
        skip("no room for a file");
    }
    free(all);
    return file;
}

// Which pages of the file are in the cache: one byte each. Returns how many.
static size_t cached(int file, size_t bytes, unsigned char * map) {
    void * view = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
    size_t n    = 0;
    EQUAL(mincore(view, bytes, map), 0);
    munmap(view, bytes);
    for (size_t i = 0; i < pages_of(bytes); i++) {
        map[i] &= 1;
        n += map[i];
    }
    return n;
}

// Throw the file out of the cache, then read this part of it in again.
static void set_cache(int file, size_t bytes, size_t warm_from, size_t warm_to) {
    char * buffer = malloc(bytes);
    unsigned char * map = malloc(pages_of(bytes));
    for (int i = 0; i < 100 && (posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), cached(file, bytes, map)) > 0; i++) {
        prim_sleep_ms(10);
    }
    if (cached(file, bytes, map) > 0) {
        skip("this file system keeps files in memory");
    }
    posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM); // no read-ahead
    EQUAL(pread(file, buffer, warm_to - warm_from, (off_t) warm_from), warm_to - warm_from);
    posix_fadvise(file, 0, 0, POSIX_FADV_NORMAL);
    free(buffer);
    free(map);
}

static void needs_direct(void) {
    const int direct = open(file_name(), O_RDONLY | O_DIRECT);
    if (direct < 0) {
        skip("this file system has no O_DIRECT");
    }
    close(direct);
}

static const struct {
    uint64_t offset;
    size_t   bytes;
} READS[] = {
    { 0, 0 }, { 0, 1 }, { 1, 1 }, { 4095, 2 }, { 4096, 4096 }, { 511, 513 }, { 12345, 65536 }, { MIB(1) - 1, MIB(1) + 2 },
    { 32, MIB(4) }, { MIB(4) + 32, MIB(4) }, { 0, FILE_SIZE }, { 777, FILE_SIZE - 777 }, { FILE_SIZE - 1, 1 },
    { FILE_SIZE - 321, 321 }, { FILE_SIZE - 5000, 5000 }, { FILE_SIZE, 0 },
};

static void check_reads(int file, size_t warm_from, size_t warm_to, size_t most_changed) {
    static unsigned char before[FILE_SIZE / 4096 + 2], after[FILE_SIZE / 4096 + 2];
    struct prim_reader * reader = prim_reader_open(file);
    CHECK(reader != NULL);
    for (size_t i = 0; i < COUNT(READS); i++) {
        const size_t bytes = READS[i].bytes;
        char * to = malloc(bytes + 2);
        memset(to, 'x', bytes + 2);
        if (most_changed < SIZE_MAX) {
            set_cache(file, FILE_SIZE, warm_from, warm_to);
            cached(file, FILE_SIZE, before);
        }
        EQUAL(prim_reader_read(reader, READS[i].offset, to + 1, bytes), 0);
        if (most_changed < SIZE_MAX) {
            cached(file, FILE_SIZE, after);
            size_t changed = 0;
            for (size_t k = 0; k < pages_of(FILE_SIZE); k++) {
                changed += before[k] != after[k];
            }
            if (changed > most_changed) {
                printf("read %zu changes %zu pages of the cache\n", i, changed);
                CHECK(changed <= most_changed);
            }
        }
        size_t wrong = 0;
        for (size_t k = 0; k < bytes; k++) {
            wrong += to[1 + k] != byte_at(READS[i].offset + k);
        }
        EQUAL(wrong, 0);
        CHECK(to[0] == 'x' && to[bytes + 1] == 'x');
        free(to);
    }
    prim_reader_close(reader);
}

CASE(reader_gives_the_bytes) {
    check_reads(make_file(FILE_SIZE), 0, 0, SIZE_MAX);
}

CASE(reader_leaves_a_cold_file_cold) {
    const int file = make_file(FILE_SIZE);
    needs_direct();
    check_reads(file, 0, 0, 1);
}

// Where O_DIRECT cannot be had, what is read ahead of the range must not stay either.
CASE(reader_without_direct_leaves_a_cold_file_cold) {
    const int file = make_file(FILE_SIZE);
    forbid_direct();
    CHECK(open(file_name(), O_RDONLY | O_DIRECT) < 0);
    check_reads(file, 0, 0, 1);
}

CASE(reader_leaves_a_warm_file_warm) {
    const int file = make_file(FILE_SIZE);
    needs_direct();
    check_reads(file, 0, FILE_SIZE, 0);
}

CASE(reader_leaves_a_half_warm_file_so) {
    const int file = make_file(FILE_SIZE);
    needs_direct();
    check_reads(file, MIB(2) + 4096, MIB(6), 1);
    check_reads(file, 0, MIB(5), 1);
}

// Pages of the file in the cache, once what the kernel still reads has come in.
static size_t cached_in_the_end(int file, unsigned char * map) {
    size_t n = cached(file, FILE_SIZE, map);
    for (int same = 0; same < 10;) {
        prim_sleep_ms(10);
        const size_t now = cached(file, FILE_SIZE, map);
        same = now == n ? same + 1 : 0;
        n    = now;
    }
    return n;
}

// A stream that was read in order leaves a mark in the cache: who comes by there sets off the next read-ahead.
CASE(reader_sets_off_no_read_ahead) {
    const int file = make_file(FILE_SIZE);
    unsigned char * map = malloc(pages_of(FILE_SIZE));
    char * to = malloc(FILE_SIZE);
    needs_direct();
    set_cache(file, FILE_SIZE, 0, 0);
    lseek(file, 0, SEEK_SET);
    for (size_t at = 0; at < MIB(1); at += 65536) {
        EQUAL(read(file, to, 65536), 65536);
    }
    const size_t before = cached_in_the_end(file, map);
    if (before <= pages_of(MIB(1)) || before >= pages_of(MIB(8))) {
        skip("this file system reads nothing ahead");
    }
    struct prim_reader * reader = prim_reader_open(file);
    for (size_t at = 0; at < before; at += 16) {
        EQUAL(prim_reader_read(reader, at * page(), to, 16 * page()), 0);
    }
    CHECK(cached_in_the_end(file, map) <= before + 1);
    prim_reader_close(reader);
    free(to);
    free(map);
}

// mincore calls a file that is not ours all cached.
CASE(reader_leaves_a_file_of_others_cold) {
    const int file = make_file(FILE_SIZE);
    unsigned char * map = malloc(pages_of(FILE_SIZE));
    char * to = malloc(MIB(4));
    needs_direct();
    set_cache(file, FILE_SIZE, 0, 0);
    if (geteuid() != 0 || fchmod(file, 0644) != 0 || setresuid(65534, 65534, 0) != 0) {
        skip("needs root, to be somebody else for a while");
    }
    struct prim_reader * reader = prim_reader_open(file);
    CHECK(reader && prim_reader_read(reader, 100, to, MIB(4)) == 0 && to[5] == byte_at(105));
    CHECK(seteuid(0) == 0);
    CHECK(cached(file, FILE_SIZE, map) <= 1);
    prim_reader_close(reader);
    free(to);
    free(map);
}

CASE(reader_sees_what_was_just_written) {
    const int file = make_file(FILE_SIZE);
    char text[7]   = "";
    set_cache(file, FILE_SIZE, 0, 0);
    EQUAL(pwrite(file, "change", 6, MIB(1) + 10), 6); // not on the disk yet
    struct prim_reader * reader = prim_reader_open(file);
    char * to = malloc(MIB(2));
    EQUAL(prim_reader_read(reader, MIB(1), to, MIB(2)), 0);
    memcpy(text, to + 10, 6);
    SAME(text, "change");
    free(to);
    prim_reader_close(reader);
}

// What is read of the disk, in bytes.
static long long disk_bytes(void) {
    long long bytes = -1;
    char line[128];
    FILE * io = fopen("/proc/self/io", "re");
    while (io && fgets(line, sizeof(line), io)) {
        sscanf(line, "read_bytes: %lld", &bytes);
    }
    if (io) {
        fclose(io);
    }
    return bytes;
}

CASE(reader_reads_no_more_than_it_needs) {
    const int file = make_file(FILE_SIZE);
    char * to      = malloc(MIB(4));
    needs_direct();
    set_cache(file, FILE_SIZE, 0, 0);
    struct prim_reader * reader = prim_reader_open(file);
    const long long before = disk_bytes();
    if (before < 0) {
        skip("no /proc/self/io here");
    }
    EQUAL(prim_reader_read(reader, 32, to, MIB(4)), 0); // as chunks of tensors are
    const long long took = disk_bytes() - before;
    if (took == 0) {
        skip("this file system does not count what it reads");
    }
    CHECK(took <= (long long) MIB(4) + 8192);
    prim_reader_close(reader);
    free(to);
}

CASE(reader_says_what_is_wrong) {
    const int file = make_file(10000);
    char to[20000];
    struct prim_reader * reader = prim_reader_open(file);
    CHECK(prim_reader_read(reader, 0, to, 10001) < 0);
    CHECK(prim_reader_read(reader, 10000, to, 1) < 0);
    CHECK(prim_reader_read(reader, 10001, to, 0) < 0);
    CHECK(prim_reader_read(reader, UINT64_MAX, to, 2) < 0);
    CHECK(prim_reader_read(reader, 1, to, SIZE_MAX) < 0);
    EQUAL(prim_reader_read(reader, 9999, to, 1), 0);
    CHECK(ftruncate(file, 5000) == 0); // behind its back
    CHECK(prim_reader_read(reader, 0, to, 10000) < 0);
    EQUAL(prim_reader_read(reader, 0, to, 5000), 0);
    prim_reader_close(reader);
}

static int open_files(void) {
    DIR * folder = opendir("/proc/self/fd");
    int n = 0;
    while (readdir(folder)) {
        n++;
    }
    closedir(folder);
    return n;
}

CASE(reader_stands_beside_the_stream) {
    const int file = make_file(FILE_SIZE);
    char to[70000];
    int ends[2];
    lseek(file, 4321, SEEK_SET);
    const int before = open_files();
    struct prim_reader * reader = prim_reader_open(file);
    EQUAL(prim_reader_read(reader, 5, to, sizeof(to)), 0);
    EQUAL(lseek(file, 0, SEEK_CUR), 4321);
    prim_reader_close(reader);
    EQUAL(open_files(), before);
    EQUAL(lseek(file, 0, SEEK_CUR), 4321); // still open

    CHECK(!prim_reader_open(-1));
    CHECK(!prim_reader_open(99999));
    const int folder = open(check_folder, O_RDONLY | O_DIRECTORY);
    CHECK(!prim_reader_open(folder));
    close(folder);
    CHECK(pipe(ends) == 0);
    CHECK(!prim_reader_open(ends[0]));
    close(ends[0]);
    close(ends[1]);
    EQUAL(open_files(), before);
    unlink(file_name()); // without a name it can be read all the same
    reader = prim_reader_open(file);
    CHECK(reader && prim_reader_read(reader, 5, to, sizeof(to)) == 0 && to[0] == byte_at(5));
    prim_reader_close(reader);
}

CASE(touch_makes_a_mapping_resident) {
    needs_pages_call();
    const size_t bytes = MIB(3) + 123;
    const int file     = make_file(bytes);
    set_cache(file, bytes, 0, 0);
    unsigned char * there = malloc(pages_of(bytes));
    char * map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
    check_look(map, bytes, UINT64_MAX, false, 0, pages_of(bytes));
    EQUAL(prim_touch(map + MIB(1) + 100, 2 * page()), 0); // lies on three
    check_look(map + MIB(1), 3 * page(), UINT64_MAX, false, 3, 0);
    CHECK(look(map, bytes, node, UINT64_MAX, false).not_resident > 0);
    EQUAL(prim_touch(map, 0), 0);
    EQUAL(prim_touch(map, bytes), 0);
    check_look(map, bytes, UINT64_MAX, false, pages_of(bytes), 0);
    EQUAL(cached(file, bytes, there), pages_of(bytes));
    EQUAL(prim_touch(map, bytes), 0);
    free(there);
    munmap(map, bytes);
}

// A page that cannot be read is an error, not the end of the process.
CASE(touch_of_what_cannot_be_read) {
    const int file = make_file(MIB(1));
    char * map = mmap(NULL, MIB(1), PROT_READ, MAP_SHARED, file, 0);
    CHECK(ftruncate(file, 5000) == 0);
    CHECK(prim_touch(map, MIB(1)) < 0);
    EQUAL(prim_touch(map, 5000), 0);
    munmap(map, MIB(1));
    CHECK(prim_touch(map, MIB(1)) < 0);
}
