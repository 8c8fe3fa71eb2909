// What --numa-selftest needs of Windows.
#include "win32.h"

#include "selftest_os.h"
#include "topology_windows.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static HANDLE self(void) {
    return GetCurrentProcess();
}

static FARPROC ntdll(const char * name) {
    return GetProcAddress(GetModuleHandleW(L"ntdll.dll"), name);
}

// --- the machine ---

// A text of the registry's part for the machine, "" where there is none.
static void registry_text(const wchar_t * key, const wchar_t * name, char * out, size_t size) {
    wchar_t text[128];
    DWORD bytes = sizeof(text);
    out[0] = 0;
    if (RegGetValueW(HKEY_LOCAL_MACHINE, key, name, RRF_RT_REG_SZ, NULL, text, &bytes) == ERROR_SUCCESS
        && WideCharToMultiByte(CP_UTF8, 0, text, -1, out, (int) size, NULL, NULL) == 0) {
        out[0] = 0;
    }
    for (size_t end = strlen(out); end > 0 && out[end - 1] == ' '; end--) {
        out[end - 1] = 0;
    }
}

// GetVersionEx says of an old Windows what a program has declared to know; this says what there is.
static void version(char * out, size_t size) {
    RTL_OSVERSIONINFOW info = { .dwOSVersionInfoSize = sizeof(info) };
    LONG (WINAPI * get)(RTL_OSVERSIONINFOW *) = (__typeof__(get)) (void (*)(void)) ntdll("RtlGetVersion");
    out[0] = 0;
    if (get && get(&info) == 0) {
        snprintf(out, size, "%lu.%lu.%lu", info.dwMajorVersion, info.dwMinorVersion, info.dwBuildNumber);
    }
}

void selftest_system(char * system, size_t system_size, char * cpu, size_t cpu_size) {
    char number[48], product[64];
    const char * (CDECL * wine)(void) = (__typeof__(wine)) (void (*)(void)) ntdll("wine_get_version");
    version(number, sizeof(number));
    registry_text(L"SOFTWARE\\Microsoft\\Windows NT\\CurrentVersion", L"ProductName", product, sizeof(product));
    snprintf(system, system_size, "Windows %s%s%s%s%s%s", number, product[0] ? " (" : "", product, product[0] ? ")" : "", wine ? ", in truth Wine " : "",
             wine ? wine() : "");
    registry_text(L"HARDWARE\\DESCRIPTION\\System\\CentralProcessor\\0", L"ProcessorNameString", cpu, cpu_size);
}

// The level of caches that counts, and with it the bytes of those that CPUs of the set have.
static BYTE add_caches(const char * records, size_t size, const struct node_set * cpus, BYTE level, uint64_t * bytes) {
    BYTE highest = 0;
    *bytes = 0;
    for (size_t at = 0; at + sizeof(SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX) <= size;) {
        const SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX * record = (const void *) (records + at);
        const CACHE_RELATIONSHIP * cache = &record->Cache;
        const GROUP_AFFINITY * mask      = &cache->GroupMask;
        if (record->Size == 0) {
            break;
        }
        highest = cache->Level > highest ? cache->Level : highest;
        if (cache->Level == level && mask->Group < NODE_SET_MAX / WINDOWS_GROUP_CPUS && (mask->Mask & cpus->word[mask->Group]) != 0) {
            *bytes += cache->CacheSize;
        }
        at += record->Size;
    }
    return highest;
}

uint64_t selftest_cache(const struct node_set * cpus) {
    size_t size;
    uint64_t bytes = 0;
    char * const records = win32_records(RelationCache, &size);
    const BYTE last      = add_caches(records, size, cpus, 0, &bytes);
    add_caches(records, size, cpus, last, &bytes);
    free(records);
    return last > 0 ? bytes : 0;
}

// --- threads ---

struct member {
    HANDLE                 thread;
    struct selftest_crew * crew;
    int                    cpu;
    bool                   bound;
};

struct selftest_crew {
    void (*work)(void * context);
    void *        context;
    int           n;
    struct member members[];
};

