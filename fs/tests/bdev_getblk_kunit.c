// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lookups in the buffer cache: how often bdev_getblk() marks a folio accessed,
 * on most paths to a buffer.
 *
 * The device belongs to the test and completes every request. The marks are
 * read from the folio's flags. MGLRU counts marks there; the classic LRU shows
 * one mark as referenced and two as active.
 */
#include <kunit/test.h>
#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/buffer_head.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/pagemap.h>
#include <linux/swap.h>
#include <linux/timer.h>

#define DISK_BYTES	(1024 * PAGE_SIZE)
#define BLOCKING	(GFP_NOFS | __GFP_MOVABLE)
#define NONBLOCKING	(GFP_NOWAIT | __GFP_MOVABLE)

static void getblk_submit_bio(struct bio *bio)
{
	if (bio_op(bio) == REQ_OP_READ)
		zero_fill_bio(bio);
	bio_endio(bio);
}

static const struct block_device_operations getblk_ops = {
	.owner		= THIS_MODULE,
	.submit_bio	= getblk_submit_bio,
};

struct getblk_disk {
	struct gendisk *disk;
	struct file *file;
	struct block_device *bdev;
	unsigned int size;
};

static int getblk_init(struct kunit *test)
{
	struct getblk_disk *d = kunit_kzalloc(test, sizeof(*d), GFP_KERNEL);
	int ret;

	if (!d)
		return -ENOMEM;
	d->disk = blk_alloc_disk(NULL, NUMA_NO_NODE);
	if (IS_ERR(d->disk))
		return PTR_ERR(d->disk);
	d->disk->fops = &getblk_ops;
	d->disk->flags |= GENHD_FL_NO_PART;
	strscpy(d->disk->disk_name, "kunit-getblk");
	set_capacity(d->disk, DISK_BYTES >> SECTOR_SHIFT);
	ret = add_disk(d->disk);
	if (ret)
		goto put;
	d->file = bdev_file_open_by_dev(disk_devt(d->disk),
					BLK_OPEN_READ | BLK_OPEN_WRITE, d, NULL);
	if (IS_ERR(d->file)) {
		ret = PTR_ERR(d->file);
		del_gendisk(d->disk);
		goto put;
	}
	d->bdev = file_bdev(d->file);
	test->priv = d;
	return 0;
put:
	put_disk(d->disk);
	return ret;
}

static struct buffer_head *held;

/* A timer, because the look-up may spin without giving the CPU away. */
static void release_held(struct timer_list *unused)
{
	brelse(held);
	held = NULL;
}

static DEFINE_TIMER(release_held_timer, release_held);

static void getblk_exit(struct kunit *test)
{
	struct getblk_disk *d = test->priv;

	/* Before the device goes; an action of the test would come after that. */
	timer_delete_sync(&release_held_timer);
	release_held(NULL);
	if (!d)
		return;
	bdev_fput(d->file);
	/* Task work or a worker puts the last reference of the file. */
	flush_delayed_fput();
	del_gendisk(d->disk);
	put_disk(d->disk);
}

/* Empty the cache: no pages, and no buffers in the CPUs' lists of recent buffers. */
static void empty_cache(struct kunit *test)
{
	struct getblk_disk *d = test->priv;

	invalidate_bdev(d->bdev);
	KUNIT_ASSERT_EQ(test, d->bdev->bd_mapping->nrpages, 0);
}

static void use_block_size(struct kunit *test, unsigned int size)
{
	struct getblk_disk *d = test->priv;

	KUNIT_ASSERT_EQ(test, set_blocksize(d->file, size), 0);
	d->size = size;
	empty_cache(test);
}

static unsigned int folio_marks(struct folio *folio)
{
	/* Activation waits in a batch. */
	lru_add_drain_all();
	/* The next use finds the buffer in the page cache, without SMP as well. */
	invalidate_bh_lrus();
#ifdef CONFIG_LRU_GEN
	if (lru_gen_enabled())
		return folio_lru_refs(folio);
#endif
	return 2 * folio_test_active(folio) + folio_test_referenced(folio);
}

