// The core's decisions over a made-up machine: claims, regions, weights, workers.
#define _GNU_SOURCE
#include "check.h"
#include "core.h"
#include "prim_fake.h"

#include <errno.h>
#include <pthread.h>

#define MARGIN MIB(64) // of claim.c

// Two nodes, the second one chosen, with so many MiB that can be had on it.
static void on_second_of_two(unsigned available) {
    char machine[64];
    snprintf(machine, sizeof(machine), "0:0-7:65536 1:8-15:65536/%u", available);
    fake_machine(machine);
    fake_choose(1);
}

// --- claims ---

CASE(claim_binds_while_it_fits) {
    on_second_of_two(1064);
    EQUAL(numa_claim(MIB(600)), PRIM_BIND);
    EQUAL(numa_claim(MIB(400)), PRIM_BIND); // to the last byte
    EQUAL(numa_unfit(), 0);
    EQUAL(numa_claim(1), PRIM_PREFERRED);
    EQUAL(numa_claim(MIB(5)), PRIM_PREFERRED);
    EQUAL(numa_unfit(), MIB(5) + 1);
    numa_release(MIB(405) + 1);
    EQUAL(numa_claim(MIB(400)), PRIM_BIND);
    EQUAL(numa_unfit(), MIB(5) + 1); // it was said once
}

CASE(claim_sees_what_others_took) {
    on_second_of_two(1064);
    fake.room[1] = MIB(164);
    CHECK(numa_fits(MIB(100), 0));
    CHECK(!numa_fits(MIB(100) + 1, 0));
    fake.room[1] = MARGIN - 1;
    CHECK(!numa_fits(0, 0));
    EQUAL(numa_claim(MIB(1)), PRIM_PREFERRED);
}

CASE(claim_counts_what_is_given_back) {
    on_second_of_two(1064);
    EQUAL(numa_claim(MIB(700)), PRIM_BIND);
    CHECK(!numa_fits(MIB(700), 0));
    CHECK(numa_fits(MIB(700), MIB(700)));
    CHECK(numa_fits(MIB(1000), MIB(700)));
    CHECK(!numa_fits(MIB(1000) + 1, MIB(700)));
}

CASE(claim_of_more_than_any_machine_has) {
    on_second_of_two(1064);
    CHECK(!numa_fits(UINT64_MAX / 2, 0));
    EQUAL(numa_claim(UINT64_MAX / 2), PRIM_PREFERRED);
    numa_release(UINT64_MAX / 2);
    EQUAL(numa_claim(MIB(1000)), PRIM_BIND);
}

// Nothing is known of the room, so nothing may be said to exceed it.
CASE(claim_with_unknown_room) {
    fake.room_unknown = true;
    on_second_of_two(1064);
    EQUAL(numa_core.available, 0);
    EQUAL(numa_claim(MIB(1)), PRIM_PREFERRED);
    EQUAL(numa_unfit(), 0);
}

// --- regions ---

CASE(alloc_only_what_is_worth_it) {
    CHECK(!numa_node_alloc(MIB(4))); // no node was chosen
    on_second_of_two(4096);
    CHECK(!numa_node_alloc(0));
    CHECK(!numa_node_alloc((256 << 10) - 1));
    EQUAL(fake_ranges(), 0);
    char * base = numa_node_alloc(256 << 10);
    CHECK(base && base[0] == 0);
    EQUAL(fake.binds, 1);
    CHECK(numa_node_free(base));
    EQUAL(fake_ranges(), 0);
}

CASE(free_only_what_is_ours) {
    char other;
    CHECK(!numa_node_free(&other));
    on_second_of_two(4096);
    char * base = numa_node_alloc(MIB(2) + 5);
    char * map  = fake_map(MIB(1));
    numa_node_tag(map, MIB(1), NUMA_NODE_WEIGHTS);
    CHECK(!numa_node_free(&other));
    CHECK(!numa_node_free(NULL));
    CHECK(!numa_node_free(map));
    CHECK(!numa_node_free(base + 4096));
    EQUAL(fake_ranges(), 2);
    CHECK(numa_node_free(base));
    CHECK(!numa_node_free(base)); // once
    EQUAL(fake.bad_frees, 0);     // of the same size
    EQUAL(fake_ranges(), 1);
}

