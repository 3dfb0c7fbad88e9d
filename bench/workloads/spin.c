// SPDX-License-Identifier: GPL-2.0-only
/*
 * A bystander of the lab that only computes and never allocates: what do others take from it?
 *
 * spin SECONDS
 *
 * Prints one line: loops= (rounds of the same work), cpu_ms= (CPU time it got).
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* About 0.1 ms in an emulated guest: the clock is read rarely, and the end is met well enough. */
#define ROUND	20000

static double clock_now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	double seconds = argc == 2 ? atof(argv[1]) : 0, end;
	volatile uint64_t result;
	uint64_t x = 88172645463325252ULL;
	unsigned long loops = 0;

	if (seconds <= 0) {
		fprintf(stderr, "usage: spin SECONDS\n");
		return 2;
	}
	end = clock_now(CLOCK_MONOTONIC) + seconds;
	while (clock_now(CLOCK_MONOTONIC) < end) {
		for (int i = 0; i < ROUND; i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
		}
		/* Without somebody who reads it, the work would be optimised away. */
		result = x;
		loops++;
	}
	(void)result;
	printf("loops=%lu cpu_ms=%.0f\n", loops, clock_now(CLOCK_PROCESS_CPUTIME_ID) * 1000);
	return 0;
}
