// The verdict in the HTTP API of llama.cpp's server: GET /numa, and beside what /metrics and /props say already.
#pragma once

#include "numa_node.h"

#include "server-common.h"
#include "server-context.h"
#include "server-http.h"

#include <string>
#include <utility>

// Empty where there is none.
static inline std::string numa_node_text(numa_node_form form) {
    std::string text(4096, '\0');
    size_t used;
    while ((used = numa_node_seen(form, &text[0], text.size())) >= text.size()) { // another verdict may come in between
        text.resize(used + 1);
    }
    text.resize(used);
    return text;
}

static inline server_http_res_ptr numa_node_get(const server_http_req &) {
    auto res  = std::make_unique<server_http_res>();
    res->data = numa_node_text(NUMA_NODE_JSON);
    if (res->data.empty()) {
        res->status = 503;
        res->data   = safe_json_to_str({{ "error", format_error_response("No model has been loaded yet", ERROR_TYPE_UNAVAILABLE) }});
    }
    return res;
}

// Lets the routes speak of the verdict, and returns the handler of GET /numa. A router has no model: its children's routes
// answer, and it passes on their answers as it does for /metrics.
static inline server_http_context::handler_t numa_node_routes(server_routes & routes, bool is_router) {
    if (is_router) {
        return routes.get_metrics;
    }
    routes.get_metrics = [get = std::move(routes.get_metrics)](const server_http_req & req) {
        auto res = get(req);
        res->data += res->status == 200 ? numa_node_text(NUMA_NODE_METRICS) : "";
        return res;
    };
    routes.get_props = [get = std::move(routes.get_props)](const server_http_req & req) {
        auto res = get(req);
        const std::string verdict = numa_node_text(NUMA_NODE_JSON);
        if (res->status == 200 && !verdict.empty()) {
            json body    = json::parse(res->data);
            body["numa"] = json::parse(verdict);
            res->data    = safe_json_to_str(body);
        }
        return res;
    };
    return numa_node_get;
}
