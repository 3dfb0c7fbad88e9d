// SPDX-License-Identifier: GPL-2.0-only
/*
 * Threads that help a node's kswapd when one CPU is not enough.
 *
 * kswapd does not change: it alone owns the request, the boosts, the failure
 * count and the decision that the node is balanced. Helpers reclaim beside
 * kswapd, for order 0 only. They begin when free pages are below the low
 * watermark although kswapd is awake. The farther free pages are below the high
 * watermark, the more helpers work. Only a task that stops a helper waits for it.
 *
 * Buddy Lumpkin proposed in 2018 that a node may have several reclaim threads,
 * set by the administrator. Two answers to the review of that proposal are that
 * one thread leads, and that the watermarks decide when the others begin and
 * end.
 *
 * kswapd_threads_mutex protects the settings and which helpers exist. It is
 * taken inside the memory hotplug lock.
 */
#include <kunit/static_stub.h>
#include <kunit/visibility.h>
#include <linux/freezer.h>
#include <linux/kthread.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/node.h>
#include <linux/slab.h>
#include <linux/sysctl.h>
#include <linux/vmstat.h>
#include <linux/wait.h>

#include "kswapd_helpers.h"

/*
 * A helper that has freed nothing in two rounds rests: more threads do not help
 * there. Two rounds, because one round may have met only the end of the walk
 * through the memory cgroups that helpers and direct reclaim share.
 */
#define KSWAPD_HELPER_EMPTY	2
#define KSWAPD_HELPER_REST_MS	10

/* The helpers of one node; allocated with the first helper, never freed, like the pgdat. */
struct kswapd_help {
	pg_data_t *pgdat;

	/* Under kswapd_threads_mutex. */
	unsigned int nr;
	struct task_struct *helper[KSWAPD_THREADS_MAX - 1];

	/* What kswapd is doing, for helpers to do the same. Hints, without a lock. */
	int priority;
	int highest_zoneidx;

	/* Helpers that shrink or rest, and where the others wait for work. */
	atomic_t at_work;
	wait_queue_head_t wait;
};

static DEFINE_MUTEX(kswapd_threads_mutex);
/* Nodes whose kswapd runs: only these may have helpers. */
static nodemask_t kswapd_helpers_nodes;
static int kswapd_threads = 1;
/* 0: follow kswapd_threads. */
static u8 kswapd_node_threads[MAX_NUMNODES];

static struct kswapd_help *kswapd_help_of(pg_data_t *pgdat)
{
	/* Pairs with the release in kswapd_help_get(): the struct is initialized. */
	return smp_load_acquire(&pgdat->kswapd_help);
}

/* Whether one more helper is wanted beside @others, to begin or to go on. */
static bool kswapd_help_wanted(struct kswapd_help *help, unsigned int others, bool begin)
{
	return kswapd_helper_wanted(help->pgdat, READ_ONCE(help->highest_zoneidx), others,
				    READ_ONCE(help->nr), begin);
}

/* Count this helper as working, if one more is wanted. */
static bool kswapd_helper_join(struct kswapd_help *help, bool begin)
{
	/* Count first, so that helpers that join at the same time see each other. */
	if (kswapd_help_wanted(help, atomic_fetch_inc(&help->at_work), begin))
		return true;
	atomic_dec(&help->at_work);
	return false;
}

/* Shrink for as long as this helper is wanted. Counted in at_work on entry, not on return. */
static void kswapd_helper_work(struct kswapd_help *help, struct lru_gen_mm_walk *walk)
{
	unsigned int empty = 0;

	do {
		if (kswapd_helper_shrink(help->pgdat, READ_ONCE(help->priority),
					 READ_ONCE(help->highest_zoneidx), walk)) {
			empty = 0;
		} else if (++empty == KSWAPD_HELPER_EMPTY) {
			schedule_timeout_interruptible(msecs_to_jiffies(KSWAPD_HELPER_REST_MS));
			empty = 0;
		}
		cond_resched();
		atomic_dec(&help->at_work);
	} while (!kthread_should_stop() && !freezing(current) &&
		 kswapd_helper_join(help, false));
}

