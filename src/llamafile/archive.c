#include "archive.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The records of a zip archive: how they begin, and how long they are without what varies (bytes).
enum { LOCAL = 0x04034b50, ENTRY = 0x02014b50, END = 0x06054b50, END64 = 0x06064b50, LOCATOR64 = 0x07064b50 };
enum { LOCAL_SIZE = 30, ENTRY_SIZE = 46, END_SIZE = 22, END64_SIZE = 56, LOCATOR64_SIZE = 20, COMMENT_MOST = 65535 };

enum { ENCRYPTED = 1 << 0, SIZES_BEHIND = 1 << 3 }; // flags
enum { EXTRA_ZIP64 = 1 };
static const uint32_t IN_ZIP64 = 0xffffffff; // the value stands in the extra field

static const uint64_t DIRECTORY_MOST = 16 << 20; // bytes: far more than any llamafile has, little enough to hold

#define HOW_TO_STORE "members have to be stored and aligned, as zipalign -j0 of llamafile does it"

int archive_fail(char * err, size_t err_size, const char * format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(err, err_size, format, args);
    va_end(args);
    for (size_t i = 0; i < err_size && err[i]; i++) {
        err[i] = (unsigned char) err[i] < ' ' || err[i] == 0x7f ? '?' : err[i];
    }
    return -1;
}

static uint16_t get16(const unsigned char * at) {
    return (uint16_t) (at[0] | at[1] << 8);
}

static uint32_t get32(const unsigned char * at) {
    return get16(at) | (uint32_t) get16(at + 2) << 16;
}

static uint64_t get64(const unsigned char * at) {
    return get32(at) | (uint64_t) get32(at + 4) << 32;
}

// --- the end of the archive ---

struct end {
    uint64_t entries;
    uint64_t size, offset; // of the directory
    uint64_t at;           // the first record behind it
    bool     whole;        // not one of several volumes
};

// The record is at the very end, before a comment that says how long it is.
static const unsigned char * find_end(const unsigned char * tail, size_t len) {
    for (size_t i = len - END_SIZE + 1; i-- > 0;) {
        if (get32(tail + i) == END && get16(tail + i + 20) == len - i - END_SIZE) {
            return tail + i;
        }
    }
    return NULL;
}

static int read_end64(const struct archive_source * source, const unsigned char * locator, struct end * end, char * err, size_t err_size) {
    unsigned char record[END64_SIZE];
    const uint64_t at = get64(locator + 8);
    const uint64_t locator_at = end->at - LOCATOR64_SIZE;
    if (locator_at < END64_SIZE || at > locator_at - END64_SIZE || source->read(source->context, at, record, sizeof(record)) != 0 ||
        get32(record) != END64 || get64(record + 4) != locator_at - at - 12) {
        return archive_fail(err, err_size, "its ZIP64 end record is not where the archive says; it is damaged or was cut short");
    }
    end->whole   = get32(record + 16) == 0 && get32(record + 20) == 0 && get64(record + 24) == get64(record + 32);
    end->entries = get64(record + 32);
    end->size    = get64(record + 40);
    end->offset  = get64(record + 48);
    end->at      = at;
    return 0;
}

static int read_end(const struct archive_source * source, struct end * end, char * err, size_t err_size) {
    enum { MOST = LOCATOR64_SIZE + END_SIZE + COMMENT_MOST };
    const size_t len = source->size < MOST ? (size_t) source->size : MOST;
    int result = ARCHIVE_NONE;
    unsigned char * tail = malloc(MOST);
    if (!tail || source->read(source->context, source->size - len, tail, len) != 0) {
        result = archive_fail(err, err_size, tail ? "its end cannot be read" : "out of memory");
    } else {
        const unsigned char * at = len < END_SIZE ? NULL : find_end(tail, len);
        if (at) {
            end->whole   = get16(at + 4) == 0 && get16(at + 6) == 0 && get16(at + 8) == get16(at + 10);
            end->entries = get16(at + 10);
            end->size    = get32(at + 12);
            end->offset  = get32(at + 16);
            end->at      = source->size - len + (size_t) (at - tail);
            const bool zip64 = at - tail >= LOCATOR64_SIZE && get32(at - LOCATOR64_SIZE) == LOCATOR64;
            result = zip64 ? read_end64(source, at - LOCATOR64_SIZE, end, err, err_size) : 0;
        } else {
            archive_fail(err, err_size, "it has no end record of a zip archive at its end, so it is none, was cut short, or more was written behind it");
        }
    }
    free(tail);
    return result;
}

