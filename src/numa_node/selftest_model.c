// How many bytes of a model's weights one generated token reads, as the GGUF tells.
#include "selftest.h"

#include "gguf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void say_nothing(enum ggml_log_level level, const char * text, void * context) {
    (void) level;
    (void) text;
    (void) context;
}

static struct gguf_context * open_gguf(const char * path, char * err, size_t err_size) {
    struct gguf_init_params params = { .no_alloc = true, .ctx = NULL };
    FILE * file = ggml_fopen(path, "rb");
    if (!file) {
        snprintf(err, err_size, "-m: cannot read %s: %s", path, strerror(errno));
        return NULL;
    }
    struct gguf_context * gguf = gguf_init_from_file_ptr(file, params);
    fclose(file);
    if (!gguf) {
        snprintf(err, err_size, "-m: %s is not a GGUF file that can be read; a model like those that -m takes is possible", path);
    }
    return gguf;
}

// A count, whatever its width; 0 where there is none.
static int number_of(const struct gguf_context * gguf, const char * key) {
    const int64_t id = gguf_find_key(gguf, key);
    if (id < 0) {
        return 0;
    }
    switch (gguf_get_kv_type(gguf, id)) {
        case GGUF_TYPE_UINT16: return gguf_get_val_u16(gguf, id);
        case GGUF_TYPE_UINT32: return (int) gguf_get_val_u32(gguf, id);
        case GGUF_TYPE_INT32:  return gguf_get_val_i32(gguf, id);
        default:               return 0;
    }
}

static const char * text_of(const struct gguf_context * gguf, const char * key) {
    const int64_t id = gguf_find_key(gguf, key);
    return id >= 0 && gguf_get_kv_type(gguf, id) == GGUF_TYPE_STRING ? gguf_get_val_str(gguf, id) : "";
}

// Bytes by what a token reads of them.
struct sums {
    uint64_t all, experts, lookup; // lookup: tables of which a token reads a line, unless they are the output matrix as well
    bool     output;               // there is a matrix of that alone
};

static void add_tensors(const struct gguf_context * gguf, struct sums * sums) {
    const int64_t n = gguf_get_n_tensors(gguf);
    for (int64_t i = 0; i < n; i++) {
        const char * name    = gguf_get_tensor_name(gguf, i);
        const uint64_t bytes = gguf_get_tensor_size(gguf, i);
        sums->all += bytes;
        sums->experts += strstr(name, "_exps.") ? bytes : 0;
        sums->lookup += strcmp(name, "token_embd.weight") == 0 ? bytes : 0;
        sums->output |= strcmp(name, "output.weight") == 0;
    }
}

// The path of part `i` (from 0) of `n`; path is that of the first.
static bool part_path(const char * path, int i, int n, char * out, size_t size) {
    char ending[40];
    snprintf(ending, sizeof(ending), "-00001-of-%05d.gguf", n);
    const size_t length = strlen(path), end = strlen(ending);
    if (length < end || strcmp(path + length - end, ending) != 0 || length + 1 > size) {
        return false;
    }
    snprintf(out, size, "%.*s-%05d-of-%05d.gguf", (int) (length - end), path, i + 1, n);
    return true;
}

static int add_parts(const char * path, int n, struct sums * sums, char * err, size_t err_size) {
    char name[4096];
    for (int i = 1; i < n; i++) {
        if (!part_path(path, i, n, name, sizeof(name))) {
            snprintf(err, err_size, "-m: %s is one of %d parts, but not named as the first one is: NAME-00001-of-%05d.gguf", path, n, n);
            return -1;
        }
        struct gguf_context * gguf = open_gguf(name, err, err_size);
        if (!gguf) {
            return -1;
        }
        add_tensors(gguf, sums);
        gguf_free(gguf);
    }
    return 0;
}

static void describe(const struct gguf_context * gguf, struct selftest_model * model) {
    char key[128];
    const char * arch = text_of(gguf, "general.architecture");
    snprintf(model->name, sizeof(model->name), "%s", text_of(gguf, "general.name"));
    for (char * c = model->name; *c; c++) {
        *c = (unsigned char) *c < ' ' || *c == 0x7f ? '?' : *c;
    }
    snprintf(key, sizeof(key), "%.90s.expert_count", arch);
    model->experts = number_of(gguf, key);
    snprintf(key, sizeof(key), "%.90s.expert_used_count", arch);
    model->used = number_of(gguf, key);
    if (model->experts <= 0 || model->used <= 0 || model->used > model->experts) {
        model->experts = model->used = 0;
    }
}

int selftest_model_read(const char * path, struct selftest_model * model, char * err, size_t err_size) {
    struct sums sums = { 0 };
    memset(model, 0, sizeof(*model));
    ggml_log_set(say_nothing, NULL); // the one line about a bad file is ours
    struct gguf_context * gguf = open_gguf(path, err, err_size);
    if (!gguf) {
        return -1;
    }
    add_tensors(gguf, &sums);
    describe(gguf, model);
    const int parts = number_of(gguf, "split.count");
    gguf_free(gguf);
    if (parts > 1 && add_parts(path, parts, &sums, err, err_size) != 0) {
        return -1;
    }
    if (sums.all == 0) {
        snprintf(err, err_size, "-m: %s holds no weights; a model is possible", path);
        return -1;
    }
    model->weights   = sums.all;
    model->per_token = sums.all - (sums.output ? sums.lookup : 0);
    if (model->experts > 0) {
        model->per_token -= sums.experts - sums.experts / (uint64_t) model->experts * (uint64_t) model->used;
    }
    return 0;
}
