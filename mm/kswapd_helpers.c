// SPDX-License-Identifier: GPL-2.0-only
/*
 * Threads that help a node's kswapd when it can not keep up.
 *
 * kswapd stays what it is: it alone is woken by allocations, owns the request,
 * the boosts, the failures, the ageing and the decision to sleep. While it is
 * in a pass and there is evidence that it falls behind, it lets helpers shrink
 * beside it, one more at a time. What they scan and free is added to what it
 * did before it decides anything. It waits for them before its pass ends, so
 * that nobody else ever sees a helper at work while kswapd sleeps.
 *
 * That a node may have several reclaim threads, set by the administrator, is
 * Buddy Lumpkin's idea of 2018; that one of them leads, and that the number in
 * use follows the load, answers what was said about it then.
 *
 * Locks: kswapd_threads_mutex protects the settings and which helpers exist.
 * Taken after the memory hotplug lock, before pgdat_kswapd_lock. help->lock
 * protects one node's pass; it is a leaf but for the wait queues' own locks.
 */
#include <kunit/static_stub.h>
#include <kunit/visibility.h>
#include <linux/freezer.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/node.h>
#include <linux/slab.h>
#include <linux/sysctl.h>
#include <linux/vmstat.h>
#include <linux/wait.h>

#include "kswapd_helpers.h"

#define CREATE_TRACE_POINTS
#include <trace/events/kswapd_helper.h>

/*
 * A window is long enough for a rate that means something: helpers hand in what
 * they freed in rounds of some hundred pages, and the gain of one of several
 * threads must show. But not longer than people wait.
 */
#define KSWAPD_WINDOW_MS	20
#define KSWAPD_WINDOW_PAGES	16384
#define KSWAPD_WINDOW_MS_MAX	500
/* One helper goes after each such time of passes that end without pressure. */
#define KSWAPD_CALM_MS		1000
/* A node that slept for longer has to show its evidence again. */
#define KSWAPD_FORGET_MS	5000
/* A helper has to bring more than this part of what a thread did before it. */
#define KSWAPD_GAIN_DIVISOR	8
/* And has to show it again after so many windows under pressure. */
#define KSWAPD_REVIEW		16
#define KSWAPD_BACKOFF_MIN	4
#define KSWAPD_BACKOFF_MAX	64

struct kswapd_helper {
	struct kswapd_help *help;
	struct task_struct *task;
	unsigned int index;
	/*
	 * Under help->lock: the last of the leader's rounds and windows it saw,
	 * and whether it found nothing to free in that window.
	 */
	unsigned int round;
	unsigned int seq;
	bool spent;
	wait_queue_head_t wait;
#ifdef CONFIG_LRU_GEN
	/* pgdat->mm_walk is the leader's. */
	struct lru_gen_mm_walk mm_walk;
#endif
};

/* One node's; made when it first gets a helper, kept for good as the pgdat is. */
struct kswapd_help {
	pg_data_t *pgdat;
	/* For one pass: who takes part, what they did, how many there may be. */
	spinlock_t lock;

	/* Under lock; read without it by helpers that look whether to stop. */
	bool open;
	unsigned int target;
	unsigned int nr;

	/* Under lock. round counts the leader's rounds, seq its windows and passes. */
	unsigned int round;
	unsigned int seq;
	unsigned int running;
	struct kswapd_request req;
	struct kswapd_round sum;
	struct kswapd_scale scale;
	/* From the first offer to the end, pauses included; seen in it. */
	bool in_pass;
	bool pressure;
	/* Until when, and until how many pages of this pass, scale knows. */
	ktime_t seen;
	unsigned long seen_reclaimed;
	ktime_t ended;
	struct kswapd_helper *helper[KSWAPD_THREADS_MAX - 1];

	/* The leader waits here for running to become 0. */
	wait_queue_head_t idle;

	/* Set by direct reclaimers, cleared by the leader; a lost race costs a window. */
	bool stalled ____cacheline_aligned_in_smp;
};

static DEFINE_MUTEX(kswapd_threads_mutex);
/* Nodes whose kswapd runs: only they may have helpers. */
static nodemask_t kswapd_helpers_nodes;
static int kswapd_threads = 1;
/* 0: follow kswapd_threads. */
static u8 kswapd_node_threads[MAX_NUMNODES];

