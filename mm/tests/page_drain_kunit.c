// SPDX-License-Identifier: GPL-2.0-only
/*
 * The drain of per-cpu page lists for an allocation that failed: which zones,
 * how far, and one task at a time. Then which zones give up their reserve of
 * high-order blocks.
 *
 * The zones are made up, two nodes of two zones each. Where lists are drained
 * for real they are those of this machine.
 */
#include <kunit/static_stub.h>
#include <kunit/test.h>
#include <linux/cpu.h>
#include <linux/cpuset.h>
#include <linux/mmzone.h>
#include <linux/vmstat.h>
#include <linux/wait_bit.h>
#include <linux/workqueue.h>

#include "../page_alloc.h"
#include "../page_drain.h"

#define NR_FAKE_NODES	2
#define NR_FAKE_ZONES	2
#define NR_FAKE		(NR_FAKE_NODES * NR_FAKE_ZONES)

struct drain_test {
	struct zone *zones[NR_FAKE];
	struct zoneref zonerefs[NR_FAKE + 1];
	struct alloc_context ac;
	/* Pages that each drain of a CPU finds, and drains of each zone. */
	unsigned int pages;
	unsigned int drains[NR_FAKE];
	/* This zone has room after so many drains; NR_FAKE: none ever has. */
	int room_in;
	unsigned int room_after;
	/* The other task's drain. */
	struct zone *other_zone;
	struct delayed_work other;
	bool other_frees;
};

/* One of the figures in /proc/vmstat. */
static unsigned long event(enum vm_event_item item)
{
	/* Too large for the stack. Tests run one after the other. */
	static unsigned long events[NR_VM_EVENT_ITEMS];

	all_vm_events(events);
	return events[item];
}

static int zone_number(struct drain_test *t, struct zone *zone)
{
	for (int i = 0; i < NR_FAKE; i++) {
		if (t->zones[i] == zone)
			return i;
	}
	return -1;
}

static unsigned int fake_drain(struct zone *zone, int cpu)
{
	struct drain_test *t = kunit_get_current_test()->priv;

	t->drains[zone_number(t, zone)]++;
	return t->pages;
}

static bool fake_room(struct zone *zone, unsigned int order,
		      unsigned int alloc_flags, const struct alloc_context *ac)
{
	struct drain_test *t = kunit_get_current_test()->priv;
	int i = zone_number(t, zone);

	return i == t->room_in && t->drains[i] >= t->room_after;
}

static bool no_room(struct zone *zone, unsigned int order,
		    unsigned int alloc_flags, const struct alloc_context *ac)
{
	return false;
}

/* Node 1 first, as for a task that runs there; in each node the highest zone first. */
static int page_drain_init(struct kunit *test)
{
	struct drain_test *t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);
	int ref = 0;

	KUNIT_ASSERT_NOT_NULL(test, t);
	for (int i = 0; i < NR_FAKE; i++) {
		t->zones[i] = kunit_kzalloc(test, sizeof(struct zone), GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, t->zones[i]);
		zone_set_nid(t->zones[i], i / NR_FAKE_ZONES);
		t->zones[i]->present_pages = 1;
	}
	for (int nid = NR_FAKE_NODES - 1; nid >= 0; nid--) {
		for (int idx = NR_FAKE_ZONES - 1; idx >= 0; idx--) {
			t->zonerefs[ref].zone = t->zones[nid * NR_FAKE_ZONES + idx];
			t->zonerefs[ref++].zone_idx = idx;
		}
	}
	/* A zonelist is just that array, as long as this machine needs it. */
	BUILD_BUG_ON(offsetof(struct zonelist, _zonerefs));
	t->ac.zonelist = (struct zonelist *)t->zonerefs;
	t->ac.highest_zoneidx = NR_FAKE_ZONES - 1;
	t->pages = 8;
	t->room_in = NR_FAKE;
	test->priv = t;
	return 0;
}

static void fake_all(struct kunit *test)
{
	kunit_activate_static_stub(test, drain_zone_cpu, fake_drain);
	kunit_activate_static_stub(test, drain_zone_has_room, fake_room);
}

static bool drain(struct drain_test *t, unsigned int alloc_flags)
{
	return drain_pages_for_alloc(GFP_KERNEL | __GFP_HARDWALL, 0,
				     alloc_flags, &t->ac, false);
}

