// The operating system as Windows has it. Nothing here binds memory: a node is a preference that each reservation, section
// and view is made with, and for everything else that of the ideal processor of the thread that touches a page first. No
// call moves pages. Semantics: Microsoft Learn, "NUMA Support", "Processor Groups", "CPU Sets", and the page of each call.
#include "win32.h"

#include "path_windows.h"
#include "prim.h"
#include "topology_windows.h"

#include <errno.h>
#include <io.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS = NODE_SET_MAX / WINDOWS_GROUP_CPUS };

struct win32 win32;

// The machine as prim_topology saw it last: which CPUs belong to a node, and which stand for a core.
static struct topology machine;

static HANDLE self(void) {
    return GetCurrentProcess(); // not a handle to be closed, and so is that of the thread
}

void win32_bind(void) {
    static bool bound;
    if (bound) {
        return;
    }
    bound = true;
    const HMODULE kernel = GetModuleHandleW(L"kernel32.dll");
#define LINKED(name)    win32.name = name;
#define LOOKED_UP(name) win32.name = (__typeof__(win32.name)) (void (*)(void)) GetProcAddress(kernel, #name);
    WIN32_ALWAYS(LINKED)
    WIN32_PERHAPS(LOOKED_UP)
    LOOKED_UP(SetProcessDefaultCpuSetMasks)
#undef LINKED
#undef LOOKED_UP
}

static int negative_errno(DWORD error) {
    switch (error) {
        case ERROR_ACCESS_DENIED:
        case ERROR_PRIVILEGE_NOT_HELD:     return -EPERM;
        case ERROR_INVALID_PARAMETER:      return -EINVAL;
        case ERROR_INVALID_FUNCTION: // so says Wine, too
        case ERROR_NOT_SUPPORTED:
        case ERROR_PROC_NOT_FOUND:
        case ERROR_CALL_NOT_IMPLEMENTED:   return -ENOSYS;
        case ERROR_NOT_ENOUGH_MEMORY:
        case ERROR_OUTOFMEMORY:
        case ERROR_COMMITMENT_LIMIT:
        case ERROR_NO_SYSTEM_RESOURCES:
        case ERROR_WORKING_SET_QUOTA:      return -ENOMEM;
        case ERROR_INVALID_HANDLE:         return -EBADF;
        case ERROR_FILE_NOT_FOUND:
        case ERROR_PATH_NOT_FOUND:         return -ENOENT;
        case ERROR_SHARING_VIOLATION:
        case ERROR_LOCK_VIOLATION:         return -EBUSY;
        default:                           return -EIO;
    }
}

static int last_error(void) {
    return negative_errno(GetLastError());
}

int win32_error(void) {
    return last_error();
}

size_t prim_page_size(void) {
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return info.dwPageSize;
}

static size_t round_up(size_t n, size_t unit) {
    return (n + unit - 1) / unit * unit;
}

// --- the machine ---

// A machine may grow between two calls, so one is asked more than once.
void * win32_records(LOGICAL_PROCESSOR_RELATIONSHIP kind, size_t * size) {
    const DWORD most = 16 << 20; // bytes; 2048 CPUs that are a core each take 96 KiB
    void * records = NULL;
    DWORD room     = 0;
    *size = 0;
    for (;;) {
        DWORD used = room;
        if (win32.GetLogicalProcessorInformationEx(kind, records, &used)) {
            *size = used < room ? used : room;
            return records;
        }
        const bool short_of_room = GetLastError() == ERROR_INSUFFICIENT_BUFFER;
        free(records);
        room    = used > 2 * room + 4096 ? used : 2 * room + 4096;
        records = short_of_room && room <= most ? malloc(room) : NULL;
        if (!records) {
            return NULL;
        }
    }
}

// With RelationNumaNodeEx a node has all of its groups, but an older Windows refuses it, or knows it and says nothing.
static void * read_nodes(size_t * size) {
    void * records = win32_records(RelationNumaNodeEx, size);
    if (*size == 0) {
        free(records);
        records = win32_records(RelationNumaNode, size);
    }
    return records;
}

