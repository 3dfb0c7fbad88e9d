// SPDX-License-Identifier: GPL-2.0-only
/* Streaming writes through mappings: a large file alone, then file and anonymous memory in turn. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lab.h"

#define MIB (1UL << 20)

/* A new sparse file of that size: every page is first dirtied through the mapping, as in the seed's test. */
static char *map_file(const char *path, unsigned long mib)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	char *map;

	if (fd < 0 || ftruncate(fd, mib * MIB))
		die(path);
	map = mmap(NULL, mib * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		die("mmap of the file");
	close(fd);
	return map;
}

static unsigned long count(const char *word)
{
	char *end;
	unsigned long number;

	errno = 0;
	number = strtoul(word, &end, 10);
	if (errno || *end || end == word || !number) {
		fprintf(stderr, "mmap-strm: %s: write a number of MiB above 0\n", word);
		exit(2);
	}
	return number;
}

int main(int argc, char **argv)
{
	unsigned long alone, mixed, anon_mib, i;
	double start, middle, end;
	char *file, *anon;

	if (argc != 6) {
		fprintf(stderr, "usage: mmap-strm FILE1 MIB FILE2 MIB ANON_MIB\n");
		return 2;
	}
	alone = count(argv[2]);
	mixed = count(argv[4]);
	anon_mib = count(argv[5]);

	start = now();
	file = map_file(argv[1], alone);
	for (i = 0; i < alone; i++)
		memset(file + i * MIB, 1, MIB);
	/* Unmapped without msync: what is still dirty is the flushers' work, as with any program that ends. */
	munmap(file, alone * MIB);
	middle = now();

	file = map_file(argv[3], mixed);
	anon = mmap(NULL, anon_mib * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (anon == MAP_FAILED)
		die("mmap of anonymous memory");
	/* Base pages only: huge ones would make the run depend on fragmentation. */
	if (madvise(anon, anon_mib * MIB, MADV_NOHUGEPAGE) && errno != EINVAL)
		die("madvise");
	for (i = 0; i < mixed; i++) {
		memset(file + i * MIB, 2, MIB);
		/* Round and round: anonymous memory is used again, the file is not. */
		memset(anon + i % anon_mib * MIB, 3, MIB);
	}
	end = now();
	printf("alone_s=%.3f mixed_s=%.3f\n", middle - start, end - middle);
	return 0;
}
