// SPDX-License-Identifier: GPL-2.0-only
/*
 * A task with huge pages that runs on another node than its memory, when that node has free memory but hardly any huge
 * page of it: how often does NUMA balancing take a huge page off the LRU in vain?
 *
 * hugefolios SECONDS SOURCE TARGET HUGE_MIB SINGLE_MIB
 *
 * Fills node TARGET, then frees SINGLE_MIB of it, every other page, and takes huge blocks away until KEEP are left. A
 * child has HUGE_MIB of huge pages on node SOURCE, moves to TARGET's CPUs and uses them for SECONDS. Prints one line:
 * huge= (huge pages on SOURCE at first), huge_left= (there at the end), blocks= (free huge blocks on TARGET at first),
 * free_kib= and high_kib= (TARGET's free memory and high watermark at first), hint_faults= (of the child), passes=
 * (how often it went over its memory). Needs root, defrag of huge pages off and no background compaction.
 *
 * HUGEFOLIOS_DIR	folder for vmstat.before and vmstat.after, /proc/vmstat at both edges of the window
 * HUGEFOLIOS_CGROUP	an empty cgroup with a memory controller, for the child
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lab.h"
#include "mark.h"

#define PAGE		4096UL
#define HUGE		(2UL << 20)
#define KEEP		4
#define MAX_HUGE	512
/* Above the high watermark while the node is being filled: kswapd must stay asleep. */
#define SPARE_KIB	8192L

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED	24
#endif
#define BIND		2
#define ONFAULT		1

static struct shared {
	atomic_int ready;
	atomic_int go;
	atomic_int stop;
	atomic_ulong passes;
	int huge;
	int left;
} *shared;

static char text[1 << 18];

static size_t slurp(const char *path)
{
	int fd = open(path, O_RDONLY);
	size_t have = 0;
	ssize_t got;

	if (fd < 0)
		die(path);
	while ((got = read(fd, text + have, sizeof(text) - 1 - have)) > 0)
		have += got;
	close(fd);
	text[have] = '\0';
	return have;
}

static long after(const char *from, const char *word)
{
	const char *found = strstr(from, word);

	if (!found) {
		fprintf(stderr, "hugefolios: /proc shows no \"%s\"\n", word);
		exit(1);
	}
	return strtol(found + strlen(word), NULL, 10);
}

/* Free memory and high watermark of a node without its tiny DMA zone, in KiB. */
static void look(int node, long *free_kib, long *high_kib)
{
	char want[32];

	*free_kib = 0;
	*high_kib = 0;
	slurp("/proc/zoneinfo");
	snprintf(want, sizeof(want), "Node %d, zone ", node);
	for (const char *zone = strstr(text, want); zone; zone = strstr(zone, want)) {
		char name[16];

		zone += strlen(want);
		if (sscanf(zone, "%15s", name) != 1 || !strcmp(name, "DMA") || !after(zone, "\n        managed "))
			continue;
		*free_kib += after(zone, "\n  pages free ") * 4;
		*high_kib += after(zone, "\n        high ") * 4;
	}
	if (!*high_kib) {
		fprintf(stderr, "hugefolios: there is no node %d\n", node);
		exit(1);
	}
}

/* Free blocks on a node that a huge page fits into. */
static long huge_blocks(int node)
{
	char want[32], *line, *save;
	long blocks = 0;

	slurp("/proc/buddyinfo");
	snprintf(want, sizeof(want), "Node %d, ", node);
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *words = strstr(line, "zone"), name[16];
		int order = 0, used;

		if (strncmp(line, want, strlen(want)) || !words || sscanf(words, "zone %15s%n", name, &used) != 1 ||
		    !strcmp(name, "DMA"))
			continue;
		for (words += used; *words; order++) {
			char *end;
			long count = strtol(words, &end, 10);

			if (end == words)
				break;
			words = end;
			if (order >= 9)
				blocks += count << (order - 9);
		}
	}
	return blocks;
}