CASE(alloc_spills_where_it_does_not_fit) {
    on_second_of_two(164);
    char * fits = numa_node_alloc(MIB(90));
    EQUAL(fake.binds, 1);
    char * spills = numa_node_alloc(MIB(90));
    EQUAL(fake.binds, 1);
    EQUAL(fake.prefers, 1);
    EQUAL(numa_unfit(), MIB(90));
    fake_write(fits, MIB(90));
    fake_write(spills, MIB(90));
    EQUAL(fake.killed, 0);
    EQUAL(fake_on(fits, MIB(90), 1), MIB(90));
    EQUAL(fake_on(spills, MIB(90), 0), MIB(16));
    CHECK(numa_node_free(fits));
    CHECK(numa_node_free(spills));
    EQUAL(fake.room[1], MIB(164));
    fake.no_memory = true;
    CHECK(!numa_node_alloc(MIB(90)));
    CHECK(numa_fits(MIB(100), 0)); // nothing stayed claimed
}

static struct numa_sight sights[NUMA_NODE_USES];

static int look(void) {
    bool coarse = false;
    memset(sights, 0, sizeof(sights));
    const int result = numa_region_look(sights, &coarse);
    EQUAL(coarse, fake.coarse);
    return result;
}

static uint64_t all_bytes(void) {
    uint64_t bytes = 0;
    for (int i = 0; i < NUMA_NODE_USES; i++) {
        bytes += sights[i].bytes;
        const struct prim_residency * pages = &sights[i].pages;
        EQUAL(pages->checked, pages->on_node + pages->elsewhere + pages->not_resident);
    }
    return bytes;
}

CASE(tags_say_what_is_counted) {
    on_second_of_two(4096);
    char * repack = numa_node_alloc(MIB(4));
    char * kv     = numa_node_alloc(MIB(3));
    char * map    = fake_map(MIB(8));
    char * small  = fake_map(4096);
    EQUAL(look(), 0);
    EQUAL(sights[NUMA_NODE_OTHER].bytes, MIB(7)); // nobody has said yet
    numa_node_tag(repack, MIB(4), NUMA_NODE_COMPUTE);
    numa_node_tag(repack + 64, MIB(1), NUMA_NODE_REPACK); // the last word counts, for all of the region
    numa_node_tag(kv + MIB(3) - 1, 1, NUMA_NODE_KV);
    numa_node_tag(kv, 0, NUMA_NODE_COMPUTE);
    numa_node_tag(map + 4096, MIB(8) - 4096, NUMA_NODE_WEIGHTS);
    numa_node_tag(small, 4096, NUMA_NODE_KV); // not ours to look at
    numa_node_tag(NULL, 0, NUMA_NODE_WEIGHTS);
    fake_write(repack, MIB(1));
    fake_put(kv, MIB(3), 0);
    EQUAL(look(), 0);
    EQUAL(all_bytes(), MIB(15) - 4096);
    EQUAL(sights[NUMA_NODE_OTHER].bytes, 0);
    EQUAL(sights[NUMA_NODE_COMPUTE].bytes, 0);
    EQUAL(sights[NUMA_NODE_REPACK].bytes, MIB(4));
    EQUAL(sights[NUMA_NODE_REPACK].pages.checked, 1024);
    EQUAL(sights[NUMA_NODE_REPACK].pages.on_node, 256);
    EQUAL(sights[NUMA_NODE_REPACK].pages.not_resident, 768);
    EQUAL(sights[NUMA_NODE_KV].pages.elsewhere, 768);
    EQUAL(sights[NUMA_NODE_WEIGHTS].bytes, MIB(8) - 4096);
    EQUAL(sights[NUMA_NODE_WEIGHTS].pages.not_resident, 2047);
    CHECK(numa_node_free(kv));
    EQUAL(look(), 0);
    EQUAL(sights[NUMA_NODE_KV].bytes, 0);
}

// Weights in a buffer too small for a region are tagged all the same, and freed by another allocator after we were asked.
CASE(small_weights_are_forgotten) {
    on_second_of_two(4096);
    char * small = fake_map(64 << 10);
    numa_node_tag(small, 64 << 10, NUMA_NODE_WEIGHTS);
    EQUAL(look(), 0);
    EQUAL(sights[NUMA_NODE_WEIGHTS].bytes, 64 << 10);
    CHECK(!numa_node_free(small));
    EQUAL(look(), 0);
    EQUAL(sights[NUMA_NODE_WEIGHTS].bytes, 0);
}

