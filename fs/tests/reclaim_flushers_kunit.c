// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reclaim starts the flushers of the dirty folios on a list, and no others.
 *
 * The devices are backing_dev_infos of the test, unregistered and on no list.
 * Waking such a flusher queues no work, so WB_start_all stays set as evidence.
 */
#include <kunit/test.h>
#include <linux/backing-dev.h>
#include <linux/fs.h>
#include <linux/pagemap.h>
#include <linux/writeback.h>

enum { MET, OTHER, NR_DEVICES };

#define FOLIOS_PER_DEVICE	2

struct test_device {
	struct backing_dev_info *bdi;
	struct super_block *sb;
	struct inode *inode;
	struct folio *folio[FOLIOS_PER_DEVICE];
};

static void set_dirty(struct bdi_writeback *wb, bool dirty)
{
	assign_bit(WB_has_dirty_io, &wb->state, dirty);
}

static void set_inode_wb(struct inode *inode, struct bdi_writeback *wb)
{
#ifdef CONFIG_CGROUP_WRITEBACK
	inode->i_wb = wb;
#endif
}

static bool started(struct bdi_writeback *wb)
{
	return test_bit(WB_start_all, &wb->state);
}

static int flushers_init(struct kunit *test)
{
	struct test_device *d = kunit_kcalloc(test, NR_DEVICES, sizeof(*d), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, d);
	test->priv = d;

	for (; d < (struct test_device *)test->priv + NR_DEVICES; d++) {
		d->bdi = bdi_alloc(NUMA_NO_NODE);
		d->sb = kunit_kzalloc(test, sizeof(*d->sb), GFP_KERNEL);
		d->inode = kunit_kzalloc(test, sizeof(*d->inode), GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, d->bdi);
		KUNIT_ASSERT_NOT_NULL(test, d->sb);
		KUNIT_ASSERT_NOT_NULL(test, d->inode);
		set_dirty(&d->bdi->wb, true);
		d->sb->s_bdi = d->bdi;
		inode_init_once(d->inode);
		d->inode->i_sb = d->sb;
		d->inode->i_mapping = &d->inode->i_data;
		d->inode->i_data.host = d->inode;
		set_inode_wb(d->inode, &d->bdi->wb);
		for (int i = 0; i < FOLIOS_PER_DEVICE; i++) {
			d->folio[i] = folio_alloc(GFP_KERNEL, 0);
			KUNIT_ASSERT_NOT_NULL(test, d->folio[i]);
			d->folio[i]->mapping = &d->inode->i_data;
			folio_set_dirty(d->folio[i]);
		}
	}
	return 0;
}

static void flushers_exit(struct kunit *test)
{
	struct test_device *d = test->priv;

	for (int nr = 0; d && nr < NR_DEVICES; nr++, d++) {
		for (int i = 0; i < FOLIOS_PER_DEVICE; i++) {
			if (!d->folio[i])
				continue;
			d->folio[i]->mapping = NULL;
			folio_clear_dirty(d->folio[i]);
			folio_put(d->folio[i]);
		}
		if (d->bdi) {
			set_dirty(&d->bdi->wb, false);
			bdi_put(d->bdi);
		}
	}
}

/* For devices first to last; the folios are left unlocked and on no list. */
static void wakeup(struct kunit *test, int first, int last)
{
	struct test_device *d = test->priv;
	LIST_HEAD(folios);

	/* The devices' folios alternate. */
	for (int i = 0; i < FOLIOS_PER_DEVICE; i++) {
		for (int nr = first; nr <= last; nr++)
			list_add_tail(&d[nr].folio[i]->lru, &folios);
	}
	wakeup_flushers_of_folios(&folios);
	KUNIT_EXPECT_EQ(test, list_count_nodes(&folios),
			(last - first + 1) * FOLIOS_PER_DEVICE);
	for (int nr = first; nr <= last; nr++) {
		for (int i = 0; i < FOLIOS_PER_DEVICE; i++)
			list_del_init(&d[nr].folio[i]->lru);
	}
}

