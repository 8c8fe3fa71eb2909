// What --numa-selftest alone needs of the operating system, beside prim.h; one implementation per OS (selftest_linux.c,
// selftest_windows.c). As there, a function returns 0 or a negative errno unless said otherwise.
#pragma once

#include "prim.h"

// Names without anything personal: "Linux 6.1.0 (Debian GNU/Linux 12)", "Intel(R) Xeon(R) CPU E5-2699 v4 @ 2.20GHz".
// Empty where the system does not tell.
void selftest_system(char * system, size_t system_size, char * cpu, size_t cpu_size);

// Bytes of all last-level caches that these CPUs share; 0 = not known.
uint64_t selftest_cache(const struct node_set * cpus);

// Threads that each run on one CPU of the set, in turns, with the system's default way to place memory there. Null where no
// thread could be started. Joining waits until each has done its work; returns how many ran on their CPU only.
struct selftest_crew;
struct selftest_crew * selftest_crew_start(const struct node_set * cpus, int threads, void (*work)(void * context), void * context);
int                    selftest_crew_join(struct selftest_crew * crew);

// CPU time that this process has had, of all threads, in ms.
double selftest_cpu_ms(void);

// Page faults of this process that had to wait for a disk; -1 = not known.
int64_t selftest_hard_faults(void);

// --- a file to read ---

struct selftest_file;
// A file of our own on a disk, which vanishes with selftest_file_close or however else the process ends; or the beginning
// of one that is there, at most so many bytes, which is never written. Null with a reason in why.
struct selftest_file * selftest_file_temporary(size_t bytes, char * why, size_t why_size);
struct selftest_file * selftest_file_open(const char * path, size_t most, char * why, size_t why_size);
void                   selftest_file_close(struct selftest_file * file);
size_t                 selftest_file_bytes(const struct selftest_file * file); // whole pages
// Bring the file to where no page of it is cached.
int selftest_file_cool(struct selftest_file * file);
// Pages of it that are in the file cache; -1 where the system does not tell.
int64_t selftest_file_cached(const struct selftest_file * file);
// Read all of it through the file cache.
int selftest_file_read(struct selftest_file * file);
// Open it once more past the file cache, read a block, close. alone: while nobody has it open for cached reading; -ENOSYS
// where that makes no difference.
int selftest_file_unbuffered(struct selftest_file * file, bool alone);
// A read-only view of it that asks for the node, where views can; null on failure.
const void * selftest_file_map(struct selftest_file * file, int node);
void         selftest_file_unmap(struct selftest_file * file, const void * view);
// The ways to have pages of a view brought in, from 0 on, null behind the last; the last one reads a byte of each page.
const char * selftest_way_name(int way);
int          selftest_way(int way, const void * view, size_t bytes);

// --- the rest ---

// Whether CPU sets move ideal processors: CPU numbers as in struct topology, -1 = not known.
struct selftest_cpu_sets {
    char            reason[160];   // why it was not asked; "" = it was
    struct node_set cpus;          // the process's default CPU set while "after"
    int             main_before, main_after;
    int             threads;       // new ones, before as well as after
    int             ideal_before, ideal_after; // how many of them were given an ideal processor in the set
    int             ran_after;     // how many of them ran in the set
};
void selftest_cpu_sets(const struct topology * topo, struct selftest_cpu_sets * out);

// Memory on large pages of one kind, asked for on a node by the calling thread and written; and what prim_look says of it.
struct selftest_large {
    char                  reason[160]; // why it was not asked; "" = it was
    const char *          kind;
    int                   node;        // asked for, an OS number
    uint64_t              bytes;
    uint64_t              large_bytes; // of them on large pages, as the system says
    struct prim_residency seen;
};
// Kinds count from 0; false behind the last.
bool selftest_large(int kind, int node, struct selftest_large * out);