CASE(lazy_ranges_count_apart) {
    enum { MOST = 3 };
    static const struct {
        unsigned at[MOST], len[MOST]; // in MiB of a mapping of 16
        unsigned weights, other;
    } ROWS[] = {
        { { 0 }, { 0 }, 16, 0 },
        { { 4 }, { 2 }, 14, 2 },
        { { 0 }, { 2 }, 14, 2 },
        { { 14 }, { 2 }, 14, 2 },
        { { 0 }, { 16 }, 0, 16 },
        { { 10, 4, 0 }, { 1, 2, 1 }, 12, 4 },
        { { 4, 6 }, { 2, 2 }, 12, 4 },        // side by side
        { { 0, 8 }, { 8, 8 }, 0, 16 },
        { { 1, 15 }, { 1, 1 }, 14, 2 },
    };
    on_second_of_two(4096);
    for (size_t row = 0; row < COUNT(ROWS); row++) {
        char * map = fake_map(MIB(16));
        fake_put(map, MIB(16), 1);
        for (int i = 0; i < MOST; i++) {
            fake_put(map + MIB(ROWS[row].at[i]), MIB(ROWS[row].len[i]), 0); // read on demand, by whomever
            numa_node_lazy(map + MIB(ROWS[row].at[i]), MIB(ROWS[row].len[i]));
        }
        numa_node_tag(map, MIB(16), NUMA_NODE_WEIGHTS);
        EQUAL(look(), 0);
        EQUAL(all_bytes(), MIB(16));
        EQUAL(sights[NUMA_NODE_WEIGHTS].bytes, MIB(ROWS[row].weights));
        EQUAL(sights[NUMA_NODE_WEIGHTS].pages.on_node, ROWS[row].weights * 256);
        EQUAL(sights[NUMA_NODE_WEIGHTS].pages.checked, ROWS[row].weights * 256);
        EQUAL(sights[NUMA_NODE_OTHER].bytes, MIB(ROWS[row].other));
        EQUAL(sights[NUMA_NODE_OTHER].pages.elsewhere, ROWS[row].other * 256);
        numa_node_unmapped(map, MIB(16));
        fake_unmap(map);
        EQUAL(look(), 0);
        EQUAL(all_bytes(), 0);
    }
}

CASE(looking_is_bounded) {
    on_second_of_two(65536);
    char * big   = numa_node_alloc(MIB(3072));
    char * less  = numa_node_alloc(MIB(1024));
    char * small = numa_node_alloc(MIB(1));
    char * kv    = numa_node_alloc(MIB(200));
    numa_node_tag(big, 1, NUMA_NODE_REPACK);
    numa_node_tag(less, 1, NUMA_NODE_REPACK);
    numa_node_tag(small, 1, NUMA_NODE_REPACK);
    numa_node_tag(kv, 1, NUMA_NODE_KV);
    fake_put(big, MIB(3072), 1);
    fake_put(less, MIB(1024), 0);
    EQUAL(look(), 0);
    const struct prim_residency * pages = &sights[NUMA_NODE_REPACK].pages;
    CHECK(pages->checked <= NUMA_LOOK_MOST + 3);
    CHECK(pages->checked >= NUMA_LOOK_MOST);
    CHECK(pages->on_node > NUMA_LOOK_MOST * 0.749 && pages->on_node < NUMA_LOOK_MOST * 0.751); // each by its size
    CHECK(pages->elsewhere > NUMA_LOOK_MOST * 0.249 && pages->elsewhere < NUMA_LOOK_MOST * 0.251);
    CHECK(pages->not_resident > 0 && pages->not_resident < 50);
    EQUAL(sights[NUMA_NODE_KV].pages.checked, 51200); // all of it: each use has its own bound
}

CASE(many_regions_are_all_looked_at) {
    enum { N = 500 };
    on_second_of_two(65536);
    for (int i = 0; i < N; i++) {
        char * map = fake_map(MIB(2));
        fake_put(map, MIB(2), i % 2);
        numa_node_tag(map, MIB(2), NUMA_NODE_WEIGHTS);
    }
    EQUAL(look(), 0);
    EQUAL(fake.looks, N);
    const struct prim_residency * pages = &sights[NUMA_NODE_WEIGHTS].pages;
    CHECK(pages->checked <= NUMA_LOOK_MOST + N);
    EQUAL(pages->on_node, pages->elsewhere);
}

