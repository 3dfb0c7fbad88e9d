// SPDX-License-Identifier: GPL-2.0-only
/*
 * kswapd's helpers: the rule that says how many, how the gap is divided, what
 * settings are accepted, and that a failed start changes nothing.
 *
 * The rule is fed windows of a made-up machine, whose rate of reclaim is a
 * function of the threads at work.
 */
#include <kunit/static_stub.h>
#include <kunit/test.h>
#include <kunit/test-bug.h>
#include <linux/err.h>
#include <linux/limits.h>
#include <linux/swap.h>

#include "../internal.h"
#include "../kswapd_helpers.h"

#define WINDOW_MS	20

static unsigned int window(struct kswapd_scale *s, unsigned int max,
			   unsigned long reclaimed, bool pressure)
{
	struct kswapd_evidence e = {
		.max = max,
		.ms = WINDOW_MS,
		.reclaimed = reclaimed,
		.pressure = pressure,
	};

	return kswapd_scale(s, &e);
}

/* A pass ends, so many milliseconds after the last one. */
static unsigned int ended(struct kswapd_scale *s, unsigned int max,
			  unsigned int ms, bool pressure)
{
	struct kswapd_evidence e = {
		.max = max,
		.ms = ms,
		.pressure = pressure,
		.ended = true,
	};

	return kswapd_scale(s, &e);
}

/* Every thread frees as much as the first one: use them all, one more a window. */
static void scale_grows_while_it_helps(struct kunit *test)
{
	struct kswapd_scale s = {};

	for (unsigned int i = 1; i <= 7; i++)
		KUNIT_EXPECT_EQ(test, window(&s, 7, 1000 * i, true), i);
	for (unsigned int i = 0; i < 10; i++)
		KUNIT_EXPECT_EQ(test, window(&s, 7, 8000, true), 7);
}

/* Who helps stays, but for a window now and then that shows it. */
static void scale_keeps_who_helps(struct kunit *test)
{
	struct kswapd_scale s = {};
	unsigned int helpers = 0, sum = 0;

	for (unsigned int i = 0; i < 7; i++)
		helpers = window(&s, 7, 1000 * (1 + helpers), true);
	for (unsigned int i = 0; i < 1000; i++) {
		helpers = window(&s, 7, 1000 * (1 + helpers), true);
		KUNIT_EXPECT_GE(test, helpers, 6);
		sum += helpers;
	}
	KUNIT_EXPECT_GT(test, sum, 6900);
}

/* Who has helped goes when it does not any more, whatever the rate is then. */
static void scale_lets_go_who_helps_no_more(struct kunit *test)
{
	static const unsigned long rate[] = { 1, 50, 4000, 20000 };

	for (int i = 0; i < ARRAY_SIZE(rate); i++) {
		struct kswapd_scale s = {};
		unsigned int helped = 0;

		for (unsigned int n = 1; n <= 7; n++)
			window(&s, 7, 1000 * n, true);
		KUNIT_ASSERT_EQ(test, s.target, 7);
		for (int n = 0; n < 50; n++)
			window(&s, 7, rate[i], true);
		KUNIT_EXPECT_LE_MSG(test, s.target, 1, "%lu pages a window", rate[i]);
		for (int n = 0; n < 1000; n++)
			helped += window(&s, 7, rate[i], true);
		KUNIT_EXPECT_LT_MSG(test, helped, 100, "%lu pages a window", rate[i]);
	}
}

/* Less than a page a second, a rate of 0, is no reason to keep anybody. */
static void scale_judges_a_trickle(struct kunit *test)
{
	struct kswapd_evidence e = { .max = 15, .ms = 2000, .reclaimed = 1, .pressure = true };
	struct kswapd_scale s = {};
	unsigned int helped = 0;

	for (int i = 0; i < 100; i++)
		helped += kswapd_scale(&s, &e);
	KUNIT_EXPECT_LT(test, helped, 20);
}

static void scale_needs_pressure(struct kunit *test)
{
	struct kswapd_scale s = {};

	for (unsigned int i = 0; i < 100; i++)
		KUNIT_EXPECT_EQ(test, window(&s, 15, 1000, false), 0);
}

