#include "archive.h"
#include "llamafile.h"
#include "os.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t ARGS_MOST = 64 << 10; // bytes

static int read_file(void * context, uint64_t offset, void * to, size_t bytes) {
    return llamafile_os_seek(context, offset) == 0 && fread(to, 1, bytes, context) == bytes ? 0 : -1;
}

// The first bytes of the name as a text of its own, to be freed; null where there is no memory for it.
static char * first(const char * name, size_t len) {
    char * text = malloc(len + 1);
    if (text) {
        memcpy(text, name, len);
        text[len] = '\0';
    }
    return text;
}

size_t llamafile_path_length(const char * name) {
    if (llamafile_os_is_file(name)) {
        return strlen(name);
    }
    for (const char * at = name; (at = strchr(at, '@')) != NULL; at++) { // either part may have an @ in its name
        char * archive = first(name, (size_t) (at - name));
        const bool is_file = archive && llamafile_os_is_file(archive);
        free(archive);
        if (is_file) {
            return (size_t) (at - name);
        }
    }
    return strlen(name);
}

// --- an open archive ---

struct opened {
    char *                path;
    FILE *                file;
    struct archive_source source;
    struct archive        archive;
};

static void close_archive(struct opened * opened) {
    archive_free(&opened->archive);
    if (opened->file) {
        fclose(opened->file);
    }
    free(opened->path);
    *opened = (struct opened) { 0 };
}

// Errors are LLAMAFILE_BAD or LLAMAFILE_UNKNOWN, with the reason, without the path, in err; close_archive is due in any case.
// LLAMAFILE_PLAIN: it is a GGUF file.
static enum llamafile_found open_archive(struct opened * opened, const char * name, size_t len, char * err, size_t err_size) {
    char magic[4] = "";
    *opened = (struct opened) { .path = first(name, len) };
    opened->file = opened->path ? llamafile_os_open(opened->path) : NULL;
    const int64_t size = opened->file ? llamafile_os_size(opened->file) : -1;
    if (size < 0) {
        return (enum llamafile_found) archive_fail(err, err_size, "it cannot be opened: %s", strerror(errno));
    }
    opened->source = (struct archive_source) { read_file, opened->file, (uint64_t) size };
    if (size >= 4 && read_file(opened->file, 0, magic, sizeof(magic)) == 0 && memcmp(magic, "GGUF", 4) == 0) {
        return LLAMAFILE_PLAIN;
    }
    const int result = archive_read(&opened->archive, &opened->source, err, err_size);
    return result == 0 ? LLAMAFILE_INSIDE : result == ARCHIVE_NONE ? LLAMAFILE_UNKNOWN : LLAMAFILE_BAD;
}

// --- members ---

static const char * without_zip(const char * name) {
    return strncmp(name, "/zip/", 5) == 0 ? name + 5 : name; // what llamafile calls its own members
}

static enum llamafile_found take_member(struct llamafile_member * member, const struct opened * opened, const struct archive_member * found,
                                        uint64_t offset, char * err, size_t err_size) {
    const size_t len = strlen(opened->path), size = len + strlen(found->name) + 2;
    *member = (struct llamafile_member) { .name = malloc(size), .archive = len, .offset = offset, .size = found->size };
    if (!member->name) {
        return (enum llamafile_found) archive_fail(err, err_size, "out of memory");
    }
    snprintf(member->name, size, "%s@%s", opened->path, found->name);
    return LLAMAFILE_INSIDE;
}

// The member that the name asks for, in an open archive.
static enum llamafile_found find_member(const struct opened * opened, const char * wanted, enum llamafile_kind kind,
                                        struct llamafile_member * member, char * err, size_t err_size) {
    uint64_t offset;
    const struct archive_member * found = wanted ? archive_find(&opened->archive, without_zip(wanted), err, err_size)
                                                 : archive_model(&opened->archive, kind == LLAMAFILE_MMPROJ, err, err_size);
    if (!found || archive_locate_model(&opened->archive, &opened->source, found, &offset, err, err_size) != 0) {
        return LLAMAFILE_BAD;
    }
    return take_member(member, opened, found, offset, err, err_size);
}

// "ARCHIVE: reason"
static void put_in_front(const char * archive, size_t len, char * err, size_t err_size) {
    char reason[1024];
    snprintf(reason, sizeof(reason), "%s", err);
    archive_fail(err, err_size, "%.*s: %s", (int) len, archive, reason);
}

