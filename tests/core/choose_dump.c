#define _GNU_SOURCE
// choose_dump MACHINE START [WORD...]: what is asked for by the words (and the environment), and the node that gives on the
// machine (see machine.h; "" = do not choose), started on the node with index START. As JSON, or {"error":...}.
#include "choose.h"
#include "core.h"
#include "machine.h"

static const char * environment(const char * name) {
    return getenv(name);
}

static int print_error(const char * err) {
    printf("{\"error\":");
    numa_json_string(stdout, err);
    puts("}");
    return 0;
}

static void print_options(const struct numa_options * options, int argc, char ** argv) {
    static const char * const WISHES[]  = { "unset", "none", "auto", "number" };
    static const char * const WEIGHTS[] = { "auto", "map", "copy" };
    printf("{\"rest\":[");
    for (int i = 1; i < argc; i++) {
        printf(i > 1 ? "," : "");
        numa_json_string(stdout, argv[i]);
    }
    printf("],\"wish\":\"%s\",\"number\":%d,\"requested\":", WISHES[options->wish], options->number);
    numa_json_string(stdout, options->requested);
    printf(",\"from_env\":%d,\"weights\":\"%s\",\"strict\":%d,\"list\":%d,\"selftest\":%d,\"json\":%d,\"report\":", options->from_env,
           WEIGHTS[options->weights], options->strict, options->list, options->selftest, options->json);
    options->report ? numa_json_string(stdout, options->report) : (void) printf("null");
}

int main(int argc, char ** argv) {
    struct numa_options options;
    struct topology topo;
    struct choice choice;
    char err[512]   = "";
    int n           = argc - 2; // START stands where the program's name would
    char ** words   = argv + 2;
    const int start = argc > 2 ? atoi(argv[2]) : -1;
    if (argc < 3) {
        machine_fail("(none)");
    }
    if (numa_options_parse(&options, &n, words, environment, err, sizeof(err)) != 0) {
        return print_error(err);
    }
    if (words[n] || err[0]) {
        return print_error("argv does not end in null, or there is a message with a success");
    }
    if (argv[1][0]) {
        machine_parse(argv[1], &topo);
        if (choose_node(&topo, &options, start, &choice, err, sizeof(err)) != 0) {
            topology_free(&topo);
            return print_error(err);
        }
    }
    print_options(&options, n, words);
    if (argv[1][0]) {
        printf(",\"node\":%d,\"cpu_node\":%d,\"how\":\"%s\"", choice.node < 0 ? -1 : topo.nodes[choice.node].id,
               choice.cpu_node < 0 ? -1 : topo.nodes[choice.cpu_node].id, choice.how);
        topology_free(&topo);
    }
    puts("}");
    return 0;
}
