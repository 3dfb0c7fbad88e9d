/* SPDX-License-Identifier: GPL-2.0-only */
/* Draining the per-cpu page lists for an allocation that failed. */
#ifndef __MM_PAGE_DRAIN_H
#define __MM_PAGE_DRAIN_H

#include <linux/types.h>

struct alloc_context;
struct zone;

bool drain_pages_for_alloc(gfp_t gfp_mask, unsigned int order,
			   unsigned int alloc_flags,
			   const struct alloc_context *ac, bool all);

#if IS_ENABLED(CONFIG_KUNIT)
bool drain_zone_has_room(struct zone *zone, unsigned int order,
			 unsigned int alloc_flags,
			 const struct alloc_context *ac);
unsigned int drain_zone_cpu(struct zone *zone, int cpu);
#endif

#endif /* __MM_PAGE_DRAIN_H */
