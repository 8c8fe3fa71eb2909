// prim_windows.c, above machines that are made up here (the table win32 is replaced call by call) and above what runs this.
// Names of cases that end the process by themselves begin with exit_.
#include "win32.h"

#include "check.h"
#include "path_windows.h"
#include "prim.h"

#include <errno.h>
#include <io.h>
#include <stdint.h>

#define GIB ((uint64_t) 1 << 30)

// --- a made-up machine ---

enum answer { ANSWERS, REFUSES, SAYS_NOTHING };

struct records {
    unsigned char bytes[256 * 64];
    DWORD         size;
};

static struct {
    enum answer      node_ex, node;
    struct records   nodes, cores;
    int              grows; // calls that are told there is more than they were told before
    int              n_calls;
    DWORD_PTR        given, all;
    USHORT           groups[4], n_groups;
    bool             groups_known;
    PROCESSOR_NUMBER ideal;
    bool             ideal_known, ideal_stays; // stays: whatever it is set to
    GROUP_AFFINITY   affinity;
    bool             affinity_refused;
    uint64_t         free_bytes[8]; // UINT64_MAX: not known
    uint64_t         total, available;
} now;

// What was asked of it.
static struct {
    GROUP_AFFINITY   affinity[1024];
    PROCESSOR_NUMBER ideal[1024];
    int              n_affinity, n_ideal;
    GROUP_AFFINITY   masks[8];
    int              n_masks;
    ULONG            ids[8];
    int              n_ids;
    DWORD            node, type[8];
    int              n_allocs;
} asked;

static void add_record(struct records * records, LOGICAL_PROCESSOR_RELATIONSHIP kind, DWORD number, int n_groups,
                       const GROUP_AFFINITY * groups) {
    SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX record = { .Relationship = kind };
    record.Size = (DWORD) (32 + (size_t) n_groups * sizeof(*groups));
    if (kind == RelationNumaNode) {
        record.NumaNode.NodeNumber = number;
        record.NumaNode.GroupCount = (WORD) n_groups;
    } else {
        record.Processor.GroupCount = (WORD) n_groups;
    }
    memcpy(records->bytes + records->size, &record, 32);
    memcpy(records->bytes + records->size + 32, groups, (size_t) n_groups * sizeof(*groups));
    records->size += record.Size;
}

static void add_node(DWORD number, WORD group, KAFFINITY mask) {
    const GROUP_AFFINITY one = { .Mask = mask, .Group = group };
    add_record(&now.nodes, RelationNumaNode, number, 1, &one);
}

// Cores of two CPUs each, side by side.
static void add_cores(WORD group, int n_cpus) {
    for (int cpu = 0; cpu < n_cpus; cpu += 2) {
        const GROUP_AFFINITY one = { .Mask = (KAFFINITY) 3 << cpu, .Group = group };
        add_record(&now.cores, RelationProcessorCore, 0, 1, &one);
    }
}

static BOOL fails(DWORD error) {
    SetLastError(error);
    return FALSE;
}

static BOOL WINAPI records_now(LOGICAL_PROCESSOR_RELATIONSHIP kind, SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX * to, DWORD * size) {
    const enum answer answer = kind == RelationNumaNodeEx ? now.node_ex : kind == RelationNumaNode ? now.node : ANSWERS;
    const struct records * records = kind == RelationProcessorCore ? &now.cores : &now.nodes;
    if (answer == REFUSES) {
        return fails(ERROR_INVALID_PARAMETER);
    }
    if (answer == SAYS_NOTHING) {
        *size = 0;
        return TRUE;
    }
    now.n_calls++;
    if (now.grows > 0) {
        now.grows--;
        *size += records->size;
        return fails(ERROR_INSUFFICIENT_BUFFER);
    }
    if (*size < records->size) {
        *size = records->size;
        return fails(ERROR_INSUFFICIENT_BUFFER);
    }
    memcpy(to, records->bytes, records->size);
    *size = records->size;
    return TRUE;
}

static BOOL WINAPI free_now(USHORT node, ULONGLONG * bytes) {
    if (node >= COUNT(now.free_bytes) || now.free_bytes[node] == UINT64_MAX) {
        return fails(ERROR_CALL_NOT_IMPLEMENTED);
    }
    *bytes = now.free_bytes[node];
    return TRUE;
}

static BOOL WINAPI memory_now(MEMORYSTATUSEX * status) {
    if (status->dwLength != sizeof(*status)) {
        return fails(ERROR_INVALID_PARAMETER);
    }
    status->ullTotalPhys = now.total;
    status->ullAvailPhys = now.available;
    return TRUE;
}

static BOOL WINAPI mask_now(HANDLE process, DWORD_PTR * given, DWORD_PTR * all) {
    (void) process;
    *given = now.given;
    *all   = now.all;
    return TRUE;
}

static BOOL WINAPI groups_now(HANDLE process, USHORT * count, USHORT * groups) {
    (void) process;
    if (!now.groups_known || *count < now.n_groups) {
        return fails(now.groups_known ? ERROR_INSUFFICIENT_BUFFER : ERROR_CALL_NOT_IMPLEMENTED);
    }
    *count = now.n_groups;
    memcpy(groups, now.groups, now.n_groups * sizeof(*groups));
    return TRUE;
}

static BOOL WINAPI ideal_now(HANDLE thread, PROCESSOR_NUMBER * ideal) {
    (void) thread;
    *ideal = now.ideal;
    return now.ideal_known ? TRUE : fails(ERROR_CALL_NOT_IMPLEMENTED);
}

static BOOL WINAPI set_ideal_now(HANDLE thread, PROCESSOR_NUMBER * ideal, PROCESSOR_NUMBER * before) {
    (void) thread;
    (void) before;
    if (!now.ideal_known) {
        return fails(ERROR_CALL_NOT_IMPLEMENTED);
    }
    asked.ideal[asked.n_ideal++] = *ideal;
    now.ideal = now.ideal_stays ? now.ideal : *ideal;
    return TRUE;
}

static BOOL WINAPI affinity_now(HANDLE thread, GROUP_AFFINITY * affinity) {
    (void) thread;
    *affinity = now.affinity;
    return TRUE;
}

static BOOL WINAPI set_affinity_now(HANDLE thread, const GROUP_AFFINITY * affinity, GROUP_AFFINITY * before) {
    (void) thread;
    (void) before;
    if (now.affinity_refused) {
        return fails(ERROR_INVALID_PARAMETER);
    }
    asked.affinity[asked.n_affinity++] = now.affinity = *affinity;
    now.ideal = (PROCESSOR_NUMBER) { .Group = affinity->Group, .Number = (BYTE) __builtin_ctzll(affinity->Mask) };
    return TRUE;
}

