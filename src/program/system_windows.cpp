#include "system.h"

#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <winsock2.h>
#include <windows.h>

#include <tlhelp32.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

HANDLE handle_of(int descriptor) {
    static const DWORD NUMBERS[] = { STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE };
    return GetStdHandle(NUMBERS[descriptor]);
}

void (*on_stop)(stop);

// Runs in a thread of its own. Where it returns from one of the last events, the system ends the process at once; each
// process has 5 s by then.
BOOL WINAPI on_event(DWORD event) {
    switch (event) {
        case CTRL_C_EVENT:
            on_stop(stop::interrupt);
            return TRUE;
        case CTRL_BREAK_EVENT:
            on_stop(stop::terminate);
            return TRUE;
        case CTRL_CLOSE_EVENT:
        case CTRL_SHUTDOWN_EVENT:
            on_stop(stop::terminate);
            Sleep(INFINITE);
            return TRUE;
        default: // somebody logs off, which only services are told, of everybody
            return TRUE;
    }
}

DWORD parent_id() {
    const HANDLE all = CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0);
    PROCESSENTRY32W entry = {};
    entry.dwSize = sizeof(entry);
    DWORD id = 0;
    for (BOOL some = Process32FirstW(all, &entry); some && id == 0; some = Process32NextW(all, &entry)) {
        id = entry.th32ProcessID == GetCurrentProcessId() ? entry.th32ParentProcessID : 0;
    }
    CloseHandle(all);
    return id;
}

// 100 ns since 1601.
ULONGLONG start_of(HANDLE process) {
    FILETIME started, unused;
    if (!GetProcessTimes(process, &started, &unused, &unused, &unused)) {
        return 0;
    }
    return (ULONGLONG) started.dwHighDateTime << 32 | started.dwLowDateTime;
}

void wait_for_parent(HANDLE parent) {
    if (parent) {
        WaitForSingleObject(parent, INFINITE);
    }
    on_stop(stop::terminate);
}

}  // namespace

bool is_terminal(int descriptor) {
    DWORD mode; // _isatty says yes to NUL as well
    return GetConsoleMode(handle_of(descriptor), &mode) != 0;
}

void hold_standard_streams() {
    // No handle is taken for one.
}

void set_environment(const char * name, const char * value) {
    _putenv_s(name, value);
}

void watch_stops(void (*stopped)(stop cause)) {
    on_stop = stopped;
    signal(SIGABRT, [](int) { std::_Exit(1); }); // abort() would end with 3, as --numa-strict does
    SetConsoleCtrlHandler(on_event, TRUE);
}

void share_stops() {
    // They are.
}

bool watch_parent(long id) {
    const DWORD known = id > 0 ? (DWORD) id : parent_id();
    HANDLE parent     = known ? OpenProcess(SYNCHRONIZE | PROCESS_QUERY_LIMITED_INFORMATION, FALSE, known) : nullptr;
    if (!parent && known && GetLastError() == ERROR_ACCESS_DENIED) {
        return false;
    }
    // The number of a process that has ended may be another's by now.
    if (parent && start_of(parent) > start_of(GetCurrentProcess())) {
        CloseHandle(parent);
        parent = nullptr;
    }
    std::thread(wait_for_parent, parent).detach();
    return true;
}

void ignore_broken_pipes() {
    // It is always so.
}

// llama.cpp's chat waits for keys, and Ctrl-C is none.
void wake_reader() {
    INPUT_RECORD enter[2] = {};
    DWORD written;
    for (INPUT_RECORD & record : enter) {
        record.EventType = KEY_EVENT;
        record.Event.KeyEvent.bKeyDown          = &record == enter;
        record.Event.KeyEvent.wRepeatCount      = 1;
        record.Event.KeyEvent.wVirtualKeyCode   = VK_RETURN;
        record.Event.KeyEvent.uChar.UnicodeChar = L'\r';
    }
    WriteConsoleInputW(handle_of(0), enter, 2, &written);
}

void share_with_nobody(intptr_t socket) {
    const int on = 1;
    setsockopt((SOCKET) socket, SOL_SOCKET, SO_EXCLUSIVEADDRUSE, (const char *) &on, sizeof(on));
}

bool claim(const char * name) {
    const HANDLE holder = CreateMutexA(nullptr, FALSE, (std::string("Global\\") + name).c_str());
    const bool taken    = GetLastError() == (holder ? ERROR_ALREADY_EXISTS : ERROR_ACCESS_DENIED);
    if (holder && taken) {
        CloseHandle(holder);
    }
    return !taken; // else held open
}
