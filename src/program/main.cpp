// The one program: bind to a NUMA node first, then be one of llama.cpp's programs.
//
//   llamafile-numa [--server|--chat|--cli] [--numa-node N] -m model.gguf ...   by its flags: see modes.cpp
//   llamafile-numa COMMAND ...                                                 one of llama.cpp's commands
#include "arguments.h"
#include "commands.h"
#include "modes.h"
#include "progress.h"
#include "stop.h"

#include "numa_node.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

// Take the flag out of the arguments; true where it, or its twin in the environment, is there.
static bool takes_end_of_parent(int * argc, char ** argv) {
    const char * set = getenv("LLAMAFILE_NUMA_EXIT_WITH_PARENT");
    bool wanted      = set && *set && strcmp(set, "0") != 0;
    int kept         = 0;
    for (int i = 0; i < *argc; i++) {
        if (strcmp(argv[i], "--exit-with-parent") == 0) {
            wanted = true;
        } else {
            argv[kept++] = argv[i];
        }
    }
    argv[*argc = kept] = nullptr;
    return wanted;
}

int main(int argc, char ** argv) {
    argv = utf8_arguments(&argc, argv);
    const int answered = answer(argc, argv);
    if (answered >= 0) {
        return answered;
    }
    const int done = numa_node_start(&argc, argv);
    if (done >= 0) {
        return done;
    }
    watch_endings();
    if (takes_end_of_parent(&argc, argv) && !end_with_parent()) {
        fprintf(stderr, "llamafile-numa: error: --exit-with-parent: the process that started this one cannot be watched\n");
        return NUMA_NODE_EXIT_USAGE;
    }
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
