// The operating system as Linux has it. Memory policy goes through raw system calls: libnuma would be a dependency for four
// calls. Semantics: Linux Documentation/admin-guide/mm/numa_memory_policy.rst, set_mempolicy(2), mbind(2), move_pages(2).
#define _GNU_SOURCE
#include "prim.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t) 2 << 20)
#define LOOK_BATCH 4096 // pages per move_pages call: 32 KiB of pointers

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 // Linux 5.14
#endif

struct node_mask {
    unsigned long word[TOPOLOGY_MAX_NODES / (8 * sizeof(unsigned long))];
};
// The kernel reads one bit fewer than it is told (set_mempolicy(2), BUGS).
#define NODE_MASK_BITS (TOPOLOGY_MAX_NODES + 1)

static struct node_mask mask_of(int node) {
    struct node_mask mask = { { 0 } };
    const size_t bits = 8 * sizeof(unsigned long);
    if (node >= 0 && node < TOPOLOGY_MAX_NODES) {
        mask.word[(size_t) node / bits] = 1UL << ((size_t) node % bits);
    }
    return mask;
}

static int mode_of(enum prim_policy policy) {
    return policy == PRIM_BIND ? MPOL_BIND : MPOL_PREFERRED;
}

size_t prim_page_size(void) {
    return (size_t) sysconf(_SC_PAGESIZE);
}

int prim_topology(struct topology * topo, int * start_node, char * err, size_t err_size) {
    *start_node = -1; // Linux has no hint that confines nothing
    return topology_read_linux(topo, "", err, err_size);
}

// --- threads ---

int prim_bind_cpus(const struct node_set * cpus) {
    if (prim_thread_within(prim_thread_id(), cpus) > 0) {
        return 0; // as it is, or closer: a CPU mask that the user gave stays
    }
    return sched_setaffinity(0, sizeof(cpus->word), (const cpu_set_t *) cpus->word) == 0 ? 0 : -errno;
}

static _Atomic bool no_policy; // a policy was refused to a thread

int prim_bind_memory(int node, enum prim_policy policy) {
    struct node_mask mask = mask_of(node);
    if (syscall(SYS_set_mempolicy, mode_of(policy), mask.word, NODE_MASK_BITS) != 0) {
        const int error = -errno;
        atomic_store(&no_policy, true);
        return error;
    }
    return 0;
}

int64_t prim_thread_id(void) {
    return (int64_t) syscall(SYS_gettid);
}

int prim_thread_within(int64_t thread, const struct node_set * cpus) {
    struct node_set now = { { 0 } };
    // The call itself gives the number of bytes written, where the C library's wrapper clears the rest.
    if (syscall(SYS_sched_getaffinity, (pid_t) thread, sizeof(now.word), now.word) < 0) {
        return -1;
    }
    return node_set_within(&now, cpus) ? 1 : 0;
}

struct parallel {
    void (*work)(void * context);
    void * context;
};

static void * parallel_main(void * arg) {
    struct parallel * job = arg;
    job->work(job->context);
    return NULL;
}

void prim_parallel(int threads, void (*work)(void * context), void * context) {
    enum { MOST = 64 };
    pthread_t started[MOST];
    struct parallel job = { work, context };
    int n = 0;
    while (n < threads - 1 && n < MOST && pthread_create(&started[n], NULL, parallel_main, &job) == 0) {
        n++;
    }
    work(context);
    for (int i = 0; i < n; i++) {
        pthread_join(started[i], NULL);
    }
}

void prim_sleep_ms(int ms) {
    struct timespec time = { ms / 1000, (ms % 1000) * 1000000L };
    nanosleep(&time, NULL);
}

double prim_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double) now.tv_sec * 1e3 + (double) now.tv_nsec / 1e6;
}

// --- memory ---

static size_t round_up(size_t n, size_t unit) {
    return (n + unit - 1) / unit * unit;
}

bool prim_binds(void) {
    return true;
}