static int kswapd_helper(void *data)
{
	struct kswapd_help *help = data;
	struct lru_gen_mm_walk *walk = NULL;
#ifdef CONFIG_LRU_GEN
	/* pgdat->mm_walk is kswapd's. */
	struct lru_gen_mm_walk own = {};

	walk = &own;
#endif
	/* Like kswapd: may dip into the reserves, and must not enter direct reclaim. */
	current->flags |= PF_MEMALLOC | PF_KSWAPD;
	set_freezable();

	while (!kthread_freezable_should_stop(NULL)) {
		bool joined = false;

		wait_event_freezable_exclusive(help->wait, kthread_should_stop() ||
					       (joined = kswapd_helper_join(help, true)));
		if (joined)
			kswapd_helper_work(help, walk);
	}

	current->flags &= ~(PF_MEMALLOC | PF_KSWAPD);
	return 0;
}

/**
 * kswapd_helpers_wake - wake one more helper if kswapd cannot keep up
 * @pgdat: the node, whose kswapd is awake
 *
 * Called for each allocation that meets the low watermark, and by kswapd in each
 * of its rounds. The more there is to do, the more helpers begin.
 *
 * Context: any that may wake kswapd.
 */
void kswapd_helpers_wake(pg_data_t *pgdat)
{
	struct kswapd_help *help = kswapd_help_of(pgdat);

	/*
	 * No order is needed between the free pages and the sleeper: a helper
	 * missed here is woken by the next allocation, and kswapd is at work.
	 */
	if (likely(!help) || !waitqueue_active(&help->wait) ||
	    !kswapd_help_wanted(help, atomic_read(&help->at_work), true))
		return;
	count_vm_event(KSWAPD_HELPER_WAKE);
	wake_up(&help->wait);
}

/**
 * kswapd_helpers_lead - tell helpers what kswapd is about to do
 * @pgdat: the node of this kswapd
 * @priority: scan a lruvec's size >> priority
 * @highest_zoneidx: the highest zone that has to be balanced
 *
 * Context: kswapd only, before each of its rounds, and with DEF_PRIORITY at the
 * end of a pass.
 */
void kswapd_helpers_lead(pg_data_t *pgdat, int priority, int highest_zoneidx)
{
	struct kswapd_help *help = kswapd_help_of(pgdat);

	if (likely(!help))
		return;
	WRITE_ONCE(help->priority, priority);
	WRITE_ONCE(help->highest_zoneidx, highest_zoneidx);
}

/* Under kswapd_threads_mutex. */
static struct kswapd_help *kswapd_help_get(pg_data_t *pgdat)
{
	struct kswapd_help *help = pgdat->kswapd_help;

	if (help)
		return help;
	help = kzalloc_node(sizeof(*help), GFP_KERNEL, pgdat->node_id);
	if (!help)
		return NULL;
	help->pgdat = pgdat;
	help->priority = DEF_PRIORITY;
	help->highest_zoneidx = MAX_NR_ZONES - 1;
	init_waitqueue_head(&help->wait);
	/* Pairs with the acquire in kswapd_help_of(). */
	smp_store_release(&pgdat->kswapd_help, help);
	return help;
}

/* KUnit replaces this with a function that fails. */
VISIBLE_IF_KUNIT struct task_struct *kswapd_helper_create(struct kswapd_help *help,
							  unsigned int index)
{
	int nid = help->pgdat->node_id;

	KUNIT_STATIC_STUB_REDIRECT(kswapd_helper_create, help, index);
	return kthread_create_on_node(kswapd_helper, help, nid, "kswapd%d:%u", nid, index + 1);
}

