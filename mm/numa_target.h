/* SPDX-License-Identifier: GPL-2.0-only */
/* Does a node have room for a folio that NUMA balancing or demotion wants to move there? */
#ifndef _MM_NUMA_TARGET_H
#define _MM_NUMA_TARGET_H

#include <linux/mmzone.h>

#include "page_alloc.h"

enum target_room {
	TARGET_HAS_ROOM,
	TARGET_FULL,		/* too little free memory, whatever its pieces */
	TARGET_FRAGMENTED,	/* enough of it, but no piece of that order to be had */
};

/*
 * Memory that is accepted lazily counts as free, but lies on no free list. The
 * allocation accepts it in blocks of MAX_PAGE_ORDER, though not whenever it finds
 * no block: only as long as the other free memory is below the promo watermark.
 * The sum is that of cond_accept_memory().
 */
static inline bool zone_accepts_block(struct zone *zone, unsigned int order)
{
#ifdef CONFIG_UNACCEPTED_MEMORY
	long unaccepted = zone_page_state(zone, NR_UNACCEPTED);
	long free = zone_page_state(zone, NR_FREE_PAGES) - unaccepted;

	if (unaccepted < 1L << order)
		return false;
	free -= (1L << order) - 1 + READ_ONCE(zone->nr_free_highatomic);
	free -= zone_page_state(zone, NR_FREE_CMA_PAGES);
	return free < (long)promo_wmark_pages(zone);
#else
	return false;
#endif
}

/* A block that can be had while free memory stays above so many pages. */
static inline bool zone_has_block(struct zone *zone, unsigned int order, unsigned long mark)
{
	if (zone_watermark_ok(zone, order, mark, ZONE_MOVABLE, ALLOC_CMA))
		return true;
	/* Like above, all pages of the block but one are taken as not free. */
	return zone_accepts_block(zone, order) &&
	       zone_watermark_ok(zone, 0, mark + (1UL << order) - 1, ZONE_MOVABLE, ALLOC_CMA);
}

/**
 * numa_target_room() - Can a folio be moved to a node without any reclaim?
 * @pgdat: The node.
 * @order: The order of the folio.
 * @mark: The watermark above which free memory must stay.
 * @block_mark: The one above which it must stay where the block is taken from:
 *	%WMARK_MIN for an allocation that wakes nobody before it goes down to
 *	that, %WMARK_LOW for one that wakes kswapd there.
 *
 * There is room if one zone has more than @mark left after as many single pages
 * as the folio has are gone, and if there is a free block of its order. The
 * block may be in another zone: the allocation that follows (see
 * misplaced_folio_gfp()) takes it from any zone up to ZONE_MOVABLE that stays
 * above its watermark, CMA areas included, and uses no reserve. Watermarks are
 * taken with their boost, as the allocation takes them.
 *
 * What holds here is enough for the allocation as a rule. Not if somebody else
 * is faster, as nothing is locked and everything read here may change at once;
 * nor if the only free blocks are of types that vm.defrag_mode lets no such
 * allocation use. It then fails, which is harmless.
 *
 * A node without managed zones, be it that it has no memory or that its memory
 * is just being taken away, is full.
 *
 * Return: whether there is room, and if not, what is missing. A single page
 * never lacks a block.
 */
static inline enum target_room numa_target_room(struct pglist_data *pgdat,
						unsigned int order,
						enum zone_watermarks mark,
						enum zone_watermarks block_mark)
{
	struct zone *zone;
	int z;

	for (z = pgdat->nr_zones - 1; z >= 0; z--) {
		zone = &pgdat->node_zones[z];
		if (managed_zone(zone) &&
		    zone_watermark_ok(zone, 0, wmark_pages(zone, mark) + (1UL << order),
				      ZONE_MOVABLE, ALLOC_CMA))
			break;
	}
	if (z < 0)
		return TARGET_FULL;
	/* @block_mark is not above @mark: that zone has the page. */
	if (!order)
		return TARGET_HAS_ROOM;

	for (z = pgdat->nr_zones - 1; z >= 0; z--) {
		zone = &pgdat->node_zones[z];
		if (managed_zone(zone) &&
		    zone_has_block(zone, order, wmark_pages(zone, block_mark)))
			return TARGET_HAS_ROOM;
	}
	return TARGET_FRAGMENTED;
}

#endif
