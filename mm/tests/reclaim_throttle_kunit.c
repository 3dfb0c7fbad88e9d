// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a pass of reclaim does about the dirty pages that it has met, and when
 * reclaim that may not write or unmap makes a new generation of MGLRU.
 *
 * Included by mm/vmscan.c, whose throttle_for_writeback() is tested with a node
 * made up for the purpose and with reclaim_throttle() replaced, so that nobody
 * sleeps. The test task plays kswapd by PF_KSWAPD.
 */
#include <kunit/test.h>
#include <linux/percpu.h>

enum { NOBODY = NR_VMSCAN_THROTTLE };

struct throttle_case {
	const char *name;
	/* Who reclaims */
	bool kswapd;
	bool cgroup;
	bool proactive_root;
	bool local_throttle;
	bool hibernation;
	/* What the pass has met, in pages: see struct scan_control */
	unsigned int dirty;
	unsigned int congested;
	unsigned int writeback;
	unsigned int immediate;
	unsigned int taken;
	/* What it has freed; whether it was the first one */
	unsigned int reclaimed;
	bool first;
	/* Pages of the node that wait to be written, of 1000 that can be reclaimed */
	unsigned int pending;
	/* Bits that an earlier pass has left */
	bool was_node_congested;
	bool was_cgroup_congested;
	/* What must come of it */
	bool node_writeback;
	bool node_congested;
	bool cgroup_congested;
	unsigned int throttled;
};

static const struct throttle_case throttle_cases[] = {
	{ .name = "kswapd, nothing dirty", .kswapd = true, .taken = 32, .throttled = NOBODY },
	{ .name = "kswapd, some under writeback", .kswapd = true, .dirty = 31,
	  .writeback = 31, .taken = 32, .throttled = NOBODY },
	{ .name = "kswapd, all under writeback", .kswapd = true, .dirty = 32,
	  .writeback = 32, .taken = 32, .node_writeback = true, .throttled = NOBODY },
	{ .name = "kswapd, nothing isolated", .kswapd = true, .throttled = NOBODY },
	{ .name = "kswapd, pages come round before they are written", .kswapd = true,
	  .dirty = 20, .congested = 19, .immediate = 1, .taken = 32,
	  .throttled = VMSCAN_THROTTLE_WRITEBACK },
	{ .name = "kswapd, all dirty pages come round", .kswapd = true, .dirty = 3,
	  .congested = 3, .writeback = 3, .taken = 32, .node_congested = true,
	  .throttled = NOBODY },
	{ .name = "kswapd does not wait for congestion", .kswapd = true, .taken = 32,
	  .pending = 900, .was_node_congested = true, .node_congested = true,
	  .throttled = NOBODY },

	{ .name = "direct, marks nothing for others", .dirty = 32, .congested = 32,
	  .writeback = 32, .immediate = 32, .taken = 32, .pending = 900, .throttled = NOBODY },
	{ .name = "direct, node congested and full of pages to write", .taken = 32,
	  .pending = 501, .was_node_congested = true, .node_congested = true,
	  .throttled = VMSCAN_THROTTLE_CONGESTED },
	{ .name = "direct, node congested but half of it is clean", .taken = 32,
	  .pending = 500, .was_node_congested = true, .node_congested = true,
	  .throttled = NOBODY },
	{ .name = "direct, what it met itself does not count", .dirty = 32, .congested = 32,
	  .taken = 32, .was_node_congested = true, .node_congested = true,
	  .throttled = NOBODY },
	{ .name = "direct, goes by the node whatever it has freed", .taken = 8,
	  .reclaimed = 32, .pending = 501,
	  .was_node_congested = true, .node_congested = true,
	  .throttled = VMSCAN_THROTTLE_CONGESTED },
	{ .name = "direct, writes to the page cache for a disk", .taken = 32,
	  .pending = 900, .was_node_congested = true, .node_congested = true,
	  .local_throttle = true, .throttled = NOBODY },
	{ .name = "hibernation does not wait", .taken = 32, .pending = 900,
	  .was_node_congested = true, .node_congested = true, .hibernation = true,
	  .throttled = NOBODY },
#ifdef CONFIG_CGROUP_WRITEBACK
	{ .name = "cgroup, all it met is dirty and the node is clean", .cgroup = true,
	  .dirty = 32, .congested = 32, .writeback = 32, .taken = 32,
	  .cgroup_congested = true, .throttled = VMSCAN_THROTTLE_CONGESTED },
	{ .name = "cgroup, most it met is dirty and the node is clean", .cgroup = true,
	  .dirty = 17, .congested = 17, .writeback = 17, .taken = 32,
	  .cgroup_congested = true, .throttled = VMSCAN_THROTTLE_CONGESTED },
	{ .name = "cgroup, half it met is clean", .cgroup = true, .dirty = 16,
	  .congested = 16, .writeback = 16, .taken = 32, .pending = 900,
	  .cgroup_congested = true, .throttled = NOBODY },
	{ .name = "cgroup, clean, on a node full of pages to write", .cgroup = true,
	  .taken = 32, .pending = 900, .was_cgroup_congested = true,
	  .cgroup_congested = true, .throttled = NOBODY },
	{ .name = "cgroup, dirty pages not yet queued", .cgroup = true, .dirty = 32,
	  .congested = 31, .writeback = 31, .taken = 32, .throttled = NOBODY },
	{ .name = "cgroup, congested before, dirty pages not yet queued", .cgroup = true,
	  .dirty = 32, .congested = 1, .writeback = 1, .taken = 32,
	  .was_cgroup_congested = true, .cgroup_congested = true,
	  .throttled = VMSCAN_THROTTLE_CONGESTED },
	{ .name = "cgroup, congested before, nothing isolated", .cgroup = true,
	  .was_cgroup_congested = true, .cgroup_congested = true, .throttled = NOBODY },
	{ .name = "cgroup, most it met is dirty but something was freed", .cgroup = true,
	  .dirty = 31, .congested = 31, .writeback = 31, .taken = 32,
	  .reclaimed = 1, .cgroup_congested = true, .throttled = NOBODY },
	{ .name = "cgroup, all the first pass met is dirty", .cgroup = true,
	  .dirty = 32, .congested = 32, .writeback = 32, .taken = 32,
	  .first = true, .cgroup_congested = true, .throttled = NOBODY },
	{ .name = "memory.reclaim of the root, first pass, some freed, node full",
	  .cgroup = true, .proactive_root = true, .dirty = 1, .congested = 1,
	  .writeback = 1, .taken = 32, .reclaimed = 1, .first = true, .pending = 501,
	  .cgroup_congested = true, .throttled = VMSCAN_THROTTLE_CONGESTED },
	{ .name = "cgroup, a handful of dirty pages", .cgroup = true,
	  .dirty = 1, .congested = 1, .writeback = 1, .taken = 1,
	  .cgroup_congested = true, .throttled = VMSCAN_THROTTLE_CONGESTED },
	{ .name = "memory.reclaim of the root goes by the node", .cgroup = true,
	  .proactive_root = true, .dirty = 32, .congested = 32, .writeback = 32,
	  .taken = 32, .cgroup_congested = true, .throttled = NOBODY },
	{ .name = "memory.reclaim of the root, node full of pages to write",
	  .cgroup = true, .proactive_root = true, .dirty = 1, .congested = 1,
	  .writeback = 1, .taken = 32, .pending = 501, .cgroup_congested = true,
	  .throttled = VMSCAN_THROTTLE_CONGESTED },
#endif
};

