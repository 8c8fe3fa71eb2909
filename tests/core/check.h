// A test program of named cases, each run by `program NAME [FOLDER]` in a process of its own, since the core keeps its state
// in static variables. Ends with 0, with 1 and what does not hold on stdout, or with 77 and the reason why it cannot be run.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                     \
    do {                                                                     \
        if (!(condition)) {                                                  \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);   \
            check_failures++;                                                \
        }                                                                    \
    } while (0)

// Two integers that have to be equal; both are shown where they are not.
#define EQUAL(is, wanted)                                                                                      \
    do {                                                                                                       \
        const long long is_ = (long long) (is), wanted_ = (long long) (wanted);                                \
        if (is_ != wanted_) {                                                                                  \
            printf("%s:%d: %s is %lld, wanted %s = %lld\n", __FILE__, __LINE__, #is, is_, #wanted, wanted_);   \
            check_failures++;                                                                                  \
        }                                                                                                      \
    } while (0)

#define SAME(is, wanted)                                                                                   \
    do {                                                                                                   \
        const char * const is_ = (is), * const wanted_ = (wanted);                                         \
        if (strcmp(is_, wanted_) != 0) {                                                                   \
            printf("%s:%d: %s is \"%s\", wanted \"%s\"\n", __FILE__, __LINE__, #is, is_, wanted_);         \
            check_failures++;                                                                              \
        }                                                                                                  \
    } while (0)

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define CASE(name)                                                                     \
    static void case_##name(void);                                                     \
    __attribute__((constructor)) static void add_##name(void) {                        \
        check_cases[check_n++] = (struct check_case) { #name, case_##name };           \
    }                                                                                  \
    static void case_##name(void)

struct check_case {
    const char * name;
    void (*run)(void);
};

static struct check_case check_cases[128];
static int               check_n;
static int               check_failures;
static const char *      check_folder = "."; // for files of the case

__attribute__((unused, noreturn)) static void skip(const char * reason) {
    printf("%s\n", reason);
    exit(check_failures ? 1 : 77);
}

int main(int argc, char ** argv) {
    check_folder = argc > 2 ? argv[2] : check_folder;
    for (int i = 0; i < check_n; i++) {
        if (argc > 1 && strcmp(argv[1], check_cases[i].name) == 0) {
            check_cases[i].run();
            return check_failures != 0;
        }
    }
    printf("no such case\n");
    return 2;
}
