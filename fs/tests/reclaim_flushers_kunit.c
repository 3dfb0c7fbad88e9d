// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which flushers reclaim starts: those it has marked, each once more after a
 * mark, or all of them where no mark is to be found.
 *
 * The devices are backing_dev_infos of the test that stand in the global list
 * but were never registered. Waking such a flusher queues no work, so that
 * WB_start_all stays as evidence until the test plays the flusher and clears it.
 * No other device has a mark: the tests run while nobody has to reclaim yet.
 */
#include <kunit/test.h>
#include <linux/backing-dev.h>
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/pagemap.h>
#include <linux/rculist.h>
#include <linux/writeback.h>

#include "../internal.h"

enum { MET, OTHER, NR_DEVICES };

#define NR_KICKERS	2
#define NR_ROUNDS	20000

struct flushers_test {
	struct backing_dev_info *bdi[NR_DEVICES];
	struct super_block *sb;
	struct inode *inode;
	struct folio *folio;
};

static void make_dirty(struct bdi_writeback *wb)
{
	set_bit(WB_has_dirty_io, &wb->state);
	atomic_long_add(wb->avg_write_bandwidth, &wb->bdi->tot_write_bandwidth);
}

static void make_clean(struct bdi_writeback *wb)
{
	clear_bit(WB_has_dirty_io, &wb->state);
	atomic_long_sub(wb->avg_write_bandwidth, &wb->bdi->tot_write_bandwidth);
}

static void set_inode_wb(struct inode *inode, struct bdi_writeback *wb)
{
#ifdef CONFIG_CGROUP_WRITEBACK
	inode->i_wb = wb;
#endif
}

static bool marked(struct bdi_writeback *wb)
{
	return test_bit(WB_reclaim_dirty, &wb->state);
}

static bool started(struct bdi_writeback *wb)
{
	return test_bit(WB_start_all, &wb->state);
}

/* What the flusher does at the end of a run. */
static void run_ends(struct bdi_writeback *wb)
{
	clear_bit(WB_start_all, &wb->state);
}

static int flushers_init(struct kunit *test)
{
	struct flushers_test *t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, t);
	t->sb = kunit_kzalloc(test, sizeof(*t->sb), GFP_KERNEL);
	t->inode = kunit_kzalloc(test, sizeof(*t->inode), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, t->sb);
	KUNIT_ASSERT_NOT_NULL(test, t->inode);
	test->priv = t;

	for (int i = 0; i < NR_DEVICES; i++) {
		struct backing_dev_info *bdi = bdi_alloc(NUMA_NO_NODE);

		KUNIT_ASSERT_NOT_NULL(test, bdi);
		t->bdi[i] = bdi;
		list_add_tail_rcu(&bdi->wb.bdi_node, &bdi->wb_list);
		spin_lock_bh(&bdi_lock);
		list_add_tail_rcu(&bdi->bdi_list, &bdi_list);
		spin_unlock_bh(&bdi_lock);
		make_dirty(&bdi->wb);
	}

	t->sb->s_bdi = t->bdi[MET];
	inode_init_once(t->inode);
	spin_lock_init(&t->inode->i_lock);
	t->inode->i_sb = t->sb;
	t->inode->i_mapping = &t->inode->i_data;
	t->inode->i_data.host = t->inode;
	set_inode_wb(t->inode, &t->bdi[MET]->wb);

	t->folio = folio_alloc(GFP_KERNEL, 0);
	KUNIT_ASSERT_NOT_NULL(test, t->folio);
	t->folio->mapping = &t->inode->i_data;
	folio_lock(t->folio);
	return 0;
}

static void flushers_exit(struct kunit *test)
{
	struct flushers_test *t = test->priv;

	if (!t)
		return;
	for (int i = 0; i < NR_DEVICES; i++) {
		if (!t->bdi[i])
			continue;
		spin_lock_bh(&bdi_lock);
		list_del_rcu(&t->bdi[i]->bdi_list);
		spin_unlock_bh(&bdi_lock);
	}
	/* Somebody else's walk may still be here. */
	synchronize_rcu();
	for (int i = 0; i < NR_DEVICES; i++) {
		if (t->bdi[i])
			bdi_put(t->bdi[i]);
	}
	if (t->folio) {
		t->folio->mapping = NULL;
		folio_unlock(t->folio);
		folio_put(t->folio);
	}
}

