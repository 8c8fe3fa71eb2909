#include "options.h"
#include "numa_node.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct numa_node_flag FLAGS[] = {
    { "--numa-node", "N|auto|none", "LLAMA_ARG_NUMA_NODE",
      "keep weights, buffers and threads on this NUMA node, as the system numbers it\n"
      "auto: the node this process is confined to or was started on, else the emptiest\n"
      "none: bind nothing (default, unless the process is confined to one node)" },
    { "--numa-weights", "auto|map|copy", "LLAMA_ARG_NUMA_WEIGHTS",
      "map the weights, or read a private copy onto the node\n"
      "auto: map, and copy only what cannot be had on the node that way (default)" },
    { "--numa-strict", "", "LLAMA_ARG_NUMA_STRICT", "end with exit code 3 where something is not on the node, and serve nothing" },
    { "--numa-report", "FILE|-", "LLAMA_ARG_NUMA_REPORT", "write what was seen as JSON once the model is loaded (-: standard output)" },
    { "--numa-list", "", "", "list the nodes and what this process may use of them, then exit (as JSON with --json)" },
    { "--numa-selftest", "", "", "measure in a minute what the nodes are like and, with -m, what a model could gain,\n"
      "then exit (as JSON with --json; --numa-report FILE writes that beside the text)" },
    { 0 },
};

enum { NODE, WEIGHTS, STRICT, REPORT, LIST, SELFTEST };

const struct numa_node_flag * numa_node_flags(void) {
    return FLAGS;
}

void numa_node_print_flags(FILE * to, int column) {
    for (const struct numa_node_flag * flag = FLAGS; flag->name; flag++) {
        int at = fprintf(to, "  %s%s%s", flag->name, flag->argument[0] ? " " : "", flag->argument);
        for (const char * line = flag->help; line;) {
            const char * end = strchr(line, '\n');
            const int len    = end ? (int) (end - line) : (int) strlen(line);
            fprintf(to, "%*s%.*s\n", at < column ? column - at : 1, "", len, line);
            line = end ? end + 1 : NULL;
            at   = 0;
        }
        if (flag->env[0]) {
            fprintf(to, "%*s(env: %s)\n", column, "", flag->env);
        }
    }
}

__attribute__((format(printf, 3, 4))) static int fail(char * err, size_t size, const char * format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(err, size, format, args);
    va_end(args);
    for (; *err; err++) { // what was written may hold line breaks; a message is one line
        *err = (unsigned char) *err < ' ' || *err == 0x7f ? '?' : *err;
    }
    return -1;
}

// Decimal digits only: no sign, no space, no second number behind. -1 where it is not one, or above 2^31-1.
static int number_of(const char * text) {
    long long n = 0;
    if (!*text) {
        return -1;
    }
    for (; *text && n >= 0; text++) {
        n = *text < '0' || *text > '9' ? -1 : n * 10 + (*text - '0');
        n = n > INT_MAX ? -1 : n;
    }
    return (int) n;
}

static int set_node(struct numa_options * options, const char * name, const char * value, char * err, size_t size) {
    struct numa_options before = *options;
    if (strcmp(value, "auto") == 0) {
        options->wish = WISH_AUTO;
    } else if (strcmp(value, "none") == 0) {
        options->wish = WISH_NONE;
    } else {
        options->wish   = WISH_NUMBER;
        options->number = number_of(value);
        if (options->number < 0) {
            return fail(err, size, "%s: '%s' is not a node; a number as --numa-list shows it, auto or none is possible", name, value);
        }
    }
    snprintf(options->requested, sizeof(options->requested), "%s", value);
    if (before.wish != WISH_UNSET && (before.wish != options->wish || before.number != options->number)) {
        return fail(err, size, "%s is given twice, as %s and as %s; one process runs on one node", name, before.requested, value);
    }
    return 0;
}

static int set_weights(struct numa_options * options, const char * name, const char * value, char * err, size_t size) {
    static const char * const NAMES[] = { "auto", "map", "copy" };
    for (int i = 0; i < 3; i++) {
        if (strcmp(value, NAMES[i]) == 0) {
            options->weights = (enum weights_wish) i;
            return 0;
        }
    }
    return fail(err, size, "%s: '%s' is not possible; auto, map and copy are", name, value);
}

static int set_strict(struct numa_options * options, const char * name, const char * value, char * err, size_t size) {
    static const char * const WORDS[] = { "0", "off", "false", "no", "1", "on", "true", "yes" };
    for (int i = 0; i < 8; i++) {
        if (strcmp(value, WORDS[i]) == 0) {
            options->strict = i >= 4;
            return 0;
        }
    }
    return fail(err, size, "%s: '%s' is not possible; 1 and 0 are", name, value);
}