static bool node_free(int node, uint64_t * bytes, void * context) {
    ULONGLONG available;
    (void) context;
    if (!win32.GetNumaAvailableMemoryNodeEx((USHORT) node, &available)) {
        return false;
    }
    *bytes = available;
    return true;
}

// The one group all threads are in, or -1.
static int only_group(void) {
    USHORT groups[GROUPS];
    USHORT count = GROUPS;
    GROUP_AFFINITY own;
    if (win32.GetProcessGroupAffinity(self(), &count, groups)) {
        return count == 1 ? groups[0] : -1;
    }
    // Wine has one group, and no such call.
    return GetLastError() == ERROR_CALL_NOT_IMPLEMENTED && win32.GetThreadGroupAffinity(GetCurrentThread(), &own) ? own.Group : -1;
}

// True where this process was given less than its group, with the CPUs it was given. A whole group confines nobody, since
// threads may go to others.
static bool is_confined(struct node_set * cpus) {
    const int group = only_group();
    DWORD_PTR given, all;
    node_set_clear(cpus);
    if (group < 0 || group >= GROUPS || !win32.GetProcessAffinityMask(self(), &given, &all) || given == 0 || given == all) {
        return false;
    }
    cpus->word[group] = given;
    return true;
}

// What is free on a node leaves out the pages of the file cache that could be dropped (standby), of which Windows says how
// many the whole machine has but not where. So all of them count for every node: the result is an upper bound, and where
// something is said not to fit, it does not.
static void add_standby(struct topology * topo, uint64_t available) {
    uint64_t free_bytes = 0;
    for (int i = 0; i < topo->n_nodes; i++) {
        free_bytes += topo->nodes[i].free_bytes;
    }
    const uint64_t standby = available > free_bytes ? available - free_bytes : 0;
    for (int i = 0; i < topo->n_nodes; i++) {
        struct topology_node * node = &topo->nodes[i];
        node->avail_bytes += standby;
        if (node->avail_bytes > node->mem_bytes) {
            node->avail_bytes = node->mem_bytes;
        }
    }
}

static int read_machine(struct topology * topo, char * err, size_t err_size) {
    struct windows_machine seen = { .available = node_free };
    MEMORYSTATUSEX memory       = { .dwLength = sizeof(memory) };
    if (!win32.GlobalMemoryStatusEx(&memory)) {
        memory.ullTotalPhys = memory.ullAvailPhys = 0;
    }
    void * const nodes = read_nodes(&seen.numa_size);
    void * const cores = win32_records(RelationProcessorCore, &seen.cores_size);
    seen.numa        = nodes;
    seen.cores       = cores;
    seen.total_bytes = memory.ullTotalPhys;
    seen.confined    = is_confined(&seen.allowed_cpus);
    const int result = topology_read_windows(topo, &seen, err, err_size);
    free(nodes);
    free(cores);
    if (result == 0) {
        add_standby(topo, memory.ullAvailPhys);
    }
    return result;
}

static int number_of(const PROCESSOR_NUMBER * cpu) {
    return cpu->Group * WINDOWS_GROUP_CPUS + cpu->Number;
}

// `start /NODE` leaves its mark in the ideal processor only. A process that was started without has one too, on a node that
// Windows chose, and the two cannot be told apart: either is the node to be on, unless the user says otherwise.
static int index_of_start_node(const struct topology * topo) {
    PROCESSOR_NUMBER ideal;
    if (win32.GetThreadIdealProcessorEx(GetCurrentThread(), &ideal)) {
        for (int i = 0; i < topo->n_nodes; i++) {
            if (node_set_has(&topo->nodes[i].cpus, number_of(&ideal))) {
                return i;
            }
        }
    }
    return -1;
}

static LONG CALLBACK on_exception(EXCEPTION_POINTERS * exception);

int prim_topology(struct topology * topo, int * start_node, char * err, size_t err_size) {
    static bool watching;
    win32_bind();
    if (!watching) {
        watching = AddVectoredExceptionHandler(1, on_exception) != NULL;
    }
    topology_free(&machine);
    if (read_machine(topo, err, err_size) != 0) {
        return -1;
    }
    if (read_machine(&machine, err, err_size) != 0) {
        topology_free(topo);
        return -1;
    }
    *start_node = index_of_start_node(topo);
    return 0;
}

