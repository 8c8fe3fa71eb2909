#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include "os.h"

#include <sys/stat.h>

bool llamafile_os_is_file(const char * name) {
    struct stat info;
    return stat(name, &info) == 0 && S_ISREG(info.st_mode);
}

FILE * llamafile_os_open(const char * name) {
    return fopen(name, "rbe");
}

bool llamafile_os_is_long(const char * name) {
    (void) name;
    return false;
}

int llamafile_os_seek(FILE * file, uint64_t offset) {
    return offset > INT64_MAX ? -1 : fseeko(file, (off_t) offset, SEEK_SET);
}

int64_t llamafile_os_size(FILE * file) {
    struct stat info;
    return fstat(fileno(file), &info) == 0 ? (int64_t) info.st_size : -1;
}
