// SPDX-License-Identifier: GPL-2.0-only
/*
 * NUMA balancing towards nodes that have no room.
 *
 * Stack traces show what balancing must not do: a task that is about to move a
 * misplaced folio wakes kswapd, or enters direct reclaim. The counters must
 * show what balancing leaves in place.
 *
 * The scanner is made to run faster, so that a few seconds produce enough
 * faults. Needs root, tracefs, debugfs and two nodes with memory. Swap, if
 * available, is on zram.
 */
#include "kselftest_harness.h"
#include "reclaim_util.h"

#include <linux/mempolicy.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define PAGE		4096UL
#define HUGE		(2UL << 20)
#define MAX_NODES	16
#define MAX_TASKS	(MAX_NODES / 2)

#define TRACE		TRACING "/instances/reclaim_numa"
#define SCAN		"/sys/kernel/debug/sched/numa_balancing/"
#define THP		"/sys/kernel/mm/transparent_hugepage/"
#define BALANCING	"/proc/sys/kernel/numa_balancing"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED	24
#endif
#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT	1
#endif

/* Settings for the tests, restored after each test. */
static const struct knob knobs[] = {
	{ SCAN "scan_period_max_ms", "200" },
	{ SCAN "scan_delay_ms", "100" },
	{ SCAN "scan_period_min_ms", "100" },
	/* Even on a slow machine, what is used all the time is hot. */
	{ SCAN "hot_threshold_ms", "30000" },
	/* Memory in pieces must stay in pieces. */
	{ THP "enabled", "madvise" },
	{ THP "hugepages-2048kB/enabled", "inherit" },
	{ THP "defrag", "never" },
	{ THP "khugepaged/defrag", "0" },
	{ "/proc/sys/vm/compaction_proactiveness", "0" },
	{ "/proc/sys/vm/compact_unevictable_allowed", "0" },
	/* Otherwise kswapd is woken for a boost, and a fragmented node is full for a while. */
	{ "/proc/sys/vm/watermark_boost_factor", "0" },
	/* Freed pages must be found free, not on per-cpu lists. */
	{ "/proc/sys/vm/percpu_pagelist_high_fraction", "1000" },
	/* The variants say how it goes on. */
	{ BALANCING, "0" },
};

/* Shared between the test and its tasks. */
struct shared {
	atomic_int ready, go, stop;
	long full;	/* numa_target_full before the trace was emptied */
};

/* The nodes in a list, as bits. */
static unsigned long nodes_in(const char *path)
{
	unsigned long bits = 0;
	char text[256];
	cpu_set_t set;

	if (read_text(path, text, sizeof(text)))
		return 0;
	parse_list(text, &set);
	for (int nid = 0; nid < MAX_NODES; nid++)
		bits |= (unsigned long)!!CPU_ISSET(nid, &set) << nid;
	return bits;
}

/* A node's free memory above the high watermarks of its zones, in bytes. */
static long room(int nid)
{
	return (zones_sum(nid, "free") - zones_sum(nid, "high")) * (long)PAGE;
}

static int run_on(int nid)
{
	cpu_set_t set;

	if (!node_cpus(nid, &set))
		return -1;
	return sched_setaffinity(0, sizeof(set), &set);
}

static int bind_to(char *map, size_t size, int nid)
{
	unsigned long mask = nid < 0 ? 0 : 1UL << nid;

	return syscall(SYS_mbind, map, size, nid < 0 ? MPOL_DEFAULT : MPOL_BIND,
		       nid < 0 ? NULL : &mask, nid < 0 ? 0 : sizeof(mask) * 8, 0);
}

/* Private memory, aligned for huge pages and with or without them, on a node (-1: any). */
static char *new_map(size_t size, int advice, int nid)
{
	char *map = mmap(NULL, size + HUGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (map == MAP_FAILED)
		return NULL;
	map += -(uintptr_t)map & (HUGE - 1);
	if (madvise(map, size, advice) || (nid >= 0 && bind_to(map, size, nid)))
		return NULL;
	return map;
}

#define WAKEUP		"mm_vmscan_wakeup_kswapd: "
#define RECLAIM		"mm_vmscan_direct_reclaim_begin: "

/*
 * Functions in their stacks: the one that refuses to move a misplaced folio, the one
 * that moves it (its callback that allocates may end in a tail call), and either.
 */
#define REFUSES		"migrate_misplaced_folio_prepare"
#define MOVES		"migrate_misplaced_folio\n"
#define EITHER		"migrate_misplaced_folio"

/*
 * How often tasks inside a function are in the trace of one CPU. An interrupt's
 * allocation has the interrupted task further down in its stack, which only the
 * frames of x86 tell: elsewhere an interrupt may be taken for the task.
 */
static long traced_on(int cpu, const char *event, const char *function)
{
	char line[512], path[96];
	bool candidate = false;
	long found = 0;
	FILE *f;

	snprintf(path, sizeof(path), TRACE "/per_cpu/cpu%d/trace", cpu);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f)) {
		if (!strncmp(line, " => ", 4)) {
			if (strstr(line, " => asm_"))
				candidate = false;
			if (candidate && strstr(line, function)) {
				found++;
				candidate = false;
			}
			continue;
		}
		if (!strstr(line, "<stack trace>"))
			candidate = strstr(line, event);
	}
	if (f)
		fclose(f);
	return found;
}

