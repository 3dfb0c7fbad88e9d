// SPDX-License-Identifier: GPL-2.0-only
/*
 * The page cache's look-up: what each flag of __filemap_get_folio() and each
 * function over it does to the folio, above all how often and when it is
 * marked accessed.
 *
 * The mapping belongs to an inode of the test. A probe on the tracepoint of
 * insertion notes whether a folio carried its mark when others could first
 * see it. Marks are read from the folio's flags: under MGLRU they are counted
 * there, the classic LRU has referenced for one and active for two.
 */
#include <kunit/test.h>
#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/mount.h>
#include <linux/pagemap.h>
#include <linux/pseudo_fs.h>
#include <linux/shmem_fs.h>
#include <linux/swap.h>
#include <linux/workqueue.h>
#include <trace/events/filemap.h>

#include "../internal.h"

#define INDEX	4

static struct address_space *probed;
static int nr_inserted, nr_inserted_marked;

static void note_insertion(void *unused, struct folio *folio)
{
	if (folio->mapping != probed)
		return;
	nr_inserted++;
	nr_inserted_marked += folio_test_referenced(folio);
}

static int lookup_init_fs_context(struct fs_context *fc)
{
	return init_pseudo(fc, 0x4b756e4c) ? 0 : -ENOMEM;
}

static struct file_system_type lookup_fs = {
	.name			= "filemap_lookup_kunit",
	.init_fs_context	= lookup_init_fs_context,
	.kill_sb		= kill_anon_super,
};

/* What the mapping's ->read_folio is to do, and what it saw. */
static int read_result, nr_read, nr_read_marked;

static int lookup_read_folio(struct file *file, struct folio *folio)
{
	int ret = read_result;

	nr_read++;
	nr_read_marked += folio_test_referenced(folio);
	if (ret == AOP_TRUNCATED_PAGE) {
		/* The next time it succeeds. */
		read_result = 0;
		folio_unlock(folio);
	} else {
		folio_end_read(folio, !ret);
	}
	return ret;
}

static const struct address_space_operations lookup_aops = {
	.dirty_folio	= noop_dirty_folio,
	.read_folio	= lookup_read_folio,
};

struct lookup {
	struct vfsmount *mnt;
	struct inode *inode;
	struct address_space *mapping;
};

static int lookup_init(struct kunit *test)
{
	struct lookup *l = kunit_kzalloc(test, sizeof(*l), GFP_KERNEL);

	if (!l)
		return -ENOMEM;
	l->mnt = kern_mount(&lookup_fs);
	if (IS_ERR(l->mnt))
		return PTR_ERR(l->mnt);
	l->inode = alloc_anon_inode(l->mnt->mnt_sb);
	if (IS_ERR(l->inode)) {
		kern_unmount(l->mnt);
		return PTR_ERR(l->inode);
	}
	l->mapping = l->inode->i_mapping;
	l->mapping->a_ops = &lookup_aops;
	read_result = 0;
	nr_read = 0;
	nr_read_marked = 0;
	nr_inserted = 0;
	nr_inserted_marked = 0;
	probed = l->mapping;
	register_trace_mm_filemap_add_to_page_cache(note_insertion, NULL);
	test->priv = l;
	return 0;
}

static void lookup_exit(struct kunit *test)
{
	struct lookup *l = test->priv;

	if (!l)
		return;
	unregister_trace_mm_filemap_add_to_page_cache(note_insertion, NULL);
	tracepoint_synchronize_unregister();
	truncate_inode_pages(l->mapping, 0);
	iput(l->inode);
	kern_unmount(l->mnt);
}

static unsigned int folio_marks(struct folio *folio)
{
	/* Activation waits in a batch. */
	lru_add_drain_all();
#ifdef CONFIG_LRU_GEN
	if (lru_gen_enabled())
		return folio_lru_refs(folio);
#endif
	return 2 * folio_test_active(folio) + folio_test_referenced(folio);
}

