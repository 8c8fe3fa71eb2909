// What the program is where no command of llama.cpp was named.
#pragma once

#include "command_line.h"

// Chat, server or completion as the flags say, and its exit code.
int run_by_flags(command_line line);