static BOOL WINAPI set_masks_now(HANDLE process, GROUP_AFFINITY * masks, USHORT count) {
    (void) process;
    asked.n_masks = count;
    memcpy(asked.masks, masks, count * sizeof(*masks));
    return TRUE;
}

static BOOL WINAPI set_ids_now(HANDLE process, const ULONG * ids, ULONG count) {
    (void) process;
    asked.n_ids = (int) count;
    memcpy(asked.ids, ids, count * sizeof(*ids));
    return TRUE;
}

// Four CPU sets: 256, 257 in group 0, 258, 259 in group 1.
static BOOL WINAPI cpu_sets_now(SYSTEM_CPU_SET_INFORMATION * to, ULONG room, ULONG * size, HANDLE process, ULONG flags) {
    (void) process;
    (void) flags;
    *size = 4 * sizeof(*to);
    if (room < *size) {
        return fails(ERROR_INSUFFICIENT_BUFFER);
    }
    for (int i = 0; i < 4; i++) {
        to[i] = (SYSTEM_CPU_SET_INFORMATION) { .Size = sizeof(*to), .Type = CpuSetInformation };
        to[i].CpuSet.Id    = 256 + (ULONG) i;
        to[i].CpuSet.Group = (WORD) (i / 2);
        to[i].CpuSet.LogicalProcessorIndex = (BYTE) (i % 2);
    }
    return TRUE;
}

// Two sockets of 40 logical CPUs, 256 GiB each, in two groups, on a Windows 10; the process was started in group 0.
static void make_two_sockets(void) {
    add_node(0, 0, ((KAFFINITY) 1 << 40) - 1);
    add_node(1, 1, ((KAFFINITY) 1 << 40) - 1);
    add_cores(0, 40);
    add_cores(1, 40);
    now.given = now.all = ((DWORD_PTR) 1 << 40) - 1;
    now.n_groups      = 1;
    now.groups_known  = true;
    now.ideal_known   = true;
    now.affinity      = (GROUP_AFFINITY) { .Mask = now.all };
    now.free_bytes[0] = 200 * GIB;
    now.free_bytes[1] = 100 * GIB;
    now.total         = 512 * GIB;
    now.available     = 320 * GIB;
}

static void make_one_node_in_two_groups(int cpus_0, int cpus_1) {
    const GROUP_AFFINITY parts[2] = { { .Mask = ~(KAFFINITY) 0 >> (64 - cpus_0) }, { .Mask = ~(KAFFINITY) 0 >> (64 - cpus_1), .Group = 1 } };
    add_record(&now.nodes, RelationNumaNode, 0, 2, parts);
    add_cores(0, cpus_0);
    add_cores(1, cpus_1);
    now.ideal_known = true;
    now.affinity    = parts[0];
    now.total       = now.free_bytes[0] = 256 * GIB;
}

static void install(void) {
    win32_bind();
    win32.GetLogicalProcessorInformationEx = records_now;
    win32.GetNumaAvailableMemoryNodeEx     = free_now;
    win32.GlobalMemoryStatusEx             = memory_now;
    win32.GetProcessAffinityMask           = mask_now;
    win32.GetProcessGroupAffinity          = groups_now;
    win32.GetThreadIdealProcessorEx        = ideal_now;
    win32.SetThreadIdealProcessorEx        = set_ideal_now;
    win32.GetThreadGroupAffinity           = affinity_now;
    win32.SetThreadGroupAffinity           = set_affinity_now;
    win32.GetSystemCpuSetInformation       = NULL;
    win32.SetProcessDefaultCpuSets         = NULL;
    win32.SetProcessDefaultCpuSetMasks     = NULL;
}

static struct topology topo;
static int             start_node;
static char            err[256];

static int look_around(void) {
    install();
    return prim_topology(&topo, &start_node, err, sizeof(err));
}

static void check_two_sockets(void) {
    EQUAL(look_around(), 0);
    EQUAL(topo.n_nodes, 2);
    if (topo.n_nodes == 2) {
        EQUAL(node_set_count(&topo.nodes[0].cpus), 40);
        EQUAL(node_set_next(&topo.nodes[1].cpus, 0), 64);
        EQUAL(node_set_count(&topo.nodes[1].cores), 20);
    }
}

static struct node_set set_of(const char * list) {
    struct node_set set;
    EQUAL(node_set_parse_list(list, strlen(list), &set), 0);
    return set;
}

// --- the machine ---

CASE(nodes_by_ex) {
    make_two_sockets();
    now.node = REFUSES;
    check_two_sockets();
}

CASE(nodes_where_ex_is_refused) {
    make_two_sockets();
    now.node_ex = REFUSES;
    check_two_sockets();
}

CASE(nodes_where_ex_says_nothing) {
    make_two_sockets();
    now.node_ex = SAYS_NOTHING;
    check_two_sockets();
}

CASE(nodes_of_no_kind) {
    make_two_sockets();
    now.node_ex = SAYS_NOTHING;
    now.node    = REFUSES;
    EQUAL(look_around(), -1);
    SAME(err, "Windows lists no NUMA node of this machine");
    EQUAL(topo.n_nodes, 0);
}

CASE(machine_grows_while_it_is_listed) {
    make_two_sockets();
    now.grows = 5;
    check_two_sockets();
}

CASE(machine_that_never_stops_growing) {
    make_two_sockets();
    now.grows = 1000000;
    EQUAL(look_around(), -1);
    CHECK(now.n_calls < 1000);
}

CASE(a_table_that_is_bound_stays) {
    install();
    win32_bind();
    CHECK(win32.GlobalMemoryStatusEx == memory_now);
}

CASE(a_whole_group_confines_nobody) {
    make_two_sockets();
    EQUAL(look_around(), 0);
    EQUAL(node_set_count(&topo.allowed_cpus), 80);
    EQUAL(topology_confined(&topo), -1);
}

CASE(a_part_of_a_group_confines) {
    make_two_sockets();
    now.given     = 0xff00;
    now.groups[0] = 1;
    EQUAL(look_around(), 0);
    EQUAL(node_set_next(&topo.allowed_cpus, 0), 72);
    EQUAL(node_set_count(&topo.allowed_cpus), 8);
    EQUAL(topology_confined(&topo), 1);
}

CASE(several_groups_confine_nobody) {
    make_two_sockets();
    now.n_groups  = 2;
    now.groups[1] = 1;
    now.given = now.all = 0; // as Windows says then
    EQUAL(look_around(), 0);
    EQUAL(node_set_count(&topo.allowed_cpus), 80);
    now.given = 0xff; // of one group, but of which?
    now.all   = 0xffff;
    EQUAL(look_around(), 0);
    EQUAL(node_set_count(&topo.allowed_cpus), 80);
}

