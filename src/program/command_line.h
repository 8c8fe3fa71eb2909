// A command line taken apart as llama.cpp's parsers will take it: each flag with its values, so that no value passes for a
// flag.
#pragma once

#include "common.h"

#include <initializer_list>
#include <map>
#include <string>
#include <vector>

using words   = std::vector<std::string>;
using program = int (*)(int argc, char ** argv);

// The flags that one of llama.cpp's programs knows, with the number of their values.
using flag_values = std::map<std::string, int>;
const flag_values & flags_of(llama_example program);

// A flag as the parsers compare it: behind "--" an underscore is as good as a dash.
std::string spelled(std::string flag);

struct command_line {
    std::string        name;  // of the program
    std::vector<words> items; // a flag and its values, or a word that belongs to none

    command_line(int argc, char ** argv);

    bool has(std::initializer_list<const char *> flags) const;
    // Takes a flag out; true where it was there.
    bool take(const char * flag);
    // Puts these words before all others, so that what the user gave wins over them.
    void lead(words flag);
    words all() const; // the name first
};

// As main() takes them; they belong to the words.
std::vector<char *> pointers(words & args);

// Runs a program with these words (its name first) and waits for its log.
int call(program run, words args);
