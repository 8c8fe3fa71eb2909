// selftest_windows.c, above answers that are made up here (the table win32 is replaced call by call) and above what runs this.
// Names of cases that end the process by themselves begin with exit_.
#include "win32.h"

#include "check.h"
#include "selftest_os.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>

#define MIB ((size_t) 1 << 20)

static struct topology topo;

static void begin(void) {
    int start_node;
    char err[256];
    if (prim_topology(&topo, &start_node, err, sizeof(err)) != 0) {
        printf("no topology: %s\n", err);
        exit(1);
    }
}

static struct node_set set_of(const char * list) {
    struct node_set set;
    EQUAL(node_set_parse_list(list, strlen(list), &set), 0);
    return set;
}

// --- the machine ---

CASE(system_is_named_as_what_it_is) {
    char system[160], cpu[96];
    selftest_system(system, sizeof(system), cpu, sizeof(cpu));
    CHECK(strncmp(system, "Windows ", 8) == 0);
    CHECK(strstr(system, "in truth Wine ") != NULL); // nobody shall take figures of Wine for those of Windows
    CHECK(cpu[0] != 0 && cpu[strlen(cpu) - 1] != ' ');
}

static BOOL WINAPI caches(LOGICAL_PROCESSOR_RELATIONSHIP kind, SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX * to, DWORD * size) {
    static const struct {
        BYTE      level;
        DWORD     mib;
        WORD      group;
        KAFFINITY mask;
    } ALL[] = { { 1, 1, 0, 3 }, { 3, 30, 0, 3 }, { 2, 2, 0, 3 }, { 3, 25, 0, 12 }, { 3, 55, 1, 15 } };
    const DWORD room = *size;
    *size = COUNT(ALL) * sizeof(*to);
    if (kind != RelationCache || room < *size) {
        SetLastError(kind == RelationCache ? ERROR_INSUFFICIENT_BUFFER : ERROR_INVALID_PARAMETER);
        return FALSE;
    }
    memset(to, 0, *size);
    for (size_t i = 0; i < COUNT(ALL); i++) {
        to[i].Relationship    = RelationCache;
        to[i].Size            = sizeof(*to);
        to[i].Cache.Level     = ALL[i].level;
        to[i].Cache.CacheSize = ALL[i].mib << 20;
        to[i].Cache.GroupMask = (GROUP_AFFINITY) { .Mask = ALL[i].mask, .Group = ALL[i].group };
    }
    return TRUE;
}

static BOOL WINAPI no_records(LOGICAL_PROCESSOR_RELATIONSHIP kind, SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX * to, DWORD * size) {
    (void) kind;
    (void) to;
    (void) size;
    SetLastError(ERROR_NOT_SUPPORTED);
    return FALSE;
}

CASE(caches_of_a_node) {
    win32_bind();
    win32.GetLogicalProcessorInformationEx = caches;
    const struct node_set first = set_of("0-3"), half = set_of("2-3"), second = set_of("64-67"), none = set_of("8");
    EQUAL(selftest_cache(&first), 55 * MIB);
    EQUAL(selftest_cache(&half), 25 * MIB);
    EQUAL(selftest_cache(&second), 55 * MIB);
    EQUAL(selftest_cache(&none), 0);
    win32.GetLogicalProcessorInformationEx = no_records;
    EQUAL(selftest_cache(&first), 0);
}

// --- threads ---

static _Atomic int       n_worked;
static struct node_set   crew_cpus;

static void work(void * context) {
    CHECK(context == &n_worked);
    CHECK(prim_thread_within(prim_thread_id(), &crew_cpus) == 1);
    atomic_fetch_add(&n_worked, 1);
}

CASE(threads_run_on_a_cpu_each) {
    begin();
    crew_cpus = topo.allowed_cpus;
    struct selftest_crew * crew = selftest_crew_start(&crew_cpus, 5, work, &n_worked);
    EQUAL(selftest_crew_join(crew), 5);
    EQUAL(n_worked, 5);
}

CASE(cpu_time_passes) {
    const double begin  = prim_now_ms();
    const double before = selftest_cpu_ms();
    while (selftest_cpu_ms() == before && prim_now_ms() - begin < 20000) { // its clock is coarse
    }
    CHECK(selftest_cpu_ms() > before);
}