CASE(one_region_cannot_be_looked_at) {
    static const enum numa_node_use USES[] = { NUMA_NODE_KV, NUMA_NODE_COMPUTE, NUMA_NODE_REPACK };
    char * bases[COUNT(USES)];
    on_second_of_two(4096);
    for (size_t i = 0; i < COUNT(USES); i++) {
        bases[i] = numa_node_alloc(MIB(1));
        numa_node_tag(bases[i], 1, USES[i]);
    }
    fake.look_error = -EIO;
    for (size_t bad = 0; bad < COUNT(USES); bad++) {
        fake.unseen = bases[bad];
        EQUAL(look(), -EIO);
        for (size_t i = 0; i < COUNT(USES); i++) {
            EQUAL(sights[USES[i]].pages.checked, i == bad ? 0 : 256);
        }
    }
}

CASE(drop_forgets_what_is_not_owned_within_the_range) {
    on_second_of_two(4096);
    char * owned = numa_node_alloc(MIB(1));
    char * map   = fake_map(MIB(4));
    numa_region_add(map, MIB(1), NUMA_PLACED, false, false);
    numa_region_add(map + MIB(1), MIB(1), NUMA_NODE_WEIGHTS, false, false);
    numa_region_add(map + MIB(2), MIB(1), NUMA_PLACED, false, false);
    numa_region_add(map + MIB(3), MIB(1), NUMA_NODE_WEIGHTS, false, false);
    EQUAL(look(), 0);
    EQUAL(all_bytes(), MIB(3)); // what was placed is not looked at by itself
    EQUAL(numa_region_drop(map, MIB(3)), MIB(2));
    EQUAL(numa_region_drop(map, MIB(3)), 0);
    EQUAL(numa_region_drop(owned, MIB(1)), 0);
    EQUAL(look(), 0);
    EQUAL(sights[NUMA_NODE_WEIGHTS].bytes, MIB(1));
    EQUAL(sights[NUMA_NODE_OTHER].bytes, MIB(1));
}

// --- weights ---

CASE(weights_mapped_where_they_are_local) {
    on_second_of_two(4096);
    char * map = fake_map(MIB(100));
    fake_cached(map, MIB(30), 1, true);
    numa_node_place(map, MIB(100));
    EQUAL(fake_on(map, MIB(100), 1), MIB(100));
    EQUAL(fake.touches, 7); // 16 MiB each
    EQUAL(fake.binds, 7);
    EQUAL(fake.moves, 0);
    EQUAL(fake.most_threads, 4); // a thread for each core
    EQUAL(fake.unbound_touches, 0);
    EQUAL(fake_policy(), PRIM_PREFERRED); // of the caller, afterwards
    EQUAL(fake_memory_node(), 1);
    CHECK(!numa_node_copy_weights());
    SAME(numa_weights_mode(), "map");
    EQUAL(look(), 0);
    EQUAL(all_bytes(), 0); // tensors are tagged later
}

CASE(weights_moved) {
    on_second_of_two(4096);
    char * map = fake_map(MIB(100));
    fake_cached(map + MIB(20), MIB(50), 0, false);
    numa_node_place(map, MIB(100));
    EQUAL(fake_on(map, MIB(100), 1), MIB(100));
    EQUAL(fake.moves, 2); // 64 MiB each, one after the other: several threads at once get into each other's way
    CHECK(!numa_node_copy_weights());
    SAME(numa_weights_mode(), "moved");
}

CASE(weights_copied_when_they_refuse_to_move) {
    on_second_of_two(4096);
    char * map = fake_map(MIB(100));
    fake_cached(map, MIB(10), 0, true);
    fake_cached(map + MIB(10), MIB(10), 0, false);
    numa_node_place(map, MIB(100));
    EQUAL(fake_on(map, MIB(100), 1), MIB(90));
    CHECK(numa_node_copy_weights());
    numa_node_unmapped(map, MIB(100));
    fake_unmap(map);
    SAME(numa_weights_mode(), "copy");
    CHECK(numa_node_copy_weights()); // of this model and the next
    CHECK(numa_fits(MIB(4032), 0));  // the mapping is claimed no more
}

CASE(weights_copied_when_nothing_may_be_moved) {
    on_second_of_two(4096);
    char * map = fake_map(MIB(100));
    fake.move_error = -ENOSYS; // as on Windows
    fake_cached(map, MIB(100), 0, false);
    numa_node_place(map, MIB(100));
    CHECK(numa_node_copy_weights());
}

