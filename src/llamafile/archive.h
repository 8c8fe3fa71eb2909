// Reads zip archives as llamafiles are: members are found through the central directory and nothing else, since the space
// between them may hold anything (an executable, members that were replaced). Any bytes are an archive or refused with one
// line; nothing is unpacked.
//
// Functions that can fail return 0, or a negative value with the reason in err (size err_size), which says what is wrong
// and what is possible instead, but not which file it is: the caller puts that in front.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARCHIVE_NONE (-2) // there is no end of a central directory: not a zip archive at all, or not all of it

// Where the bytes of an archive come from. read: 0, or not; it is not called beyond size.
struct archive_source {
    int (*read)(void * context, uint64_t offset, void * to, size_t bytes);
    void *   context;
    uint64_t size; // bytes
};

// What the central directory says of a member. Sizes are in bytes.
struct archive_member {
    const char * name;   // as written, except that it ends with a NUL; may hold any other byte
    uint64_t     header; // offset of the local header
    uint64_t     stored; // what it takes in the archive
    uint64_t     size;   // what it is unpacked
    uint16_t     method; // 0: stored
    uint16_t     flags;
};

struct archive {
    struct archive_member * members;
    size_t                  n;         // at least 1
    uint64_t                directory; // its offset: members lie before it
    unsigned char *         bytes;     // of the directory
};

// Read the central directory. Where it succeeds archive_free is due.
int  archive_read(struct archive * archive, const struct archive_source * source, char * err, size_t err_size);
void archive_free(struct archive * archive);

// The member of this name; null, with the reason, where there is none or more than one.
const struct archive_member * archive_find(const struct archive * archive, const char * name, char * err, size_t err_size);

// The only model there is: of the members named *.gguf the one whose name says (mmproj), or does not say, that it is a
// multimodal projector. A split model counts as one, and is its first part. Null, with the reason, where there is none or
// more than one.
const struct archive_member * archive_model(const struct archive * archive, bool mmproj, char * err, size_t err_size);

// Where the bytes of a stored member begin, from the start of the archive. Refuses what is compressed or encrypted, and
// what does not lie in the archive as the directory says, or overlaps another member.
int archive_locate(const struct archive * archive, const struct archive_source * source, const struct archive_member * member,
                   uint64_t * offset, char * err, size_t err_size);

// The same for a model, which has to be a GGUF file, at a multiple of ARCHIVE_ALIGN.
int archive_locate_model(const struct archive * archive, const struct archive_source * source,
                         const struct archive_member * member, uint64_t * offset, char * err, size_t err_size);

// Tensors are used where they lie in the mapped archive, and have to be aligned there as ggml's CPU buffers are.
#define ARCHIVE_ALIGN 32

// Write one line to err, cut to its size, without line breaks or other control characters. Returns -1.
__attribute__((format(printf, 3, 4))) int archive_fail(char * err, size_t err_size, const char * format, ...);