uint64_t prim_resident(void) {
    PROCESS_MEMORY_COUNTERS now = { .cb = sizeof(now) };
    return K32GetProcessMemoryInfo(self(), &now, sizeof(now)) ? now.WorkingSetSize : 0;
}

uint64_t prim_available(int node) {
    struct topology topo;
    char err[8];
    uint64_t bytes = 0;
    if (read_machine(&topo, err, sizeof(err)) == 0) {
        const int i = topology_find(&topo, node);
        bytes = i < 0 ? 0 : topo.nodes[i].avail_bytes;
        topology_free(&topo);
    }
    return bytes;
}

// --- threads ---

static unsigned common_divisor(unsigned a, unsigned b) {
    return b == 0 ? a : common_divisor(b, a % b);
}

// The CPU whose turn it is. Turns go round in steps of 0.618 of the CPUs (the golden section), so that any few in a row are
// spread evenly over all, and so over the groups by their sizes, and no CPU comes again before all others have come.
static int cpu_of_turn(const struct node_set * cpus, unsigned turn) {
    const unsigned n = (unsigned) node_set_count(cpus);
    unsigned step    = n * 618 / 1000;
    while (common_divisor(step, n) != 1) {
        step++;
    }
    int cpu = node_set_next(cpus, 0);
    for (unsigned left = turn % n * step % n; left > 0; left--) {
        cpu = node_set_next(cpus, cpu + 1);
    }
    return cpu;
}

// One CPU per core of the set; where that is not known, all of it.
static struct node_set cores_within(const struct node_set * cpus) {
    struct node_set cores = { { 0 } };
    for (int i = 0; i < machine.n_nodes; i++) {
        for (int group = 0; group < GROUPS; group++) {
            cores.word[group] |= machine.nodes[i].cores.word[group];
        }
    }
    node_set_intersect(&cores, cpus);
    return node_set_empty(&cores) ? *cpus : cores;
}

static bool set_ideal(int cpu) {
    PROCESSOR_NUMBER ideal = { .Group = (WORD) (cpu / WINDOWS_GROUP_CPUS), .Number = (BYTE) (cpu % WINDOWS_GROUP_CPUS) };
    return win32.SetThreadIdealProcessorEx(GetCurrentThread(), &ideal, NULL);
}

// CPU sets by number, as Windows 10 has them: only those of the set's CPUs.
static void set_default_cpu_ids(const struct node_set * cpus) {
    ULONG size = 0, n = 0;
    win32.GetSystemCpuSetInformation(NULL, 0, &size, self(), 0);
    char * const records = size > 0 ? malloc(size) : NULL;
    ULONG * const ids    = size > 0 ? malloc(size) : NULL; // each record is larger than a number
    if (records && ids && win32.GetSystemCpuSetInformation((SYSTEM_CPU_SET_INFORMATION *) records, size, &size, self(), 0)) {
        for (ULONG at = 0; at + sizeof(SYSTEM_CPU_SET_INFORMATION) <= size;) {
            const SYSTEM_CPU_SET_INFORMATION * record = (const SYSTEM_CPU_SET_INFORMATION *) (records + at);
            if (record->Size < sizeof(*record)) {
                break;
            }
            if (record->Type == CpuSetInformation
                && node_set_has(cpus, record->CpuSet.Group * WINDOWS_GROUP_CPUS + record->CpuSet.LogicalProcessorIndex)) {
                ids[n++] = record->CpuSet.Id;
            }
            at += record->Size;
        }
        if (n > 0) {
            win32.SetProcessDefaultCpuSets(self(), ids, n);
        }
    }
    free(records);
    free(ids);
}