CASE(the_group_of_the_thread_where_the_process_tells_none) {
    make_two_sockets();
    now.groups_known   = false;
    now.affinity.Group = 1;
    now.given          = 1;
    EQUAL(look_around(), 0);
    EQUAL(topology_confined(&topo), 1);
}

CASE(start_node_is_that_of_the_ideal_processor) {
    make_two_sockets();
    now.ideal = (PROCESSOR_NUMBER) { .Group = 1, .Number = 39 };
    EQUAL(look_around(), 0);
    EQUAL(start_node, 1);
}

CASE(start_node_is_not_known) {
    make_two_sockets();
    now.ideal_known = false;
    EQUAL(look_around(), 0);
    EQUAL(start_node, -1);
    now.ideal_known = true;
    now.ideal       = (PROCESSOR_NUMBER) { .Group = 3, .Number = 0 };
    EQUAL(look_around(), 0);
    EQUAL(start_node, -1);
}

// 20 GiB of standby pages are somewhere, so perhaps on either node.
CASE(available_counts_what_could_be_dropped) {
    make_two_sockets();
    EQUAL(look_around(), 0);
    EQUAL(topo.nodes[0].free_bytes / GIB, 200);
    EQUAL(topo.nodes[0].avail_bytes / GIB, 220);
    EQUAL(topo.nodes[1].avail_bytes / GIB, 120);
    EQUAL(prim_available(0) / GIB, 220);
    now.free_bytes[0] = 10 * GIB;
    EQUAL(prim_available(0) / GIB, 220);
    EQUAL(prim_available(2), 0);
}

CASE(available_is_no_more_than_there_is) {
    make_two_sockets();
    now.available = 500 * GIB;
    EQUAL(look_around(), 0);
    EQUAL(topo.nodes[0].avail_bytes / GIB, 256);
    EQUAL(prim_available(1) / GIB, 256);
}

CASE(available_where_no_node_tells) {
    make_two_sockets();
    now.free_bytes[0] = now.free_bytes[1] = UINT64_MAX;
    now.available     = 60 * GIB;
    EQUAL(look_around(), 0);
    EQUAL(topo.nodes[0].free_bytes, 0);
    EQUAL(prim_available(0) / GIB, 60);
    EQUAL(prim_available(1) / GIB, 60);
}

CASE(a_node_without_memory) {
    make_two_sockets();
    add_node(3, 0, 0);
    now.free_bytes[3] = 0;
    EQUAL(look_around(), 0);
    EQUAL(topo.n_nodes, 3);
    EQUAL(topo.nodes[2].mem_bytes, 0);
    CHECK(!topo.nodes[2].mem_allowed);
    EQUAL(prim_available(3), 0);
}

// --- threads ---

// How many of the last `threads` bindings went to the group; each has to be of all of the set's CPUs there, with the ideal
// processor among them.
static int bindings_to(const struct node_set * cpus, WORD group, int threads) {
    int n = 0;
    for (int i = asked.n_affinity - threads; i < asked.n_affinity; i++) {
        CHECK(asked.affinity[i].Mask == cpus->word[asked.affinity[i].Group]);
        EQUAL(asked.ideal[i].Group, asked.affinity[i].Group);
        CHECK(asked.affinity[i].Mask >> asked.ideal[i].Number & 1);
        n += asked.affinity[i].Group == group;
    }
    return n;
}

// Different ideal processors of the last `threads` bindings.
static int n_ideals(int threads) {
    struct node_set ideals;
    node_set_clear(&ideals);
    for (int i = asked.n_ideal - threads; i < asked.n_ideal; i++) {
        node_set_add(&ideals, asked.ideal[i].Group * 64 + asked.ideal[i].Number);
    }
    return node_set_count(&ideals);
}

static void bind_threads(const struct node_set * cpus, int threads) {
    for (int i = 0; i < threads; i++) {
        EQUAL(prim_bind_cpus(cpus), 0);
    }
    EQUAL(asked.n_ideal, asked.n_affinity);
}

CASE(threads_of_a_node_in_one_group) {
    make_two_sockets();
    EQUAL(look_around(), 0);
    bind_threads(&topo.nodes[1].cpus, 20);
    EQUAL(bindings_to(&topo.nodes[1].cpus, 1, 20), 20);
    EQUAL(n_ideals(20), 20); // one on each core
}

CASE(threads_are_spread_over_two_groups) {
    make_one_node_in_two_groups(64, 64);
    EQUAL(look_around(), 0);
    bind_threads(&topo.nodes[0].cpus, 64);
    EQUAL(bindings_to(&topo.nodes[0].cpus, 0, 64), 32);
    EQUAL(n_ideals(64), 64);
    // However few there are, and whoever had a turn before.
    for (int threads = 2; threads <= 32; threads += 5) {
        bind_threads(&topo.nodes[0].cpus, threads);
        const int there = bindings_to(&topo.nodes[0].cpus, 0, threads);
        CHECK(there >= threads / 2 - 1 && there <= threads / 2 + 2);
    }
}

CASE(threads_are_spread_by_the_size_of_groups) {
    make_one_node_in_two_groups(48, 16);
    EQUAL(look_around(), 0);
    bind_threads(&topo.nodes[0].cpus, 32);
    EQUAL(bindings_to(&topo.nodes[0].cpus, 1, 32), 8);
    bind_threads(&topo.nodes[0].cpus, 8);
    const int there = bindings_to(&topo.nodes[0].cpus, 1, 8);
    CHECK(there >= 1 && there <= 3);
}

CASE(threads_of_sets_of_any_size) {
    make_two_sockets();
    EQUAL(look_around(), 0);
    for (int n = 1; n <= 40; n++) {
        struct node_set cpus;
        node_set_clear(&cpus);
        for (int cpu = 0; cpu < n; cpu++) {
            node_set_add(&cpus, 64 + cpu);
        }
        asked.n_affinity = asked.n_ideal = 0;
        bind_threads(&cpus, n);
        EQUAL(n_ideals(n), (n + 1) / 2);
    }
}

CASE(threads_on_cpus_of_no_known_core) {
    make_two_sockets();
    EQUAL(look_around(), 0);
    const struct node_set cpus = set_of("130-133");
    bind_threads(&cpus, 4);
    EQUAL(n_ideals(4), 4);
}

CASE(binding_may_be_refused) {
    make_two_sockets();
    EQUAL(look_around(), 0);
    const struct node_set none = set_of("");
    EQUAL(prim_bind_cpus(&none), -EINVAL);
    now.affinity_refused = true;
    EQUAL(prim_bind_cpus(&topo.nodes[0].cpus), -EINVAL);
    EQUAL(asked.n_ideal, 0);
}

