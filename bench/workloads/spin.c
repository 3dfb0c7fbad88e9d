// SPDX-License-Identifier: GPL-2.0-only
/*
 * A bystander of the lab that only computes and never allocates: what do others take from it?
 *
 * spin SECONDS [WORKERS [locked]]
 *
 * Prints one line: loops= (rounds of the same work), cpu_ms= (CPU time it got). Workers are threads, each on a CPU of its
 * own, from CPU 1 on; locked: ten loops at a time are done under one lock, which is handed over in the order of asking.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lab.h"
#include "mark.h"

/* About 24,000 instructions: the clock, or the end, is looked at rarely, and is met well enough. */
#define ROUND		2000
/* Loops for each turn under the lock. */
#define TURN		10
#define MAX_WORKERS	64

static struct {
	atomic_uint ready;
	atomic_bool go;
	atomic_bool stop;
	bool locked;
	/* In cache lines of their own. */
	_Alignas(64) atomic_uint next;
	_Alignas(64) atomic_uint serving;
} shared;

static void work(uint64_t *x)
{
	volatile uint64_t result;

	for (int i = 0; i < ROUND; i++)
		next_random(x);
	/* Without somebody who reads it, the work would be optimised away. */
	result = *x;
	(void)result;
}

static void *worker(void *number)
{
	int cpu = 1 + (int)(intptr_t)number;
	uint64_t x = RANDOM_SEED, loops = 0;
	cpu_set_t own;

	CPU_ZERO(&own);
	CPU_SET(cpu, &own);
	if (sched_setaffinity(0, sizeof(own), &own))
		die("there are not enough CPUs");
	atomic_fetch_add(&shared.ready, 1);
	while (!atomic_load(&shared.go))
		;
	while (!atomic_load_explicit(&shared.stop, memory_order_relaxed)) {
		if (shared.locked) {
			unsigned int ticket = atomic_fetch_add(&shared.next, 1);

			while (atomic_load(&shared.serving) != ticket)
				__builtin_ia32_pause();
		}
		for (int i = 0; i < (shared.locked ? TURN : 1); i++) {
			work(&x);
			/* Those that still come to their turn are past the end. */
			loops += !atomic_load_explicit(&shared.stop, memory_order_relaxed);
		}
		if (shared.locked)
			atomic_fetch_add(&shared.serving, 1);
	}
	return (void *)loops;
}

/* Loops of all workers in that time. */
static uint64_t together(double seconds, int workers)
{
	pthread_t threads[MAX_WORKERS];
	uint64_t sum = 0;
	void *loops;

	for (int i = 0; i < workers; i++)
		if (pthread_create(&threads[i], NULL, worker, (void *)(intptr_t)i))
			die("pthread_create");
	while (atomic_load(&shared.ready) < (unsigned int)workers)
		nap(0.01);
	atomic_store(&shared.go, true);
	MARK(MARK_BEGIN);
	nap(seconds);
	atomic_store(&shared.stop, true);
	MARK(MARK_END);
	for (int i = 0; i < workers; i++) {
		pthread_join(threads[i], &loops);
		sum += (uintptr_t)loops;
	}
	return sum;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 && argc < 5 ? atof(argv[1]) : 0, end;
	int workers = argc > 2 ? atoi(argv[2]) : 0;
	uint64_t x = RANDOM_SEED, loops = 0;
	struct timespec used;

	shared.locked = argc == 4 && !strcmp(argv[3], "locked");
	if (seconds <= 0 || (argc > 2 && (workers < 1 || workers > MAX_WORKERS)) || (argc == 4 && !shared.locked)) {
		fprintf(stderr, "usage: spin SECONDS [WORKERS [locked]]\n");
		return 2;
	}
	if (workers) {
		loops = together(seconds, workers);
	} else {
		end = now() + seconds;
		while (now() < end) {
			work(&x);
			loops++;
		}
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	printf("loops=%lu cpu_ms=%.0f\n", loops, used.tv_sec * 1e3 + used.tv_nsec / 1e6);
	return 0;
}