/* Create the helpers from help->nr up to nr, but start none. Under kswapd_threads_mutex. */
static int kswapd_helpers_create(pg_data_t *pgdat, unsigned int nr)
{
	struct kswapd_help *help = kswapd_help_get(pgdat);

	if (!help)
		return -ENOMEM;
	for (unsigned int i = help->nr; i < nr; i++) {
		struct task_struct *task = kswapd_helper_create(help, i);

		if (IS_ERR(task))
			return PTR_ERR(task);
		help->helper[i] = task;
	}
	return 0;
}

/*
 * Stop helpers from nr on, including those never started. Each ends after its
 * round. Under kswapd_threads_mutex.
 */
static void kswapd_helpers_trim(pg_data_t *pgdat, unsigned int nr)
{
	struct kswapd_help *help = pgdat->kswapd_help;

	if (!help)
		return;
	WRITE_ONCE(help->nr, min(help->nr, nr));
	for (unsigned int i = nr; i < ARRAY_SIZE(help->helper); i++) {
		if (help->helper[i])
			kthread_stop(help->helper[i]);
		help->helper[i] = NULL;
	}
}

/* Start the helpers that were created. Under kswapd_threads_mutex. */
static void kswapd_helpers_begin(pg_data_t *pgdat, unsigned int nr)
{
	struct kswapd_help *help = pgdat->kswapd_help;

	while (help && help->nr < nr) {
		wake_up_process(help->helper[help->nr]);
		WRITE_ONCE(help->nr, help->nr + 1);
	}
}

/* Under kswapd_threads_mutex. */
static unsigned int kswapd_helpers_setting(int nid)
{
	return (kswapd_node_threads[nid] ?: kswapd_threads) - 1;
}

/*
 * Give these nodes the helpers that the settings ask for. All are created
 * before the first one starts, so that a failure changes nothing. A lowered
 * setting (grow is false) creates none and does not fail. Under
 * kswapd_threads_mutex.
 */
static int kswapd_threads_apply(const nodemask_t *nodes, bool grow)
{
	int nid, ret = 0;

	for_each_node_mask(nid, *nodes) {
		if (grow && !ret && kswapd_helpers_setting(nid))
			ret = kswapd_helpers_create(NODE_DATA(nid), kswapd_helpers_setting(nid));
	}
	for_each_node_mask(nid, *nodes) {
		unsigned int want = kswapd_helpers_setting(nid);
		pg_data_t *pgdat = NODE_DATA(nid);
		struct kswapd_help *help = pgdat->kswapd_help;

		if (!help)
			continue;
		if (ret)
			kswapd_helpers_trim(pgdat, help->nr);
		else if (want < help->nr)
			kswapd_helpers_trim(pgdat, want);
		else if (grow)
			kswapd_helpers_begin(pgdat, want);
	}
	return ret;
}

/**
 * kswapd_helpers_start - start the helpers of a node whose kswapd has started
 * @pgdat: the node
 *
 * A node without helpers still works as on a stock kernel, so failure only warns.
 *
 * Context: boot and memory hot-add. Sleeps.
 */
void kswapd_helpers_start(pg_data_t *pgdat)
{
	nodemask_t node = nodemask_of_node(pgdat->node_id);
	int ret;

	mutex_lock(&kswapd_threads_mutex);
	node_set(pgdat->node_id, kswapd_helpers_nodes);
	ret = kswapd_threads_apply(&node, true);
	if (ret)
		pr_warn("kswapd%d: no helpers (error %d), going on without\n",
			pgdat->node_id, ret);
	mutex_unlock(&kswapd_threads_mutex);
}

/**
 * kswapd_helpers_stop - stop a node's helpers before its kswapd stops
 * @pgdat: the node
 *
 * Context: memory hot-remove, while kswapd still runs. Sleeps until each helper
 * has ended its round, as kswapd_stop() does for kswapd.
 */
void kswapd_helpers_stop(pg_data_t *pgdat)
{
	mutex_lock(&kswapd_threads_mutex);
	node_clear(pgdat->node_id, kswapd_helpers_nodes);
	kswapd_helpers_trim(pgdat, 0);
	mutex_unlock(&kswapd_threads_mutex);
}