CASE(default_cpu_sets_by_masks) {
    make_two_sockets();
    EQUAL(look_around(), 0);
    win32.SetProcessDefaultCpuSetMasks = set_masks_now;
    win32.SetProcessDefaultCpuSets     = set_ids_now;
    win32.GetSystemCpuSetInformation   = cpu_sets_now;
    const struct node_set cpus = set_of("1-2,65");
    EQUAL(prim_bind_cpus(&cpus), 0);
    EQUAL(asked.n_masks, 2);
    CHECK(asked.masks[0].Group == 0 && asked.masks[0].Mask == 6);
    CHECK(asked.masks[1].Group == 1 && asked.masks[1].Mask == 2);
    EQUAL(asked.n_ids, 0);
}

CASE(default_cpu_sets_by_number) {
    make_two_sockets();
    EQUAL(look_around(), 0);
    win32.SetProcessDefaultCpuSets   = set_ids_now;
    win32.GetSystemCpuSetInformation = cpu_sets_now;
    const struct node_set cpus = set_of("1,64-65");
    EQUAL(prim_bind_cpus(&cpus), 0);
    EQUAL(asked.n_ids, 3);
    CHECK(asked.ids[0] == 257 && asked.ids[1] == 258 && asked.ids[2] == 259);
}

CASE(memory_follows_the_ideal_processor) {
    make_two_sockets();
    EQUAL(look_around(), 0);
    bind_threads(&topo.nodes[1].cpus, 1);
    EQUAL(prim_bind_memory(1, PRIM_PREFERRED), 0);
    EQUAL(asked.n_ideal, 1); // it was there
    now.ideal = (PROCESSOR_NUMBER) { 0 };
    EQUAL(prim_bind_memory(1, PRIM_BIND), 0);
    EQUAL(now.ideal.Group, 1);
}

CASE(memory_where_the_ideal_processor_does_not_move) {
    make_two_sockets();
    EQUAL(look_around(), 0);
    bind_threads(&topo.nodes[1].cpus, 1);
    now.ideal       = (PROCESSOR_NUMBER) { 0 };
    now.ideal_stays = true;
    EQUAL(prim_bind_memory(1, PRIM_PREFERRED), -EINVAL);
    now.ideal_known = false;
    EQUAL(prim_bind_memory(1, PRIM_PREFERRED), -ENOSYS);
    EQUAL(prim_bind_memory(7, PRIM_PREFERRED), -EINVAL);
}

CASE(memory_of_a_node_the_thread_cannot_run_on) {
    make_two_sockets();
    add_node(2, 0, 0); // memory only
    now.free_bytes[2] = GIB;
    EQUAL(look_around(), 0);
    bind_threads(&topo.nodes[0].cpus, 1);
    EQUAL(prim_bind_memory(2, PRIM_PREFERRED), 0);
    EQUAL(prim_bind_memory(1, PRIM_PREFERRED), 0); // its CPUs are in the other group
    EQUAL(asked.n_ideal, 1);
}

CASE(within) {
    make_two_sockets();
    EQUAL(look_around(), 0);
    const int64_t own = prim_thread_id();
    now.affinity = (GROUP_AFFINITY) { .Mask = 0xff, .Group = 1 };
    EQUAL(prim_thread_within(own, &topo.nodes[1].cpus), 1);
    EQUAL(prim_thread_within(own, &topo.nodes[0].cpus), 0); // the same CPUs of another group
    now.affinity.Mask = (KAFFINITY) 1 << 40;
    EQUAL(prim_thread_within(own, &topo.nodes[1].cpus), 0);
}

static int64_t ended;

static DWORD WINAPI remember_thread(void * unused) {
    (void) unused;
    ended = prim_thread_id();
    return 0;
}

CASE(an_ended_thread) {
    win32_bind();
    const struct node_set all = set_of("0-8191");
    const HANDLE thread = CreateThread(NULL, 0, remember_thread, NULL, 0, NULL);
    WaitForSingleObject(thread, INFINITE);
    EQUAL(prim_thread_within(ended, &all), -1); // as long as somebody has its handle,
    CloseHandle(thread);
    EQUAL(prim_thread_within(ended, &all), -1); // and after
    EQUAL(prim_thread_within(prim_thread_id(), &all), 1);
    // A thread that has the number of another one that has ended.
    EQUAL(prim_thread_within(prim_thread_id() ^ (int64_t) 1 << 40, &all), -1);
}

CASE(a_thread_that_binds_itself) {
    win32_bind();
    EQUAL(prim_topology(&topo, &start_node, err, sizeof(err)), 0);
    struct node_set one, others = topo.allowed_cpus;
    node_set_clear(&one);
    node_set_add(&one, node_set_next(&topo.allowed_cpus, 0));
    node_set_remove(&others, node_set_next(&topo.allowed_cpus, 0));
    EQUAL(prim_bind_cpus(&one), 0);
    EQUAL(prim_thread_within(prim_thread_id(), &one), 1);
    EQUAL(prim_thread_within(prim_thread_id(), &others), 0);
}

static LONG     n_working;
static HANDLE   all_work;
static int64_t  workers[8];

// Each waits for all others: they have to run at once.
static void work(void * context) {
    const LONG mine = InterlockedIncrement(&n_working);
    workers[mine - 1] = prim_thread_id();
    if (mine == *(int *) context) {
        SetEvent(all_work);
    }
    EQUAL(WaitForSingleObject(all_work, 60000), WAIT_OBJECT_0);
}

CASE(parallel) {
    int threads = COUNT(workers);
    all_work = CreateEventW(NULL, TRUE, FALSE, NULL);
    prim_parallel(threads, work, &threads);
    EQUAL(n_working, threads);
    bool caller = false;
    for (int i = 0; i < threads; i++) {
        caller = caller || workers[i] == prim_thread_id();
        for (int k = 0; k < i; k++) {
            CHECK(workers[i] != workers[k]);
        }
    }
    CHECK(caller);
    n_working = 0;
    threads   = 1;
    prim_parallel(threads, work, &threads);
    EQUAL(n_working, 1);
    EQUAL(workers[0], prim_thread_id());
}

CASE(clock) {
    const double begin = prim_now_ms();
    prim_sleep_ms(20);
    CHECK(prim_now_ms() > begin);
    EQUAL(prim_page_size(), 4096);
}

// --- memory ---

static int  fails_from = 100; // the call that fails first
static bool large_fails, node_refused;

