#include "os.h"

#include <errno.h>
#include <io.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <wchar.h>
#include <windows.h>

// To be freed. Null where the name is no UTF-8.
static wchar_t * wide(const char * name) {
    const int len = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, name, -1, NULL, 0);
    wchar_t * text = len > 0 ? malloc((size_t) len * sizeof(*text)) : NULL;
    if (text) {
        MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, name, -1, text, len);
    }
    return text;
}

bool llamafile_os_is_file(const char * name) {
    wchar_t * text = wide(name);
    const DWORD found = text ? GetFileAttributesW(text) : INVALID_FILE_ATTRIBUTES;
    free(text);
    return found != INVALID_FILE_ATTRIBUTES && !(found & (FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_DEVICE));
}

FILE * llamafile_os_open(const char * name) {
    wchar_t * text = wide(name);
    FILE * file = text ? _wfopen(text, L"rbN") : NULL;
    if (!text) {
        errno = EINVAL;
    }
    free(text);
    return file;
}

int llamafile_os_seek(FILE * file, uint64_t offset) {
    return offset > INT64_MAX ? -1 : _fseeki64(file, (int64_t) offset, SEEK_SET);
}

int64_t llamafile_os_size(FILE * file) {
    return _filelengthi64(_fileno(file));
}
