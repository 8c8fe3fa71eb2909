// What the reader of archives needs of the operating system; one implementation per OS (os_linux.c, os_windows.c). Names
// are UTF-8.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// Is it an ordinary file (no folder, pipe or device)?
bool llamafile_os_is_file(const char * name);

// Open for reading; null, with errno set, where that fails.
FILE * llamafile_os_open(const char * name);

// Is the name longer than fopen takes it?
bool llamafile_os_is_long(const char * name);

// Go to an offset, in bytes from the start; 0, or not. And the size of the file in bytes; -1 where it is unknown.
int     llamafile_os_seek(FILE * file, uint64_t offset);
int64_t llamafile_os_size(FILE * file);