/* Zones by number, as bits. */
static unsigned int drained(struct drain_test *t)
{
	unsigned int zones = 0;

	for (int i = 0; i < NR_FAKE; i++) {
		if (t->drains[i])
			zones |= BIT(i);
	}
	return zones;
}

static void expect_no_flags(struct kunit *test)
{
	struct drain_test *t = test->priv;

	for (int i = 0; i < NR_FAKE; i++)
		KUNIT_EXPECT_EQ(test, t->zones[i]->flags, 0);
}

/* Without limits every zone, each CPU once. */
static void all_zones(struct kunit *test)
{
	struct drain_test *t = test->priv;

	fake_all(test);
	KUNIT_EXPECT_FALSE(test, drain(t, 0));
	for (int i = 0; i < NR_FAKE; i++)
		KUNIT_EXPECT_EQ(test, t->drains[i], num_online_cpus());
	expect_no_flags(test);
}

static void not_above_the_highest_zone(struct kunit *test)
{
	struct drain_test *t = test->priv;

	fake_all(test);
	t->ac.highest_zoneidx = 0;
	drain(t, 0);
	KUNIT_EXPECT_EQ(test, drained(t), BIT(0) | BIT(2));
}

#ifdef CONFIG_NUMA
static void not_outside_the_nodemask(struct kunit *test)
{
	struct drain_test *t = test->priv;
	nodemask_t nodes = nodemask_of_node(1);

	fake_all(test);
	t->ac.nodemask = &nodes;
	drain(t, 0);
	KUNIT_EXPECT_EQ(test, drained(t), BIT(2) | BIT(3));
}
#endif

#if defined(CONFIG_CPUSETS) && defined(CONFIG_NUMA)
/* This task's cpuset holds these nodes. */
static void set_cpuset(const nodemask_t *nodes)
{
	cpus_read_lock();
	cpuset_inc();
	cpus_read_unlock();
	set_mems_allowed(*nodes);
}

static void unset_cpuset(const nodemask_t *nodes)
{
	set_mems_allowed(*nodes);
	cpus_read_lock();
	cpuset_dec();
	cpus_read_unlock();
}

static void not_outside_the_cpuset(struct kunit *test)
{
	struct drain_test *t = test->priv;
	nodemask_t saved = current->mems_allowed;
	nodemask_t nodes = nodemask_of_node(1);

	fake_all(test);
	set_cpuset(&nodes);
	drain(t, ALLOC_CPUSET);
	KUNIT_EXPECT_EQ(test, drained(t), BIT(2) | BIT(3));
	/* An allocation that may leave its cpuset. */
	drain(t, 0);
	KUNIT_EXPECT_EQ(test, drained(t), GENMASK(NR_FAKE - 1, 0));
	unset_cpuset(&saved);
}
#endif

/* All memory of the zone was taken offline, and its lists with it. */
static void not_in_an_empty_zone(struct kunit *test)
{
	struct drain_test *t = test->priv;

	fake_all(test);
	t->zones[1]->present_pages = 0;
	drain(t, 0);
	KUNIT_EXPECT_EQ(test, drained(t), BIT(0) | BIT(2) | BIT(3));
}

static void nothing_where_there_is_room(struct kunit *test)
{
	struct drain_test *t = test->priv;

	fake_all(test);
	t->room_in = 3;
	KUNIT_EXPECT_TRUE(test, drain(t, 0));
	KUNIT_EXPECT_EQ(test, drained(t), 0);
	expect_no_flags(test);
}

/* The zone that comes second has room after the first CPU's lists. */
static void no_more_than_needed(struct kunit *test)
{
	struct drain_test *t = test->priv;

	fake_all(test);
	t->room_in = 2;
	t->room_after = 1;
	KUNIT_EXPECT_TRUE(test, drain(t, 0));
	KUNIT_EXPECT_EQ(test, drained(t), BIT(3) | BIT(2));
	KUNIT_EXPECT_EQ(test, t->drains[3], num_online_cpus());
	KUNIT_EXPECT_EQ(test, t->drains[2], 1);
	expect_no_flags(test);
}

