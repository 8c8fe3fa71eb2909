#include "path_windows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

static wchar_t * room(size_t characters) {
    wchar_t * text = malloc(characters * sizeof(*text));
    if (!text) {
        errno = ENOMEM;
    }
    return text;
}

static wchar_t * utf16(const char * name) {
    const int size = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, name, -1, NULL, 0); // with the null at the end
    if (size <= 0) {
        errno = EINVAL;
        return NULL;
    }
    wchar_t * text = room((size_t) size);
    if (text) {
        MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, name, -1, text, size);
    }
    return text;
}

static bool begins(const wchar_t * text, const wchar_t * with) {
    return wcsncmp(text, with, wcslen(with)) == 0;
}

// From the drive on, behind room for a prefix: \\?\ is taken as it is, without . and .. and / being looked at. Null where the
// name is no longer than any call takes it, or is written like that already.
static wchar_t * whole(const wchar_t * name, size_t prefix) {
    const DWORD size = begins(name, L"\\\\?\\") ? 0 : GetFullPathNameW(name, 0, NULL, NULL); // with the null
    wchar_t * text   = size > MAX_PATH ? room(prefix + size) : NULL;
    if (text) {
        GetFullPathNameW(name, size, text + prefix, NULL);
    }
    return text;
}

wchar_t * path_wide(const char * name) {
    static const wchar_t DRIVE[] = L"\\\\?\\", SERVER[] = L"\\\\?\\UNC";
    enum { PREFIX = sizeof(SERVER) / sizeof(*SERVER) - 1 };
    wchar_t * text = utf16(name);
    wchar_t * full = text ? whole(text, PREFIX) : NULL;
    if (!full) {
        return text;
    }
    free(text);
    const bool server      = begins(full + PREFIX, L"\\\\"); // \\server\share becomes \\?\UNC\server\share
    const wchar_t * prefix = server ? SERVER : DRIVE;
    const size_t len       = wcslen(prefix), rest = wcslen(full + PREFIX + server) + 1;
    memmove(full + len, full + PREFIX + server, rest * sizeof(*full));
    memcpy(full, prefix, len * sizeof(*full));
    return full;
}

bool path_is_long(const char * name) {
    wchar_t * text      = path_wide(name);
    const bool long_one = text && begins(text, L"\\\\?\\");
    free(text);
    return long_one;
}

bool path_is_file(const char * name) {
    wchar_t * text    = path_wide(name);
    const DWORD found = text ? GetFileAttributesW(text) : INVALID_FILE_ATTRIBUTES;
    free(text);
    return found != INVALID_FILE_ATTRIBUTES && !(found & (FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_DEVICE));
}

FILE * path_open(const char * name, const wchar_t * mode) {
    wchar_t * text  = path_wide(name);
    FILE * file     = text ? _wfopen(text, mode) : NULL;
    const int error = errno;
    free(text);
    errno = error;
    return file;
}
