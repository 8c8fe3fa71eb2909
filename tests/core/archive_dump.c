// Prints what the reader of archives makes of names: archive_dump COMMAND NAME..., a line for each name.
#include "llamafile.h"

#include <stdlib.h>
#include <string.h>

static void look(const char * name, enum llamafile_kind kind) {
    struct llamafile_member member;
    char err[1024] = "";
    switch (llamafile_look(name, kind, &member, err, sizeof(err))) {
        case LLAMAFILE_BAD:     printf("bad %s\n", err); break;
        case LLAMAFILE_UNKNOWN: printf("unknown %s\n", err); break;
        case LLAMAFILE_PLAIN:   printf("plain\n"); break;
        case LLAMAFILE_INSIDE:
            printf("inside %s %llu %llu\n", member.name + member.archive, (unsigned long long) member.offset, (unsigned long long) member.size);
    }
    llamafile_free(&member);
}

// The first bytes from where the stream stands.
static void open_it(const char * name) {
    char text[9] = "";
    FILE * file = llamafile_open(name, "rb");
    printf("%s\n", !file ? "null" : fread(text, 1, 8, file) > 0 ? text : "empty");
    if (file) {
        fclose(file);
    }
}

static void args(const char * name) {
    char err[1024] = "";
    char * text = llamafile_args_text(name, err, sizeof(err));
    for (char * at = text; at && *at; at++) {
        *at = *at == '\n' ? '|' : *at;
    }
    printf("%s%s\n", text ? "text " : "bad ", text ? text : err);
    free(text);
}

// Names that no command line of Windows brings along as they are: the lines of a file.
static void open_listed(const char * file) {
    char name[1024];
    FILE * list = fopen(file, "rb");
    while (list && fgets(name, sizeof(name), list)) {
        name[strcspn(name, "\n")] = '\0';
        open_it(name);
    }
    if (list) {
        fclose(list);
    }
}

int main(int argc, char ** argv) {
    for (int i = 2; i < argc; i++) {
        const char * command = argv[1];
        if (strcmp(command, "look") == 0) {
            look(argv[i], LLAMAFILE_MODEL);
        } else if (strcmp(command, "mmproj") == 0) {
            look(argv[i], LLAMAFILE_MMPROJ);
        } else if (strcmp(command, "open") == 0) {
            open_it(argv[i]);
        } else if (strcmp(command, "list") == 0) {
            open_listed(argv[i]);
        } else if (strcmp(command, "args") == 0) {
            args(argv[i]);
        } else {
            printf("%zu\n", llamafile_path_length(argv[i]));
        }
    }
    return 0;
}
