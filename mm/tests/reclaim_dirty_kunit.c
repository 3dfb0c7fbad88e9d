// SPDX-License-Identifier: GPL-2.0-only
/*
 * A dirty file folio in reclaim is not written, and is freed as soon as it is
 * clean.
 *
 * The folio belongs to an inode of the test, whose address space operations
 * count what is written. The folio goes through reclaim as MADV_PAGEOUT would
 * send it.
 */
#include <kunit/test.h>
#include <linux/backing-dev.h>
#include <linux/fs.h>
#include <linux/pagemap.h>
#include <linux/swap.h>
#include <linux/vmstat.h>
#include <linux/writeback.h>

#include "../internal.h"

static int nr_writes;

static int reclaim_dirty_writepages(struct address_space *mapping,
				    struct writeback_control *wbc)
{
	nr_writes++;
	return 0;
}

static const struct address_space_operations reclaim_dirty_aops = {
	.writepages	= reclaim_dirty_writepages,
	.dirty_folio	= noop_dirty_folio,
};

static struct file_system_type reclaim_dirty_fs = {
	.name		= "reclaim_dirty_kunit",
};

static int reclaim_dirty_init(struct kunit *test)
{
	struct super_block *sb = kunit_kzalloc(test, sizeof(*sb), GFP_KERNEL);
	struct inode *inode = kunit_kzalloc(test, sizeof(*inode), GFP_KERNEL);
	struct address_space *mapping;
	struct folio *folio;

	KUNIT_ASSERT_NOT_NULL(test, sb);
	KUNIT_ASSERT_NOT_NULL(test, inode);
	sb->s_type = &reclaim_dirty_fs;
	/* No accounting of dirty folios, and no flusher. */
	sb->s_bdi = &noop_backing_dev_info;
	inode_init_once(inode);
	spin_lock_init(&inode->i_lock);
	/* The inode counts as open, so nothing looks for it on a list. */
	atomic_set(&inode->i_count, 1);
	inode->i_sb = sb;
	mapping = &inode->i_data;
	inode->i_mapping = mapping;
	mapping->host = inode;
	mapping->a_ops = &reclaim_dirty_aops;
	mapping_set_gfp_mask(mapping, GFP_KERNEL);
	mapping_set_no_writeback_tags(mapping);
	test->priv = mapping;
	nr_writes = 0;

	folio = filemap_alloc_folio(GFP_KERNEL, 0, NULL);
	KUNIT_ASSERT_NOT_NULL(test, folio);
	if (filemap_add_folio(mapping, folio, 0, GFP_KERNEL)) {
		folio_put(folio);
		KUNIT_FAIL_AND_ABORT(test, "no room in the page cache");
	}
	folio_mark_uptodate(folio);
	folio_set_dirty(folio);
	folio_unlock(folio);
	folio_put(folio);
	return 0;
}

static void reclaim_dirty_exit(struct kunit *test)
{
	struct address_space *mapping = test->priv;
	struct folio *folio;

	if (!mapping)
		return;
	folio = filemap_get_folio(mapping, 0);
	if (!IS_ERR(folio)) {
		folio_lock(folio);
		folio_clear_dirty(folio);
		filemap_remove_folio(folio);
		folio_unlock(folio);
		folio_put(folio);
	}
	lru_add_drain_all();
}

/* The folio without a reference of ours: reclaim leaves alone a folio with one more. */
static struct folio *the_folio(struct kunit *test)
{
	struct folio *folio = filemap_get_folio(test->priv, 0);

	if (IS_ERR(folio))
		return NULL;
	folio_put(folio);
	return folio;
}

/* One pass of reclaim over the folio; returns the pages freed. */
static unsigned long reclaim_it(struct kunit *test)
{
	struct folio *folio = the_folio(test);
	LIST_HEAD(list);

	KUNIT_ASSERT_NOT_NULL(test, folio);
	lru_add_drain_all();
	KUNIT_ASSERT_TRUE(test, folio_isolate_lru(folio));
	list_add(&folio->lru, &list);
	return reclaim_pages(&list);
}

