#include "llamafile_arguments.h"

#include "command_line.h"
#include "old_flags.h"
#include "system.h"

#include "gguf.h"
#include "llama.h"
#include "llamafile.h"
#include "numa_node.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

namespace {

using names = std::initializer_list<const char *>;
using items = std::vector<words>;

const names MODEL   = { "-m", "--model" };
const names MMPROJ  = { "-mm", "--mmproj" };
const names OTHERS  = { "-md", "--model-draft", "--spec-draft-model", "--lora", "--control-vector" }; // GGUF files, too
const names MODES   = { "--server", "--chat", "--cli" };
const names PROMPTS = { "-p", "--prompt", "-f", "--file", "-bf", "--binary-file" };

const char HERE[] = "..."; // where the user's own arguments go

struct failure {}; // the message has been written

[[noreturn]] void fail(const std::string & message) {
    fprintf(stderr, "llamafile-numa: error: %s\n", message.c_str());
    throw failure();
}

bool is(const std::string & word, names any) {
    return std::any_of(any.begin(), any.end(), [&](const char * name) { return word == name; });
}

bool names_model(const std::string & flag) {
    return is(flag, MODEL) || is(flag, MMPROJ) || is(flag, OTHERS);
}

llamafile_kind kind_of(const std::string & flag) {
    return is(flag, MMPROJ) ? LLAMAFILE_MMPROJ : LLAMAFILE_MODEL;
}

// --- one name ---

class found {
public:
    found(const std::string & name, llamafile_kind kind) {
        char err[1024];
        what = llamafile_look(name.c_str(), kind, &member, err, sizeof(err));
        why  = what == LLAMAFILE_BAD || what == LLAMAFILE_UNKNOWN ? err : "";
    }
    ~found() { llamafile_free(&member); }
    found(const found &) = delete;
    found & operator=(const found &) = delete;

