/* SPDX-License-Identifier: GPL-2.0-only */
/* Between mm/vmscan.c, whose kswapd leads, and mm/kswapd_helpers.c, whose threads help it. */
#ifndef MM_KSWAPD_HELPERS_H
#define MM_KSWAPD_HELPERS_H

#include <linux/mmzone.h>
#include <linux/swap.h>
#include <linux/vmstat.h>

/* Reclaim threads of a node at most, its kswapd included. */
#define KSWAPD_THREADS_MAX	16

struct kswapd_helper;

/**
 * struct kswapd_round - what one round of reclaim did, in pages
 * @scanned: folios' pages looked at
 * @reclaimed: pages freed
 * @dirty: as in struct scan_control, like those that follow
 * @congested: dirty and already queued for writeback
 * @writeback: under writeback
 * @immediate: under writeback and marked for immediate reclaim
 * @taken: isolated
 */
struct kswapd_round {
	unsigned long scanned;
	unsigned long reclaimed;
	unsigned int dirty;
	unsigned int congested;
	unsigned int writeback;
	unsigned int immediate;
	unsigned int taken;
};

/**
 * struct kswapd_request - what the leader wants from a round of a helper
 * @priority: scan a lruvec's size >> priority, as the leader does now
 * @reclaim_idx: the highest zone to isolate folios from
 * @highest_zoneidx: the highest zone that has to be balanced
 * @no_cache_trim_mode: anon folios, too, whatever the file lists say
 * @workers: threads that share the gap, the leader included
 */
struct kswapd_request {
	int priority;
	int reclaim_idx;
	int highest_zoneidx;
	bool no_cache_trim_mode;
	unsigned int workers;
};

/**
 * struct kswapd_evidence - one window, from which the number of helpers follows
 * @max: helpers there are
 * @ms: length of the window in milliseconds; of a pass that has ended the time
 *	since the one before it ended
 * @reclaimed: pages that the leader and its helpers freed in it
 * @pressure: tasks had to reclaim for themselves, or free pages were under the mark
 * @ended: the pass has ended
 * @failed: it has ended and nobody had freed anything
 */
struct kswapd_evidence {
	unsigned int max;
	unsigned int ms;
	unsigned long reclaimed;
	bool pressure;
	bool ended;
	bool failed;
};

/**
 * struct kswapd_scale - what the rule remembers from window to window; all zero at first
 * @target: helpers that may run
 * @probing: the last of them is on probation
 * @review: it was there before and has to show that it still helps
 * @windows: under pressure since it has shown that
 * @calm_ms: how long passes have ended without pressure
 * @hold: windows to wait before the next try
 * @backoff: the last wait after a try that gained too little
 * @before: pages a second before the helper that is on probation
 * @ns: length of the window until now
 * @reclaimed: pages freed in it
 * @pressure: seen in it
 */
struct kswapd_scale {
	unsigned int target;
	bool probing;
	bool review;
	unsigned int windows;
	unsigned int calm_ms;
	unsigned int hold;
	unsigned int backoff;
	unsigned long before;
	u64 ns;
	unsigned long reclaimed;
	bool pressure;
};

#ifdef CONFIG_KSWAPD_HELPERS

unsigned int kswapd_scale(struct kswapd_scale *s, const struct kswapd_evidence *e);
bool kswapd_scale_span(struct kswapd_scale *s, u64 ns, struct kswapd_evidence *e);
unsigned long kswapd_share(unsigned long gap, unsigned int workers);

void kswapd_help_offer(pg_data_t *pgdat, const struct kswapd_request *req,
		       unsigned long reclaimed);
void kswapd_help_collect(pg_data_t *pgdat, struct kswapd_round *round);
void kswapd_help_pause(pg_data_t *pgdat, unsigned long reclaimed);
void kswapd_help_end(pg_data_t *pgdat, unsigned long reclaimed, bool exhausted);
void kswapd_help_note_stall(pg_data_t *pgdat);
bool kswapd_helper_should_stop(struct kswapd_helper *helper);
struct lru_gen_mm_walk *kswapd_helper_walk(struct kswapd_helper *helper);

void kswapd_helpers_start(pg_data_t *pgdat);
void kswapd_helpers_stop(pg_data_t *pgdat);

/*
 * Called where pgscan_kswapd and pgsteal_kswapd are counted, so that they
 * contain what is counted here. A round also has pages that it frees otherwise.
 */
static inline void kswapd_helper_count(struct kswapd_helper *helper, unsigned long scanned,
				       unsigned long reclaimed)
{
	if (helper) {
		count_vm_events(PGSCAN_KSWAPD_HELPER, scanned);
		count_vm_events(PGSTEAL_KSWAPD_HELPER, reclaimed);
	}
}

/* In vmscan.c */
bool kswapd_helper_shrink(pg_data_t *pgdat, const struct kswapd_request *req,
			  struct kswapd_helper *helper, struct kswapd_round *round);
bool kswapd_under_mark(pg_data_t *pgdat, int highest_zoneidx);

#else

static inline void kswapd_help_offer(pg_data_t *pgdat, const struct kswapd_request *req,
				     unsigned long reclaimed) {}
static inline void kswapd_help_collect(pg_data_t *pgdat, struct kswapd_round *round) {}
static inline void kswapd_help_pause(pg_data_t *pgdat, unsigned long reclaimed) {}
static inline void kswapd_help_end(pg_data_t *pgdat, unsigned long reclaimed,
				   bool exhausted) {}
static inline void kswapd_help_note_stall(pg_data_t *pgdat) {}
static inline bool kswapd_helper_should_stop(struct kswapd_helper *helper) { return false; }
static inline void kswapd_helper_count(struct kswapd_helper *helper, unsigned long scanned,
				       unsigned long reclaimed) {}
static inline void kswapd_helpers_start(pg_data_t *pgdat) {}
static inline void kswapd_helpers_stop(pg_data_t *pgdat) {}

#endif /* CONFIG_KSWAPD_HELPERS */

#if IS_ENABLED(CONFIG_KUNIT)
struct task_struct *kswapd_helper_create(struct kswapd_helper *helper);
int kswapd_threads_parse(const char *text, int min, int *threads);
int kswapd_threads_set(int threads);
unsigned int kswapd_threads_of(int nid);
#endif

#endif /* MM_KSWAPD_HELPERS_H */