/*
 * The same of all CPUs; -1 if that is unknown. CPU by CPU, because in the whole
 * trace a stack may follow another CPU's event.
 */
static long traced(const char *event, const char *function)
{
	int cpus = sysconf(_SC_NPROCESSORS_CONF);
	long found = 0;

	if (access(TRACE "/per_cpu", F_OK) || events_lost(TRACE))
		return -1;
	for (int cpu = 0; cpu < cpus; cpu++)
		found += traced_on(cpu, event, function);
	return found;
}

static int trace_start(void)
{
	static const char * const on[] = {
		TRACE "/options/stacktrace",
		TRACE "/events/vmscan/mm_vmscan_wakeup_kswapd/enable",
		TRACE "/events/vmscan/mm_vmscan_direct_reclaim_begin/enable",
	};

	if (!trace_fs())
		return -ENOENT;
	rmdir(TRACE);
	if (mkdir(TRACE, 0700))
		return -errno;
	write_text(TRACE "/buffer_size_kb", "4096");
	for (size_t i = 0; i < ARRAY_SIZE(on); i++)
		if (write_text(on[i], "1"))
			return -ENOENT;
	return 0;
}

FIXTURE(numa) {
	char saved[ARRAY_SIZE(knobs)][KNOB_TEXT];
	int zram;
	unsigned long cpu, memory;	/* nodes */
	struct shared *shared;
	pid_t tasks[MAX_TASKS];
};

FIXTURE_VARIANT(numa) {
	const char *mode;	/* of kernel.numa_balancing */
	bool tiering;
};

FIXTURE_VARIANT_ADD(numa, normal) { .mode = "1" };
FIXTURE_VARIANT_ADD(numa, both) { .mode = "3", .tiering = true };

FIXTURE_SETUP(numa)
{
	self->zram = -1;
	begin_setup(_metadata);
	if (geteuid())
		SKIP(return, "needs root");
	if (access(BALANCING, F_OK))
		SKIP(return, "the kernel is built without NUMA balancing");
	if (sysconf(_SC_PAGESIZE) != PAGE)
		SKIP(return, "its sizes are made for pages of %lu bytes", PAGE);
	self->cpu = nodes_in("/sys/devices/system/node/has_cpu");
	self->memory = nodes_in("/sys/devices/system/node/has_memory");
	if (__builtin_popcountl(self->memory) < 2)
		SKIP(return, "needs two nodes with memory");
	if (!(self->cpu & self->memory))
		SKIP(return, "needs a node with both CPUs and memory");
	for (int nid = 0; nid < MAX_NODES; nid++) {
		if (self->memory & 1UL << nid && node_mib(nid) > 4096)
			SKIP(return, "it would fill node %d: needs nodes of at most 4 GiB", nid);
	}
	if (strict_limit())
		SKIP(return, STRICT_LIMIT);
	if (oom_does_more())
		SKIP(return, "tasks may be killed for memory: set %s to 0", oom_does_more());
	self->shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->shared);
	if (access(SCAN, F_OK))
		mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
	if (access(SCAN, F_OK))
		SKIP(return, "needs debugfs");
	if (trace_start())
		SKIP(return, "needs tracefs with the events of vmscan");
	self->zram = zram_swap_on();
	/* Without huge pages some are missing. */
	set_knobs(knobs, self->saved, ARRAY_SIZE(knobs));
	/* Drop pieces left over from earlier tests. */
	write_text("/proc/sys/vm/drop_caches", "3");
	write_text("/proc/sys/vm/compact_memory", "1");
	ASSERT_EQ(0, write_text(BALANCING, variant->mode));
}

/* In the parent, so that a test that is killed leaves nothing behind either. */
FIXTURE_TEARDOWN_PARENT(numa)
{
	kill_all(self->tasks, MAX_TASKS);
	restore_knobs(knobs, self->saved, ARRAY_SIZE(knobs));
	write_text(TRACE "/events/enable", "0");
	rmdir(TRACE);
	zram_swap_off(self->zram);
}

