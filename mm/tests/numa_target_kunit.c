// SPDX-License-Identifier: GPL-2.0-only
/*
 * NUMA balancing and demotion: with what flags their targets are allocated, and
 * when a node has room for a folio.
 *
 * The nodes are made up. Nothing here allocates from one.
 */
#include <kunit/test.h>
#include <linux/gfp.h>
#include <linux/mmzone.h>

#include "../internal.h"
#include "../numa_target.h"

#define MIN_MARK	500
#define LOW_MARK	750
#define HIGH_MARK	1000
#define PROMO_MARK	1250
#define RESERVE		100

/* Neither reclaim nor reserves nor other nodes nor a warning, whatever the order. */
static void misplaced_flags(struct kunit *test)
{
	for (unsigned int order = 0; order < NR_PAGE_ORDERS; order++) {
		gfp_t gfp = misplaced_folio_gfp(order);

		KUNIT_EXPECT_EQ(test, (__force u32)(gfp & __GFP_RECLAIM), 0);
		KUNIT_EXPECT_TRUE(test, gfp & __GFP_THISNODE);
		KUNIT_EXPECT_TRUE(test, gfp & __GFP_NOMEMALLOC);
		KUNIT_EXPECT_TRUE(test, gfp & __GFP_NOWARN);
		KUNIT_EXPECT_EQ(test, (__force u32)(gfp & (__GFP_HIGH | __GFP_MEMALLOC |
							   __GFP_NOFAIL | __GFP_RETRY_MAYFAIL |
							   __GFP_ACCOUNT)), 0);
		/* What the room was tested for: movable, highest zone included. */
		KUNIT_EXPECT_TRUE(test, gfp & __GFP_MOVABLE);
		KUNIT_EXPECT_EQ(test, gfp_zone(gfp), gfp_zone(GFP_HIGHUSER_MOVABLE));
		if (order)
			KUNIT_EXPECT_TRUE(test, gfp & __GFP_COMP);
	}
}

/* A large folio's target wakes kswapd, and reclaims, if a single page's does. */
static void demotion_keeps_its_wake(struct kunit *test)
{
	gfp_t quiet = (GFP_HIGHUSER_MOVABLE & ~__GFP_RECLAIM) | __GFP_NOMEMALLOC |
		      __GFP_THISNODE;
	gfp_t gfp = large_migration_gfp(quiet | GFP_NOWAIT);

	KUNIT_EXPECT_EQ(test, (__force u32)(gfp & __GFP_RECLAIM),
			(__force u32)__GFP_KSWAPD_RECLAIM);
	KUNIT_EXPECT_EQ(test, (__force u32)(gfp & GFP_TRANSHUGE_LIGHT),
			(__force u32)GFP_TRANSHUGE_LIGHT);
	KUNIT_EXPECT_TRUE(test, gfp & __GFP_THISNODE);

	/* Who wants no reclaim at all gets none. */
	gfp = large_migration_gfp(quiet);
	KUNIT_EXPECT_EQ(test, (__force u32)(gfp & __GFP_RECLAIM), 0);
}

/* Migrations that may reclaim have the flags of a huge page fault, as ever. */
static void others_reclaim_directly(struct kunit *test)
{
	static const gfp_t callers[] = {
		GFP_HIGHUSER_MOVABLE | __GFP_THISNODE,
		GFP_USER | __GFP_MOVABLE | __GFP_RETRY_MAYFAIL,
		GFP_HIGHUSER_MOVABLE & ~__GFP_KSWAPD_RECLAIM,
	};

	for (int i = 0; i < ARRAY_SIZE(callers); i++)
		KUNIT_EXPECT_EQ(test, (__force u32)large_migration_gfp(callers[i]),
				(__force u32)((callers[i] & ~__GFP_RECLAIM) | GFP_TRANSHUGE));
}

/* A node without zones, and zones to add to it. */
static struct pglist_data *new_node(struct kunit *test)
{
	struct pglist_data *pgdat = kunit_kzalloc(test, sizeof(*pgdat), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, pgdat);
	return pgdat;
}