static void scale_stops_at_the_ceiling(struct kunit *test)
{
	struct kswapd_scale s = {};

	for (unsigned int i = 1; i < 30; i++)
		KUNIT_EXPECT_LE(test, window(&s, 3, 1000 * i, true), 3);
	KUNIT_EXPECT_EQ(test, s.target, 3);
	/* Fewer threads than before: at once. */
	KUNIT_EXPECT_EQ(test, window(&s, 1, 4000, true), 1);
	KUNIT_EXPECT_EQ(test, window(&s, 0, 4000, true), 0);
}

/* Nothing can be freed: more threads would only burn CPU. */
static void scale_is_none_without_progress(struct kunit *test)
{
	struct kswapd_scale s = {};

	KUNIT_EXPECT_EQ(test, window(&s, 7, 0, true), 0);
	window(&s, 7, 1000, true);
	window(&s, 7, 2000, true);
	KUNIT_EXPECT_EQ(test, s.target, 2);
	KUNIT_EXPECT_EQ(test, window(&s, 7, 0, true), 0);
	/* And not again at once. */
	KUNIT_EXPECT_EQ(test, window(&s, 7, 10, true), 0);
}

/* Passes of a hopeless node are shorter than a window. */
static void scale_is_none_after_a_failed_pass(struct kunit *test)
{
	struct kswapd_evidence e = {
		.max = 7, .ms = 5, .pressure = true, .ended = true, .failed = true,
	};
	struct kswapd_scale s = {};

	window(&s, 7, 1000, true);
	KUNIT_ASSERT_EQ(test, s.target, 1);
	KUNIT_EXPECT_EQ(test, kswapd_scale(&s, &e), 0);
	KUNIT_EXPECT_EQ(test, window(&s, 7, 10, true), 0);
}

/* A lock is the limit: from the third thread on nothing is gained. */
static void scale_steps_back_where_nothing_is_gained(struct kunit *test)
{
	static const unsigned long rate[] = { 1000, 1900, 1950, 1950, 1950 };
	struct kswapd_scale s = {};
	unsigned int helpers = 0, tries = 0;	/* for the second one */
	int at_one = 0;

	for (int i = 0; i < 1000; i++) {
		unsigned int next = window(&s, 4, rate[helpers], true);

		tries += next > 1;
		at_one += next == 1;
		KUNIT_EXPECT_LE(test, next, 2);
		helpers = next;
	}
	/* It settles at one helper; tries for more become rare. */
	KUNIT_EXPECT_GT(test, at_one, 900);
	KUNIT_EXPECT_LT(test, tries, 30);
}

/* Passes that end without pressure take helpers away, one a second. */
static void scale_goes_step_by_step_when_the_load_ends(struct kunit *test)
{
	unsigned int last, passes = 0;
	struct kswapd_scale s = {};

	for (unsigned int i = 1; i <= 5; i++)
		window(&s, 5, 1000 * i, true);
	last = s.target;
	KUNIT_ASSERT_EQ(test, last, 5);
	while (s.target && passes++ < 1000) {
		unsigned int now = ended(&s, 5, 100, false);

		KUNIT_EXPECT_LE(test, last - now, 1);
		last = now;
	}
	KUNIT_EXPECT_EQ(test, passes, 50);
	/* And all that it had learned of its limits. */
	KUNIT_EXPECT_EQ(test, s.hold, 0);
	KUNIT_EXPECT_EQ(test, s.backoff, 0);
}

/* Neither pressure that comes and goes nor passes that end under it shake them off. */
static void scale_does_not_flap(struct kunit *test)
{
	struct kswapd_scale s = {};
	unsigned int changes = 0, last;

	for (unsigned int i = 1; i <= 3; i++)
		window(&s, 3, 1000 * i, true);
	last = s.target;
	for (int i = 0; i < 200; i++) {
		unsigned int now = window(&s, 3, 1000 * (1 + last), i % 2);

		KUNIT_EXPECT_GE(test, now, 2);
		changes += now != last;
		last = now;
		now = ended(&s, 3, 30, i % 2);
		changes += now != last;
		last = now;
	}
	/* The last one, away and back again, once in 18 of the 100 windows. */
	KUNIT_EXPECT_LE(test, changes, 12);
}