/* So many folios were inserted since the last time, with or without a mark. */
static void expect_inserted(struct kunit *test, int inserted, int marked)
{
	if (IS_ENABLED(CONFIG_TRACEPOINTS)) {
		KUNIT_EXPECT_EQ(test, nr_inserted, inserted);
		KUNIT_EXPECT_EQ(test, nr_inserted_marked, marked);
	}
	nr_inserted = 0;
	nr_inserted_marked = 0;
}

/* A folio of the cache that nobody has marked, without a reference. */
static struct folio *add_folio(struct kunit *test, pgoff_t index)
{
	struct lookup *l = test->priv;
	struct folio *folio;

	folio = __filemap_get_folio(l->mapping, index, FGP_CREAT | FGP_LOCK, GFP_KERNEL);
	KUNIT_ASSERT_FALSE(test, IS_ERR(folio));
	folio_mark_uptodate(folio);
	folio_unlock(folio);
	folio_put(folio);
	expect_inserted(test, 1, 0);
	return folio;
}

static void drop_folios(struct kunit *test)
{
	struct lookup *l = test->priv;

	truncate_inode_pages(l->mapping, 0);
	KUNIT_EXPECT_EQ(test, l->mapping->nrpages, 0);
}

static const fgf_t all_flags[] = {
	FGP_ACCESSED, FGP_LOCK, FGP_CREAT, FGP_WRITE, FGP_NOFS, FGP_NOWAIT,
	FGP_FOR_MMAP, FGP_STABLE, FGP_DONTCACHE,
};

#define NR_COMBINATIONS	BIT(ARRAY_SIZE(all_flags))

static fgf_t combination(unsigned int bits)
{
	fgf_t flags = 0;

	for (int i = 0; i < ARRAY_SIZE(all_flags); i++) {
		if (bits & BIT(i))
			flags |= all_flags[i];
	}
	return flags;
}

static void every_combination_on_a_cached_folio(struct kunit *test)
{
	struct lookup *l = test->priv;

	for (unsigned int bits = 0; bits < NR_COMBINATIONS; bits++) {
		fgf_t flags = combination(bits);
		struct folio *cached = add_folio(test, INDEX), *folio;

		folio = __filemap_get_folio(l->mapping, INDEX, flags, GFP_KERNEL);
		KUNIT_EXPECT_PTR_EQ_MSG(test, folio, cached, "flags %x", flags);
		if (IS_ERR(folio))
			break;
		KUNIT_EXPECT_EQ_MSG(test, folio_test_referenced(folio),
				    !!(flags & FGP_ACCESSED), "flags %x", flags);
		KUNIT_EXPECT_FALSE_MSG(test, folio_test_active(folio), "flags %x", flags);
		KUNIT_EXPECT_EQ_MSG(test, folio_test_locked(folio),
				    !!(flags & FGP_LOCK), "flags %x", flags);
		KUNIT_EXPECT_FALSE_MSG(test, folio_test_dropbehind(folio), "flags %x", flags);
		if (folio_test_locked(folio))
			folio_unlock(folio);
		folio_put(folio);
		drop_folios(test);
	}
	expect_inserted(test, 0, 0);
}

static void every_combination_on_a_hole(struct kunit *test)
{
	struct lookup *l = test->priv;

	for (unsigned int bits = 0; bits < NR_COMBINATIONS; bits++) {
		fgf_t flags = combination(bits);
		struct folio *folio;

		/* That warns; see creation_without_a_lock_warns(). */
		if ((flags & FGP_CREAT) && !(flags & (FGP_LOCK | FGP_FOR_MMAP)))
			continue;
		folio = __filemap_get_folio(l->mapping, INDEX, flags, GFP_KERNEL);
		if (!(flags & FGP_CREAT)) {
			KUNIT_EXPECT_EQ_MSG(test, PTR_ERR_OR_ZERO(folio), -ENOENT,
					    "flags %x", flags);
			KUNIT_EXPECT_EQ(test, l->mapping->nrpages, 0);
			continue;
		}
		KUNIT_EXPECT_FALSE_MSG(test, IS_ERR(folio), "flags %x", flags);
		if (IS_ERR(folio))
			continue;
		KUNIT_EXPECT_EQ(test, folio->index, INDEX);
		KUNIT_EXPECT_PTR_EQ(test, folio->mapping, l->mapping);
		KUNIT_EXPECT_EQ(test, l->mapping->nrpages, 1);
		KUNIT_EXPECT_EQ_MSG(test, folio_test_referenced(folio),
				    !!(flags & FGP_ACCESSED), "flags %x", flags);
		KUNIT_EXPECT_FALSE_MSG(test, folio_test_active(folio), "flags %x", flags);
		KUNIT_EXPECT_EQ_MSG(test, folio_test_locked(folio),
				    !(flags & FGP_FOR_MMAP), "flags %x", flags);
		KUNIT_EXPECT_EQ_MSG(test, folio_test_dropbehind(folio),
				    !!(flags & FGP_DONTCACHE), "flags %x", flags);
		expect_inserted(test, 1, !!(flags & FGP_ACCESSED));
		if (folio_test_locked(folio))
			folio_unlock(folio);
		folio_put(folio);
		drop_folios(test);
	}
}