// Setting an affinity moves the ideal processor, so that comes second.
static DWORD WINAPI member_main(void * arg) {
    struct member * member        = arg;
    const WORD group              = (WORD) (member->cpu / WINDOWS_GROUP_CPUS);
    const BYTE number             = (BYTE) (member->cpu % WINDOWS_GROUP_CPUS);
    const GROUP_AFFINITY affinity = { .Mask = (KAFFINITY) 1 << number, .Group = group };
    PROCESSOR_NUMBER ideal        = { .Group = group, .Number = number };
    GROUP_AFFINITY now;
    win32.SetThreadGroupAffinity(GetCurrentThread(), &affinity, NULL);
    win32.SetThreadIdealProcessorEx(GetCurrentThread(), &ideal, NULL);
    member->bound = win32.GetThreadGroupAffinity(GetCurrentThread(), &now) && now.Group == group && now.Mask == affinity.Mask;
    member->crew->work(member->crew->context);
    return 0;
}

struct selftest_crew * selftest_crew_start(const struct node_set * cpus, int threads, void (*work)(void * context), void * context) {
    struct selftest_crew * crew = calloc(1, sizeof(*crew) + (size_t) threads * sizeof(crew->members[0]));
    int cpu = -1;
    if (!crew || node_set_empty(cpus)) {
        free(crew);
        return NULL;
    }
    crew->work    = work;
    crew->context = context;
    while (crew->n < threads) {
        struct member * member = &crew->members[crew->n];
        cpu = node_set_next(cpus, cpu + 1);
        cpu = cpu < 0 ? node_set_next(cpus, 0) : cpu;
        *member        = (struct member) { .crew = crew, .cpu = cpu };
        member->thread = CreateThread(NULL, 0, member_main, member, 0, NULL);
        if (!member->thread) {
            break;
        }
        crew->n++;
    }
    if (crew->n == 0) {
        free(crew);
        return NULL;
    }
    return crew;
}

int selftest_crew_join(struct selftest_crew * crew) {
    int bound = 0;
    for (int i = 0; i < crew->n; i++) {
        WaitForSingleObject(crew->members[i].thread, INFINITE);
        CloseHandle(crew->members[i].thread);
        bound += crew->members[i].bound;
    }
    free(crew);
    return bound;
}

static double ms_of(FILETIME time) {
    return (double) ((uint64_t) time.dwHighDateTime << 32 | time.dwLowDateTime) / 1e4;
}

double selftest_cpu_ms(void) {
    FILETIME created, ended, kernel, user;
    return GetProcessTimes(self(), &created, &ended, &kernel, &user) ? ms_of(kernel) + ms_of(user) : 0;
}

// What the kernel keeps of a process, as all versions since Windows 7 have it; headers show a part of it only.
struct process_record {
    ULONG         next;
    ULONG         threads;
    LARGE_INTEGER private_working_set;
    ULONG         hard_faults;
    ULONG         threads_high;
    ULONGLONG     cycles;
    LARGE_INTEGER created, user, kernel;
    USHORT        name_bytes, name_room;
    void *        name;
    LONG          priority;
    HANDLE        id;
};

int64_t selftest_hard_faults(void) {
    const LONG too_small = (LONG) 0xC0000004; // STATUS_INFO_LENGTH_MISMATCH
    LONG (WINAPI * query)(int, void *, ULONG, ULONG *) = (__typeof__(query)) (void (*)(void)) ntdll("NtQuerySystemInformation");
    int64_t faults = -1;
    LONG status    = too_small;
    char * records = NULL;
    for (ULONG room = 1 << 20; query && status == too_small && room <= 64 << 20; room *= 2) {
        free(records);
        records = malloc(room);
        status  = records ? query(5, records, room, NULL) : 0; // SystemProcessInformation
    }
    for (size_t at = 0; records && status == 0;) {
        const struct process_record * record = (const void *) (records + at);
        if ((DWORD) (uintptr_t) record->id == GetCurrentProcessId()) {
            faults = record->hard_faults;
        }
        if (record->next == 0) {
            break;
        }
        at += record->next;
    }
    free(records);
    return faults;
}

// --- a file to read ---

