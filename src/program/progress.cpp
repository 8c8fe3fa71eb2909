#include "progress.h"

#include "system.h"

#include "numa_node.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

using clock_type = std::chrono::steady_clock;
using seconds    = std::chrono::duration<double>;

namespace {

constexpr auto    TICK           = std::chrono::milliseconds(100);
constexpr seconds WINDOW         = seconds(4);   // the rate is that of the last so many seconds
constexpr seconds FIRST_ESTIMATE = seconds(0.5); // not before
constexpr seconds BETWEEN_LINES  = seconds(2);
constexpr int     STEPS          = 4;            // plain lines at a quarter, a half, three quarters

std::string text(const char * format, double value) {
    char to[64];
    snprintf(to, sizeof(to), format, value);
    return to;
}

constexpr double MIB = 1 << 20;
constexpr double GIB = 1 << 30;

// Bytes in the unit that suits `like`.
std::string number(double bytes, double like) {
    return text("%.1f", bytes / (like < GIB ? MIB : GIB));
}

std::string size(double bytes) {
    return number(bytes, bytes) + (bytes < GIB ? " MiB" : " GiB");
}

std::string time_left(double s) {
    return s < 90 ? text("%.0f s", s) : s < 5400 ? text("%.0f min", s / 60) : text("%.1f h", s / 3600);
}

// What is known of one load.
class load {
  public:
    explicit load(clock_type::time_point begun) : begun(begun) {}

    void see(const numa_node_load & now, clock_type::time_point when) {
        if (now.moving != last.moving || now.done < last.done) {
            seen.clear();
        }
        last  = now;
        bytes = now.moving ? bytes : now.total;
        seen.emplace_back(when, now.done);
        while (when - seen.front().first > WINDOW) {
            seen.pop_front();
        }
    }

    double share() const {
        return last.total ? (double) last.done / (double) last.total : 0;
    }

    std::string line() const {
        const double done = (double) last.done, total = (double) last.total, rate = bytes_per_second();
        if (last.done == last.total && !last.moving) {
            return "loaded " + size(total) + ", preparing";
        }
        std::string line = (last.moving ? "moving to the node: " : "loading ") + number(done, total) + " of " + size(total)
                         + text(" (%.0f %%)", 100 * share());
        if (rate > 0) {
            line += ", " + size(rate) + "/s, " + time_left((total - done) / rate) + " left";
        }
        return line;
    }

    std::string summary(clock_type::time_point when) const {
        return "loaded " + size((double) bytes) + text(" in %.1f s", seconds(when - begun).count());
    }

    clock_type::time_point begun;
    numa_node_load         last = {};

  private:
    uint64_t bytes = 0; // of the weights

    double bytes_per_second() const {
        const seconds time = seen.back().first - seen.front().first;
        return time < FIRST_ESTIMATE ? 0 : (double) (seen.back().second - seen.front().second) / time.count();
    }

    std::deque<std::pair<clock_type::time_point, uint64_t>> seen;
};

class display {
  public:
    bool live = false, quiet = false;

    // Loading begins, or begins once more.
    void begin() {
        const std::lock_guard<std::mutex> lock(mutex);
        const bool again = loading;
        now        = load(clock_type::now());
        loading    = true;
        steps_said = 0;
        look();
        if (live) {
            draw(now.line());
        } else {
            say("loading " + size((double) now.last.total));
        }
        if (!again) {
            std::thread([this, which = ++loads] { run(which); }).detach(); // sleeps, and reads a few numbers
        }
    }

    void end() {
        const std::lock_guard<std::mutex> lock(mutex);
        loading = false;
        wake.notify_all();
        if (look() && live) {
            draw(now.line());
        }
        draw("");
        if (!quiet) {
            say(now.summary(clock_type::now()));
        }
    }

    void wipe() {
        const std::unique_lock<std::mutex> lock(mutex, std::try_to_lock); // whoever writes now may wait for a reader
        if (lock.owns_lock()) {
            draw("");
            live    = false;
            quiet   = true;
            loading = false;
        }
    }

  private:
    void run(int which) {
        std::unique_lock<std::mutex> lock(mutex);
        while (loading && which == loads) {
            wake.wait_for(lock, TICK);
            if (loading && which == loads && look()) {
                live ? draw(now.line()) : step();
            }
        }
    }

    bool look() {
        numa_node_load is;
        if (!numa_node_progress(&is)) {
            return false;
        }
        now.see(is, clock_type::now());
        return true;
    }

    // The cursor goes back to where the line begins: what others write next takes its place.
    void draw(const std::string & line) {
        if (live && line != drawn) {
            const std::string blanks(drawn.size() > line.size() ? drawn.size() - line.size() : 0, ' ');
            fprintf(stderr, "\r%s%s\r", line.c_str(), blanks.c_str());
            drawn = line;
        }
    }

    void step() {
        const int step = (int) (now.share() * STEPS);
        if (!now.last.moving && step > steps_said && step < STEPS && clock_type::now() - said >= BETWEEN_LINES) {
            steps_said = step;
            say(now.line());
        }
    }

    void say(const std::string & line) {
        said = clock_type::now();
        fprintf(stderr, "llamafile-numa: %s\n", line.c_str());
    }

    std::mutex              mutex;
    std::condition_variable wake;
    bool                    loading = false;
    int                     loads   = 0;
    load                    now     = load(clock_type::now());
    std::string             drawn;
    int                     steps_said = 0;
    clock_type::time_point  said;
};

// Never destroyed: its thread may outlive main.
display & screen() {
    static display & the = *new display;
    return the;
}

void changed(bool loading) {
    loading ? screen().begin() : screen().end();
}

}  // namespace

void show_progress(bool quiet) {
    screen().live  = is_terminal(2);
    screen().quiet = quiet;
    if (screen().live || !quiet) {
        numa_node_on_loading(changed);
    }
}

void wipe_progress() {
    screen().wipe();
}