// Threads inherit the group of the one that starts them, but not its affinity. What keeps those on the node that never ask
// (of the HTTP server, say) are default CPU sets, within their group before Windows 11, in any group since. A wish: where
// it is not granted, such threads roam their group.
void win32_default_cpus(const struct node_set * cpus) {
    if (win32.SetProcessDefaultCpuSetMasks) {
        GROUP_AFFINITY masks[GROUPS] = { { 0 } };
        USHORT n = 0;
        for (int group = 0; group < GROUPS; group++) {
            if (cpus->word[group]) {
                masks[n++] = (GROUP_AFFINITY) { .Mask = cpus->word[group], .Group = (WORD) group };
            }
        }
        win32.SetProcessDefaultCpuSetMasks(self(), masks, n);
    } else if (win32.SetProcessDefaultCpuSets && win32.GetSystemCpuSetInformation) {
        set_default_cpu_ids(cpus);
    }
}

// A thread runs in one group, so threads take turns at the parts of a set that has several. The ideal processor comes last:
// setting an affinity moves it, and CPU sets may.
int prim_bind_cpus(const struct node_set * cpus) {
    static _Atomic unsigned turns;
    if (node_set_empty(cpus)) {
        return -EINVAL;
    }
    win32_default_cpus(cpus);
    const struct node_set cores   = cores_within(cpus);
    const int cpu                 = cpu_of_turn(&cores, atomic_fetch_add(&turns, 1));
    const int group               = cpu / WINDOWS_GROUP_CPUS;
    const GROUP_AFFINITY affinity = { .Mask = cpus->word[group], .Group = (WORD) group };
    if (!win32.SetThreadGroupAffinity(GetCurrentThread(), &affinity, NULL)) {
        return last_error();
    }
    set_ideal(cpu); // whether it is there, prim_bind_memory finds out
    return 0;
}

// The lowest CPU of the set that the calling thread may run on, or -1.
static int runnable_cpu(const struct node_set * cpus) {
    GROUP_AFFINITY own;
    struct node_set here = { { 0 } };
    if (!win32.GetThreadGroupAffinity(GetCurrentThread(), &own) || own.Group >= GROUPS) {
        return -1;
    }
    here.word[own.Group] = own.Mask;
    node_set_intersect(&here, cpus);
    return node_set_next(&here, 0);
}

// The policies are one and the same here. Where the thread cannot run on the node (it has no CPUs, or they are not ours),
// its ideal processor is elsewhere by right: regions and views name the node themselves.
int prim_bind_memory(int node, enum prim_policy policy) {
    const int index = topology_find(&machine, node);
    PROCESSOR_NUMBER ideal;
    (void) policy;
    if (index < 0) {
        return -EINVAL;
    }
    if (!win32.GetThreadIdealProcessorEx(GetCurrentThread(), &ideal)) {
        return last_error();
    }
    const struct node_set * cpus = &machine.nodes[index].cpus;
    const int cpu                = runnable_cpu(cpus);
    if (cpu < 0 || node_set_has(cpus, number_of(&ideal))) {
        return 0;
    }
    if (!set_ideal(cpu) || !win32.GetThreadIdealProcessorEx(GetCurrentThread(), &ideal)) {
        return last_error();
    }
    return node_set_has(cpus, number_of(&ideal)) ? 0 : -EINVAL;
}

// Windows gives the number of an ended thread to the next, so the time of its start goes with it: the lower 31 bits of
// 100 ns units.
static int64_t identity(HANDLE thread, DWORD id) {
    FILETIME begin = { 0 }, end, kernel, user;
    GetThreadTimes(thread, &begin, &end, &kernel, &user);
    return (int64_t) (begin.dwLowDateTime & 0x7fffffff) << 32 | id;
}

int64_t prim_thread_id(void) {
    return identity(GetCurrentThread(), GetCurrentThreadId());
}

int prim_thread_within(int64_t thread, const struct node_set * cpus) {
    const DWORD id      = (DWORD) thread;
    const HANDLE handle = OpenThread(THREAD_QUERY_LIMITED_INFORMATION | SYNCHRONIZE, FALSE, id);
    GROUP_AFFINITY affinity;
    int result = -1;
    if (!handle) {
        return -1;
    }
    if (identity(handle, id) == thread && WaitForSingleObject(handle, 0) == WAIT_TIMEOUT) {
        result = win32.GetThreadGroupAffinity(handle, &affinity) && affinity.Group < GROUPS && affinity.Mask != 0
              && (affinity.Mask & ~cpus->word[affinity.Group]) == 0;
    }
    CloseHandle(handle);
    return result;
}

