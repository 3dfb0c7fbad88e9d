// SPDX-License-Identifier: GPL-2.0-only
/*
 * Direct reclaim that waits for writeback: whom throttle_for_writeback() has wait,
 * which a context switch to another task shows, and which pages shrink_folio_list()
 * counts for that. Included by mm/vmscan.c.
 */
#include <kunit/test.h>
#include <linux/jiffies.h>

struct throttle_case {
	const char *name;
	bool cgroup;
	bool may_not_wait;	/* as kswapd, or charges of kernel memory */
	unsigned int task;	/* further flags */
	gfp_t gfp;		/* GFP_KERNEL unless set */
	/* What the pass has met, in pages: see struct scan_control */
	unsigned int dirty;
	unsigned int congested;
	unsigned int taken;
	unsigned int reclaimed;
	/* What must result */
	bool waits;
};

static const struct throttle_case throttle_cases[] = {
	{ .name = "most has cycled", .congested = 17, .taken = 32, .waits = true },
	{ .name = "half has cycled", .congested = 16, .taken = 32 },
	{ .name = "dirty pages met for the first time", .dirty = 32, .taken = 32 },
	{ .name = "nothing isolated" },
	{ .name = "something was freed", .congested = 31, .taken = 32, .reclaimed = 1 },
	{ .name = "may not wait", .may_not_wait = true, .congested = 32, .taken = 32 },
	{ .name = "must not enter a filesystem", .gfp = GFP_NOFS, .congested = 32,
	  .taken = 32 },
	{ .name = "would rather fail", .gfp = GFP_KERNEL | __GFP_NORETRY, .congested = 32,
	  .taken = 32 },
	{ .name = "would rather fail late", .gfp = GFP_KERNEL | __GFP_RETRY_MAYFAIL,
	  .congested = 32, .taken = 32 },
	{ .name = "an exiting task", .task = PF_EXITING, .congested = 32, .taken = 32 },
	{ .name = "a kernel thread", .task = PF_KTHREAD, .congested = 32, .taken = 32 },
	{ .name = "a worker of io_uring", .task = PF_USER_WORKER, .congested = 32,
	  .taken = 32 },
#ifdef CONFIG_CGROUP_WRITEBACK
	{ .name = "cgroup, most has cycled", .cgroup = true, .congested = 17, .taken = 32,
	  .waits = true },
	{ .name = "cgroup, the charge may not wait", .cgroup = true, .may_not_wait = true,
	  .congested = 32, .taken = 32 },
#endif
};

KUNIT_ARRAY_PARAM_DESC(throttle, throttle_cases, name);

static void throttle_test(struct kunit *test)
{
	const struct throttle_case *c = test->param_value;
	/* A kernel thread would not wait. */
	static const unsigned int flags_played = PF_KTHREAD | PF_EXITING | PF_USER_WORKER;
	unsigned int flags = current->flags & flags_played;
	struct scan_control sc = {
		.gfp_mask = c->gfp ?: GFP_KERNEL,
		.nr.dirty = c->dirty,
		.nr.congested = c->congested,
		.nr.taken = c->taken,
		.nr_reclaimed = c->reclaimed,
		.may_wait = !c->may_not_wait,
	};
	unsigned long switches;
	unsigned long start, waited;

	/* Only compared: anything but the root cgroup will do. */
	if (c->cgroup)
		sc.target_mem_cgroup = (struct mem_cgroup *)&sc;
#ifdef CONFIG_MEMCG
	if (c->cgroup && mem_cgroup_disabled())
		kunit_skip(test, "memory cgroups are disabled");
	if (c->waits && !writeback_throttling_sane(&sc))
		kunit_skip(test, "the memory controller is one of cgroup v1");
#endif
	current->flags = (current->flags & ~flags_played) | c->task;
	switches = current->nvcsw;
	start = jiffies;
	throttle_for_writeback(&sc);
	waited = jiffies - start;
	switches = current->nvcsw - switches;
	current->flags = (current->flags & ~flags_played) | flags;

	KUNIT_EXPECT_EQ(test, !!switches, c->waits);
	if (c->waits)
		KUNIT_EXPECT_GE(test, waited, msecs_to_jiffies(10));
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
	bool may_not_wait;	/* as kswapd's reclaim */
	unsigned int order;
	unsigned int cycled;
} cycled_cases[] = {
	{ .name = "clean", .aops = &local_aops },
	{ .name = "dirty, met for the first time", .aops = &local_aops, .dirty = true },
	{ .name = "dirty, cycled", .aops = &local_aops, .dirty = true, .reclaim = true,
	  .cycled = 1 },
	{ .name = "dirty, cycled, large", .aops = &local_aops, .dirty = true,
	  .reclaim = true, .order = 2, .cycled = 4 },
	{ .name = "dirty, cycled, kswapd", .aops = &local_aops, .dirty = true,
	  .reclaim = true, .may_not_wait = true },
	{ .name = "dirty, cycled, FUSE", .aops = &local_aops, .dirty = true,
	  .reclaim = true, .fuse = true },
	{ .name = "NFS, not committed", .aops = &uncommitted_aops, .cycled = 1 },
	{ .name = "NFS, the server commits", .aops = &committing_aops, .cycled = 1 },
	{ .name = "NFS, the server commits, kswapd", .aops = &committing_aops,
	  .may_not_wait = true },
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
		.may_wait = !c->may_not_wait,
	};
	struct reclaim_stat stat;
	struct folio *folio;
	LIST_HEAD(folios);

	KUNIT_ASSERT_NOT_NULL(test, mapping);
	folio = folio_alloc(GFP_KERNEL, c->order);
	KUNIT_ASSERT_NOT_NULL(test, folio);
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
	KUNIT_CASE_PARAM(cycled_test, cycled_gen_params),
	{ }
};

static struct kunit_suite reclaim_throttle_suite = {
	.name = "reclaim_throttle",
	.test_cases = reclaim_throttle_cases,
};

kunit_test_suite(reclaim_throttle_suite);
