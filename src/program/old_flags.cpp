#include "old_flags.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <set>

namespace {

constexpr int ALL = COMPLETE | SERVE | CHAT;

struct old_flag {
    const char * name;
    int          values;
    int          modes; // in others llama.cpp's parser knows it
    words        now;   // put in its place, before its values where there are any
    const char * says;  // what holds instead; null: nothing needs to be said
};

const char GPU[]     = "this build computes on CPUs only";
const char SANDBOX[] = "there is no sandbox here: the program may do what its user may";
const char TRACE[]   = "calls are not traced; strace and its like do that from outside";
const char LOG[]     = "the log goes to stderr, or with --log-file FILE to a file";
const char DRAFT[]   = "drafts are accepted by other rules; see --spec-draft-p-min in llamafile-numa server --help";
const char GUIDANCE[] = "classifier-free guidance is no longer in llama.cpp";
const char ALPACA[]  = "the template comes with the model; llamafile-numa --chat chats";
const char KERNELS[] = "there is one set of CPU kernels, llama.cpp's";

const old_flag OLD[] = {
    // llamafile's own
    { "--nobrowser",                0, ALL, {}, nullptr }, // none is ever opened
    { "--unsecure",                 0, ALL, {}, SANDBOX },
    { "--confine-reads",            0, ALL, {}, SANDBOX },
    { "--gpu",                      1, ALL, {}, nullptr }, // below
    { "--recompile",                0, ALL, {}, GPU },
    { "--nocompile",                0, ALL, {}, nullptr },
    { "--tinyblas",                 0, ALL, {}, GPU },
    { "--fast",                     0, ALL, {}, KERNELS },
    { "--precise",                  0, ALL, {}, KERNELS },
    { "--trap",                     0, ALL, {}, "floating point errors are not trapped" },
    { "--ftrace",                   0, ALL, {}, TRACE },
    { "--strace",                   0, ALL, {}, TRACE },
    { "--v2",                       0, ALL, {}, "there is one server, llama.cpp's" },
    { "--nothink",                  0, ALL, { "--reasoning", "off" }, nullptr },
    { "--nologo",                   0, ALL, {}, nullptr }, // below
    { "--ascii",                    0, ALL, {}, nullptr }, // below
    { "--silent-prompt",            0, ALL, {}, nullptr }, // it is never echoed
    // llama.cpp's, gone since
    { "--mmap",                     0, ALL, {}, nullptr }, // below
    { "--no-mmap",                  0, ALL, {}, nullptr }, // below
    { "--mlock",                    0, ALL, {}, nullptr }, // below
    { "--log-disable",              0, ALL, {}, nullptr }, // below
    { "--log-enable",               0, ALL, {}, LOG },
    { "--log-test",                 0, ALL, {}, LOG },
    { "--log-new",                  0, ALL, {}, LOG },
    { "--log-append",               0, ALL, {}, LOG },
    { "--logdir",                   1, ALL, {}, LOG },
    { "-ld",                        1, ALL, {}, LOG },
    { "-fa",           OPTIONAL_VALUE, ALL, { "-fa" }, nullptr }, // below
    { "--flash-attn",  OPTIONAL_VALUE, ALL, { "-fa" }, nullptr }, // below
    { "--memory-f32",               0, ALL, { "-ctk", "f32", "-ctv", "f32" }, nullptr },
    { "--memory-f16",               0, ALL, { "-ctk", "f16", "-ctv", "f16" }, nullptr },
    { "--samplers-seq",             1, ALL, { "--sampling-seq" }, nullptr },
    { "--url-prefix",               1, SERVE | CHAT, { "--api-prefix" }, nullptr },
    { "-spf",                       1, COMPLETE | CHAT, { "-sysf" }, nullptr },
    { "-i",                         0, SERVE | CHAT, {}, nullptr },
    { "--interactive",              0, SERVE | CHAT, {}, nullptr },
    { "--interactive-first",        0, SERVE | CHAT, {}, nullptr },
    { "-ins",                       0, ALL, {}, ALPACA },
    { "--instruct",                 0, ALL, {}, ALPACA },
    { "-cml",                       0, ALL, {}, ALPACA },
    { "--chatml",                   0, ALL, {}, ALPACA },
    { "--cfg-scale",                1, ALL, {}, GUIDANCE },
    { "--cfg-negative-prompt",      1, ALL, {}, GUIDANCE },
    { "--cfg-negative-prompt-file", 1, ALL, {}, GUIDANCE },
    { "--tfs",                      1, ALL, {}, "tail free sampling is no longer in llama.cpp; --min-p comes closest" },
    { "--no-penalize-nl",           0, ALL, {}, "a newline is penalized as any other token" },
    { "--logits-all",               0, ALL, {}, "logits are computed where they are needed" },
    { "--p-accept",                 1, ALL, {}, DRAFT },
    { "-pa",                        1, ALL, {}, DRAFT },
    { "--p-split",                  1, ALL, {}, DRAFT },
    { "-ps",                        1, ALL, {}, DRAFT },
    { "--lora-base",                1, ALL, {}, "adapters are applied to the model itself" },
    { "--random-prompt",            0, ALL, {}, "without a prompt the text begins with the model's first token" },
    { "--no-mul-mat-q",             0, ALL, {}, GPU },
    { "-nommq",                     0, ALL, {}, GPU },
    { "--dump-kv-cache",            0, ALL, {}, "the KV cache is not printed" },
    { "-dkvc",                      0, ALL, {}, "the KV cache is not printed" },
};

const old_flag * find(const std::string & flag) {
    const auto found = std::find_if(std::begin(OLD), std::end(OLD), [&](const old_flag & old) { return flag == old.name; });
    return found == std::end(OLD) ? nullptr : found;
}

void note(const std::string & flag, const std::string & says) {
    fprintf(stderr, "llamafile-numa: %s: %s\n", flag.c_str(), says.c_str());
}

bool refuse(const std::string & flag, const std::string & says) {
    fprintf(stderr, "llamafile-numa: error: %s: %s\n", flag.c_str(), says.c_str());
    return false;
}

bool mend_gpu(const words & item) {
    static const char * const NONE[]  = { "auto", "disable", "disabled" };
    static const char * const SOME[]  = { "nvidia", "cublas", "amd", "rocm", "rocblas", "hip", "apple", "metal", "vulkan", "vk" };
    std::string kind = item[1];
    std::transform(kind.begin(), kind.end(), kind.begin(), [](unsigned char c) { return (char) std::tolower(c); });
    if (std::find(std::begin(SOME), std::end(SOME), kind) != std::end(SOME)) {
        note("--gpu " + item[1], GPU);
    } else if (std::find(std::begin(NONE), std::end(NONE), kind) == std::end(NONE)) {
        return refuse("--gpu", "'" + item[1] + "' is not possible; " + GPU + ", and auto and disable say as much");
    }
    return true;
}

// --mmap, --no-mmap and --mlock are one flag now; the last word on mapping counts, as ever.
struct load_mode {
    bool given = false, map = true, lock = false;