/* Pages a millisecond that this many threads free. */
static unsigned long linear(unsigned int threads)
{
	return 1000 * threads;
}

static unsigned long limited(unsigned int threads)
{
	return 1000;
}

static unsigned long hindered(unsigned int threads)
{
	return 1000 / threads;
}

/*
 * Passes under pressure, one after the other, each of so many rounds of so many
 * microseconds. Returns the percentage of the windows at whose end there was a
 * helper.
 */
static unsigned int passes(struct kswapd_scale *s, unsigned long (*rate)(unsigned int threads),
			   unsigned int max, int nr, int rounds, int us)
{
	unsigned int windows = 0, helped = 0;

	for (int pass = 0; pass < nr; pass++) {
		for (int round = 0; round < rounds; round++) {
			struct kswapd_evidence e = { .max = max };

			s->reclaimed += rate(1 + s->target) * us / 1000;
			s->pressure = true;
			if (kswapd_scale_span(s, us * 1000ULL, &e)) {
				windows++;
				helped += s->target > 0;
			}
		}
		ended(s, max, rounds * us / 1000, true);
	}
	return helped * 100 / max(windows, 1U);
}

/* The first helper is on probation as the others are, also if it is the only one. */
static void scale_judges_the_first_helper(struct kunit *test)
{
	for (unsigned int max = 1; max <= 7; max += 3) {
		struct kswapd_scale s = {};

		KUNIT_EXPECT_LT(test, passes(&s, limited, max, 1, 20000, 1000), 10);
		memset(&s, 0, sizeof(s));
		KUNIT_EXPECT_LT(test, passes(&s, hindered, max, 1, 20000, 1000), 10);
		memset(&s, 0, sizeof(s));
		/* It is away for one window of 18. */
		KUNIT_EXPECT_GT(test, passes(&s, linear, max, 1, 20000, 1000), 90);
		KUNIT_EXPECT_GE(test, s.target, max - 1);
	}
}

/* A window may be of several passes, and one that ends acquits nobody. */
static void scale_judges_across_passes(struct kunit *test)
{
	static const int rounds[] = { 1, 4, 21, 25, 50 };

	for (int i = 0; i < ARRAY_SIZE(rounds); i++) {
		struct kswapd_scale s = {};

		KUNIT_EXPECT_LT_MSG(test, passes(&s, limited, 7, 4000, rounds[i], 1000), 25,
				    "%d rounds", rounds[i]);
		KUNIT_EXPECT_LE_MSG(test, s.target, 1, "%d rounds", rounds[i]);
		memset(&s, 0, sizeof(s));
		passes(&s, linear, 7, 4000, rounds[i], 1000);
		KUNIT_EXPECT_GE_MSG(test, s.target, 6, "%d rounds", rounds[i]);
	}
}

/* Fewer threads allowed while one is on probation: those that stay are not judged for it. */
static void scale_takes_a_lower_ceiling_for_no_verdict(struct kunit *test)
{
	struct kswapd_scale s = {};

	for (unsigned int i = 1; i <= 3; i++)
		window(&s, 7, 1000 * i, true);
	KUNIT_ASSERT_EQ(test, s.target, 3);
	KUNIT_EXPECT_EQ(test, window(&s, 1, 2000, true), 1);
	KUNIT_EXPECT_EQ(test, s.hold, 0);
	KUNIT_EXPECT_EQ(test, window(&s, 1, 2000, true), 1);
}

static void scale_survives_odd_windows(struct kunit *test)
{
	struct kswapd_evidence e = { .max = 7, .ms = 0, .reclaimed = 5, .pressure = true };
	struct kswapd_scale s = {};

	KUNIT_EXPECT_EQ(test, kswapd_scale(&s, &e), 1);
	/* Nothing freed in no time at all. */
	e.ms = 1;
	e.reclaimed = 0;
	KUNIT_EXPECT_EQ(test, kswapd_scale(&s, &e), 0);
}