/* What makes one large block may make the next ones. */
static void all_of_it_for_a_large_block(struct kunit *test)
{
	struct drain_test *t = test->priv;
	const unsigned int large = PAGE_ALLOC_COSTLY_ORDER + 1;

	fake_all(test);
	t->room_in = 2;
	t->room_after = 1;
	KUNIT_EXPECT_TRUE(test, drain_pages_for_alloc(GFP_KERNEL, large, 0, &t->ac, false));
	for (int i = 0; i < NR_FAKE; i++)
		KUNIT_EXPECT_EQ(test, t->drains[i], num_online_cpus());
	memset(t->drains, 0, sizeof(t->drains));
	KUNIT_EXPECT_TRUE(test, drain_pages_for_alloc(GFP_KERNEL, large - 1, 0, &t->ac, false));
	KUNIT_EXPECT_EQ(test, drained(t), BIT(3) | BIT(2));
	KUNIT_EXPECT_EQ(test, t->drains[2], 1);
	expect_no_flags(test);
}

/* Before somebody is killed all there is, unless there is room at once. */
static void all_of_it_as_the_last_resort(struct kunit *test)
{
	struct drain_test *t = test->priv;

	fake_all(test);
	t->room_in = 2;
	t->room_after = 1;
	KUNIT_EXPECT_TRUE(test, drain_pages_for_alloc(GFP_KERNEL, 0, 0, &t->ac, true));
	for (int i = 0; i < NR_FAKE; i++)
		KUNIT_EXPECT_EQ(test, t->drains[i], num_online_cpus());
	memset(t->drains, 0, sizeof(t->drains));
	t->room_after = 0;
	t->room_in = 3;
	KUNIT_EXPECT_TRUE(test, drain_pages_for_alloc(GFP_KERNEL, 0, 0, &t->ac, true));
	KUNIT_EXPECT_EQ(test, drained(t), 0);
	t->room_in = NR_FAKE;
	KUNIT_EXPECT_FALSE(test, drain_pages_for_alloc(GFP_KERNEL, 0, 0, &t->ac, true));
	expect_no_flags(test);
}

/* CPUs without pages give no reason to look at the watermark again. */
static void empty_lists_count_for_nothing(struct kunit *test)
{
	struct drain_test *t = test->priv;
	unsigned long drains = event(PCP_DRAIN_ALLOC);
	unsigned long pages = event(PCP_DRAIN_ALLOC_PAGES);

	fake_all(test);
	t->pages = 0;
	KUNIT_EXPECT_FALSE(test, drain(t, 0));
	KUNIT_EXPECT_EQ(test, event(PCP_DRAIN_ALLOC), drains);
	t->pages = 8;
	KUNIT_EXPECT_FALSE(test, drain(t, 0));
	KUNIT_EXPECT_GE(test, event(PCP_DRAIN_ALLOC) - drains, NR_FAKE);
	KUNIT_EXPECT_GE(test, event(PCP_DRAIN_ALLOC_PAGES) - pages,
			8 * NR_FAKE * num_online_cpus());
}

static void other_ends(struct work_struct *work)
{
	struct drain_test *t = container_of(to_delayed_work(work),
					    struct drain_test, other);

	if (t->other_frees)
		t->room_in = zone_number(t, t->other_zone);
	clear_and_wake_up_bit(ZONE_PCP_DRAIN, &t->other_zone->flags);
}

/* Another task drains that zone, and ends after some milliseconds if at all. */
static void other_drains(struct drain_test *t, int zone, int ms)
{
	t->other_zone = t->zones[zone];
	set_bit(ZONE_PCP_DRAIN, &t->other_zone->flags);
	INIT_DELAYED_WORK(&t->other, other_ends);
	if (ms)
		schedule_delayed_work(&t->other, msecs_to_jiffies(ms));
}

static void other_gone(struct drain_test *t)
{
	cancel_delayed_work_sync(&t->other);
}

/* Its zone is left to it. The others are not, and nobody waits forever. */
static void two_do_not_drain_one_zone(struct kunit *test)
{
	struct drain_test *t = test->priv;
	unsigned long skips = event(PCP_DRAIN_ALLOC_SKIP);
	unsigned long start = jiffies;

	fake_all(test);
	other_drains(t, 3, 0);
	KUNIT_EXPECT_FALSE(test, drain(t, 0));
	KUNIT_EXPECT_EQ(test, drained(t), GENMASK(NR_FAKE - 1, 0) & ~BIT(3));
	KUNIT_EXPECT_GT(test, event(PCP_DRAIN_ALLOC_SKIP), skips);
	KUNIT_EXPECT_LT(test, jiffies_to_msecs(jiffies - start), 2000);
	/* The flag is still the other's. */
	KUNIT_EXPECT_TRUE(test, test_bit(ZONE_PCP_DRAIN, &t->zones[3]->flags));
	other_gone(t);
}

