// libFuzzer target: any bytes are an archive, whose members lie in it, or are refused with one line.
#include "archive.h"
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bytes {
    const uint8_t * at;
    size_t          size;
};

static int read_bytes(void * context, uint64_t offset, void * to, size_t bytes) {
    const struct bytes * all = context;
    HOLDS(offset <= all->size && bytes <= all->size - offset);
    memcpy(to, all->at + offset, bytes);
    return 0;
}

static bool one_line(const char * text) {
    for (; *text; text++) {
        if ((unsigned char) *text < ' ' || *text == 0x7f) {
            return false;
        }
    }
    return true;
}

static char * err;
static size_t err_size;

static void refused(void) {
    HOLDS((err[0] || err_size == 1) && memchr(err, 0, err_size) && one_line(err));
    err[0] = '\0';
}

static void check_member(const struct archive * archive, const struct archive_source * source, const struct archive_member * member) {
    uint64_t offset;
    HOLDS(strlen(member->name) < source->size);
    if (archive_locate(archive, source, member, &offset, err, err_size) != 0) {
        refused();
    } else {
        HOLDS(member->method == 0 && member->size == member->stored && member->header < offset);
        HOLDS(offset <= archive->directory && member->size <= archive->directory - offset);
    }
    if (archive_locate_model(archive, source, member, &offset, err, err_size) != 0) {
        refused();
    } else {
        HOLDS(offset % ARCHIVE_ALIGN == 0 && member->size >= 4 && memcmp(((struct bytes *) source->context)->at + offset, "GGUF", 4) == 0);
    }
    const struct archive_member * found = archive_find(archive, member->name, err, err_size);
    if (found) {
        HOLDS(found == member);
    } else {
        refused();
    }
}

static void check_archive(const struct archive * archive, const struct archive_source * source) {
    HOLDS(archive->n > 0 && archive->directory < source->size);
    for (size_t i = 0; i < archive->n; i++) {
        check_member(archive, source, &archive->members[i]);
    }
    for (int mmproj = 0; mmproj < 2; mmproj++) {
        const struct archive_member * model = archive_model(archive, mmproj, err, err_size);
        if (!model) {
            refused();
        } else {
            HOLDS(strlen(model->name) > 5);
        }
    }
    HOLDS(!archive_find(archive, "no such member", err, err_size) || source->size > 60);
    err[0] = '\0';
}

int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    struct bytes bytes = { data, size };
    const struct archive_source source = { read_bytes, &bytes, size };
    struct archive archive;
    err_size = size % 5 == 0 ? 1 + size % 64 : 512;
    err = calloc(err_size, 1);
    HOLDS(err);
    const int result = archive_read(&archive, &source, err, err_size);
    if (result == 0) {
        check_archive(&archive, &source);
        archive_free(&archive);
    } else {
        refused();
    }
    HOLDS(!archive.members && !archive.bytes);
    free(err);
    return 0;
}
