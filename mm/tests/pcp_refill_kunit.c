// SPDX-License-Identifier: GPL-2.0-only
/*
 * How many pages a refill of a CPU's list takes while memory is short and kswapd
 * has helpers: one batch. Included by mm/page_alloc.c.
 */
#include <kunit/test.h>

#define BATCH	63
#define HIGH	2000

struct refill {
	pg_data_t pgdat;
	struct zone *zone;
	struct per_cpu_pages pcp;
};

static struct refill *refill_of(struct kunit *test, unsigned long free)
{
	struct refill *r = kunit_kzalloc(test, sizeof(*r), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, r);
	r->zone = &r->pgdat.node_zones[ZONE_NORMAL];
	r->zone->zone_pgdat = &r->pgdat;
	r->zone->_watermark[WMARK_HIGH] = HIGH;
	/* Pages that requests for higher zones must leave are free for this one. */
	for (int i = ZONE_NORMAL + 1; i < MAX_NR_ZONES; i++)
		r->zone->lowmem_reserve[i] = 100 * HIGH;
	atomic_long_set(&r->zone->vm_stat[NR_FREE_PAGES], free);
	set_bit(ZONE_BELOW_HIGH, &r->zone->flags);
	r->pgdat.kswapd_helpers.nr = 1;
	r->pcp.batch = BATCH;
	r->pcp.high_min = 4 * BATCH;
	r->pcp.high = 100 * BATCH;
	r->pcp.high_max = 100 * BATCH;
	return r;
}

static int refill(struct refill *r)
{
	return nr_pcp_alloc(&r->pcp, r->zone, 0);
}

/* Whatever the previous refill size; refills do not grow meanwhile. */
static void a_refill_is_one_batch_below_high(struct kunit *test)
{
	struct refill *r = refill_of(test, HIGH);

	r->pcp.alloc_factor = CONFIG_PCP_BATCH_SCALE_MAX;
	for (int i = 0; i < 10; i++)
		KUNIT_EXPECT_EQ(test, refill(r), BATCH);
	/* Neither the reserve for atomic allocations nor free CMA counts. */
	atomic_long_set(&r->zone->vm_stat[NR_FREE_PAGES], 10 * HIGH);
	r->zone->nr_free_highatomic = 9 * HIGH;
	KUNIT_EXPECT_EQ(test, refill(r), BATCH);
	r->zone->nr_free_highatomic = 0;
	if (IS_ENABLED(CONFIG_CMA)) {
		atomic_long_set(&r->zone->vm_stat[NR_FREE_CMA_PAGES], 9 * HIGH);
		KUNIT_EXPECT_EQ(test, refill(r), BATCH);
		atomic_long_set(&r->zone->vm_stat[NR_FREE_CMA_PAGES], 0);
	}
	/* When memory is plentiful again, refills grow anew. */
	atomic_long_set(&r->zone->vm_stat[NR_FREE_PAGES], HIGH + 1);
	KUNIT_EXPECT_EQ(test, refill(r),
			BATCH << min(1, CONFIG_PCP_BATCH_SCALE_MAX));
}

/*
 * A kswapd without helpers would not free the pages any faster. Without the flag no
 * allocation has found the zone below high.
 */
static void nothing_is_capped_without_helpers(struct kunit *test)
{
	struct refill *r = refill_of(test, HIGH);

	clear_bit(ZONE_BELOW_HIGH, &r->zone->flags);
	r->pcp.alloc_factor = CONFIG_PCP_BATCH_SCALE_MAX;
	KUNIT_EXPECT_EQ(test, refill(r), BATCH << CONFIG_PCP_BATCH_SCALE_MAX);

	set_bit(ZONE_BELOW_HIGH, &r->zone->flags);
	r->pgdat.kswapd_helpers.nr = 0;
	r->pcp.alloc_factor = CONFIG_PCP_BATCH_SCALE_MAX;
	KUNIT_EXPECT_EQ(test, refill(r), BATCH << CONFIG_PCP_BATCH_SCALE_MAX);
}

/* The flag may outlive the shortage, until free pages exceed high and the reserve. */
static void a_stale_flag_caps_nothing(struct kunit *test)
{
	struct refill *r = refill_of(test, HIGH + 1);

	r->pcp.alloc_factor = CONFIG_PCP_BATCH_SCALE_MAX;
	KUNIT_EXPECT_EQ(test, refill(r),
			BATCH << CONFIG_PCP_BATCH_SCALE_MAX);
}

/* Larger blocks are few on a list in any case, and grow no refill of single pages. */
static void only_single_pages_are_capped(struct kunit *test)
{
	struct refill *r = refill_of(test, HIGH);

	r->pcp.alloc_factor = CONFIG_PCP_BATCH_SCALE_MAX;
	KUNIT_EXPECT_EQ(test, nr_pcp_alloc(&r->pcp, r->zone, 1), BATCH / 2);
	KUNIT_EXPECT_EQ(test, r->pcp.alloc_factor, CONFIG_PCP_BATCH_SCALE_MAX);
}

static struct kunit_case pcp_refill_cases[] = {
	KUNIT_CASE(a_refill_is_one_batch_below_high),
	KUNIT_CASE(nothing_is_capped_without_helpers),
	KUNIT_CASE(a_stale_flag_caps_nothing),
	KUNIT_CASE(only_single_pages_are_capped),
	{}
};

static struct kunit_suite pcp_refill_suite = {
	.name = "pcp_refill",
	.test_cases = pcp_refill_cases,
};

kunit_test_suite(pcp_refill_suite);