/* A drain of another zone is no reason to wait when there is room. */
static void a_busy_zone_blocks_no_other(struct kunit *test)
{
	struct drain_test *t = test->priv;

	fake_all(test);
	other_drains(t, 3, 0);
	t->room_in = 2;
	t->room_after = 1;
	KUNIT_EXPECT_TRUE(test, drain(t, 0));
	KUNIT_EXPECT_EQ(test, drained(t), BIT(2));
	KUNIT_EXPECT_EQ(test, t->drains[2], 1);
	other_gone(t);
}

/* What the other frees is waited for and found. */
static void the_others_drain_is_waited_for(struct kunit *test)
{
	struct drain_test *t = test->priv;

	fake_all(test);
	t->ac.highest_zoneidx = 0;
	t->pages = 0;
	t->other_frees = true;
	other_drains(t, 2, 3);
	KUNIT_EXPECT_TRUE(test, drain(t, 0));
	KUNIT_EXPECT_EQ(test, t->drains[2], 0);
	other_gone(t);
	expect_no_flags(test);
}

/* What the other leaves on the lists is drained after it. */
static void the_others_drain_is_completed(struct kunit *test)
{
	struct drain_test *t = test->priv;

	fake_all(test);
	t->ac.highest_zoneidx = 0;
	t->room_in = 2;
	t->room_after = 1;
	other_drains(t, 2, 3);
	KUNIT_EXPECT_TRUE(test, drain(t, 0));
	KUNIT_EXPECT_EQ(test, t->drains[2], 1);
	other_gone(t);
	expect_no_flags(test);
}

/* A zone whose pages can be counted and whose free lists can be filled. */
static void make_countable(struct kunit *test, struct zone *zone)
{
	/* Without SMP and NUMA it has no members. */
	zone->per_cpu_zonestats = __alloc_percpu(max_t(size_t, 1, sizeof(struct per_cpu_zonestat)),
						 sizeof(long));
	KUNIT_ASSERT_NOT_NULL(test, zone->per_cpu_zonestats);
	spin_lock_init(&zone->lock);
	for (int order = 0; order < NR_PAGE_ORDERS; order++) {
		for (int type = 0; type < MIGRATE_TYPES; type++)
			INIT_LIST_HEAD(&zone->free_area[order].free_list[type]);
	}
}

static void room_is_what_the_watermark_says(struct kunit *test)
{
	struct drain_test *t = test->priv;
	struct zone *zone = t->zones[0];
	LIST_HEAD(block);

	make_countable(test, zone);
	zone->_watermark[WMARK_MIN] = 100;
	zone->lowmem_reserve[1] = 50;
	t->ac.highest_zoneidx = 0;
	atomic_long_set(&zone->vm_stat[NR_FREE_PAGES], 100);
	KUNIT_EXPECT_FALSE(test, drain_zone_has_room(zone, 0, 0, &t->ac));
	/* Who may go below the watermark may still find nothing there. */
	KUNIT_EXPECT_FALSE(test, drain_zone_has_room(zone, 0, ALLOC_MIN_RESERVE, &t->ac));
	KUNIT_EXPECT_FALSE(test, drain_zone_has_room(zone, 0, ALLOC_OOM, &t->ac));
	atomic_long_set(&zone->vm_stat[NR_FREE_PAGES], 101);
	KUNIT_EXPECT_TRUE(test, drain_zone_has_room(zone, 0, 0, &t->ac));
	KUNIT_EXPECT_TRUE(test, drain_zone_has_room(zone, 0, ALLOC_MIN_RESERVE, &t->ac));
	/* The reserve for a higher zone's allocations is not theirs. */
	t->ac.highest_zoneidx = 1;
	KUNIT_EXPECT_FALSE(test, drain_zone_has_room(zone, 0, 0, &t->ac));
	t->ac.highest_zoneidx = 0;
	/* No block of that order yet. */
	atomic_long_set(&zone->vm_stat[NR_FREE_PAGES], 1000);
	KUNIT_EXPECT_FALSE(test, drain_zone_has_room(zone, 2, 0, &t->ac));
	list_add(&block, &zone->free_area[3].free_list[MIGRATE_MOVABLE]);
	zone->free_area[3].nr_free = 1;
	KUNIT_EXPECT_TRUE(test, drain_zone_has_room(zone, 2, 0, &t->ac));
	KUNIT_EXPECT_FALSE(test, drain_zone_has_room(zone, 4, 0, &t->ac));
	if (ALLOC_NOFRAGMENT)
		KUNIT_EXPECT_FALSE(test, drain_zone_has_room(zone, 0, ALLOC_NOFRAGMENT,
							     &t->ac));
	free_percpu(zone->per_cpu_zonestats);
}