/* A new task, the first to be killed for memory: true in it. */
static bool new_task(pid_t *pid)
{
	if (!in_child(pid))
		return false;
	write_text("/proc/self/oom_score_adj", "1000");
	return true;
}

/* Wait until @nr tasks are ready; false if one has given up. */
static bool all_ready(struct shared *shared, pid_t *tasks, int nr)
{
	double until = now() + 100;

	while (atomic_load(&shared->ready) < nr) {
		for (int i = 0; i < nr; i++) {
			if (waitpid(tasks[i], NULL, WNOHANG)) {
				tasks[i] = 0;
				return false;
			}
		}
		if (now() > until)
			return false;
		nap(10);
	}
	return true;
}

/* Use memory, one word a page, until the test has seen enough. */
static void use(struct shared *shared, char *map, size_t size)
{
	while (!atomic_load(&shared->stop))
		for (size_t i = 0; i < size; i += PAGE)
			__atomic_fetch_add(map + i, 1, __ATOMIC_RELAXED);
}

/* Needs more memory than its node has left: the rest falls back to other nodes. */
static void big_task(struct shared *shared, int home, size_t size)
{
	char *map;

	if (run_on(home))
		_exit(1);
	map = new_map(size, MADV_NOHUGEPAGE, -1);
	if (!map)
		_exit(1);
	memset(map, 1, size);
	atomic_fetch_add(&shared->ready, 1);
	while (!atomic_load(&shared->go))
		nap(10);
	use(shared, map, size);
	_exit(0);
}

struct figures {
	long faults, full, fragmented, migrated, fail;
};

static void read_figures(struct figures *f)
{
	f->full = vm_event("numa_target_full");
	f->fragmented = vm_event("numa_target_fragmented");
	f->migrated = vm_event("numa_pages_migrated");
	f->fail = vm_event("pgmigrate_fail");
}

/* Wait for @wanted refusals, for at most @seconds. Returns the figures. */
static struct figures watch(struct shared *shared, long wanted, double seconds)
{
	struct figures a, b;
	double until = now() + seconds;

	/*
	 * Each refusal is a fault, and both go on meanwhile: the faults are read
	 * first here and last at the end. Only a task that is in a fault here adds a
	 * refusal without its fault.
	 */
	a.faults = vm_event("numa_hint_faults");
	read_figures(&a);
	/* Each wakeup that the trace shows must be of a refusal after this. */
	shared->full = a.full;
	/* What the tasks' own allocations have woken would fill the trace. */
	write_text(TRACE "/trace", "");
	atomic_store(&shared->go, 1);
	do {
		nap(200);
		read_figures(&b);
	} while (b.full - a.full + b.fragmented - a.fragmented < wanted && now() < until);
	b.faults = vm_event("numa_hint_faults") - a.faults;
	atomic_store(&shared->stop, 1);
	b.full -= a.full;
	b.fragmented -= a.fragmented;
	b.migrated -= a.migrated;
	b.fail -= a.fail;
	ksft_print_msg("%ld hinting faults: target full %ld, fragmented %ld\n",
		       b.faults, b.full, b.fragmented);
	ksft_print_msg("%ld pages migrated, %ld failed\n", b.migrated, b.fail);
	return b;
}

/* Balancing does not reclaim, and wakes kswapd only with tiering, for a full target. */
static void expect_left_alone(struct __test_metadata *_metadata, const struct shared *shared,
			      bool tiering)
{
	long woken = traced(WAKEUP, REFUSES);

	EXPECT_EQ(0, traced(RECLAIM, EITHER));
	EXPECT_EQ(0, traced(WAKEUP, MOVES));
	/* Negative if events were lost. */
	EXPECT_GE(woken, 0);
	EXPECT_LE(woken, tiering ? vm_event("numa_target_full") - shared->full : 0);
}

/* The other half of the nodes takes the memory that falls back. */
TEST_F_TIMEOUT(numa, working_set_bigger_than_its_node, 300)
{
	int homes = 0, wanted = __builtin_popcountl(self->memory) / 2;
	unsigned long mask = 0;
	long spare = 0, extra;
	struct figures f;

	for (int nid = 0; nid < MAX_NODES && __builtin_popcountl(mask) < wanted; nid++)
		mask |= self->cpu & self->memory & 1UL << nid;
	for (int nid = 0; nid < MAX_NODES; nid++) {
		if (self->memory & ~mask & 1UL << nid && room(nid) > 0)
			spare += room(nid);
	}
	extra = spare / 3 / wanted;
	for (int nid = 0; nid < MAX_NODES; nid++) {
		long size = room(nid) + extra;

		if (!(mask & 1UL << nid))
			continue;
		if (new_task(&self->tasks[homes]))
			big_task(self->shared, nid, (size > extra ? size : extra) & -HUGE);
		homes++;
		/* One task after the other, each with what its node has left. */
		ASSERT_TRUE(all_ready(self->shared, self->tasks, homes));
	}
	ASSERT_GT(homes, 0);
	/* Allocations have woken kswapd, rightly; from here on only balancing could. */
	f = watch(self->shared, 4000, 15);

	ASSERT_GT(f.faults, 100);
	expect_left_alone(_metadata, self->shared, variant->tiering);
	/* A refused promotion wakes kswapd, which may then make room for all. */
	EXPECT_GT(f.full + (variant->tiering ? f.migrated : 0), 0);
	EXPECT_LE(f.full + f.fragmented, f.faults + MAX_TASKS);
}

