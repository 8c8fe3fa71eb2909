// What --numa-selftest needs of Linux.
#define _GNU_SOURCE
#include "selftest_os.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t) 2 << 20)
#define BLOCK     ((size_t) 4096) // for O_DIRECT: as large as the logical blocks of any disk

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22 // Linux 5.14
#define MADV_POPULATE_WRITE 23
#endif

// --- the machine ---

// What follows the key in the first line that begins with it, without quotes; "" where there is none.
static void find_line(const char * path, const char * key, char * out, size_t size) {
    char line[4096];
    FILE * file = fopen(path, "re");
    out[0] = 0;
    while (file && !out[0] && fgets(line, sizeof(line), file)) {
        if (strncmp(line, key, strlen(key)) == 0) {
            char * text = line + strlen(key);
            text += strspn(text, " \t:=\"");
            text[strcspn(text, "\"\n")] = 0;
            snprintf(out, size, "%s", text);
        }
    }
    if (file) {
        fclose(file);
    }
}

void selftest_system(char * system, size_t system_size, char * cpu, size_t cpu_size) {
    char name[96], flags[4096];
    struct utsname kernel;
    find_line("/etc/os-release", "PRETTY_NAME", name, sizeof(name));
    system[0] = 0;
    if (uname(&kernel) == 0) {
        snprintf(system, system_size, "%s %s%s%s%s", kernel.sysname, kernel.release, name[0] ? " (" : "", name, name[0] ? ")" : "");
    }
    find_line("/proc/cpuinfo", "model name", cpu, cpu_size);
    find_line("/proc/cpuinfo", "flags", flags, sizeof(flags));
    if (cpu[0] && strstr(flags, " hypervisor")) {
        snprintf(cpu + strlen(cpu), cpu_size - strlen(cpu), " (virtual machine)");
    }
}

static bool cache_file(int cpu, int index, const char * name, char * out, size_t size) {
    char path[128];
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cache/index%d/%s", cpu, index, name);
    find_line(path, "", out, size);
    return out[0] != 0;
}

// Bytes of the last-level cache of a CPU, where it is the lowest of the set that shares it.
static uint64_t cache_of(int cpu, const struct node_set * cpus) {
    char text[4096];
    int last = -1, highest = 0;
    for (int index = 0; cache_file(cpu, index, "level", text, sizeof(text)); index++) {
        if (atoi(text) > highest) {
            highest = atoi(text);
            last    = index;
        }
    }
    struct node_set shared;
    if (last < 0 || !cache_file(cpu, last, "shared_cpu_list", text, sizeof(text)) || node_set_parse_list(text, strlen(text), &shared) != 0) {
        return 0;
    }
    node_set_intersect(&shared, cpus);
    if (node_set_next(&shared, 0) != cpu || !cache_file(cpu, last, "size", text, sizeof(text))) {
        return 0;
    }
    char * unit;
    const uint64_t size = strtoull(text, &unit, 10);
    return *unit == 'K' ? size << 10 : *unit == 'M' ? size << 20 : size;
}

uint64_t selftest_cache(const struct node_set * cpus) {
    uint64_t bytes = 0;
    for (int cpu = node_set_next(cpus, 0); cpu >= 0; cpu = node_set_next(cpus, cpu + 1)) {
        bytes += cache_of(cpu, cpus);
    }
    return bytes;
}

// --- threads ---

struct member {
    pthread_t             thread;
    struct selftest_crew * crew;
    int                   cpu;
    bool                  bound;
};

struct selftest_crew {
    void (*work)(void * context);
    void *        context;
    int           n;
    struct member members[];
};

static void * member_main(void * arg) {
    struct member * member   = arg;
    struct node_set only     = { { 0 } };
    node_set_add(&only, member->cpu);
    sched_setaffinity(0, sizeof(only.word), (const cpu_set_t *) only.word);
    member->bound = prim_thread_within(prim_thread_id(), &only) == 1;
    member->crew->work(member->crew->context);
    return NULL;
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
        *member = (struct member) { .crew = crew, .cpu = cpu };
        if (pthread_create(&member->thread, NULL, member_main, member) != 0) {
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
        pthread_join(crew->members[i].thread, NULL);
        bound += crew->members[i].bound;
    }
    free(crew);
    return bound;
}