/* Pages on this CPU's lists become free pages of their zone. */
static void real_lists_are_drained(struct kunit *test)
{
	struct alloc_context ac = {
		.zonelist = node_zonelist(numa_mem_id(), GFP_KERNEL),
		.highest_zoneidx = gfp_zone(GFP_KERNEL),
	};
	unsigned long was_drains, was_pages;
	struct page *pages[16];

	if (!IS_ENABLED(CONFIG_SMP))
		kunit_skip(test, "there are no per-cpu lists without SMP");
	kunit_activate_static_stub(test, drain_zone_has_room, no_room);
	for (int i = 0; i < ARRAY_SIZE(pages); i++) {
		pages[i] = alloc_page(GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, pages[i]);
	}
	for (int i = 0; i < ARRAY_SIZE(pages); i++)
		__free_page(pages[i]);
	was_drains = event(PCP_DRAIN_ALLOC);
	was_pages = event(PCP_DRAIN_ALLOC_PAGES);
	KUNIT_EXPECT_FALSE(test, drain_pages_for_alloc(GFP_KERNEL, 0, 0, &ac, false));
	KUNIT_EXPECT_GT(test, event(PCP_DRAIN_ALLOC), was_drains);
	KUNIT_EXPECT_GE(test, event(PCP_DRAIN_ALLOC_PAGES) - was_pages, ARRAY_SIZE(pages));
	/* Twice in a row: next to nothing is left. */
	was_pages = event(PCP_DRAIN_ALLOC_PAGES);
	drain_pages_for_alloc(GFP_KERNEL, 0, 0, &ac, false);
	KUNIT_EXPECT_LT(test, event(PCP_DRAIN_ALLOC_PAGES) - was_pages, 1000);
}

#ifdef CONFIG_CONTIG_ALLOC
#define NR_CONTIG	512

static unsigned int nr_contig;

static void allocate_contig(struct work_struct *work)
{
	for (int i = 0; i < 20; i++) {
		struct page *page = alloc_contig_pages(NR_CONTIG, GFP_KERNEL,
						       numa_mem_id(), NULL);

		if (!page)
			continue;
		nr_contig++;
		free_contig_range(page_to_pfn(page), NR_CONTIG);
	}
}

/* Another task isolates blocks and wants lists empty while this one drains them. */
static void contiguous_ranges_are_found_meanwhile(struct kunit *test)
{
	struct alloc_context ac = {
		.zonelist = node_zonelist(numa_mem_id(), GFP_KERNEL),
		.highest_zoneidx = gfp_zone(GFP_KERNEL),
	};
	struct work_struct work;
	unsigned int alone;

	kunit_activate_static_stub(test, drain_zone_has_room, no_room);
	nr_contig = 0;
	allocate_contig(NULL);
	alone = nr_contig;
	KUNIT_ASSERT_GT(test, alone, 0);
	nr_contig = 0;
	INIT_WORK_ONSTACK(&work, allocate_contig);
	queue_work(system_dfl_wq, &work);
	while (work_busy(&work)) {
		struct page *page = alloc_page(GFP_KERNEL);

		if (page)
			__free_page(page);
		drain_pages_for_alloc(GFP_KERNEL, 0, 0, &ac, false);
		cond_resched();
	}
	flush_work(&work);
	destroy_work_on_stack(&work);
	KUNIT_EXPECT_EQ(test, nr_contig, alone);
}
#endif

/*
 * Zones 0 and 2, of two nodes, have each a free block in the reserve. Returns
 * the zones, as bits, that gave it up to one caller; blocks go back after.
 */
