// A set of small numbers (CPUs or NUMA nodes) and the kernel's text forms of it.
//
// Lists look like "0-3,8,10-15" (cpulist, Cpus_allowed_list), masks like "ff,ffffffff" (cpumap, 32 bits a word,
// highest word first). Both forms: Linux Documentation/core-api/printk-formats.rst ("%*pbl", "%*pb").
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Highest number a set can hold, plus one. Linux on x86-64 stops at 8192 CPUs (CONFIG_NR_CPUS), nodes at 1024.
#define NODE_SET_MAX 8192

struct node_set {
    uint64_t word[NODE_SET_MAX / 64];
};

void node_set_clear(struct node_set * set);
// Numbers outside 0..NODE_SET_MAX-1 are ignored by add and remove, and are never in a set.
void node_set_add(struct node_set * set, int number);
void node_set_remove(struct node_set * set, int number);
bool node_set_has(const struct node_set * set, int number);
int  node_set_count(const struct node_set * set);
bool node_set_empty(const struct node_set * set);
// True where every member of `inner` is in `outer`; the empty set is within every set.
bool node_set_within(const struct node_set * inner, const struct node_set * outer);
void node_set_intersect(struct node_set * set, const struct node_set * other);
// The lowest member >= from, or -1. Loop: for (int i = node_set_next(&s, 0); i >= 0; i = node_set_next(&s, i + 1))
int  node_set_next(const struct node_set * set, int from);

// Parse `len` bytes of text; it need not end in NUL. Trailing NULs, white space and one newline are allowed (old
// kernels write them); anything else that is not the form, a reversed range or a number >= NODE_SET_MAX fails.
// Returns 0, or -1 with *set empty. An empty text is the empty set.
int node_set_parse_list(const char * text, size_t len, struct node_set * set);
int node_set_parse_mask(const char * text, size_t len, struct node_set * set);

// Write the list form ("0-3,8"; "" where empty) with a closing NUL into out[size]; a text that does not fit is cut
// behind a range and ends in ",..." (or "..." alone, or what fits of that). Returns out.
char * node_set_format(const struct node_set * set, char * out, size_t size);

#ifdef __cplusplus
}
#endif
