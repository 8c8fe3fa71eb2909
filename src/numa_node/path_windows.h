// Names of files, as Windows takes them.
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <wchar.h>

// The name, which is UTF-8, in UTF-16; to be freed. Null, with errno set, where it is no UTF-8 or memory is short. One that
// has 260 characters or more, from the drive on, is written as \\?\C:\..., which Windows takes at any length, whether or not
// long paths have been allowed: learn.microsoft.com/windows/win32/fileio/maximum-file-path-limitation
wchar_t * path_wide(const char * name);

// Is it so long?
bool path_is_long(const char * name);

// Is it an ordinary file (no folder, pipe or device)?
bool path_is_file(const char * name);

// Open it as fopen would; null, with errno set, where that fails.
FILE * path_open(const char * name, const wchar_t * mode);