static struct kswapd_help *kswapd_help_of(pg_data_t *pgdat)
{
	/* Pairs with the release in kswapd_help_get(): what it points to is set up. */
	return smp_load_acquire(&pgdat->kswapd_help);
}

/**
 * kswapd_share - the part of the gap to the watermark that one thread is to free
 * @gap: free pages missing to the high watermarks
 * @workers: threads that share it, the leader included
 *
 * Return: pages; at least one batch, so that a round is worth its set-up. The
 * shares of threads that begin together exceed the gap by a batch each at most;
 * what a share is exceeded by is up to the LRU's reclaim, as kswapd's is.
 */
unsigned long kswapd_share(unsigned long gap, unsigned int workers)
{
	return max(gap / max(workers, 1U), SWAP_CLUSTER_MAX);
}

static void kswapd_scale_give_up(struct kswapd_scale *s)
{
	s->backoff = clamp(s->backoff * 2, KSWAPD_BACKOFF_MIN, KSWAPD_BACKOFF_MAX);
	s->hold = s->backoff;
	s->probing = false;
	s->review = false;
}

/**
 * kswapd_scale - how many helpers the next window should have
 * @s: what earlier windows have taught; updated
 * @e: the window that has just ended
 *
 * One helper more for each window under pressure, on probation, the first one
 * too: it stays if pages were freed faster with it by more than an eighth of what
 * a thread did before. If not, it goes, and the next try waits twice as long as
 * the last. None when nothing was freed: more threads do not help there.
 *
 * What helped once need not help for ever. After some windows the last helper is
 * away for one and comes back on probation. If it is not missed, the one before
 * it is the next to be looked at.
 *
 * A window without pressure changes nothing: pages are freed as fast as they are
 * taken, by all that are at it, which says nothing about who is on probation.
 * When passes end without pressure, helpers go one by one, slowly: between passes
 * they sleep anyway, and one that is missed is missed at once.
 *
 * Context: any; the caller serialises calls for one @s.
 * Return: the new @s->target, at most @e->max.
 */
unsigned int kswapd_scale(struct kswapd_scale *s, const struct kswapd_evidence *e)
{
	unsigned long rate = e->reclaimed * 1000 / max(e->ms, 1U);
	unsigned long gain;

	if (s->target > e->max) {
		/* Who was on probation has gone. */
		s->target = e->max;
		s->probing = false;
		s->review = false;
	}
	if (e->ended ? e->failed : !e->reclaimed) {
		if (s->target)
			kswapd_scale_give_up(s);
		s->target = 0;
		return 0;
	}
	if (e->ended) {
		s->calm_ms = e->pressure ? 0 : s->calm_ms + e->ms;
		if (s->calm_ms >= KSWAPD_CALM_MS) {
			s->calm_ms = 0;
			s->backoff = 0;
			s->hold = 0;
			s->probing = false;
			s->review = false;
			if (s->target)
				s->target--;
		}
		return s->target;
	}
	if (!e->pressure)
		return s->target;
	s->calm_ms = 0;

	if (s->probing && s->target) {
		gain = rate > s->before ? rate - s->before : 0;
		/* Before this helper there were target threads, the leader among them. */
		if (gain * s->target * KSWAPD_GAIN_DIVISOR <= s->before) {
			s->target--;
			s->windows = s->review ? KSWAPD_REVIEW : 0;
			kswapd_scale_give_up(s);
			return s->target;
		}
		/* Of one that came back it was known: it says nothing about more. */
		if (!s->review)
			s->backoff = 0;
		s->review = false;
		s->windows = 0;
	} else if (s->target && s->windows++ >= KSWAPD_REVIEW) {
		s->windows = 0;
		s->review = true;
		s->target--;
		return s->target;
	}
	s->probing = false;
	if (s->hold && !s->review) {
		s->hold--;
		return s->target;
	}
	if (s->target < e->max) {
		s->target++;
		s->probing = true;
		s->before = rate;
	}
	return s->target;
}

/**
 * kswapd_scale_span - let time of a pass go by; decide when a window is full
 * @s: updated; what was freed in that time, and pressure, is in it already
 * @ns: the time that has gone by
 * @e: max is given; the rest is set if the window was full
 *
 * A window is time that kswapd spends in passes, one after the other if they are
 * short. The first helper is tried after less than the others: tasks already
 * stall, or are about to.
 *
 * Context: any; the caller serialises calls for one @s.
 * Return: whether the window was full, and kswapd_scale() was asked.
 */