static void creation_without_a_lock_warns(struct kunit *test)
{
	struct lookup *l = test->priv;
	struct folio *folio;

	kunit_warning_suppress(test) {
		folio = __filemap_get_folio(l->mapping, INDEX, FGP_CREAT, GFP_KERNEL);
	}
	KUNIT_ASSERT_FALSE(test, IS_ERR(folio));
	KUNIT_EXPECT_TRUE(test, folio_test_locked(folio));
	folio_unlock(folio);
	folio_put(folio);
}

/* Creation is the first mark; each further look-up adds one. */
static void marks_add_up(struct kunit *test)
{
	struct lookup *l = test->priv;

	for (unsigned int i = 1; i <= 3; i++) {
		struct folio *folio = filemap_grab_folio(l->mapping, INDEX);

		KUNIT_ASSERT_FALSE(test, IS_ERR(folio));
		KUNIT_EXPECT_EQ(test, folio_marks(folio), i);
		folio_unlock(folio);
		folio_put(folio);
	}
	expect_inserted(test, 1, 1);
}

static void nowait_on_a_locked_folio(struct kunit *test)
{
	struct lookup *l = test->priv;
	struct folio *cached = add_folio(test, INDEX), *folio;

	folio_get(cached);
	folio_lock(cached);
	folio = __filemap_get_folio(l->mapping, INDEX,
				    FGP_LOCK | FGP_NOWAIT | FGP_ACCESSED, 0);
	KUNIT_EXPECT_EQ(test, PTR_ERR_OR_ZERO(folio), -EAGAIN);
	KUNIT_EXPECT_NULL(test, grab_cache_page_nowait(l->mapping, INDEX));
	/* The lock is in nobody's way who does not want it. */
	folio = __filemap_get_folio(l->mapping, INDEX, FGP_NOWAIT, 0);
	KUNIT_EXPECT_PTR_EQ(test, folio, cached);
	if (!IS_ERR(folio))
		folio_put(folio);
	KUNIT_EXPECT_EQ(test, folio_marks(cached), 0);
	KUNIT_EXPECT_EQ(test, folio_ref_count(cached), 2);
	folio_unlock(cached);
	folio_put(cached);
}

static struct folio *to_truncate;

static void truncate_locked(struct work_struct *work)
{
	filemap_remove_folio(to_truncate);
	folio_unlock(to_truncate);
}

static DECLARE_DELAYED_WORK(truncate_work, truncate_locked);

/* Truncated while the look-up waits for the lock: it must begin anew. */
static void truncation_while_waiting_for_the_lock(struct kunit *test)
{
	static const fgf_t flags[] = {
		FGP_LOCK | FGP_ACCESSED, FGP_LOCK | FGP_ACCESSED | FGP_CREAT,
	};
	struct lookup *l = test->priv;

	for (int i = 0; i < ARRAY_SIZE(flags); i++) {
		struct folio *folio;

		to_truncate = add_folio(test, INDEX);
		folio_get(to_truncate);
		folio_lock(to_truncate);
		schedule_delayed_work(&truncate_work, HZ / 20);
		folio = __filemap_get_folio(l->mapping, INDEX, flags[i], GFP_KERNEL);
		flush_delayed_work(&truncate_work);
		KUNIT_EXPECT_EQ(test, folio_marks(to_truncate), 0);
		if (flags[i] & FGP_CREAT) {
			KUNIT_ASSERT_FALSE(test, IS_ERR(folio));
			KUNIT_EXPECT_PTR_NE(test, folio, to_truncate);
			KUNIT_EXPECT_EQ(test, folio_marks(folio), 1);
			folio_unlock(folio);
			folio_put(folio);
			expect_inserted(test, 1, 1);
		} else {
			KUNIT_EXPECT_EQ(test, PTR_ERR_OR_ZERO(folio), -ENOENT);
		}
		folio_put(to_truncate);
		drop_folios(test);
	}
}

