// Question 7: what a node's own memory could gain, from what was measured.
#include "selftest.h"

struct selftest_gain selftest_gain(const struct selftest * test, int node) {
    struct selftest_gain gain = { .remote_node = -1 };
    const struct selftest_cell * row = &test->cells[node * test->n_nodes];
    gain.local = row[node].gb_per_s;
    for (int i = 0; i < test->n_nodes; i++) {
        const double rate = i == node ? 0 : row[i].gb_per_s;
        if (rate > 0 && (gain.remote_node < 0 || rate < gain.remote)) {
            gain.remote      = rate;
            gain.remote_node = i;
        }
    }
    if (gain.local > 0 && gain.remote > 0) {
        gain.ratio = gain.local / gain.remote;
    }
    if (test->has_model && test->model.per_token > 0) {
        gain.local_tokens  = gain.local * 1e9 / (double) test->model.per_token;
        gain.remote_tokens = gain.remote * 1e9 / (double) test->model.per_token;
    }
    return gain;
}