static struct zone *add_zone(struct pglist_data *pgdat, enum zone_type type,
			     unsigned long free)
{
	struct zone *zone = &pgdat->node_zones[type];

	zone->_watermark[WMARK_MIN] = MIN_MARK;
	zone->_watermark[WMARK_LOW] = LOW_MARK;
	zone->_watermark[WMARK_HIGH] = HIGH_MARK;
	zone->_watermark[WMARK_PROMO] = PROMO_MARK;
	zone->lowmem_reserve[ZONE_MOVABLE] = RESERVE;
	atomic_long_set(&zone->managed_pages, 100000);
	atomic_long_set(&zone->vm_stat[NR_FREE_PAGES], free);
	for (int order = 0; order < NR_PAGE_ORDERS; order++)
		for (int mt = 0; mt < MIGRATE_TYPES; mt++)
			INIT_LIST_HEAD(&zone->free_area[order].free_list[mt]);
	pgdat->nr_zones = max_t(int, pgdat->nr_zones, type + 1);
	return zone;
}

/* A free block; the zone's free pages are set apart from it. */
static void add_block(struct kunit *test, struct zone *zone, unsigned int order, int mt)
{
	struct list_head *block = kunit_kzalloc(test, sizeof(*block), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, block);
	list_add(block, &zone->free_area[order].free_list[mt]);
	zone->free_area[order].nr_free++;
}

static void set_free(struct zone *zone, unsigned long free)
{
	atomic_long_set(&zone->vm_stat[NR_FREE_PAGES], free);
}

/* As NUMA balancing asks. */
static enum target_room balancing_room(struct pglist_data *pgdat, unsigned int order)
{
	return numa_target_room(pgdat, order, WMARK_HIGH, WMARK_MIN);
}

/* As demotion asks. */
static enum target_room demotion_room(struct pglist_data *pgdat, unsigned int order)
{
	return numa_target_room(pgdat, order, WMARK_LOW, WMARK_LOW);
}

/* Free memory: the high watermark and the zone's reserve stay, for every order. */
static void room_by_free_pages(struct kunit *test)
{
	for (unsigned int order = 0; order < NR_PAGE_ORDERS; order++) {
		unsigned long enough = HIGH_MARK + RESERVE + (1UL << order) + 1;
		struct pglist_data *pgdat = new_node(test);
		struct zone *zone = add_zone(pgdat, ZONE_NORMAL, enough);

		add_block(test, zone, MAX_PAGE_ORDER, MIGRATE_MOVABLE);
		KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_HAS_ROOM);
		atomic_long_dec(&zone->vm_stat[NR_FREE_PAGES]);
		KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_FULL);
		/* A boosted watermark counts. */
		atomic_long_add(51, &zone->vm_stat[NR_FREE_PAGES]);
		zone->watermark_boost = 50;
		KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_HAS_ROOM);
		zone->watermark_boost = 51;
		KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_FULL);
		zone->watermark_boost = 0;
		/* Pages kept for atomic allocations do not. */
		zone->nr_free_highatomic = 51;
		KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_FULL);
	}
}

/* Free blocks: one of the order or above, and all of them for a single page. */
static void room_by_order(struct kunit *test)
{
	for (unsigned int order = 0; order < NR_PAGE_ORDERS; order++) {
		struct pglist_data *pgdat = new_node(test);
		struct zone *zone = add_zone(pgdat, ZONE_NORMAL, 50000);

		if (order)
			add_block(test, zone, order - 1, MIGRATE_MOVABLE);
		KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order),
				order ? TARGET_FRAGMENTED : TARGET_HAS_ROOM);
		add_block(test, zone, order, MIGRATE_MOVABLE);
		for (unsigned int smaller = 0; smaller <= order; smaller++)
			KUNIT_EXPECT_EQ(test, balancing_room(pgdat, smaller),
					TARGET_HAS_ROOM);
		/* Without the pages it is full, whatever lies in the lists. */
		set_free(zone, HIGH_MARK);
		KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_FULL);
	}
}

/* The blocks that a movable allocation may take, and no others. */
static void room_by_migratetype(struct kunit *test)
{
	for (int mt = 0; mt < MIGRATE_TYPES; mt++) {
		struct pglist_data *pgdat = new_node(test);
		struct zone *zone = add_zone(pgdat, ZONE_NORMAL, 50000);
		bool usable = mt < MIGRATE_PCPTYPES;

		if (IS_ENABLED(CONFIG_CMA))
			usable |= is_migrate_cma(mt);
		add_block(test, zone, 3, mt);
		KUNIT_EXPECT_EQ_MSG(test, balancing_room(pgdat, 3),
				    usable ? TARGET_HAS_ROOM : TARGET_FRAGMENTED,
				    "migratetype %d", mt);
	}
}

