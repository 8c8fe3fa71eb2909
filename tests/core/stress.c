// Regions, tags, claims, looks, workers and verdicts from many threads at once, for ThreadSanitizer; at the end nothing may be left.
#define _GNU_SOURCE
#include "core.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 8, ROUNDS = 150, HELD = 4 };

static char file_like[1 << 20] __attribute__((aligned(4096))); // weights in memory of somebody else

static void * short_worker(void * arg) {
    (void) arg;
    numa_node_bind_worker();
    return NULL;
}

static void * work(void * arg) {
    const int number = (int) (intptr_t) arg;
    char * held[HELD] = { NULL };
    numa_node_worker_created();
    numa_node_bind_worker();
    for (int i = 0; i < ROUNDS; i++) {
        char ** at = &held[i % HELD];
        if (*at && !numa_node_free(*at)) {
            abort();
        }
        const size_t bytes = (size_t) (256 + i % 7 * 300) << 10;
        *at = numa_node_alloc(bytes);
        if (!*at) {
            abort();
        }
        numa_node_tag(*at, bytes, (enum numa_node_use) (i % NUMA_NODE_USES));
        memset(*at, number, 4096);
        char * mine = file_like + number * (sizeof(file_like) / THREADS);
        numa_node_tag(mine, 4096, NUMA_NODE_WEIGHTS);
        if (i % 16 == 0) {
            struct numa_sight sights[NUMA_NODE_USES] = { { 0 } };
            bool coarse = false;
            int workers, bound;
            pthread_t thread;
            numa_region_look(sights, &coarse);
            numa_node_place(mine, 8192);
            numa_node_worker_created();
            pthread_create(&thread, NULL, short_worker, NULL);
            numa_worker_count(&workers, &bound);
            pthread_join(thread, NULL);
        }
        if (i % 50 == 0) {
            char seen[4096];
            numa_node_verdict();
            if (numa_node_seen(NUMA_NODE_JSON, seen, sizeof(seen)) == 0 || seen[0] != '{') {
                abort();
            }
        }
        numa_node_unmapped(mine, 8192);
        if (**at != number) {
            abort();
        }
    }
    for (int i = 0; i < HELD; i++) {
        if (!numa_node_free(held[i])) {
            abort();
        }
    }
    return NULL;
}

int main(void) {
    char * argv[] = { "stress", "--numa-node", "auto", "--numa-weights", "map", NULL };
    int argc = 5;
    pthread_t threads[THREADS];
    if (numa_node_start(&argc, argv) >= 0 || argc != 1) {
        return 1;
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, work, (void *) (intptr_t) i);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    struct numa_sight sights[NUMA_NODE_USES] = { { 0 } };
    bool coarse = false;
    uint64_t bytes = 0;
    numa_region_look(sights, &coarse);
    for (int i = 0; i < NUMA_NODE_USES; i++) {
        bytes += sights[i].bytes;
    }
    int workers, bound;
    numa_worker_count(&workers, &bound);
    printf("%llu bytes, %d workers left\n", (unsigned long long) bytes, workers);
    return bytes == 0 && workers == 0 ? 0 : 2;
}
