#include "core.h"

void numa_json_string(FILE * to, const char * text) {
    fputc('"', to);
    for (const unsigned char * c = (const unsigned char *) text; *c; c++) {
        if (*c == '"' || *c == '\\') {
            fprintf(to, "\\%c", *c);
        } else if (*c < 0x20) {
            fprintf(to, "\\u%04x", *c);
        } else {
            fputc(*c, to);
        }
    }
    fputc('"', to);
}
