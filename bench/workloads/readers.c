// SPDX-License-Identifier: GPL-2.0-only
/*
 * Readers that stream through block devices or files: the page-cache hog of the lab.
 *
 * readers N SECONDS fadvise|mmap|read|direct PATH...
 *
 * N processes, each at an offset of its own in PATH number i modulo the paths. fadvise fills the page cache without
 * copying, mmap maps and touches, read copies, direct bypasses the page cache. Prints one line: kib= (asked for: less
 * may have come, fadvise does not tell), ms= (of the window).
 *
 * READERS_WARM		seconds before the window begins, or "signal": it begins with SIGUSR1; lockstep ends with it
 * READERS_DIR		folder for vmstat.before and vmstat.after: /proc/vmstat at both edges of the window, and
 *			psi_some_us and psi_full_us of /proc/pressure/memory
 * READERS_CGROUPS	reader i moves into the cgroup of that name with i modulo 8 after it
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lab.h"
#include "mark.h"

#define STEP		(1UL << 20)
#define MAX_READERS	256

static struct shared {
	atomic_int stop;
	atomic_ulong kib[MAX_READERS];
} *shared;

static void step(int fd, char mode, off_t at, char *buf)
{
	char *map;

	switch (mode) {
	case 'f':
		if (posix_fadvise(fd, at, STEP, POSIX_FADV_WILLNEED))
			die("posix_fadvise");
		break;
	case 'm':
		map = mmap(NULL, STEP, PROT_READ, MAP_SHARED, fd, at);
		if (map == MAP_FAILED)
			die("mmap");
		for (size_t i = 0; i < STEP; i += 4096)
			(void)*(volatile char *)(map + i);
		munmap(map, STEP);
		break;
	default:
		if (pread(fd, buf, STEP, at) != (ssize_t)STEP)
			die("read: the file is too short, or the device failed");
	}
}

static void reader(int me, int nr, char mode, const char *path)
{
	const char *cgroups = getenv("READERS_CGROUPS");
	int fd = open(path, O_RDONLY | (mode == 'd' ? O_DIRECT : 0));
	char *buf = aligned_alloc(4096, STEP), file[256];
	unsigned long nr_steps, at;
	off_t size;

	if (fd < 0 || !buf)
		die(path);
	if (cgroups) {
		snprintf(file, sizeof(file), "%s%d/cgroup.procs", cgroups, me % 8);
		int procs = open(file, O_WRONLY);

		if (procs < 0 || write(procs, "0", 1) != 1)
			die(file);
		close(procs);
	}
	size = lseek(fd, 0, SEEK_END);
	nr_steps = size / STEP;
	if (!nr_steps)
		die("a path is smaller than 1 MiB");
	at = nr_steps / nr * me;
	while (!atomic_load(&shared->stop)) {
		step(fd, mode, (off_t)(at % nr_steps) * STEP, buf);
		at++;
		atomic_fetch_add(&shared->kib[me], STEP >> 10);
	}
	_exit(0);
}

static unsigned long total_kib(int nr)
{
	unsigned long kib = 0;

	for (int i = 0; i < nr; i++)
		kib += atomic_load(&shared->kib[i]);
	return kib;
}

/* What is read at both edges of the window, as text. */
static struct edge {
	char vmstat[1 << 16];
	char psi[256];
	unsigned long kib;
} edges[2];

static void read_whole(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY);
	size_t have = 0;
	ssize_t got;

	if (fd < 0)
		die(path);
	while (have + 1 < size && (got = read(fd, buf + have, size - 1 - have)) > 0)
		have += got;
	close(fd);
	buf[have] = '\0';
}

/* The counters; as further ones how long tasks were stalled for memory. */
static void write_down(const char *dir, const char *name, const struct edge *edge)
{
	unsigned long some, full;
	char path[512];
	FILE *f;

	if (sscanf(edge->psi, "some %*s %*s %*s total=%lu full %*s %*s %*s total=%lu", &some, &full) != 2)
		die("/proc/pressure/memory");
	snprintf(path, sizeof(path), "%s/vmstat.%s", dir, name);
	f = fopen(path, "w");
	if (!f || fprintf(f, "%spsi_some_us %lu\npsi_full_us %lu\n", edge->vmstat, some, full) < 0 || fclose(f))
		die(path);
}

/* Wait until the window is to begin. */
static void warm_up(const char *warm, const sigset_t *start)
{
	int number;

	if (!warm)
		return;
	if (!strcmp(warm, "signal"))
		sigwait(start, &number);
	else
		nap(atof(warm));
}

int main(int argc, char **argv)
{
	const char *dir = getenv("READERS_DIR"), *warm = getenv("READERS_WARM");
	int nr = argc > 4 ? atoi(argv[1]) : 0;
	double seconds = argc > 4 ? atof(argv[2]) : 0;
	bool bad = false;
	double start, end;
	static pid_t pids[MAX_READERS];
	int status;
	sigset_t go;

	if (nr < 1 || nr > MAX_READERS || seconds <= 0 || !strchr("fmrd", argv[3][0])) {
		fprintf(stderr, "usage: readers N SECONDS fadvise|mmap|read|direct PATH...\n");
		return 2;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die("mmap");
	/* Blocked from the first moment on: nobody who waits for it may be killed by it. */
	sigemptyset(&go);
	sigaddset(&go, SIGUSR1);
	sigprocmask(SIG_BLOCK, &go, NULL);
	for (int i = 0; i < nr; i++) {
		pids[i] = fork();
		if (pids[i] < 0)
			die("fork");
		if (!pids[i])
			reader(i, nr, argv[3][0], argv[4 + i % (argc - 4)]);
	}
	warm_up(warm, &go);
	watch_undisturbed();
	/* Nothing comes between the window and what the data and the direct reclaims in it are counted by. */
	if (dir) {
		read_whole("/proc/pressure/memory", edges[0].psi, sizeof(edges[0].psi));
		read_whole("/proc/vmstat", edges[0].vmstat, sizeof(edges[0].vmstat));
	}
	edges[0].kib = total_kib(nr);
	start = now();
	MARK(MARK_BEGIN);
	sleep_until_ns((uint64_t)((start + seconds) * 1e9));
	MARK(MARK_END);
	end = now();
	edges[1].kib = total_kib(nr);
	if (dir) {
		read_whole("/proc/vmstat", edges[1].vmstat, sizeof(edges[1].vmstat));
		read_whole("/proc/pressure/memory", edges[1].psi, sizeof(edges[1].psi));
	}
	/* The last reader that closes a device frees its whole page cache, which takes some 20 s in lockstep. */
	if (warm)
		MARK(MARK_OFF);
	if (dir) {
		write_down(dir, "before", &edges[0]);
		write_down(dir, "after", &edges[1]);
	}
	atomic_store(&shared->stop, 1);
	for (int i = 0; i < nr; i++)
		bad |= waitpid(pids[i], &status, 0) < 0 || status;
	printf("kib=%lu ms=%.0f\n", edges[1].kib - edges[0].kib, (end - start) * 1000);
	return bad;
}