    bool take(const std::string & flag) {
        if (flag != "--mmap" && flag != "--no-mmap" && flag != "--mlock") {
            return false;
        }
        given = true;
        lock  = lock || flag == "--mlock";
        map   = flag == "--mlock" ? map : flag == "--mmap";
        return true;
    }

    words now() const {
        return { "-lm", map && lock ? "mmap+mlock" : map ? "mmap" : lock ? "mlock" : "none" };
    }
};

// Those of the flags that are more than a word for a word; true where it was one of them.
bool take_special(const words & item, old_ways & ways, load_mode & load) {
    ways.quiet |= item[0] == "--log-disable";
    ways.logo  &= item[0] != "--nologo";
    ways.ascii |= item[0] == "--ascii";
    return load.take(item[0]);
}

}  // namespace

int old_flag_values(const std::string & flag) {
    const old_flag * old = find(flag);
    return old ? old->values : -1;
}

bool mend_old_flags(command_line & line, mode mode, old_ways & ways) {
    std::vector<words> mended;
    std::set<std::string> said;
    load_mode load;
    for (words & item : line.items) {
        const old_flag * old = find(item[0]);
        if (!old || !(old->modes & mode)) {
            mended.push_back(std::move(item));
            continue;
        }
        if (old->values == 1 && item.size() < 2) {
            return refuse(item[0], "a value is missing behind it");
        }
        if (item[0] == "--gpu" && !mend_gpu(item)) {
            return false;
        }
        if (old->says && said.insert(old->says).second) {
            note(item[0], old->says);
        }
        if (take_special(item, ways, load) || old->now.empty()) {
            continue;
        }
        words now = old->now;
        now.insert(now.end(), item.begin() + 1, item.end());
        if (old->values == OPTIONAL_VALUE && item.size() < 2) {
            now.push_back("on"); // bare -fa, as it was
        }
        mended.push_back(std::move(now));
    }
    line.items = std::move(mended);
    if (load.given) {
        line.lead(load.now());
    }
    if (ways.quiet && mode == SERVE) { // the others are quiet anyway; errors are still told
        line.lead({ "-lv", "1" });
    }
    return true;
}