static void only_the_marked_is_started(struct kunit *test)
{
	struct flushers_test *t = test->priv;

	KUNIT_EXPECT_TRUE(test, reclaim_mark_flusher(t->folio));
	KUNIT_EXPECT_TRUE(test, marked(&t->bdi[MET]->wb));
	KUNIT_EXPECT_FALSE(test, marked(&t->bdi[OTHER]->wb));
	reclaim_start_flushers(true);
	KUNIT_EXPECT_TRUE(test, started(&t->bdi[MET]->wb));
	KUNIT_EXPECT_EQ(test, t->bdi[MET]->wb.start_all_reason, WB_REASON_VMSCAN);
	KUNIT_EXPECT_FALSE(test, started(&t->bdi[OTHER]->wb));

	/* The start has used the mark up. */
	KUNIT_EXPECT_FALSE(test, marked(&t->bdi[MET]->wb));
	run_ends(&t->bdi[MET]->wb);
	KUNIT_EXPECT_FALSE(test, reclaim_start_marked());
	KUNIT_EXPECT_FALSE(test, started(&t->bdi[MET]->wb));
	KUNIT_EXPECT_FALSE(test, started(&t->bdi[OTHER]->wb));
}

static void without_a_mark_all_are_started(struct kunit *test)
{
	struct flushers_test *t = test->priv;

	reclaim_start_flushers(false);
	KUNIT_EXPECT_TRUE(test, started(&t->bdi[MET]->wb));
	KUNIT_EXPECT_TRUE(test, started(&t->bdi[OTHER]->wb));
}

/* Somebody else has used the mark up since, and what is dirty here is still met. */
static void with_a_mark_used_up_all_are_started(struct kunit *test)
{
	struct flushers_test *t = test->priv;

	KUNIT_EXPECT_TRUE(test, reclaim_mark_flusher(t->folio));
	KUNIT_EXPECT_TRUE(test, reclaim_start_marked());
	/* By a run that still goes on: that will do. */
	reclaim_start_flushers(true);
	KUNIT_EXPECT_FALSE(test, started(&t->bdi[OTHER]->wb));
	run_ends(&t->bdi[MET]->wb);
	reclaim_start_flushers(true);
	KUNIT_EXPECT_TRUE(test, started(&t->bdi[MET]->wb));
	KUNIT_EXPECT_TRUE(test, started(&t->bdi[OTHER]->wb));
}

/* A device that was pulled out with dirty data: its mark can not be found. */
static void without_the_device_all_are_started(struct kunit *test)
{
	struct flushers_test *t = test->priv;
	struct backing_dev_info *gone = t->bdi[MET];

	spin_lock_bh(&bdi_lock);
	list_del_rcu(&gone->bdi_list);
	spin_unlock_bh(&bdi_lock);
	synchronize_rcu();

	KUNIT_EXPECT_TRUE(test, reclaim_mark_flusher(t->folio));
	reclaim_start_flushers(true);
	KUNIT_EXPECT_FALSE(test, started(&gone->wb));
	KUNIT_EXPECT_TRUE(test, started(&t->bdi[OTHER]->wb));

	spin_lock_bh(&bdi_lock);
	list_add_tail_rcu(&gone->bdi_list, &bdi_list);
	spin_unlock_bh(&bdi_lock);
}

/* A run that is under way may have passed the folio's inode already. */
static void a_pending_run_leaves_the_mark(struct kunit *test)
{
	struct flushers_test *t = test->priv;
	struct bdi_writeback *wb = &t->bdi[MET]->wb;

	set_bit(WB_start_all, &wb->state);
	KUNIT_EXPECT_TRUE(test, reclaim_mark_flusher(t->folio));
	reclaim_start_flushers(true);
	KUNIT_EXPECT_TRUE(test, marked(wb));
	/* That run will do: nobody else has to. */
	KUNIT_EXPECT_FALSE(test, started(&t->bdi[OTHER]->wb));
	run_ends(wb);
	KUNIT_EXPECT_TRUE(test, reclaim_start_marked());
	KUNIT_EXPECT_TRUE(test, started(wb));
	KUNIT_EXPECT_FALSE(test, marked(wb));
}

/* Written since it was met, or not on a list yet: no flusher finds it, nor do others. */
static void a_mark_on_a_clean_device_starts_nobody(struct kunit *test)
{
	struct flushers_test *t = test->priv;
	struct bdi_writeback *wb = &t->bdi[MET]->wb;

	make_clean(wb);
	KUNIT_EXPECT_TRUE(test, reclaim_mark_flusher(t->folio));
	reclaim_start_flushers(true);
	KUNIT_EXPECT_FALSE(test, started(wb));
	KUNIT_EXPECT_FALSE(test, started(&t->bdi[OTHER]->wb));
	/* Once. The folio is met again, and now its inode can be found. */
	KUNIT_EXPECT_FALSE(test, marked(wb));
	make_dirty(wb);
	KUNIT_EXPECT_TRUE(test, reclaim_mark_flusher(t->folio));
	KUNIT_EXPECT_TRUE(test, reclaim_start_marked());
	KUNIT_EXPECT_TRUE(test, started(wb));
}

