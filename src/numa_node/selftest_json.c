// What --numa-selftest found, as JSON. Keys and words: docs/selftest.md.
#include "core.h"
#include "selftest.h"

#include <inttypes.h>

static void put_answer(FILE * to, const struct selftest_answer * answer) {
    fputs("\"answer\":", to);
    if (*answer->word) {
        numa_json_string(to, answer->word);
        fputs(",\"reason\":null", to);
    } else {
        fputs("null,\"reason\":", to);
        numa_json_string(to, answer->reason);
    }
}

static void put_text(FILE * to, const char * key, const char * text) {
    fprintf(to, "\"%s\":", key);
    if (*text) {
        numa_json_string(to, text);
    } else {
        fputs("null", to);
    }
}

// A count that is not known is negative.
static void put_count(FILE * to, const char * key, int64_t count) {
    if (count < 0) {
        fprintf(to, ",\"%s\":null", key);
    } else {
        fprintf(to, ",\"%s\":%" PRId64, key, count);
    }
}

static void put_rate(FILE * to, const char * key, double rate) {
    if (rate > 0) {
        fprintf(to, ",\"%s\":%.3f", key, rate);
    } else {
        fprintf(to, ",\"%s\":null", key);
    }
}

static int id(const struct selftest * test, int index) {
    return test->topo->nodes[index].id;
}

static void put_bandwidth(const struct selftest * test, FILE * to) {
    fputs(",\"bandwidth\":[", to);
    for (int i = 0; i < test->n_nodes * test->n_nodes; i++) {
        const struct selftest_cell * cell = &test->cells[i];
        fprintf(to, "%s{\"threads_on\":%d,\"memory_on\":%d,\"threads\":%d,\"bytes\":%" PRIu64, i ? "," : "", id(test, cell->threads_on),
                id(test, cell->memory_on), cell->threads, cell->bytes);
        put_count(to, "cache_bytes", cell->cache_bytes > 0 ? (int64_t) cell->cache_bytes : -1);
        put_rate(to, "gb_per_s", cell->gb_per_s);
        put_rate(to, "busy", cell->gb_per_s > 0 ? cell->busy : 0);
        fputs(",", to);
        put_text(to, "reason", cell->reason);
        fprintf(to, ",\"seen\":{\"checked\":%" PRIu64 ",\"on_node\":%" PRIu64 ",\"elsewhere\":%" PRIu64 ",\"not_resident\":%" PRIu64 "}}",
                cell->seen.checked, cell->seen.on_node, cell->seen.elsewhere, cell->seen.not_resident);
    }
    fputs("]", to);
}

static void put_prefetch(const struct selftest * test, FILE * to) {
    fputs(",\"prefetch\":{", to);
    put_answer(to, &test->prefetch);
    fputs(",\"rows\":[", to);
    for (int i = 0; i < test->n_landings; i++) {
        const struct selftest_landing * row = &test->landings[i];
        fputs(i ? ",{" : "{", to);
        put_text(to, "way", row->way);
        fprintf(to, ",\"asked\":%d,\"thread\":%d,", id(test, row->asked), id(test, row->thread));
        put_answer(to, &row->answer);
        fprintf(to, ",\"seen\":{\"checked\":%" PRIu64 ",\"on_asked\":%" PRIu64 ",\"on_thread\":%" PRIu64 ",\"elsewhere\":%" PRIu64
                ",\"not_resident\":%" PRIu64, row->seen.checked, row->seen.on_asked, row->seen.on_thread, row->seen.elsewhere,
                row->seen.not_resident);
        put_count(to, "cached", row->cached);
        put_count(to, "hard_faults", row->hard_faults);
        fputs("}}", to);
    }
    fputs("]}", to);
}

static void put_cached(const struct selftest * test, FILE * to) {
    fputs(",\"cached\":{", to);
    put_answer(to, &test->cached);
    fputs(",\"rows\":[", to);
    for (int i = 0; i < test->n_remaps; i++) {
        const struct selftest_remap * row = &test->remaps[i];
        fprintf(to, "%s{\"cached_on\":%d,\"cached_by\":\"%s\",\"asked\":%d,", i ? "," : "", id(test, row->cached_on), row->cached_by,
                id(test, row->asked));
        put_answer(to, &row->answer);
        fprintf(to, ",\"seen\":{\"checked\":%" PRIu64 ",\"before\":%" PRIu64 ",\"on_cached_on\":%" PRIu64 ",\"on_asked\":%" PRIu64
                ",\"not_resident\":%" PRIu64, row->checked, row->before, row->stayed, row->went, row->not_resident);
        put_count(to, "on_asked_after_move", row->moved);
        fputs("}}", to);
    }
    fputs("]}", to);
}

