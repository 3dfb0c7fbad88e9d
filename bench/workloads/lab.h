/* SPDX-License-Identifier: GPL-2.0-only */
/* What the lab's programs share: an end with a reason, the clock, waiting, a watcher's rights, and random numbers. */
#ifndef LAB_H
#define LAB_H

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define NS_A_SECOND	1000000000ULL

/* The first state of next_random(); any but 0 would do. */
#define RANDOM_SEED	88172645463325252ULL

/* End with the reason that errno gives. */
__attribute__((noreturn)) static inline void die(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
	exit(1);
}

static inline uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NS_A_SECOND + ts.tv_nsec;
}

/* The same clock in seconds. */
static inline double now(void)
{
	return now_ns() / 1e9;
}

/* Returns at once if that time is over. */
static inline void sleep_until_ns(uint64_t when)
{
	struct timespec ts = { .tv_sec = when / NS_A_SECOND, .tv_nsec = when % NS_A_SECOND };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

static inline void nap(double seconds)
{
	sleep_until_ns(now_ns() + (uint64_t)(seconds * 1e9));
}

/*
 * For a process that only watches a load, once the load runs. The process waits neither for a CPU that the load has nor
 * for a page of its own, so that what it reads at an edge of a window is of that moment.
 */
static inline void watch_undisturbed(void)
{
	struct sched_param first = { .sched_priority = 1 };

	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		die("mlockall");
	if (sched_setscheduler(0, SCHED_FIFO, &first))
		die("SCHED_FIFO");
}

/* Marsaglia's xorshift: one step, far cheaper than what is measured with it. */
static inline uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

#endif