static void * WINAPI alloc_now(HANDLE process, void * at, SIZE_T bytes, DWORD type, DWORD protect, DWORD node) {
    asked.node = node;
    asked.type[asked.n_allocs++ % 8] = type;
    if (asked.n_allocs > fails_from || (large_fails && type & MEM_LARGE_PAGES)) {
        SetLastError(ERROR_NO_SYSTEM_RESOURCES);
        return NULL;
    }
    if (node_refused && node != NUMA_NO_PREFERRED_NODE) {
        SetLastError(ERROR_INVALID_PARAMETER);
        return NULL;
    }
    return VirtualAllocExNuma(process, at, bytes, type & ~(DWORD) MEM_LARGE_PAGES, protect, node == 1 ? 0 : node);
}

static DWORD state_at(const void * address) {
    MEMORY_BASIC_INFORMATION memory;
    return VirtualQuery(address, &memory, sizeof(memory)) ? memory.State : 0;
}

static bool is_zero(const char * at, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        if (at[i] != 0) {
            return false;
        }
    }
    return true;
}

CASE(alloc) {
    static const size_t SIZES[] = { 1, 4095, 4096, 4097, 65536, 262144, (2 << 20) - 1, 2 << 20, (20 << 20) + 1 };
    win32_bind();
    for (size_t i = 0; i < COUNT(SIZES); i++) {
        int placed  = 1;
        char * base = prim_alloc(SIZES[i], 0, PRIM_PREFERRED, &placed);
        CHECK(base && placed == 0 && (uintptr_t) base % 4096 == 0 && is_zero(base, SIZES[i]));
        memset(base, 1, SIZES[i]);
        const size_t pages = (SIZES[i] + 4095) / 4096;
        EQUAL(state_at(base + pages * 4096 - 1), MEM_COMMIT);
        EQUAL(state_at(base + pages * 4096), MEM_RESERVE); // nobody else comes right behind
        prim_free(base, SIZES[i]);
        EQUAL(state_at(base), MEM_FREE);
        EQUAL(state_at(base + pages * 4096), MEM_FREE);
    }
    int placed;
    CHECK(!prim_alloc(SIZE_MAX, 0, PRIM_PREFERRED, &placed));
    CHECK(!prim_alloc(SIZE_MAX - 4096, 0, PRIM_PREFERRED, &placed));
    CHECK(!prim_alloc(SIZE_MAX / 2, 0, PRIM_PREFERRED, &placed));
}

CASE(alloc_asks_for_the_node) {
    int placed = 1;
    win32_bind();
    win32.VirtualAllocExNuma = alloc_now;
    void * base = prim_alloc(100000, 1, PRIM_BIND, &placed);
    CHECK(base && placed == 0);
    EQUAL(asked.n_allocs, 2);
    EQUAL(asked.type[0], MEM_RESERVE);
    EQUAL(asked.type[1], MEM_COMMIT);
    EQUAL(asked.node, 1);
    prim_free(base, 100000);
}

CASE(alloc_on_a_node_that_is_refused) {
    int placed = 0;
    win32_bind();
    win32.VirtualAllocExNuma = alloc_now;
    node_refused = true;
    void * base  = prim_alloc(100000, 1, PRIM_PREFERRED, &placed);
    CHECK(base && is_zero(base, 100000));
    EQUAL(placed, -EINVAL);
    prim_free(base, 100000);
}

static int n_freed_now(const char * from, size_t bytes) {
    int n = 0;
    for (size_t at = 0; at < bytes; at += 65536) {
        n += state_at(from + at) == MEM_FREE;
    }
    return n;
}

CASE(alloc_that_fails_half_way) {
    int placed;
    const size_t bytes = 1 << 20;
    win32_bind();
    win32.VirtualAllocExNuma = alloc_now;
    char * probe = prim_alloc(bytes, 0, PRIM_PREFERRED, &placed); // where the next one will be, too
    CHECK(probe);
    prim_free(probe, bytes);
    const int free_before = n_freed_now(probe, bytes);
    asked.n_allocs = 0;
    fails_from     = 1; // reserved, but not committed
    CHECK(!prim_alloc(bytes, 0, PRIM_PREFERRED, &placed));
    EQUAL(asked.n_allocs, 2);
    EQUAL(n_freed_now(probe, bytes), free_before); // given back
    fails_from     = 0;
    asked.n_allocs = 0;
    CHECK(!prim_alloc(bytes, 0, PRIM_PREFERRED, &placed));
}

static bool privilege_held;

static BOOL WINAPI adjust_now(HANDLE token, BOOL disable, TOKEN_PRIVILEGES * wanted, DWORD size, TOKEN_PRIVILEGES * before, DWORD * room) {
    (void) token;
    (void) size;
    (void) before;
    (void) room;
    CHECK(!disable && wanted->PrivilegeCount == 1 && wanted->Privileges[0].Attributes == SE_PRIVILEGE_ENABLED);
    SetLastError(privilege_held ? ERROR_SUCCESS : ERROR_NOT_ALL_ASSIGNED);
    return TRUE;
}

static SIZE_T WINAPI large_page_now(void) {
    return 2 << 20;
}

static void install_large_pages(bool held) {
    win32_bind();
    win32.VirtualAllocExNuma    = alloc_now;
    win32.AdjustTokenPrivileges = adjust_now;
    win32.GetLargePageMinimum   = large_page_now;
    privilege_held = held;
}

CASE(large_pages_where_the_privilege_is_held) {
    int placed = 1;
    install_large_pages(true);
    const size_t bytes = (16 << 20) + 1;
    char * base = prim_alloc(bytes, 1, PRIM_PREFERRED, &placed);
    CHECK(base && placed == 0);
    EQUAL(asked.n_allocs, 1);
    EQUAL(asked.type[0], MEM_RESERVE | MEM_COMMIT | MEM_LARGE_PAGES);
    EQUAL(asked.node, 1);
    EQUAL(state_at(base + (18 << 20) - 1), MEM_COMMIT); // whole large pages
    prim_free(base, bytes);
    EQUAL(state_at(base), MEM_FREE);
    base = prim_alloc((16 << 20) - 1, 1, PRIM_PREFERRED, &placed);
    EQUAL(asked.type[1], MEM_RESERVE); // too small to be worth it
    prim_free(base, (16 << 20) - 1);
}

CASE(large_pages_that_cannot_be_had) {
    int placed = 1;
    install_large_pages(true);
    large_fails = true;
    void * base = prim_alloc(32 << 20, 1, PRIM_PREFERRED, &placed);
    CHECK(base && placed == 0);
    EQUAL(asked.n_allocs, 3);
    EQUAL(asked.type[1], MEM_RESERVE);
    EQUAL(asked.node, 1);
    prim_free(base, 32 << 20);
}