CASE(weights_stay_where_a_copy_has_no_room) {
    on_second_of_two(150);
    char * map = fake_map(MIB(100));
    fake_cached(map, MIB(100), 0, true);
    numa_node_place(map, MIB(100));
    CHECK(!numa_node_copy_weights());
    SAME(numa_weights_mode(), "map");
    EQUAL(numa_unfit(), MIB(100));
    EQUAL(fake.binds, 0); // what is read in may spill
    EQUAL(fake.killed, 0);
}

CASE(weights_spill_where_the_node_is_too_small) {
    on_second_of_two(150);
    char * map = fake_map(MIB(200));
    numa_node_place(map, MIB(200));
    EQUAL(fake.killed, 0);
    EQUAL(fake_on(map, MIB(200), 1), MIB(150));
    EQUAL(fake_on(map, MIB(200), 0), MIB(50));
    CHECK(!numa_node_copy_weights());
    EQUAL(numa_unfit(), MIB(200));
}

// A mapping and the tensors repacked out of it may not both fit where a copy does.
static void check_at_once(unsigned available, enum weights_wish wish, bool copied) {
    on_second_of_two(available);
    numa_core.options.weights = wish;
    char * map = fake_map(MIB(100));
    numa_node_place(map, MIB(100));
    EQUAL(numa_node_copy_weights(), copied);
    EQUAL(fake.touches, copied ? 0 : 7);
    SAME(numa_weights_mode(), copied ? "copy" : "map");
    EQUAL(numa_fits(numa_core.available - MARGIN, 0), copied); // then nothing is claimed for it
}

CASE(weights_mapped_with_room_for_two) { check_at_once(264, WEIGHTS_AUTO, false); }
CASE(weights_copied_at_once) { check_at_once(263, WEIGHTS_AUTO, true); }
CASE(weights_copied_into_the_last_room) { check_at_once(164, WEIGHTS_AUTO, true); }
CASE(weights_mapped_without_room_for_one) { check_at_once(163, WEIGHTS_AUTO, false); }
CASE(weights_mapped_as_wished_with_room_for_one) { check_at_once(200, WEIGHTS_MAP, false); }

// The next file of a split model would be read for nothing.
CASE(weights_of_the_next_file_are_not_touched_either) {
    on_second_of_two(263);
    char * first = fake_map(MIB(100));
    char * next  = fake_map(MIB(30));
    numa_node_place(first, MIB(100));
    numa_node_place(next, MIB(30));
    CHECK(numa_node_copy_weights());
    EQUAL(fake.touches, 0);
}

CASE(weights_in_mappings_that_take_a_node) {
    int file;
    CHECK(!numa_node_section(&file) && !numa_node_view(&file));
    on_second_of_two(4096);
    CHECK(numa_node_section(&file) == &file && numa_node_view(&file) == &file);
    EQUAL(fake.section_node, 1);
    EQUAL(fake.view_node, 1);
}

CASE(weights_as_wished) {
    on_second_of_two(4096);
    char * map = fake_map(MIB(100));
    fake_cached(map, MIB(100), 0, true);
    CHECK(!numa_node_copy_weights());
    numa_core.options.weights = WEIGHTS_MAP;
    numa_node_place(map, MIB(100));
    CHECK(!numa_node_copy_weights());
    SAME(numa_weights_mode(), "map");
    EQUAL(fake_on(map, MIB(100), 0), MIB(100));
    numa_core.options.weights = WEIGHTS_COPY;
    CHECK(numa_node_copy_weights());
    numa_core.active = false;
    CHECK(!numa_node_copy_weights());
}

CASE(weights_without_a_node) {
    fake_machine("0:0-7:65536 1:8-15:65536");
    numa_core.options.weights = WEIGHTS_COPY;
    char * map = fake_map(MIB(1));
    char to[70000];
    numa_node_place(map, MIB(1));
    numa_node_lazy(map, MIB(1));
    numa_node_tag(map, MIB(1), NUMA_NODE_WEIGHTS);
    numa_node_unmapped(map, MIB(1));
    CHECK(!numa_node_copy_weights());
    CHECK(!numa_node_read(3, 0, to, sizeof(to)));
    EQUAL(numa_node_default_threads(), 0);
    CHECK(!numa_node_active());
    EQUAL(fake.touches + fake.looks + fake.reads, 0);
    EQUAL(look(), 0);
    EQUAL(all_bytes(), 0);
}

