#include "modes.h"

#include "old_flags.h"
#include "progress.h"
#include "serve.h"
#include "system.h"

#include "numa_node.h"

#include <cstdio>
#include <cstdlib>

int llama_completion(int argc, char ** argv);

// Complete once: nothing but the text on stdout, and on stderr what went wrong, unless the user asks for more.
static int complete(command_line line) {
    show_progress(true);
    if (!line.has({ "-v", "--verbose", "--log-verbose", "-lv", "--verbosity", "--log-verbosity" }) && !getenv("LLAMA_ARG_LOG_VERBOSITY")) {
        line.lead({ "-lv", "1" });
    }
    line.lead({ "-no-cnv", "--no-display-prompt", "--simple-io" });
    return call(llama_completion, line.all());
}

static int usage(const char * says) {
    fprintf(stderr, "llamafile-numa: error: %s\n", says);
    return NUMA_NODE_EXIT_USAGE;
}

int run_by_flags(command_line line) {
    const bool server = line.take("--server");
    const bool chats  = line.take("--chat");
    const bool cli    = line.take("--cli");
    const bool prompt = line.has({ "-p", "--prompt", "-f", "--file", "-bf", "--binary-file" });
    if (server + chats + cli > 1) {
        return usage("--server, --chat and --cli exclude each other; give one of them");
    }
    const bool chosen = server || chats || cli || prompt;
    const mode mode   = server ? SERVE : chats ? CHAT : cli || prompt ? COMPLETE : is_terminal(0) ? CHAT : SERVE;
    old_ways ways;
    if (!mend_old_flags(line, mode, ways)) {
        return NUMA_NODE_EXIT_USAGE;
    }
    if (mode == COMPLETE) {
        return complete(std::move(line));
    }
    show_progress(ways.quiet || mode == CHAT);
    return mode == CHAT ? chat(line, ways) : serve(line.all(), chosen);
}