double selftest_cpu_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double) now.tv_sec * 1e3 + (double) now.tv_nsec / 1e6;
}

int64_t selftest_hard_faults(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_majflt : -1;
}

// --- a file to read ---

struct selftest_file {
    int    file;
    size_t bytes;
};

// mincore says "all cached" of files that are not ours to write (mincore(2), since Linux 5.2).
static bool cache_is_told(int file) {
    struct stat info;
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    return fstat(file, &info) == 0 && (geteuid() == 0 || geteuid() == info.st_uid || access(path, W_OK) == 0);
}

static struct selftest_file * file_new(int file, size_t bytes) {
    struct selftest_file * made = malloc(sizeof(*made));
    if (!made) {
        close(file);
        return NULL;
    }
    *made = (struct selftest_file) { file, bytes };
    return made;
}

struct selftest_file * selftest_file_open(const char * path, size_t most, char * why, size_t why_size) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (file < 0 || fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
        snprintf(why, why_size, "it cannot be read, or is in an archive");
    } else if (!cache_is_told(file)) {
        snprintf(why, why_size, "the system tells what is cached of a file only to those who may write it");
    } else {
        const size_t page = prim_page_size();
        snprintf(why, why_size, "out of memory");
        return file_new(file, ((uint64_t) info.st_size < most ? (size_t) info.st_size : most) / page * page);
    }
    if (file >= 0) {
        close(file);
    }
    return NULL;
}

// An open file without a name, in a folder on a disk that has room; -1 where it is no such folder.
static int nameless(const char * folder, size_t bytes) {
    char path[4096];
    struct statfs system;
    if (!folder || statfs(folder, &system) != 0 || system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC
        || (uint64_t) system.f_bavail * (uint64_t) system.f_bsize < 2 * bytes) {
        return -1;
    }
    int file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0 && (size_t) snprintf(path, sizeof(path), "%s/llamafile-numa-XXXXXX", folder) < sizeof(path)) {
        file = mkostemp(path, O_CLOEXEC);
        if (file >= 0) {
            unlink(path);
        }
    }
    return file;
}

// Bytes that no file system can make smaller.
static int write_noise(int file, size_t bytes) {
    enum { PIECE = 1 << 17 }; // words
    uint64_t * const piece = malloc(PIECE * sizeof(*piece));
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
    int result = piece ? 0 : -ENOMEM;
    for (size_t done = 0; done < bytes && result == 0;) {
        for (size_t i = 0; i < PIECE; i++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            piece[i] = state;
        }
        const size_t left = bytes - done < PIECE * sizeof(*piece) ? bytes - done : PIECE * sizeof(*piece);
        const ssize_t n   = write(file, piece, left);
        result = n < 0 && errno != EINTR ? -errno : 0;
        done += n > 0 ? (size_t) n : 0;
    }
    free(piece);
    return result == 0 && fdatasync(file) != 0 ? -errno : result;
}

struct selftest_file * selftest_file_temporary(size_t bytes, char * why, size_t why_size) {
    const char * const folders[] = { getenv("TMPDIR"), "/var/tmp", "/tmp", "." };
    int file = -1;
    for (size_t i = 0; file < 0 && i < sizeof(folders) / sizeof(folders[0]); i++) {
        file = nameless(folders[i], bytes);
    }
    if (file < 0) {
        snprintf(why, why_size, "no folder for temporary files is on a disk with room for %zu MiB; TMPDIR may name one", 2 * bytes >> 20);
        return NULL;
    }
    const int error = write_noise(file, bytes);
    if (error != 0) {
        snprintf(why, why_size, "a temporary file cannot be written: %s", strerror(-error));
        close(file);
        return NULL;
    }
    snprintf(why, why_size, "out of memory");
    return file_new(file, bytes);
}