// Windows drops nothing from its cache on request. But what is written past it has never been in it, so each use that needs
// a cold file gets a new one. The handle that is held is unbuffered too; where it ends, with the process at the latest, the
// file goes.
struct selftest_file {
    HANDLE  held;
    wchar_t path[MAX_PATH + 48];
    size_t  bytes;
    bool    cold;
};

#define PIECE ((size_t) 1 << 20)

static DWORD share_all(void) {
    return FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
}

// Bytes that no file system can make smaller.
static void make_noise(uint64_t * piece, uint64_t * state) {
    for (size_t i = 0; i < PIECE / sizeof(*piece); i++) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        piece[i] = *state;
    }
}

static int write_noise(HANDLE file, size_t bytes) {
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
    int result     = 0;
    void * piece   = VirtualAlloc(NULL, PIECE, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE); // aligned, as the disk wants it
    if (!piece) {
        return -ENOMEM;
    }
    for (size_t done = 0; done < bytes && result == 0; done += PIECE) {
        DWORD written;
        make_noise(piece, &state);
        result = WriteFile(file, piece, (DWORD) PIECE, &written, NULL) ? 0 : win32_error();
        result = result == 0 && written != PIECE ? -EIO : result;
    }
    VirtualFree(piece, 0, MEM_RELEASE);
    return result;
}

static int write_new(struct selftest_file * file) {
    static unsigned n;
    wchar_t folder[MAX_PATH + 1];
    const DWORD length = GetTempPathW(MAX_PATH + 1, folder);
    if (length == 0 || length > MAX_PATH) {
        return -ENOENT;
    }
    _snwprintf(file->path, sizeof(file->path) / sizeof(file->path[0]), L"%lsllamafile-numa-%lu-%u.tmp", folder, GetCurrentProcessId(), n++);
    file->held = CreateFileW(file->path, GENERIC_READ | GENERIC_WRITE | DELETE, share_all(), NULL, CREATE_NEW,
                             FILE_FLAG_NO_BUFFERING | FILE_FLAG_WRITE_THROUGH | FILE_FLAG_DELETE_ON_CLOSE, NULL);
    if (file->held == INVALID_HANDLE_VALUE) {
        return win32_error();
    }
    const int error = write_noise(file->held, file->bytes);
    if (error != 0) {
        CloseHandle(file->held);
        file->held = INVALID_HANDLE_VALUE;
    }
    file->cold = error == 0;
    return error;
}

struct selftest_file * selftest_file_open(const char * path, size_t most, char * why, size_t why_size) {
    (void) path;
    (void) most;
    snprintf(why, why_size, "Windows does not drop a file from its cache on request");
    return NULL;
}

struct selftest_file * selftest_file_temporary(size_t bytes, char * why, size_t why_size) {
    struct selftest_file * file = calloc(1, sizeof(*file));
    int error = -ENOMEM;
    if (file) {
        file->bytes = (bytes + PIECE - 1) / PIECE * PIECE;
        error       = write_new(file);
    }
    if (error != 0) {
        snprintf(why, why_size, "a temporary file of %zu MiB cannot be written: %s", bytes >> 20, strerror(-error));
        free(file);
        return NULL;
    }
    return file;
}

void selftest_file_close(struct selftest_file * file) {
    if (file->held != INVALID_HANDLE_VALUE) {
        CloseHandle(file->held);
    }
    free(file);
}

size_t selftest_file_bytes(const struct selftest_file * file) {
    return file->bytes;
}

int selftest_file_cool(struct selftest_file * file) {
    if (file->cold) {
        return 0;
    }
    if (file->held != INVALID_HANDLE_VALUE) {
        CloseHandle(file->held);
        file->held = INVALID_HANDLE_VALUE;
    }
    return write_new(file);
}

int64_t selftest_file_cached(const struct selftest_file * file) {
    (void) file;
    return -1;
}

static HANDLE open_again(struct selftest_file * file, DWORD flags) {
    file->cold = false;
    return CreateFileW(file->path, GENERIC_READ, share_all(), NULL, OPEN_EXISTING, flags, NULL);
}

static int read_block(HANDLE file, void * to, size_t bytes) {
    DWORD got;
    return !ReadFile(file, to, (DWORD) bytes, &got, NULL) ? win32_error() : got == bytes ? 0 : -EIO;
}