static int check_end(const struct end * end, char * err, size_t err_size) {
    if (!end->whole) {
        return archive_fail(err, err_size, "it is one volume of several; an archive in one file is possible");
    }
    if (end->entries == 0) {
        return archive_fail(err, err_size, "there is nothing in the archive; a llamafile holds a GGUF file");
    }
    if (end->size > DIRECTORY_MOST) {
        return archive_fail(err, err_size, "its directory is %" PRIu64 " bytes long; at most %" PRIu64 " are read", end->size, DIRECTORY_MOST);
    }
    if (end->offset > end->at || end->size > end->at - end->offset || end->entries > end->size / ENTRY_SIZE) {
        return archive_fail(err, err_size, "its directory (%" PRIu64 " members, %" PRIu64 " bytes at %" PRIu64 ") does not fit before its end at %" PRIu64 "; it is damaged or was cut short",
                            end->entries, end->size, end->offset, end->at);
    }
    return 0;
}

// --- the directory ---

// The field of the extra data that holds values of 64 bits; null where there is none.
static const unsigned char * find_zip64(const unsigned char * extra, size_t len, size_t * field) {
    for (size_t i = 0; len - i >= 4; i += 4 + *field) {
        *field = get16(extra + i + 2);
        if (*field > len - i - 4) {
            return NULL;
        }
        if (get16(extra + i) == EXTRA_ZIP64) {
            return extra + i + 4;
        }
    }
    return NULL;
}

// The values that do not fit into their 32 bits stand in the extra data, in this order. False where they are missing.
static bool from_zip64(const unsigned char * extra, size_t len, uint64_t ** values, size_t n) {
    size_t field = 0, used = 0;
    const unsigned char * at = find_zip64(extra, len, &field);
    for (size_t i = 0; i < n; i++) {
        if (*values[i] == IN_ZIP64) {
            if (!at || field - used < 8) {
                return false;
            }
            *values[i] = get64(at + used);
            used += 8;
        }
    }
    return true;
}

// One entry at `at`, of which `left` bytes are there. Returns its length, 0 where it is none.
static size_t read_entry(const unsigned char * at, size_t left, struct archive_member * member) {
    if (left < ENTRY_SIZE || get32(at) != ENTRY) {
        return 0;
    }
    const size_t name = get16(at + 28), extra = get16(at + 30), comment = get16(at + 32);
    if (name + extra + comment > left - ENTRY_SIZE || memchr(at + ENTRY_SIZE, '\0', name)) {
        return 0;
    }
    member->name   = (const char *) at + ENTRY_SIZE;
    member->flags  = get16(at + 8);
    member->method = get16(at + 10);
    member->stored = get32(at + 20);
    member->size   = get32(at + 24);
    member->header = get32(at + 42);
    uint64_t * in_order[] = { &member->size, &member->stored, &member->header };
    return from_zip64(at + ENTRY_SIZE + name, extra, in_order, 3) ? ENTRY_SIZE + name + extra + comment : 0;
}

static int read_entries(struct archive * archive, size_t size, char * err, size_t err_size) {
    size_t at = 0;
    for (size_t i = 0; i < archive->n; i++) {
        const size_t len = read_entry(archive->bytes + at, size - at, &archive->members[i]);
        if (len == 0) {
            return archive_fail(err, err_size, "entry %zu of its directory is damaged", i + 1);
        }
        at += len;
    }
    if (at != size) {
        return archive_fail(err, err_size, "its directory is %zu bytes long and its %zu entries take %zu; it is damaged", size, archive->n, at);
    }
    for (size_t i = 0; i < archive->n; i++) { // what stands behind a name has been read
        unsigned char * name = (unsigned char *) archive->members[i].name;
        name[get16(name - ENTRY_SIZE + 28)] = '\0';
    }
    return 0;
}