void * prim_alloc(size_t bytes, int node, enum prim_policy policy, int * placed) {
    const size_t page  = prim_page_size();
    const size_t size  = round_up(bytes, page);
    const size_t align = size >= HUGE_PAGE ? HUGE_PAGE : page;
    const size_t whole = size + align + page;
    if (whole < bytes) {
        return NULL;
    }
    char * raw = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) {
        return NULL;
    }
    // Keep an inaccessible page behind the region: neighbours then never merge into one mapping, whose pages could not be
    // told apart in numa_maps.
    char * base = raw + (round_up((uintptr_t) raw, align) - (uintptr_t) raw);
    if (base > raw) {
        munmap(raw, (size_t) (base - raw));
    }
    char * const end = raw + whole;
    char * const last = base + size + page;
    if (end > last) {
        munmap(last, (size_t) (end - last));
    }
    // A mapping that is made in place is charged to the commit limit as any other, which PROT_NONE was not.
    if (mmap(base, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
        munmap(base, size + page);
        return NULL;
    }
    struct node_mask mask = mask_of(node);
    *placed = syscall(SYS_mbind, base, size, mode_of(policy), mask.word, NODE_MASK_BITS, 0) == 0 ? 0 : -errno;
    if (align == HUGE_PAGE) {
        madvise(base, size, MADV_HUGEPAGE); // a wish: kernels without transparent huge pages refuse it
    }
    return base;
}

void prim_free(void * base, size_t bytes) {
    munmap(base, round_up(bytes, prim_page_size()) + prim_page_size());
}

uint64_t prim_resident(void) {
    uint64_t pages = 0;
    FILE * file = fopen("/proc/self/statm", "re");
    if (file) {
        pages = fscanf(file, "%*u %" SCNu64, &pages) == 1 ? pages : 0;
        fclose(file);
    }
    return pages * prim_page_size();
}

uint64_t prim_available(int node) {
    struct topology topo;
    char err[8];
    uint64_t bytes = 0;
    if (topology_read_linux(&topo, "", err, sizeof(err)) == 0) {
        const int i = topology_find(&topo, node);
        bytes = i < 0 ? 0 : topo.nodes[i].avail_bytes;
        topology_free(&topo);
    }
    return bytes;
}

void * prim_section(void * file, int node) {
    (void) file;
    (void) node;
    return NULL; // the file cache follows the policy of the thread that reads
}

void * prim_view(void * section, int node) {
    (void) section;
    (void) node;
    return NULL;
}

int prim_touch(const void * base, size_t bytes) {
    const size_t page  = prim_page_size();
    const uintptr_t at = (uintptr_t) base / page * page;
    const size_t len   = round_up((uintptr_t) base + bytes - at, page);
    if (madvise((void *) at, len, MADV_POPULATE_READ) == 0) {
        return 0;
    }
    if (errno != EINVAL) { // EFAULT: the disk failed; touching would end the process
        return -errno;
    }
    for (uintptr_t p = at; p < at + len; p += page) {
        (void) *(const volatile char *) p;
    }
    return 0;
}

// move_pages over one batch; status per page: its node, or a negative errno.
static long pages_call(void ** pages, const int * nodes, int * status, size_t n) {
    return syscall(SYS_move_pages, 0, n, pages, nodes, status, nodes ? MPOL_MF_MOVE : 0);
}

int prim_move(void * base, size_t bytes, int node) {
    const size_t page  = prim_page_size();
    const uintptr_t at = (uintptr_t) base / page * page;
    const size_t total = round_up((uintptr_t) base + bytes - at, page) / page;

    void ** pages = malloc(LOOK_BATCH * sizeof(*pages));
    int * nodes   = malloc(LOOK_BATCH * sizeof(*nodes));
    int * status  = malloc(LOOK_BATCH * sizeof(*status));
    int result = pages && nodes && status ? 0 : -ENOMEM;
    for (size_t i = 0; result == 0 && i < total; i += LOOK_BATCH) {
        const size_t n = total - i < LOOK_BATCH ? total - i : LOOK_BATCH;
        for (size_t k = 0; k < n; k++) {
            pages[k] = (void *) (at + (i + k) * page);
            nodes[k] = node;
        }
        // Pages that stay (shared with another process: -EACCES; full node: -ENOMEM) say so in status and are seen by the
        // look that follows; only a call that was refused as a whole counts here.
        if (pages_call(pages, nodes, status, n) < 0) {
            result = -errno;
        }
    }
    free(pages);
    free(nodes);
    free(status);
    return result;
}

