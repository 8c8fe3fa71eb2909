// The commands of llama.cpp, and what can be said without running any.
#pragma once

#include "command_line.h"

struct command {
    const char * name;
    const char * what;
    program      run;
    bool         shows_progress;
};

// Null: there is no such command.
const command * find_command(const char * name);
// Says what was asked for, where that is a help text or the version, and returns the code to exit with; -1: something else
// was asked for. Whatever else the command line or the environment say, this works.
int answer(int argc, char ** argv);