static BOOL WINAPI refuse_affinity(HANDLE thread, const GROUP_AFFINITY * affinity, GROUP_AFFINITY * before) {
    (void) thread;
    (void) affinity;
    (void) before;
    return FALSE;
}

static void no_work(void * context) {
    (void) context;
}

CASE(threads_that_are_not_bound_do_not_count) {
    begin();
    if (node_set_count(&topo.allowed_cpus) < 2) {
        return; // with one CPU each thread is on it anyway
    }
    win32.SetThreadGroupAffinity = refuse_affinity;
    EQUAL(selftest_crew_join(selftest_crew_start(&topo.allowed_cpus, 3, no_work, NULL)), 0);
}

CASE(nobody_can_run_nowhere) {
    const struct node_set none = { { 0 } };
    CHECK(selftest_crew_start(&none, 1, no_work, NULL) == NULL);
}

CASE(hard_faults_do_not_run_backwards) {
    const int64_t before = selftest_hard_faults();
    CHECK(before >= -1);
    CHECK(selftest_hard_faults() >= before);
}

// --- files ---

static int files_there(void) {
    wchar_t pattern[MAX_PATH];
    WIN32_FIND_DATAW found;
    swprintf(pattern, MAX_PATH, L"%hs\\*.tmp", check_folder);
    const HANDLE search = FindFirstFileW(pattern, &found);
    int n = search != INVALID_HANDLE_VALUE;
    while (n > 0 && FindNextFileW(search, &found)) {
        n++;
    }
    FindClose(search);
    return n;
}

static struct selftest_file * temporary(size_t bytes) {
    char why[160] = "";
    SetEnvironmentVariableA("TMP", check_folder);
    struct selftest_file * file = selftest_file_temporary(bytes, why, sizeof(why));
    if (!file) {
        printf("no file: %s\n", why);
        exit(1);
    }
    return file;
}

CASE(a_temporary_file_is_read_and_goes) {
    begin();
    struct selftest_file * file = temporary(3 * MIB + 1);
    EQUAL(files_there(), 1);
    EQUAL(selftest_file_bytes(file), 4 * MIB);
    EQUAL(selftest_file_cached(file), -1);
    EQUAL(selftest_file_read(file), 0);
    EQUAL(selftest_file_unbuffered(file, false), 0);
    EQUAL(selftest_file_unbuffered(file, true), 0);
    EQUAL(files_there(), 1);
    selftest_file_close(file);
    EQUAL(files_there(), 0);
}

CASE(a_cold_file_is_a_new_one) {
    begin();
    struct selftest_file * file = temporary(MIB);
    EQUAL(selftest_file_cool(file), 0);
    EQUAL(selftest_file_read(file), 0);
    EQUAL(selftest_file_cool(file), 0);
    EQUAL(selftest_file_cool(file), 0);
    EQUAL(files_there(), 1);
    EQUAL(selftest_file_read(file), 0);
    selftest_file_close(file);
    EQUAL(files_there(), 0);
}

static int section_node, view_node;

static HANDLE WINAPI section_of(HANDLE file, SECURITY_ATTRIBUTES * security, DWORD access, DWORD high, DWORD low, LPCWSTR name, DWORD node) {
    (void) node;
    section_node = (int) node;
    return CreateFileMappingW(file, security, access, high, low, name);
}

static void * WINAPI view_of(HANDLE section, DWORD access, DWORD high, DWORD low, SIZE_T bytes, void * at, DWORD node) {
    (void) at;
    view_node = (int) node;
    return MapViewOfFile(section, access, high, low, bytes);
}

CASE(a_view_asks_for_the_node) {
    begin();
    win32.CreateFileMappingNumaW = section_of;
    win32.MapViewOfFileExNuma    = view_of;
    struct selftest_file * file  = temporary(2 * MIB);
    const uint64_t * view        = selftest_file_map(file, 7);
    EQUAL(section_node, 7);
    EQUAL(view_node, 7);
    CHECK(view && view[0] != 0 && view[0] != view[2 * MIB / 8 - 1]); // noise, down to the end
    EQUAL(selftest_way(1, view, 2 * MIB), 0);
    selftest_file_unmap(file, view);
    selftest_file_close(file);
    EQUAL(files_there(), 0);
}

static SIZE_T prefetched;

static BOOL WINAPI prefetch(HANDLE process, ULONG_PTR n, WIN32_MEMORY_RANGE_ENTRY * ranges, ULONG flags) {
    (void) process;
    (void) flags;
    EQUAL(n, 1);
    prefetched = ranges->NumberOfBytes;
    return TRUE;
}

