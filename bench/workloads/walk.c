// SPDX-License-Identifier: GPL-2.0-only
/*
 * Walk a tree of files again and again: pressure on dentries, inodes and the blocks they come from.
 *
 * walk SECONDS FOLDER
 *
 * What `find FOLDER -size ...` does, without a new process (and its own page cache) for each round. Prints one line:
 * files= (looked at, by stat), walks= (rounds, with the part of the last one), ms=.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "lab.h"

static unsigned long files, first_round;
static double end;

static void walk(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY);
	struct dirent *entry;
	struct stat st;
	DIR *dir;

	if (fd < 0)
		die(name);
	dir = fdopendir(fd);
	if (!dir)
		die(name);
	while (now() < end && (entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW))
			die(entry->d_name);
		files++;
		if (S_ISDIR(st.st_mode))
			walk(fd, entry->d_name);
	}
	closedir(dir);
}

int main(int argc, char **argv)
{
	double seconds = argc == 3 ? atof(argv[1]) : 0, start;
	unsigned long rounds = 0;

	if (seconds <= 0) {
		fprintf(stderr, "usage: walk SECONDS FOLDER\n");
		return 2;
	}
	start = now();
	end = start + seconds;
	while (now() < end) {
		walk(AT_FDCWD, argv[2]);
		if (now() >= end)
			break;
		if (!rounds++)
			first_round = files;
		if (!files) {
			fprintf(stderr, "walk: %s has no files\n", argv[2]);
			return 1;
		}
	}
	printf("files=%lu", files);
	/* How many files a round has is known only after one. */
	if (first_round)
		printf(" walks=%.2f", (double)files / first_round);
	printf(" ms=%.0f\n", (now() - start) * 1000);
	return 0;
}