CASE(no_large_pages_without_the_privilege) {
    int placed;
    install_large_pages(false);
    void * base = prim_alloc(32 << 20, 1, PRIM_PREFERRED, &placed);
    EQUAL(asked.n_allocs, 2);
    EQUAL(asked.type[0], MEM_RESERVE);
    prim_free(base, 32 << 20);
}

CASE(resident_is_what_was_touched) {
    const size_t bytes = 32 << 20;
    int placed;
    win32_bind();
    char * base = prim_alloc(bytes, 0, PRIM_PREFERRED, &placed);
    const uint64_t before = prim_resident();
    memset(base, 1, bytes);
    CHECK(before > 0);
    CHECK(prim_resident() - before > bytes / 2);
    prim_free(base, bytes);
}

// --- looking ---

static const char * looked_at;
static ptrdiff_t    last_page;
static DWORD        n_looks, look_error;

// Of ten pages in a row: 0-5 on node 1 (0 part of a large page), 6-7 on node 0, 8-9 not in the working set (with what the
// bits mean then).
static BOOL WINAPI working_set_now(HANDLE process, void * entries, DWORD size) {
    PSAPI_WORKING_SET_EX_INFORMATION * pages = entries;
    (void) process;
    n_looks++;
    for (DWORD i = 0; i < size / sizeof(*pages); i++) {
        const ptrdiff_t page = ((const char *) pages[i].VirtualAddress - looked_at) / 4096;
        EQUAL(pages[i].VirtualAttributes.Flags, 0);
        last_page = page;
        pages[i].VirtualAttributes.Valid = page % 10 < 8;
        pages[i].VirtualAttributes.Node  = page % 10 < 6 || page % 10 >= 8;
        pages[i].VirtualAttributes.LargePage = page % 10 == 0 || page % 10 >= 8;
    }
    return look_error ? fails(look_error) : TRUE;
}

CASE(look_counts_each_page_once) {
    struct prim_residency seen = { .checked = 5, .on_node = 2, .elsewhere = 2, .not_resident = 1 };
    bool coarse = false;
    win32_bind();
    win32.K32QueryWorkingSetEx = working_set_now;
    looked_at = (const char *) 0x10000000;
    EQUAL(prim_look(looked_at + 100, 20000 * 4096 - 100, 1, UINT64_MAX >> 32, &seen, &coarse), 0);
    EQUAL(seen.checked, 20005);
    EQUAL(seen.on_node, 12002);
    EQUAL(seen.elsewhere, 4002);
    EQUAL(seen.not_resident, 4001);
    EQUAL(seen.large, 2000);
    EQUAL(n_looks, 5);
    CHECK(!coarse);
}

CASE(look_at_a_sample) {
    struct prim_residency seen = { 0 };
    bool coarse = false;
    win32_bind();
    win32.K32QueryWorkingSetEx = working_set_now;
    looked_at = (const char *) 0x10000000;
    EQUAL(prim_look(looked_at, (size_t) 1001 * 1000 * 4096, 1, 1000, &seen, &coarse), 0); // every 1001th page
    EQUAL(last_page, 1001 * 999);
    EQUAL(seen.checked, 1000);
    EQUAL(seen.on_node, 600);
    EQUAL(seen.elsewhere, 200);
    EQUAL(seen.not_resident, 200);
}

CASE(look_that_fails) {
    struct prim_residency seen = { 0 };
    bool coarse = false;
    win32_bind();
    win32.K32QueryWorkingSetEx = working_set_now;
    look_error = ERROR_ACCESS_DENIED;
    looked_at  = (const char *) 0x10000000;
    EQUAL(prim_look(looked_at, 4096, 1, 10, &seen, &coarse), -EPERM);
    EQUAL(seen.checked, 0);
}

CASE(look_at_memory_of_our_own) {
    struct prim_residency seen = { 0 };
    int placed;
    bool coarse = false;
    win32_bind();
    char * base = prim_alloc(100 * 4096, 0, PRIM_PREFERRED, &placed);
    for (int i = 0; i < 40; i++) {
        base[i * 4096] = 1;
    }
    EQUAL(prim_look(base, 100 * 4096, 0, 1000, &seen, &coarse), 0);
    EQUAL(seen.checked, 100);
    EQUAL(seen.on_node, 40);
    EQUAL(seen.elsewhere, 0);
    EQUAL(seen.not_resident, 60);
    prim_free(base, 100 * 4096);
}

CASE(nothing_moves) {
    char byte;
    EQUAL(prim_move(&byte, 1, 0), -ENOSYS);
}

// --- files ---

#define FILE_SIZE ((size_t) 3 * 1024 * 1024 + 1234)

static unsigned char byte_at(uint64_t offset) {
    return (unsigned char) (offset * UINT64_C(0x9E3779B97F4A7C15) >> 56);
}

static FILE * make_file(void) {
    char name[512];
    snprintf(name, sizeof(name), "%s/model", check_folder);
    FILE * file = fopen(name, "w+b");
    CHECK(file);
    for (size_t i = 0; i < FILE_SIZE; i++) {
        fputc(byte_at(i), file);
    }
    fflush(file);
    return file;
}

static bool right(const unsigned char * bytes, uint64_t offset, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != byte_at(offset + i)) {
            return false;
        }
    }
    return true;
}

static _Alignas(4096) unsigned char room[FILE_SIZE + 3 * 4096];

// Read into memory that starts `shift` bytes into a page and has watched bytes around it.
static bool read_right(struct prim_reader * reader, uint64_t offset, size_t bytes, size_t shift) {
    unsigned char * const to = room + 4096 + shift;
    memset(room, 0xA5, sizeof(room));
    const int result = prim_reader_read(reader, offset, to, bytes);
    return result == 0 && right(to, offset, bytes) && to[-1] == 0xA5 && to[bytes] == 0xA5;
}

static void read_everywhere(struct prim_reader * reader) {
    static const size_t OFFSETS[] = { 0, 1, 511, 512, 4095, 4096, 4097, 262143, 262144, 1000000, FILE_SIZE - 5000, FILE_SIZE - 1 };
    static const size_t SIZES[]   = { 1, 511, 4096, 65537, 262144, 262145, 1 << 20, (1 << 20) + 8191, FILE_SIZE };
    static const size_t SHIFTS[]  = { 0, 1, 32, 4095 };
    for (size_t i = 0; i < COUNT(OFFSETS); i++) {
        for (size_t k = 0; k < COUNT(SIZES); k++) {
            const size_t left = FILE_SIZE - OFFSETS[i];
            CHECK(read_right(reader, OFFSETS[i], SIZES[k] < left ? SIZES[k] : left, SHIFTS[(i + k) % COUNT(SHIFTS)]));
        }
    }
    char byte;
    EQUAL(prim_reader_read(reader, FILE_SIZE, &byte, 0), 0);
    EQUAL(prim_reader_read(reader, FILE_SIZE, &byte, 1), -EINVAL);
    EQUAL(prim_reader_read(reader, FILE_SIZE - 1, &byte, 2), -EINVAL);
    EQUAL(prim_reader_read(reader, UINT64_MAX, &byte, 2), -EINVAL);
}