// Without a memory policy, what bound threads read in is local all the same, unless a cpuset forbids the node.
CASE(weights_without_a_memory_policy) {
    static const char * const MACHINES[] = { "0:0-7:65536 1:8-15:65536/4096", "0:0-7:65536 1:8-15:65536/4096:m" };
    for (int i = 0; i < 2; i++) {
        fake_machine(MACHINES[1 - i]);
        fake.memory_error = i ? -EPERM : -EINVAL;
        fake_choose(1);
        char * map = fake_map(MIB(100));
        fake_cached(map, MIB(100), 0, true);
        numa_node_place(map, MIB(100));
        EQUAL(numa_node_copy_weights(), i);
    }
}

CASE(weights_of_a_bad_disk) {
    on_second_of_two(4096);
    char * map = fake_map(MIB(100));
    fake.touch_error = -EFAULT;
    numa_node_place(map, MIB(100));
    CHECK(fake.touches <= 4); // each thread stops
    EQUAL(fake_policy(), PRIM_PREFERRED);
    CHECK(!numa_node_copy_weights());
}

CASE(weights_of_two_models) {
    on_second_of_two(4096);
    char * first  = fake_map(MIB(100));
    char * second = fake_map(MIB(50));
    numa_node_lazy(first + MIB(40), MIB(20));
    numa_node_place(first, MIB(100));
    EQUAL(fake_on(first, MIB(100), 1), MIB(80)); // in two parts, around what is lazy
    EQUAL(fake_on(first + MIB(40), MIB(20), -1), MIB(20));
    numa_node_place(second, MIB(50));
    CHECK(!numa_fits(MIB(4096 - 64 - 129), 0)); // 130 claimed
    CHECK(numa_fits(MIB(4096 - 64 - 130), 0));
    numa_node_unmapped(first, MIB(100));
    SAME(numa_weights_mode(), "map");
    CHECK(numa_fits(MIB(4096 - 64 - 50), 0));
    numa_node_unmapped(second, MIB(50));
    SAME(numa_weights_mode(), "copy");
}

// What the mapping holds on another node frees nothing on this one.
CASE(weights_are_not_copied_into_room_that_others_took) {
    on_second_of_two(1000);
    char * map = fake_map(MIB(300));
    fake_cached(map, MIB(300), 0, true);
    fake.others_take = MIB(800);
    numa_node_place(map, MIB(300));
    EQUAL(fake.room[1], MIB(200));
    CHECK(!numa_node_copy_weights());
}

// --- reading ---

static void check_read(uint64_t offset, size_t bytes, int threads) {
    char * to = malloc(bytes + 2);
    to[0] = to[bytes + 1] = 'x';
    fake.most_threads = fake.reads = 0;
    fake.most_read = 0;
    CHECK(numa_node_read(7, offset, to + 1, bytes));
    EQUAL(fake.most_threads, threads);
    CHECK(fake.most_read <= 4 << 20);
    EQUAL(fake.reads, (bytes + (4 << 20) - 1) / (4 << 20));
    EQUAL(fake.open_readers, 0);
    CHECK(to[0] == 'x' && to[bytes + 1] == 'x');
    size_t wrong = 0;
    for (size_t i = 0; i < bytes; i++) {
        wrong += to[1 + i] != fake_byte(offset + i);
    }
    EQUAL(wrong, 0);
    free(to);
}

CASE(read_by_several_threads) {
    on_second_of_two(4096);
    check_read(0, 64 << 10, 1);
    check_read(12345, (1 << 20) + 1, 1);
    check_read(UINT64_C(5) << 32, 4 << 20, 1);
    check_read(1, (4 << 20) + 1, 2);
    check_read(77, (33 << 20) + 5, 4); // no more than cores
    numa_core.n_cores = 64;
    check_read(0, 40 << 20, 8); // nor than a disk can use
    fake.alone = true;
    check_read(3, 40 << 20, 8);
}

CASE(read_nothing) {
    on_second_of_two(4096);
    size_t most = 64 << 20;
    char * to = malloc(most);
    CHECK(!numa_node_read(7, 0, to, (64 << 10) - 1)); // not worth it
    CHECK(!numa_node_read(7, 0, to, 0));
    EQUAL(fake.reads, 0);
    fake.unreadable = MIB(30);
    CHECK(!numa_node_read(7, 0, to, most));
    CHECK(!numa_node_read(7, MIB(30), to, 64 << 10));
    CHECK(numa_node_read(7, 0, to, MIB(30)));
    fake.no_reader = true;
    CHECK(!numa_node_read(7, 0, to, MIB(1)));
    EQUAL(fake.open_readers, 0);
    free(to);
}