struct parallel {
    void (*work)(void * context);
    void * context;
};

static DWORD WINAPI parallel_main(void * arg) {
    struct parallel * job = arg;
    job->work(job->context);
    return 0;
}

void prim_parallel(int threads, void (*work)(void * context), void * context) {
    enum { MOST = 64 };
    HANDLE started[MOST];
    struct parallel job = { work, context };
    int n = 0;
    while (n < threads - 1 && n < MOST && (started[n] = CreateThread(NULL, 0, parallel_main, &job, 0, NULL)) != NULL) {
        n++;
    }
    work(context);
    for (int i = 0; i < n; i++) {
        WaitForSingleObject(started[i], INFINITE);
        CloseHandle(started[i]);
    }
}

void prim_sleep_ms(int ms) {
    Sleep((DWORD) ms);
}

double prim_now_ms(void) {
    LARGE_INTEGER now, per_second;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&per_second);
    return (double) now.QuadPart * 1e3 / (double) per_second.QuadPart;
}

// --- memory ---

bool prim_binds(void) {
    return false;
}

// True where this process may lock memory, which large pages are. It may where its account holds the privilege ("Lock pages
// in memory"), which has to be switched on.
static bool enable_lock_memory(void) {
    TOKEN_PRIVILEGES wanted = { .PrivilegeCount = 1, .Privileges = { { .Attributes = SE_PRIVILEGE_ENABLED } } };
    HANDLE token;
    bool enabled = false;
    if (OpenProcessToken(self(), TOKEN_ADJUST_PRIVILEGES | TOKEN_QUERY, &token)) {
        enabled = LookupPrivilegeValueW(NULL, L"SeLockMemoryPrivilege", &wanted.Privileges[0].Luid)
               && win32.AdjustTokenPrivileges(token, FALSE, &wanted, 0, NULL, NULL)
               && GetLastError() == ERROR_SUCCESS; // it "succeeds" without the privilege as well
        CloseHandle(token);
    }
    return enabled;
}

size_t win32_large_page(void) {
    static _Atomic int allowed; // 0: not known yet
    if (atomic_load(&allowed) == 0) {
        atomic_store(&allowed, enable_lock_memory() ? 1 : -1);
    }
    return atomic_load(&allowed) > 0 ? win32.GetLargePageMinimum() : 0;
}

// All of them are taken at once, so this can take its time, and fails where memory is in pieces.
static void * alloc_large(size_t bytes, int node) {
    const size_t worth = 8; // large pages, so that rounding up wastes an eighth at most
    const size_t page  = win32_large_page();
    if (page == 0 || bytes < worth * page || bytes > SIZE_MAX - page) {
        return NULL;
    }
    return win32.VirtualAllocExNuma(self(), NULL, round_up(bytes, page), MEM_RESERVE | MEM_COMMIT | MEM_LARGE_PAGES,
                                    PAGE_READWRITE, (DWORD) node);
}

// The node counts where a range is reserved, so each gets a reservation of its own, with a page behind it that stays
// inaccessible.
void * prim_alloc(size_t bytes, int node, enum prim_policy policy, int * placed) {
    const size_t page = prim_page_size();
    const size_t size = round_up(bytes, page);
    DWORD preferred   = (DWORD) node;
    (void) policy;
    *placed = 0;
    void * base = alloc_large(bytes, node);
    if (base || size + page < bytes) {
        return base;
    }
    base = win32.VirtualAllocExNuma(self(), NULL, size + page, MEM_RESERVE, PAGE_READWRITE, preferred);
    if (!base) {
        *placed   = last_error();
        preferred = NUMA_NO_PREFERRED_NODE;
        base      = win32.VirtualAllocExNuma(self(), NULL, size + page, MEM_RESERVE, PAGE_READWRITE, preferred);
    }
    if (base && !win32.VirtualAllocExNuma(self(), base, size, MEM_COMMIT, PAGE_READWRITE, preferred)) {
        VirtualFree(base, 0, MEM_RELEASE);
        base = NULL;
    }
    return base;
}

