// src/program/progress.cpp over a load that is made up: every second 1 GiB more of 4 GiB is read, then 2 GiB are moved, all at
// once. Arguments: live or plain, and quiet.
#include "progress.h"
#include "system.h"

#include "numa_node.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

static constexpr uint64_t GIB = 1 << 30;

static bool live;
static std::atomic<uint64_t> done;
static std::atomic<bool> loading, moving;
static void (*changed)(bool);

bool is_terminal(int descriptor) {
    return live && descriptor == 2;
}

void numa_node_on_loading(void (*listener)(bool loading)) {
    changed = listener;
}

bool numa_node_progress(numa_node_load * now) {
    *now = { moving ? 1 * GIB : done.load(), moving ? 2 * GIB : 4 * GIB, moving };
    return loading;
}

static void tell(bool begins) {
    loading = begins;
    if (changed) {
        changed(begins);
    }
}

static void wait(int ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

int main(int argc, char ** argv) {
    live = strcmp(argv[1], "live") == 0;
    show_progress(argc > 2);
    tell(true);
    for (int part = 0; part < 32; part++) {
        wait(125);
        done += 4 * GIB / 32;
    }
    wait(300);
    moving = true;
    wait(300);
    moving = false;
    tell(false);
    fprintf(stderr, "the next line\n");
}
