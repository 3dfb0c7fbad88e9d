// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a pass of reclaim does about the dirty pages that it has met.
 *
 * Included by mm/vmscan.c. The suite runs throttle_for_writeback() on a made-up
 * node, with reclaim_throttle() replaced, and throttle_cgroup(). A context switch
 * to another task shows that a cgroup waits. The test task plays kswapd by setting
 * PF_KSWAPD. Also tested: that shrink_node() of either LRU gets there, and what
 * shrink_folio_list() counts before a cgroup may wait.
 */
#include <kunit/test.h>
#include <linux/jiffies.h>

enum { NOBODY = NR_VMSCAN_THROTTLE };

struct throttle_case {
	const char *name;
	/* Who reclaims */
	bool kswapd;
	bool cgroup;
	bool hibernation;
	bool may_not_wait;	/* as charges of kernel memory */
	unsigned int task;	/* further flags */
	gfp_t gfp;		/* GFP_KERNEL unless set */
	/* What the pass has met, in pages: see struct scan_control */
	unsigned int dirty;
	unsigned int congested;
	unsigned int writeback;
	unsigned int immediate;
	unsigned int taken;
	/* What the reclaim of a cgroup has freed */
	unsigned int reclaimed;
	/* Left by an earlier pass */
	bool was_node_congested;
	/* What must result */
	bool node_writeback;
	bool node_congested;
	bool waits;		/* as a cgroup's task does */
	unsigned int throttled;	/* by reclaim_throttle() */
};

static const struct throttle_case throttle_cases[] = {
	{ .name = "kswapd, nothing dirty", .kswapd = true, .taken = 32, .throttled = NOBODY },
	{ .name = "kswapd, some under writeback", .kswapd = true, .dirty = 31,
	  .writeback = 31, .taken = 32, .throttled = NOBODY },
	{ .name = "kswapd, all under writeback", .kswapd = true, .dirty = 32,
	  .writeback = 32, .taken = 32, .node_writeback = true, .throttled = NOBODY },
	{ .name = "kswapd, nothing isolated", .kswapd = true, .throttled = NOBODY },
	{ .name = "kswapd, pages cycle before they are written", .kswapd = true,
	  .dirty = 20, .congested = 19, .immediate = 1, .taken = 32,
	  .throttled = VMSCAN_THROTTLE_WRITEBACK },
	{ .name = "kswapd, all dirty pages have cycled", .kswapd = true, .dirty = 3,
	  .congested = 3, .writeback = 3, .taken = 32, .node_congested = true,
	  .throttled = NOBODY },
	{ .name = "kswapd does not wait for congestion", .kswapd = true, .taken = 32,
	  .was_node_congested = true, .node_congested = true, .throttled = NOBODY },

	{ .name = "direct, marks nothing for others", .dirty = 32, .congested = 32,
	  .writeback = 32, .immediate = 32, .taken = 32, .throttled = NOBODY },
	{ .name = "direct, node congested", .taken = 32, .was_node_congested = true,
	  .node_congested = true, .throttled = VMSCAN_THROTTLE_CONGESTED },
	{ .name = "direct, writes to the page cache for a disk", .taken = 32,
	  .was_node_congested = true, .node_congested = true,
	  .task = PF_LOCAL_THROTTLE, .throttled = NOBODY },
	{ .name = "hibernation does not wait", .taken = 32,
	  .was_node_congested = true, .node_congested = true, .hibernation = true,
	  .throttled = NOBODY },
#ifdef CONFIG_CGROUP_WRITEBACK
	{ .name = "cgroup, most it met has cycled", .cgroup = true, .congested = 17,
	  .taken = 32, .waits = true, .throttled = NOBODY },
	{ .name = "cgroup, half it met has cycled", .cgroup = true, .congested = 16,
	  .taken = 32, .throttled = NOBODY },
	{ .name = "cgroup, dirty pages met for the first time", .cgroup = true, .dirty = 32,
	  .taken = 32, .throttled = NOBODY },
	{ .name = "cgroup, nothing isolated", .cgroup = true, .throttled = NOBODY },
	{ .name = "cgroup, node congested", .cgroup = true, .taken = 32,
	  .was_node_congested = true, .node_congested = true, .throttled = NOBODY },
	{ .name = "cgroup, most has cycled but something was freed", .cgroup = true,
	  .congested = 31, .taken = 32, .reclaimed = 1, .throttled = NOBODY },
	{ .name = "cgroup, the charge may not wait", .cgroup = true, .may_not_wait = true,
	  .congested = 32, .taken = 32, .throttled = NOBODY },
	{ .name = "cgroup, must not enter a filesystem", .cgroup = true, .gfp = GFP_NOFS,
	  .congested = 32, .taken = 32, .throttled = NOBODY },
	{ .name = "cgroup, would rather fail", .cgroup = true,
	  .gfp = GFP_KERNEL | __GFP_NORETRY, .congested = 32, .taken = 32,
	  .throttled = NOBODY },
	{ .name = "cgroup, would rather fail late", .cgroup = true,
	  .gfp = GFP_KERNEL | __GFP_RETRY_MAYFAIL, .congested = 32, .taken = 32,
	  .throttled = NOBODY },
	{ .name = "cgroup, an exiting task", .cgroup = true, .task = PF_EXITING,
	  .congested = 32, .taken = 32, .throttled = NOBODY },
	{ .name = "cgroup, a kernel thread", .cgroup = true, .task = PF_KTHREAD,
	  .congested = 32, .taken = 32, .throttled = NOBODY },
	{ .name = "cgroup, a worker of io_uring", .cgroup = true, .task = PF_USER_WORKER,
	  .congested = 32, .taken = 32, .throttled = NOBODY },
#endif
};