void prim_free(void * base, size_t bytes) {
    (void) bytes; // a reservation is known by its base, large pages or not
    VirtualFree(base, 0, MEM_RELEASE);
}

void * prim_section(void * file, int node) {
    return win32.CreateFileMappingNumaW(file, NULL, PAGE_READONLY, 0, 0, NULL, (DWORD) node);
}

void * prim_view(void * section, int node) {
    return win32.MapViewOfFileExNuma(section, FILE_MAP_READ, 0, 0, 0, NULL, (DWORD) node);
}

// Reading a file mapping raises an exception where the disk or the network fails, here as well as later in the middle of
// a computation; nobody can go on without these weights.
static LONG CALLBACK on_exception(EXCEPTION_POINTERS * exception) {
    const EXCEPTION_RECORD * record = exception->ExceptionRecord;
    MEMORY_BASIC_INFORMATION memory;
    char line[160];
    DWORD written;
    if (record->ExceptionCode != EXCEPTION_IN_PAGE_ERROR || record->NumberParameters < 3
        || VirtualQuery((const void *) record->ExceptionInformation[1], &memory, sizeof(memory)) == 0 || memory.Type != MEM_MAPPED) {
        return EXCEPTION_CONTINUE_SEARCH;
    }
    const int length = snprintf(line, sizeof(line), "llamafile-numa: error: the file of the model can no longer be read (status %08lx); "
                                "is its disk or network drive still there?\r\n", (unsigned long) record->ExceptionInformation[2]);
    // Past the C library: the thread may be anywhere in it.
    WriteFile(GetStdHandle(STD_ERROR_HANDLE), line, (DWORD) length, &written, NULL);
    TerminateProcess(self(), 1);
    return EXCEPTION_CONTINUE_SEARCH;
}

// Where prefetched pages lie is not documented, so the caller's ranges are small, and its thread touches them at once: until
// then they are not in the working set either.
int prim_touch(const void * base, size_t bytes) {
    const size_t page = prim_page_size();
    const uintptr_t at  = (uintptr_t) base / page * page;
    const uintptr_t end = (uintptr_t) base + bytes;
    if (win32.PrefetchVirtualMemory) {
        WIN32_MEMORY_RANGE_ENTRY range = { .VirtualAddress = (void *) at, .NumberOfBytes = end - at };
        win32.PrefetchVirtualMemory(self(), 1, &range, 0); // a hint: without it touching takes longer
    }
    for (uintptr_t p = at; p < end; p += page) {
        (void) *(const volatile char *) p;
    }
    return 0;
}

int prim_move(void * base, size_t bytes, int node) {
    (void) base;
    (void) bytes;
    (void) node;
    return -ENOSYS;
}

// Pages that the memory manager took out of the working set count as not resident, as those never touched do: of neither
// Windows tells the node.
int prim_look(const void * base, size_t bytes, int node, uint64_t most, struct prim_residency * out, bool * coarse) {
    enum { BATCH = 4096 };
    const size_t page     = prim_page_size();
    const uintptr_t at    = (uintptr_t) base / page * page;
    const uint64_t total  = round_up((uintptr_t) base + bytes - at, page) / page;
    const uint64_t wanted = total < most ? total : most;
    (void) coarse; // each page is looked at by itself, always
    PSAPI_WORKING_SET_EX_INFORMATION * pages = malloc(BATCH * sizeof(*pages));
    int result = pages ? 0 : -ENOMEM;
    for (uint64_t i = 0; result == 0 && i < wanted; i += BATCH) {
        const uint64_t n = wanted - i < BATCH ? wanted - i : BATCH;
        memset(pages, 0, (size_t) n * sizeof(*pages));
        for (uint64_t k = 0; k < n; k++) {
            pages[k].VirtualAddress = (void *) (at + (uintptr_t) (total * (i + k) / wanted) * page);
        }
        if (!win32.K32QueryWorkingSetEx(self(), pages, (DWORD) (n * sizeof(*pages)))) {
            result = last_error();
            break;
        }
        for (uint64_t k = 0; k < n; k++) {
            const PSAPI_WORKING_SET_EX_BLOCK seen = pages[k].VirtualAttributes;
            out->checked++;
            out->large += seen.Valid && seen.LargePage;
            *(!seen.Valid ? &out->not_resident : (int) seen.Node == node ? &out->on_node : &out->elsewhere) += 1;
        }
    }
    free(pages);
    return result;
}

