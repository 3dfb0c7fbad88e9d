// SPDX-License-Identifier: GPL-2.0-only
/*
 * A small task that allocates now and then: how long do its page faults and its 4 KiB reads take?
 *
 * latency SECONDS INTERVAL_US KIB [FILE]
 *
 * Every INTERVAL_US it maps KIB of fresh memory, touches each page and unmaps; with FILE it also reads one random 4 KiB
 * block of it, after telling the kernel to forget that block. Prints one line: faults=, fault_p50_us=, fault_p99_us=,
 * fault_max_us=, and with FILE reads=, read_p50_us=, read_p99_us=, read_max_us=. Percentiles are exact to 1.6%.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "lab.h"

#define PAGE		4096UL
#define SUB_BITS	6
#define SUB		(1U << SUB_BITS)
#define NR_BUCKETS	((64 - SUB_BITS + 1) * SUB)

/* Log-linear: SUB buckets for each power of two of nanoseconds, one a nanosecond below SUB. */
struct histogram {
	uint64_t count[NR_BUCKETS];
	uint64_t total;
	uint64_t max;
};

static struct histogram faults, reads;
static char block[PAGE];

static void record(struct histogram *h, uint64_t ns)
{
	unsigned int bucket = ns;

	if (ns >= SUB) {
		unsigned int shift = 63 - __builtin_clzll(ns) - SUB_BITS;

		bucket = (shift + 1) * SUB + (unsigned int)((ns >> shift) - SUB);
	}
	h->count[bucket]++;
	h->total++;
	if (ns > h->max)
		h->max = ns;
}

/* The upper edge of the bucket in which the given part of all values ends, in microseconds. */
static double percentile(const struct histogram *h, double part)
{
	uint64_t want = (uint64_t)(h->total * part), seen = 0;

	for (unsigned int i = 0; i < NR_BUCKETS; i++) {
		uint64_t edge = i + 1;

		seen += h->count[i];
		if (seen <= want)
			continue;
		if (i >= SUB)
			edge = (uint64_t)(i % SUB + SUB + 1) << (i / SUB - 1);
		return (edge < h->max ? edge : h->max) / 1e3;
	}
	return h->max / 1e3;
}

static void probe_memory(size_t size)
{
	char *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		die("mmap");
	/* One fault a page is what is measured; a kernel without huge pages refuses this, and needs it not. */
	madvise(map, size, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < size; i += PAGE) {
		uint64_t start = now_ns();

		*(volatile char *)(map + i) = 1;
		record(&faults, now_ns() - start);
	}
	munmap(map, size);
}

static void probe_file(int fd, uint64_t nr_blocks, uint64_t *seed)
{
	uint64_t start;
	off_t at;

	at = (off_t)(next_random(seed) % nr_blocks * PAGE);
	if (posix_fadvise(fd, at, PAGE, POSIX_FADV_DONTNEED))
		die("posix_fadvise");
	start = now_ns();
	if (pread(fd, block, PAGE, at) != (ssize_t)PAGE)
		die("read");
	record(&reads, now_ns() - start);
}

static void show(const char *what, const struct histogram *h)
{
	printf("%ss=%llu %s_p50_us=%.1f %s_p99_us=%.1f %s_max_us=%.1f", what, (unsigned long long)h->total, what,
	       percentile(h, 0.5), what, percentile(h, 0.99), what, h->max / 1e3);
}

int main(int argc, char **argv)
{
	double seconds = argc > 3 ? atof(argv[1]) : 0;
	uint64_t interval = argc > 3 ? strtoull(argv[2], NULL, 10) * 1000 : 0;
	size_t size = argc > 3 ? strtoul(argv[3], NULL, 10) * 1024 : 0;
	uint64_t nr_blocks = 0, seed = RANDOM_SEED, next, end;
	int fd = -1;

	if (argc > 5 || seconds <= 0 || !interval || size < PAGE) {
		fprintf(stderr, "usage: latency SECONDS INTERVAL_US KIB [FILE]\n");
		return 2;
	}
	if (argc == 5) {
		fd = open(argv[4], O_RDONLY);
		if (fd < 0)
			die(argv[4]);
		nr_blocks = lseek(fd, 0, SEEK_END) / PAGE;
		if (!nr_blocks) {
			fprintf(stderr, "latency: %s is smaller than a block of 4 KiB\n", argv[4]);
			return 1;
		}
		/* One block at a time: no read-ahead. */
		posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	}
	/* All that is there now stays: the memory that the probe maps later is to be the only one that faults. */
	if (mlockall(MCL_CURRENT))
		die("mlockall (this needs root)");
	next = now_ns();
	end = next + (uint64_t)(seconds * 1e9);
	while (next < end) {
		sleep_until_ns(next);
		probe_memory(size);
		if (fd >= 0)
			probe_file(fd, nr_blocks, &seed);
		/* One that was held up goes on from now, instead of a burst that makes up for it. */
		next += interval;
		if (next < now_ns())
			next = now_ns();
	}
	show("fault", &faults);
	if (fd >= 0) {
		printf(" ");
		show("read", &reads);
	}
	printf("\n");
	return 0;
}
