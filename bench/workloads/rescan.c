// SPDX-License-Identifier: GPL-2.0-only
/*
 * Look the same few files up in every round, with a stream of data between the rounds: is their metadata still there?
 *
 * rescan ROUNDS FOLDER COUNT STRIDE STREAM_MIB DEVICE DISK
 *
 * A round drops inodes and dentries (not the page cache), looks up FOLDER/1, FOLDER/1+STRIDE and so on, COUNT files, and
 * then reads STREAM_MIB of DEVICE ahead. DISK is the name in /proc/diskstats of the disk below FOLDER. Prints one line,
 * what was read from DISK: first_kib= in the first round, second_kib= in the second, later_kib= in a later one in the
 * mean.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lab.h"

#define STEP (1UL << 20)

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
	unsigned long rounds = argc == 8 ? strtoul(argv[1], NULL, 0) : 0, count, stride, mib, at = 0, steps;
	unsigned long first_kib = 0, second_kib = 0, later_kib = 0;
	int stream, folder;

	if (rounds < 3) {
		fprintf(stderr, "usage: rescan ROUNDS FOLDER COUNT STRIDE STREAM_MIB DEVICE DISK, 3 rounds or more\n");
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
	for (unsigned long round = 0; round < rounds; round++) {
		unsigned long kib;

		drop_slab();
		kib = kib_read(argv[7]);
		for (unsigned long i = 0; i < count; i++) {
			char name[32];
			struct stat st;

			snprintf(name, sizeof(name), "%lu", 1 + i * stride);
			if (fstatat(folder, name, &st, 0))
				die(name);
		}
		kib = kib_read(argv[7]) - kib;
		if (round == 0)
			first_kib = kib;
		else if (round == 1)
			second_kib = kib;
		else
			later_kib += kib;
		for (unsigned long i = 0; i < mib; i++, at++) {
			if (posix_fadvise(stream, at % steps * STEP, STEP, POSIX_FADV_WILLNEED))
				die("posix_fadvise");
		}
	}
	printf("first_kib=%lu second_kib=%lu later_kib=%.0f\n", first_kib, second_kib,
	       (double)later_kib / (rounds - 2));
	return 0;
}
