// SPDX-License-Identifier: GPL-2.0-only
/*
 * A zone that loses its memory and gets memory again keeps its per-cpu page
 * lists: somebody may be using them all the time. What the per-cpu counters
 * hold is not lost. While the lists of a zone are disabled, they are empty.
 */
#include <kunit/test.h>
#include <linux/mm.h>
#include <linux/percpu.h>

#include "../internal.h"
#include "../page_alloc.h"

/* __init, as what it calls may be. */
static void __init pagesets_stay(struct kunit *test)
{
	struct zone *zone = kunit_kzalloc(test, sizeof(*zone), GFP_KERNEL);
	struct per_cpu_pages __percpu *lists = alloc_percpu(struct per_cpu_pages);
	struct per_cpu_zonestat __percpu *stats = NULL;

	KUNIT_ASSERT_NOT_NULL(test, zone);
	KUNIT_ASSERT_TRUE(test, lists);
	/* Their size is 0 on !SMP && !NUMA. */
	if (sizeof(struct per_cpu_zonestat) > 0) {
		stats = alloc_percpu(struct per_cpu_zonestat);
		KUNIT_ASSERT_TRUE(test, stats);
	}
	zone->per_cpu_zonestats = stats;
	zone->per_cpu_pageset = lists;

	/* The last memory goes offline. */
	zone_pcp_reset(zone);
	KUNIT_EXPECT_TRUE(test, zone->per_cpu_pageset == lists);
	KUNIT_EXPECT_TRUE(test, zone->per_cpu_zonestats == stats);
	/* Memory comes back. */
	setup_zone_pageset(zone);
	KUNIT_EXPECT_TRUE(test, zone->per_cpu_pageset == lists);
	KUNIT_EXPECT_TRUE(test, zone->per_cpu_zonestats == stats);

	/* What was replaced may have been freed. */
	if (zone->per_cpu_pageset == lists)
		free_percpu(lists);
	if (zone->per_cpu_zonestats == stats)
		free_percpu(stats);
}

#ifdef CONFIG_SMP
static void __init counters_are_folded(struct kunit *test)
{
	struct zone *zone = kunit_kzalloc(test, sizeof(*zone), GFP_KERNEL);
	struct per_cpu_zonestat __percpu *stats = alloc_percpu(struct per_cpu_zonestat);
	s8 *diff;

	KUNIT_ASSERT_NOT_NULL(test, zone);
	KUNIT_ASSERT_TRUE(test, stats);
	zone->per_cpu_zonestats = stats;
	diff = &per_cpu_ptr(stats, cpumask_first(cpu_online_mask))->vm_stat_diff[NR_MLOCK];
	*diff = 3;

	zone_pcp_reset(zone);
	KUNIT_EXPECT_EQ(test, zone_page_state(zone, NR_MLOCK), 3);
	KUNIT_EXPECT_EQ(test, *diff, 0);

	/* The system's own counter was raised by as much. */
	zone_page_state_add(-(long)zone_page_state(zone, NR_MLOCK), zone, NR_MLOCK);
	free_percpu(stats);
}

/* Memory that goes offline must not wait on a list. Without SMP no page is kept there. */
static void __init disabled_lists_are_empty(struct kunit *test)
{
	struct page *page = alloc_page(GFP_KERNEL);
	struct zone *zone;
	int cpu, left = 0;

	KUNIT_ASSERT_NOT_NULL(test, page);
	zone = page_zone(page);
	/* Goes to this CPU's list. */
	__free_page(page);
	zone_pcp_disable(zone);
	for_each_possible_cpu(cpu) {
		struct per_cpu_pages *pcp = per_cpu_ptr(zone->per_cpu_pageset, cpu);

		/* What others free passes through their CPU's list, under its lock. */
		spin_lock(&pcp->lock);
		left += pcp->count;
		spin_unlock(&pcp->lock);
	}
	zone_pcp_enable(zone);
	KUNIT_EXPECT_EQ(test, left, 0);
}
#endif

static struct kunit_case __refdata zone_pagesets_cases[] = {
	KUNIT_CASE(pagesets_stay),
#ifdef CONFIG_SMP
	KUNIT_CASE(counters_are_folded),
	KUNIT_CASE(disabled_lists_are_empty),
#endif
	{}
};

static struct kunit_suite zone_pagesets_suite = {
	.name = "zone_pagesets",
	.test_cases = zone_pagesets_cases,
};

kunit_test_init_section_suite(zone_pagesets_suite);
