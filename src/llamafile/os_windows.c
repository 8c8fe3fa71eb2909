#include "os.h"

#include "path_windows.h"

#include <io.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <wchar.h>
#include <windows.h>

bool llamafile_os_is_file(const char * name) {
    wchar_t * text = path_wide(name);
    const DWORD found = text ? GetFileAttributesW(text) : INVALID_FILE_ATTRIBUTES;
    free(text);
    return found != INVALID_FILE_ATTRIBUTES && !(found & (FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_DEVICE));
}

FILE * llamafile_os_open(const char * name) {
    wchar_t * text = path_wide(name);
    FILE * file    = text ? _wfopen(text, L"rbN") : NULL;
    free(text);
    return file;
}

bool llamafile_os_is_long(const char * name) {
    return path_is_long(name);
}

int llamafile_os_seek(FILE * file, uint64_t offset) {
    return offset > INT64_MAX ? -1 : _fseeki64(file, (int64_t) offset, SEEK_SET);
}

int64_t llamafile_os_size(FILE * file) {
    return _filelengthi64(_fileno(file));
}