// --- progress ---

static int begun, over;

static void count_loading(bool loading) {
    *(loading ? &begun : &over) += 1;
}

// What is told now; total -1 where nothing is being loaded.
static void check_progress(int64_t done, int64_t total, bool moving) {
    struct numa_node_load now;
    const bool loading = numa_node_progress(&now);
    EQUAL(loading ? (int64_t) now.total : -1, total);
    if (loading) {
        EQUAL(now.done, done);
        EQUAL(now.moving, moving);
    }
}

CASE(progress_of_a_mapping) {
    numa_node_on_loading(count_loading);
    on_second_of_two(4096);
    check_progress(0, -1, false);
    numa_node_loading(MIB(150)); // in two files
    EQUAL(begun, 1);
    check_progress(0, MIB(150), false);
    numa_node_place(fake_map(MIB(100)), MIB(100));
    check_progress(MIB(100), MIB(150), false);
    numa_node_place(fake_map(MIB(60)), MIB(60)); // there is more in a file than weights
    check_progress(MIB(150), MIB(150), false);
    EQUAL(over, 0);
    numa_progress_end();
    numa_progress_end(); // of nothing
    EQUAL(over, 1);
    check_progress(0, -1, false);
}

CASE(progress_of_a_copy) {
    on_second_of_two(4096);
    numa_node_loading(MIB(100));
    char * to = malloc(MIB(40));
    CHECK(numa_node_read(7, 0, to, MIB(40)));
    check_progress(MIB(40), MIB(100), false);
    CHECK(numa_node_read(7, MIB(40), to, MIB(20)));
    check_progress(MIB(60), MIB(100), false);
    CHECK(!numa_node_read(7, 0, to, 1000)); // which the caller then does
    check_progress(MIB(60) + 1000, MIB(100), false);
    numa_node_loading(MIB(100)); // again
    check_progress(0, MIB(100), false);
    free(to);
}

static int moves_seen;

static void see_a_move(void) {
    check_progress(moves_seen++ * (int64_t) MIB(64), MIB(100), true);
}

CASE(progress_of_moving) {
    on_second_of_two(4096);
    char * map = fake_map(MIB(100));
    fake_cached(map, MIB(100), 0, false);
    fake.on_move = see_a_move;
    numa_node_loading(MIB(200));
    numa_node_place(map, MIB(100));
    EQUAL(moves_seen, 2);
    check_progress(MIB(100), MIB(200), false); // the next file is read
}

CASE(moving_ends_where_it_is_refused) {
    on_second_of_two(4096);
    char * map = fake_map(MIB(200));
    fake_cached(map, MIB(200), 0, false);
    fake.move_error = -EPERM;
    numa_node_place(map, MIB(200));
    EQUAL(fake.moves, 1);
    CHECK(numa_node_copy_weights());
}

CASE(progress_without_a_node_is_what_became_resident) {
    fake.resident = MIB(30);
    numa_node_loading(MIB(100));
    check_progress(0, MIB(100), false);
    fake.resident = MIB(80);
    check_progress(MIB(50), MIB(100), false);
    fake.resident = MIB(1000);
    check_progress(MIB(100), MIB(100), false);
    fake.resident = MIB(10); // taken away meanwhile
    check_progress(0, MIB(100), false);
}

// --- workers ---

enum worker_kind { BOUND, STRAYED, NEVER_BOUND };

struct worker {
    pthread_t        thread;
    enum worker_kind kind;
    pthread_barrier_t * runs, * ends;
};

static void * worker_main(void * arg) {
    struct worker * worker = arg;
    if (worker->kind != NEVER_BOUND) {
        numa_node_bind_worker();
        numa_node_bind_worker(); // every graph calls it
        EQUAL(fake_memory_node(), 1);
        EQUAL(fake_policy(), PRIM_PREFERRED);
    }
    if (worker->kind == STRAYED) {
        prim_bind_cpus(&fake.topo.nodes[0].cpus);
    }
    pthread_barrier_wait(worker->runs);
    pthread_barrier_wait(worker->ends);
    return NULL;
}

