// Weights inside a .llamafile, or any zip archive that stores them: a model file may be named ARCHIVE@MEMBER, or ARCHIVE
// alone where there is only one model in it. It is used where it lies; nothing is unpacked.
//
// This is all that llama.cpp and the program see of it. A file that really has a name with @ in it is that file.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// How the symbols leave a shared library; set by the build.
#ifndef LLAMAFILE_API
#define LLAMAFILE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// --- for llama.cpp's hooks ---

// The archive, open for reading and at the first byte of the member, or an ordinary file whose name is longer than fopen
// takes it; null for other names, or where the mode is not "rb": the caller then opens the file as ever. Null as well where
// the archive is bad; why stands on stderr then.
LLAMAFILE_API FILE * llamafile_open(const char * name, const char * mode);

// How much of the name is the file to open: ARCHIVE of ARCHIVE@MEMBER, else all of it. In bytes.
LLAMAFILE_API size_t llamafile_path_length(const char * name);

// --- for the program ---

enum llamafile_kind {
    LLAMAFILE_MODEL,  // where no member is named: the one that is no multimodal projector
    LLAMAFILE_MMPROJ, // the one that is
};

enum llamafile_found {
    LLAMAFILE_BAD = -1,     // an archive that cannot be used, or no such member: why stands in err
    LLAMAFILE_PLAIN,        // no member: a GGUF file, or there is no such file
    LLAMAFILE_INSIDE,       // a member
    LLAMAFILE_UNKNOWN,      // a file that is neither a GGUF file nor a zip archive
};

struct llamafile_member {
    char *   name;    // ARCHIVE@MEMBER; null where it is none
    size_t   archive; // length of ARCHIVE in it
    uint64_t offset;  // where the member begins and how long it is, in bytes
    uint64_t size;
};

// What a name stands for. *member is to be given to llamafile_free. err gets one line that begins with the archive.
LLAMAFILE_API enum llamafile_found llamafile_look(const char * name, enum llamafile_kind kind, struct llamafile_member * member, char * err, size_t err_size);
LLAMAFILE_API void llamafile_free(struct llamafile_member * member);

// The member .args of an archive: its text, to be freed; an empty text where it has none. Null, with a line in err, where
// it cannot be used.
LLAMAFILE_API char * llamafile_args_text(const char * archive, char * err, size_t err_size);

#ifdef __cplusplus
}
#endif