void selftest_file_close(struct selftest_file * file) {
    close(file->file);
    free(file);
}

size_t selftest_file_bytes(const struct selftest_file * file) {
    return file->bytes;
}

int64_t selftest_file_cached(const struct selftest_file * file) {
    const size_t pages     = file->bytes / prim_page_size();
    unsigned char * cached = malloc(pages);
    void * const view      = cached ? mmap(NULL, file->bytes, PROT_READ, MAP_SHARED, file->file, 0) : MAP_FAILED;
    int64_t n = -1;
    if (view != MAP_FAILED) {
        n = mincore(view, file->bytes, cached) == 0 ? 0 : -1;
        for (size_t i = 0; n >= 0 && i < pages; i++) {
            n += cached[i] & 1;
        }
        munmap(view, file->bytes);
    }
    free(cached);
    return n;
}

// A page that is part of a larger one which reaches beyond the range stays.
int selftest_file_cool(struct selftest_file * file) {
    const int64_t few = (int64_t) (file->bytes / prim_page_size() / 100);
    for (int i = 0; i < 10; i++) {
        posix_fadvise(file->file, 0, (off_t) file->bytes, POSIX_FADV_DONTNEED);
        const int64_t left = selftest_file_cached(file);
        if (left < 0 || left <= few) {
            return left < 0 ? -ENOSYS : 0;
        }
        prim_sleep_ms(20); // pages on their way to the disk, or in a batch of another CPU
    }
    return -EBUSY;
}

int selftest_file_read(struct selftest_file * file) {
    const size_t piece = (size_t) 1 << 20;
    char * const to    = malloc(piece);
    int result = to ? 0 : -ENOMEM;
    for (size_t done = 0; done < file->bytes && result == 0;) {
        const ssize_t n = pread(file->file, to, file->bytes - done < piece ? file->bytes - done : piece, (off_t) done);
        result = n == 0 ? -EIO : n < 0 && errno != EINTR ? -errno : 0;
        done += n > 0 ? (size_t) n : 0;
    }
    free(to);
    return result;
}

// The cache belongs to the file, whoever has it open, so alone is no case of its own.
int selftest_file_unbuffered(struct selftest_file * file, bool alone) {
    char path[64];
    void * block = NULL;
    if (alone) {
        return -ENOSYS;
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file->file);
    const int direct = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    int result = direct < 0 ? -errno : -posix_memalign(&block, BLOCK, BLOCK);
    if (result == 0 && pread(direct, block, BLOCK, 0) != (ssize_t) BLOCK) {
        result = -errno;
    }
    free(block);
    if (direct >= 0) {
        close(direct);
    }
    return result;
}

const void * selftest_file_map(struct selftest_file * file, int node) {
    (void) node; // the policy of the thread that reads a page in is what counts
    void * const view = mmap(NULL, file->bytes, PROT_READ, MAP_SHARED, file->file, 0);
    return view == MAP_FAILED ? NULL : view;
}

void selftest_file_unmap(struct selftest_file * file, const void * view) {
    munmap((void *) (uintptr_t) view, file->bytes);
}

enum { WILLNEED, POPULATE, TOUCH };

const char * selftest_way_name(int way) {
    static const char * const NAMES[] = { [WILLNEED] = "madvise(WILLNEED)", [POPULATE] = "madvise(POPULATE_READ)", [TOUCH] = "touching" };
    return way >= 0 && way <= TOUCH ? NAMES[way] : NULL;
}

// One WILLNEED brings in no more than the disk's read-ahead window, whatever it is asked for (mm/readahead.c).
static int will_need(char * base, size_t bytes) {
    const size_t window = (size_t) 128 << 10;
    int result = 0;
    for (size_t at = 0; at < bytes && result == 0; at += window) {
        result = madvise(base + at, bytes - at < window ? bytes - at : window, MADV_WILLNEED) == 0 ? 0 : -errno;
    }
    return result;
}