/* Between the watermarks it depends on the one that must be left. */
static void room_by_mark(struct kunit *test)
{
	for (unsigned int order = 0; order < NR_PAGE_ORDERS; order++) {
		unsigned long taken = RESERVE + (1UL << order);
		struct pglist_data *pgdat = new_node(test);
		struct zone *zone = add_zone(pgdat, ZONE_NORMAL, LOW_MARK + taken + 1);

		KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_FULL);
		KUNIT_EXPECT_EQ(test, demotion_room(pgdat, order),
				order ? TARGET_FRAGMENTED : TARGET_HAS_ROOM);
		add_block(test, zone, order, MIGRATE_MOVABLE);
		KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_FULL);
		KUNIT_EXPECT_EQ(test, demotion_room(pgdat, order), TARGET_HAS_ROOM);
		set_free(zone, LOW_MARK + taken);
		KUNIT_EXPECT_EQ(test, demotion_room(pgdat, order), TARGET_FULL);
		set_free(zone, HIGH_MARK + taken);
		KUNIT_EXPECT_EQ(test, demotion_room(pgdat, order), TARGET_HAS_ROOM);
		KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_FULL);
		set_free(zone, HIGH_MARK + taken + 1);
		KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_HAS_ROOM);
	}
}

/* Zones: of a node that has none, that has lost some, that has only a movable one. */
static void room_by_managed_zones(struct kunit *test)
{
	struct pglist_data *pgdat = new_node(test);
	struct zone *normal, *movable;

	KUNIT_EXPECT_EQ_MSG(test, balancing_room(pgdat, 0), TARGET_FULL, "no zones");
	normal = add_zone(pgdat, ZONE_NORMAL, HIGH_MARK);
	KUNIT_EXPECT_EQ(test, balancing_room(pgdat, 0), TARGET_FULL);
	movable = add_zone(pgdat, ZONE_MOVABLE, HIGH_MARK);
	KUNIT_EXPECT_EQ_MSG(test, balancing_room(pgdat, 0), TARGET_FULL, "not in one zone");
	set_free(movable, 50000);
	KUNIT_EXPECT_EQ(test, balancing_room(pgdat, 0), TARGET_HAS_ROOM);
	KUNIT_EXPECT_EQ(test, balancing_room(pgdat, 9), TARGET_FRAGMENTED);
	add_block(test, movable, 9, MIGRATE_MOVABLE);
	KUNIT_EXPECT_EQ(test, balancing_room(pgdat, 9), TARGET_HAS_ROOM);

	/* A node of movable memory only. */
	atomic_long_set(&normal->managed_pages, 0);
	KUNIT_EXPECT_EQ(test, balancing_room(pgdat, 9), TARGET_HAS_ROOM);
	/* Memory that goes away does not count, whatever its lists still hold. */
	atomic_long_set(&movable->managed_pages, 0);
	KUNIT_EXPECT_EQ(test, balancing_room(pgdat, 9), TARGET_FULL);
	KUNIT_EXPECT_EQ(test, balancing_room(pgdat, 0), TARGET_FULL);
	atomic_long_set(&normal->managed_pages, 100000);
	set_free(normal, 50000);
	KUNIT_EXPECT_EQ(test, balancing_room(pgdat, 9), TARGET_FRAGMENTED);
}