bool kswapd_scale_span(struct kswapd_scale *s, u64 ns, struct kswapd_evidence *e)
{
	bool first = s->pressure && !s->target && !s->hold;
	unsigned int ms;

	s->ns += ns;
	ms = min_t(u64, div_u64(s->ns, NSEC_PER_MSEC), UINT_MAX);
	if (ms < KSWAPD_WINDOW_MS)
		return false;
	if (ms < KSWAPD_WINDOW_MS_MAX && s->reclaimed < (first ? 1 : KSWAPD_WINDOW_PAGES))
		return false;
	e->ms = ms;
	e->reclaimed = s->reclaimed;
	e->pressure = s->pressure;
	s->ns = 0;
	s->reclaimed = 0;
	s->pressure = false;
	kswapd_scale(s, e);
	return true;
}

/**
 * kswapd_helper_should_stop - whether a helper has to end its round
 * @helper: the helper itself
 *
 * Asked after each batch, so that a pass that ends, a smaller number of threads
 * and the freezer wait for one batch and not for a round.
 */
bool kswapd_helper_should_stop(struct kswapd_helper *helper)
{
	struct kswapd_help *help = helper->help;

	/* Plain hints: who needs certainty waits for running under the lock. */
	return !READ_ONCE(help->open) || helper->index >= READ_ONCE(help->target) ||
	       kthread_should_stop() || freezing(current);
}

#ifdef CONFIG_LRU_GEN
/**
 * kswapd_helper_walk - the page table walk that a helper may use
 * @helper: the helper itself
 *
 * Return: its own; two threads must not share one, it carries their counts.
 */
struct lru_gen_mm_walk *kswapd_helper_walk(struct kswapd_helper *helper)
{
	return &helper->mm_walk;
}
#endif

/* Under help->lock. */
static bool kswapd_helper_may_run(struct kswapd_helper *helper)
{
	struct kswapd_help *help = helper->help;

	if (!help->open || helper->index >= help->target)
		return false;
	return helper->spent ? helper->seq != help->seq : helper->round != help->round;
}

static bool kswapd_helper_wanted(struct kswapd_helper *helper)
{
	bool wanted;

	spin_lock(&helper->help->lock);
	wanted = kswapd_helper_may_run(helper);
	spin_unlock(&helper->help->lock);
	return wanted;
}

/* Whether it takes part; if so the leader waits for it until it leaves. */
static bool kswapd_helper_enter(struct kswapd_helper *helper)
{
	bool entered;

	spin_lock(&helper->help->lock);
	entered = kswapd_helper_may_run(helper);
	if (entered)
		WRITE_ONCE(helper->help->running, helper->help->running + 1);
	spin_unlock(&helper->help->lock);
	return entered;
}

/* spent: nothing to free, back in the next window; else in the leader's next round. */
static void kswapd_helper_leave(struct kswapd_helper *helper, bool spent)
{
	struct kswapd_help *help = helper->help;

	spin_lock(&help->lock);
	helper->spent = spent;
	helper->seq = help->seq;
	helper->round = help->round;
	WRITE_ONCE(help->running, help->running - 1);
	if (!help->running)
		wake_up(&help->idle);
	spin_unlock(&help->lock);
	trace_kswapd_helper_sleep(help->pgdat->node_id, helper->index + 1);
}

/* Rounds until nobody wants more; returns whether the last one found nothing to free. */
static bool kswapd_helper_pass(struct kswapd_helper *helper)
{
	struct kswapd_help *help = helper->help;
	struct kswapd_request req;
	struct kswapd_round round;
	unsigned int empty = 0;
	bool more;

	do {
		spin_lock(&help->lock);
		req = help->req;
		/* Not those at work just now: they come one after the other. */
		req.workers = help->target + 1;
		spin_unlock(&help->lock);

		memset(&round, 0, sizeof(round));
		more = kswapd_helper_shrink(help->pgdat, &req, helper, &round);
		if (!more)
			return false;

		count_vm_event(KSWAPD_HELPER_ROUND);
		trace_kswapd_helper_round(help->pgdat->node_id, helper->index + 1,
					  round.scanned, round.reclaimed,
					  req.priority, req.highest_zoneidx);

		spin_lock(&help->lock);
		help->sum.scanned += round.scanned;
		help->sum.reclaimed += round.reclaimed;
		help->sum.dirty += round.dirty;
		help->sum.congested += round.congested;
		help->sum.writeback += round.writeback;
		help->sum.immediate += round.immediate;
		help->sum.taken += round.taken;
		spin_unlock(&help->lock);

		cond_resched();
		if (kswapd_helper_should_stop(helper))
			return false;
		/*
		 * A round that found nothing may have been at the end of the
		 * shared walk through the memory cgroups: the next one begins
		 * a new walk.
		 */
		empty = round.reclaimed ? 0 : empty + 1;
	} while (empty < 2);

	return true;
}

