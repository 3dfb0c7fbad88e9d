// SPDX-License-Identifier: GPL-2.0-only
/*
 * do_writepages() entered from direct reclaim, from kswapd and from elsewhere.
 *
 * The mapping belongs to no filesystem: its ->writepages counts the calls. The
 * test task plays reclaim by having a reclaim_state, and kswapd by setting
 * PF_KSWAPD.
 */
#include <kunit/test.h>
#include <linux/backing-dev.h>
#include <linux/fs.h>
#include <linux/swap.h>
#include <linux/vmstat.h>
#include <linux/writeback.h>

static int nr_calls;

static int writeback_reclaim_writepages(struct address_space *mapping,
					struct writeback_control *wbc)
{
	nr_calls++;
	return 0;
}

static const struct address_space_operations writeback_reclaim_aops = {
	.writepages	= writeback_reclaim_writepages,
};

struct writepages_case {
	const char *name;
	bool in_reclaim;
	bool kswapd;
	bool clean;
	int counted;		/* reclaim_writepages */
};

static const struct writepages_case writepages_cases[] = {
	{ .name = "a flusher" },
	{ .name = "kswapd", .in_reclaim = true, .kswapd = true },
	{ .name = "direct reclaim", .in_reclaim = true, .counted = 1 },
	{ .name = "direct reclaim, nothing dirty", .in_reclaim = true, .clean = true },
};

KUNIT_ARRAY_PARAM_DESC(writepages, writepages_cases, name);

static unsigned long nr_counted(struct kunit *test)
{
	unsigned long *events;

	events = kunit_kcalloc(test, NR_VM_EVENT_ITEMS, sizeof(*events), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, events);
	all_vm_events(events);
	return events[RECLAIM_WRITEPAGES];
}

static struct address_space *new_test_mapping(struct kunit *test)
{
	struct super_block *sb = kunit_kzalloc(test, sizeof(*sb), GFP_KERNEL);
	struct inode *inode = kunit_kzalloc(test, sizeof(*inode), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, sb);
	KUNIT_ASSERT_NOT_NULL(test, inode);
	sb->s_bdi = &noop_backing_dev_info;
	inode_init_once(inode);
	inode->i_sb = sb;
	inode->i_mapping = &inode->i_data;
	inode->i_data.host = inode;
	inode->i_data.a_ops = &writeback_reclaim_aops;
	return &inode->i_data;
}

static void writepages_test(struct kunit *test)
{
	const struct writepages_case *c = test->param_value;
	struct address_space *mapping = new_test_mapping(test);
	struct writeback_control wbc = {
		.sync_mode = WB_SYNC_ALL,
		.nr_to_write = 16,
		.range_end = LLONG_MAX,
	};
	unsigned long before = nr_counted(test);
	struct reclaim_state rs = { };
	int ret;

	nr_calls = 0;
	KUNIT_ASSERT_FALSE(test, xa_is_err(xa_store_irq(&mapping->i_pages, 1,
							xa_mk_value(1), GFP_KERNEL)));
	if (!c->clean) {
		xa_lock_irq(&mapping->i_pages);
		__xa_set_mark(&mapping->i_pages, 1, PAGECACHE_TAG_DIRTY);
		xa_unlock_irq(&mapping->i_pages);
	}

	if (c->kswapd)
		current->flags |= PF_KSWAPD;
	if (c->in_reclaim)
		current->reclaim_state = &rs;
	ret = do_writepages(mapping, &wbc);
	current->reclaim_state = NULL;
	if (c->kswapd)
		current->flags &= ~PF_KSWAPD;

	KUNIT_EXPECT_EQ(test, ret, 0);
	/* The data is written in any case: a refusal could lose it. */
	KUNIT_EXPECT_EQ(test, nr_calls, 1);
	KUNIT_EXPECT_EQ(test, nr_counted(test) - before, c->counted);
	xa_destroy(&mapping->i_pages);
}

static struct kunit_case writeback_reclaim_cases[] = {
	KUNIT_CASE_PARAM(writepages_test, writepages_gen_params),
	{ }
};

static struct kunit_suite writeback_reclaim_suite = {
	.name = "writeback_reclaim",
	.test_cases = writeback_reclaim_cases,
};

kunit_test_suite(writeback_reclaim_suite);
