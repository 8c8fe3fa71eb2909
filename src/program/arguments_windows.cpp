// main() and getenv() get every character that the system's code page lacks as "?". Windows 10 1903 heeds the manifest, which
// makes that code page UTF-8; before, only the wide forms have them all.
#include "arguments.h"

#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>

#include <shellapi.h>

#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <string>
#include <vector>

namespace {

// What is no character (half of a surrogate pair) becomes U+FFFD.
std::string utf8(const wchar_t * wide) {
    const int size = WideCharToMultiByte(CP_UTF8, 0, wide, -1, nullptr, 0, nullptr, nullptr);
    std::string narrow(size > 0 ? size : 1, '\0');
    WideCharToMultiByte(CP_UTF8, 0, wide, -1, narrow.data(), size, nullptr, nullptr);
    narrow.pop_back(); // the null at the end
    return narrow;
}

// In the C library's table only: _putenv would take the bytes for the code page's and hand that on to child processes.
void narrow_environment() {
    for (char ** entry = _environ; entry && *entry; entry++) {
        const char * equals = strchr(*entry, '=');
        if (!equals || strncmp(*entry, "LLAMA_", 6) != 0) {
            continue;
        }
        const std::string name(*entry, equals - *entry);
        const std::wstring wide(name.begin(), name.end());
        std::wstring value(GetEnvironmentVariableW(wide.c_str(), nullptr, 0), L'\0'); // with room for a null, 0 where it is gone
        GetEnvironmentVariableW(wide.c_str(), value.data(), (DWORD) value.size());
        char * copy = value.empty() ? nullptr : _strdup((name + "=" + utf8(value.c_str())).c_str());
        if (copy) {
            *entry = copy; // what was there stays where it is, a few bytes once: it is not ours to free
        }
    }
}

}  // namespace

char ** utf8_arguments(int * argc, char ** argv) {
    static std::vector<std::string> words;
    static std::vector<char *> pointers;

    narrow_environment();
    int count = 0;
    wchar_t ** wide = CommandLineToArgvW(GetCommandLineW(), &count);
    if (!wide) {
        return argv;
    }
    for (int i = 0; i < count; i++) {
        words.push_back(utf8(wide[i]));
    }
    LocalFree(wide);
    for (std::string & word : words) {
        pointers.push_back(word.data());
    }
    pointers.push_back(nullptr);
    *argc = count;
    return pointers.data();
}
