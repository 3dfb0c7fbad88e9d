/* SPDX-License-Identifier: GPL-2.0-only */
/* Does a node have room for a folio that NUMA balancing or demotion wants to move there? */
#ifndef _MM_NUMA_TARGET_H
#define _MM_NUMA_TARGET_H

#include <linux/mmzone.h>

#include "page_alloc.h"

enum target_room {
	TARGET_HAS_ROOM,
	TARGET_FULL,		/* too little free memory, whatever its pieces */
	TARGET_FRAGMENTED,	/* enough of it, but no piece of that order */
};

/**
 * numa_target_room() - Can a folio be moved to a node without any reclaim?
 * @pgdat: The node.
 * @order: The order of the folio.
 *
 * There is room if, in one zone, more than the high watermark is left after the
 * folio has come, so that it is not what makes the next allocation wake kswapd,
 * and if a free block of its order is there. The allocation that follows (see
 * misplaced_folio_gfp()) may use every zone up to ZONE_MOVABLE, CMA areas
 * included, and no reserve; it needs only the low watermark. What holds here is
 * enough for it as a rule. Not if somebody else is faster, as nothing is locked
 * and everything read here may change at once; nor if the only free blocks are
 * of types that vm.defrag_mode lets no such allocation use. It then fails, which
 * is harmless.
 *
 * A node without managed zones, be it that it has no memory or that its memory
 * is just being taken away, is full.
 *
 * Return: whether there is room, and if not, what is missing.
 */
static inline enum target_room numa_target_room(struct pglist_data *pgdat,
						unsigned int order)
{
	enum target_room room = TARGET_FULL;
	int z;

	for (z = pgdat->nr_zones - 1; z >= 0; z--) {
		struct zone *zone = &pgdat->node_zones[z];
		unsigned long mark;

		if (!managed_zone(zone))
			continue;

		/*
		 * The test for an order takes all pages of the block but one
		 * as not free, so that the mark and one page are left to ask
		 * for: as much as for so many single pages.
		 */
		mark = high_wmark_pages(zone);
		if (zone_watermark_ok(zone, order, mark + 1, ZONE_MOVABLE, ALLOC_CMA))
			return TARGET_HAS_ROOM;
		if (order && zone_watermark_ok(zone, 0, mark + (1UL << order),
					       ZONE_MOVABLE, ALLOC_CMA))
			room = TARGET_FRAGMENTED;
	}
	return room;
}

#endif