static struct buffer_head *getblk(struct kunit *test, sector_t block, gfp_t gfp)
{
	struct getblk_disk *d = test->priv;
	struct buffer_head *bh = bdev_getblk(d->bdev, block, d->size, gfp);

	KUNIT_ASSERT_NOT_NULL(test, bh);
	KUNIT_EXPECT_EQ(test, bh->b_blocknr, block);
	KUNIT_EXPECT_EQ(test, bh->b_size, d->size);
	KUNIT_EXPECT_PTR_EQ(test, bh->b_bdev, d->bdev);
	KUNIT_EXPECT_TRUE(test, buffer_mapped(bh));
	KUNIT_EXPECT_FALSE(test, folio_test_locked(bh->b_folio));
	return bh;
}

/* Use a block once; returns how often its folio is then marked. */
static unsigned int marks_after_use(struct kunit *test, sector_t block, gfp_t gfp)
{
	struct buffer_head *bh = getblk(test, block, gfp);
	unsigned int marks = folio_marks(bh->b_folio);

	brelse(bh);
	return marks;
}

/* The device was read through its page cache: a folio, no buffers. */
static struct folio *add_bare_folio(struct kunit *test, pgoff_t index)
{
	struct getblk_disk *d = test->priv;
	struct address_space *mapping = d->bdev->bd_mapping;
	struct folio *folio;

	folio = __filemap_get_folio(mapping, index, FGP_LOCK | FGP_CREAT, GFP_KERNEL);
	KUNIT_ASSERT_FALSE(test, IS_ERR(folio));
	folio_unlock(folio);
	KUNIT_ASSERT_EQ(test, folio_marks(folio), 0);
	return folio;
}

struct getblk_case {
	const char *name;
	unsigned int size;
	gfp_t gfp;
};

static const struct getblk_case getblk_cases[] = {
	{ "512 bytes, may block", 512, BLOCKING },
	{ "512 bytes, may not", 512, NONBLOCKING },
	{ "a page, may block", PAGE_SIZE, BLOCKING },
	{ "a page, may not", PAGE_SIZE, NONBLOCKING },
};

static const struct getblk_case gfp_cases[] = {
	{ "may block", 512, BLOCKING },
	{ "may not", 512, NONBLOCKING },
};

KUNIT_ARRAY_PARAM_DESC(getblk, getblk_cases, name);
KUNIT_ARRAY_PARAM_DESC(gfp, gfp_cases, name);

/* One mark for the use that creates the buffer, one for each use some time later. */
static void a_miss_marks_once(struct kunit *test)
{
	const struct getblk_case *c = test->param_value;
	unsigned int per_page = PAGE_SIZE / c->size;

	use_block_size(test, c->size);
	for (sector_t block = 0; block < 4 * per_page; block += per_page) {
		sector_t last = block + per_page - 1;

		KUNIT_EXPECT_EQ(test, marks_after_use(test, last, c->gfp), 1);
		KUNIT_EXPECT_EQ(test, marks_after_use(test, last, c->gfp), 2);
		KUNIT_EXPECT_EQ(test, marks_after_use(test, block, c->gfp), 3);
	}
}

/* A buffer that was created is used again soon: the list of recent buffers holds it, too. */
static void a_miss_is_remembered(struct kunit *test)
{
	const struct getblk_case *c = test->param_value;
	struct buffer_head *bh;

	use_block_size(test, c->size);
	bh = getblk(test, 0, c->gfp);
	KUNIT_EXPECT_EQ(test, atomic_read(&bh->b_count), 2);
	brelse(bh);
}

/* The third use finds the buffer in the list, and the second one in the page cache. */
static void a_recent_buffer_is_marked_once(struct kunit *test)
{
	const struct getblk_case *c = test->param_value;

	use_block_size(test, c->size);
	KUNIT_EXPECT_EQ(test, marks_after_use(test, 0, c->gfp), 1);
	brelse(getblk(test, 0, c->gfp));
	KUNIT_EXPECT_EQ(test, marks_after_use(test, 0, c->gfp), 3);
}

