/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads that help kswapd: what mm/kswapd_helpers.c, mm/vmscan.c and
 * mm/page_alloc.c need from each other.
 */
#ifndef MM_KSWAPD_HELPERS_H
#define MM_KSWAPD_HELPERS_H

#include <linux/mmzone.h>

#ifdef CONFIG_KSWAPD_HELPERS

void kswapd_helpers_wake(pg_data_t *pgdat);
void kswapd_helpers_start(pg_data_t *pgdat);
void kswapd_helpers_stop(pg_data_t *pgdat);

/* Whether the node's kswapd may have help now: a hint, without a lock. */
static inline bool kswapd_has_helpers(pg_data_t *pgdat)
{
	return READ_ONCE(pgdat->kswapd_helpers.nr);
}

/* In vmscan.c */
bool kswapd_helper_wanted(pg_data_t *pgdat, long others);
unsigned long kswapd_helper_shrink(pg_data_t *pgdat, bool full_walk);

#else

static inline void kswapd_helpers_wake(pg_data_t *pgdat) {}
static inline void kswapd_helpers_start(pg_data_t *pgdat) {}
static inline void kswapd_helpers_stop(pg_data_t *pgdat) {}
static inline bool kswapd_has_helpers(pg_data_t *pgdat) { return false; }

#endif /* CONFIG_KSWAPD_HELPERS */

#endif /* MM_KSWAPD_HELPERS_H */
