// SPDX-License-Identifier: GPL-2.0-only
/*
 * What happens to an inode when its last reference is dropped in reclaim or in a
 * transaction.
 *
 * The inodes belong to a pseudo filesystem of the test, whose super operations
 * count what is written and evicted. The test task plays reclaim by setting
 * PF_MEMALLOC while it calls iput().
 */
#include <kunit/test.h>
#include <linux/fs.h>
#include <linux/mount.h>
#include <linux/pagemap.h>
#include <linux/pseudo_fs.h>
#include <linux/sched/mm.h>
#include <linux/workqueue.h>
#include <linux/writeback.h>

#define TEST_INO	4711

static int nr_written, nr_evicted;

static int inode_reclaim_write_inode(struct inode *inode,
				     struct writeback_control *wbc)
{
	nr_written++;
	return 0;
}

static void inode_reclaim_evict_inode(struct inode *inode)
{
	nr_evicted++;
	/* Value entries stand in for folios, and nothing else removes them. */
	xa_destroy(&inode->i_data.i_pages);
	truncate_inode_pages_final(&inode->i_data);
	clear_inode(inode);
}

static const struct super_operations inode_reclaim_ops = {
	.write_inode	= inode_reclaim_write_inode,
	.evict_inode	= inode_reclaim_evict_inode,
};

static int inode_reclaim_init_fs_context(struct fs_context *fc)
{
	struct pseudo_fs_context *ctx = init_pseudo(fc, 0x4b756e49);

	if (!ctx)
		return -ENOMEM;
	ctx->ops = &inode_reclaim_ops;
	return 0;
}

static struct file_system_type inode_reclaim_fs = {
	.name			= "inode_reclaim_kunit",
	.init_fs_context	= inode_reclaim_init_fs_context,
	.kill_sb		= kill_anon_super,
};

/* One call of iput() and its expected result. */
struct iput_case {
	const char *name;
	unsigned int dirty;	/* what __mark_inode_dirty() is told */
	unsigned int state;	/* further i_state bits */
	unsigned int scope;	/* PF_MEMALLOC: reclaim; PF_MEMALLOC_NOFS: a transaction */
	bool writeback;		/* a folio is under writeback */
	bool inactive;		/* SB_ACTIVE is off */
	bool kept;
	int written;
};

static const struct iput_case iput_cases[] = {
	{ .name = "reclaim keeps a dirty inode",
	  .scope = PF_MEMALLOC, .dirty = I_DIRTY_SYNC,
	  .kept = true },
	{ .name = "reclaim keeps an inode with dirty pages",
	  .scope = PF_MEMALLOC, .dirty = I_DIRTY_PAGES,
	  .kept = true },
	{ .name = "reclaim keeps an inode that a flusher has in hand",
	  .scope = PF_MEMALLOC, .state = I_SYNC,
	  .kept = true },
	{ .name = "reclaim keeps an inode under writeback",
	  .scope = PF_MEMALLOC, .writeback = true,
	  .kept = true },
	{ .name = "a transaction keeps a dirty inode",
	  .scope = PF_MEMALLOC_NOFS, .dirty = I_DIRTY_SYNC,
	  .kept = true },
	{ .name = "a transaction evicts a clean inode",
	  .scope = PF_MEMALLOC_NOFS },
	{ .name = "reclaim evicts a clean inode",
	  .scope = PF_MEMALLOC },
	{ .name = "reclaim writes and evicts while the filesystem goes away",
	  .scope = PF_MEMALLOC, .inactive = true,
	  .dirty = I_DIRTY_SYNC,
	  .written = 1 },
	{ .name = "elsewhere a dirty inode is written and evicted",
	  .dirty = I_DIRTY_SYNC,
	  .written = 1 },
};

KUNIT_ARRAY_PARAM_DESC(iput, iput_cases, name);

static struct inode *new_test_inode(struct kunit *test)
{
	struct vfsmount *mnt = test->priv;
	struct inode *inode = new_inode(mnt->mnt_sb);

	KUNIT_ASSERT_NOT_NULL(test, inode);
	inode->i_ino = TEST_INO;
	inode->i_mode = S_IFREG;
	set_nlink(inode, 1);
	insert_inode_hash(inode);
	/* Writeback assumes that an inode has ->i_wb; dirtying sets it. */
	__mark_inode_dirty(inode, I_DIRTY_SYNC);
	KUNIT_ASSERT_EQ(test, write_inode_now(inode, 1), 0);
	nr_written = 0;
	nr_evicted = 0;
	return inode;
}

