// verdict_run MACHINE [KNOB...] -- [FLAG...] -- [ACTION...]: start as the program does on a made-up machine (machine.h), act
// as llama.cpp would, ask for the verdict. Knobs: start=INDEX no-topology unknown-room cpus=ERRNO memory=ERRNO look=ERRNO coarse.
// Actions: alloc:USE:MIB  fresh memory, written to      weights:MIB[:NODE]  a mapping, cached there by others, if NODE is given
//          lazy:MIB       a mapping read on demand      note:TEXT           what start-up found
//          workers:N      that run bound                strayed:N           that left the node
//          env            the environment's twins of the flags, to stdout
//          threads        how many are the default, to stdout
//          seen:json seen:metrics  what numa_node_seen gives after the verdict, to stdout; with :N, into N bytes only
#define _GNU_SOURCE
#include "core.h"
#include "prim_fake.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_barrier_t started;

static int bad(const char * word) {
    fprintf(stderr, "verdict_run: what is %s?\n", word);
    return 99;
}

static int knob(const char * word) {
    int value = 0;
    char name[16];
    if (sscanf(word, "%15[^=]=%d", name, &value) < 1) {
        return bad(word);
    }
    const struct {
        const char * name;
        int *        value;
        bool *       flag;
    } KNOBS[] = {
        { "start", &fake.start_node, NULL },        { "no-topology", NULL, &fake.no_topology },
        { "unknown-room", NULL, &fake.room_unknown }, { "cpus", &fake.cpus_error, NULL },
        { "memory", &fake.memory_error, NULL },     { "look", &fake.look_error, NULL },
        { "coarse", NULL, &fake.coarse },           { "placed", &fake.placed_error, NULL },
        { "prefers-only", NULL, &fake.prefers_only }, { "large", NULL, &fake.large },
    };
    for (size_t i = 0; i < sizeof(KNOBS) / sizeof(KNOBS[0]); i++) {
        if (strcmp(name, KNOBS[i].name) == 0) {
            if (KNOBS[i].flag) {
                *KNOBS[i].flag = true;
            } else {
                *KNOBS[i].value = KNOBS[i].value == &fake.start_node ? value : -value;
            }
            return 0;
        }
    }
    return bad(word);
}

static void * worker(void * strayed) {
    numa_node_bind_worker();
    if (strayed) {
        prim_bind_cpus(&fake.topo.allowed_cpus);
    }
    pthread_barrier_wait(&started);
    pause();
    return NULL;
}

static void run_workers(int n, bool strayed) {
    pthread_t thread;
    pthread_barrier_init(&started, NULL, (unsigned) n + 1);
    for (int i = 0; i < n; i++) {
        numa_node_worker_created();
        pthread_create(&thread, NULL, worker, strayed ? &started : NULL);
        pthread_detach(thread);
    }
    pthread_barrier_wait(&started);
}

static void allocate(const char * use, unsigned mib) {
    static const char * const USES[] = { "other", "weights", "repack", "kv", "compute" };
    char * base = numa_node_alloc(MIB(mib));
    for (int i = 0; base && i < NUMA_NODE_USES; i++) {
        if (strcmp(use, USES[i]) == 0) {
            numa_node_tag(base, MIB(mib), (enum numa_node_use) i);
            fake_write(base, MIB(mib));
        }
    }
}

static void map_weights(unsigned mib, int node) {
    char * base = fake_map(MIB(mib));
    if (node >= 0) {
        fake_cached(base, MIB(mib), node, true);
    }
    numa_node_place(base, MIB(mib));
    if (numa_node_copy_weights()) {
        numa_node_unmapped(base, MIB(mib));
        fake_unmap(base);
        allocate("weights", mib);
    } else {
        numa_node_tag(base, MIB(mib), NUMA_NODE_WEIGHTS);
    }
}

// To stdout; what is cut must end all the same, and the length told is that of the whole.
static int show_seen(const char * form, int room) {
    char text[8192];
    const enum numa_node_form which = strcmp(form, "json") == 0 ? NUMA_NODE_JSON : NUMA_NODE_METRICS;
    const size_t whole = numa_node_seen(which, text, sizeof(text));
    if (numa_node_seen(which, NULL, 0) != whole || strlen(text) != whole) {
        return bad("what was seen");
    }
    if (room >= 0) {
        memset(text, '?', sizeof(text));
        numa_node_seen(which, text, (size_t) room);
        text[room] = text[room] == '?' ? '\0' : '!';
    }
    return fputs(text, stdout) < 0;
}

static int act(const char * word) {
    char name[16], use[16];
    unsigned n;
    int node = -1;
    if (strncmp(word, "note:", 5) == 0) {
        snprintf(numa_core.note, sizeof(numa_core.note), "%s", word + 5);
    } else if (sscanf(word, "alloc:%15[^:]:%u", use, &n) == 2) {
        allocate(use, n);
    } else if (sscanf(word, "weights:%u:%d", &n, &node) >= 1) {
        map_weights(n, node);
    } else if (strcmp(word, "env") == 0) {
        for (const struct numa_node_flag * flag = numa_node_flags(); flag->name; flag++) {
            const char * value = flag->env[0] ? getenv(flag->env) : NULL;
            value ? printf("%s=%s\n", flag->env, value) : 0;
        }
    } else if (strcmp(word, "threads") == 0) {
        printf("%d\n", numa_node_default_threads());
    } else if (strncmp(word, "seen:", 5) == 0) {
        return 0; // later
    } else if (sscanf(word, "lazy:%u", &n) == 1) {
        numa_node_lazy(fake_map(MIB(n)), MIB(n));
    } else if (sscanf(word, "%15[^:]:%u", name, &n) == 2 && (strcmp(name, "workers") == 0 || strcmp(name, "strayed") == 0)) {
        run_workers((int) n, name[0] == 's');
    } else {
        return bad(word);
    }
    return 0;
}

int main(int argc, char ** argv) {
    int at = 1, failed = 0;
    if (argc < 2) {
        return bad("(nothing)");
    }
    fake_machine(argv[at++]);
    for (; at < argc && strcmp(argv[at], "--") != 0; at++) {
        failed |= knob(argv[at]);
    }
    char ** flags = argv + at; // "--" stands where the program's name would
    int n_flags   = 1;
    while (at + n_flags < argc && strcmp(argv[at + n_flags], "--") != 0) {
        n_flags++;
    }
    char ** actions = argv + at + n_flags + 1;
    char ** later   = actions;
    if (failed || at + n_flags >= argc) {
        return bad("missing");
    }
    const int done = numa_node_start(&n_flags, flags);
    if (done >= 0) {
        return done;
    }
    for (; *actions; actions++) {
        failed |= act(*actions);
    }
    numa_node_verdict();
    for (; *later; later++) {
        char form[16];
        int room = -1;
        failed |= sscanf(*later, "seen:%15[^:]:%d", form, &room) >= 1 ? show_seen(form, room) : 0;
    }
    return failed;
}
