#define _GNU_SOURCE
// libFuzzer target: words divided by NULs are a command line, those that begin with LLAMA_ARG_NUMA the environment.
#include "numa_node.h"
#include "options.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

static char * variables[MOST];
static int n_variables;

static const char * environment(const char * name) {
    const size_t len = strlen(name);
    for (int i = 0; i < n_variables; i++) {
        if (strncmp(variables[i], name, len) == 0 && variables[i][len] == '=') {
            return variables[i] + len + 1;
        }
    }
    return NULL;
}

static bool is_ours(const char * word) {
    for (const struct numa_node_flag * flag = numa_node_flags(); flag->name; flag++) {
        const size_t len = strlen(flag->name);
        if (strncmp(word, flag->name, len) == 0 && (word[len] == '\0' || word[len] == '=')) {
            return true;
        }
    }
    return false;
}

static bool one_line(const char * text) {
    for (; *text; text++) {
        if ((unsigned char) *text < ' ' || *text == 0x7f) {
            return false;
        }
    }
    return true;
}

// What stays is what was there, in its order, without what is ours.
static void check_kept(char ** before, int n_before, char ** after, int n_after) {
    int at = 0;
    HOLDS(n_after >= 1 && n_after <= n_before && after[0] == before[0] && after[n_after] == NULL);
    for (int i = 0; i < n_after; i++, at++) {
        while (at < n_before && before[at] != after[i]) {
            at++;
        }
        HOLDS(at < n_before && (i == 0 || !is_ours(after[i])));
    }
}

static void check_options(const struct numa_options * options) {
    const bool written = options->requested[0] != '\0';
    HOLDS(options->number >= 0 && (options->number == 0 || options->wish == WISH_NUMBER));
    HOLDS(written == (options->wish != WISH_UNSET) && (!options->from_env || written));
    HOLDS(!options->report || options->report[0]);
    HOLDS(!options->json || options->list || options->selftest);
    HOLDS(!options->strict || options->list || options->wish == WISH_AUTO || options->wish == WISH_NUMBER);
}

static void check_words(char ** words, int n, size_t err_size) {
    char * before[MOST + 1];
    struct numa_options options;
    int argc   = n;
    char * err = malloc(err_size);
    HOLDS(err);
    err[0] = '\0';
    memcpy(before, words, sizeof(before));
    const int result = numa_options_parse(&options, &argc, words, environment, err, err_size);
    HOLDS(strnlen(err, err_size) < err_size);
    if (result == 0) {
        HOLDS(err[0] == '\0');
        check_kept(before, n, words, argc);
        check_options(&options);
    } else {
        HOLDS(result == -1 && (err[0] || err_size == 1) && one_line(err));
    }
    free(err);
}

int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    char * words[MOST + 1] = { strdup("program") };
    char * all[MOST];
    int n     = 1;
    int n_all = 0;
    n_variables = 0;
    for (size_t at = 0; at < size && n_all < MOST - 1;) { // each in a block of its own size
        const size_t len = strnlen((const char *) data + at, size - at);
        char * word = strndup((const char *) data + at, len);
        const bool variable = strncmp(word, "LLAMA_ARG_NUMA", 14) == 0 && strchr(word, '=');
        *(variable ? &variables[n_variables++] : &words[n++]) = all[n_all++] = word;
        at += len + 1;
    }
    char * name = words[0];
    check_words(words, n, size % 7 == 0 ? 1 + size : 512);
    free(name);
    while (n_all > 0) {
        free(all[--n_all]);
    }
    return 0;
}
