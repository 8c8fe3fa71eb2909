#include "command_line.h"

#include "old_flags.h"

#include "arg.h"
#include "log.h"

#include <algorithm>

const flag_values & flags_of(llama_example program) {
    static std::map<llama_example, flag_values> known;
    const auto found = known.find(program);
    if (found != known.end()) {
        return found->second;
    }
    common_params params;
    flag_values & flags = known[program];
    for (const common_arg & option : common_params_parser_init(params, program, nullptr).options) {
        const int n = option.value_hint_2 ? 2 : option.value_hint ? 1 : 0;
        for (const std::string & flag : option.get_args()) {
            flags[flag] = n;
        }
    }
    return flags;
}

std::string spelled(std::string flag) {
    if (flag.rfind("--", 0) == 0) {
        std::replace(flag.begin(), flag.end(), '_', '-');
    }
    return flag;
}

// How many of the words behind a flag are its values; next: the first of them.
static int values_of(const std::string & flag, const char * next) {
    const int old = old_flag_values(flag);
    if (old == OPTIONAL_VALUE) {
        return next && next[0] != '-';
    }
    if (old >= 0) {
        return old;
    }
    for (llama_example program : { LLAMA_EXAMPLE_COMPLETION, LLAMA_EXAMPLE_SERVER, LLAMA_EXAMPLE_CLI }) {
        const auto found = flags_of(program).find(flag);
        if (found != flags_of(program).end()) {
            return found->second;
        }
    }
    return 0;
}

command_line::command_line(int argc, char ** argv) : name(argv[0]) {
    for (int i = 1; i < argc;) {
        const std::string flag = spelled(argv[i]);
        int left   = values_of(flag, argv[i + 1]); // argv ends with a null pointer
        words item = { flag };
        for (i++; left > 0 && i < argc; left--) {
            item.push_back(argv[i++]);
        }
        items.push_back(std::move(item));
    }
}

bool command_line::has(std::initializer_list<const char *> flags) const {
    return std::any_of(items.begin(), items.end(), [&](const words & item) {
        return std::find(flags.begin(), flags.end(), item[0]) != flags.end();
    });
}

bool command_line::take(const char * flag) {
    const auto end  = std::remove_if(items.begin(), items.end(), [&](const words & item) { return item[0] == flag; });
    const bool some = end != items.end();
    items.erase(end, items.end());
    return some;
}

void command_line::lead(words flag) {
    items.insert(items.begin(), std::move(flag));
}

words command_line::all() const {
    words all = { name };
    for (const words & item : items) {
        all.insert(all.end(), item.begin(), item.end());
    }
    return all;
}

std::vector<char *> pointers(words & args) {
    std::vector<char *> argv;
    for (std::string & arg : args) {
        argv.push_back(arg.data());
    }
    argv.push_back(nullptr);
    return argv;
}

int call(program run, words args) {
    const int code = run((int) args.size(), pointers(args).data());
    common_log_flush(common_log_main()); // a thread writes it, for which the end of the process does not wait
    return code;
}
