// What the program needs of the operating system; one implementation per system.
#pragma once

#include <cstdint>

// A terminal that a person sits at (0: input, 1: output, 2: messages).
bool is_terminal(int descriptor);

// Open the standard streams that the process was started without, on nothing: what is opened next would be taken for them.
void hold_standard_streams();

void set_environment(const char * name, const char * value); // "": no such variable

// What asks the process to end: Ctrl-C; or all else, which is SIGTERM, a terminal or console window that is closed, the
// system that shuts down, and with watch_parent() the end of the process that started this one.
enum class stop { interrupt, terminate };

// From here on stopped() is called, by a thread of its own, when something asks the process to end; what the process was
// started to ignore it goes on ignoring. Once a process, before it has other threads: the handlers that llama.cpp's programs
// set run in that thread as well, as they take locks which those others may hold.
void watch_stops(void (*stopped)(stop cause));
// For those of llama.cpp's programs whose handlers do no such thing: programs that are started from here on can be asked to
// end as well, and Ctrl-C lets the caller's read from the terminal return.
void share_stops();
// The same when the parent ends, or has ended; id: its number, where it is known whose child this was meant to be, else 0.
// False where it cannot be watched.
bool watch_parent(long id);

// A write to a pipe whose reader is gone fails, and ends nothing.
void ignore_broken_pipes();

// Lets a read from the terminal that is going on return, after Ctrl-C.
void wake_reader();

// For a socket that only finds out whether an address is free: it may not share it with another one that is in use.
void share_with_nobody(intptr_t socket);

// From here to the end of the process this name is ours; false where another process on this machine has it. True where
// the system does not tell, too.
bool claim(const char * name);