static int  n_reads, n_straight, read_fails_at = -1;
static uint64_t n_read_bytes; // unbuffered
static bool unbuffered_refused, all_refused;

static HANDLE WINAPI reopen_now(HANDLE file, DWORD access, DWORD share, DWORD flags) {
    if (all_refused || (unbuffered_refused && flags & FILE_FLAG_NO_BUFFERING)) {
        SetLastError(ERROR_INVALID_PARAMETER);
        return INVALID_HANDLE_VALUE;
    }
    return ReOpenFile(file, access, share, flags);
}

static BOOL WINAPI read_now(HANDLE file, void * to, DWORD bytes, DWORD * got, OVERLAPPED * where) {
    n_reads++;
    if (!got) { // unbuffered
        CHECK((uintptr_t) to % 4096 == 0 && where->Offset % 4096 == 0 && bytes % 4096 == 0);
        n_read_bytes += bytes;
        n_straight += (unsigned char *) to >= room && (unsigned char *) to < room + sizeof(room);
        if (read_fails_at == 0) {
            return fails(ERROR_CRC);
        }
        read_fails_at -= read_fails_at > 0;
    }
    return ReadFile(file, to, bytes, got, where);
}

CASE(reader_exact_bytes) {
    win32_bind();
    win32.ReadFile = read_now;
    FILE * file = make_file();
    fseek(file, 1000, SEEK_SET);
    struct prim_reader * reader = prim_reader_open(_fileno(file));
    CHECK(reader);
    read_everywhere(reader);
    prim_reader_close(reader);
    EQUAL(fgetc(file), byte_at(1000)); // the stream is where it was
    CHECK(n_straight > 0 && n_straight < n_reads);
    fclose(file);
}

CASE(reader_reads_no_more_than_blocks) {
    win32_bind();
    win32.ReadFile = read_now;
    FILE * file = make_file();
    struct prim_reader * reader = prim_reader_open(_fileno(file));
    CHECK(read_right(reader, 4095, (1 << 20) + 2, 0)); // the last byte of a block to the first one of another
    EQUAL(n_read_bytes, (1 << 20) + 2 * 4096);
    prim_reader_close(reader);
    fclose(file);
}

CASE(reader_without_unbuffered_reads) {
    win32_bind();
    win32.ReOpenFile   = reopen_now;
    unbuffered_refused = true;
    FILE * file = make_file();
    struct prim_reader * reader = prim_reader_open(_fileno(file));
    CHECK(reader);
    read_everywhere(reader);
    prim_reader_close(reader);
    fclose(file);
}

CASE(reader_that_cannot_be_had) {
    win32_bind();
    win32.ReOpenFile = reopen_now;
    all_refused = true;
    FILE * file = make_file();
    CHECK(!prim_reader_open(_fileno(file)));
    fclose(file);
    HANDLE from, to;
    CHECK(CreatePipe(&from, &to, NULL, 0));
    CHECK(!prim_reader_open(_open_osfhandle((intptr_t) from, 0))); // not a file
}

// Reads fail while others are under way: buffered ones go on.
CASE(reader_whose_unbuffered_reads_fail) {
    win32_bind();
    win32.ReadFile = read_now;
    FILE * file = make_file();
    struct prim_reader * reader = prim_reader_open(_fileno(file));
    for (int i = 0; i < 14; i++) {
        read_fails_at = i;
        CHECK(read_right(reader, 77, FILE_SIZE - 100, 0));
    }
    prim_reader_close(reader);
    fclose(file);
}

CASE(reader_of_a_file_that_became_shorter) {
    static char to[FILE_SIZE];
    win32_bind();
    FILE * file = make_file();
    struct prim_reader * reader = prim_reader_open(_fileno(file));
    CHECK(_chsize_s(_fileno(file), 1 << 20) == 0);
    CHECK(prim_reader_read(reader, 4096, to, FILE_SIZE - 4096) < 0);
    CHECK(prim_reader_read(reader, 4096, to, (1 << 20) - 4096 + 1000) < 0); // its end is in the last piece
    EQUAL(prim_reader_read(reader, 4096, to, 100000), 0);
    prim_reader_close(reader);
    fclose(file);
}

CASE(reader_beyond_4_gib) {
    unsigned char got[5000];
    win32_bind();
    FILE * file = make_file();
    const uint64_t at = ((uint64_t) 4 << 30) + 123;
    CHECK(_fseeki64(file, (int64_t) at, SEEK_SET) == 0);
    for (size_t i = 0; i < sizeof(got); i++) {
        fputc(byte_at(at + i), file);
    }
    fflush(file);
    for (int buffered = 0; buffered < 2; buffered++) {
        win32.ReOpenFile   = reopen_now;
        unbuffered_refused = buffered;
        struct prim_reader * reader = prim_reader_open(_fileno(file));
        memset(got, 0, sizeof(got));
        EQUAL(prim_reader_read(reader, at, got, sizeof(got)), 0);
        CHECK(right(got, at, sizeof(got)));
        prim_reader_close(reader);
    }
    _chsize_s(_fileno(file), 0);
    fclose(file);
}

static DWORD section_node = 99, view_node = 99;

static HANDLE WINAPI section_now(HANDLE file, SECURITY_ATTRIBUTES * security, DWORD protect, DWORD high, DWORD low,
                                 const WCHAR * name, DWORD node) {
    section_node = node;
    return CreateFileMappingNumaW(file, security, protect, high, low, name, 0);
}

static void * WINAPI view_now(HANDLE section, DWORD access, DWORD high, DWORD low, SIZE_T bytes, void * base, DWORD node) {
    view_node = node;
    return MapViewOfFileExNuma(section, access, high, low, bytes, base, 0);
}

