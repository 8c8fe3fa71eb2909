// The operations on sets; prints what does not hold and ends with code 1 then.
#include "node_set.h"

#include <stdio.h>
#include <string.h>

static int failures;

#define CHECK(condition)                                           \
    do {                                                           \
        if (!(condition)) {                                        \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            failures++;                                            \
        }                                                          \
    } while (0)

static struct node_set set_of(int count, const int * numbers) {
    struct node_set set;
    node_set_clear(&set);
    for (int i = 0; i < count; i++) {
        node_set_add(&set, numbers[i]);
    }
    return set;
}

#define SET(...) set_of((int) (sizeof((int[]) { __VA_ARGS__ }) / sizeof(int)), (int[]) { __VA_ARGS__ })

static bool equal(const struct node_set * a, const struct node_set * b) {
    return memcmp(a, b, sizeof(*a)) == 0;
}

static void check_members(void) {
    const int numbers[] = { 0, 1, 63, 64, 127, 128, 4096, NODE_SET_MAX - 1 };
    const int count     = (int) (sizeof(numbers) / sizeof(*numbers));
    struct node_set set = set_of(0, NULL);
    CHECK(node_set_empty(&set));
    CHECK(node_set_count(&set) == 0);
    CHECK(node_set_next(&set, 0) == -1);
    for (int i = 0; i < count; i++) {
        CHECK(!node_set_has(&set, numbers[i]));
        node_set_add(&set, numbers[i]);
        node_set_add(&set, numbers[i]);
        CHECK(node_set_has(&set, numbers[i]));
        CHECK(node_set_count(&set) == i + 1);
    }
    CHECK(!node_set_empty(&set));
    int seen = 0;
    for (int i = node_set_next(&set, 0); i >= 0; i = node_set_next(&set, i + 1)) {
        CHECK(seen < count && numbers[seen] == i);
        seen++;
    }
    CHECK(seen == count);
    for (int i = 0; i < count; i++) {
        node_set_remove(&set, numbers[i]);
        node_set_remove(&set, numbers[i]);
        CHECK(!node_set_has(&set, numbers[i]));
        CHECK(node_set_count(&set) == count - i - 1);
    }
    CHECK(node_set_empty(&set));
}

static void check_impossible_numbers(void) {
    const int numbers[] = { -1, -64, -2147483647 - 1, NODE_SET_MAX, NODE_SET_MAX + 1, 2147483647 };
    struct node_set set = SET(0, NODE_SET_MAX - 1);
    for (int i = 0; i < (int) (sizeof(numbers) / sizeof(*numbers)); i++) {
        node_set_add(&set, numbers[i]);
        CHECK(!node_set_has(&set, numbers[i]));
        node_set_remove(&set, numbers[i]);
    }
    CHECK(node_set_count(&set) == 2);
    CHECK(node_set_next(&set, -5) == 0);
    CHECK(node_set_next(&set, 1) == NODE_SET_MAX - 1);
    CHECK(node_set_next(&set, NODE_SET_MAX) == -1);
    CHECK(node_set_next(&set, 2147483647) == -1);
}

static void check_relations(void) {
    const struct node_set none  = set_of(0, NULL);
    const struct node_set some  = SET(1, 70, 8000);
    const struct node_set more  = SET(1, 2, 70, 8000);
    const struct node_set other = SET(2, 71, 8000, 8001);
    const struct node_set last  = SET(8000);
    struct node_set both;
    CHECK(node_set_within(&none, &none));
    CHECK(node_set_within(&none, &some));
    CHECK(!node_set_within(&some, &none));
    CHECK(node_set_within(&some, &some));
    CHECK(node_set_within(&some, &more));
    CHECK(!node_set_within(&more, &some));

    both = more;
    node_set_intersect(&both, &some);
    CHECK(equal(&both, &some));
    node_set_intersect(&both, &other);
    CHECK(equal(&both, &last));
    node_set_intersect(&both, &none);
    CHECK(node_set_empty(&both));
}

int main(void) {
    CHECK(sizeof(struct node_set) == 1024);
    check_members();
    check_impossible_numbers();
    check_relations();
    return failures != 0;
}
