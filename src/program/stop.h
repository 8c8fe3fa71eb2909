// How the process ends when it is asked to from outside.
#pragma once

constexpr int EXIT_INTERRUPTED = 130; // Ctrl-C; as shells show it
constexpr int EXIT_TERMINATED  = 143; // all else

struct ending {
    int interrupted = EXIT_INTERRUPTED; // exit codes
    int terminated  = EXIT_TERMINATED;
    // Ctrl-C: true where it has been dealt with and the process goes on. Null: it never does.
    bool (*interrupt)() = nullptr;
    // Lets the process come to an end within a second or so, with this code; what does not is cut short. Null: at once.
    void (*gently)(int code) = nullptr;
};

// To be called once, after the process has been bound and before it does anything that takes time.
void watch_endings();
// From here on it ends like this.
void end_like(ending how);
// Also when the parent ends (id: its number, 0: whoever that is). False where it cannot be watched.
bool end_with_parent(long id);
// Whatever happens, the process is gone after so many milliseconds.
void end_within(int milliseconds, int code);