/* What reclaim leaves in the place of a folio is not found, and replaced. */
static void a_shadow_is_no_folio(struct kunit *test)
{
	struct lookup *l = test->priv;
	struct folio *folio = add_folio(test, INDEX);
	LIST_HEAD(folios);

	lru_add_drain_all();
	KUNIT_ASSERT_TRUE(test, folio_isolate_lru(folio));
	list_add(&folio->lru, &folios);
	KUNIT_ASSERT_EQ(test, reclaim_pages(&folios), 1);
	KUNIT_ASSERT_TRUE(test, xa_is_value(xa_load(&l->mapping->i_pages, INDEX)));

	KUNIT_EXPECT_NULL(test, find_get_page(l->mapping, INDEX));
	KUNIT_EXPECT_NULL(test, find_lock_page(l->mapping, INDEX));
	folio = __filemap_get_folio(l->mapping, INDEX, FGP_ACCESSED, 0);
	KUNIT_EXPECT_EQ(test, PTR_ERR_OR_ZERO(folio), -ENOENT);
	KUNIT_EXPECT_TRUE(test, xa_is_value(xa_load(&l->mapping->i_pages, INDEX)));

	folio = filemap_grab_folio(l->mapping, INDEX);
	KUNIT_ASSERT_FALSE(test, IS_ERR(folio));
	KUNIT_EXPECT_PTR_EQ(test, xa_load(&l->mapping->i_pages, INDEX), (void *)folio);
	KUNIT_EXPECT_EQ(test, l->mapping->nrpages, 1);
	expect_inserted(test, 1, 1);
	folio_unlock(folio);
	folio_put(folio);
}

struct again_case {
	const char *name;
	umode_t mode;
	fgf_t flags;
	bool counts;
};

static const struct again_case again_cases[] = {
	{ "metadata that is used", S_IFBLK, FGP_ACCESSED, true },
	{ "metadata that is read ahead", S_IFBLK, 0, false },
	{ "a file's data that is used", S_IFREG, FGP_ACCESSED, false },
	{ "a file's data that is read ahead", S_IFREG, 0, false },
};

KUNIT_ARRAY_PARAM_DESC(again, again_cases, name);

/* Evicted long ago and back: only metadata that is used counts as used again. */
static void a_use_after_eviction(struct kunit *test)
{
	const struct again_case *c = test->param_value;
	struct lookup *l = test->priv;
	struct folio *folio = add_folio(test, INDEX);
	unsigned int marks = !!(c->flags & FGP_ACCESSED);
	struct lruvec *lruvec;
	LIST_HEAD(folios);

	l->inode->i_mode = c->mode;
	lru_add_drain_all();
	KUNIT_ASSERT_TRUE(test, folio_isolate_lru(folio));
	lruvec = folio_lruvec(folio);
	list_add(&folio->lru, &folios);
	KUNIT_ASSERT_EQ(test, reclaim_pages(&folios), 1);
	/* More came and went than there is memory. */
	if (!lru_gen_enabled())
		workingset_age_nonresident(lruvec, 2 * totalram_pages());

	folio = __filemap_get_folio(l->mapping, INDEX,
				    FGP_CREAT | FGP_LOCK | c->flags, GFP_KERNEL);
	KUNIT_ASSERT_FALSE(test, IS_ERR(folio));
	expect_inserted(test, 1, marks);
	if (lru_gen_enabled())
		KUNIT_EXPECT_EQ(test, folio_marks(folio), marks + c->counts);
	else
		KUNIT_EXPECT_EQ(test, folio_test_active(folio), c->counts);
	folio_unlock(folio);
	folio_put(folio);
	l->inode->i_mode = S_IFREG;
}

