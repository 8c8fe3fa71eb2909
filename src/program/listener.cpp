#include "listener.h"

#include "system.h"

#include "http.h"
#include "numa_node.h"

#include <algorithm>
#include <cstdio>

static constexpr int FIRST = 8080;
static constexpr int LAST  = 65535;
static constexpr int TRIES = 100;
static constexpr int LAST_WITH_RIGHTS = 1023; // below, a system may want more rights

static bool is_file(const std::string & host) {
    return string_ends_with(host, ".sock");
}

static bool can_listen(const std::string & host, int port) {
    httplib::Server probe;
    probe.set_socket_options([](socket_t socket) { share_with_nobody((intptr_t) socket); });
    const bool bound = port == 0 ? probe.bind_to_any_port(host) >= 0 : probe.bind_to_port(host, port);
    probe.stop();
    return bound;
}

// A host that is none of this machine's is llama.cpp's to complain about.
static bool is_free(const common_params & params, int port) {
    return std::all_of(params.hostnames.begin(), params.hostnames.end(), [&](const std::string & host) {
        return is_file(host) || can_listen(host, port) || !can_listen(host, 0);
    });
}

// Two of this program that start at the same time would find the same port free: it is taken only once they listen.
static bool take(const common_params & params, int port) {
    return is_free(params, port) && std::all_of(params.hostnames.begin(), params.hostnames.end(), [&](const std::string & host) {
        return claim(("llamafile-numa " + host + ":" + std::to_string(port)).c_str());
    });
}

static int take_next(const common_params & params, int after) {
    for (int port = after + 1; port <= std::min(after + TRIES, LAST); port++) {
        if (take(params, port)) {
            return port;
        }
    }
    return 0;
}

int choose_port(common_params & params) {
    const bool asked = params.port != PORT_UNASKED;
    params.port = asked ? params.port : FIRST;
    if (params.port < 0 || params.port > LAST) {
        fprintf(stderr, "llamafile-numa: error: there is no port %d; 0 (any that is free) to %d are possible\n", params.port, LAST);
        return NUMA_NODE_EXIT_USAGE;
    }
    const bool free = params.port == 0 || params.reuse_port || take(params, params.port);
    if (free || (asked && is_free(params, params.port))) {
        return 0;
    }
    const int other = take_next(params, std::max(params.port, LAST_WITH_RIGHTS));
    if (!asked && other > 0) {
        fprintf(stderr, "llamafile-numa: port %d is taken, so the server listens on port %d\n", params.port, other);
        params.port = other;
        return 0;
    }
    fprintf(stderr, "llamafile-numa: error: port %d is taken%s; ", params.port,
            params.port <= LAST_WITH_RIGHTS ? ", or not for this user" : "");
    fprintf(stderr, other > 0 ? "--port %d is possible\n" : "--port N with a free one is possible\n", other);
    return NUMA_NODE_EXIT_USAGE;
}

std::string address_of(const common_params & params) {
    const auto host = std::find_if_not(params.hostnames.begin(), params.hostnames.end(), is_file);
    if (host == params.hostnames.end()) {
        return "";
    }
    const std::string reached = *host == "0.0.0.0" ? "127.0.0.1" : *host == "::" ? "::1" : *host;
    return "http://" + common_http_format_host(reached) + ":" + std::to_string(params.port) + params.api_prefix;
}