CASE(ways_end_in_touching) {
    begin();
    SAME(selftest_way_name(0), "PrefetchVirtualMemory");
    SAME(selftest_way_name(1), "touching");
    CHECK(selftest_way_name(2) == NULL);
    static char memory[8192];
    win32.PrefetchVirtualMemory = NULL;
    EQUAL(selftest_way(0, memory, sizeof(memory)), -ENOSYS);
    win32.PrefetchVirtualMemory = prefetch;
    EQUAL(selftest_way(0, memory, sizeof(memory)), 0);
    EQUAL(prefetched, sizeof(memory));
}

CASE(a_folder_that_is_not_there) {
    char why[160] = "";
    begin();
    SetEnvironmentVariableA("TMP", "Z:\\no\\such\\folder");
    SetEnvironmentVariableA("TEMP", "Z:\\no\\such\\folder");
    struct selftest_file * file = selftest_file_temporary(MIB, why, sizeof(why));
    CHECK(file != NULL || strstr(why, "cannot be written") != NULL); // some systems then take another folder
    if (file) {
        selftest_file_close(file);
    }
}

CASE(models_are_left_alone) {
    char why[160] = "";
    CHECK(selftest_file_open("model.gguf", MIB, why, sizeof(why)) == NULL);
    CHECK(strstr(why, "does not drop") != NULL);
}

CASE(exit_with_a_file_open) {
    begin();
    temporary(MIB);
    EQUAL(files_there(), 1);
    TerminateProcess(GetCurrentProcess(), check_failures ? 1 : 42); // as Ctrl-C does
}

// --- CPU sets ---

static struct {
    PROCESSOR_NUMBER before, after; // of the main thread
    bool             told, follows; // new threads get an ideal processor in the set
    DWORD            main;
    int              n_set, n_cleared, set_size;
} sets;

static BOOL WINAPI ideal_now(HANDLE thread, PROCESSOR_NUMBER * ideal) {
    (void) thread;
    *ideal = GetCurrentThreadId() != sets.main ? (PROCESSOR_NUMBER) { .Number = sets.set_size > 0 && sets.follows ? 1 : 0 }
           : sets.set_size > 0                ? sets.after
                                              : sets.before;
    return sets.told;
}

static BOOL WINAPI set_masks(HANDLE process, GROUP_AFFINITY * masks, USHORT n) {
    (void) process;
    sets.n_set += n > 0;
    sets.n_cleared += n == 0;
    sets.set_size = n > 0 ? (int) __builtin_popcountll(masks[0].Mask) : 0;
    return TRUE;
}

// CPUs 0 and 2 are node 0, 1 and 3 are node 1.
static struct selftest_cpu_sets ask(const char * allowed) {
    static struct topology_node nodes[2] = { { .id = 0 }, { .id = 1 } };
    struct topology pair = { .n_nodes = 2, .nodes = nodes };
    struct selftest_cpu_sets out;
    nodes[0].cpus     = set_of("0,2");
    nodes[1].cpus     = set_of("1,3");
    pair.allowed_cpus = set_of(allowed);
    sets.main         = GetCurrentThreadId();
    win32_bind();
    win32.GetThreadIdealProcessorEx   = ideal_now;
    win32.SetProcessDefaultCpuSetMasks = set_masks;
    selftest_cpu_sets(&pair, &out);
    return out;
}

CASE(cpu_sets_are_those_of_the_other_node) {
    sets.told    = true;
    sets.follows = true;
    sets.after   = (PROCESSOR_NUMBER) { .Number = 3 };
    struct selftest_cpu_sets out = ask("0-3");
    SAME(out.reason, "");
    CHECK(node_set_has(&out.cpus, 1) && node_set_has(&out.cpus, 3) && node_set_count(&out.cpus) == 2);
    EQUAL(out.main_before, 0);
    EQUAL(out.main_after, 3);
    EQUAL(out.threads, 8);
    EQUAL(out.ideal_before, 0);
    EQUAL(out.ideal_after, 8);
    CHECK(out.ran_after >= 0 && out.ran_after <= 8);
    EQUAL(sets.n_set, 1);
    EQUAL(sets.n_cleared, 1); // nothing of it is left for what comes after
}