static void a_large_folio_has_one_mark(struct kunit *test)
{
	struct lookup *l = test->priv;
	struct folio *folio, *again;
	struct page *page;

	if (!IS_ENABLED(CONFIG_TRANSPARENT_HUGEPAGE))
		kunit_skip(test, "no large folios without TRANSPARENT_HUGEPAGE");
	mapping_set_large_folios(l->mapping);
	folio = __filemap_get_folio(l->mapping, INDEX, FGP_CREAT | FGP_LOCK |
				    FGP_ACCESSED | fgf_set_order(4 * PAGE_SIZE),
				    GFP_KERNEL);
	KUNIT_ASSERT_FALSE(test, IS_ERR(folio));
	KUNIT_ASSERT_EQ(test, folio_order(folio), 2);
	KUNIT_EXPECT_EQ(test, folio_marks(folio), 1);
	expect_inserted(test, 1, 1);
	folio_unlock(folio);

	/* Any page of it is found, and marks the whole. */
	again = __filemap_get_folio(l->mapping, INDEX + 3, FGP_ACCESSED, 0);
	KUNIT_EXPECT_PTR_EQ(test, again, folio);
	KUNIT_EXPECT_EQ(test, folio_marks(folio), 2);
	page = find_get_page(l->mapping, INDEX + 2);
	KUNIT_EXPECT_PTR_EQ(test, page, folio_page(folio, 2));
	page = find_or_create_page(l->mapping, INDEX + 1, GFP_KERNEL);
	KUNIT_EXPECT_PTR_EQ(test, page, folio_page(folio, 1));
	KUNIT_EXPECT_EQ(test, folio_marks(folio), 3);
	KUNIT_EXPECT_TRUE(test, folio_test_locked(folio));
	folio_unlock(folio);
	folio_put_refs(folio, 4);

	/* Neighbours and alignment make it smaller. */
	again = __filemap_get_folio(l->mapping, 0, FGP_CREAT | FGP_LOCK |
				    FGP_ACCESSED | fgf_set_order(8 * PAGE_SIZE),
				    GFP_KERNEL);
	KUNIT_ASSERT_FALSE(test, IS_ERR(again));
	KUNIT_EXPECT_EQ(test, folio_order(again), 2);
	KUNIT_EXPECT_EQ(test, folio_marks(again), 1);
	folio_unlock(again);
	folio_put(again);
	again = __filemap_get_folio(l->mapping, 18, FGP_CREAT | FGP_LOCK |
				    fgf_set_order(8 * PAGE_SIZE), GFP_KERNEL);
	KUNIT_ASSERT_FALSE(test, IS_ERR(again));
	KUNIT_EXPECT_EQ(test, folio_order(again), 1);
	folio_unlock(again);
	folio_put(again);
	expect_inserted(test, 2, 1);
}

/* A folio larger than any that can be allocated stands for memory running out. */
static void creation_that_fails(struct kunit *test)
{
	struct lookup *l = test->priv;
	struct folio *folio;

	if (!IS_ENABLED(CONFIG_TRANSPARENT_HUGEPAGE))
		kunit_skip(test, "no large folios without TRANSPARENT_HUGEPAGE");
	l->mapping->flags |= (MAX_PAGE_ORDER + 1UL) << AS_FOLIO_ORDER_MIN;
	l->mapping->flags |= (MAX_PAGE_ORDER + 1UL) << AS_FOLIO_ORDER_MAX;
	folio = __filemap_get_folio(l->mapping, 0, FGP_CREAT | FGP_LOCK,
				    GFP_KERNEL | __GFP_NOWARN);
	KUNIT_EXPECT_EQ(test, PTR_ERR_OR_ZERO(folio), -ENOMEM);
	folio = __filemap_get_folio(l->mapping, 0, FGP_CREAT | FGP_LOCK | FGP_NOWAIT,
				    GFP_KERNEL | __GFP_NOWARN);
	KUNIT_EXPECT_EQ(test, PTR_ERR_OR_ZERO(folio), -EAGAIN);
	KUNIT_EXPECT_NULL(test, find_or_create_page(l->mapping, 0,
						    GFP_KERNEL | __GFP_NOWARN));
	mapping_set_gfp_mask(l->mapping, GFP_KERNEL | __GFP_NOWARN);
	folio = read_cache_folio(l->mapping, 0, NULL, NULL);
	KUNIT_EXPECT_EQ(test, PTR_ERR_OR_ZERO(folio), -ENOMEM);
	KUNIT_EXPECT_EQ(test, l->mapping->nrpages, 0);
	expect_inserted(test, 0, 0);
}

