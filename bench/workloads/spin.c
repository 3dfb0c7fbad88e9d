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

#include "lab.h"

/* About 0.1 ms in an emulated guest: the clock is read rarely, and the end is met well enough. */
#define ROUND	20000

int main(int argc, char **argv)
{
	double seconds = argc == 2 ? atof(argv[1]) : 0, end;
	volatile uint64_t result;
	uint64_t x = RANDOM_SEED;
	unsigned long loops = 0;
	struct timespec used;

	if (seconds <= 0) {
		fprintf(stderr, "usage: spin SECONDS\n");
		return 2;
	}
	end = now() + seconds;
	while (now() < end) {
		for (int i = 0; i < ROUND; i++)
			next_random(&x);
		/* Without somebody who reads it, the work would be optimised away. */
		result = x;
		loops++;
	}
	(void)result;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	printf("loops=%lu cpu_ms=%.0f\n", loops, used.tv_sec * 1e3 + used.tv_nsec / 1e6);
	return 0;
}