static void put_unbuffered(const struct selftest * test, FILE * to) {
    fputs(",\"unbuffered\":{", to);
    put_answer(to, &test->unbuffered);
    fputs(",\"rows\":[", to);
    for (int i = 0; i < test->n_opens; i++) {
        const struct selftest_unbuffered * row = &test->opens[i];
        fprintf(to, "%s{\"alone\":%s,\"cached_on\":%d,\"asked\":%d,", i ? "," : "", row->alone ? "true" : "false", id(test, row->cached_on),
                id(test, row->asked));
        put_answer(to, &row->answer);
        fprintf(to, ",\"seen\":{\"checked\":%" PRIu64 ",\"on_cached_on\":%" PRIu64 ",\"on_asked\":%" PRIu64, row->pages, row->stayed, row->went);
        put_count(to, "cached_before", row->cached_before);
        put_count(to, "cached_after", row->cached_after);
        put_count(to, "hard_faults_cold", row->hard_faults_cold);
        put_count(to, "hard_faults_after", row->hard_faults_after);
        fputs("}}", to);
    }
    fputs("]}", to);
}

static void put_cpu_sets(const struct selftest * test, FILE * to) {
    const struct selftest_cpu_sets * sets = &test->cpu_sets;
    char cpus[256];
    fputs(",\"cpu_sets\":{", to);
    put_answer(to, &test->sets);
    fputs(",\"seen\":{", to);
    put_text(to, "set", node_set_format(&sets->cpus, cpus, sizeof(cpus)));
    put_count(to, "main_before", sets->main_before);
    put_count(to, "main_after", sets->main_after);
    fprintf(to, ",\"threads\":%d,\"ideal_before\":%d,\"ideal_after\":%d,\"ran_after\":%d}}", sets->threads, sets->ideal_before,
            sets->ideal_after, sets->ran_after);
}

static void put_large(const struct selftest * test, FILE * to) {
    fputs(",\"large_pages\":{", to);
    put_answer(to, &test->large);
    fputs(",\"rows\":[", to);
    for (int i = 0; i < test->n_larges; i++) {
        const struct selftest_large * row = &test->larges[i];
        struct selftest_answer answer     = { .word = row->reason[0] ? "" : selftest_large_seen(row) };
        snprintf(answer.reason, sizeof(answer.reason), "%s", row->reason);
        fputs(i ? ",{" : "{", to);
        put_text(to, "kind", row->kind);
        fprintf(to, ",\"asked\":%d,", row->node);
        put_answer(to, &answer);
        fprintf(to, ",\"bytes\":%" PRIu64 ",\"large_bytes\":%" PRIu64 ",\"seen\":{\"checked\":%" PRIu64 ",\"on_node\":%" PRIu64
                ",\"elsewhere\":%" PRIu64 ",\"not_resident\":%" PRIu64 "}}", row->bytes, row->large_bytes, row->seen.checked,
                row->seen.on_node, row->seen.elsewhere, row->seen.not_resident);
    }
    fputs("]}", to);
}

static void put_gain(const struct selftest * test, FILE * to) {
    const struct selftest_model * model = &test->model;
    fputs(",\"gain\":{\"model\":", to);
    if (test->has_model) {
        fputs("{", to);
        put_text(to, "name", model->name);
        fprintf(to, ",\"weights\":%" PRIu64 ",\"per_token\":%" PRIu64 ",\"experts\":%d,\"experts_used\":%d}", model->weights, model->per_token,
                model->experts, model->used);
    } else {
        fputs("null", to);
    }
    fputs(",\"nodes\":[", to);
    for (int i = 0; i < test->n_nodes; i++) {
        const struct selftest_gain gain = selftest_gain(test, i);
        fprintf(to, "%s{\"node\":%d", i ? "," : "", id(test, i));
        put_rate(to, "local_gb_per_s", gain.local);
        put_rate(to, "remote_gb_per_s", gain.remote);
        put_count(to, "remote_node", gain.remote_node < 0 ? -1 : id(test, gain.remote_node));
        put_rate(to, "ratio", gain.ratio);
        put_rate(to, "local_tokens_per_s", gain.local_tokens);
        put_rate(to, "remote_tokens_per_s", gain.remote_tokens);
        fputs("}", to);
    }
    fputs("]}", to);
}

void selftest_json(const struct selftest * test, FILE * to) {
    fputs("{\"schema\":1,\"kind\":\"selftest\",", to);
    put_text(to, "system", test->system);
    fputs(",", to);
    put_text(to, "cpu", test->cpu);
    fprintf(to, ",\"page_bytes\":%zu,\"seconds\":%.1f,\"nodes\":", prim_page_size(), test->seconds);
    numa_list_json_nodes(test->topo, to);
    put_bandwidth(test, to);
    fputs(",", to);
    put_text(to, "file", test->file);
    fprintf(to, ",\"file_bytes\":%zu,", test->file_bytes);
    put_text(to, "file_note", test->file_note);
    put_prefetch(test, to);
    put_cached(test, to);
    put_cpu_sets(test, to);
    put_large(test, to);
    put_unbuffered(test, to);
    put_gain(test, to);
    fputs("}\n", to);
}
