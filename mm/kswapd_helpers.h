/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Interface between mm/vmscan.c, which reclaims, and mm/kswapd_helpers.c, whose
 * threads help kswapd.
 */
#ifndef MM_KSWAPD_HELPERS_H
#define MM_KSWAPD_HELPERS_H

#include <linux/mmzone.h>
#include <linux/swap.h>

/* Maximum number of reclaim threads of a node, its kswapd included. */
#define KSWAPD_THREADS_MAX	16

struct lru_gen_mm_walk;

#ifdef CONFIG_KSWAPD_HELPERS

void kswapd_helpers_lead(pg_data_t *pgdat, int priority, int highest_zoneidx);
void kswapd_helpers_wake(pg_data_t *pgdat);
void kswapd_helpers_start(pg_data_t *pgdat);
void kswapd_helpers_stop(pg_data_t *pgdat);

/* In vmscan.c */
bool kswapd_helper_wanted(pg_data_t *pgdat, int highest_zoneidx, unsigned int others,
			  unsigned int nr, bool begin);
unsigned long kswapd_helper_shrink(pg_data_t *pgdat, int priority, int highest_zoneidx,
				   struct lru_gen_mm_walk *walk);

#else

static inline void kswapd_helpers_lead(pg_data_t *pgdat, int priority, int highest_zoneidx) {}
static inline void kswapd_helpers_wake(pg_data_t *pgdat) {}
static inline void kswapd_helpers_start(pg_data_t *pgdat) {}
static inline void kswapd_helpers_stop(pg_data_t *pgdat) {}

#endif /* CONFIG_KSWAPD_HELPERS */

#if IS_ENABLED(CONFIG_KUNIT)
struct kswapd_help;
struct task_struct *kswapd_helper_create(struct kswapd_help *help, unsigned int index);
int kswapd_threads_set(int threads);
unsigned int kswapd_threads_of(int nid);
#endif

#endif /* MM_KSWAPD_HELPERS_H */
