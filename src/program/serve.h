// llama.cpp's server, by itself or beside the chat.
#pragma once

#include "command_line.h"
#include "old_flags.h"

#include <string>

// Serves until it is asked to end, which is success. chosen: the user said so, and so may do without a model: llama.cpp's
// server then loads those that it is asked for.
int serve(const words & args, bool chosen);
// Chats in the terminal, with the server beside it.
int chat(const command_line & line, const old_ways & ways);