int archive_read(struct archive * archive, const struct archive_source * source, char * err, size_t err_size) {
    struct end end = { 0 };
    *archive = (struct archive) { 0 };
    int result = read_end(source, &end, err, err_size);
    if (result != 0 || (result = check_end(&end, err, err_size)) != 0) {
        return result;
    }
    archive->n         = (size_t) end.entries;
    archive->directory = end.offset;
    archive->bytes     = malloc((size_t) end.size + 1);
    archive->members   = calloc(archive->n, sizeof(*archive->members));
    if (!archive->bytes || !archive->members) {
        result = archive_fail(err, err_size, "out of memory");
    } else if (source->read(source->context, end.offset, archive->bytes, (size_t) end.size) != 0) {
        result = archive_fail(err, err_size, "its directory cannot be read");
    } else {
        result = read_entries(archive, (size_t) end.size, err, err_size);
    }
    if (result != 0) {
        archive_free(archive);
    }
    return result;
}

void archive_free(struct archive * archive) {
    free(archive->members);
    free(archive->bytes);
    *archive = (struct archive) { 0 };
}

// --- members by name ---

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char) (c - 'A' + 'a') : c;
}

// Does text, case aside, begin with what?
static bool begins(const char * text, const char * what) {
    for (; *what; text++, what++) {
        if (lower(*text) != *what) {
            return false;
        }
    }
    return true;
}

static bool is_model(const char * name) {
    const size_t len = strlen(name);
    return len > 5 && begins(name + len - 5, ".gguf");
}

static bool is_mmproj(const char * name) {
    for (; *name; name++) {
        if (begins(name, "mmproj")) {
            return true;
        }
    }
    return false;
}

// A part of a split model, -00002-of-00003.gguf, but the first: that one stands for all.
static bool is_later_part(const char * name) {
    static const char FORM[] = "-#####-of-#####.gguf";
    const size_t len = strlen(name), form = sizeof(FORM) - 1;
    if (len < form) {
        return false;
    }
    name += len - form;
    for (size_t i = 0; i < form; i++) {
        if (FORM[i] == '#' ? name[i] < '0' || name[i] > '9' : lower(name[i]) != FORM[i]) {
            return false;
        }
    }
    return memcmp(name + 1, "00001", 5) != 0;
}

// "a.gguf, b.gguf and 3 more": the models there are, else all members.
static const char * list(const struct archive * archive, char * text, size_t size) {
    size_t models = 0, shown = 0, used = 0;
    for (size_t i = 0; i < archive->n; i++) {
        models += is_model(archive->members[i].name);
    }
    const size_t all = models ? models : archive->n;
    text[0] = '\0';
    for (size_t i = 0; i < archive->n; i++) {
        const char * name = archive->members[i].name;
        if (models && !is_model(name)) {
            continue;
        }
        if (used + strlen(name) + 32 > size) {
            break;
        }
        used += (size_t) snprintf(text + used, size - used, "%s%s", shown ? ", " : "", name);
        shown++;
    }
    if (shown < all) {
        snprintf(text + used, size - used, "%s%zu%s", shown ? " and " : "", all - shown, shown ? " more" : " with long names");
    }
    return text;
}

const struct archive_member * archive_find(const struct archive * archive, const char * name, char * err, size_t err_size) {
    const struct archive_member * found = NULL;
    char there[256];
    for (size_t i = 0; i < archive->n; i++) {
        if (strcmp(archive->members[i].name, name) == 0) {
            if (found) {
                archive_fail(err, err_size, "%s is in the archive twice; remove one", name);
                return NULL;
            }
            found = &archive->members[i];
        }
    }
    if (!found) {
        archive_fail(err, err_size, "there is no member %s; there are: %s", name, list(archive, there, sizeof(there)));
    }
    return found;
}

const struct archive_member * archive_model(const struct archive * archive, bool mmproj, char * err, size_t err_size) {
    const struct archive_member * found = NULL;
    const char * what = mmproj ? "multimodal projector (mmproj*.gguf)" : "model (*.gguf)";
    size_t n = 0;
    char there[256];
    for (size_t i = 0; i < archive->n; i++) {
        const char * name = archive->members[i].name;
        if (is_model(name) && is_mmproj(name) == mmproj && !is_later_part(name)) {
            found = &archive->members[i];
            n++;
        }
    }
    if (n != 1) {
        archive_fail(err, err_size, n ? "it holds more than one %s, so name it, ARCHIVE@MEMBER; there are: %s"
                                      : "it holds no %s; there are: %s", what, list(archive, there, sizeof(there)));
    }
    return n == 1 ? found : NULL;
}

