// Flags that llamafile users have in their scripts and in their fingers, and that llama.cpp's parsers do not know (any more).
#pragma once

#include "command_line.h"

// What the program is, by its flags.
enum mode { COMPLETE = 1, SERVE = 2, CHAT = 4 };

// How many values an old flag takes; -1: there is no such flag.
constexpr int OPTIONAL_VALUE = 9; // one, where the next word is no flag
int old_flag_values(const std::string & flag);

// What follows from old flags beyond other flags.
struct old_ways {
    bool quiet = false; // --log-disable
    bool logo  = true;
    bool ascii = false;
};

// Puts today's flags in place of old ones and says on stderr, in one line each, what holds instead of those that nothing
// stands for. False, with a line on stderr, where one is wrong.
bool mend_old_flags(command_line & line, mode mode, old_ways & ways);