CASE(cpu_sets_of_one_node_are_half_of_it) {
    sets.told = true;
    struct selftest_cpu_sets out = ask("0,2");
    CHECK(node_set_has(&out.cpus, 2) && node_set_count(&out.cpus) == 1);
    EQUAL(out.main_after, 0);
    EQUAL(out.ideal_after, 0);
    EQUAL(sets.n_cleared, 1);
}

CASE(cpu_sets_of_one_cpu) {
    sets.told = true;
    struct selftest_cpu_sets out = ask("0");
    CHECK(strstr(out.reason, "one CPU") != NULL);
    EQUAL(sets.n_set, 0);
}

CASE(ideal_processors_are_not_told) {
    struct selftest_cpu_sets out = ask("0-3");
    CHECK(strstr(out.reason, "does not tell") != NULL);
    EQUAL(sets.n_set, 0);
}

CASE(no_cpu_sets) {
    struct selftest_cpu_sets out;
    begin();
    win32.SetProcessDefaultCpuSetMasks = NULL;
    win32.SetProcessDefaultCpuSets     = NULL;
    selftest_cpu_sets(&topo, &out);
    CHECK(strstr(out.reason, "no CPU sets") != NULL);
}

// --- large pages ---

static bool privilege, memory, hidden;

static BOOL WINAPI adjust_now(HANDLE token, BOOL off, TOKEN_PRIVILEGES * wanted, DWORD size, TOKEN_PRIVILEGES * before, DWORD * length) {
    (void) token;
    (void) off;
    (void) wanted;
    (void) size;
    (void) before;
    (void) length;
    SetLastError(privilege ? ERROR_SUCCESS : ERROR_NOT_ALL_ASSIGNED);
    return TRUE;
}

static SIZE_T WINAPI large_page_now(void) {
    return 64 << 10;
}

static void * WINAPI alloc_now(HANDLE process, void * at, SIZE_T bytes, DWORD type, DWORD protect, DWORD node) {
    (void) process;
    EQUAL(type & MEM_LARGE_PAGES, MEM_LARGE_PAGES);
    EQUAL(node, 1);
    SetLastError(ERROR_NOT_ENOUGH_MEMORY);
    return memory ? VirtualAlloc(at, bytes, type & ~(DWORD) MEM_LARGE_PAGES, protect) : NULL;
}

static BOOL WINAPI query_now(HANDLE process, void * pages, DWORD size) {
    PSAPI_WORKING_SET_EX_INFORMATION * each = pages;
    (void) process;
    for (size_t i = 0; i < size / sizeof(*each); i++) {
        each[i].VirtualAttributes.Valid     = !hidden;
        each[i].VirtualAttributes.Node      = 1;
        each[i].VirtualAttributes.LargePage = 1;
    }
    return TRUE;
}

static struct selftest_large take(void) {
    struct selftest_large large;
    begin();
    win32.AdjustTokenPrivileges = adjust_now;
    win32.GetLargePageMinimum   = large_page_now;
    win32.VirtualAllocExNuma    = alloc_now;
    win32.K32QueryWorkingSetEx  = query_now;
    CHECK(selftest_large(0, 1, &large));
    SAME(large.kind, "large pages");
    EQUAL(large.node, 1);
    return large;
}

CASE(large_pages_without_the_privilege) {
    const struct selftest_large large = take();
    CHECK(strstr(large.reason, "SeLockMemoryPrivilege") != NULL);
    EQUAL(large.seen.checked, 0);
}

CASE(large_pages_that_cannot_be_had) {
    privilege = true;
    const struct selftest_large large = take();
    CHECK(strstr(large.reason, "no 1 MiB of large pages could be had") != NULL);
}

CASE(large_pages_that_are_seen) {
    privilege = memory = true;
    const struct selftest_large large = take();
    SAME(large.reason, "");
    EQUAL(large.bytes, MIB);
    EQUAL(large.large_bytes, MIB);
    EQUAL(large.seen.checked, 256);
    EQUAL(large.seen.on_node, 256);
}

CASE(large_pages_that_are_hidden) {
    privilege = memory = hidden = true;
    const struct selftest_large large = take();
    EQUAL(large.seen.not_resident, 256);
    EQUAL(large.large_bytes, 0);
}

CASE(there_is_one_kind) {
    struct selftest_large large;
    CHECK(!selftest_large(1, 0, &large));
}