KUNIT_ARRAY_PARAM_DESC(throttle, throttle_cases, name);

static unsigned int throttled_for;

static void note_throttle(pg_data_t *pgdat, enum vmscan_throttle_state reason)
{
	/* Two waits in one pass would be one too many: no case expects this value. */
	throttled_for = throttled_for == NOBODY ? reason : NOBODY + 1;
}

static void throttle_test(struct kunit *test)
{
	const struct throttle_case *c = test->param_value;
	/* A kernel thread would not wait. */
	static const unsigned int flags_played = PF_KSWAPD | PF_LOCAL_THROTTLE | PF_KTHREAD |
						 PF_EXITING | PF_USER_WORKER;
	unsigned int flags = current->flags & flags_played;
	pg_data_t *pgdat = kunit_kzalloc(test, sizeof(*pgdat), GFP_KERNEL);
	struct scan_control sc = {
		.gfp_mask = c->gfp ?: GFP_KERNEL,
		.nr.dirty = c->dirty,
		.nr.congested = c->congested,
		.nr.writeback = c->writeback,
		.nr.immediate = c->immediate,
		.nr.taken = c->taken,
		.nr_reclaimed = c->reclaimed,
		.hibernation_mode = c->hibernation,
		.may_wait = c->cgroup && !c->may_not_wait,
	};
	unsigned long switches;
	unsigned long start, waited;

	KUNIT_ASSERT_NOT_NULL(test, pgdat);
	/* Only compared: anything but the root cgroup will do. */
	if (c->cgroup)
		sc.target_mem_cgroup = (struct mem_cgroup *)pgdat;
#ifdef CONFIG_MEMCG
	if (c->cgroup && mem_cgroup_disabled())
		kunit_skip(test, "memory cgroups are disabled");
	if (c->waits && !writeback_throttling_sane(&sc))
		kunit_skip(test, "the memory controller is one of cgroup v1");
#endif
	if (c->was_node_congested)
		set_bit(PGDAT_CONGESTED, &pgdat->flags);

	throttled_for = NOBODY;
	kunit_activate_static_stub(test, reclaim_throttle, note_throttle);
	current->flags &= ~flags_played;
	if (c->kswapd) {
		current->flags |= PF_KSWAPD;
		/* Where kswapd has helpers, the flag alone does not make a kswapd. */
		pgdat->kswapd = current;
	}
	current->flags |= c->task;
	switches = current->nvcsw;
	start = jiffies;
	throttle_for_writeback(pgdat, &sc);
	if (c->cgroup)
		throttle_cgroup(&sc);
	waited = jiffies - start;
	switches = current->nvcsw - switches;
	current->flags = (current->flags & ~flags_played) | flags;
	kunit_deactivate_static_stub(test, reclaim_throttle);

	KUNIT_EXPECT_EQ(test, throttled_for, c->throttled);
	KUNIT_EXPECT_EQ(test, !!switches, c->waits);
	if (c->waits)
		KUNIT_EXPECT_GE(test, waited, msecs_to_jiffies(10));
	KUNIT_EXPECT_EQ(test, test_bit(PGDAT_WRITEBACK, &pgdat->flags), c->node_writeback);
	KUNIT_EXPECT_EQ(test, test_bit(PGDAT_CONGESTED, &pgdat->flags), c->node_congested);
}

