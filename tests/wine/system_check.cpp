// src/program/system_windows.cpp, one case a run: terminal, claim, environment, child [ID], parent MS [named]. The parent
// starts the child and ends after so many milliseconds; the child says what it was told to do.
#include "system.h"

#include <windows.h>

#include <cstdio>
#include <cstdlib>
#include <string>

static void stopped(stop cause) {
    printf("%s\n", cause == stop::interrupt ? "interrupt" : "terminate");
    fflush(stdout);
    ExitProcess(cause == stop::interrupt ? 130 : 143);
}

static int child(long id) {
    watch_stops(stopped);
    if (!watch_parent(id)) {
        return 1;
    }
    Sleep(20000);
    printf("nothing\n");
    return 2;
}

static int parent(const char * program, int ms, bool named) {
    std::string command = std::string(program) + " child " + (named ? std::to_string(GetCurrentProcessId()) : "0");
    STARTUPINFOA start  = {};
    PROCESS_INFORMATION process;
    start.cb = sizeof(start);
    if (!CreateProcessA(nullptr, command.data(), nullptr, nullptr, TRUE, 0, nullptr, nullptr, &start, &process)) {
        return 1;
    }
    Sleep((DWORD) ms);
    return 0;
}

int main(int argc, char ** argv) {
    const std::string which = argv[1];
    if (which == "terminal") {
        printf("%d%d%d\n", is_terminal(0), is_terminal(1), is_terminal(2));
    } else if (which == "claim") {
        printf("%d", claim("a name"));
        printf("%d", claim("a name"));
        printf("%d\n", claim("another"));
    } else if (which == "environment") {
        char seen[16] = "";
        set_environment("LLAMA_APP_CMD", "server");
        GetEnvironmentVariableA("LLAMA_APP_CMD", seen, sizeof(seen));
        printf("%s %s\n", getenv("LLAMA_APP_CMD"), seen);
    } else if (which == "child") {
        return child(argc > 2 ? atol(argv[2]) : 0);
    } else {
        return parent(argv[0], atoi(argv[2]), argc > 3);
    }
    return 0;
}