/* Stands in for a folio; not at index 0, as an entry there may go with its inode. */
#define ENTRY	1

static void add_entry(struct kunit *test, struct inode *inode)
{
	void *old = xa_store_irq(&inode->i_data.i_pages, ENTRY, xa_mk_value(1), GFP_KERNEL);

	KUNIT_ASSERT_FALSE(test, xa_is_err(old));
}

static void set_state(struct inode *inode, unsigned int state)
{
	spin_lock(&inode->i_lock);
	inode_state_set(inode, state);
	spin_unlock(&inode->i_lock);
}

/*
 * The end of a flusher's work, in case iput() waits for the inode instead of
 * keeping it: a test that fails says more than one that hangs.
 */
static struct inode *inode_in_sync;

static void end_sync(struct work_struct *work)
{
	struct inode *inode = inode_in_sync;

	spin_lock(&inode->i_lock);
	inode_state_clear(inode, I_SYNC);
	inode_wake_up_bit(inode, __I_SYNC);
	spin_unlock(&inode->i_lock);
}

static DECLARE_DELAYED_WORK(end_sync_work, end_sync);

/* Drop the last reference to a kept inode, whose mark still counts. */
static void drop_kept_inode(struct kunit *test)
{
	struct vfsmount *mnt = test->priv;
	struct inode *inode = ilookup(mnt->mnt_sb, TEST_INO);

	KUNIT_ASSERT_NOT_NULL(test, inode);
	iput(inode);
	KUNIT_EXPECT_EQ(test, nr_evicted, 1);
}

static void iput_test(struct kunit *test)
{
	const struct iput_case *c = test->param_value;
	struct vfsmount *mnt = test->priv;
	struct inode *inode = new_test_inode(test);
	struct xarray *xa = &inode->i_data.i_pages;
	unsigned int flags;

	if (c->dirty)
		__mark_inode_dirty(inode, c->dirty);
	if (c->writeback) {
		add_entry(test, inode);
		xa_lock_irq(xa);
		__xa_set_mark(xa, ENTRY, PAGECACHE_TAG_WRITEBACK);
		xa_unlock_irq(xa);
	}
	set_state(inode, I_DONTCACHE | c->state);
	if (c->inactive)
		mnt->mnt_sb->s_flags &= ~SB_ACTIVE;

	if (c->state & I_SYNC) {
		inode_in_sync = inode;
		schedule_delayed_work(&end_sync_work, HZ);
	}

	flags = memalloc_flags_save(c->scope);
	iput(inode);
	memalloc_flags_restore(flags);
	mnt->mnt_sb->s_flags |= SB_ACTIVE;
	if (c->state & I_SYNC)
		flush_delayed_work(&end_sync_work);

	KUNIT_EXPECT_EQ(test, nr_evicted, c->kept ? 0 : 1);
	KUNIT_EXPECT_EQ(test, nr_written, c->written);
	if (nr_evicted)
		return;
	/* With highmem, page cache does not keep a clean inode off the LRU. */
	if (!IS_ENABLED(CONFIG_HIGHMEM) || !c->writeback)
		KUNIT_EXPECT_TRUE(test, list_empty(&inode->i_lru));
	xa_destroy(xa);
	drop_kept_inode(test);
	/* The inode was still dirty, and has been written now. */
	KUNIT_EXPECT_EQ(test, nr_written, c->dirty == I_DIRTY_SYNC ? 1 : 0);
}

static int inode_reclaim_init(struct kunit *test)
{
	struct vfsmount *mnt = kern_mount(&inode_reclaim_fs);

	if (IS_ERR(mnt))
		return PTR_ERR(mnt);
	test->priv = mnt;
	return 0;
}

static void inode_reclaim_exit(struct kunit *test)
{
	if (test->priv)
		kern_unmount(test->priv);
}

static struct kunit_case inode_reclaim_cases[] = {
	KUNIT_CASE_PARAM(iput_test, iput_gen_params),
	{ }
};

static struct kunit_suite inode_reclaim_suite = {
	.name = "inode_reclaim",
	.init = inode_reclaim_init,
	.exit = inode_reclaim_exit,
	.test_cases = inode_reclaim_cases,
};

kunit_test_suite(inode_reclaim_suite);
