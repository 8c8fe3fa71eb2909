// selftest_os.h over the made-up machine of prim_fake.h: the tests say what the system does with pages, and what it tells.
#pragma once

#include "selftest_os.h"

// later: by touching. nowhere: not even then.
enum fake_place { FAKE_ASKED, FAKE_OF_THREAD, FAKE_HALF, FAKE_LATER, FAKE_NOWHERE };

struct fake_selftest {
    // What the system is like.
    enum fake_place prefetched;   // where pages go that are brought in by the first way
    bool            moves;        // touching moves cached pages to the node that was asked for
    bool            drops, drops_alone; // opening past the cache
    bool            scanned;      // somebody reads a cold file at once
    bool            read_ahead;   // reading a file leaves half of it on another node
    bool            no_alone;     // alone is no case of its own
    bool            cache_told;   // selftest_file_cached knows
    bool            faults_told;  // selftest_hard_faults knows
    bool            loose;        // one thread of each crew leaves its CPU
    bool            no_model, no_temporary, hot, unreadable, no_way;
    int             unbuffered_error;
    uint64_t        cache;        // bytes of last-level caches
    double          cpu_ms;       // that each question for the CPU time finds more
    struct selftest_cpu_sets sets;
    struct selftest_large    large;
    // What has happened.
    int             files, views; // open now
    int             colds;
};
extern struct fake_selftest fake_selftest;
