#include "core.h"

#include <stdarg.h>
#include <stdlib.h>

enum { FIRST_ROOM = 2048 };

// Room for `more` characters and a null; false, and the text is gone, where there is no memory for it.
static bool make_room(struct numa_text * text, size_t more) {
    if (text->used + more < text->room) {
        return true;
    }
    const size_t room = 2 * (text->used + more) + FIRST_ROOM;
    char * chars      = text->failed ? NULL : realloc(text->chars, room);
    if (!chars) {
        numa_text_free(text);
        text->failed = true;
        return false;
    }
    text->chars = chars;
    text->room  = room;
    return true;
}

void numa_text_add(struct numa_text * text, const char * format, ...) {
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length > 0 && make_room(text, (size_t) length)) {
        va_start(args, format);
        vsnprintf(text->chars + text->used, (size_t) length + 1, format, args);
        va_end(args);
        text->used += (size_t) length;
    }
}

void numa_text_free(struct numa_text * text) {
    free(text->chars);
    *text = (struct numa_text) { 0 };
}

void numa_text_json(struct numa_text * to, const char * text) {
    numa_text_add(to, "\"");
    for (const unsigned char * c = (const unsigned char *) text; *c; c++) {
        const char * format = *c == '"' || *c == '\\' ? "\\%c" : *c < 0x20 ? "\\u%04x" : "%c";
        numa_text_add(to, format, *c);
    }
    numa_text_add(to, "\"");
}

void numa_json_string(FILE * to, const char * text) {
    struct numa_text quoted = { 0 };
    numa_text_json(&quoted, text);
    fputs(quoted.failed ? "\"\"" : quoted.chars, to);
    numa_text_free(&quoted);
}