// --- files ---

// Reads past the file cache, several at once, through buffers of our own unless they can go to their place: the disk wants
// both its offsets and addresses in whole blocks.
struct prim_reader {
    HANDLE   direct; // unbuffered and overlapped; INVALID_HANDLE_VALUE where the file system has no such thing
    HANDLE   plain;  // buffered, a file position of its own
    uint64_t size;   // bytes of the file
};

#define DIRECT_ALIGN ((size_t) 4096) // enough for any disk: logical blocks are 512 or 4096 bytes
#define DIRECT_PIECE ((size_t) 256 << 10)
enum { IN_FLIGHT = 4 };

static HANDLE reopen(HANDLE file, DWORD flags) {
    return win32.ReOpenFile(file, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, flags);
}

struct prim_reader * prim_reader_open(int file) {
    const HANDLE handle = (HANDLE) _get_osfhandle(file);
    LARGE_INTEGER size;
    if (handle == INVALID_HANDLE_VALUE || GetFileType(handle) != FILE_TYPE_DISK || !GetFileSizeEx(handle, &size)) {
        return NULL;
    }
    struct prim_reader * reader = malloc(sizeof(*reader));
    if (!reader) {
        return NULL;
    }
    reader->size   = (uint64_t) size.QuadPart;
    reader->direct = reopen(handle, FILE_FLAG_NO_BUFFERING | FILE_FLAG_OVERLAPPED);
    reader->plain  = reopen(handle, FILE_FLAG_SEQUENTIAL_SCAN); // what it leaves in the cache goes first
    if (reader->plain == INVALID_HANDLE_VALUE) {
        prim_reader_close(reader);
        return NULL;
    }
    return reader;
}

void prim_reader_close(struct prim_reader * reader) {
    if (reader->direct != INVALID_HANDLE_VALUE) {
        CloseHandle(reader->direct);
    }
    if (reader->plain != INVALID_HANDLE_VALUE) {
        CloseHandle(reader->plain);
    }
    free(reader);
}

// What is to be read, and where to.
struct span {
    uint64_t begin, end; // offsets in the file
    char *   to;         // for the byte at begin
};

// One read that was begun: whole blocks of DIRECT_ALIGN bytes, the last one beyond the end of the file perhaps.
struct flight {
    OVERLAPPED io;
    uint64_t   at;
    size_t     bytes;
    char *     bounce; // its buffer
    char *     into;   // where the bytes go: the buffer or, where all fits, their place
};

static int begin_read(HANDLE file, struct flight * flight, uint64_t at, const struct span * span) {
    const uint64_t left = span->end - at;
    flight->at    = at;
    flight->bytes = left < DIRECT_PIECE ? round_up((size_t) left, DIRECT_ALIGN) : DIRECT_PIECE;
    flight->into  = flight->bounce;
    if (at >= span->begin && flight->bytes <= left && (uintptr_t) (span->to + (at - span->begin)) % DIRECT_ALIGN == 0) {
        flight->into = span->to + (at - span->begin);
    }
    flight->io = (OVERLAPPED) { .Offset = (DWORD) at, .OffsetHigh = (DWORD) (at >> 32), .hEvent = flight->io.hEvent };
    return win32.ReadFile(file, flight->into, (DWORD) flight->bytes, NULL, &flight->io) || GetLastError() == ERROR_IO_PENDING
             ? 0
             : last_error();
}

