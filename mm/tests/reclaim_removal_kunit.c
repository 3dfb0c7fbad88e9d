// SPDX-License-Identifier: GPL-2.0-only
/*
 * Clean file folios in reclaim are removed together, in one hold of their
 * mapping's locks. No folio is held while reclaim enters a filesystem.
 *
 * The folios belong to an inode of the test, whose address space operations
 * record how many pages were left when reclaim called them.
 */
#include <kunit/test.h>
#include <linux/backing-dev.h>
#include <linux/fs.h>
#include <linux/pagemap.h>
#include <linux/swap.h>

#include "../internal.h"

#define NR_FOLIOS	32

struct removal_test {
	struct super_block sb;
	struct file_system_type fs;
	struct inode inode;
	/* What ->free_folio has seen: calls, and how often the number of pages left changed */
	unsigned int freed, holds;
	unsigned long left;
	/* Pages left when ->release_folio was called */
	unsigned long at_release;
};

static struct removal_test *test_of(struct address_space *mapping)
{
	return mapping->host->i_private;
}

/* The folio no longer belongs to a mapping. */
static void removal_free_folio(struct folio *folio)
{
	struct removal_test *t = folio_change_private(folio, NULL);
	unsigned long left = t->inode.i_data.nrpages;

	t->freed++;
	t->holds += left != t->left;
	t->left = left;
}

static bool removal_release_folio(struct folio *folio, gfp_t gfp)
{
	struct removal_test *t = test_of(folio->mapping);

	t->at_release = folio->mapping->nrpages;
	folio_detach_private(folio);
	folio_change_private(folio, t);
	return true;
}

static const struct address_space_operations removal_aops = {
	.free_folio	= removal_free_folio,
	.release_folio	= removal_release_folio,
	.dirty_folio	= noop_dirty_folio,
};

static struct folio *folio_at(struct removal_test *t, pgoff_t index)
{
	struct folio *folio = filemap_get_folio(&t->inode.i_data, index);

	return IS_ERR(folio) ? NULL : folio;
}

static int removal_init(struct kunit *test)
{
	struct removal_test *t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);
	struct inode *inode;

	KUNIT_ASSERT_NOT_NULL(test, t);
	inode = &t->inode;
	t->fs.name = "reclaim_removal_kunit";
	t->sb.s_type = &t->fs;
	t->sb.s_bdi = &noop_backing_dev_info;
	t->left = NR_FOLIOS;
	inode_init_once(inode);
	spin_lock_init(&inode->i_lock);
	/* The inode counts as open, so nothing looks for it on a list. */
	atomic_set(&inode->i_count, 1);
	inode->i_sb = &t->sb;
	inode->i_private = t;
	inode->i_mapping = &inode->i_data;
	inode->i_data.host = inode;
	inode->i_data.a_ops = &removal_aops;
	mapping_set_gfp_mask(&inode->i_data, GFP_KERNEL);
	mapping_set_no_writeback_tags(&inode->i_data);
	test->priv = t;

	for (int i = 0; i < NR_FOLIOS; i++) {
		struct folio *folio = filemap_alloc_folio(GFP_KERNEL, 0, NULL);

		KUNIT_ASSERT_NOT_NULL(test, folio);
		if (filemap_add_folio(&inode->i_data, folio, i, GFP_KERNEL)) {
			folio_put(folio);
			KUNIT_FAIL_AND_ABORT(test, "no room in the page cache");
		}
		/*
		 * For ->free_folio. Without the flag, reclaim asks no
		 * filesystem to release the folio.
		 */
		folio_change_private(folio, t);
		folio_mark_uptodate(folio);
		folio_unlock(folio);
		folio_put(folio);
	}
	lru_add_drain_all();
	return 0;
}

static void removal_exit(struct kunit *test)
{
	struct removal_test *t = test->priv;

	if (!t)
		return;
	truncate_inode_pages(&t->inode.i_data, 0);
	lru_add_drain_all();
}

/* Reclaim the first folios; returns the pages freed. */
static unsigned long reclaim_some(struct kunit *test, unsigned int nr)
{
	struct removal_test *t = test->priv;
	LIST_HEAD(list);

	for (unsigned int i = 0; i < nr; i++) {
		struct folio *folio = folio_at(t, i);

		KUNIT_ASSERT_NOT_NULL(test, folio);
		if (folio_isolate_lru(folio))
			list_add(&folio->lru, &list);
		else
			KUNIT_FAIL(test, "a folio is not on the LRU");
		folio_put(folio);
	}
	return reclaim_pages(&list);
}