/* The functions for pages, over pagecache_get_page(). */
static void page_functions_on_a_hole(struct kunit *test)
{
	struct lookup *l = test->priv;
	struct page *page;

	KUNIT_EXPECT_NULL(test, find_get_page(l->mapping, INDEX));
	KUNIT_EXPECT_NULL(test, find_get_page_flags(l->mapping, INDEX, FGP_ACCESSED));
	KUNIT_EXPECT_NULL(test, find_lock_page(l->mapping, INDEX));
	KUNIT_EXPECT_NULL(test, pagecache_get_page(l->mapping, INDEX, FGP_LOCK, 0));
	expect_inserted(test, 0, 0);

	page = find_or_create_page(l->mapping, INDEX, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, page);
	KUNIT_EXPECT_TRUE(test, PageLocked(page));
	KUNIT_EXPECT_EQ(test, folio_marks(page_folio(page)), 1);
	expect_inserted(test, 1, 1);
	unlock_page(page);
	put_page(page);

	page = grab_cache_page_nowait(l->mapping, INDEX + 1);
	KUNIT_ASSERT_NOT_NULL(test, page);
	KUNIT_EXPECT_TRUE(test, PageLocked(page));
	KUNIT_EXPECT_EQ(test, folio_marks(page_folio(page)), 0);
	expect_inserted(test, 1, 0);
	unlock_page(page);
	put_page(page);
}

static void page_functions_on_a_cached_folio(struct kunit *test)
{
	struct lookup *l = test->priv;
	struct folio *folio = add_folio(test, INDEX);
	struct page *page;

	page = find_get_page(l->mapping, INDEX);
	KUNIT_ASSERT_PTR_EQ(test, page, &folio->page);
	KUNIT_EXPECT_FALSE(test, PageLocked(page));
	KUNIT_EXPECT_EQ(test, folio_marks(folio), 0);
	put_page(page);

	page = find_lock_page(l->mapping, INDEX);
	KUNIT_ASSERT_PTR_EQ(test, page, &folio->page);
	KUNIT_EXPECT_TRUE(test, PageLocked(page));
	KUNIT_EXPECT_EQ(test, folio_marks(folio), 0);
	unlock_page(page);
	put_page(page);

	page = grab_cache_page_nowait(l->mapping, INDEX);
	KUNIT_ASSERT_PTR_EQ(test, page, &folio->page);
	KUNIT_EXPECT_TRUE(test, PageLocked(page));
	KUNIT_EXPECT_EQ(test, folio_marks(folio), 0);
	unlock_page(page);
	put_page(page);

	page = find_get_page_flags(l->mapping, INDEX, FGP_ACCESSED);
	KUNIT_ASSERT_PTR_EQ(test, page, &folio->page);
	KUNIT_EXPECT_FALSE(test, PageLocked(page));
	KUNIT_EXPECT_EQ(test, folio_marks(folio), 1);
	put_page(page);

	page = find_or_create_page(l->mapping, INDEX, GFP_KERNEL);
	KUNIT_ASSERT_PTR_EQ(test, page, &folio->page);
	KUNIT_EXPECT_TRUE(test, PageLocked(page));
	KUNIT_EXPECT_EQ(test, folio_marks(folio), 2);
	unlock_page(page);
	put_page(page);
	expect_inserted(test, 0, 0);
}