/* Set vm.kswapd_threads; the value is in range. Under kswapd_threads_mutex. */
static int __kswapd_threads_set(int threads)
{
	nodemask_t nodes = kswapd_helpers_nodes;
	int nid, ret, was = kswapd_threads;

	for_each_node_mask(nid, kswapd_helpers_nodes) {
		if (kswapd_node_threads[nid])
			node_clear(nid, nodes);
	}
	WRITE_ONCE(kswapd_threads, threads);
	ret = kswapd_threads_apply(&nodes, threads >= was);
	if (ret)
		WRITE_ONCE(kswapd_threads, was);
	return ret;
}

#if IS_ENABLED(CONFIG_KUNIT)
int kswapd_threads_set(int threads)
{
	guard(mutex)(&kswapd_threads_mutex);
	return __kswapd_threads_set(threads);
}

/* The number of reclaim threads of a node, its kswapd included. */
unsigned int kswapd_threads_of(int nid)
{
	struct kswapd_help *help = NODE_DATA(nid)->kswapd_help;

	guard(mutex)(&kswapd_threads_mutex);
	return node_isset(nid, kswapd_helpers_nodes) ? 1 + (help ? help->nr : 0) : 0;
}
#endif

static int kswapd_threads_handler(const struct ctl_table *table, int write,
				  void *buffer, size_t *lenp, loff_t *ppos)
{
	int threads, ret;
	const struct ctl_table copy = {
		.procname = table->procname,
		.data = &threads,
		.maxlen = sizeof(threads),
		.mode = table->mode,
		.extra1 = table->extra1,
		.extra2 = table->extra2,
	};

	/* A reader does not wait for a writer that stops helpers. */
	if (!write) {
		threads = READ_ONCE(kswapd_threads);
		return proc_dointvec_minmax(&copy, write, buffer, lenp, ppos);
	}
	/* Held from here on: a write that is ignored because of its offset keeps the value. */
	mutex_lock(&kswapd_threads_mutex);
	threads = kswapd_threads;
	ret = proc_dointvec_minmax(&copy, write, buffer, lenp, ppos);
	if (!ret)
		ret = __kswapd_threads_set(threads);
	mutex_unlock(&kswapd_threads_mutex);
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

#ifdef CONFIG_NUMA
static ssize_t kswapd_threads_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(kswapd_node_threads[dev->id]));
}

static ssize_t kswapd_threads_store(struct device *dev, struct device_attribute *attr,
				    const char *buf, size_t count)
{
	nodemask_t node = nodemask_of_node(dev->id);
	int threads, setting, ret = 0;
	unsigned int was;

	if (kstrtoint(buf, 0, &threads) || threads < 0 || threads > KSWAPD_THREADS_MAX)
		return -EINVAL;
	mutex_lock(&kswapd_threads_mutex);
	was = kswapd_helpers_setting(dev->id);
	setting = kswapd_node_threads[dev->id];
	WRITE_ONCE(kswapd_node_threads[dev->id], threads);
	/* On a memoryless node, only store the setting. */
	if (node_isset(dev->id, kswapd_helpers_nodes))
		ret = kswapd_threads_apply(&node, kswapd_helpers_setting(dev->id) >= was);
	if (ret)
		WRITE_ONCE(kswapd_node_threads[dev->id], setting);
	mutex_unlock(&kswapd_threads_mutex);
	return ret ?: count;
}
static DEVICE_ATTR_RW(kswapd_threads);

static struct attribute *kswapd_node_attrs[] = {
	&dev_attr_kswapd_threads.attr,
	NULL
};

const struct attribute_group kswapd_node_attr_group = {
	.attrs = kswapd_node_attrs,
};
#endif /* CONFIG_NUMA */

static int __init kswapd_helpers_init(void)
{
	register_sysctl_init("vm", kswapd_helpers_sysctls);
	return 0;
}
subsys_initcall(kswapd_helpers_init);