/* What a flusher and then the disk would do. */
static void write_it(struct kunit *test)
{
	struct folio *folio = the_folio(test);

	KUNIT_ASSERT_NOT_NULL(test, folio);
	folio_lock(folio);
	folio_clear_dirty(folio);
	folio_start_writeback(folio);
	folio_unlock(folio);
	folio_end_writeback(folio);
	lru_add_drain_all();
}

static unsigned long nr_rotated(struct kunit *test)
{
	unsigned long *events;

	events = kunit_kcalloc(test, NR_VM_EVENT_ITEMS, sizeof(*events), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, events);
	all_vm_events(events);
	return events[PGROTATED];
}

static void a_dirty_file_folio_is_not_written(struct kunit *test)
{
	struct folio *folio;

	KUNIT_EXPECT_EQ(test, reclaim_it(test), 0);
	folio = the_folio(test);
	KUNIT_ASSERT_NOT_NULL(test, folio);
	KUNIT_EXPECT_EQ(test, nr_writes, 0);
	KUNIT_EXPECT_TRUE(test, folio_test_dirty(folio));
	KUNIT_EXPECT_FALSE(test, folio_test_writeback(folio));
	/* The folio waits, out of the way, for its writeback to end. */
	KUNIT_EXPECT_TRUE(test, folio_test_reclaim(folio));
}

static void it_is_freed_by_the_first_pass_when_clean(struct kunit *test)
{
	unsigned long rotated;
	struct folio *folio;

	KUNIT_EXPECT_EQ(test, reclaim_it(test), 0);
	lru_add_drain_all();
	rotated = nr_rotated(test);
	write_it(test);
	folio = the_folio(test);
	KUNIT_ASSERT_NOT_NULL(test, folio);
	/* The end of writeback has moved the folio to the tail of the LRU. */
	KUNIT_EXPECT_GE(test, nr_rotated(test) - rotated, 1);
	KUNIT_EXPECT_FALSE(test, folio_test_reclaim(folio));
	KUNIT_EXPECT_FALSE(test, folio_test_active(folio));
	KUNIT_EXPECT_EQ(test, reclaim_it(test), 1);
	KUNIT_EXPECT_NULL(test, the_folio(test));
	KUNIT_EXPECT_EQ(test, nr_writes, 0);
}

static void a_folio_met_under_writeback_is_freed_after_it(struct kunit *test)
{
	struct folio *folio = the_folio(test);
	unsigned long rotated;

	KUNIT_ASSERT_NOT_NULL(test, folio);
	folio_lock(folio);
	folio_clear_dirty(folio);
	folio_start_writeback(folio);
	folio_unlock(folio);
	KUNIT_EXPECT_EQ(test, reclaim_it(test), 0);
	lru_add_drain_all();
	KUNIT_EXPECT_TRUE(test, folio_test_reclaim(folio));
	rotated = nr_rotated(test);
	folio_end_writeback(folio);
	lru_add_drain_all();
	KUNIT_EXPECT_GE(test, nr_rotated(test) - rotated, 1);
	KUNIT_EXPECT_EQ(test, reclaim_it(test), 1);
	KUNIT_EXPECT_NULL(test, the_folio(test));
}

static struct kunit_case reclaim_dirty_cases[] = {
	KUNIT_CASE(a_dirty_file_folio_is_not_written),
	KUNIT_CASE(it_is_freed_by_the_first_pass_when_clean),
	KUNIT_CASE(a_folio_met_under_writeback_is_freed_after_it),
	{}
};

static struct kunit_suite reclaim_dirty_suite = {
	.name = "reclaim_dirty",
	.init = reclaim_dirty_init,
	.exit = reclaim_dirty_exit,
	.test_cases = reclaim_dirty_cases,
};

kunit_test_suite(reclaim_dirty_suite);