// What numa_maps says of the mappings that overlap the range: whole mappings, mapped pages only.
static int look_numa_maps(uintptr_t from, uintptr_t to, int node, struct prim_residency * out) {
    FILE * maps = fopen("/proc/self/maps", "re");
    FILE * numa = fopen("/proc/self/numa_maps", "re");
    char * line = NULL;
    size_t room = 0;
    int result  = maps && numa ? 0 : -errno;
    uintptr_t begin = 0, end = 0;
    char * counts = NULL;
    size_t counts_room = 0;
    // Both files list mappings by rising address, so they are read side by side, once. Other threads may map and unmap
    // meanwhile: what stands in one file only is passed over.
    while (result == 0 && getline(&counts, &counts_room, numa) > 0) {
        const uintptr_t wanted = (uintptr_t) strtoull(counts, NULL, 16);
        while (begin < wanted && getline(&line, &room, maps) > 0 && sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &begin, &end) == 2) {
        }
        if (begin != wanted || end <= from || begin >= to) {
            continue;
        }
        uint64_t seen = 0;
        for (char * word = strtok(counts, " \n"); word; word = strtok(NULL, " \n")) {
            int at;
            uint64_t n;
            if (sscanf(word, "N%d=%" SCNu64, &at, &n) == 2) {
                *(at == node ? &out->on_node : &out->elsewhere) += n;
                seen += n;
            }
        }
        const uint64_t pages = (end - begin) / prim_page_size();
        out->checked += pages;
        out->not_resident += pages > seen ? pages - seen : 0;
    }
    free(line);
    free(counts);
    if (maps) {
        fclose(maps);
    }
    if (numa) {
        fclose(numa);
    }
    return result;
}

int prim_look(const void * base, size_t bytes, int node, uint64_t most, struct prim_residency * out, bool * coarse) {
    const size_t page   = prim_page_size();
    const uintptr_t at  = (uintptr_t) base / page * page;
    const uint64_t total  = round_up((uintptr_t) base + bytes - at, page) / page;
    const uint64_t wanted = total < most ? total : most;

    void ** pages = malloc(LOOK_BATCH * sizeof(*pages));
    int * status  = malloc(LOOK_BATCH * sizeof(*status));
    // Where no policy holds, automatic NUMA balancing takes pages out of the page table for a while to see who uses them, and
    // move_pages calls them absent (seen with Linux 6.1); numa_maps counts them.
    int result = atomic_load(&no_policy) ? -ENOSYS : pages && status ? 0 : -ENOMEM;
    for (uint64_t i = 0; result == 0 && i < wanted; i += LOOK_BATCH) {
        const uint64_t n = wanted - i < LOOK_BATCH ? wanted - i : LOOK_BATCH;
        for (uint64_t k = 0; k < n; k++) {
            // Evenly spread without floating point: total * index stays far below 2^64 for any address space.
            pages[k] = (void *) (at + (uintptr_t) (total * (i + k) / wanted) * page);
        }
        if (pages_call(pages, NULL, status, n) < 0) {
            result = -errno;
            break;
        }
        for (uint64_t k = 0; k < n; k++) {
            out->checked++;
            *(status[k] < 0 ? &out->not_resident : status[k] == node ? &out->on_node : &out->elsewhere) += 1;
        }
    }
    free(pages);
    free(status);
    if (result == -EPERM || result == -ENOSYS || result == -EACCES) {
        *coarse = true;
        result = look_numa_maps(at, at + total * page, node, out);
    }
    return result;
}

// --- files ---

// What is in the file cache is copied out of it through a mapping without read-ahead; the rest is read past the cache. A
// buffered read would do neither: FADV_RANDOM does not stop the asynchronous read-ahead that a marked page sets off, which
// then fills the cache ahead of us (mm/filemap.c, filemap_readahead).
struct prim_reader {
    int      file;
    int      direct;      // the same file, O_DIRECT; -1 where its file system has no such thing
    uint64_t size;        // bytes of the file
    bool     cache_known; // mincore tells the truth about this file
};

#define DIRECT_ALIGN ((size_t) 4096) // enough for any disk: logical blocks are 512 or 4096 bytes
#define DIRECT_PIECE ((size_t) 1 << 20)

