// The --numa-* flags in the help of llama.cpp's own programs. numa_node_start has read and removed them from argv before
// any parser runs, so a handler has nothing to do.
#pragma once

#include "numa_node.h"

template <typename Arg, typename Params, typename Add> void numa_node_add_flags(Add add) {
    for (const numa_node_flag * flag = numa_node_flags(); flag->name; flag++) {
        Arg arg = *flag->argument ? Arg({ flag->name }, flag->argument, flag->help, [](Params &, const std::string &) {})
                                  : Arg({ flag->name }, flag->help, [](Params &) {});
        add(*flag->env ? arg.set_env(flag->env) : arg);
    }
}
