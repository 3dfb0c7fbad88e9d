// SPDX-License-Identifier: GPL-2.0-only
/*
 * kswapd's helpers: when they begin and end, that one is woken at a time, whose page
 * table walk they use, that they leave slab and waiting to kswapd, note refaults and
 * wake tasks that wait for the reserves. Also tested: new memory clears the failure
 * count of the node's kswapd. Included by mm/vmscan.c.
 */
#include <kunit/static_stub.h>
#include <kunit/test.h>
#include <kunit/test-bug.h>
#include <linux/shrinker.h>

/* A node with a zone that has @free pages free, min 500, low 750, high 1000. */
static pg_data_t *node_with(struct kunit *test, long free)
{
	pg_data_t *pgdat = kunit_kzalloc(test, sizeof(*pgdat), GFP_KERNEL);
	struct zone *zone;

	KUNIT_ASSERT_NOT_NULL(test, pgdat);
	zone = &pgdat->node_zones[ZONE_NORMAL];
	zone->_watermark[WMARK_MIN] = 500;
	zone->_watermark[WMARK_LOW] = 750;
	zone->_watermark[WMARK_HIGH] = 1000;
	atomic_long_set(&zone->managed_pages, 100000);
	atomic_long_set(&zone->vm_stat[NR_FREE_PAGES], free);
	return pgdat;
}

/*
 * Helpers begin below low, but not on a hopeless node. As free pages rise, helpers
 * stop one by one, the last one at high.
 */
static void the_watermarks_decide(struct kunit *test)
{
	static const struct {
		unsigned int others;
		long last;
	} cases[] = {
		{ 0, 1000 }, { 1, 938 }, { 2, 875 }, { 3, 813 },
		/* Of helpers that are being stopped, and of one that sleeps */
		{ 4, 750 }, { 5, 750 }, { KSWAPD_THREADS_MAX, 750 },
	};
	pg_data_t *pgdat = node_with(test, 0);
	atomic_long_t *free = &pgdat->node_zones[ZONE_NORMAL].vm_stat[NR_FREE_PAGES];

	pgdat->kswapd_helpers.nr = 4;
	for (unsigned int i = 0; i < ARRAY_SIZE(cases); i++) {
		atomic_long_set(free, cases[i].last);
		KUNIT_EXPECT_TRUE_MSG(test, kswapd_helper_wanted(pgdat, cases[i].others),
				      "%u others", cases[i].others);
		atomic_long_set(free, cases[i].last + 1);
		KUNIT_EXPECT_FALSE_MSG(test, kswapd_helper_wanted(pgdat, cases[i].others),
				       "%u others", cases[i].others);
	}
	atomic_long_set(free, 0);
	KUNIT_EXPECT_TRUE(test, kswapd_helper_wanted(pgdat, 0));
	atomic_set(&pgdat->kswapd_failures, MAX_RECLAIM_RETRIES);
	KUNIT_EXPECT_FALSE(test, kswapd_helper_wanted(pgdat, 0));
	KUNIT_EXPECT_FALSE(test, kswapd_helper_wanted(pgdat, KSWAPD_THREADS_MAX));
}

/* No helper works while one zone has free memory that any allocation may use. */
static void each_zone_must_be_short(struct kunit *test)
{
	pg_data_t *pgdat = node_with(test, 0);
	struct zone *small = &pgdat->node_zones[ZONE_MOVABLE];

	small->_watermark[WMARK_HIGH] = 100;
	atomic_long_set(&small->managed_pages, 10000);
	atomic_long_set(&small->vm_stat[NR_FREE_PAGES], 101);
	KUNIT_EXPECT_FALSE(test, kswapd_helper_wanted(pgdat, 0));
	small->lowmem_reserve[MAX_NR_ZONES - 1] = 1;
	KUNIT_EXPECT_TRUE(test, kswapd_helper_wanted(pgdat, 0));
}

/* Tasks stall below the boosted min, so the marks of helpers include the boost. */
static void a_boost_counts(struct kunit *test)
{
	pg_data_t *pgdat = node_with(test, 1001);
	atomic_long_t *free = &pgdat->node_zones[ZONE_NORMAL].vm_stat[NR_FREE_PAGES];

	KUNIT_EXPECT_FALSE(test, kswapd_helper_wanted(pgdat, 0));
	pgdat->node_zones[ZONE_NORMAL].watermark_boost = 512;
	atomic_long_set(free, 1262);
	KUNIT_EXPECT_TRUE(test, kswapd_helper_wanted(pgdat, KSWAPD_THREADS_MAX));
	atomic_long_set(free, 1263);
	KUNIT_EXPECT_FALSE(test, kswapd_helper_wanted(pgdat, KSWAPD_THREADS_MAX));
	atomic_long_set(free, 1512);
	KUNIT_EXPECT_TRUE(test, kswapd_helper_wanted(pgdat, 0));
	atomic_long_set(free, 1513);
	KUNIT_EXPECT_FALSE(test, kswapd_helper_wanted(pgdat, 0));
}