/* A device that gets dirty: the mark is from before, and for what is clean by now. */
static void a_mark_is_not_for_what_comes_later(struct kunit *test)
{
	struct flushers_test *t = test->priv;
	struct bdi_writeback *wb = &t->bdi[MET]->wb;

	make_clean(wb);
	KUNIT_EXPECT_TRUE(test, reclaim_mark_flusher(t->folio));
	KUNIT_EXPECT_TRUE(test, marked(wb));
	/* Of a block device: it needs no hash. */
	t->inode->i_mode = S_IFBLK;
	__mark_inode_dirty(t->inode, I_DIRTY_PAGES);
	KUNIT_EXPECT_TRUE(test, wb_has_dirty_io(wb));
	KUNIT_EXPECT_FALSE(test, marked(wb));
	KUNIT_EXPECT_FALSE(test, reclaim_start_marked());
	KUNIT_EXPECT_FALSE(test, started(wb));

	/* The last inode leaves the lists: that mark is still good for one walk. */
	KUNIT_EXPECT_TRUE(test, reclaim_mark_flusher(t->folio));
	inode_io_list_del(t->inode);
	KUNIT_EXPECT_FALSE(test, wb_has_dirty_io(wb));
	reclaim_start_flushers(true);
	KUNIT_EXPECT_FALSE(test, started(wb));
	KUNIT_EXPECT_FALSE(test, started(&t->bdi[OTHER]->wb));
}

static void folios_that_no_flusher_writes(struct kunit *test)
{
	struct flushers_test *t = test->priv;

	t->folio->mapping = NULL;
	KUNIT_EXPECT_FALSE(test, reclaim_mark_flusher(t->folio));
	t->folio->mapping = &t->inode->i_data;

	t->bdi[MET]->capabilities &= ~BDI_CAP_WRITEBACK;
	KUNIT_EXPECT_FALSE(test, reclaim_mark_flusher(t->folio));
	t->bdi[MET]->capabilities |= BDI_CAP_WRITEBACK;

	if (IS_ENABLED(CONFIG_CGROUP_WRITEBACK)) {
		set_inode_wb(t->inode, NULL);
		KUNIT_EXPECT_FALSE(test, reclaim_mark_flusher(t->folio));
		set_inode_wb(t->inode, &t->bdi[MET]->wb);
	}
	KUNIT_EXPECT_FALSE(test, marked(&t->bdi[MET]->wb));
	KUNIT_EXPECT_FALSE(test, marked(&t->bdi[OTHER]->wb));
}

/* A memory cgroup has a bdi_writeback of its own on each device. */
static void only_the_marked_domain_is_started(struct kunit *test)
{
	struct flushers_test *t = test->priv;
	struct backing_dev_info *bdi = t->bdi[MET];
	struct bdi_writeback *domain[2];

	if (!IS_ENABLED(CONFIG_CGROUP_WRITEBACK))
		kunit_skip(test, "no cgroup writeback: a device has one domain");

	for (int i = 0; i < 2; i++) {
		domain[i] = kunit_kzalloc(test, sizeof(**domain), GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, domain[i]);
		domain[i]->bdi = bdi;
		spin_lock_init(&domain[i]->work_lock);
		set_bit(WB_has_dirty_io, &domain[i]->state);
		list_add_tail_rcu(&domain[i]->bdi_node, &bdi->wb_list);
	}
	set_inode_wb(t->inode, domain[1]);
	KUNIT_EXPECT_TRUE(test, reclaim_mark_flusher(t->folio));
	/* The inode is about to change its domain: look under the lock. */
	inode_state_assign_raw(t->inode, I_WB_SWITCH);
	KUNIT_EXPECT_TRUE(test, reclaim_mark_flusher(t->folio));
	inode_state_assign_raw(t->inode, 0);
	reclaim_start_flushers(true);

	KUNIT_EXPECT_FALSE(test, started(&bdi->wb));
	KUNIT_EXPECT_FALSE(test, started(domain[0]));
	KUNIT_EXPECT_TRUE(test, started(domain[1]));
	KUNIT_EXPECT_FALSE(test, started(&t->bdi[OTHER]->wb));

	for (int i = 0; i < 2; i++)
		list_del_rcu(&domain[i]->bdi_node);
	synchronize_rcu();
}

static int kick_once(void *unused)
{
	reclaim_start_flushers(true);
	while (!kthread_should_stop())
		schedule_timeout_interruptible(1);
	return 0;
}

/*
 * Stop a kick where it has started the flusher and has not returned: at the
 * lock under which the work is queued. The run goes by, a folio is met after
 * it, and only then does the kick go on. The new mark must survive.
 */
