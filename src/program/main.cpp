// The one program: bind to a NUMA node first, then be one of llama.cpp's programs.
//
//   llamafile-numa [--server|--chat|--cli] [--numa-node N] -m model.gguf ...   by its flags: see modes.cpp
//   llamafile-numa COMMAND ...                                                 one of llama.cpp's commands
#include "arguments.h"
#include "commands.h"
#include "llamafile_arguments.h"
#include "modes.h"
#include "progress.h"
#include "stop.h"
#include "system.h"

#include "numa_node.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

static const char PARENT[] = "LLAMAFILE_NUMA_EXIT_WITH_PARENT";

static bool parent_is_told_wrongly() {
    const char * set = getenv(PARENT);
    if (!set || set[strspn(set, "0123456789")] == '\0') {
        return false;
    }
    fprintf(stderr, "llamafile-numa: error: %s: '%s' is not possible; 1, 0 or the number of a process is\n", PARENT, set);
    return true;
}

// Take the flag out of the arguments. The number of the process to end with, 0: the parent, whoever it is; -1: none. The twin
// in the environment may name it, so that a parent that has ended already is noticed; for what is started from here, that
// is this process.
static long end_of_parent(int * argc, char ** argv) {
    const char * set = getenv(PARENT);
    long parent      = set && *set && strcmp(set, "0") != 0 ? strtol(set, nullptr, 10) : -1;
    int kept         = 0;
    parent = parent == 1 ? 0 : parent; // just yes
    for (int i = 0; i < *argc; i++) {
        if (strcmp(argv[i], "--exit-with-parent") == 0) {
            parent = parent < 0 ? 0 : parent;
        } else {
            argv[kept++] = argv[i];
        }
    }
    argv[*argc = kept] = nullptr;
    if (parent > 0) {
        set_environment(PARENT, "1");
    }
    return parent;
}

static int run(int argc, char ** argv) {
    const command * named = argc > 1 ? find_command(argv[1]) : nullptr;
    if (named) {
        if (named->shows_progress) {
            show_progress(named->run != find_command("server")->run);
        }
        return call(named->run, words(argv + 1, argv + argc));
    }
    if (argc > 1 && argv[1][0] != '-') {
        fprintf(stderr, "llamafile-numa: error: there is no command '%s'; llamafile-numa --help lists the commands\n", argv[1]);
        return NUMA_NODE_EXIT_USAGE;
    }
    return run_by_flags(command_line(argc, argv));
}

// Success, unless what was written did not get where it was to go.
static int written(int code) {
    if (code == 0 && (fflush(stdout) != 0 || ferror(stdout))) {
        fprintf(stderr, "llamafile-numa: error: standard output cannot be written\n");
        return 1;
    }
    return code;
}

int main(int argc, char ** argv) {
    hold_standard_streams();
    argv = utf8_arguments(&argc, argv);
    const int answered = answer(argc, argv);
    if (answered >= 0) {
        return written(answered);
    }
    const int bad = llamafile_arguments(argc, argv); // may bring --numa-* along
    if (bad >= 0) {
        return bad;
    }
    const int done = numa_node_start(&argc, argv);
    if (done >= 0) {
        return done;
    }
    if (parent_is_told_wrongly()) {
        return NUMA_NODE_EXIT_USAGE;
    }
    watch_endings();
    const long parent = end_of_parent(&argc, argv);
    if (parent >= 0 && !end_with_parent(parent)) {
        fprintf(stderr, "llamafile-numa: error: --exit-with-parent: the process that started this one cannot be watched\n");
        return NUMA_NODE_EXIT_USAGE;
    }
    const int code = run(argc, argv);
    wipe_progress();
    return written(code);
}