int selftest_file_read(struct selftest_file * file) {
    const HANDLE plain = open_again(file, FILE_FLAG_RANDOM_ACCESS); // no reading ahead, which other threads would do
    void * const to    = VirtualAlloc(NULL, PIECE, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    int result = plain == INVALID_HANDLE_VALUE ? win32_error() : to ? 0 : -ENOMEM;
    for (size_t done = 0; done < file->bytes && result == 0; done += PIECE) {
        result = read_block(plain, to, PIECE);
    }
    if (to) {
        VirtualFree(to, 0, MEM_RELEASE);
    }
    if (plain != INVALID_HANDLE_VALUE) {
        CloseHandle(plain);
    }
    return result;
}

int selftest_file_unbuffered(struct selftest_file * file, bool alone) {
    const HANDLE plain  = alone ? INVALID_HANDLE_VALUE : open_again(file, 0);
    const HANDLE direct = open_again(file, FILE_FLAG_NO_BUFFERING);
    void * const to     = VirtualAlloc(NULL, PIECE, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    int result = direct == INVALID_HANDLE_VALUE ? win32_error() : to ? read_block(direct, to, PIECE) : -ENOMEM;
    if (to) {
        VirtualFree(to, 0, MEM_RELEASE);
    }
    if (direct != INVALID_HANDLE_VALUE) {
        CloseHandle(direct);
    }
    if (plain != INVALID_HANDLE_VALUE) {
        CloseHandle(plain);
    }
    return result;
}

// The view holds its section, and the section the file.
const void * selftest_file_map(struct selftest_file * file, int node) {
    const HANDLE plain   = open_again(file, 0);
    const HANDLE section = plain == INVALID_HANDLE_VALUE ? NULL : prim_section(plain, node);
    const void * view    = section ? prim_view(section, node) : NULL;
    if (section) {
        CloseHandle(section);
    }
    if (plain != INVALID_HANDLE_VALUE) {
        CloseHandle(plain);
    }
    return view;
}

void selftest_file_unmap(struct selftest_file * file, const void * view) {
    (void) file;
    UnmapViewOfFile(view);
}

enum { PREFETCH, TOUCH };

const char * selftest_way_name(int way) {
    return way == PREFETCH ? "PrefetchVirtualMemory" : way == TOUCH ? "touching" : NULL;
}

int selftest_way(int way, const void * view, size_t bytes) {
    const size_t page = prim_page_size();
    if (way == PREFETCH) {
        WIN32_MEMORY_RANGE_ENTRY range = { .VirtualAddress = (void *) (uintptr_t) view, .NumberOfBytes = bytes };
        return !win32.PrefetchVirtualMemory ? -ENOSYS : win32.PrefetchVirtualMemory(self(), 1, &range, 0) ? 0 : win32_error();
    }
    for (size_t at = 0; at < bytes; at += page) {
        (void) *((const volatile char *) view + at);
    }
    return 0;
}

// --- CPU sets ---

enum { NEW_THREADS = 8 };

static int number_of(const PROCESSOR_NUMBER * cpu) {
    return cpu->Group * WINDOWS_GROUP_CPUS + cpu->Number;
}

static int ideal_now(void) {
    PROCESSOR_NUMBER ideal;
    return win32.GetThreadIdealProcessorEx(GetCurrentThread(), &ideal) ? number_of(&ideal) : -1;
}

struct newborn {
    int ideal, cpu;
};

static DWORD WINAPI newborn_main(void * arg) {
    struct newborn * newborn = arg;
    PROCESSOR_NUMBER cpu;
    newborn->ideal = ideal_now();
    Sleep(1); // it is placed anew when it wakes
    GetCurrentProcessorNumberEx(&cpu);
    newborn->cpu = number_of(&cpu);
    return 0;
}

// Start threads one after the other, and count those that have their ideal processor in the set, and those that run there.
static int count_newborn(const struct node_set * cpus, int * ideal, int * ran) {
    int n = 0;
    *ideal = *ran = 0;
    for (int i = 0; i < NEW_THREADS; i++) {
        struct newborn newborn = { -1, -1 };
        const HANDLE thread    = CreateThread(NULL, 0, newborn_main, &newborn, 0, NULL);
        if (thread) {
            WaitForSingleObject(thread, INFINITE);
            CloseHandle(thread);
            *ideal += node_set_has(cpus, newborn.ideal);
            *ran += node_set_has(cpus, newborn.cpu);
            n++;
        }
    }
    return n;
}

// CPUs of the main thread's group, as CPU sets cannot leave it before Windows 11, without its ideal processor: another
// node's, else every other one.
static struct node_set other_cpus(const struct topology * topo, int ideal) {
    struct node_set set = { { 0 } }, group = { { 0 } };
    group.word[ideal / WINDOWS_GROUP_CPUS] = topo->allowed_cpus.word[ideal / WINDOWS_GROUP_CPUS];
    for (int i = 0; i < topo->n_nodes && node_set_empty(&set); i++) {
        if (!node_set_has(&topo->nodes[i].cpus, ideal)) {
            set = topo->nodes[i].cpus;
            node_set_intersect(&set, &group);
        }
    }
    if (node_set_empty(&set)) {
        bool take = false;
        node_set_remove(&group, ideal);
        for (int cpu = node_set_next(&group, 0); cpu >= 0; cpu = node_set_next(&group, cpu + 1), take = !take) {
            if (take || node_set_count(&group) < 2) {
                node_set_add(&set, cpu);
            }
        }
    }
    return set;
}

static void set_no_cpus(void) {
    if (win32.SetProcessDefaultCpuSetMasks) {
        win32.SetProcessDefaultCpuSetMasks(self(), NULL, 0);
    } else {
        win32.SetProcessDefaultCpuSets(self(), NULL, 0);
    }
}

void selftest_cpu_sets(const struct topology * topo, struct selftest_cpu_sets * out) {
    int ran_before;
    memset(out, 0, sizeof(*out));
    out->main_before = out->main_after = ideal_now();
    if (!win32.SetProcessDefaultCpuSetMasks && !(win32.SetProcessDefaultCpuSets && win32.GetSystemCpuSetInformation)) {
        snprintf(out->reason, sizeof(out->reason), "this Windows has no CPU sets");
    } else if (out->main_before < 0) {
        snprintf(out->reason, sizeof(out->reason), "this Windows does not tell ideal processors");
    } else {
        out->cpus = other_cpus(topo, out->main_before);
    }
    if (!out->reason[0] && node_set_empty(&out->cpus)) {
        snprintf(out->reason, sizeof(out->reason), "there is one CPU in the group of the main thread");
    }
    if (!out->reason[0]) {
        count_newborn(&out->cpus, &out->ideal_before, &ran_before);
        win32_default_cpus(&out->cpus);
        out->main_after = ideal_now();
        out->threads    = count_newborn(&out->cpus, &out->ideal_after, &out->ran_after);
        set_no_cpus();
    }
}

// --- large pages ---

bool selftest_large(int kind, int node, struct selftest_large * out) {
    bool coarse = false;
    memset(out, 0, sizeof(*out));
    out->node = node;
    out->kind = "large pages";
    if (kind != 0) {
        return false;
    }
    const size_t page = win32_large_page();
    if (page == 0) {
        snprintf(out->reason, sizeof(out->reason), "this account does not hold the privilege SeLockMemoryPrivilege (Lock pages in memory)");
        return true;
    }
    const size_t bytes = 16 * page;
    char * const base  = win32.VirtualAllocExNuma(self(), NULL, bytes, MEM_RESERVE | MEM_COMMIT | MEM_LARGE_PAGES, PAGE_READWRITE, (DWORD) node);
    if (!base) {
        snprintf(out->reason, sizeof(out->reason), "no %zu MiB of large pages could be had: %s", bytes >> 20, strerror(-win32_error()));
        return true;
    }
    out->bytes = bytes;
    memset(base, 1, bytes);
    const int error = prim_look(base, bytes, node, UINT64_MAX, &out->seen, &coarse);
    if (error != 0) {
        snprintf(out->reason, sizeof(out->reason), "pages could not be looked at: %s", strerror(-error));
    }
    out->large_bytes = out->seen.large * prim_page_size();
    VirtualFree(base, 0, MEM_RELEASE);
    return true;
}