/* The folio is there without buffers: getting them is also one use. */
static void a_folio_without_buffers_is_marked_once(struct kunit *test)
{
	const struct getblk_case *c = test->param_value;
	struct folio *folio;

	use_block_size(test, c->size);
	folio = add_bare_folio(test, 0);
	KUNIT_EXPECT_EQ(test, marks_after_use(test, 0, c->gfp), 1);
	folio_put(folio);
}

/* The buffers are there, but not mapped, as after a device that was shorter. */
static void an_unmapped_buffer_is_marked_once(struct kunit *test)
{
	const struct getblk_case *c = test->param_value;
	struct buffer_head *bh;
	struct folio *folio;

	use_block_size(test, c->size);
	folio = add_bare_folio(test, 0);
	folio_lock(folio);
	create_empty_buffers(folio, c->size, 0);
	folio_unlock(folio);
	bh = getblk(test, 0, c->gfp);
	KUNIT_EXPECT_EQ(test, folio_marks(folio), 1);
	brelse(bh);
	folio_put(folio);
}

static void nothing_beyond_the_end(struct kunit *test)
{
	const struct getblk_case *c = test->param_value;
	struct getblk_disk *d = test->priv;
	sector_t blocks = DISK_BYTES / c->size;

	use_block_size(test, c->size);
	KUNIT_EXPECT_EQ(test, marks_after_use(test, blocks - 1, c->gfp), 1);
	KUNIT_EXPECT_NULL(test, bdev_getblk(d->bdev, blocks, c->size, c->gfp));
	KUNIT_EXPECT_NULL(test, bdev_getblk(d->bdev, div_u64(U64_MAX, c->size), c->size, c->gfp));
}

/* Buffers of another size that are in use are waited for, then replaced. */
static void busy_buffers_of_another_size(struct kunit *test)
{
	const struct getblk_case *c = test->param_value;
	struct getblk_disk *d = test->priv;
	struct buffer_head *bh;

	use_block_size(test, PAGE_SIZE);
	held = getblk(test, 0, c->gfp);
	invalidate_bh_lrus();
	/* What set_blocksize() does, without the truncation. */
	d->bdev->bd_mapping->host->i_blkbits = blksize_bits(c->size);
	d->size = c->size;
	mod_timer(&release_held_timer, jiffies + HZ);
	KUNIT_ASSERT_TRUE(test, timer_pending(&release_held_timer));
	bh = getblk(test, 1, c->gfp);
	KUNIT_EXPECT_FALSE(test, timer_pending(&release_held_timer));
	KUNIT_EXPECT_EQ(test, bh_offset(bh), c->size);
	brelse(bh);
	empty_cache(test);
}

static struct kunit_case getblk_kunit_cases[] = {
	KUNIT_CASE_PARAM(a_miss_marks_once, getblk_gen_params),
	KUNIT_CASE_PARAM(a_miss_is_remembered, getblk_gen_params),
	KUNIT_CASE_PARAM(a_recent_buffer_is_marked_once, getblk_gen_params),
	KUNIT_CASE_PARAM(a_folio_without_buffers_is_marked_once, getblk_gen_params),
	KUNIT_CASE_PARAM(an_unmapped_buffer_is_marked_once, getblk_gen_params),
	KUNIT_CASE_PARAM(nothing_beyond_the_end, getblk_gen_params),
	KUNIT_CASE_PARAM(busy_buffers_of_another_size, gfp_gen_params),
	{ }
};

static struct kunit_suite bdev_getblk_suite = {
	.name = "bdev_getblk",
	.init = getblk_init,
	.exit = getblk_exit,
	.test_cases = getblk_kunit_cases,
};

kunit_test_suite(bdev_getblk_suite);