static int kswapd_helper(void *data)
{
	struct kswapd_helper *helper = data;

	/* As kswapd: it may dip into the reserves, and must not reclaim for itself. */
	current->flags |= PF_MEMALLOC | PF_KSWAPD;
	set_freezable();

	while (!kthread_should_stop()) {
		wait_event_freezable(helper->wait,
				     kthread_should_stop() || kswapd_helper_wanted(helper));
		if (kthread_should_stop() || !kswapd_helper_enter(helper))
			continue;
		kswapd_helper_leave(helper, kswapd_helper_pass(helper));
	}

	current->flags &= ~(PF_MEMALLOC | PF_KSWAPD);
	return 0;
}

/* Under help->lock: let those begin that may run and sleep. */
static void kswapd_help_wake(struct kswapd_help *help)
{
	for (unsigned int i = 0; i < min(help->target, help->nr); i++) {
		struct kswapd_helper *helper = help->helper[i];

		/*
		 * No barrier: who queues itself looks again whether it may run,
		 * under help->lock, before it sleeps; and we hold it.
		 */
		if (!kswapd_helper_may_run(helper) || !waitqueue_active(&helper->wait))
			continue;
		count_vm_event(KSWAPD_HELPER_WAKE);
		trace_kswapd_helper_wake(help->pgdat->node_id, i + 1, help->target);
		wake_up(&helper->wait);
	}
}

/* Under help->lock: what has happened since the last call, if helpers were let in. */
static void kswapd_help_account(struct kswapd_help *help, bool open, unsigned long reclaimed,
				bool pressure)
{
	struct kswapd_evidence e = { .max = help->nr };
	ktime_t now = ktime_get();
	u64 ns = 0;

	if (open) {
		ns = ktime_to_ns(ktime_sub(now, help->seen));
		help->scale.reclaimed += reclaimed - min(reclaimed, help->seen_reclaimed);
	}
	help->seen = now;
	help->seen_reclaimed = reclaimed;
	help->scale.pressure |= pressure;
	help->pressure |= pressure;
	if (kswapd_scale_span(&help->scale, ns, &e)) {
		help->seq++;
		trace_kswapd_helper_scale(help->pgdat->node_id, e.ms, e.reclaimed, e.pressure,
					  e.ended, help->scale.target);
	}
	WRITE_ONCE(help->target, min(help->scale.target, help->nr));
}

/**
 * kswapd_help_offer - kswapd is about to shrink; let helpers shrink beside it
 * @pgdat: the node whose kswapd we are
 * @req: what to reclaim; helpers take it for their next rounds
 * @reclaimed: pages that this pass has freed until now, helpers' included
 *
 * Opens the pass the first time. When a window is full it decides how many
 * helpers run; so not while kswapd is held up in one round. Does nothing on a
 * node without helpers.
 *
 * Context: kswapd only, before each of its rounds; not for boosts, whose
 * reclaim must neither swap nor write.
 */
void kswapd_help_offer(pg_data_t *pgdat, const struct kswapd_request *req,
		       unsigned long reclaimed)
{
	struct kswapd_help *help = kswapd_help_of(pgdat);
	bool pressure = false;

	if (likely(!help || !READ_ONCE(help->nr)))
		return;

	spin_lock(&help->lock);
	help->req = *req;
	help->round++;
	if (READ_ONCE(help->stalled)) {
		WRITE_ONCE(help->stalled, false);
		pressure = true;
	}
	if (!help->in_pass) {
		if (ktime_ms_delta(ktime_get(), help->ended) > KSWAPD_FORGET_MS)
			memset(&help->scale, 0, sizeof(help->scale));
		help->in_pass = true;
		help->seq++;
	}
	kswapd_help_account(help, help->open, reclaimed,
			    pressure || kswapd_under_mark(pgdat, req->highest_zoneidx));
	WRITE_ONCE(help->open, true);
	kswapd_help_wake(help);
	spin_unlock(&help->lock);
}

