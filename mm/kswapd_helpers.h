/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Interface between mm/vmscan.c, which reclaims, and mm/kswapd_helpers.c, whose
 * threads help kswapd.
 */
#ifndef MM_KSWAPD_HELPERS_H
#define MM_KSWAPD_HELPERS_H

#include <linux/mmzone.h>

#ifdef CONFIG_KSWAPD_HELPERS

void kswapd_helpers_wake(pg_data_t *pgdat);
void kswapd_helpers_start(pg_data_t *pgdat);
void kswapd_helpers_stop(pg_data_t *pgdat);

/* In vmscan.c */
bool kswapd_helper_wanted(pg_data_t *pgdat, bool asleep);
unsigned long kswapd_helper_shrink(pg_data_t *pgdat);

#else

static inline void kswapd_helpers_wake(pg_data_t *pgdat) {}
static inline void kswapd_helpers_start(pg_data_t *pgdat) {}
static inline void kswapd_helpers_stop(pg_data_t *pgdat) {}

#endif /* CONFIG_KSWAPD_HELPERS */

#if IS_ENABLED(CONFIG_KUNIT)
struct task_struct *kswapd_helper_create(pg_data_t *pgdat);
int kswapd_threads_set(int threads);
#endif

#endif /* MM_KSWAPD_HELPERS_H */