static int nr_woken;

/* An exclusive sleeper that has been woken ends the wake-up. */
static int note_wakeup(struct wait_queue_entry *entry, unsigned int mode, int flags,
		       void *key)
{
	if (!kunit_get_current_test())
		return 0;
	nr_woken++;
	return 1;
}

/* An allocation that finds the node below low wakes one more helper, not all. */
static void a_wakeup_is_for_one_helper(struct kunit *test)
{
	pg_data_t *pgdat = node_with(test, 750);
	struct wait_queue_head *wait = &pgdat->kswapd_helpers.wait;
	struct wait_queue_entry entries[3];

	init_waitqueue_head(wait);
	nr_woken = 0;
	kswapd_helpers_wake(pgdat);
	KUNIT_EXPECT_EQ(test, nr_woken, 0);
	for (unsigned int i = 0; i < ARRAY_SIZE(entries); i++) {
		init_waitqueue_func_entry(&entries[i], note_wakeup);
		add_wait_queue_exclusive(wait, &entries[i]);
	}
	kswapd_helpers_wake(pgdat);
	KUNIT_EXPECT_EQ(test, nr_woken, 1);
	atomic_long_set(&pgdat->node_zones[ZONE_NORMAL].vm_stat[NR_FREE_PAGES], 751);
	kswapd_helpers_wake(pgdat);
	KUNIT_EXPECT_EQ(test, nr_woken, 1);
}

static void use_mglru(bool use)
{
#ifdef CONFIG_LRU_GEN
	lru_gen_change_state(use);
#endif
}

/* A helper's pass over a real node. */
static void make_a_pass(bool mglru, bool full_walk)
{
	bool was_mglru = lru_gen_enabled();
	unsigned int flags;

	use_mglru(mglru);
	flags = memalloc_noreclaim_save();
	kswapd_helper_shrink(first_online_pgdat(), full_walk);
	memalloc_noreclaim_restore(flags);
	use_mglru(was_mglru);
}

/* kswapd may be held up, by a swap device for instance. */
static void a_helper_wakes_those_who_wait_for_reserves(struct kunit *test)
{
	struct wait_queue_head *wait = &first_online_pgdat()->pfmemalloc_wait;
	struct wait_queue_entry entry;

	init_waitqueue_func_entry(&entry, note_wakeup);
	for (int mglru = 0; mglru <= IS_ENABLED(CONFIG_LRU_GEN); mglru++) {
		nr_woken = 0;
		add_wait_queue(wait, &entry);
		make_a_pass(mglru, false);
		remove_wait_queue(wait, &entry);
		KUNIT_EXPECT_GT_MSG(test, nr_woken, 0, "lru_gen %d", mglru);
	}
}

static bool asked;

static unsigned long note_count(struct shrinker *shrinker, struct shrink_control *sc)
{
	if (kunit_get_current_test())
		asked = true;
	return SHRINK_EMPTY;
}

/* A part of each cache is too much for a pass that ends after 128 pages. */
static void a_helper_leaves_slab_to_kswapd(struct kunit *test)
{
	struct shrinker *shrinker = shrinker_alloc(0, "kswapd-helpers-kunit");

	KUNIT_ASSERT_NOT_NULL(test, shrinker);
	shrinker->count_objects = note_count;
	shrinker_register(shrinker);
	for (int mglru = 0; mglru <= IS_ENABLED(CONFIG_LRU_GEN); mglru++) {
		asked = false;
		make_a_pass(mglru, true);
		KUNIT_EXPECT_FALSE_MSG(test, asked, "lru_gen %d", mglru);
	}
	shrinker_free(shrinker);
}

/* On the classic LRU, active pages are spared until there are refaults again. */
static void a_pass_notes_refaults(struct kunit *test)
{
	unsigned long *noted = mem_cgroup_lruvec(NULL, first_online_pgdat())->refaults;

	/* Far from any number that these counters have. */
	noted[WORKINGSET_ANON] = ULONG_MAX / 2;
	noted[WORKINGSET_FILE] = ULONG_MAX / 2;
	make_a_pass(false, false);
	KUNIT_EXPECT_NE(test, noted[WORKINGSET_ANON], ULONG_MAX / 2);
	KUNIT_EXPECT_NE(test, noted[WORKINGSET_FILE], ULONG_MAX / 2);
}

static bool held_up;

static void note_hold_up(pg_data_t *pgdat, enum vmscan_throttle_state reason)
{
	held_up = true;
}

/* Of a pass over a node: all pages are under writeback, and have cycled. */
static void meet_dirty_pages(pg_data_t *pgdat, struct scan_control *sc)
{
	sc->nr.dirty = 32;
	sc->nr.congested = 32;
	sc->nr.writeback = 32;
	sc->nr.immediate = 32;
	sc->nr.taken = 32;
}