static unsigned int unreserved(struct kunit *test, unsigned int alloc_flags)
{
	struct drain_test *t = test->priv;
	struct page *pages[NR_FAKE] = {};
	unsigned int zones = 0;

	t->ac.highest_zoneidx = 0;
	t->ac.migratetype = MIGRATE_UNMOVABLE;
	for (int i = 0; i < NR_FAKE; i += NR_FAKE_ZONES) {
		struct zone *zone = t->zones[i];
		struct free_area *area = &zone->free_area[pageblock_order];

		make_countable(test, zone);
		/* Of this machine, whatever the task's cpuset is for the test. */
		pages[i] = alloc_pages(GFP_KERNEL, pageblock_order);
		KUNIT_ASSERT_NOT_NULL(test, pages[i]);
		list_add(&pages[i]->buddy_list, &area->free_list[MIGRATE_HIGHATOMIC]);
		area->nr_free = 1;
		zone->nr_reserved_highatomic = pageblock_nr_pages;
		zone->nr_free_highatomic = pageblock_nr_pages;
	}
	while (unreserve_highatomic_pageblock(GFP_KERNEL | __GFP_HARDWALL,
					      alloc_flags, &t->ac, true))
		;
	for (int i = 0; i < NR_FAKE; i += NR_FAKE_ZONES) {
		if (!t->zones[i]->nr_reserved_highatomic)
			zones |= BIT(i);
		list_del(&pages[i]->buddy_list);
		__free_pages(pages[i], pageblock_order);
		free_percpu(t->zones[i]->per_cpu_zonestats);
	}
	return zones;
}

static void reserves_are_given_up(struct kunit *test)
{
	struct drain_test *t = test->priv;
	nodemask_t nodes = nodemask_of_node(1);

	if (IS_ENABLED(CONFIG_DEBUG_VM))
		kunit_skip(test, "DEBUG_VM knows that the block was none of the reserve");
	KUNIT_EXPECT_EQ(test, unreserved(test, ALLOC_CPUSET), BIT(0) | BIT(2));
	if (IS_ENABLED(CONFIG_NUMA)) {
		t->ac.nodemask = &nodes;
		KUNIT_EXPECT_EQ(test, unreserved(test, ALLOC_CPUSET), BIT(2));
	}
}

#if defined(CONFIG_CPUSETS) && defined(CONFIG_NUMA)
static void reserves_outside_the_cpuset_stay(struct kunit *test)
{
	nodemask_t saved = current->mems_allowed;
	nodemask_t nodes = nodemask_of_node(1);
	unsigned int in, any;

	if (IS_ENABLED(CONFIG_DEBUG_VM))
		kunit_skip(test, "DEBUG_VM knows that the block was none of the reserve");
	set_cpuset(&nodes);
	in = unreserved(test, ALLOC_CPUSET);
	any = unreserved(test, 0);
	unset_cpuset(&saved);
	KUNIT_EXPECT_EQ(test, in, BIT(2));
	KUNIT_EXPECT_EQ(test, any, BIT(0) | BIT(2));
}
#endif

static struct kunit_case page_drain_cases[] = {
	KUNIT_CASE(all_zones),
	KUNIT_CASE(not_above_the_highest_zone),
#ifdef CONFIG_NUMA
	KUNIT_CASE(not_outside_the_nodemask),
#endif
#if defined(CONFIG_CPUSETS) && defined(CONFIG_NUMA)
	KUNIT_CASE(not_outside_the_cpuset),
#endif
	KUNIT_CASE(not_in_an_empty_zone),
	KUNIT_CASE(nothing_where_there_is_room),
	KUNIT_CASE(no_more_than_needed),
	KUNIT_CASE(all_of_it_for_a_large_block),
	KUNIT_CASE(all_of_it_as_the_last_resort),
	KUNIT_CASE(empty_lists_count_for_nothing),
	KUNIT_CASE(two_do_not_drain_one_zone),
	KUNIT_CASE(a_busy_zone_blocks_no_other),
	KUNIT_CASE(the_others_drain_is_waited_for),
	KUNIT_CASE(the_others_drain_is_completed),
	KUNIT_CASE(room_is_what_the_watermark_says),
	KUNIT_CASE(real_lists_are_drained),
#ifdef CONFIG_CONTIG_ALLOC
	KUNIT_CASE(contiguous_ranges_are_found_meanwhile),
#endif
	KUNIT_CASE(reserves_are_given_up),
#if defined(CONFIG_CPUSETS) && defined(CONFIG_NUMA)
	KUNIT_CASE(reserves_outside_the_cpuset_stay),
#endif
	{}
};

static struct kunit_suite page_drain_suite = {
	.name = "page_drain",
	.init = page_drain_init,
	.test_cases = page_drain_cases,
};

kunit_test_suite(page_drain_suite);