static void only_their_own_is_started(struct kunit *test)
{
	struct test_device *d = test->priv;

	wakeup(test, MET, MET);
	KUNIT_EXPECT_TRUE(test, started(&d[MET].bdi->wb));
	KUNIT_EXPECT_EQ(test, d[MET].bdi->wb.start_all_reason, WB_REASON_VMSCAN);
	KUNIT_EXPECT_FALSE(test, started(&d[OTHER].bdi->wb));
	for (int i = 0; i < FOLIOS_PER_DEVICE; i++)
		KUNIT_EXPECT_FALSE(test, folio_test_locked(d[MET].folio[i]));
}

static void each_of_several_is_started(struct kunit *test)
{
	struct test_device *d = test->priv;

	wakeup(test, MET, OTHER);
	KUNIT_EXPECT_TRUE(test, started(&d[MET].bdi->wb));
	KUNIT_EXPECT_TRUE(test, started(&d[OTHER].bdi->wb));
}

/* Another task is writing the locked folios: start no flusher. */
static void locked_folios_start_nobody(struct kunit *test)
{
	struct test_device *d = test->priv;

	for (int i = 0; i < FOLIOS_PER_DEVICE; i++)
		folio_lock(d->folio[i]);
	wakeup(test, MET, MET);
	KUNIT_EXPECT_FALSE(test, started(&d->bdi->wb));
	for (int i = 0; i < FOLIOS_PER_DEVICE; i++)
		folio_unlock(d->folio[i]);
}

/* Neither a filesystem without writeback nor an inode without a flusher starts one. */
static void none_is_found(struct kunit *test)
{
	struct test_device *d = test->priv;
	struct bdi_writeback *wb = &d->bdi->wb;

	d->bdi->capabilities &= ~BDI_CAP_WRITEBACK;
	wakeup(test, MET, MET);
	d->bdi->capabilities |= BDI_CAP_WRITEBACK;

	if (IS_ENABLED(CONFIG_CGROUP_WRITEBACK)) {
		set_inode_wb(d->inode, NULL);
		wakeup(test, MET, MET);
		set_inode_wb(d->inode, wb);
	}
	KUNIT_EXPECT_FALSE(test, started(wb));
}

/* A memory cgroup has its own bdi_writeback on each device. */
static void only_their_own_domain_is_started(struct kunit *test)
{
	struct test_device *d = test->priv;
	struct bdi_writeback *domain;

	if (!IS_ENABLED(CONFIG_CGROUP_WRITEBACK))
		kunit_skip(test, "no cgroup writeback: a device has one domain");

	domain = kunit_kzalloc(test, sizeof(*domain), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, domain);
	domain->bdi = d->bdi;
	spin_lock_init(&domain->work_lock);
	set_dirty(domain, true);
	set_inode_wb(d->inode, domain);
	/* The inode is about to change its domain. */
	inode_state_assign_raw(d->inode, I_WB_SWITCH);
	wakeup(test, MET, MET);
	inode_state_assign_raw(d->inode, 0);
	set_inode_wb(d->inode, &d->bdi->wb);

	KUNIT_EXPECT_TRUE(test, started(domain));
	KUNIT_EXPECT_FALSE(test, started(&d->bdi->wb));
}

static struct kunit_case reclaim_flushers_cases[] = {
	KUNIT_CASE(only_their_own_is_started),
	KUNIT_CASE(each_of_several_is_started),
	KUNIT_CASE(locked_folios_start_nobody),
	KUNIT_CASE(none_is_found),
	KUNIT_CASE(only_their_own_domain_is_started),
	{}
};

static struct kunit_suite reclaim_flushers_suite = {
	.name = "reclaim_flushers",
	.init = flushers_init,
	.exit = flushers_exit,
	.test_cases = reclaim_flushers_cases,
};

kunit_test_suite(reclaim_flushers_suite);