CASE(a_mapping_asks_for_the_node) {
    struct prim_residency before = { 0 }, after = { 0 };
    bool coarse = false;
    win32_bind();
    win32.CreateFileMappingNumaW = section_now;
    win32.MapViewOfFileExNuma    = view_now;
    FILE * file    = make_file();
    void * section = prim_section((HANDLE) _get_osfhandle(_fileno(file)), 3);
    CHECK(section);
    char * view = prim_view(section, 3);
    CHECK(view);
    EQUAL(section_node, 3);
    EQUAL(view_node, 3);
    EQUAL(prim_look(view, FILE_SIZE, 0, 10000, &before, &coarse), 0);
    EQUAL(prim_touch(view + 5, FILE_SIZE - 5), 0);
    EQUAL(prim_look(view, FILE_SIZE, 0, 10000, &after, &coarse), 0);
    EQUAL(after.checked, (FILE_SIZE + 4095) / 4096);
    EQUAL(after.on_node, after.checked);
    CHECK(before.on_node < after.on_node);
    CHECK(right((unsigned char *) view, 0, FILE_SIZE));
    UnmapViewOfFile(view);
    CloseHandle(section);
    fclose(file);
}

CASE(touch_without_prefetch) {
    struct prim_residency seen = { 0 };
    bool coarse = false;
    win32_bind();
    win32.PrefetchVirtualMemory = NULL;
    FILE * file    = make_file();
    void * section = prim_section((HANDLE) _get_osfhandle(_fileno(file)), 0);
    char * view    = prim_view(section, 0);
    EQUAL(prim_touch(view, FILE_SIZE), 0);
    EQUAL(prim_look(view, FILE_SIZE, 0, 10000, &seen, &coarse), 0);
    EQUAL(seen.on_node, seen.checked);
    UnmapViewOfFile(view);
    CloseHandle(section);
    fclose(file);
}

CASE(touch_each_page_of_a_range) {
    struct prim_residency seen = { 0 };
    int placed;
    bool coarse = false;
    win32_bind();
    char * base = prim_alloc(8 * 4096, 0, PRIM_PREFERRED, &placed);
    EQUAL(prim_touch(base + 2 * 4096 - 1, 4096 + 2), 0); // the last byte of page 1 to the first one of page 3
    EQUAL(prim_look(base, 8 * 4096, 0, 8, &seen, &coarse), 0);
    EQUAL(seen.on_node, 3);
    prim_free(base, 8 * 4096);
}

CASE(no_section_of_nothing) {
    win32_bind();
    CHECK(!prim_section(INVALID_HANDLE_VALUE, 0));
    CHECK(!prim_view(INVALID_HANDLE_VALUE, 0));
}

static void in_page_error(const void * address) {
    const ULONG_PTR details[] = { 0, (ULONG_PTR) address, 0xC000026E }; // read, where, STATUS_VOLUME_DISMOUNTED
    RaiseException(EXCEPTION_IN_PAGE_ERROR, 0, COUNT(details), details);
}

CASE(exit_when_the_file_goes_away) {
    EQUAL(prim_topology(&topo, &start_node, err, sizeof(err)), 0);
    FILE * file    = make_file();
    void * section = prim_section((HANDLE) _get_osfhandle(_fileno(file)), 0);
    in_page_error((char *) prim_view(section, 0) + 12345);
}

static LONG CALLBACK last_resort(EXCEPTION_POINTERS * exception) {
    ExitProcess(exception->ExceptionRecord->ExceptionCode == EXCEPTION_IN_PAGE_ERROR ? 42 : 43);
}

// Where it is not a file that was mapped, the error belongs to others.
CASE(exit_by_other_handlers) {
    EQUAL(prim_topology(&topo, &start_node, err, sizeof(err)), 0);
    AddVectoredExceptionHandler(0, last_resort);
    in_page_error(&topo);
}

// Is it taken as this one? `wanted` is ASCII.
static bool taken_as(const char * name, const char * wanted) {
    wchar_t * wide = path_wide(name);
    bool same      = wide && wcslen(wide) == strlen(wanted);
    for (size_t i = 0; same && i < strlen(wanted); i++) {
        same = wide[i] == (wchar_t) wanted[i];
    }
    if (!same) {
        printf("%s is taken as %ls\n", name, wide ? wide : L"nothing");
    }
    free(wide);
    return same;
}

CASE(long_names) {
    char part[260], name[600], wanted[600];
    memset(part, 'x', sizeof(part));
    part[sizeof(part) - 1] = '\0';

    snprintf(name, sizeof(name), "C:\\%.256s", part); // 259 characters: the longest that needs nothing
    CHECK(taken_as(name, name) && !path_is_long(name));
    snprintf(name, sizeof(name), "C:\\%.257s", part);
    snprintf(wanted, sizeof(wanted), "\\\\?\\%s", name);
    CHECK(taken_as(name, wanted) && path_is_long(name));
    CHECK(taken_as(wanted, wanted));

    snprintf(name, sizeof(name), "C:/one/./two/../%s/m.gguf", part);
    snprintf(wanted, sizeof(wanted), "\\\\?\\C:\\one\\%s\\m.gguf", part);
    CHECK(taken_as(name, wanted));
    snprintf(name, sizeof(name), "\\\\server\\share\\%s", part);
    snprintf(wanted, sizeof(wanted), "\\\\?\\UNC\\server\\share\\%s", part);
    CHECK(taken_as(name, wanted));

    // Relative ones count with the folder that they start from.
    char folder[300];
    const DWORD len = GetCurrentDirectoryA(sizeof(folder), folder);
    const int rest  = 260 - (int) len - (folder[len - 1] == '\\' ? 0 : 1);
    snprintf(name, sizeof(name), "%.*s", rest - 1, part);
    CHECK(taken_as(name, name));
    snprintf(name, sizeof(name), "%.*s", rest, part);
    CHECK(path_is_long(name));

    CHECK(taken_as("", "") && taken_as("NUL", "NUL") && taken_as("a/../b", "a/../b"));
    CHECK(!path_wide("\xff") && errno == EINVAL && !path_is_long("\xff"));
}

CASE(set_env) {
    char value[16];
    prim_set_env("LLAMA_ARG_NUMA_NODE", "12");
    EQUAL(GetEnvironmentVariableA("LLAMA_ARG_NUMA_NODE", value, sizeof(value)), 2);
    SAME(value, "12");
}

CASE(this_machine) {
    EQUAL(prim_topology(&topo, &start_node, err, sizeof(err)), 0);
    CHECK(topo.n_nodes >= 1);
    uint64_t bytes = 0;
    for (int i = 0; i < topo.n_nodes; i++) {
        const struct topology_node * node = &topo.nodes[i];
        CHECK(node->free_bytes <= node->avail_bytes && node->avail_bytes <= node->mem_bytes);
        bytes += node->mem_bytes;
    }
    CHECK(bytes > GIB / 4);
    CHECK(!node_set_empty(&topo.allowed_cpus));
    CHECK(prim_available(topo.nodes[0].id) > 0);
}