static void the_gap_is_divided(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, kswapd_share(4000, 1), 4000);
	KUNIT_EXPECT_EQ(test, kswapd_share(4000, 4), 1000);
	KUNIT_EXPECT_EQ(test, kswapd_share(4000, 0), 4000);
	/* All shares together exceed the gap by a batch each at most. */
	for (unsigned int workers = 1; workers <= KSWAPD_THREADS_MAX; workers++) {
		for (unsigned long gap = 0; gap < 4096; gap += 61)
			KUNIT_EXPECT_LE(test, workers * kswapd_share(gap, workers),
					gap + workers * SWAP_CLUSTER_MAX);
	}
}

/* Free pages are under pressure in the middle between min and low; a boost moves neither. */
static void a_boost_is_no_pressure(struct kunit *test)
{
	pg_data_t *pgdat = kunit_kzalloc(test, sizeof(*pgdat), GFP_KERNEL);
	struct zone *zone;

	KUNIT_ASSERT_NOT_NULL(test, pgdat);
	zone = &pgdat->node_zones[ZONE_NORMAL];
	pgdat->nr_zones = ZONE_NORMAL + 1;
	zone->_watermark[WMARK_MIN] = 500;
	zone->_watermark[WMARK_LOW] = 750;
	atomic_long_set(&zone->managed_pages, 100000);
	atomic_long_set(&zone->vm_stat[NR_FREE_PAGES], 626);
	KUNIT_EXPECT_FALSE(test, kswapd_under_mark(pgdat, ZONE_NORMAL));
	zone->watermark_boost = 512;
	KUNIT_EXPECT_FALSE(test, kswapd_under_mark(pgdat, ZONE_NORMAL));
	atomic_long_set(&zone->vm_stat[NR_FREE_PAGES], 625);
	KUNIT_EXPECT_TRUE(test, kswapd_under_mark(pgdat, ZONE_NORMAL));
}

#ifdef CONFIG_LRU_GEN
/* kswapd takes the node's walk; a helper keeps the one it has brought. */
static void a_helper_keeps_its_own_walk(struct kunit *test)
{
	struct lru_gen_mm_walk *own = kunit_kzalloc(test, sizeof(*own), GFP_KERNEL);
	struct reclaim_state state = {}, *saved = current->reclaim_state;
	unsigned int pflags = current->flags & PF_KSWAPD;
	struct lru_gen_mm_walk *leader, *helper;
	/* Not a real one, whose kswapd may use the walk just now. */
	pg_data_t *pgdat = kunit_kzalloc(test, sizeof(*pgdat), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, own);
	KUNIT_ASSERT_NOT_NULL(test, pgdat);
	/* No assertion between here and where it is put back. */
	current->reclaim_state = &state;
	current->flags |= PF_KSWAPD;
	leader = set_mm_walk(pgdat, false);
	clear_mm_walk();
	state.mm_walk = own;
	helper = set_mm_walk(pgdat, false);
	clear_mm_walk();
	current->flags = (current->flags & ~PF_KSWAPD) | pflags;
	current->reclaim_state = saved;

	KUNIT_EXPECT_PTR_EQ(test, leader, &pgdat->mm_walk);
	KUNIT_EXPECT_PTR_EQ(test, helper, own);
	KUNIT_EXPECT_NULL(test, state.mm_walk);
}
#endif

static void what_settings_are_accepted(struct kunit *test)
{
	static const struct {
		const char *text;
		int min, want;
	} cases[] = {
		{ "1", 1, 1 }, { "16", 1, 16 }, { "4\n", 1, 4 },
		{ "0x10", 1, 16 }, { "0", 0, 0 }, { "0", 1, -EINVAL },
		{ "17", 1, -EINVAL }, { "17", 0, -EINVAL }, { "-1", 0, -EINVAL },
		{ "", 0, -EINVAL }, { "\n", 0, -EINVAL }, { "x", 0, -EINVAL },
		{ "4x", 0, -EINVAL }, { " 4", 0, -EINVAL }, { "4 5", 0, -EINVAL },
		{ "4294967297", 0, -EINVAL }, { "99999999999999999999", 0, -EINVAL },
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(cases); i++) {
		int want = cases[i].want, threads = 99;
		int ret = kswapd_threads_parse(cases[i].text, cases[i].min, &threads);

		KUNIT_EXPECT_EQ_MSG(test, ret, min(want, 0), "\"%s\"", cases[i].text);
		/* What is refused leaves the setting alone. */
		if (want < 0)
			want = 99;
		KUNIT_EXPECT_EQ_MSG(test, threads, want, "\"%s\"", cases[i].text);
	}
}