/* Run on a node's CPUs only. */
static void move_to(int node)
{
	char path[64], *at = text;
	cpu_set_t set;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
	slurp(path);
	CPU_ZERO(&set);
	while (*at >= '0' && *at <= '9') {
		long first = strtol(at, &at, 10), last = first;

		if (*at == '-')
			last = strtol(at + 1, &at, 10);
		for (long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++)
			CPU_SET(cpu, &set);
		if (*at == ',')
			at++;
	}
	if (!CPU_COUNT(&set)) {
		fprintf(stderr, "hugefolios: node %d has no CPU\n", node);
		exit(1);
	}
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

static char *map_huge_aligned(size_t size, int advice)
{
	char *map = mmap(NULL, size + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		die("mmap");
	map += -(uintptr_t)map & (HUGE - 1);
	if (madvise(map, size, advice))
		die("madvise: are huge pages built in?");
	return map;
}

static void bind(char *map, size_t size, int node)
{
	unsigned long mask = 1UL << node;

	if (syscall(SYS_mbind, map, size, BIND, &mask, sizeof(mask) * 8, 0))
		die("mbind");
}

/* How many of the huge pages' first pages lie on a node. */
static int count_on(char *map, size_t size, int node)
{
	static void *pages[MAX_HUGE];
	static int nodes[MAX_HUGE];
	int nr = size / HUGE, found = 0;

	for (int i = 0; i < nr; i++)
		pages[i] = map + i * HUGE;
	if (syscall(SYS_move_pages, 0, (unsigned long)nr, pages, NULL, nodes, 0))
		die("move_pages");
	for (int i = 0; i < nr; i++)
		found += nodes[i] == node;
	return found;
}

static void child(int source, int target, size_t size)
{
	const char *cgroup = getenv("HUGEFOLIOS_CGROUP");
	char path[256], *map;
	volatile char *use;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (cgroup) {
		int fd;

		snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
		fd = open(path, O_WRONLY);
		if (fd < 0 || write(fd, "0", 1) != 1)
			die(path);
		close(fd);
	}
	move_to(source);
	map = map_huge_aligned(size, MADV_HUGEPAGE);
	for (size_t i = 0; i < size; i += PAGE)
		map[i] = 1;
	shared->huge = count_on(map, size, source);
	slurp("/proc/self/smaps_rollup");
	if (after(text, "AnonHugePages:") * 1024UL < size) {
		fprintf(stderr, "hugefolios: node %d has not enough free huge pages for the task\n", source);
		exit(1);
	}
	atomic_store(&shared->ready, 1);
	while (!atomic_load(&shared->go))
		nap(0.01);
	move_to(target);
	use = map;
	while (!atomic_load(&shared->stop)) {
		for (size_t i = 0; i < size; i += PAGE)
			use[i]++;
		atomic_fetch_add(&shared->passes, 1);
	}
	shared->left = count_on(map, size, source);
	_exit(0);
}

/* Leave the target with its free memory in single pages. What was freed is its return value, in KiB. */
static long fragment(int target, long single_kib)
{
	long free_kib, high_kib, small = 0, freed = 0, blocks, tries = 0;
	size_t size, next = 0;
	char *huge, *page;

	look(target, &free_kib, &high_kib);
	size = ((size_t)free_kib * 1024 + HUGE) & ~(HUGE - 1);
	huge = map_huge_aligned(size, MADV_HUGEPAGE);
	bind(huge, size, target);
	page = map_huge_aligned(size, MADV_NOHUGEPAGE);
	bind(page, size, target);
	/* Locked, so that neither reclaim nor (vm.compact_unevictable_allowed=0) compaction moves what stays. */
	if (syscall(SYS_mlock2, page, size, ONFAULT))
		die("mlock2");
	/* Most of the node in huge pages, which is fast; the rest in small ones, twice what is to be freed. */
	while (free_kib > high_kib + 2 * (SPARE_KIB + single_kib) && next + HUGE <= size) {
		huge[next] = 1;
		next += HUGE;
		look(target, &free_kib, &high_kib);
	}
	while (free_kib > high_kib + SPARE_KIB && (small + 256) * PAGE <= size) {
		for (int i = 0; i < 256; i++)
			page[small++ * PAGE] = 1;
		look(target, &free_kib, &high_kib);
	}
	for (long i = 0; i < small && freed < single_kib; i += 2, freed += 4) {
		if (madvise(page + i * PAGE, PAGE, MADV_DONTNEED_LOCKED))
			die("madvise");
	}
	/* What was spared is in large blocks: take those, now that free memory allows it. */
	for (blocks = huge_blocks(target); blocks > KEEP && tries < 64 && next + HUGE <= size; tries++) {
		huge[next] = 1;
		next += HUGE;
		blocks = huge_blocks(target);
	}
	return freed;
}

static void keep(const char *edge)
{
	const char *dir = getenv("HUGEFOLIOS_DIR");
	size_t len = slurp("/proc/vmstat");
	char path[256];
	FILE *f;

	if (!dir)
		return;
	snprintf(path, sizeof(path), "%s/vmstat.%s", dir, edge);
	f = fopen(path, "w");
	if (!f || fwrite(text, 1, len, f) != len || fclose(f))
		die(path);
}

/* Hinting faults so far: of the child's cgroup, or of all. */
static long hint_faults(void)
{
	const char *cgroup = getenv("HUGEFOLIOS_CGROUP");
	char path[256];

	if (!cgroup) {
		slurp("/proc/vmstat");
		return after(text, "\nnuma_hint_faults ");
	}
	snprintf(path, sizeof(path), "%s/memory.stat", cgroup);
	slurp(path);
	return after(text, "\nnuma_hint_faults ");
}

int main(int argc, char **argv)
{
	double seconds = argc == 6 ? atof(argv[1]) : 0;
	int source, target, status;
	size_t huge_size;
	long single_kib, free_kib, high_kib, blocks, faults;
	pid_t pid;

	if (argc == 6) {
		source = atoi(argv[2]);
		target = atoi(argv[3]);
		huge_size = strtoul(argv[4], NULL, 10) << 20;
		single_kib = strtol(argv[5], NULL, 10) << 10;
	}
	if (argc != 6 || seconds <= 0 || source == target || huge_size < HUGE || huge_size % HUGE ||
	    huge_size / HUGE > MAX_HUGE || single_kib < 1) {
		fprintf(stderr, "usage: hugefolios SECONDS SOURCE TARGET HUGE_MIB SINGLE_MIB\n");
		return 2;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die("mmap");
	pid = fork();
	if (pid < 0)
		die("fork");
	if (!pid)
		child(source, target, huge_size);
	while (!atomic_load(&shared->ready)) {
		if (waitpid(pid, &status, WNOHANG))
			return 1;
		nap(0.01);
	}
	if (fragment(target, single_kib) < single_kib) {
		fprintf(stderr, "hugefolios: node %d is too small or too full for %ld KiB in single pages\n", target,
			single_kib);
		return 1;
	}
	look(target, &free_kib, &high_kib);
	blocks = huge_blocks(target);
	keep("before");
	faults = hint_faults();
	MARK(MARK_BEGIN);
	atomic_store(&shared->go, 1);
	nap(seconds);
	MARK(MARK_END);
	faults = hint_faults() - faults;
	keep("after");
	atomic_store(&shared->stop, 1);
	if (waitpid(pid, &status, 0) < 0 || status) {
		fprintf(stderr, "hugefolios: the task with huge pages has failed\n");
		return 1;
	}
	printf("huge=%d huge_left=%d blocks=%ld free_kib=%ld high_kib=%ld hint_faults=%ld passes=%lu\n",
	       shared->huge, shared->left, blocks, free_kib, high_kib, faults, atomic_load(&shared->passes));
	return 0;
}