enum llamafile_found llamafile_look(const char * name, enum llamafile_kind kind, struct llamafile_member * member, char * err, size_t err_size) {
    struct opened opened;
    const size_t len = llamafile_path_length(name);
    const char * wanted = name[len] == '@' ? name + len + 1 : NULL;
    *member = (struct llamafile_member) { 0 };
    if (!wanted && !llamafile_os_is_file(name)) {
        return LLAMAFILE_PLAIN;
    }
    enum llamafile_found result = open_archive(&opened, name, len, err, err_size);
    if (result == LLAMAFILE_INSIDE) {
        result = find_member(&opened, wanted, kind, member, err, err_size);
    } else if (result == LLAMAFILE_PLAIN && wanted) {
        result = (enum llamafile_found) archive_fail(err, err_size, "it is a GGUF file and has no member %s; it can be given alone", wanted);
    } else if (result == LLAMAFILE_UNKNOWN && wanted) {
        result = LLAMAFILE_BAD;
    }
    if (result == LLAMAFILE_BAD || result == LLAMAFILE_UNKNOWN) {
        put_in_front(name, len, err, err_size);
    }
    close_archive(&opened);
    return result;
}

void llamafile_free(struct llamafile_member * member) {
    free(member->name);
    *member = (struct llamafile_member) { 0 };
}

FILE * llamafile_open(const char * name, const char * mode) {
    struct llamafile_member member;
    char err[1024];
    FILE * file = NULL;
    if (strcmp(mode, "rb") != 0) {
        return NULL;
    }
    const enum llamafile_found found = llamafile_look(name, LLAMAFILE_MODEL, &member, err, sizeof(err));
    if (found == LLAMAFILE_INSIDE) {
        member.name[member.archive] = '\0';
        file = llamafile_os_open(member.name);
        if (file && llamafile_os_seek(file, member.offset) != 0) {
            fclose(file);
            file = NULL;
        }
    } else if (found == LLAMAFILE_PLAIN && llamafile_os_is_long(name)) {
        file = llamafile_os_open(name);
    } else if (found == LLAMAFILE_BAD) {
        fprintf(stderr, "llamafile-numa: error: %s\n", err);
    }
    llamafile_free(&member);
    return file;
}

// --- .args ---

static bool has_args(const struct archive * archive) {
    for (size_t i = 0; i < archive->n; i++) {
        if (strcmp(archive->members[i].name, ".args") == 0) {
            return true;
        }
    }
    return false;
}

static int read_args(const struct opened * opened, char * text, char * err, size_t err_size) {
    uint64_t offset;
    const struct archive_member * args = archive_find(&opened->archive, ".args", err, err_size);
    if (!args || archive_locate(&opened->archive, &opened->source, args, &offset, err, err_size) != 0) {
        return -1;
    }
    if (args->size > ARGS_MOST) {
        return archive_fail(err, err_size, ".args has %" PRIu64 " bytes; at most %" PRIu64 " are read", args->size, ARGS_MOST);
    }
    if (opened->source.read(opened->source.context, offset, text, (size_t) args->size) != 0) {
        return archive_fail(err, err_size, ".args cannot be read");
    }
    if (strlen(text) != args->size) {
        return archive_fail(err, err_size, ".args is no text; one argument a line is possible");
    }
    if (strncmp(text, "\xEF\xBB\xBF", 3) == 0) { // as some editors of Windows begin a text
        memmove(text, text + 3, strlen(text + 3) + 1);
    }
    return 0;
}

char * llamafile_args_text(const char * archive, char * err, size_t err_size) {
    struct opened opened;
    char * text = calloc((size_t) ARGS_MOST + 1, 1);
    const enum llamafile_found found = open_archive(&opened, archive, strlen(archive), err, err_size);
    int result = found == LLAMAFILE_INSIDE ? 0 : -1;
    if (!text || found == LLAMAFILE_PLAIN) {
        result = archive_fail(err, err_size, text ? "it is no archive" : "out of memory");
    } else if (result == 0 && has_args(&opened.archive)) {
        result = read_args(&opened, text, err, err_size);
    }
    if (result != 0) {
        put_in_front(archive, strlen(archive), err, err_size);
        free(text);
        text = NULL;
    }
    close_archive(&opened);
    return text;
}