static int finish_read(HANDLE file, struct flight * flight, const struct span * span) {
    const uint64_t end   = flight->at + flight->bytes;
    const uint64_t from  = flight->at > span->begin ? flight->at : span->begin;
    const uint64_t until = end < span->end ? end : span->end;
    DWORD got;
    if (!GetOverlappedResult(file, &flight->io, &got, TRUE)) {
        return last_error();
    }
    if (got < until - flight->at) {
        return -EIO; // the file has become shorter
    }
    if (flight->into == flight->bounce) {
        memcpy(span->to + (from - span->begin), flight->bounce + (from - flight->at), (size_t) (until - from));
    }
    return 0;
}

static int read_in_flight(HANDLE file, struct flight * flights, const struct span * span) {
    uint64_t next = span->begin / DIRECT_ALIGN * DIRECT_ALIGN;
    unsigned begun = 0, finished = 0;
    int result = 0;
    while (result == 0 && (next < span->end || finished < begun)) {
        while (result == 0 && next < span->end && begun - finished < IN_FLIGHT) {
            result = begin_read(file, &flights[begun % IN_FLIGHT], next, span);
            next += DIRECT_PIECE;
            begun += result == 0;
        }
        if (result == 0) {
            result = finish_read(file, &flights[finished++ % IN_FLIGHT], span);
        }
    }
    while (finished < begun) { // their buffers are in use until they have ended
        DWORD got;
        OVERLAPPED * io = &flights[finished++ % IN_FLIGHT].io;
        CancelIoEx(file, io);
        GetOverlappedResult(file, io, &got, TRUE);
    }
    return result;
}

static int read_direct(const struct prim_reader * reader, const struct span * span) {
    struct flight flights[IN_FLIGHT] = { 0 };
    char * const buffers = VirtualAlloc(NULL, IN_FLIGHT * DIRECT_PIECE, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    int result           = buffers ? 0 : -ENOMEM;
    for (int i = 0; i < IN_FLIGHT && result == 0; i++) {
        flights[i].bounce    = buffers + (size_t) i * DIRECT_PIECE;
        flights[i].io.hEvent = CreateEventW(NULL, TRUE, FALSE, NULL);
        result               = flights[i].io.hEvent ? 0 : last_error();
    }
    if (result == 0) {
        result = read_in_flight(reader->direct, flights, span);
    }
    for (int i = 0; i < IN_FLIGHT; i++) {
        if (flights[i].io.hEvent) {
            CloseHandle(flights[i].io.hEvent);
        }
    }
    if (buffers) {
        VirtualFree(buffers, 0, MEM_RELEASE);
    }
    return result;
}

static int read_buffered(const struct prim_reader * reader, const struct span * span) {
    const uint64_t most = 64 << 20; // bytes a call
    char * to = span->to;
    for (uint64_t at = span->begin; at < span->end;) {
        const uint64_t left = span->end - at;
        OVERLAPPED where    = { .Offset = (DWORD) at, .OffsetHigh = (DWORD) (at >> 32) };
        DWORD got           = 0;
        if (!win32.ReadFile(reader->plain, to, (DWORD) (left < most ? left : most), &got, &where)) {
            return last_error();
        }
        if (got == 0) {
            return -EIO;
        }
        at += got;
        to += got;
    }
    return 0;
}

int prim_reader_read(struct prim_reader * reader, uint64_t offset, void * to, size_t bytes) {
    const struct span span = { .begin = offset, .end = offset + bytes, .to = to };
    if (offset > reader->size || bytes > reader->size - offset) {
        return -EINVAL;
    }
    return reader->direct != INVALID_HANDLE_VALUE && read_direct(reader, &span) == 0 ? 0 : read_buffered(reader, &span);
}

void prim_set_env(const char * name, const char * value) {
    SetEnvironmentVariableA(name, value); // not by _putenv_s, which may read the C library's table anew, in another code page
}

FILE * prim_create(const char * name) {
    return path_open(name, L"w");
}

FILE * prim_open(const char * name) {
    return path_is_file(name) ? path_open(name, L"rb") : NULL;
}