/* What a direct reclaimer of a congested node is then held for. */
static unsigned int held_for(struct kunit *test, bool may_write, bool may_unmap)
{
	pg_data_t *pgdat = first_online_pgdat();
	struct scan_control sc = {
		.gfp_mask = GFP_KERNEL,
		.nr_to_reclaim = SWAP_CLUSTER_MAX,
		.priority = DEF_PRIORITY,
		.reclaim_idx = MAX_NR_ZONES - 1,
		.may_writepage = may_write,
		.may_unmap = may_unmap,
		.may_swap = 1,
	};
	unsigned int flags = memalloc_noreclaim_save();

	throttled_for = NOBODY;
	set_bit(PGDAT_CONGESTED, &pgdat->flags);
	set_task_reclaim_state(current, &sc.reclaim_state);
	kunit_activate_static_stub(test, reclaim_throttle, note_throttle);
	shrink_node(pgdat, &sc);
	kunit_deactivate_static_stub(test, reclaim_throttle);
	set_task_reclaim_state(current, NULL);
	clear_pgdat_congested(pgdat);
	KUNIT_EXPECT_FALSE(test, test_bit(PGDAT_CONGESTED, &pgdat->flags));
	memalloc_noreclaim_restore(flags);
	return throttled_for;
}

/* Direct reclaim of a real node, on both LRUs. */
static void a_congested_node_holds_direct_reclaim(struct kunit *test)
{
#ifdef CONFIG_LRU_GEN
	bool mglru = lru_gen_enabled();

	lru_gen_change_state(true);
	KUNIT_EXPECT_EQ(test, held_for(test, true, true),
			VMSCAN_THROTTLE_CONGESTED);
	lru_gen_change_state(false);
#endif
	KUNIT_EXPECT_EQ(test, held_for(test, true, true),
			VMSCAN_THROTTLE_CONGESTED);
#ifdef CONFIG_LRU_GEN
	lru_gen_change_state(mglru);
#endif
}

/* On MGLRU a pass that may not both write and unmap scans nothing. */
static void who_scans_nothing_is_not_held(struct kunit *test)
{
#ifdef CONFIG_LRU_GEN
	bool mglru = lru_gen_enabled();

	lru_gen_change_state(true);
	KUNIT_EXPECT_EQ(test, held_for(test, false, false), NOBODY);
	KUNIT_EXPECT_EQ(test, held_for(test, false, true), NOBODY);
	KUNIT_EXPECT_EQ(test, held_for(test, true, false), NOBODY);
	lru_gen_change_state(mglru);
#else
	kunit_skip(test, "there is no MGLRU");
#endif
}

/* What NFS says while the server commits, and before it is asked to. */
static void say_committing(struct folio *folio, bool *dirty, bool *writeback)
{
	*writeback = true;
}

static void say_uncommitted(struct folio *folio, bool *dirty, bool *writeback)
{
	*dirty = true;
}

static bool refuse_release(struct folio *folio, gfp_t gfp)
{
	return false;
}

static const struct address_space_operations local_aops = {
	.release_folio = refuse_release,
};

static const struct address_space_operations committing_aops = {
	.is_dirty_writeback = say_committing,
	.release_folio = refuse_release,
};