/* A mark that a helper set after kswapd has gone to sleep would stay. */
static void a_helper_neither_waits_nor_marks(struct kunit *test)
{
	pg_data_t *pgdat = first_online_pgdat();
	unsigned int pflags = current->flags & PF_KSWAPD;
	unsigned long *marks = &mem_cgroup_lruvec(NULL, pgdat)->flags;

	held_up = false;
	kunit_activate_static_stub(test, reclaim_throttle, note_hold_up);
	kunit_activate_static_stub(test, shrink_node_memcgs, meet_dirty_pages);
	current->flags |= PF_KSWAPD;
	make_a_pass(false, false);
	KUNIT_EXPECT_FALSE(test, test_bit(PGDAT_WRITEBACK, &pgdat->flags));
	KUNIT_EXPECT_FALSE(test, test_bit(LRUVEC_NODE_CONGESTED, marks));
	/* Nor does a helper wait as a direct reclaimer does. */
	set_bit(LRUVEC_NODE_CONGESTED, marks);
	make_a_pass(false, false);
	clear_pgdat_congested(pgdat);
	current->flags = (current->flags & ~PF_KSWAPD) | pflags;
	kunit_deactivate_static_stub(test, shrink_node_memcgs);
	kunit_deactivate_static_stub(test, reclaim_throttle);
	KUNIT_EXPECT_FALSE(test, held_up);
}

#ifdef CONFIG_MEMORY_HOTPLUG
/* The node's last kswapd may have given up before its memory went. */
static void new_memory_clears_failures(struct kunit *test)
{
	/* The first online node may have no memory, and no kswapd either. */
	pg_data_t *pgdat = NODE_DATA(first_memory_node);
	bool hopeless;

	atomic_set(&pgdat->kswapd_failures, MAX_RECLAIM_RETRIES);
	hopeless = kswapd_test_hopeless(pgdat);
	kswapd_run(pgdat->node_id);
	KUNIT_EXPECT_TRUE(test, hopeless);
	KUNIT_EXPECT_FALSE(test, kswapd_test_hopeless(pgdat));
}
#endif

#ifdef CONFIG_LRU_GEN
/* kswapd uses the node's walk. A helper has PF_KSWAPD, too, but gets a walk of its own. */
static void a_helper_does_not_use_its_nodes_walk(struct kunit *test)
{
	struct reclaim_state state = {}, *saved = current->reclaim_state;
	unsigned int pflags = current->flags & PF_KSWAPD;
	struct lru_gen_mm_walk *kswapd, *helper, *own;
	/* Not a real node, whose kswapd may be using the walk. */
	pg_data_t *pgdat = kunit_kzalloc(test, sizeof(*pgdat), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, pgdat);
	/* No assertion until the old state is restored. */
	current->reclaim_state = &state;
	current->flags |= PF_KSWAPD;
	helper = set_mm_walk(pgdat, false);
	/* As try_to_inc_max_seq() does. */
	own = set_mm_walk(NULL, true);
	clear_mm_walk(pgdat);
	pgdat->kswapd = current;
	kswapd = set_mm_walk(pgdat, false);
	clear_mm_walk(pgdat);
	current->flags = (current->flags & ~PF_KSWAPD) | pflags;
	current->reclaim_state = saved;

	KUNIT_EXPECT_NULL(test, helper);
	KUNIT_EXPECT_NOT_NULL(test, own);
	KUNIT_EXPECT_PTR_NE(test, own, &pgdat->mm_walk);
	KUNIT_EXPECT_PTR_EQ(test, kswapd, &pgdat->mm_walk);
	KUNIT_EXPECT_NULL(test, state.mm_walk);
}
#endif

static struct kunit_case kswapd_helpers_cases[] = {
	KUNIT_CASE(the_watermarks_decide),
	KUNIT_CASE(each_zone_must_be_short),
	KUNIT_CASE(a_boost_counts),
	KUNIT_CASE(a_wakeup_is_for_one_helper),
	KUNIT_CASE(a_helper_wakes_those_who_wait_for_reserves),
	KUNIT_CASE(a_helper_leaves_slab_to_kswapd),
	KUNIT_CASE(a_pass_notes_refaults),
	KUNIT_CASE(a_helper_neither_waits_nor_marks),
#ifdef CONFIG_MEMORY_HOTPLUG
	KUNIT_CASE(new_memory_clears_failures),
#endif
#ifdef CONFIG_LRU_GEN
	KUNIT_CASE(a_helper_does_not_use_its_nodes_walk),
#endif
	{}
};

static struct kunit_suite kswapd_helpers_suite = {
	.name = "kswapd_helpers",
	.test_cases = kswapd_helpers_cases,
};

kunit_test_suite(kswapd_helpers_suite);