/**
 * kswapd_help_collect - take what helpers have done since the last call
 * @pgdat: the node whose kswapd we are
 * @round: set to their sum
 *
 * Context: kswapd only.
 */
void kswapd_help_collect(pg_data_t *pgdat, struct kswapd_round *round)
{
	struct kswapd_help *help = kswapd_help_of(pgdat);

	memset(round, 0, sizeof(*round));
	if (likely(!help))
		return;
	spin_lock(&help->lock);
	swap(*round, help->sum);
	spin_unlock(&help->lock);
}

/**
 * kswapd_help_pause - kswapd is about to sleep inside its pass
 * @pgdat: the node whose kswapd we are
 * @reclaimed: pages that this pass has freed until now, helpers' included
 *
 * When it throttles itself because pages go round faster than they are written,
 * helpers must not turn them on meanwhile. They end within a batch each; the
 * next offer lets them go on.
 *
 * Context: kswapd only.
 */
void kswapd_help_pause(pg_data_t *pgdat, unsigned long reclaimed)
{
	struct kswapd_help *help = kswapd_help_of(pgdat);

	if (likely(!help))
		return;
	spin_lock(&help->lock);
	if (help->open) {
		kswapd_help_account(help, true, reclaimed, false);
		WRITE_ONCE(help->open, false);
	}
	spin_unlock(&help->lock);
}

/**
 * kswapd_help_end - end a pass and wait until no helper runs
 * @pgdat: the node whose kswapd we are
 * @reclaimed: pages that this pass has freed, those included that helpers have
 *	handed in and kswapd has collected
 * @exhausted: kswapd went through all priorities; if nobody has freed anything
 *	then, the pass has failed
 *
 * Helpers leave within a batch, which may have to wait for a swap device or a
 * filesystem. What they have done is still to be collected.
 *
 * Context: kswapd only. Sleeps.
 */
void kswapd_help_end(pg_data_t *pgdat, unsigned long reclaimed, bool exhausted)
{
	struct kswapd_help *help = kswapd_help_of(pgdat);
	bool was_open;

	if (likely(!help))
		return;
	spin_lock(&help->lock);
	was_open = help->open;
	WRITE_ONCE(help->open, false);
	spin_unlock(&help->lock);
	/*
	 * Nobody can enter now. The last one's sum is seen: it was added under
	 * help->lock, which is taken again.
	 */
	wait_event(help->idle, !READ_ONCE(help->running));

	spin_lock(&help->lock);
	if (help->in_pass) {
		struct kswapd_evidence e = {
			.max = help->nr,
			.ended = true,
		};

		reclaimed += help->sum.reclaimed;
		kswapd_help_account(help, was_open, reclaimed, READ_ONCE(help->stalled));
		/* Since the last pass ended, or calm would need long passes. */
		e.ms = ktime_ms_delta(help->seen, help->ended);
		e.pressure = help->pressure;
		e.failed = exhausted && !reclaimed;
		kswapd_scale(&help->scale, &e);
		trace_kswapd_helper_scale(pgdat->node_id, e.ms, reclaimed, e.pressure,
					  e.ended, help->scale.target);
		help->in_pass = false;
		help->pressure = false;
		help->ended = help->seen;
		/* What stalls while kswapd sleeps says nothing about it. */
		WRITE_ONCE(help->stalled, false);
	}
	spin_unlock(&help->lock);
}

/**
 * kswapd_help_note_stall - a task reclaims from this node for itself
 * @pgdat: the node
 *
 * Counts only while kswapd is in a pass: else there is nobody to help.
 *
 * Context: any.
 */
void kswapd_help_note_stall(pg_data_t *pgdat)
{
	struct kswapd_help *help = kswapd_help_of(pgdat);

	/* Written only when it changes: direct reclaimers come in crowds. */
	if (unlikely(help) && READ_ONCE(help->open) && !READ_ONCE(help->stalled))
		WRITE_ONCE(help->stalled, true);
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
	spin_lock_init(&help->lock);
	init_waitqueue_head(&help->idle);
	/* Pairs with the acquire in kswapd_help_of(). */
	smp_store_release(&pgdat->kswapd_help, help);
	return help;
}

/* KUnit puts one in its place that fails. */
VISIBLE_IF_KUNIT struct task_struct *kswapd_helper_create(struct kswapd_helper *helper)
{
	int nid = helper->help->pgdat->node_id;

	KUNIT_STATIC_STUB_REDIRECT(kswapd_helper_create, helper);
	return kthread_create_on_node(kswapd_helper, helper, nid, "kswapd%d:%u", nid,
				      helper->index + 1);
}