/* Nor does a write: neither the folio it creates nor the one it finds. */
static void write_begin_does_not_mark(struct kunit *test)
{
	struct lookup *l = test->priv;

	for (int i = 0; i < 2; i++) {
		struct folio *folio = write_begin_get_folio(NULL, l->mapping, INDEX, 1);

		KUNIT_ASSERT_FALSE(test, IS_ERR(folio));
		KUNIT_EXPECT_TRUE(test, folio_test_locked(folio));
		KUNIT_EXPECT_EQ(test, folio_marks(folio), 0);
		folio_unlock(folio);
		folio_put(folio);
	}
	expect_inserted(test, 1, 0);
}

/* Marked when it is created, so that a reader who waits for it sees it so. */
static void read_cache_folio_marks_once(struct kunit *test)
{
	struct lookup *l = test->priv;

	for (unsigned int i = 1; i <= 2; i++) {
		struct folio *folio = read_cache_folio(l->mapping, INDEX, NULL, NULL);

		KUNIT_ASSERT_FALSE(test, IS_ERR(folio));
		KUNIT_EXPECT_TRUE(test, folio_test_uptodate(folio));
		KUNIT_EXPECT_EQ(test, folio_marks(folio), i);
		folio_put(folio);
	}
	KUNIT_EXPECT_EQ(test, nr_read, 1);
	KUNIT_EXPECT_EQ(test, nr_read_marked, 1);
	expect_inserted(test, 1, 1);
}

static void read_cache_folio_marks_once_when_it_reads_again(struct kunit *test)
{
	struct lookup *l = test->priv;
	struct folio *folio;

	read_result = AOP_TRUNCATED_PAGE;
	folio = read_cache_folio(l->mapping, INDEX, NULL, NULL);
	KUNIT_ASSERT_FALSE(test, IS_ERR(folio));
	KUNIT_EXPECT_EQ(test, nr_read, 2);
	KUNIT_EXPECT_EQ(test, folio_marks(folio), 1);
	folio_put(folio);

	/* Found, but not up to date: the use of a folio that others made. */
	folio = filemap_grab_folio(l->mapping, INDEX + 1);
	KUNIT_ASSERT_FALSE(test, IS_ERR(folio));
	folio_unlock(folio);
	folio_put(folio);
	folio = read_cache_folio(l->mapping, INDEX + 1, NULL, NULL);
	KUNIT_ASSERT_FALSE(test, IS_ERR(folio));
	KUNIT_EXPECT_EQ(test, nr_read, 3);
	KUNIT_EXPECT_EQ(test, folio_marks(folio), 2);
	folio_put(folio);
}

static void read_cache_folio_that_fails(struct kunit *test)
{
	struct lookup *l = test->priv;
	struct folio *folio;

	read_result = -EIO;
	folio = read_cache_folio(l->mapping, INDEX, NULL, NULL);
	KUNIT_EXPECT_EQ(test, PTR_ERR_OR_ZERO(folio), -EIO);
	KUNIT_EXPECT_EQ(test, nr_read, 1);
	KUNIT_EXPECT_EQ(test, l->mapping->nrpages, 1);
}

static void shmem_marks_what_is_written(struct kunit *test)
{
	struct file *file = shmem_kernel_file_setup("filemap_lookup", 8 * PAGE_SIZE,
						    mk_vma_flags(VMA_NORESERVE_BIT));
	static const struct {
		enum sgp_type sgp;
		unsigned int marks;
	} created[] = {
		{ SGP_CACHE, 0 }, { SGP_WRITE, 1 }, { SGP_FALLOC, 0 },
	};
	struct folio *folio;

	KUNIT_ASSERT_FALSE(test, IS_ERR(file));
	for (int i = 0; i < ARRAY_SIZE(created); i++) {
		KUNIT_ASSERT_EQ(test, shmem_get_folio(file_inode(file), i, 0, &folio,
						      created[i].sgp), 0);
		KUNIT_EXPECT_EQ(test, folio_marks(folio), created[i].marks);
		KUNIT_EXPECT_TRUE(test, folio_test_locked(folio));
		folio_mark_uptodate(folio);
		folio_mark_dirty(folio);
		folio_unlock(folio);
		folio_put(folio);
	}
	/* Found: reading marks elsewhere, writing marks here. */
	KUNIT_ASSERT_EQ(test, shmem_get_folio(file_inode(file), 1, 0, &folio, SGP_READ), 0);
	KUNIT_EXPECT_EQ(test, folio_marks(folio), 1);
	folio_unlock(folio);
	folio_put(folio);
	KUNIT_ASSERT_EQ(test, shmem_get_folio(file_inode(file), 1, 0, &folio, SGP_WRITE), 0);
	KUNIT_EXPECT_EQ(test, folio_marks(folio), 2);
	folio_unlock(folio);
	folio_put(folio);
	fput(file);
}