KUNIT_ARRAY_PARAM_DESC(throttle, throttle_cases, name);

static unsigned int throttled_for;
static pg_data_t *throttled_on;

static void note_throttle(pg_data_t *pgdat, enum vmscan_throttle_state reason)
{
	/* Two waits in one pass would be one too many: no case expects this. */
	throttled_for = throttled_for == NOBODY ? reason : NOBODY + 1;
	throttled_on = pgdat;
}

static void free_zonestats(void *stats)
{
	free_percpu((struct per_cpu_zonestat __percpu *)stats);
}

/* A node of one zone with 1000 pages that can be reclaimed. */
static pg_data_t *new_test_node(struct kunit *test, unsigned int pending)
{
	struct per_cpu_zonestat __percpu *stats;
	pg_data_t *pgdat = kunit_kzalloc(test, sizeof(*pgdat), GFP_KERNEL);
	struct zone *zone;

	/* Without SMP and NUMA it has no members. */
	stats = __alloc_percpu(max_t(size_t, 1, sizeof(*stats)), sizeof(long));
	KUNIT_ASSERT_NOT_NULL(test, pgdat);
	KUNIT_ASSERT_NOT_NULL(test, (void __force *)stats);
	KUNIT_ASSERT_EQ(test, kunit_add_action_or_reset(test, free_zonestats,
							(void __force *)stats), 0);
	zone = &pgdat->node_zones[0];
	zone->zone_pgdat = pgdat;
	zone->per_cpu_zonestats = stats;
	atomic_long_set(&zone->managed_pages, 1000);
	atomic_long_set(&zone->vm_stat[NR_ZONE_INACTIVE_FILE], 1000);
	atomic_long_set(&zone->vm_stat[NR_ZONE_WRITE_PENDING], pending);
	return pgdat;
}

