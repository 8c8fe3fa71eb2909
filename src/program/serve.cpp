#include "serve.h"

#include "listener.h"
#include "progress.h"
#include "stop.h"
#include "system.h"

#include "arg.h"
#include "cli-context.h"
#include "console.h"
#include "log.h"
#include "numa_node.h"
#include "server-stream.h"

#include <atomic>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <thread>

// llama.cpp declares none of these in a header.
int llama_server(int argc, char ** argv);
int llama_server(common_params & params, int argc, char ** argv);
void llama_server_terminate();
int llama_cli(int argc, char ** argv);
extern const char * LLAMA_ASCII_LOGO;

namespace {

// What llama_server() does before it serves. False, with a line on stderr, where the flags are wrong.
bool prepare(words & args, common_params & params) {
    std::setlocale(LC_NUMERIC, "C");
    share_stops();
    ignore_broken_pipes();
    common_init();
    server_stream_session_manager_start();
    params.port = PORT_UNASKED;
    if (!common_params_parse((int) args.size(), pointers(args).data(), params, LLAMA_EXAMPLE_SERVER)) {
        return false;
    }
    llama_backend_init();
    llama_numa_init(params.numa);
    return true;
}

int refuse(const char * says) {
    fprintf(stderr, "llamafile-numa: error: %s\n", says);
    return NUMA_NODE_EXIT_USAGE;
}

bool from_elsewhere(const common_params & params) {
    return !params.model.hf_repo.empty() || !params.model.docker_repo.empty() || !params.model.url.empty();
}

bool has_model(const common_params & params) {
    return !params.model.path.empty() || from_elsewhere(params);
}

const char NO_MODEL[] = "there is no model; -m FILE names one";

// Serve a model with the endings that watch_endings() knows: llama.cpp's own are for Ctrl-C and SIGTERM only, come after the
// model is loaded, and wait for as long as it takes.
int serve_model(common_params & params) {
    try { // a draft or a projector may be named by an address
        common_models_handler handler = common_models_handler_init(params, LLAMA_EXAMPLE_SERVER);
        common_models_handler_apply(handler, params);
    } catch (const std::exception & error) {
        fprintf(stderr, "llamafile-numa: error: %s\n", error.what());
        return 1;
    }
    return llama_server(params, 0, nullptr);
}

void stop_server(int code) {
    numa_node_load now;
    if (numa_node_progress(&now)) {
        std::_Exit(code); // it heeds nothing while it loads, and there is nothing yet to be lost
    }
    llama_server_terminate();
}

}  // namespace

int serve(const words & args, bool chosen) {
    common_params params;
    words given = args;
    set_environment("LLAMA_APP_CMD", "server"); // how a router starts this program for each of its models
    if (!prepare(given, params)) {
        return 1;
    }
    if (!chosen && !has_model(params) && params.models_dir.empty() && params.models_preset.empty()) {
        return refuse(NO_MODEL);
    }
    if (!chosen) {
        fprintf(stderr, "llamafile-numa: there is no prompt, and no terminal to chat in, so this serves (as with --server)\n");
    }
    if (const int taken = choose_port(params)) {
        return taken;
    }
    int code;
    if (params.model.path.empty() || from_elsewhere(params)) {
        code = llama_server(params, (int) given.size(), pointers(given).data());
    } else {
        end_like({ 0, 0, nullptr, stop_server });
        code = serve_model(params);
    }
    common_log_flush(common_log_main());
    return code;
}

// --- chat ---

namespace {

// The server beside the chat.
struct companion {
    common_params     params;
    std::atomic<bool> ended { false };
    int               code = 0;
    std::thread       thread;

    void start() {
        thread = std::thread([this] {
            code  = serve_model(params);
            ended = true;
        });
    }

    void stop() {
        if (!ended) {
            llama_server_terminate();
        }
        thread.join();
    }
};

bool interrupt_chat() {
    if (cli_context::interrupted().exchange(true)) {
        return false; // the second time
    }
    wake_reader();
    return true;
}

void leave_terminal(int code) {
    console::cleanup();
    std::_Exit(code);
}

// The server's flags and the chat's; both have those that both know, and the server's parser complains of all others.
void split(const command_line & line, command_line & server, command_line & terminal) {
    server.items.clear();
    terminal.items.clear();
    for (const words & item : line.items) {
        const bool chats = flags_of(LLAMA_EXAMPLE_CLI).count(item[0]) > 0;
        if (chats) {
            terminal.items.push_back(item);
        }
        if (!chats || flags_of(LLAMA_EXAMPLE_SERVER).count(item[0]) > 0) {
            server.items.push_back(item);
        }
    }
}

// Of what the two cannot do together.
int check(const common_params & params) {
    if (!has_model(params)) {
        return refuse(NO_MODEL);
    }
    if (!params.api_keys.empty()) {
        return refuse("--api-key: llama.cpp's chat has no key for its server; --server serves with one");
    }
    if (address_of(params).empty()) {
        return refuse("--host: the chat reaches its server by an IP address only; --server serves on a UNIX socket");
    }
    return 0;
}

// What stands above the chat. llama.cpp prints what this points to.
std::string banner(const old_ways & ways, const std::string & address) {
    const std::string logo = !ways.logo ? "" : ways.ascii ? "\nllamafile-numa\n" : LLAMA_ASCII_LOGO;
    return logo + "\nserver     : " + address;
}

int talk(words args, const std::string & address, const old_ways & ways) {
    common_params params;
    params.verbosity = LOG_LEVEL_ERROR;
    args.insert(args.end(), { "--server-base", address });
    if (!common_params_parse((int) args.size(), pointers(args).data(), params, LLAMA_EXAMPLE_CLI)) {
        return 1;
    }
    static const std::string above = banner(ways, address);
    LLAMA_ASCII_LOGO = above.c_str();
    end_like({ EXIT_INTERRUPTED, EXIT_TERMINATED, interrupt_chat, leave_terminal });
    cli_context context(params);
    return context.init() ? context.run() : 1;
}

}  // namespace

int chat(const command_line & line, const old_ways & ways) {
    if (line.has({ "--server-base" })) { // of somebody else
        return call(llama_cli, line.all());
    }
    command_line server_line = line, terminal_line = line;
    split(line, server_line, terminal_line);
    companion server;
    words args = server_line.all();
    server.params.verbosity = LOG_LEVEL_ERROR;
    if (!prepare(args, server.params)) {
        return 1;
    }
    if (const int wrong = check(server.params)) {
        return wrong;
    }
    if (const int taken = choose_port(server.params)) {
        return taken;
    }
    if (server.params.port == 0) {
        server.params.port = common_http_get_free_port();
    }
    const std::string address = address_of(server.params);
    server.start();
    cli_client health;
    health.server_base = address;
    bool ready = false;
    while (!ready && !server.ended) {
        ready = health.wait_health([&] { return server.ended.load(); }); // gives up where it takes long to listen
    }
    const int code = ready ? talk(terminal_line.all(), address, ways) : 1;
    console::cleanup(); // what is left to do may be cut short
    fflush(stdout);
    end_within(1500, code);
    server.stop();
    common_log_flush(common_log_main());
    return server.code ? server.code : code;
}
