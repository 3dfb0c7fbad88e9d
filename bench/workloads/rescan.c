// SPDX-License-Identifier: GPL-2.0-only
/*
 * Look the same few files up in every round, with a stream of data between the rounds: is their metadata still there?
 *
 * rescan SECONDS FOLDER COUNT STRIDE STREAM_MIB DEVICE DISK
 *
 * A round drops inodes and dentries (not the page cache), looks up FOLDER/1, FOLDER/1+STRIDE and so on, COUNT files, and
 * then reads STREAM_MIB of DEVICE ahead. DISK is the name in /proc/diskstats of the disk below FOLDER. Prints one line:
 * rounds=, first_kib=, first_us= and first_cpu_us= of the first round, second_kib= of the second, later_kib= and
 * later_us= of a later one in the mean (what was read from DISK, how long the look-ups took, and on the CPU).
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lab.h"

#define STEP (1UL << 20)

static double clock_now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static unsigned long kib_read(const char *disk)
{
	unsigned long sectors = 0, value;
	char line[512], name[64];
	FILE *f = fopen("/proc/diskstats", "r");

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*u %*u %63s %*u %*u %lu", name, &value) == 2 && !strcmp(name, disk))
			sectors = value;
	}
	if (f)
		fclose(f);
	return sectors / 2;
}

static void drop_slab(void)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);

	if (fd < 0 || write(fd, "2", 1) != 1)
		die("/proc/sys/vm/drop_caches");
	close(fd);
}

int main(int argc, char **argv)
{
	double seconds = argc == 8 ? atof(argv[1]) : 0, start, later_us = 0, first_us = 0, first_cpu_us = 0;
	unsigned long count, stride, mib, at = 0, steps, first_kib = 0, second_kib = 0, later_kib = 0;
	unsigned long rounds = 0;
	int stream, folder;

	if (seconds <= 0) {
		fprintf(stderr, "usage: rescan SECONDS FOLDER COUNT STRIDE STREAM_MIB DEVICE DISK\n");
		return 2;
	}
	count = strtoul(argv[3], NULL, 0);
	stride = strtoul(argv[4], NULL, 0);
	mib = strtoul(argv[5], NULL, 0);
	/* Held open: the last close of a block device empties its cache. */
	stream = open(argv[6], O_RDONLY);
	folder = open(argv[2], O_RDONLY | O_DIRECTORY);
	if (stream < 0 || folder < 0)
		die(stream < 0 ? argv[6] : argv[2]);
	steps = lseek(stream, 0, SEEK_END) / STEP;
	start = now();
	while (rounds < 4 || now() - start < seconds) {
		unsigned long kib;
		double us, cpu;

		drop_slab();
		kib = kib_read(argv[7]);
		us = now();
		cpu = clock_now(CLOCK_PROCESS_CPUTIME_ID);
		for (unsigned long i = 0; i < count; i++) {
			char name[32];
			struct stat st;

			snprintf(name, sizeof(name), "%lu", 1 + i * stride);
			if (fstatat(folder, name, &st, 0))
				die(name);
		}
		us = (now() - us) * 1e6;
		cpu = (clock_now(CLOCK_PROCESS_CPUTIME_ID) - cpu) * 1e6;
		kib = kib_read(argv[7]) - kib;
		if (rounds == 0) {
			first_kib = kib;
			first_us = us;
			first_cpu_us = cpu;
		} else if (rounds == 1) {
			second_kib = kib;
		} else {
			later_kib += kib;
			later_us += us;
		}
		rounds++;
		for (unsigned long i = 0; i < mib; i++, at++) {
			if (posix_fadvise(stream, at % steps * STEP, STEP, POSIX_FADV_WILLNEED))
				die("posix_fadvise");
		}
	}
	printf("rounds=%lu first_kib=%lu first_us=%.0f first_cpu_us=%.0f second_kib=%lu later_kib=%.0f later_us=%.0f\n",
	       rounds, first_kib, first_us, first_cpu_us, second_kib, (double)later_kib / (rounds - 2),
	       later_us / (rounds - 2));
	return 0;
}
