#include "stop.h"

#include "progress.h"
#include "system.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

static std::mutex mutex;
static ending now;

// Never through exit(): other threads run, and no destructor may pull memory from under them.
void end_within(int milliseconds, int code) {
    try {
        std::thread([=] {
            std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
            std::_Exit(code);
        }).detach();
    } catch (const std::exception &) { // no more threads to be had
        std::_Exit(code);
    }
}

static void stopped(stop cause) {
    constexpr int PATIENCE = 1500; // ms
    static std::atomic<bool> ending_already;
    mutex.lock();
    const ending how = now;
    mutex.unlock();
    if (cause == stop::interrupt && how.interrupt && how.interrupt()) {
        return;
    }
    const int code = cause == stop::interrupt ? how.interrupted : how.terminated;
    if (ending_already.exchange(true)) { // asked twice
        std::_Exit(code);
    }
    end_within(PATIENCE, code);
    wipe_progress();
    if (!how.gently) {
        std::_Exit(code);
    }
    how.gently(code);
}

void watch_endings() {
    watch_stops(stopped);
}

void end_like(ending how) {
    const std::lock_guard<std::mutex> lock(mutex);
    now = how;
}

bool end_with_parent(long id) {
    return watch_parent(id);
}
