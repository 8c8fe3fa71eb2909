#include "node_set.h"

#include <stdio.h>
#include <string.h>

enum { BITS = 64, WORDS = NODE_SET_MAX / BITS };

void node_set_clear(struct node_set * set) {
    memset(set, 0, sizeof(*set));
}

static bool possible(int number) {
    return number >= 0 && number < NODE_SET_MAX;
}

static uint64_t bit(int number) {
    return UINT64_C(1) << (number % BITS);
}

void node_set_add(struct node_set * set, int number) {
    if (possible(number)) {
        set->word[number / BITS] |= bit(number);
    }
}

void node_set_remove(struct node_set * set, int number) {
    if (possible(number)) {
        set->word[number / BITS] &= ~bit(number);
    }
}

bool node_set_has(const struct node_set * set, int number) {
    return possible(number) && (set->word[number / BITS] & bit(number)) != 0;
}

int node_set_count(const struct node_set * set) {
    int count = 0;
    for (int i = 0; i < WORDS; i++) {
        count += __builtin_popcountll(set->word[i]);
    }
    return count;
}

bool node_set_empty(const struct node_set * set) {
    return node_set_next(set, 0) < 0;
}

bool node_set_within(const struct node_set * inner, const struct node_set * outer) {
    for (int i = 0; i < WORDS; i++) {
        if (inner->word[i] & ~outer->word[i]) {
            return false;
        }
    }
    return true;
}

void node_set_intersect(struct node_set * set, const struct node_set * other) {
    for (int i = 0; i < WORDS; i++) {
        set->word[i] &= other->word[i];
    }
}

int node_set_next(const struct node_set * set, int from) {
    if (from < 0) {
        from = 0;
    }
    for (int i = from / BITS; i < WORDS; i++) {
        const uint64_t rest = i == from / BITS ? set->word[i] & (UINT64_MAX << (from % BITS)) : set->word[i];
        if (rest) {
            return i * BITS + __builtin_ctzll(rest);
        }
    }
    return -1;
}

// Length without the trailing NULs, white space and at most one newline.
static size_t trimmed(const char * text, size_t len) {
    int newlines = 0;
    while (len > 0) {
        const char last = text[len - 1];
        if (last == '\n' ? newlines++ > 0 : last != '\0' && last != ' ' && last != '\t') {
            break;
        }
        len--;
    }
    return len;
}

static int fail(struct node_set * set) {
    node_set_clear(set);
    return -1;
}

// The decimal number at *at, which is moved behind it; -1 where there is none or it is too high for a set.
static int read_number(const char * text, size_t len, size_t * at) {
    const size_t start = *at;
    int number = 0;
    for (; *at < len && text[*at] >= '0' && text[*at] <= '9'; (*at)++) {
        number = number * 10 + (text[*at] - '0');
        if (!possible(number)) {
            return -1;
        }
    }
    return *at > start ? number : -1;
}

int node_set_parse_list(const char * text, size_t len, struct node_set * set) {
    node_set_clear(set);
    len = trimmed(text, len);
    for (size_t at = 0; at < len;) {
        const int first = read_number(text, len, &at);
        int last = first;
        if (at < len && text[at] == '-') {
            at++;
            last = read_number(text, len, &at);
        }
        if (first < 0 || last < first) {
            return fail(set);
        }
        for (int i = first; i <= last; i++) {
            node_set_add(set, i);
        }
        if (at < len && (text[at] != ',' || ++at == len)) { // nothing but a comma, and nothing may not follow it
            return fail(set);
        }
    }
    return 0;
}

static int hex_value(char digit) {
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    if (digit >= 'a' && digit <= 'f') {
        return digit - 'a' + 10;
    }
    return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

// Read from the end: there the lowest bits are, and every word but the first (the last one here) has its 8 digits.
int node_set_parse_mask(const char * text, size_t len, struct node_set * set) {
    node_set_clear(set);
    len = trimmed(text, len);
    size_t digits = 0; // behind this one, without commas
    for (size_t at = len; at-- > 0;) {
        if ((len - at) % 9 == 0) {
            if (text[at] != ',' || at == 0) {
                return fail(set);
            }
            continue;
        }
        const int value = hex_value(text[at]);
        if (value < 0 || (value > 0 && digits >= NODE_SET_MAX / 4)) {
            return fail(set);
        }
        for (int i = 0; i < 4; i++) {
            if (value >> i & 1) {
                node_set_add(set, (int) digits * 4 + i);
            }
        }
        digits++;
    }
    return 0;
}

// The last member of the unbroken run that starts at `first`.
static int end_of_run(const struct node_set * set, int first) {
    while (node_set_has(set, first + 1)) {
        first++;
    }
    return first;
}

char * node_set_format(const struct node_set * set, char * out, size_t size) {
    static const char MORE[] = ",...";
    size_t used = 0;
    size_t cut  = 0; // the longest part written so far that leaves room for MORE
    if (size > 0) {
        out[0] = '\0';
    }
    for (int first = node_set_next(set, 0), last; first >= 0; first = node_set_next(set, last + 1)) {
        char range[24];
        last = end_of_run(set, first);
        int len = snprintf(range, sizeof(range), "%s%d", used ? "," : "", first);
        if (last > first) {
            len += snprintf(range + len, sizeof(range) - (size_t) len, "-%d", last);
        }
        if (used + (size_t) len >= size) {
            snprintf(out + cut, size - cut, "%s", cut ? MORE : MORE + 1);
            break;
        }
        memcpy(out + used, range, (size_t) len + 1);
        used += (size_t) len;
        if (used + sizeof(MORE) <= size) {
            cut = used;
        }
    }
    return out;
}