/* Make the helpers from help->nr up to nr, but let none begin. Under kswapd_threads_mutex. */
static int kswapd_helpers_create(pg_data_t *pgdat, unsigned int nr)
{
	struct kswapd_help *help = kswapd_help_get(pgdat);

	if (!help)
		return -ENOMEM;
	for (unsigned int i = help->nr; i < nr; i++) {
		struct kswapd_helper *helper = kzalloc_node(sizeof(*helper), GFP_KERNEL,
							    pgdat->node_id);

		if (!helper)
			return -ENOMEM;
		helper->help = help;
		helper->index = i;
		init_waitqueue_head(&helper->wait);
		helper->task = kswapd_helper_create(helper);
		if (IS_ERR(helper->task)) {
			kfree(helper);
			return -ENOMEM;
		}
		help->helper[i] = helper;
	}
	return 0;
}

/*
 * Take away helpers from nr on, those that have never begun too. Under
 * kswapd_threads_mutex.
 */
static void kswapd_helpers_trim(pg_data_t *pgdat, unsigned int nr)
{
	struct kswapd_help *help = pgdat->kswapd_help;

	if (!help)
		return;
	/* From here on the leader wakes none of them, and those at work leave. */
	spin_lock(&help->lock);
	WRITE_ONCE(help->nr, min(help->nr, nr));
	WRITE_ONCE(help->target, min(help->target, nr));
	spin_unlock(&help->lock);

	for (unsigned int i = nr; i < ARRAY_SIZE(help->helper); i++) {
		struct kswapd_helper *helper = help->helper[i];

		if (!helper)
			continue;
		kthread_stop(helper->task);
		help->helper[i] = NULL;
		kfree(helper);
	}
}

/* Let those that were created begin. Under kswapd_threads_mutex. */
static void kswapd_helpers_begin(pg_data_t *pgdat, unsigned int nr)
{
	struct kswapd_help *help = pgdat->kswapd_help;
	unsigned int first;

	if (!help)
		return;
	first = help->nr;
	for (unsigned int i = first; i < nr; i++)
		wake_up_process(help->helper[i]->task);
	spin_lock(&help->lock);
	WRITE_ONCE(help->nr, nr);
	spin_unlock(&help->lock);
}

/* Under kswapd_threads_mutex. */
static unsigned int kswapd_helpers_wanted(int nid)
{
	return (kswapd_node_threads[nid] ?: kswapd_threads) - 1;
}

/*
 * Give these nodes the helpers that the settings ask for. All are created before
 * the first one begins, so that a failure changes nothing; a setting that was
 * lowered (grow is false) creates none and does not fail. Under
 * kswapd_threads_mutex.
 */