// One flag (or its twin) with its value; name is what the message calls it.
static int set(struct numa_options * options, int flag, const char * name, const char * value, char * err, size_t size) {
    if (!*value) {
        return fail(err, size, "%s has an empty value; %s is possible", name, FLAGS[flag].argument[0] ? FLAGS[flag].argument : "1 or 0");
    }
    switch (flag) {
        case NODE:    return set_node(options, name, value, err, size);
        case WEIGHTS: return set_weights(options, name, value, err, size);
        case STRICT:  return set_strict(options, name, value, err, size);
        default:      options->report = value; return 0;
    }
}

static char dashed(char c) {
    return c == '_' ? '-' : c;
}

// The flag that this word is, or -1. As in llama.cpp's own parser, _ is as good as -. *value: what stands behind "=", else null.
static int flag_of(const char * word, const char ** value) {
    const char * equals = strchr(word, '=');
    const size_t len    = equals ? (size_t) (equals - word) : strlen(word);
    *value = equals ? equals + 1 : NULL;
    for (int i = 0; FLAGS[i].name; i++) {
        size_t same = 0;
        while (same < len && dashed(word[same]) == FLAGS[i].name[same]) {
            same++;
        }
        if (same == len && !FLAGS[i].name[len]) {
            return i;
        }
    }
    return -1;
}

// A word behind a flag that is no value of it. Nodes may be given as -1, which has a message of its own.
static bool is_flag(const char * word, int behind) {
    return strncmp(word, "--", 2) == 0 || (behind != NODE && word[0] == '-' && word[1] != '\0');
}

static int from_environment(struct numa_options * options, int first, env_lookup env, const bool * given, char * err, size_t size) {
    for (int i = first; i <= REPORT; i++) {
        const char * value = given[i] ? NULL : env(FLAGS[i].env);
        if (value && set(options, i, FLAGS[i].env, value, err, size) != 0) {
            return -1;
        }
        options->from_env |= i == NODE && value;
    }
    return 0;
}

// It looks at all nodes and loads nothing, so a node that the environment names for every run is none of its business.
static int selftest_options(struct numa_options * options, bool json, env_lookup env, const bool * given, char * err, size_t size) {
    for (int i = NODE; i < REPORT; i++) {
        if (given[i]) {
            return fail(err, size, "--numa-selftest looks at all nodes and takes no %s; -m, --json and --numa-report are possible with it", FLAGS[i].name);
        }
    }
    options->json = json;
    return from_environment(options, REPORT, env, given, err, size);
}

int numa_options_parse(struct numa_options * options, int * argc, char ** argv, env_lookup env, char * err, size_t err_size) {
    bool given[SELFTEST + 1] = { false };
    bool upstream_numa   = env("LLAMA_ARG_NUMA") != NULL;
    bool json            = false;
    int kept             = 0;

    memset(options, 0, sizeof(*options));
    for (int i = 0; i < *argc; i++) {
        const char * value;
        const int flag = i == 0 ? -1 : flag_of(argv[i], &value);
        const bool is_json = strcmp(argv[i], "--json") == 0;
        upstream_numa |= strcmp(argv[i], "--numa") == 0;
        json |= is_json;
        if (flag < 0) {
            argv[kept++] = argv[i];
            continue;
        }
        given[flag] = true;
        if (!FLAGS[flag].argument[0]) {
            if (value) {
                return fail(err, err_size, "%s takes no value", FLAGS[flag].name);
            }
            *(flag == LIST ? &options->list : flag == STRICT ? &options->strict : &options->selftest) = true;
            continue;
        }
        if (!value && (++i >= *argc || is_flag(argv[i], flag))) {
            return fail(err, err_size, "%s needs a value: %s", FLAGS[flag].name, FLAGS[flag].argument);
        }
        if (set(options, flag, FLAGS[flag].name, value ? value : argv[i], err, err_size) != 0) {
            return -1;
        }
    }
    *argc      = kept;
    argv[kept] = NULL;

    if (options->list) { // nothing else is looked at, so nothing else can be wrong
        options->json = json;
        return 0;
    }
    if (options->selftest) {
        return selftest_options(options, json, env, given, err, err_size);
    }
    if (from_environment(options, NODE, env, given, err, err_size) != 0) {
        return -1;
    }
    const bool bound = options->wish == WISH_NUMBER || options->wish == WISH_AUTO;
    options->upstream = upstream_numa;
    if (bound && upstream_numa) {
        return fail(err, err_size, "--numa-node keeps everything on one node and --numa spreads or binds threads by rules of its own; give one of them");
    }
    if (options->strict && !bound) {
        return fail(err, err_size, "--numa-strict needs a node to be strict about; give --numa-node N or --numa-node auto");
    }
    return 0;
}
