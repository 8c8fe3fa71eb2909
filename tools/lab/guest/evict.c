// evict FILE: drop the file's cached pages, but for those that a process has mapped.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char ** argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: evict FILE\n");
        return 2;
    }
    const int file  = open(argv[1], O_RDONLY);
    const int error = file < 0 ? errno : posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    if (error) {
        fprintf(stderr, "evict: %s: %s\n", argv[1], strerror(error));
        return 1;
    }
    return 0;
}