static int kswapd_threads_apply(const nodemask_t *nodes, bool grow)
{
	int nid, ret = 0;

	for_each_node_mask(nid, *nodes) {
		if (grow && !ret && kswapd_helpers_wanted(nid))
			ret = kswapd_helpers_create(NODE_DATA(nid), kswapd_helpers_wanted(nid));
	}
	for_each_node_mask(nid, *nodes) {
		unsigned int want = kswapd_helpers_wanted(nid);
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
 * kswapd_helpers_start - give a node that has got its kswapd its helpers too
 * @pgdat: the node
 *
 * A node without them is as good as one of a stock kernel: failing is a warning.
 *
 * Context: boot and memory hot-add. Sleeps.
 */
void kswapd_helpers_start(pg_data_t *pgdat)
{
	nodemask_t node = nodemask_of_node(pgdat->node_id);

	mutex_lock(&kswapd_threads_mutex);
	node_set(pgdat->node_id, kswapd_helpers_nodes);
	if (kswapd_threads_apply(&node, true))
		pr_warn("kswapd%d: no memory for its helpers, going on without\n",
			pgdat->node_id);
	mutex_unlock(&kswapd_threads_mutex);
}

/**
 * kswapd_helpers_stop - take a node's helpers away before its kswapd goes
 * @pgdat: the node
 *
 * Context: memory hot-remove, kswapd still there. Sleeps, for a batch at most.
 */
void kswapd_helpers_stop(pg_data_t *pgdat)
{
	mutex_lock(&kswapd_threads_mutex);
	node_clear(pgdat->node_id, kswapd_helpers_nodes);
	kswapd_helpers_trim(pgdat, 0);
	mutex_unlock(&kswapd_threads_mutex);
}

/* A setting of at least min; 0 or -EINVAL. */
VISIBLE_IF_KUNIT int kswapd_threads_parse(const char *text, int min, int *threads)
{
	int value;

	if (kstrtoint(text, 0, &value) || value < min || value > KSWAPD_THREADS_MAX)
		return -EINVAL;
	*threads = value;
	return 0;
}

/* What vm.kswapd_threads does; the value is in range. Under kswapd_threads_mutex. */
static int __kswapd_threads_set(int threads)
{
	nodemask_t nodes = kswapd_helpers_nodes;
	int nid, ret, was = kswapd_threads;

	for_each_node_mask(nid, kswapd_helpers_nodes) {
		if (kswapd_node_threads[nid])
			node_clear(nid, nodes);
	}
	kswapd_threads = threads;
	ret = kswapd_threads_apply(&nodes, threads >= was);
	if (ret)
		kswapd_threads = was;
	return ret;
}

#if IS_ENABLED(CONFIG_KUNIT)
int kswapd_threads_set(int threads)
{
	int ret;

	mutex_lock(&kswapd_threads_mutex);
	ret = __kswapd_threads_set(threads);
	mutex_unlock(&kswapd_threads_mutex);
	return ret;
}
#endif

#if IS_ENABLED(CONFIG_NUMA) || IS_ENABLED(CONFIG_KUNIT)
/* Reclaim threads that a node has, its kswapd included. */
VISIBLE_IF_KUNIT unsigned int kswapd_threads_of(int nid)
{
	unsigned int nr = 0;

	mutex_lock(&kswapd_threads_mutex);
	if (node_isset(nid, kswapd_helpers_nodes)) {
		struct kswapd_help *help = NODE_DATA(nid)->kswapd_help;

		nr = 1 + (help ? help->nr : 0);
	}
	mutex_unlock(&kswapd_threads_mutex);
	return nr;
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

	/* Held from reading on: a write that is ignored for its offset keeps the value. */
	mutex_lock(&kswapd_threads_mutex);
	threads = kswapd_threads;
	ret = proc_dointvec_minmax(&copy, write, buffer, lenp, ppos);
	if (!ret && write)
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
	int threads, setting, ret;
	unsigned int was;

	ret = kswapd_threads_parse(buf, 0, &threads);
	if (ret)
		return ret;
	mutex_lock(&kswapd_threads_mutex);
	was = kswapd_helpers_wanted(dev->id);
	setting = kswapd_node_threads[dev->id];
	WRITE_ONCE(kswapd_node_threads[dev->id], threads);
	/* Of a node without memory only the setting is kept, for when it gets some. */
	if (node_isset(dev->id, kswapd_helpers_nodes))
		ret = kswapd_threads_apply(&node, kswapd_helpers_wanted(dev->id) >= was);
	if (ret)
		WRITE_ONCE(kswapd_node_threads[dev->id], setting);
	mutex_unlock(&kswapd_threads_mutex);
	return ret ?: count;
}
static DEVICE_ATTR_RW(kswapd_threads);

static ssize_t kswapd_threads_running_show(struct device *dev, struct device_attribute *attr,
					   char *buf)
{
	return sysfs_emit(buf, "%u\n", kswapd_threads_of(dev->id));
}
static DEVICE_ATTR_RO(kswapd_threads_running);

static struct attribute *kswapd_node_attrs[] = {
	&dev_attr_kswapd_threads.attr,
	&dev_attr_kswapd_threads_running.attr,
	NULL
};

const struct attribute_group kswapd_node_attr_group = {
	.attrs = kswapd_node_attrs,
};
#endif /* CONFIG_NUMA */

static int __init kswapd_threads_setup(char *text)
{
	if (kswapd_threads_parse(text, 1, &kswapd_threads))
		pr_warn("kswapd_threads=%s: give a number from 1 to %d; left at %d\n",
			text, KSWAPD_THREADS_MAX, kswapd_threads);
	return 1;
}
__setup("kswapd_threads=", kswapd_threads_setup);

static int __init kswapd_helpers_init(void)
{
	register_sysctl_init("vm", kswapd_helpers_sysctls);
	return 0;
}
subsys_initcall(kswapd_helpers_init);
