// SPDX-License-Identifier: GPL-2.0-only
/*
 * Threads that help a node's kswapd when one CPU is not enough.
 *
 * kswapd does not change: it alone handles requests and boosts, counts failures
 * and decides that the node is balanced. Helpers only reclaim, for order 0. They
 * begin when free pages are below the low watermark although kswapd is awake. The
 * farther free pages are below the high watermark, the more helpers work. No task
 * that reclaims or allocates waits for a helper's pass to end.
 *
 * kswapd_threads_mutex protects the setting and which helpers exist. It is taken
 * inside the memory hotplug lock.
 */
#include <kunit/static_stub.h>
#include <kunit/visibility.h>
#include <linux/freezer.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/nodemask.h>
#include <linux/swap.h>
#include <linux/sysctl.h>
#include <linux/vmstat.h>
#include <linux/wait.h>

#include "kswapd_helpers.h"

/* Scanning more than a pass of this priority is left to kswapd. */
#define LAST_PRIORITY	(DEF_PRIORITY - 2)
/*
 * A helper rests after this many passes in a row that free next to nothing. A single
 * one may only have joined the shared walk over memcgs near its end.
 */
#define MAX_MISSED	3

static DEFINE_MUTEX(kswapd_threads_mutex);
/* Nodes whose kswapd runs: only these may have helpers. */
static nodemask_t kswapd_helpers_nodes;
static int kswapd_threads = 1;

static int kswapd_helper(void *data)
{
	pg_data_t *pgdat = data;
	struct kswapd_helpers *helpers = &pgdat->kswapd_helpers;

	/* Like kswapd: may dip into the reserves, and must not enter direct reclaim. */
	current->flags |= PF_MEMALLOC | PF_KSWAPD;
	set_freezable();

	while (!kthread_freezable_should_stop(NULL)) {
		int priority = DEF_PRIORITY, missed = 0;

		wait_event_freezable_exclusive(helpers->wait, kthread_should_stop() ||
					       kswapd_helper_wanted(pgdat, true));
		while (missed < MAX_MISSED && !kthread_should_stop() &&
		       !freezing(current) && kswapd_helper_wanted(pgdat, false)) {
			unsigned long freed;

			atomic_inc(&helpers->at_work);
			freed = kswapd_helper_shrink(pgdat, priority);
			atomic_dec(&helpers->at_work);
			/* A pass scans nothing of LRU lists shorter than 1 << priority. */
			if (freed >= SWAP_CLUSTER_MAX) {
				missed = 0;
			} else {
				missed++;
				priority = max(priority - 1, LAST_PRIORITY);
			}
			cond_resched();
		}
		/* Do not spin where such passes free next to nothing. */
		if (missed == MAX_MISSED)
			schedule_timeout_interruptible(HZ);
	}

	current->flags &= ~(PF_MEMALLOC | PF_KSWAPD);
	return 0;
}

/**
 * kswapd_helpers_wake - wake one more helper if kswapd cannot keep up
 * @pgdat: the node, whose kswapd is awake
 *
 * Called by wakeup_kswapd(): the more often allocations ask for kswapd while it is
 * awake, the more helpers begin.
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
	if (!waitqueue_active(&helpers->wait) || !kswapd_helper_wanted(pgdat, true))
		return;
	count_vm_event(KSWAPD_HELPER_WAKE);
	wake_up(&helpers->wait);
}

/* KUnit replaces this with a function that fails. */
VISIBLE_IF_KUNIT struct task_struct *kswapd_helper_create(pg_data_t *pgdat)
{
	KUNIT_STATIC_STUB_REDIRECT(kswapd_helper_create, pgdat);
	return kthread_create_on_node(kswapd_helper, pgdat, pgdat->node_id, "kswapd%d:%u",
				      pgdat->node_id, pgdat->kswapd_helpers.nr + 1);
}

/* Start helpers until the node has nr. Under kswapd_threads_mutex. */
static int kswapd_helpers_grow(pg_data_t *pgdat, unsigned int nr)
{
	struct kswapd_helpers *helpers = &pgdat->kswapd_helpers;

	while (helpers->nr < nr) {
		struct task_struct *task = kswapd_helper_create(pgdat);

		if (IS_ERR(task))
			return PTR_ERR(task);
		helpers->thread[helpers->nr] = task;
		WRITE_ONCE(helpers->nr, helpers->nr + 1);
		wake_up_process(task);
	}
	return 0;
}

/* Keep nr helpers. Stop the others one by one, each after its pass. Under kswapd_threads_mutex. */
static void kswapd_helpers_trim(pg_data_t *pgdat, unsigned int nr)
{
	struct kswapd_helpers *helpers = &pgdat->kswapd_helpers;
	unsigned int was = helpers->nr;

	if (nr >= was)
		return;
	WRITE_ONCE(helpers->nr, nr);
	for (unsigned int i = nr; i < was; i++)
		kthread_stop(helpers->thread[i]);
}

/**
 * kswapd_helpers_start - start the helpers of a node whose kswapd has started
 * @pgdat: the node
 *
 * A node with fewer helpers still works, so failure only warns.
 *
 * Context: boot and memory hot-add. Sleeps.
 */
void kswapd_helpers_start(pg_data_t *pgdat)
{
	int ret;

	guard(mutex)(&kswapd_threads_mutex);
	node_set(pgdat->node_id, kswapd_helpers_nodes);
	ret = kswapd_helpers_grow(pgdat, kswapd_threads - 1);
	if (ret)
		pr_warn("kswapd%d: %u helpers instead of %d (error %d)\n", pgdat->node_id,
			pgdat->kswapd_helpers.nr, kswapd_threads - 1, ret);
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
	node_clear(pgdat->node_id, kswapd_helpers_nodes);
	kswapd_helpers_trim(pgdat, 0);
}

/*
 * Set vm.kswapd_threads; the value is in range. If a helper cannot be created, the
 * old setting stays, and those beyond the old setting are stopped. A lower setting
 * creates none, so that lowering does not fail.
 */
VISIBLE_IF_KUNIT int kswapd_threads_set(int threads)
{
	int nid, ret = 0;

	guard(mutex)(&kswapd_threads_mutex);
	if (threads >= kswapd_threads) {
		for_each_node_mask(nid, kswapd_helpers_nodes) {
			ret = kswapd_helpers_grow(NODE_DATA(nid), threads - 1);
			if (ret)
				break;
		}
	}
	if (!ret)
		WRITE_ONCE(kswapd_threads, threads);
	for_each_node_mask(nid, kswapd_helpers_nodes)
		kswapd_helpers_trim(NODE_DATA(nid), kswapd_threads - 1);
	return ret;
}

static int kswapd_threads_handler(const struct ctl_table *table, int write,
				  void *buffer, size_t *lenp, loff_t *ppos)
{
	/*
	 * A write at an offset other than 0 may be ignored, with success. threads
	 * then stays 0, which no valid write can set.
	 */
	int threads = write ? 0 : READ_ONCE(kswapd_threads);
	const struct ctl_table copy = {
		.procname = table->procname,
		.data = &threads,
		.maxlen = sizeof(threads),
		.extra1 = table->extra1,
		.extra2 = table->extra2,
	};
	int ret;

	ret = proc_dointvec_minmax(&copy, write, buffer, lenp, ppos);
	if (!ret && write && threads)
		ret = kswapd_threads_set(threads);
	return ret;
}

static int kswapd_threads_max = KSWAPD_THREADS_MAX;

static const struct ctl_table kswapd_helpers_sysctls[] = {
	{
		.procname	= "kswapd_threads",
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