static const struct address_space_operations uncommitted_aops = {
	.is_dirty_writeback = say_uncommitted,
	.release_folio = refuse_release,
};

static const struct cycled_case {
	const char *name;
	const struct address_space_operations *aops;
	bool dirty, reclaim;	/* flags of the folio */
	bool fuse;		/* its writeback may wait for reclaim */
	bool root;		/* reclaim of the node */
	unsigned int order;
	unsigned int cycled;
} cycled_cases[] = {
	{ .name = "clean", .aops = &local_aops },
	{ .name = "dirty, met for the first time", .aops = &local_aops, .dirty = true },
	{ .name = "dirty, cycled", .aops = &local_aops, .dirty = true, .reclaim = true,
	  .cycled = 1 },
	{ .name = "dirty, cycled, large", .aops = &local_aops, .dirty = true,
	  .reclaim = true, .order = 2, .cycled = 4 },
	{ .name = "dirty, cycled, node", .aops = &local_aops, .dirty = true,
	  .reclaim = true, .root = true },
	{ .name = "dirty, cycled, FUSE", .aops = &local_aops, .dirty = true,
	  .reclaim = true, .fuse = true },
	{ .name = "NFS, not committed", .aops = &uncommitted_aops, .cycled = 1 },
	{ .name = "NFS, the server commits", .aops = &committing_aops, .cycled = 1 },
	{ .name = "NFS, the server commits, node", .aops = &committing_aops, .root = true },
	{ .name = "NFS, dirty while the server commits others", .aops = &committing_aops,
	  .dirty = true },
};

KUNIT_ARRAY_PARAM_DESC(cycled, cycled_cases, name);

static void cycled_test(struct kunit *test)
{
	const struct cycled_case *c = test->param_value;
	struct address_space *mapping = kunit_kzalloc(test, sizeof(*mapping), GFP_KERNEL);
	struct scan_control sc = {
		.gfp_mask = GFP_KERNEL,
		.may_unmap = 1,
		.no_demotion = 1,
	};
	struct reclaim_stat stat;
	struct folio *folio;
	LIST_HEAD(folios);

	if (!IS_ENABLED(CONFIG_MEMCG) || mem_cgroup_disabled())
		kunit_skip(test, "there are no memory cgroups");
	KUNIT_ASSERT_NOT_NULL(test, mapping);
	folio = folio_alloc(GFP_KERNEL, c->order);
	KUNIT_ASSERT_NOT_NULL(test, folio);
	/* Only compared: anything but the root cgroup will do. */
	if (!c->root)
		sc.target_mem_cgroup = (struct mem_cgroup *)mapping;
	mapping->a_ops = c->aops;
	if (c->fuse)
		mapping_set_writeback_may_deadlock_on_reclaim(mapping);
	folio->mapping = mapping;
	/* What makes reclaim ask the filesystem, which refuses to let it go. */
	folio_set_private(folio);
	if (c->dirty)
		folio_set_dirty(folio);
	if (c->reclaim)
		folio_set_reclaim(folio);
	list_add(&folio->lru, &folios);

	shrink_folio_list(&folios, folio_pgdat(folio), &sc, &stat, true, NULL);

	KUNIT_ASSERT_FALSE(test, list_empty(&folios));
	KUNIT_EXPECT_EQ(test, stat.nr_congested, c->cycled);
	folio_clear_active(folio);
	folio_clear_reclaim(folio);
	folio_clear_dirty(folio);
	folio_clear_private(folio);
	folio->mapping = NULL;
	folio_put(folio);
}

static struct kunit_case reclaim_throttle_cases[] = {
	KUNIT_CASE_PARAM(throttle_test, throttle_gen_params),
	KUNIT_CASE(a_congested_node_holds_direct_reclaim),
	KUNIT_CASE(who_scans_nothing_is_not_held),
	KUNIT_CASE_PARAM(cycled_test, cycled_gen_params),
	{ }
};

static struct kunit_suite reclaim_throttle_suite = {
	.name = "reclaim_throttle",
	.test_cases = reclaim_throttle_cases,
};

kunit_test_suite(reclaim_throttle_suite);