static void check_workers(int workers, int bound) {
    int is_workers, is_bound;
    numa_worker_count(&is_workers, &is_bound);
    EQUAL(is_workers, workers);
    EQUAL(is_bound, bound);
}

// Run a pool of these workers, and count while it runs.
static void check_pool(int n, enum worker_kind first_kind, int workers, int bound) {
    struct worker pool[200];
    pthread_barrier_t runs, ends;
    pthread_barrier_init(&runs, NULL, (unsigned) n + 1);
    pthread_barrier_init(&ends, NULL, (unsigned) n + 1);
    for (int i = 0; i < n; i++) {
        pool[i] = (struct worker) { .kind = i == 0 ? first_kind : BOUND, .runs = &runs, .ends = &ends };
        numa_node_worker_created();
        pthread_create(&pool[i].thread, NULL, worker_main, &pool[i]);
    }
    pthread_barrier_wait(&runs);
    check_workers(workers, bound);
    pthread_barrier_wait(&ends);
    for (int i = 0; i < n; i++) {
        pthread_join(pool[i].thread, NULL);
    }
    pthread_barrier_destroy(&runs);
    pthread_barrier_destroy(&ends);
}

CASE(workers_counted) {
    on_second_of_two(4096);
    EQUAL(numa_node_default_threads(), 4);
    check_workers(0, 0);
    check_pool(8, BOUND, 8, 8);
    check_pool(8, STRAYED, 8, 7);
    check_workers(0, 0); // ended
    numa_node_bind_worker();
    check_pool(2, BOUND, 3, 3);
    EQUAL(fake.sleeps, 0);
}

CASE(workers_by_the_hundred) {
    on_second_of_two(4096);
    check_pool(200, BOUND, 200, 200);
    for (int i = 0; i < 100; i++) {
        check_pool(10, BOUND, 10, 10); // a pool for each graph
    }
    check_pool(200, STRAYED, 200, 199);
}

CASE(workers_without_a_node) {
    fake_machine("0:0-7:65536 1:8-15:65536");
    numa_node_worker_created();
    numa_node_bind_worker();
    EQUAL(fake_memory_node(), -1);
    fake_choose(1);
    numa_node_bind_worker(); // it was not done then
    EQUAL(fake_memory_node(), 1);
}

// A worker that never comes is waited for, but not for ever.
CASE(workers_awaited) {
    on_second_of_two(4096);
    check_pool(1, NEVER_BOUND, 0, 0);
    EQUAL(fake.sleeps, 1000);
}

static struct worker late;
static pthread_barrier_t late_runs, late_ends;

static void start_late(void) {
    if (!late.runs) {
        pthread_barrier_init(&late_runs, NULL, 2);
        pthread_barrier_init(&late_ends, NULL, 2);
        late = (struct worker) { .kind = BOUND, .runs = &late_runs, .ends = &late_ends };
        pthread_create(&late.thread, NULL, worker_main, &late);
        pthread_barrier_wait(&late_runs);
    }
}

static void end_late(void) {
    start_late();
    pthread_barrier_wait(&late_ends);
    pthread_join(late.thread, NULL);
}

CASE(workers_that_come_late_are_counted) {
    on_second_of_two(4096);
    fake.on_sleep = start_late;
    numa_node_worker_created();
    check_workers(1, 1);
    EQUAL(fake.sleeps, 1);
    end_late();
}

// --- help ---

static void check_help(int column) {
    char * text;
    size_t size;
    int flags = 0;
    FILE * file = open_memstream(&text, &size);
    numa_node_print_flags(file, column);
    fclose(file);
    for (const struct numa_node_flag * flag = numa_node_flags(); flag->name; flag++) {
        CHECK(strstr(text, flag->name) && (!flag->env[0] || strstr(text, flag->env)));
        flags++;
    }
    for (char * line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (line[2] == '-') {
            CHECK(strncmp(line, "  --numa-", 9) == 0);
            flags--;
        } else {
            EQUAL(strspn(line, " "), column);
        }
        CHECK((int) strlen(line) > column && (line[column - 1] == ' ' || column < 32));
        CHECK((int) strlen(line) < column + 100);
    }
    EQUAL(flags, 0);
    free(text);
}

CASE(help_is_aligned) {
    check_help(32);
    check_help(46);
    check_help(10); // behind the flag, where that is longer
}