static void throttle_test(struct kunit *test)
{
	const struct throttle_case *c = test->param_value;
	static const unsigned int flags_played = PF_KSWAPD | PF_LOCAL_THROTTLE;
	unsigned int flags = current->flags & flags_played;
	struct lruvec *lruvec = kunit_kzalloc(test, sizeof(*lruvec), GFP_KERNEL);
	pg_data_t *pgdat = new_test_node(test, c->pending);
	struct scan_control sc = {
		.nr.dirty = c->dirty,
		.nr.congested = c->congested,
		.nr.writeback = c->writeback,
		.nr.immediate = c->immediate,
		.nr.taken = c->taken,
		.priority = c->first ? DEF_PRIORITY : DEF_PRIORITY - 1,
		.hibernation_mode = c->hibernation,
	};

	KUNIT_ASSERT_NOT_NULL(test, lruvec);
	/* Only compared: whoever is not the root cgroup is another one. */
	if (c->cgroup)
		sc.target_mem_cgroup = (struct mem_cgroup *)lruvec;
#ifdef CONFIG_MEMCG
	if (c->proactive_root)
		sc.target_mem_cgroup = root_mem_cgroup;
	if (c->proactive_root && mem_cgroup_disabled())
		kunit_skip(test, "memory cgroups are disabled");
#endif
	if (c->was_node_congested)
		set_bit(LRUVEC_NODE_CONGESTED, &lruvec->flags);
	if (c->was_cgroup_congested)
		set_bit(LRUVEC_CGROUP_CONGESTED, &lruvec->flags);

	throttled_for = NOBODY;
	throttled_on = NULL;
	kunit_activate_static_stub(test, reclaim_throttle, note_throttle);
	current->flags &= ~flags_played;
	if (c->kswapd)
		current->flags |= PF_KSWAPD;
	if (c->local_throttle)
		current->flags |= PF_LOCAL_THROTTLE;
	throttle_for_writeback(pgdat, lruvec, &sc, c->reclaimed);
	current->flags = (current->flags & ~flags_played) | flags;
	kunit_deactivate_static_stub(test, reclaim_throttle);

	KUNIT_EXPECT_EQ(test, throttled_for, c->throttled);
	KUNIT_EXPECT_PTR_EQ(test, throttled_on, c->throttled == NOBODY ? NULL : pgdat);
	KUNIT_EXPECT_EQ(test, test_bit(PGDAT_WRITEBACK, &pgdat->flags), c->node_writeback);
	KUNIT_EXPECT_EQ(test, test_bit(LRUVEC_NODE_CONGESTED, &lruvec->flags),
			c->node_congested);
	KUNIT_EXPECT_EQ(test, test_bit(LRUVEC_CGROUP_CONGESTED, &lruvec->flags),
			c->cgroup_congested);
}

#ifdef CONFIG_LRU_GEN
/* Whether it ages a lruvec without cold file folios whose youngest generation is that old. */
static bool ages(struct scan_control *sc, struct lruvec *lruvec, unsigned long age)
{
	const unsigned long max_seq = 2 * MAX_NR_GENS;

	lruvec->lrugen.max_seq = max_seq;
	lruvec->lrugen.min_seq[LRU_GEN_FILE] = max_seq - MIN_NR_GENS + 1;
	lruvec->lrugen.timestamps[lru_gen_from_seq(max_seq)] = jiffies - age;
	return should_run_aging(lruvec, max_seq, sc, 0);
}

static void opportunistic_aging_test(struct kunit *test)
{
	struct scan_control boost = { .may_unmap = 1, .priority = DEF_PRIORITY };
	struct scan_control zone_reclaim = { .may_writepage = 1, .priority = 4 };
	struct scan_control regular = { .may_writepage = 1, .may_unmap = 1 };
	struct lruvec *lruvec = kunit_kzalloc(test, sizeof(*lruvec), GFP_KERNEL);
	const unsigned long min_ttl = READ_ONCE(lru_gen_min_ttl);

	KUNIT_ASSERT_NOT_NULL(test, lruvec);
	WRITE_ONCE(lru_gen_min_ttl, 0);
	KUNIT_EXPECT_TRUE(test, ages(&regular, lruvec, 0));
	KUNIT_EXPECT_FALSE(test, ages(&boost, lruvec, 0));
	KUNIT_EXPECT_FALSE(test, ages(&zone_reclaim, lruvec, 0));
	KUNIT_EXPECT_TRUE(test, ages(&boost, lruvec, 2 * HZ));
	KUNIT_EXPECT_TRUE(test, ages(&zone_reclaim, lruvec, 2 * HZ));

	WRITE_ONCE(lru_gen_min_ttl, 60 * HZ);
	KUNIT_EXPECT_TRUE(test, ages(&regular, lruvec, 0));
	KUNIT_EXPECT_FALSE(test, ages(&boost, lruvec, 30 * HZ));
	KUNIT_EXPECT_FALSE(test, ages(&zone_reclaim, lruvec, 30 * HZ));
	KUNIT_EXPECT_TRUE(test, ages(&boost, lruvec, 61 * HZ));
	WRITE_ONCE(lru_gen_min_ttl, min_ttl);
}
#endif

static struct kunit_case reclaim_throttle_cases[] = {
	KUNIT_CASE_PARAM(throttle_test, throttle_gen_params),
#ifdef CONFIG_LRU_GEN
	KUNIT_CASE(opportunistic_aging_test),
#endif
	{ }
};

static struct kunit_suite reclaim_throttle_suite = {
	.name = "reclaim_throttle",
	.test_cases = reclaim_throttle_cases,
};

kunit_test_suite(reclaim_throttle_suite);