    llamafile_found  what;
    std::string      why;
    llamafile_member member;
};

// The header of a GGUF file; what llama.cpp would say of it is not said yet.
std::unique_ptr<gguf_context, decltype(&gguf_free)> header(const char * name) {
    ggml_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    gguf_context * gguf = gguf_init_from_file(name, { /*.no_alloc =*/ true, /*.ctx =*/ nullptr });
    ggml_log_set(nullptr, nullptr);
    return { gguf, gguf_free };
}

int number(const gguf_context * gguf, const char * key) {
    const int64_t at = gguf_find_key(gguf, key);
    return at >= 0 && gguf_get_kv_type(gguf, at) == GGUF_TYPE_UINT16 ? gguf_get_val_u16(gguf, at) : -1;
}

void check(const llamafile_member & member);

// A split model is there with all its parts, or not at all.
void check_parts(const char * name, int n) {
    std::vector<char> prefix(strlen(name) + 1), part(strlen(name) + 32);
    if (llama_split_prefix(prefix.data(), prefix.size(), name, 0, n) <= 0) {
        fail(std::string(name) + ": it is the first of " + std::to_string(n) + " parts, which have to be called *-00001-of-" +
             "0000N.gguf and so on");
    }
    for (int i = 1; i < n; i++) {
        llama_split_path(part.data(), part.size(), prefix.data(), i, n);
        const found other(part.data(), LLAMAFILE_MODEL);
        if (other.what == LLAMAFILE_BAD) {
            fail(other.why);
        }
        if (other.what == LLAMAFILE_INSIDE) {
            check(other.member);
        }
    }
}

// llama.cpp sees an archive as one file: it would read beyond the end of a model that was cut short.
void check(const llamafile_member & member) {
    const auto gguf = header(member.name);
    if (!gguf) {
        fail(std::string(member.name) + ": its GGUF header is damaged; the same file alone would not load either");
    }
    uint64_t end = 0;
    for (int64_t i = 0; i < gguf_get_n_tensors(gguf.get()); i++) {
        const uint64_t tensor = gguf_get_tensor_offset(gguf.get(), i) + gguf_get_tensor_size(gguf.get(), i);
        end = std::max(end, tensor);
    }
    const uint64_t begin = gguf_get_data_offset(gguf.get()) - member.offset; // in the member
    if (begin > member.size || end > member.size - begin) {
        fail(std::string(member.name) + ": its tensors need " + std::to_string(begin + end) + " bytes and it has " + std::to_string(member.size) +
             "; it was cut short before it was put into the archive");
    }
    const int parts = number(gguf.get(), "split.count");
    if (parts > 1 && number(gguf.get(), "split.no") == 0) {
        check_parts(member.name, parts);
    }
}

// The name that llama.cpp is given: ARCHIVE@MEMBER for what lies in an archive, else as it was.
std::string resolve(const std::string & name, llamafile_kind kind) {
    const found one(name, kind);
    if (one.what == LLAMAFILE_BAD || one.what == LLAMAFILE_UNKNOWN) {
        fail(one.why + (one.what == LLAMAFILE_UNKNOWN ? "; a GGUF file or a .llamafile is possible" : ""));
    }
    if (one.what != LLAMAFILE_INSIDE) {
        return name;
    }
    check(one.member);
    return one.member.name;
}

// A name in an archive's own arguments: a member, with or without /zip/ before it, or a file beside.
std::string from_inside(const std::string & archive, const std::string & name, llamafile_kind kind) {
    const found member(archive + "@" + name, kind);
    std::error_code none;
    if (member.what != LLAMAFILE_INSIDE && std::filesystem::exists(std::filesystem::u8path(name), none)) {
        return resolve(name, kind);
    }
    if (member.what != LLAMAFILE_INSIDE) {
        fail(member.why);
    }
    check(member.member);
    return member.member.name;
}

// --- the arguments in an archive ---

command_line taken_apart(words args) {
    std::vector<char *> argv;
    for (std::string & arg : args) {
        argv.push_back(arg.data());
    }
    argv.push_back(nullptr);
    return command_line((int) args.size(), argv.data());
}

// The lines of .args, each an argument.
command_line brought_by(const std::string & archive, const std::string & name) {
    char err[1024];
    const std::unique_ptr<char, decltype(&free)> text(llamafile_args_text(archive.c_str(), err, sizeof(err)), free);
    if (!text) {
        fail(err);
    }
    words args = { name };
    for (const char * at = text.get(); *at;) {
        const size_t len = strcspn(at, "\r\n");
        if (len > 0) {
            args.emplace_back(at, len);
        }
        at += len + (at[len] != '\0');
    }
    return taken_apart(std::move(args));
}

// The --numa-* flag that a word is, or null.
const numa_node_flag * numa_flag(const std::string & word) {
    for (const numa_node_flag * flag = numa_node_flags(); flag->name; flag++) {
        if (word == flag->name || word.rfind(std::string(flag->name) + "=", 0) == 0) {
            return flag;
        }
    }
    return nullptr;
}

// Flags that may be there only once, modes and --numa-*, give way to the user's.
bool gives_way(const words & item, const command_line & user) {
    const numa_node_flag * flag = numa_flag(item[0]);
    return flag ? std::any_of(user.items.begin(), user.items.end(), [&](const words & own) { return numa_flag(own[0]) == flag; })
                : is(item[0], MODES) && (user.has(MODES) || user.has(PROMPTS));
}

// Most archives bring arguments for the server, which a single completion does not know.
bool is_the_servers(const std::string & flag) {
    return flags_of(LLAMA_EXAMPLE_COMPLETION).count(flag) == 0 && flags_of(LLAMA_EXAMPLE_SERVER).count(flag) > 0 && old_flag_values(flag) < 0;
}

bool completes(const command_line & args, const command_line & user) {
    if (user.has(MODES) || user.has(PROMPTS)) {
        return !user.has({ "--server", "--chat" });
    }
    const auto either = [&](names any) { return args.has(any) || user.has(any); };
    return either({ "--cli" }) || (either(PROMPTS) && !either({ "--server", "--chat" }));
}

// An archive decides much: which arguments it brought is said, whatever comes of them.
void tell(const std::string & archive, const items & args, bool once, const std::string & left_out) {
    std::string line;
    for (const words & item : args) {
        for (const std::string & word : item) {
            line += names_model(item[0]) || word == HERE ? "" : " " + word;
        }
    }
    if (!left_out.empty()) {
        line += "; left out, as only " + std::string(once ? "a server" : "a completion") + " knows them:" + left_out;
    }
    for (char & c : line) {
        c = (unsigned char) c < ' ' || c == 0x7f ? '?' : c;
    }
    if (!line.empty()) {
        fprintf(stderr, "llamafile-numa: %s: arguments in it:%s\n", archive.c_str(), line.c_str());
    }
}

// One of the archive's arguments, with the model it names.
words with_model(words item, const std::string & archive) {
    for (const std::string & word : item) {
        if (word.rfind("/zip/", 0) == 0 && !names_model(item[0])) {
            fail(archive + ": " + word + " in its arguments is no model; only models are used inside an archive");
        }
    }
    if (names_model(item[0]) && item.size() > 1) {
        item[1] = from_inside(archive, item[1], kind_of(item[0]));
    }
    return item;
}

// The archive's arguments with the user's among them: where a line says "...", else behind them.
items merged(const std::string & archive, const command_line & user) {
    const command_line brought = brought_by(archive, user.name);
    const bool once = completes(brought, user);
    items before, behind;
    std::string left_out;
    bool here = false;
    for (const words & item : brought.items) {
        if (item[0] == HERE) {
            here = true;
        } else if (once ? is_the_servers(item[0]) : user.has({ "--server" }) && is(item[0], PROMPTS)) {
            left_out += " " + item[0];
        } else if (!gives_way(item, user)) {
            (here ? behind : before).push_back(with_model(item, archive));
        }
    }
    if (!brought.has(MODEL)) {
        before.insert(before.begin(), { "-m", resolve(archive, LLAMAFILE_MODEL) });
    }
    tell(archive, brought.items, once, left_out);
    before.insert(before.end(), user.items.begin(), user.items.end());
    before.insert(before.end(), behind.begin(), behind.end());
    return before;
}

// --- the user's ---

// Does `-m NAME` mean the archive with all it brings? It may have several models; .args may say which one is meant.
bool means_all(const std::string & name) {
    const auto what = found(name, LLAMAFILE_MODEL).what;
    return llamafile_path_length(name.c_str()) == name.size() && (what == LLAMAFILE_INSIDE || what == LLAMAFILE_BAD);
}

words all_arguments(words args, const char * model, const char * mmproj) {
    command_line user  = taken_apart(std::move(args));
    const bool command = !user.items.empty() && user.items[0][0][0] != '-';
    if (mmproj) {
        set_environment("LLAMA_ARG_MMPROJ", resolve(mmproj, LLAMAFILE_MMPROJ).c_str());
    }
    if (model && !command && !user.has(MODEL)) {
        user.items.push_back({ "-m", model });
        set_environment("LLAMA_ARG_MODEL", "");
    }
    const bool with_args = !command && !user.has({ "--numa-selftest" }); // which wants a model and nothing else
    std::string archive;
    items kept;
    for (words & item : user.items) {
        if (with_args && is(item[0], MODEL) && item.size() > 1 && means_all(item[1])) {
            archive = item[1];
            continue;
        }
        if (names_model(item[0]) && item.size() > 1) {
            item[1] = resolve(item[1], kind_of(item[0]));
        }
        kept.push_back(std::move(item));
    }
    user.items = std::move(kept);
    if (!archive.empty()) {
        user.items = merged(archive, user);
    }
    return user.all();
}

// Is it an archive, or wants to be one? Null is not.
bool is_archive(const char * name) {
    return name && found(name, LLAMAFILE_MODEL).what != LLAMAFILE_PLAIN;
}

}  // namespace

int llamafile_arguments(int & argc, char **& argv) {
    static words               all;
    static std::vector<char *> pointers;
    const char * model  = getenv("LLAMA_ARG_MODEL");
    const char * mmproj = getenv("LLAMA_ARG_MMPROJ");
    bool some = is_archive(model) || is_archive(mmproj);
    for (int i = 1; i + 1 < argc; i++) {
        some = some || (names_model(argv[i]) && is_archive(argv[i + 1]));
    }
    if (!some) {
        return -1;
    }
    try {
        all = all_arguments(words(argv, argv + argc), is_archive(model) ? model : nullptr, is_archive(mmproj) ? mmproj : nullptr);
    } catch (const failure &) {
        return NUMA_NODE_EXIT_USAGE;
    } catch (const std::exception & error) {
        fprintf(stderr, "llamafile-numa: error: the model cannot be looked at: %s\n", error.what());
        return NUMA_NODE_EXIT_USAGE;
    }
    pointers.clear();
    for (std::string & word : all) {
        pointers.push_back(word.data());
    }
    pointers.push_back(nullptr);
    argc = (int) all.size();
    argv = pointers.data();
    return -1;
}
