// libFuzzer target: any bytes are a list and a mask, parsed or refused.
#include "node_set.h"
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int parser(const char * text, size_t len, struct node_set * set);

static bool equal(const struct node_set * a, const struct node_set * b) {
    return memcmp(a, b, sizeof(*a)) == 0;
}

static void check_members(const struct node_set * set) {
    int count = 0;
    for (int i = node_set_next(set, 0); i >= 0; i = node_set_next(set, i + 1)) {
        HOLDS(i < NODE_SET_MAX && node_set_has(set, i));
        count++;
    }
    HOLDS(count == node_set_count(set) && (count == 0) == node_set_empty(set));
}

static void check_list_form(const struct node_set * set, size_t size) {
    static char full[NODE_SET_MAX * 5 + 1]; // "8191,": no number takes more
    struct node_set again;
    HOLDS(node_set_format(set, full, sizeof(full)) == full);
    const size_t len = strlen(full);
    HOLDS(node_set_parse_list(full, len, &again) == 0 && equal(set, &again));

    char * cut = malloc(size);
    HOLDS(cut && node_set_format(set, cut, size) == cut && strlen(cut) < size);
    if (len < size) {
        HOLDS(strcmp(cut, full) == 0);
    } else if (size > 3) {
        char * more = cut + strlen(cut) - 3;
        HOLDS(strcmp(more, "...") == 0);
        if (more > cut) { // whole ranges of the set stand before it
            HOLDS(more[-1] == ',' && strncmp(cut, full, (size_t) (more - cut)) == 0);
        }
    }
    free(cut);
}

static void check_mask_form(const struct node_set * set) {
    char text[NODE_SET_MAX / 32 * 9 + 1];
    struct node_set again;
    size_t len = 0;
    int word   = NODE_SET_MAX / 32 - 1;
    while (word > 0 && node_set_next(set, word * 32) < 0) {
        word--;
    }
    for (; word >= 0; word--) {
        const unsigned bits = (unsigned) (set->word[word / 2] >> (word % 2 * 32));
        len += (size_t) snprintf(text + len, sizeof(text) - len, "%08x%s", bits, word ? "," : "");
    }
    HOLDS(node_set_parse_mask(text, len, &again) == 0 && equal(set, &again));
}

static void check_refused_with_more(parser * parse, const char * text, size_t len) {
    struct node_set set;
    char * longer = malloc(len + 1);
    HOLDS(longer);
    memcpy(longer, text, len);
    longer[len] = 'x';
    HOLDS(parse(longer, len + 1, &set) == -1 && node_set_empty(&set));
    free(longer);
}

static void check(parser * parse, const char * text, size_t len) {
    struct node_set set;
    memset(&set, 0xff, sizeof(set));
    if (parse(text, len, &set) != 0) {
        HOLDS(node_set_empty(&set));
        return;
    }
    check_members(&set);
    check_list_form(&set, len + 1);
    check_mask_form(&set);
    check_refused_with_more(parse, text, len);
}

int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    check(node_set_parse_list, (const char *) data, size);
    check(node_set_parse_mask, (const char *) data, size);
    return 0;
}