/* Half of what a node has above @goal, in steps: others may take some of it meanwhile. */
static size_t half_above(int nid, long goal, size_t step)
{
	long above = room(nid) - goal;

	if (above <= 0)
		return 0;
	return above / 2 > (long)step ? above / 2 & -step : step;
}

/* Leave a node with @bytes of free memory, all of it in single pages. */
static bool fragment(int nid, long bytes)
{
	/* Never so low that kswapd is woken. */
	const long spare = 4 * MIB;
	size_t size = (room(nid) + HUGE) & -HUGE, next = 0, used = 0, freed = 0, more;
	char *huge = new_map(size, MADV_HUGEPAGE, nid);
	char *small = new_map(size, MADV_NOHUGEPAGE, nid);

	/* Locked, so that what stays is not moved. */
	if (!huge || !small || syscall(SYS_mlock2, small, size, MLOCK_ONFAULT))
		return false;
	while (next < size && (more = half_above(nid, 2 * (spare + bytes), HUGE)))
		for (more += next; next < more && next < size; next += HUGE)
			huge[next] = 1;
	while (used < size && (more = half_above(nid, spare, PAGE * 64)))
		for (more += used; used < more && used < size; used += PAGE)
			small[used] = 1;
	for (size_t i = 0; i < used && (long)freed < bytes; i += 2 * PAGE, freed += PAGE)
		if (madvise(small + i, PAGE, MADV_DONTNEED_LOCKED))
			return false;
	/* The spared memory is in large blocks: take those. */
	for (int i = 0; i < 64 && next < size; i++, next += HUGE)
		huge[next] = 1;
	return (long)freed >= bytes;
}

static void huge_task(struct shared *shared, int source, int target, size_t size)
{
	char *map = new_map(size, MADV_HUGEPAGE, source);

	if (!map)
		_exit(1);
	for (size_t i = 0; i < size; i += PAGE)
		map[i] = 1;
	if (bind_to(map, size, -1) || run_on(target))
		_exit(1);
	atomic_store(&shared->ready, 1);
	while (!atomic_load(&shared->go))
		nap(10);
	use(shared, map, size);
	_exit(0);
}

static int with_most_room(unsigned long nodes)
{
	int best = -1;

	for (int nid = 0; nid < MAX_NODES; nid++)
		if (nodes & 1UL << nid && (best < 0 || room(nid) > room(best)))
			best = nid;
	return best;
}

TEST_F_TIMEOUT(numa, huge_pages_and_a_fragmented_node, 200)
{
	const size_t size = 16 * HUGE;
	long fail, vain;
	int target, source;
	struct figures f;

	if (access(THP "enabled", F_OK))
		SKIP(return, "the kernel is built without huge pages");
	/* The last one. */
	target = 8 * (int)sizeof(long) - 1 - __builtin_clzl(self->cpu & self->memory);
	source = with_most_room(self->memory & ~(1UL << target));
	if (new_task(&self->tasks[0]))
		huge_task(self->shared, source, target, size);
	ASSERT_TRUE(all_ready(self->shared, self->tasks, 1));
	ASSERT_TRUE(fragment(target, 40 * MIB))
		TH_LOG("%ld MiB of room on node %d", room(target) / (long)MIB, target);
	fail = vm_event("thp_migration_fail");
	f = watch(self->shared, 60, 60);
	vain = vm_event("thp_migration_fail") - fail;

	ASSERT_GT(f.faults, 20);
	/*
	 * The measure is refusals, not faults. A piece that found no huge page
	 * at its home has a fault for each small page, and those rightly move.
	 */
	EXPECT_GT(f.fragmented, 20);
	/* One for each folio, whatever its size. */
	EXPECT_LE(f.full + f.fragmented, f.faults + 1);
	EXPECT_LE(vain, f.fragmented / 20)
		TH_LOG("%ld huge pages isolated in vain, %ld refused", vain, f.fragmented);
	/* A fragmented target is no reason to wake kswapd. */
	expect_left_alone(_metadata, self->shared, variant->tiering);
}

TEST_HARNESS_MAIN