// --- where a member lies ---

static const char * storage_fault(const struct archive_member * member) {
    if (member->flags & ENCRYPTED) {
        return "encrypted";
    }
    return member->method != 0 ? "compressed" : NULL;
}

// Does what the local header says differ from what the directory says? Sizes may be left out there.
static bool differs(const unsigned char * local, const unsigned char * behind, const struct archive_member * member) {
    const size_t name = get16(local + 26);
    uint64_t stored = get32(local + 18), size = get32(local + 22);
    uint64_t * in_order[] = { &size, &stored };
    if (get16(local + 8) != member->method || name != strlen(member->name) || memcmp(behind, member->name, name) != 0) {
        return true;
    }
    if (!from_zip64(behind + name, get16(local + 28), in_order, 2)) {
        return true;
    }
    return !(get16(local + 6) & SIZES_BEHIND) && (stored != member->stored || size != member->size);
}

static uint64_t sum(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

// Another member that lies where this one does, [header, end), by what the directory says of it; null where none does.
static const struct archive_member * overlapping(const struct archive * archive, const struct archive_member * member, uint64_t end) {
    for (size_t i = 0; i < archive->n; i++) {
        const struct archive_member * other = &archive->members[i];
        const uint64_t other_end = sum(other->header, sum(LOCAL_SIZE + strlen(other->name), other->stored));
        if (other != member && other->header < end && other_end > member->header) {
            return other;
        }
    }
    return NULL;
}

int archive_locate(const struct archive * archive, const struct archive_source * source, const struct archive_member * member,
                   uint64_t * offset, char * err, size_t err_size) {
    unsigned char local[LOCAL_SIZE + 2 * 65535]; // with the longest name and extra field
    const char * name  = member->name;
    const char * fault = storage_fault(member);
    if (fault) {
        return archive_fail(err, err_size, "%s is %s; " HOW_TO_STORE, name, fault);
    }
    if (member->header > archive->directory || archive->directory - member->header < LOCAL_SIZE) {
        return archive_fail(err, err_size, "%s begins at %" PRIu64 ", beyond the members, which end at %" PRIu64 "; it is damaged or was cut short",
                            name, member->header, archive->directory);
    }
    const uint64_t room = archive->directory - member->header; // for all that belongs to the member
    if (source->read(source->context, member->header, local, LOCAL_SIZE) != 0 || get32(local) != LOCAL) {
        return archive_fail(err, err_size, "%s is not where the directory says; it is damaged", name);
    }
    const size_t behind = (size_t) get16(local + 26) + get16(local + 28);
    if (behind > room - LOCAL_SIZE || member->stored > room - LOCAL_SIZE - behind) {
        return archive_fail(err, err_size, "%s has %" PRIu64 " bytes and does not fit before the end of the members at %" PRIu64 "; it is damaged or was cut short",
                            name, member->stored, archive->directory);
    }
    if (source->read(source->context, member->header + LOCAL_SIZE, local + LOCAL_SIZE, behind) != 0 ||
        member->stored != member->size || differs(local, local + LOCAL_SIZE, member)) {
        return archive_fail(err, err_size, "%s has another name or size in front of it than in the directory; it is damaged", name);
    }
    *offset = member->header + LOCAL_SIZE + behind;
    const struct archive_member * other = overlapping(archive, member, *offset + member->stored);
    if (other) {
        return archive_fail(err, err_size, "%s and %s overlap; it is damaged", name, other->name);
    }
    return 0;
}

int archive_locate_model(const struct archive * archive, const struct archive_source * source,
                         const struct archive_member * member, uint64_t * offset, char * err, size_t err_size) {
    char magic[4];
    if (archive_locate(archive, source, member, offset, err, err_size) != 0) {
        return -1;
    }
    if (member->size < sizeof(magic) || source->read(source->context, *offset, magic, sizeof(magic)) != 0 || memcmp(magic, "GGUF", 4) != 0) {
        return archive_fail(err, err_size, "%s is no GGUF file; GGUF files can be loaded", member->name);
    }
    if (*offset % ARCHIVE_ALIGN != 0) {
        return archive_fail(err, err_size, "%s begins at %" PRIu64 ", which is no multiple of %d; " HOW_TO_STORE, member->name, *offset, ARCHIVE_ALIGN);
    }
    return 0;
}