static void neighbours_go_in_one_hold(struct kunit *test)
{
	struct removal_test *t = test->priv;

	KUNIT_EXPECT_EQ(test, reclaim_some(test, NR_FOLIOS), NR_FOLIOS);
	KUNIT_EXPECT_EQ(test, t->freed, NR_FOLIOS);
	KUNIT_EXPECT_EQ(test, t->inode.i_data.nrpages, 0);
	/* Up to sixteen at a time: two holds, one more for each change of node. */
	KUNIT_EXPECT_LE(test, t->holds, 4);
	/* Each folio has left a shadow, which identifies a refault. */
	for (pgoff_t index = 0; index < NR_FOLIOS; index++)
		KUNIT_EXPECT_TRUE(test, xa_is_value(xa_load(&t->inode.i_data.i_pages, index)));
}

/* A folio in use among the gathered ones stays, on the LRU and unlocked; so does a dirty one. */
static void what_is_in_use_stays(struct kunit *test)
{
	struct removal_test *t = test->priv;
	struct folio *used = folio_at(t, 5), *dirty = folio_at(t, 9);

	KUNIT_ASSERT_NOT_NULL(test, used);
	KUNIT_ASSERT_NOT_NULL(test, dirty);
	folio_set_dirty(dirty);
	folio_put(dirty);
	KUNIT_EXPECT_EQ(test, reclaim_some(test, 16), 14);
	KUNIT_EXPECT_EQ(test, t->freed, 14);
	KUNIT_EXPECT_EQ(test, t->inode.i_data.nrpages, NR_FOLIOS - 14);
	lru_add_drain_all();
	KUNIT_EXPECT_TRUE(test, folio_test_lru(used));
	KUNIT_EXPECT_FALSE(test, folio_test_locked(used));
	KUNIT_EXPECT_EQ(test, folio_ref_count(used), 2);
	folio_put(used);
	KUNIT_EXPECT_PTR_EQ(test, xa_load(&t->inode.i_data.i_pages, 5), used);
	KUNIT_EXPECT_PTR_EQ(test, xa_load(&t->inode.i_data.i_pages, 9), dirty);
	KUNIT_EXPECT_TRUE(test, folio_test_dirty(dirty));
	folio_lock(dirty);
	folio_clear_dirty(dirty);
	folio_unlock(dirty);
}

/* A task that writes to a folio and then drops its reference loses nothing. */
static void one_dirty_again_stays(struct kunit *test)
{
	struct removal_test *t = test->priv;
	struct address_space *mapping = &t->inode.i_data;
	struct folio *folio = folio_at(t, 0);
	long removed;

	KUNIT_ASSERT_NOT_NULL(test, folio);
	folio_lock(folio);
	folio_set_dirty(folio);
	removed = remove_mapping(mapping, folio);
	KUNIT_EXPECT_EQ(test, removed, 0);
	KUNIT_EXPECT_EQ(test, t->freed, 0);
	folio_clear_dirty(folio);
	/* Folios that are gone already cannot be removed. */
	if (!removed) {
		KUNIT_EXPECT_EQ(test, folio_ref_count(folio), 2);
		KUNIT_EXPECT_EQ(test, remove_mapping(mapping, folio), 1);
		KUNIT_EXPECT_EQ(test, t->freed, 1);
	}
	folio_unlock(folio);
	folio_put(folio);
}

/* A filesystem that releases a folio may wait for a task that waits for another folio. */
static void none_is_held_while_a_filesystem_is_asked(struct kunit *test)
{
	struct removal_test *t = test->priv;
	struct folio *folio = folio_at(t, 8);

	KUNIT_ASSERT_NOT_NULL(test, folio);
	folio_change_private(folio, NULL);
	folio_attach_private(folio, t);
	folio_put(folio);
	/* Eight folios before this one, eight after it. */
	KUNIT_EXPECT_EQ(test, reclaim_some(test, 17), 17);
	KUNIT_EXPECT_EQ(test, t->at_release, NR_FOLIOS - 8);
	KUNIT_EXPECT_EQ(test, t->freed, 17);
}

static struct kunit_case reclaim_removal_cases[] = {
	KUNIT_CASE(neighbours_go_in_one_hold),
	KUNIT_CASE(what_is_in_use_stays),
	KUNIT_CASE(one_dirty_again_stays),
	KUNIT_CASE(none_is_held_while_a_filesystem_is_asked),
	{}
};

static struct kunit_suite reclaim_removal_suite = {
	.name = "reclaim_removal",
	.init = removal_init,
	.exit = removal_exit,
	.test_cases = reclaim_removal_cases,
};

kunit_test_suite(reclaim_removal_suite);