struct prim_reader * prim_reader_open(int file) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    struct prim_reader * reader = calloc(1, sizeof(*reader));
    struct stat info;
    if (!reader) {
        return NULL;
    }
    reader->file   = open(path, O_RDONLY | O_CLOEXEC);
    reader->direct = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (reader->file < 0 || fstat(reader->file, &info) != 0 || !S_ISREG(info.st_mode)) {
        prim_reader_close(reader);
        return NULL;
    }
    posix_fadvise(reader->file, 0, 0, POSIX_FADV_RANDOM); // for buffered reads: nothing ahead of the range
    reader->size = (uint64_t) info.st_size;
    // mincore says "all cached" of files that are not ours to write (mincore(2), since Linux 5.2).
    reader->cache_known = geteuid() == 0 || geteuid() == info.st_uid || access(path, W_OK) == 0;
    return reader;
}

// 0 where all of the range was in the file cache and has been copied out of it.
static int read_cached(const struct prim_reader * reader, uint64_t offset, void * to, size_t bytes) {
    const size_t page  = prim_page_size();
    const size_t skip  = (size_t) (offset % page);
    const size_t pages = round_up(skip + bytes, page) / page;
    unsigned char * cached = reader->cache_known ? malloc(pages) : NULL;
    void * view = cached ? mmap(NULL, skip + bytes, PROT_READ, MAP_SHARED, reader->file, (off_t) (offset - skip)) : MAP_FAILED;
    int result  = view == MAP_FAILED ? -ENOMEM : 0;
    if (result == 0) {
        result = mincore(view, skip + bytes, cached) == 0 ? 0 : -errno;
        for (size_t i = 0; result == 0 && i < pages; i++) {
            result = cached[i] & 1 ? 0 : -EAGAIN;
        }
        if (result == 0 && madvise(view, skip + bytes, MADV_RANDOM) == 0) {
            result = prim_touch(view, skip + bytes);
        }
        if (result == 0) {
            memcpy(to, (char *) view + skip, bytes);
        }
        munmap(view, skip + bytes);
    }
    free(cached);
    return result;
}

static int read_direct(const struct prim_reader * reader, uint64_t offset, char * to, size_t bytes) {
    void * piece;
    int result = reader->direct < 0 ? -EINVAL : -posix_memalign(&piece, DIRECT_ALIGN, DIRECT_PIECE);
    if (result != 0) {
        return result;
    }
    for (size_t done = 0; done < bytes && result == 0;) {
        const size_t skip = (size_t) ((offset + done) % DIRECT_ALIGN);
        const size_t left = round_up(skip + bytes - done, DIRECT_ALIGN);
        const ssize_t n   = pread(reader->direct, piece, left < DIRECT_PIECE ? left : DIRECT_PIECE, (off_t) (offset + done - skip));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= (ssize_t) skip) {
            result = n < 0 ? -errno : -EIO;
            break;
        }
        const size_t got = (size_t) n - skip < bytes - done ? (size_t) n - skip : bytes - done;
        memcpy(to + done, (char *) piece + skip, got);
        done += got;
    }
    free(piece);
    return result;
}

static int read_buffered(const struct prim_reader * reader, uint64_t offset, char * to, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = pread(reader->file, to + done, bytes - done, (off_t) (offset + done));
        if (n == 0 || (n < 0 && errno != EINTR)) {
            return n == 0 ? -EIO : -errno;
        }
        done += n > 0 ? (size_t) n : 0;
    }
    const uint64_t page = prim_page_size(); // whole pages only: a part of one would stay
    posix_fadvise(reader->file, (off_t) (offset / page * page), (off_t) round_up((size_t) (offset % page) + bytes, page), POSIX_FADV_DONTNEED);
    return 0;
}

int prim_reader_read(struct prim_reader * reader, uint64_t offset, void * to, size_t bytes) {
    if (offset > reader->size || bytes > reader->size - offset) {
        return -EINVAL;
    }
    return read_cached(reader, offset, to, bytes) == 0 || read_direct(reader, offset, to, bytes) == 0
             ? 0
             : read_buffered(reader, offset, to, bytes);
}

void prim_reader_close(struct prim_reader * reader) {
    if (reader->file >= 0) {
        close(reader->file);
    }
    if (reader->direct >= 0) {
        close(reader->direct);
    }
    free(reader);
}

void prim_set_env(const char * name, const char * value) {
    setenv(name, value, 1);
}

FILE * prim_create(const char * name) {
    return fopen(name, "w");
}

FILE * prim_open(const char * name) {
    struct stat info;
    return stat(name, &info) == 0 && S_ISREG(info.st_mode) ? fopen(name, "r") : NULL;
}
