#include "os.h"

#include "path_windows.h"

#include <io.h>

bool llamafile_os_is_file(const char * name) {
    return path_is_file(name);
}

FILE * llamafile_os_open(const char * name) {
    return path_open(name, L"rbN");
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
