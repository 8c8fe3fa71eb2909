// pages PID FILE: where the pages of another process are, by move_pages(2) without a move.
//
// Looks at the mappings of FILE and at the anonymous ones without a name, every page of them. One line each:
//   7f0000000000 N0=12 N1=3 absent=4      first address (hex), pages of 4 KiB per node, pages that are not there
// as numa_maps spells it. Exit 1 with a line on stderr if the process cannot be looked at.
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, BATCH = 4096, MAX_NODES = 1024 };

struct counts {
    unsigned long on[MAX_NODES];
    unsigned long absent;
};

static int fail(const char * what) {
    fprintf(stderr, "pages: %s: %s\n", what, strerror(errno));
    return 1;
}

static int count_batch(int pid, uintptr_t start, unsigned long pages, struct counts * counts) {
    void * address[BATCH];
    int    status[BATCH];
    for (unsigned long i = 0; i < pages; i++) {
        address[i] = (void *) (start + i * PAGE);
        status[i]  = -1;
    }
    if (syscall(SYS_move_pages, pid, pages, address, NULL, status, 0) < 0) {
        return -1;
    }
    for (unsigned long i = 0; i < pages; i++) {
        if (status[i] >= 0 && status[i] < MAX_NODES) {
            counts->on[status[i]]++;
        } else {
            counts->absent++;
        }
    }
    return 0;
}

static int count_range(int pid, uintptr_t start, uintptr_t end, struct counts * counts) {
    for (uintptr_t at = start; at < end; at += (uintptr_t) BATCH * PAGE) {
        const unsigned long left = (end - at) / PAGE;
        if (count_batch(pid, at, left < BATCH ? left : BATCH, counts) < 0) {
            return -1;
        }
    }
    return 0;
}

static void print_range(uintptr_t start, const struct counts * counts) {
    printf("%lx", (unsigned long) start);
    for (int node = 0; node < MAX_NODES; node++) {
        if (counts->on[node]) {
            printf(" N%d=%lu", node, counts->on[node]);
        }
    }
    printf(" absent=%lu\n", counts->absent);
}

int main(int argc, char ** argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: pages PID FILE\n");
        return 2;
    }
    const int    pid  = atoi(argv[1]);
    const char * file = argv[2];
    char         maps_path[64];
    snprintf(maps_path, sizeof maps_path, "/proc/%d/maps", pid);
    FILE * maps = fopen(maps_path, "r");
    if (!maps) {
        return fail(maps_path);
    }
    char * line = NULL;
    size_t size = 0;
    while (getline(&line, &size, maps) > 0) {
        unsigned long start, end;
        int           name_at = 0;
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %n", &start, &end, &name_at) < 2) {
            continue;
        }
        line[strcspn(line, "\n")] = '\0';
        const char * name         = line + name_at;
        if (*name && strcmp(name, file) != 0) {
            continue;
        }
        struct counts counts = { 0 };
        if (count_range(pid, start, end, &counts) < 0) {
            return fail("move_pages");
        }
        print_range(start, &counts);
    }
    free(line);
    fclose(maps);
    return 0;
}
