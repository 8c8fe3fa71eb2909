// The --numa-* flags and their environment twins: what was asked for, before any machine is looked at.
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum weights_wish { WEIGHTS_AUTO, WEIGHTS_MAP, WEIGHTS_COPY };
enum node_wish { WISH_UNSET, WISH_NONE, WISH_AUTO, WISH_NUMBER };

struct numa_options {
    enum node_wish    wish;
    int               number;    // with WISH_NUMBER
    char              requested[16]; // the node as it was written, "" where it was not
    bool              from_env;  // the node came from the environment
    enum weights_wish weights;
    bool              strict;
    const char *      report;    // file name, "-" = stdout, null = none; belongs to argv or the environment
    bool              list;
    bool              selftest;
    bool              json;
    bool              upstream;  // --numa, llama.cpp's own flag, was given
};

typedef const char * (*env_lookup)(const char * name); // null where the variable is not set

// Read the flags out of argv (both "--flag value" and "--flag=value"); what is not ours stays, in its order. A flag beats
// the environment. Returns 0, or -1 with one line in err that says what was wrong and what is possible.
int numa_options_parse(struct numa_options * options, int * argc, char ** argv, env_lookup env, char * err, size_t err_size);