/* Pages in one zone and a block in another are room, if the latter stays above its mark. */
static void room_in_two_zones(struct kunit *test)
{
	static const enum zone_type types[] = { ZONE_NORMAL, ZONE_MOVABLE };

	for (int i = 0; i < ARRAY_SIZE(types); i++) {
		for (unsigned int order = 1; order < NR_PAGE_ORDERS; order++) {
			unsigned long spare = MIN_MARK + RESERVE + (1UL << order) - 1;
			struct pglist_data *pgdat = new_node(test);
			struct zone *pages = add_zone(pgdat, types[i], 50000);
			struct zone *block = add_zone(pgdat, types[!i], spare + 1);

			KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_FRAGMENTED);
			add_block(test, block, order, MIGRATE_MOVABLE);
			KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_HAS_ROOM);
			set_free(block, spare);
			KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_FRAGMENTED);
			/* A boost raises min as well. */
			set_free(block, spare + 51);
			block->watermark_boost = 50;
			KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_HAS_ROOM);
			block->watermark_boost = 51;
			KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_FRAGMENTED);
			block->watermark_boost = 0;
			/* Below low the allocation of a demotion wakes kswapd first. */
			set_free(block, spare + LOW_MARK - MIN_MARK);
			KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_HAS_ROOM);
			KUNIT_EXPECT_EQ(test, demotion_room(pgdat, order), TARGET_FRAGMENTED);
			set_free(block, spare + LOW_MARK - MIN_MARK + 1);
			KUNIT_EXPECT_EQ(test, demotion_room(pgdat, order), TARGET_HAS_ROOM);
			/* A block is not enough without the pages. */
			set_free(block, spare + 1);
			set_free(pages, HIGH_MARK);
			KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_FULL);
		}
	}
}

#ifdef CONFIG_UNACCEPTED_MEMORY
/* So much of a zone's free memory is not accepted yet, so much is. */
static void set_unaccepted(struct zone *zone, unsigned long unaccepted, unsigned long accepted)
{
	atomic_long_set(&zone->vm_stat[NR_UNACCEPTED], unaccepted);
	set_free(zone, unaccepted + accepted);
}

/* Unaccepted memory is a block where the allocation accepts it: below promo. */
static void room_by_unaccepted(struct kunit *test)
{
	for (unsigned int order = 1; order < NR_PAGE_ORDERS; order++) {
		unsigned long below = PROMO_MARK + (1UL << order) - 2;
		struct pglist_data *pgdat = new_node(test);
		struct zone *zone = add_zone(pgdat, ZONE_NORMAL, 0);
		struct zone *other;

		set_unaccepted(zone, 10 * MAX_ORDER_NR_PAGES, below);
		KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_HAS_ROOM);
		set_unaccepted(zone, 10 * MAX_ORDER_NR_PAGES, below + 1);
		KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_FRAGMENTED);
		/* What cond_accept_memory() takes as not free. */
		zone->nr_free_highatomic = 1;
		KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_HAS_ROOM);
		zone->nr_free_highatomic = 0;
		atomic_long_set(&zone->vm_stat[NR_FREE_CMA_PAGES], 1);
		KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_HAS_ROOM);
		atomic_long_set(&zone->vm_stat[NR_FREE_CMA_PAGES], 0);
		/* Nothing is left to accept. */
		set_unaccepted(zone, 0, below);
		KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_FRAGMENTED);
		/* In another zone than the pages: that must stay above min. */
		set_unaccepted(zone, 0, 50000);
		other = add_zone(pgdat, ZONE_MOVABLE, 0);
		other->_watermark[WMARK_MIN] = MIN_MARK + MAX_ORDER_NR_PAGES;
		set_unaccepted(other, MAX_ORDER_NR_PAGES, MIN_MARK + RESERVE + (1UL << order));
		KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_HAS_ROOM);
		set_unaccepted(other, MAX_ORDER_NR_PAGES, MIN_MARK + RESERVE + (1UL << order) - 1);
		KUNIT_EXPECT_EQ(test, balancing_room(pgdat, order), TARGET_FRAGMENTED);
	}
}
#endif

static struct kunit_case numa_target_cases[] = {
	KUNIT_CASE(misplaced_flags),
	KUNIT_CASE(demotion_keeps_its_wake),
	KUNIT_CASE(others_reclaim_directly),
	KUNIT_CASE(room_by_free_pages),
	KUNIT_CASE(room_by_order),
	KUNIT_CASE(room_by_migratetype),
	KUNIT_CASE(room_by_mark),
	KUNIT_CASE(room_by_managed_zones),
	KUNIT_CASE(room_in_two_zones),
#ifdef CONFIG_UNACCEPTED_MEMORY
	KUNIT_CASE(room_by_unaccepted),
#endif
	{ }
};

static struct kunit_suite numa_target_suite = {
	.name = "numa_target",
	.test_cases = numa_target_cases,
};

kunit_test_suite(numa_target_suite);