#define NR_RACERS	4
#define NR_RACES	4000

struct racer {
	struct address_space *mapping;
	struct completion done;
	unsigned int seed;
	int wrong;
};

static int race(void *data)
{
	struct racer *r = data;

	for (int i = 0; i < NR_RACES; i++) {
		struct folio *folio;
		pgoff_t index;

		r->seed = r->seed * 1664525 + 1013904223;
		index = (r->seed >> 16) % 8;
		folio = filemap_grab_folio(r->mapping, index);
		if (IS_ERR(folio)) {
			r->wrong++;
			continue;
		}
		r->wrong += folio->mapping != r->mapping || folio->index != index ||
			    !folio_test_locked(folio);
		if (r->seed & BIT(20))
			filemap_remove_folio(folio);
		folio_unlock(folio);
		folio_put(folio);
		cond_resched();
	}
	complete(&r->done);
	return 0;
}

/* Who creates and who truncates, all at once: nobody gets a stale folio. */
static void creation_races_truncation(struct kunit *test)
{
	struct racer *r = kunit_kcalloc(test, NR_RACERS, sizeof(*r), GFP_KERNEL);
	struct lookup *l = test->priv;

	KUNIT_ASSERT_NOT_NULL(test, r);
	for (int i = 0; i < NR_RACERS; i++) {
		struct task_struct *task;

		r[i].mapping = l->mapping;
		r[i].seed = i + 1;
		init_completion(&r[i].done);
		task = kthread_run(race, &r[i], "lookup-race/%d", i);
		if (IS_ERR(task)) {
			KUNIT_FAIL(test, "no thread %d", i);
			complete(&r[i].done);
		}
	}
	for (int i = 0; i < NR_RACERS; i++) {
		wait_for_completion(&r[i].done);
		KUNIT_EXPECT_EQ(test, r[i].wrong, 0);
	}
	KUNIT_EXPECT_LE(test, l->mapping->nrpages, 8);
}

static struct kunit_case filemap_lookup_cases[] = {
	KUNIT_CASE(every_combination_on_a_cached_folio),
	KUNIT_CASE(every_combination_on_a_hole),
	KUNIT_CASE(creation_without_a_lock_warns),
	KUNIT_CASE(marks_add_up),
	KUNIT_CASE(nowait_on_a_locked_folio),
	KUNIT_CASE(truncation_while_waiting_for_the_lock),
	KUNIT_CASE(a_shadow_is_no_folio),
	KUNIT_CASE_PARAM(a_use_after_eviction, again_gen_params),
	KUNIT_CASE(a_large_folio_has_one_mark),
	KUNIT_CASE(creation_that_fails),
	KUNIT_CASE(page_functions_on_a_hole),
	KUNIT_CASE(page_functions_on_a_cached_folio),
	KUNIT_CASE(write_begin_does_not_mark),
	KUNIT_CASE(read_cache_folio_marks_once),
	KUNIT_CASE(read_cache_folio_marks_once_when_it_reads_again),
	KUNIT_CASE(read_cache_folio_that_fails),
	KUNIT_CASE(shmem_marks_what_is_written),
	KUNIT_CASE(creation_races_truncation),
	{ }
};

static struct kunit_suite filemap_lookup_suite = {
	.name = "filemap_lookup",
	.init = lookup_init,
	.exit = lookup_exit,
	.test_cases = filemap_lookup_cases,
};

kunit_test_suite(filemap_lookup_suite);
