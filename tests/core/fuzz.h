// What a fuzzer holds to be so, whatever the input.
#pragma once

#include <stdio.h>
#include <stdlib.h>

#define HOLDS(condition)                                                            \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                \
        }                                                                           \
    } while (0)