static int creations_left;

static struct task_struct *create_some(struct kswapd_helper *helper)
{
	struct task_struct *task;

	if (!creations_left--)
		return ERR_PTR(-ENOMEM);
	kunit_deactivate_static_stub(kunit_get_current_test(), kswapd_helper_create);
	task = kswapd_helper_create(helper);
	kunit_activate_static_stub(kunit_get_current_test(), kswapd_helper_create, create_some);
	return task;
}

/* Whichever creation fails, the node keeps the threads that it had. */
static void a_failed_start_changes_nothing(struct kunit *test)
{
	int nid = first_online_node;
	unsigned int had = kswapd_threads_of(nid);

	if (had != 1)
		kunit_skip(test, "booted with kswapd_threads=%u", had);
	for (unsigned int threads = 1; threads <= 3; threads += 2) {
		KUNIT_ASSERT_EQ(test, kswapd_threads_set(threads), 0);
		KUNIT_EXPECT_EQ(test, kswapd_threads_of(nid), threads);
		for (int left = 0; left < 3; left++) {
			creations_left = left;
			kunit_activate_static_stub(test, kswapd_helper_create, create_some);
			KUNIT_EXPECT_EQ(test, kswapd_threads_set(KSWAPD_THREADS_MAX), -ENOMEM);
			kunit_deactivate_static_stub(test, kswapd_helper_create);
			KUNIT_EXPECT_EQ(test, kswapd_threads_of(nid), threads);
		}
		KUNIT_EXPECT_EQ(test, kswapd_threads_set(KSWAPD_THREADS_MAX), 0);
		KUNIT_EXPECT_EQ(test, kswapd_threads_of(nid), KSWAPD_THREADS_MAX);
	}
	KUNIT_EXPECT_EQ(test, kswapd_threads_set(1), 0);
	KUNIT_EXPECT_EQ(test, kswapd_threads_of(nid), 1);
}

static struct kunit_case kswapd_helpers_cases[] = {
	KUNIT_CASE(scale_grows_while_it_helps),
	KUNIT_CASE(scale_keeps_who_helps),
	KUNIT_CASE(scale_lets_go_who_helps_no_more),
	KUNIT_CASE(scale_judges_a_trickle),
	KUNIT_CASE(scale_needs_pressure),
	KUNIT_CASE(scale_stops_at_the_ceiling),
	KUNIT_CASE(scale_is_none_without_progress),
	KUNIT_CASE(scale_is_none_after_a_failed_pass),
	KUNIT_CASE(scale_steps_back_where_nothing_is_gained),
	KUNIT_CASE(scale_goes_step_by_step_when_the_load_ends),
	KUNIT_CASE(scale_does_not_flap),
	KUNIT_CASE(scale_judges_the_first_helper),
	KUNIT_CASE(scale_judges_across_passes),
	KUNIT_CASE(scale_takes_a_lower_ceiling_for_no_verdict),
	KUNIT_CASE(scale_survives_odd_windows),
	KUNIT_CASE(the_gap_is_divided),
	KUNIT_CASE(a_boost_is_no_pressure),
	KUNIT_CASE(what_settings_are_accepted),
	KUNIT_CASE(a_failed_start_changes_nothing),
#ifdef CONFIG_LRU_GEN
	KUNIT_CASE(a_helper_keeps_its_own_walk),
#endif
	{}
};

static struct kunit_suite kswapd_helpers_suite = {
	.name = "kswapd_helpers",
	.test_cases = kswapd_helpers_cases,
};

kunit_test_suite(kswapd_helpers_suite);

MODULE_DESCRIPTION("KUnit tests for the helpers of kswapd");
MODULE_LICENSE("GPL");
