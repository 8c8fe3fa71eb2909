// node_set_dump list|mask [SIZE]: parse standard input, print the list form of it, cut to SIZE bytes.
// Exit code 1 where it does not parse, 3 where it then left something in the set.
#include "node_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char ** argv) {
    static char text[1 << 16];
    static char out[1 << 16];
    struct node_set set;
    memset(&set, 0xff, sizeof(set));
    const size_t len  = fread(text, 1, sizeof(text), stdin);
    const size_t size = argc > 2 ? (size_t) atoi(argv[2]) : sizeof(out);
    char * exact = malloc(len ? len : 1); // the sanitizer sees a read past the end
    char * cut   = malloc(size ? size : 1);
    if (argc < 2 || !exact || !cut) {
        return 2;
    }
    memcpy(exact, text, len);
    const int status = (argv[1][0] == 'm' ? node_set_parse_mask : node_set_parse_list)(exact, len, &set);
    if (status == 0 && node_set_format(&set, cut, size) == cut && size > 0) {
        puts(cut);
    }
    free(exact);
    free(cut);
    return status == 0 ? 0 : node_set_empty(&set) ? 1 : 3;
}
