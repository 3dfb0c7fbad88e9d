// SPDX-License-Identifier: GPL-2.0-only
/*
 * Watch free memory against the high watermarks: does reclaim free more than it was asked for?
 *
 * freewatch SECONDS HZ
 *
 * Samples /proc/zoneinfo HZ times a second until SECONDS are over or SIGTERM comes. The watch counts from the first
 * sample at or under the sum of high watermarks on: memory that was never used is no overshoot. Prints one line:
 * samples= (those that count), and if there are any high_pages=, peak_pages=, over_percent= (peak over high,
 * negative if under it), mean_percent= (all samples). Boosts are not part of the watermark here: a boost asks for more
 * than the watermark, and that is to be seen.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lab.h"

static volatile sig_atomic_t stop;
static char text[1 << 18];

static void on_term(int number)
{
	(void)number;
	stop = 1;
}

/* The number after a word, from here on; the word must be there. */
static long field(const char *from, const char *word)
{
	const char *found = strstr(from, word);

	if (!found) {
		fprintf(stderr, "freewatch: /proc/zoneinfo has no \"%s\"\n", word);
		exit(1);
	}
	return strtol(found + strlen(word), NULL, 10);
}

static void look(int fd, long *free_pages, long *high_pages)
{
	size_t have = 0;
	ssize_t got;

	while ((got = pread(fd, text + have, sizeof(text) - 1 - have, have)) > 0)
		have += got;
	if (got < 0)
		die("/proc/zoneinfo");
	text[have] = '\0';
	*free_pages = 0;
	*high_pages = 0;
	for (const char *zone = strstr(text, ", zone "); zone; zone = strstr(zone, ", zone ")) {
		char name[16];

		zone += strlen(", zone ");
		if (sscanf(zone, "%15s", name) != 1)
			continue;
		/* Tiny, and kept for others by lowmem_reserve: always far above its watermark. */
		if (!strcmp(name, "DMA") || !field(zone, "\n        managed "))
			continue;
		*free_pages += field(zone, "\n  pages free ");
		*high_pages += field(zone, "\n        high ") - field(zone, "\n        boost ");
	}
	if (!*high_pages) {
		fprintf(stderr, "freewatch: /proc/zoneinfo shows no watermark\n");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	struct sigaction act = { .sa_handler = on_term };
	double seconds = argc == 3 ? atof(argv[1]) : 0, hz = argc == 3 ? atof(argv[2]) : 0;
	long free_pages, high_pages, peak = 0, high_at_peak = 0;
	double over, peak_over = 0, sum = 0;
	unsigned long samples = 0;
	struct timespec start, ts;
	int fd;

	if (seconds <= 0 || hz <= 0) {
		fprintf(stderr, "usage: freewatch SECONDS HZ\n");
		return 2;
	}
	sigaction(SIGTERM, &act, NULL);
	fd = open("/proc/zoneinfo", O_RDONLY);
	if (fd < 0)
		die("/proc/zoneinfo");
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (unsigned long i = 0; !stop && i < seconds * hz; i++) {
		double when = start.tv_sec + start.tv_nsec / 1e9 + i / hz;

		ts.tv_sec = (time_t)when;
		ts.tv_nsec = (long)((when - ts.tv_sec) * 1e9);
		/* An end in the middle of a pause: the memory may be gone already, so this sample must not count. */
		if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
			continue;
		look(fd, &free_pages, &high_pages);
		if (stop || (!samples && free_pages > high_pages))
			continue;
		over = 100.0 * (free_pages - high_pages) / high_pages;
		sum += over;
		if (!samples++ || over > peak_over) {
			peak_over = over;
			peak = free_pages;
			high_at_peak = high_pages;
		}
	}
	if (samples)
		printf("samples=%lu high_pages=%ld peak_pages=%ld over_percent=%.1f mean_percent=%.1f\n", samples,
		       high_at_peak, peak, peak_over, sum / samples);
	else
		printf("samples=0\n");
	return 0;
}