static int touch(const char * base, size_t bytes) {
    const size_t page = prim_page_size();
    for (size_t at = 0; at < bytes; at += page) {
        (void) *(const volatile char *) (base + at);
    }
    return 0;
}

int selftest_way(int way, const void * view, size_t bytes) {
    char * const base = (char *) (uintptr_t) view;
    switch (way) {
        case WILLNEED: return will_need(base, bytes);
        case POPULATE: return madvise(base, bytes, MADV_POPULATE_READ) == 0 ? 0 : -errno;
        default:       return touch(base, bytes);
    }
}

// --- the rest ---

void selftest_cpu_sets(const struct topology * topo, struct selftest_cpu_sets * out) {
    (void) topo;
    memset(out, 0, sizeof(*out));
    out->main_before = out->main_after = -1;
    snprintf(out->reason, sizeof(out->reason), "Linux has no CPU sets of this kind and no ideal processors");
}

// Bytes of a mapping that are on transparent huge pages.
static uint64_t huge_bytes(const void * base, size_t bytes) {
    char line[512];
    uint64_t sum = 0, kib;
    uintptr_t begin = 0, end = 0;
    FILE * maps = fopen("/proc/self/smaps", "re");
    while (maps && fgets(line, sizeof(line), maps)) {
        uintptr_t from, to;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2) {
            begin = from;
            end   = to;
        } else if (begin < (uintptr_t) base + bytes && end > (uintptr_t) base && sscanf(line, "AnonHugePages: %" SCNu64, &kib) == 1) {
            sum += kib << 10;
        }
    }
    if (maps) {
        fclose(maps);
    }
    return sum;
}

static void look(struct selftest_large * large, void * base) {
    bool coarse = false;
    memset(base, 1, (size_t) large->bytes);
    const int error = prim_look(base, (size_t) large->bytes, large->node, UINT64_MAX, &large->seen, &coarse);
    if (error != 0) {
        snprintf(large->reason, sizeof(large->reason), "pages could not be looked at: %s", strerror(-error));
    }
}

static void transparent(struct selftest_large * large) {
    int placed;
    large->kind  = "transparent huge pages";
    large->bytes = 16 * HUGE_PAGE;
    void * const base = prim_alloc((size_t) large->bytes, large->node, PRIM_BIND, &placed);
    if (!base) {
        snprintf(large->reason, sizeof(large->reason), "out of memory");
        return;
    }
    look(large, base);
    large->large_bytes = huge_bytes(base, (size_t) large->bytes);
    prim_free(base, (size_t) large->bytes);
    if (large->large_bytes == 0 && !large->reason[0]) {
        snprintf(large->reason, sizeof(large->reason), "the system gave none (/sys/kernel/mm/transparent_hugepage/enabled)");
    }
}

static void reserved(struct selftest_large * large) {
    large->kind  = "huge pages set aside (hugetlb)";
    large->bytes = 4 * HUGE_PAGE;
    void * const base = mmap(NULL, (size_t) large->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (21 << MAP_HUGE_SHIFT), -1, 0);
    if (base == MAP_FAILED) {
        large->bytes = 0;
        snprintf(large->reason, sizeof(large->reason), "fewer than 4 are set aside (vm.nr_hugepages)");
        return;
    }
    // Where this process may not use the node that has them, touching would end it.
    if (madvise(base, (size_t) large->bytes, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
        snprintf(large->reason, sizeof(large->reason), "those set aside cannot be had: %s", strerror(errno));
    } else {
        look(large, base);
        large->large_bytes = large->bytes;
    }
    munmap(base, (size_t) large->bytes);
}

bool selftest_large(int kind, int node, struct selftest_large * out) {
    memset(out, 0, sizeof(*out));
    out->node = node;
    if (kind < 0 || kind > 1) {
        return false;
    }
    (kind == 0 ? transparent : reserved)(out);
    return true;
}