static void a_mark_made_during_a_start_survives(struct kunit *test)
{
	struct flushers_test *t = test->priv;
	struct bdi_writeback *wb = &t->bdi[MET]->wb;
	struct task_struct *kicker;
	bool seen;

	if (num_online_cpus() < 2)
		kunit_skip(test, "needs two CPUs");
	kicker = kthread_create(kick_once, NULL, "reclaim_kick");
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, kicker);
	set_cpus_allowed_ptr(kicker, cpumask_of(cpumask_first(cpu_online_mask)));
	set_cpus_allowed_ptr(current, cpumask_of(cpumask_last(cpu_online_mask)));

	reclaim_mark_flusher(t->folio);
	/* Interrupts are off, and jiffies may stand still. */
	spin_lock_irq(&wb->work_lock);
	wake_up_process(kicker);
	for (int us = 0; us < 5 * USEC_PER_SEC && !started(wb); us++)
		udelay(1);
	seen = started(wb);
	run_ends(wb);
	reclaim_mark_flusher(t->folio);
	spin_unlock_irq(&wb->work_lock);
	kthread_stop(kicker);
	set_cpus_allowed_ptr(current, cpu_possible_mask);

	KUNIT_EXPECT_TRUE(test, seen);
	KUNIT_EXPECT_TRUE(test, marked(wb));
	KUNIT_EXPECT_TRUE(test, reclaim_start_marked());
	KUNIT_EXPECT_TRUE(test, started(wb));
}

/* Is the folio of this round still to be written? */
static atomic_t still_dirty;

static int play_flusher(void *wb)
{
	while (!kthread_should_stop()) {
		if (started(wb)) {
			atomic_set(&still_dirty, 0);
			run_ends(wb);
		}
		cond_resched();
	}
	return 0;
}

static int play_kicker(void *unused)
{
	while (!kthread_should_stop()) {
		reclaim_start_marked();
		cond_resched();
	}
	return 0;
}

/*
 * One marks, several kick, one flushes. Whoever has marked a flusher and goes
 * on kicking, without marking again, must see the folio cleaned. Nobody starts
 * all flushers here, which would make up for a mark that is lost.
 *
 * Whoever marks here makes sure that the folio is seen dirty before. Reclaim does
 * not, and meets the folio again instead: see reclaim_mark_flusher().
 */
static void no_mark_is_lost(struct kunit *test)
{
	struct flushers_test *t = test->priv;
	struct bdi_writeback *wb = &t->bdi[MET]->wb;
	struct task_struct *task[NR_KICKERS + 1];
	unsigned long end = jiffies + 3 * HZ;
	int nr = 0, round, lost = 0;

	if (num_online_cpus() < 2)
		kunit_skip(test, "needs two CPUs");
	task[nr] = kthread_run(play_flusher, wb, "reclaim_flusher");
	while (!IS_ERR(task[nr]) && ++nr < ARRAY_SIZE(task))
		task[nr] = kthread_run(play_kicker, NULL, "reclaim_kick/%d", nr);

	for (round = 0; round < NR_ROUNDS && !lost && time_before(jiffies, end); round++) {
		unsigned long until = jiffies + 2 * HZ;

		atomic_set(&still_dirty, 1);
		/* A mark that is seen, and left alone, must be for a run that sees this */
		smp_mb();
		reclaim_mark_flusher(t->folio);
		while (atomic_read(&still_dirty)) {
			if (time_after(jiffies, until)) {
				lost++;
				break;
			}
			reclaim_start_marked();
			cond_resched();
		}
	}
	for (int i = 0; i < nr; i++)
		kthread_stop(task[i]);

	KUNIT_EXPECT_EQ(test, nr, ARRAY_SIZE(task));
	KUNIT_EXPECT_EQ(test, lost, 0);
	KUNIT_EXPECT_FALSE(test, started(&t->bdi[OTHER]->wb));
	kunit_info(test, "%d rounds\n", round);
}

static struct kunit_case reclaim_flushers_cases[] = {
	KUNIT_CASE(only_the_marked_is_started),
	KUNIT_CASE(without_a_mark_all_are_started),
	KUNIT_CASE(with_a_mark_used_up_all_are_started),
	KUNIT_CASE(without_the_device_all_are_started),
	KUNIT_CASE(a_pending_run_leaves_the_mark),
	KUNIT_CASE(a_mark_on_a_clean_device_starts_nobody),
	KUNIT_CASE(a_mark_is_not_for_what_comes_later),
	KUNIT_CASE(folios_that_no_flusher_writes),
	KUNIT_CASE(only_the_marked_domain_is_started),
	KUNIT_CASE(a_mark_made_during_a_start_survives),
	KUNIT_CASE_SLOW(no_mark_is_lost),
	{}
};

static struct kunit_suite reclaim_flushers_suite = {
	.name = "reclaim_flushers",
	.init = flushers_init,
	.exit = flushers_exit,
	.test_cases = reclaim_flushers_cases,
};

kunit_test_suite(reclaim_flushers_suite);
