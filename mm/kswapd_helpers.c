// SPDX-License-Identifier: GPL-2.0-only
/*
 * Threads that help a node's kswapd when one CPU is not enough.
 *
 * kswapd does not change: it alone handles requests, clears boosts, counts its
 * failures (a helper that balances the node clears them, as direct reclaim does)
 * and decides when to sleep. Helpers only reclaim, for order 0. Like kswapd, they
 * begin below the low watermark, boost included. An allocation that finds the
 * node below low although kswapd is awake wakes one more. As free pages rise to
 * the high watermark, helpers stop one by one.
 *
 * kswapd_threads_mutex protects the setting and which helpers exist. It is
 * taken inside the memory hotplug lock.
 */
#include <linux/freezer.h>
#include <linux/kthread.h>
#include <linux/lockdep.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/nodemask.h>
#include <linux/swap.h>
#include <linux/sysctl.h>
#include <linux/vmstat.h>
#include <linux/wait.h>

#include "kswapd_helpers.h"

static DEFINE_MUTEX(kswapd_threads_mutex);
static int kswapd_threads = 1;

static bool helper_begins(pg_data_t *pgdat)
{
	/*
	 * A kswapd that waits there has nothing to do, or has given up. Its node
	 * may stay below low all the same: allocations that find room on another
	 * node go there and wake nobody. No order is needed: if kswapd's wake-up
	 * is missed here, the next allocation below low wakes a helper.
	 */
	return !waitqueue_active(&pgdat->kswapd_wait) &&
	       kswapd_helper_wanted(pgdat, KSWAPD_THREADS_MAX);
}

static int kswapd_helper(void *data)
{
	pg_data_t *pgdat = data;
	struct kswapd_helpers *helpers = &pgdat->kswapd_helpers;

	/* Like kswapd: may use the reserves, must not enter direct reclaim. */
	current->flags |= PF_MEMALLOC | PF_KSWAPD;
	set_freezable();

	while (!kthread_freezable_should_stop(NULL)) {
		unsigned int missed = 0;

		wait_event_freezable_exclusive(helpers->wait, kthread_should_stop() ||
					       helper_begins(pgdat));
		atomic_inc(&helpers->at_work);
		while (missed < 2 && !kthread_should_stop() && !freezing(current) &&
		       kswapd_helper_wanted(pgdat, atomic_read(&helpers->at_work) - 1)) {
			/*
			 * A pass that frees next to nothing may only have joined
			 * the shared walk over memcgs near its end. The next pass
			 * walks by itself.
			 */
			if (kswapd_helper_shrink(pgdat, missed) < SWAP_CLUSTER_MAX)
				missed++;
			else
				missed = 0;
			cond_resched();
		}
		atomic_dec(&helpers->at_work);
		/* Do not spin where there is next to nothing to free. */
		if (missed == 2)
			schedule_timeout_interruptible(HZ);
	}

	current->flags &= ~(PF_MEMALLOC | PF_KSWAPD);
	return 0;
}

/**
 * kswapd_helpers_wake - wake one more helper if kswapd cannot keep up
 * @pgdat: the node, whose kswapd is awake
 *
 * Called by wakeup_kswapd(): the more often allocations ask for kswapd while it
 * is awake, the more helpers begin.
 *
 * Context: any that may wake kswapd.
 */
void kswapd_helpers_wake(pg_data_t *pgdat)
{
	struct kswapd_helpers *helpers = &pgdat->kswapd_helpers;

	/*
	 * No order is needed between the free pages and the sleeper: a helper
	 * missed here is woken by the next allocation, and kswapd is at work.
	 */
	if (!waitqueue_active(&helpers->wait) || !kswapd_helper_wanted(pgdat, KSWAPD_THREADS_MAX))
		return;
	count_vm_event(KSWAPD_HELPER_WAKE);
	wake_up(&helpers->wait);
}

/*
 * Give a node nr helpers, or as many as can be created: a node with fewer
 * works, too, so failure only warns. Surplus helpers are stopped one by one,
 * each after a pass.
 */
static void kswapd_helpers_resize(pg_data_t *pgdat, unsigned int nr)
{
	struct kswapd_helpers *helpers = &pgdat->kswapd_helpers;
	unsigned int was = helpers->nr;

	lockdep_assert_held(&kswapd_threads_mutex);
	while (helpers->nr < nr) {
		struct task_struct *task;

		task = kthread_create_on_node(kswapd_helper, pgdat, pgdat->node_id, "kswapd%d:%u",
					      pgdat->node_id, helpers->nr + 1);
		if (IS_ERR(task)) {
			pr_warn("kswapd%d: %u helpers instead of %u (%pe)\n",
				pgdat->node_id, helpers->nr, nr, task);
			return;
		}
		helpers->thread[helpers->nr] = task;
		WRITE_ONCE(helpers->nr, helpers->nr + 1);
		wake_up_process(task);
	}
	WRITE_ONCE(helpers->nr, nr);
	for (unsigned int i = nr; i < was; i++)
		kthread_stop(helpers->thread[i]);
	WARN_ON_ONCE(!nr && atomic_read(&helpers->at_work));
}

/**
 * kswapd_helpers_start - start the helpers of a node that has got memory
 * @pgdat: the node
 *
 * Context: boot and memory hot-add. Sleeps.
 */
void kswapd_helpers_start(pg_data_t *pgdat)
{
	guard(mutex)(&kswapd_threads_mutex);
	kswapd_helpers_resize(pgdat, READ_ONCE(kswapd_threads) - 1);
}

/**
 * kswapd_helpers_stop - stop a node's helpers before its kswapd stops
 * @pgdat: the node
 *
 * Context: memory hot-remove, while kswapd still runs. Sleeps until each helper
 * has ended its pass, as kswapd_stop() does for kswapd.
 */
void kswapd_helpers_stop(pg_data_t *pgdat)
{
	guard(mutex)(&kswapd_threads_mutex);
	kswapd_helpers_resize(pgdat, 0);
}

static int kswapd_threads_handler(const struct ctl_table *table, int write,
				  void *buffer, size_t *lenp, loff_t *ppos)
{
	int nid, ret = proc_dointvec_minmax(table, write, buffer, lenp, ppos);

	if (ret || !write)
		return ret;
	/*
	 * The last writer resizes last, or finds it done. A node is in N_MEMORY
	 * from before its kswapd starts until before its helpers are stopped.
	 */
	guard(mutex)(&kswapd_threads_mutex);
	for_each_node_state(nid, N_MEMORY)
		kswapd_helpers_resize(NODE_DATA(nid), READ_ONCE(kswapd_threads) - 1);
	return 0;
}

static int kswapd_threads_max = KSWAPD_THREADS_MAX;

static const struct ctl_table kswapd_helpers_sysctls[] = {
	{
		.procname	= "kswapd_threads",
		.data		= &kswapd_threads,
		.maxlen		= sizeof(int),
		.mode		= 0644,
		.proc_handler	= kswapd_threads_handler,
		.extra1		= SYSCTL_ONE,
		.extra2		= &kswapd_threads_max,
	},
};

static int __init kswapd_helpers_init(void)
{
	register_sysctl_init("vm", kswapd_helpers_sysctls);
	return 0;
}
subsys_initcall(kswapd_helpers_init);
