/* SPDX-License-Identifier: GPL-2.0-only */
/* What the tests of reclaim share: short files of /proc, /sys and cgroups, and the clock. */
#ifndef RECLAIM_UTIL_H
#define RECLAIM_UTIL_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Seconds of a clock that only goes forward. */
static inline double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

/* The first line of a file; 0 or a negative errno. */
static inline int read_text(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY);
	ssize_t len;

	if (fd < 0)
		return -errno;
	len = read(fd, buf, size - 1);
	close(fd);
	if (len < 0)
		return -errno;
	buf[len] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	return 0;
}

/* 0 or a negative errno. */
static inline int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_TRUNC);
	int ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

/* The figure of that name in a file of "name figure" lines, or -1 without it. */
static inline long read_figure(const char *path, const char *name)
{
	FILE *f = fopen(path, "r");
	long value = -1, v;
	char key[64];

	while (f && fscanf(f, "%63s %ld", key, &v) == 2) {
		if (!strcmp(key, name))
			value = v;
	}
	if (f)
		fclose(f);
	return value;
}

#endif
