#include "system.h"

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

bool is_terminal(int descriptor) {
    const char * kind = getenv("TERM");
    return isatty(descriptor) && kind && strcmp(kind, "dumb") != 0;
}

void hold_standard_streams() {
    int next;
    do {
        next = open("/dev/null", O_RDWR);
    } while (next >= 0 && next <= STDERR_FILENO);
    close(next);
}

void set_environment(const char * name, const char * value) {
    *value ? setenv(name, value, 1) : unsetenv(name);
}

namespace {

constexpr int STOPS[] = { SIGINT, SIGTERM, SIGHUP };

void mask_stops(int how) {
    sigset_t set;
    sigemptyset(&set);
    for (int signal : STOPS) {
        sigaddset(&set, signal);
    }
    pthread_sigmask(how, &set, nullptr);
}

// Signals are told through a pipe: hardly anything may be done in a handler.
int told[2];
void (*on_stop)(stop);

// Asked as early as can be: one that ends before cannot be told from whoever takes its children in.
const pid_t first_parent = getppid();

void tell(int signal) {
    const int error = errno;
    const char cause = signal == SIGINT ? 'i' : 't';
    (void) !write(told[1], &cause, 1);
    errno = error;
}

void hear() {
    char cause;
    for (;;) {
        if (read(told[0], &cause, 1) == 1) {
            on_stop(cause == 'i' ? stop::interrupt : stop::terminate);
        }
    }
}

// Not PR_SET_PDEATHSIG, which fires when the thread ends that started us, and its process may live on.
void wait_for_parent(pid_t parent, int descriptor) {
    pollfd ended = { descriptor, POLLIN, 0 };
    const int wait = descriptor < 0 ? 500 : -1; // ms; before Linux 5.3, and where a sandbox forbids it
    while (getppid() == parent && poll(&ended, descriptor < 0 ? 0 : 1, wait) <= 0) {
    }
    on_stop(stop::terminate);
}

}  // namespace

void watch_stops(void (*stopped)(stop cause)) {
    on_stop = stopped;
    if (pipe2(told, O_CLOEXEC) != 0) {
        return; // without a handler each of these signals ends the process, too
    }
    std::thread(hear).detach();
    mask_stops(SIG_BLOCK); // for this thread, and all that it starts
    for (int signal : STOPS) {
        struct sigaction before, now = {};
        now.sa_handler = tell;
        now.sa_flags   = signal == SIGINT ? 0 : SA_RESTART; // Ctrl-C lets a read from the terminal return
        sigemptyset(&now.sa_mask);
        if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) { // nohup, or a shell's &
            sigaction(signal, &now, nullptr);
        }
    }
}

void share_stops() {
    mask_stops(SIG_UNBLOCK);
}

bool watch_parent(long id) {
    const pid_t parent   = id > 0 ? (pid_t) id : first_parent;
    const int descriptor = (int) syscall(SYS_pidfd_open, parent, 0);
    std::thread(wait_for_parent, parent, descriptor).detach();
    return true;
}

void ignore_broken_pipes() {
    signal(SIGPIPE, SIG_IGN);
}

void wake_reader() {
    // The signal did.
}

void share_with_nobody(intptr_t socket) {
    const int on = 1; // Linux: connections of the past do not count, one that listens does
    setsockopt((int) socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
}

// An abstract UNIX socket: it goes with the process, and there are as many of a name as there are networks with such a port.
bool claim(const char * name) {
    sockaddr_un address = {};
    address.sun_family  = AF_UNIX;
    const size_t length = strnlen(name, sizeof(address.sun_path) - 1);
    memcpy(address.sun_path + 1, name, length);
    const int holder = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const socklen_t size = (socklen_t) (offsetof(sockaddr_un, sun_path) + 1 + length);
    if (holder < 0 || bind(holder, (const sockaddr *) &address, size) == 0) {
        return true; // held open
    }
    const bool taken = errno == EADDRINUSE;
    close(holder);
    return !taken;
}
