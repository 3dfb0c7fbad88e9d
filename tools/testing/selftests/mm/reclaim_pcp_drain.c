// SPDX-License-Identifier: GPL-2.0-only
/*
 * Draining the per-cpu page lists for an allocation that failed.
 *
 * A node that runs out of memory must leave the lists of other nodes alone.
 * Pages on another CPU's list must be found before a task is killed for lack of
 * memory. The load is page cache of a null_blk device, and memory of tasks on
 * chosen CPUs and nodes. Needs root.
 */
#include "kselftest_harness.h"
#include "reclaim_util.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define MAX_NODES	8
#define MAX_CPUS	64
#define NR_READERS	8
#define CGROUP		"/sys/fs/cgroup/reclaim_pcp_drain"
#define READER		"drain_reader"

/*
 * Allocations of the readers that failed, of single pages and by direct reclaim
 * (0x400 is __GFP_DIRECT_RECLAIM; the event stores a page that is not there as
 * -1). Each of them has reclaimed, and then drained.
 */
#define FAILED		"comm == \"" READER "\" && order == 0 && gfp_flags & 0x400 && pfn == "

/*
 * The lists must not shrink with time: for as long as a test may take, and no
 * longer, since a worker sleeps to the end of an interval that it has begun.
 */
static const struct knob interval = { "/proc/sys/vm/stat_interval", "200" };
static long page_size;

/*
 * What /proc/zoneinfo says of a node's zones, in pages. @room is what user space may
 * take, above min and what a zone protects from higher zones.
 */
struct zones {
	long free, room;
	long on_cpu[MAX_CPUS];
};

static void read_zones(int nid, struct zones *z)
{
	FILE *f = fopen("/proc/zoneinfo", "r");
	bool mine = false, pageset = false;
	long free = 0, min = 0;
	char line[256];
	int cpu = 0;

	memset(z, 0, sizeof(*z));
	while (f && fgets(line, sizeof(line), f)) {
		long value;
		int node;

		if (sscanf(line, "Node %d, zone", &node) == 1) {
			mine = node == nid;
			pageset = false;
		}
		if (!mine)
			continue;
		if (strstr(line, "pagesets"))
			pageset = true;
		if (!pageset && sscanf(line, "  pages free %ld", &value) == 1) {
			free = value;
			z->free += free;
		} else if (!pageset && sscanf(line, " min %ld", &value) == 1) {
			min = value;
		} else if (strstr(line, "protection: (")) {
			/* The last one is for the highest zone. */
			value = free - min - atol(strrchr(line, ' ') + 1);
			if (value > 0)
				z->room += value;
		} else if (pageset && sscanf(line, " cpu: %ld", &value) == 1) {
			cpu = value % MAX_CPUS;
		} else if (pageset && sscanf(line, " count: %ld", &value) == 1) {
			z->on_cpu[cpu] += value;
		}
	}
	if (f)
		fclose(f);
}

static void pin(const cpu_set_t *set)
{
	if (sched_setaffinity(0, sizeof(*set), set))
		_exit(2);
}

static void pin_cpu(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	pin(&set);
}

/* Use memory of this node only. */
static void bind_node(int nid)
{
	unsigned long mask = 1UL << nid;

	if (syscall(__NR_set_mempolicy, MPOL_BIND, &mask, 8 * sizeof(mask)))
		_exit(2);
}

static char *map(size_t size)
{
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		_exit(2);
	madvise(p, size, MADV_NOHUGEPAGE);
	return p;
}

/* Take @pages pages and keep them. */
static void touch(char *p, long pages)
{
	for (long i = 0; i < pages; i++)
		p[i * page_size] = 1;
}

/*
 * Allocate and free pages of a node on a CPU, often enough for its lists of the
 * node to grow, which happens gradually.
 */
static void fill_lists(int cpu, int nid, long pages, int times)
{
	pid_t pid;

	if (in_child(&pid)) {
		pin_cpu(cpu);
		bind_node(nid);
		for (int i = 0; i < times; i++) {
			char *p = map(pages * page_size);

			touch(p, pages);
			munmap(p, pages * page_size);
		}
		_exit(0);
	}
	wait_for(pid);
}

/* Fill the lists of a node's CPUs with its pages. Returns how many they hold. */
static long fill_node_lists(int nid)
{
	cpu_set_t cpus;

	node_cpus(nid, &cpus);
	for (int cpu = 0; cpu < MAX_CPUS; cpu++) {
		if (CPU_ISSET(cpu, &cpus))
			fill_lists(cpu, nid, 16 * MIB / page_size, 3);
	}
	return zones_sum(nid, "count:");
}

/* The number of nodes up to the first one without CPUs or memory. */
static int nr_nodes(void)
{
	cpu_set_t set;
	int nodes = 0;

	while (nodes < MAX_NODES && node_cpus(nodes, &set) && node_mib(nodes) > 0)
		nodes++;
	return nodes;
}

/* Whether an administrator has fixed the length of the lists; the tests need long ones. */
static bool fixed_lists(void)
{
	char text[16];

	return read_text("/proc/sys/vm/percpu_pagelist_high_fraction", text, sizeof(text)) ||
	       strcmp(text, "0");
}

/* Confine a task's memory to one node, by a cpuset or by a memory policy. */
static int confine(bool cpuset, int nid, const cpu_set_t *cpus)
{
	char text[256];
	int ret;

	if (!cpuset) {
		pin(cpus);
		bind_node(nid);
		return 0;
	}
	ret = read_text(node_file(nid, "cpulist"), text, sizeof(text));
	if (!ret)
		ret = write_text(CGROUP "/cpuset.cpus", text);
	snprintf(text, sizeof(text), "%d\n", nid);
	if (!ret)
		ret = write_text(CGROUP "/cpuset.mems", text);
	snprintf(text, sizeof(text), "%d\n", getpid());
	if (!ret)
		ret = write_text(CGROUP "/cgroup.procs", text);
	return ret;
}

/* Readers confined to a node, stopped before the first byte. */
static int start_readers(pid_t *pids, bool cpuset, int nid)
{
	cpu_set_t set;

	node_cpus(nid, &set);
	for (int i = 0; i < NR_READERS; i++) {
		int status;

		if (in_child(&pids[i])) {
			if (confine(cpuset, nid, &set) || prctl(PR_SET_NAME, READER))
				_exit(3);
			raise(SIGSTOP);
			read_for_ever("/dev/nullb0", i, NR_READERS);
		}
		if (waitpid(pids[i], &status, WUNTRACED) != pids[i] || !WIFSTOPPED(status))
			return -1;
	}
	return 0;
}

/* All readers must have kept reading until now. */
static void end_readers(struct __test_metadata *_metadata, pid_t *pids)
{
	for (int i = 0; i < NR_READERS; i++)
		ASSERT_EQ(0, waitpid(pids[i], NULL, WNOHANG));
	kill_all(pids, NR_READERS);
}

FIXTURE(other_nodes) {
	char saved[1][KNOB_TEXT];
	bool enabled;
	int nodes;
	pid_t readers[NR_READERS];
	char failed[96];	/* trace instance */
};

FIXTURE_VARIANT(other_nodes) {
	bool cpuset;
};

FIXTURE_VARIANT_ADD(other_nodes, cpuset) { .cpuset = true };
FIXTURE_VARIANT_ADD(other_nodes, policy) { .cpuset = false };

FIXTURE_SETUP(other_nodes)
{
	char filter[128];

	begin_setup(_metadata);
	page_size = sysconf(_SC_PAGESIZE);
	if (geteuid())
		SKIP(return, "needs root");
	if (page_size != 4096)
		SKIP(return, "its sizes are made for pages of 4096 bytes");
	self->nodes = nr_nodes();
	if (self->nodes < 2)
		SKIP(return, "one node with CPUs and memory: there are no others");
	if (too_big())
		SKIP(return, "more than 1 GiB of memory: filling a node takes too long");
	if (access("/dev/nullb0", R_OK))
		SKIP(return, "no /dev/nullb0: load null_blk");
	if (variant->cpuset) {
		if (!enable_controller("/sys/fs/cgroup", "cpuset", &self->enabled))
			SKIP(return, "no cpusets in cgroup v2");
		mkdir(CGROUP, 0755);
		ASSERT_EQ(0, access(CGROUP "/cpuset.mems", W_OK));
	}
	/* All bits are set in the page frame number of no page. */
	snprintf(filter, sizeof(filter), FAILED "%#lx", -1UL);
	if (!trace_fs() ||
	    !trace_open(self->failed, sizeof(self->failed), "reclaim_failed",
			"kmem/mm_page_alloc", filter))
		SKIP(return, "no tracefs with the events of kmem");
	if (fixed_lists())
		SKIP(return, "lists of fixed length: set vm.percpu_pagelist_high_fraction to 0");
	ASSERT_TRUE(set_knobs(&interval, self->saved, 1));
}

/* In the parent, so that a test that is killed leaves nothing behind either. */
FIXTURE_TEARDOWN_PARENT(other_nodes)
{
	restore_knobs(&interval, self->saved, 1);
	kill_all(self->readers, NR_READERS);
	trace_close(self->failed);
	remove_cgroup(CGROUP);
	if (self->enabled)
		disable_controller("/sys/fs/cgroup", "cpuset");
}

/*
 * The last node runs out of memory. Its pages on the list of a CPU far away are
 * drained. The lists of all other nodes are full, and stay full.
 */
TEST_F_TIMEOUT(other_nodes, keep_their_lists, 200)
{
	long before = 0, after = 0, lacked, left, stalled, drained_at;
	int far = 0, victim = self->nodes - 1;
	bool sure = false;
	struct zones z;
	cpu_set_t set;
	double until;

	ASSERT_EQ(0, start_readers(self->readers, variant->cpuset, victim));
	node_cpus(0, &set);
	while (!CPU_ISSET(far, &set))
		far++;
	fill_lists(far, victim, 16 * MIB / page_size, 3);
	read_zones(victim, &z);
	lacked = z.on_cpu[far % MAX_CPUS];
	ASSERT_GT(lacked, 500);
	for (int nid = 0; nid < victim; nid++)
		before += fill_node_lists(nid);
	ASSERT_GT(before, 500 * victim);
	stalled = direct_reclaims();
	signal_all(self->readers, NR_READERS, SIGCONT);
	/* kcompactd drains the list, too, but not before many more allocations fail. */
	until = now() + 100;
	do {
		usleep(1000);
		/* Before the lists: what is sure then has emptied them. */
		sure = trace_total(self->failed) > 0;
		read_zones(victim, &z);
		left = z.on_cpu[far % MAX_CPUS];
	} while (now() < until && left >= lacked / 4 && !sure);
	ksft_print_msg("%ld pages of the node on CPU %d, %ld after %ld stalls\n", lacked,
		       far, left, direct_reclaims() - stalled);
	ksft_print_msg("%ld allocations of the readers failed\n", trace_total(self->failed));
	/* Were all nodes drained for one of the next stalls, the lists would be empty then. */
	drained_at = direct_reclaims();
	until = now() + 40;
	while (now() < until && direct_reclaims() - drained_at < 50)
		nap(100);
	for (int nid = 0; nid < victim; nid++)
		after += zones_sum(nid, "count:");
	end_readers(_metadata, self->readers);
	stalled = direct_reclaims() - stalled;
	ksft_print_msg("%ld pages on the lists, %ld after %ld stalls\n",
		       before, after, stalled);
	/* One drain of all nodes empties the lists. Not EXPECT, which a skip would hide. */
	ASSERT_GT(after, before * 3 / 4);
	if (left >= lacked / 4 && !sure)
		SKIP(return, "in 100 s no allocation has failed");
	EXPECT_LT(left, lacked / 4);
}

FIXTURE(pcp_drain) {
	char saved[1][KNOB_TEXT];
	int nid;
	cpu_set_t cpus;
	pid_t hog;
};

FIXTURE_SETUP(pcp_drain)
{
	begin_setup(_metadata);
	page_size = sysconf(_SC_PAGESIZE);
	if (geteuid())
		SKIP(return, "needs root");
	if (access("/sys/devices/system/node", F_OK))
		SKIP(return, "the kernel is built without NUMA");
	if (page_size != 4096)
		SKIP(return, "its sizes are made for pages of 4096 bytes");
	self->nid = nr_nodes() - 1;
	if (self->nid < 0)
		SKIP(return, "node 0 has no CPUs or no memory");
	if (node_cpus(self->nid, &self->cpus) < 2)
		SKIP(return, "one CPU in the last node: it has no other's lists");
	if (fixed_lists())
		SKIP(return, "lists of fixed length: set vm.percpu_pagelist_high_fraction to 0");
	ASSERT_TRUE(set_knobs(&interval, self->saved, 1));
}

FIXTURE_TEARDOWN_PARENT(pcp_drain)
{
	restore_knobs(&interval, self->saved, 1);
	kill_all(&self->hog, 1);
}

/* Take pages of a node until killed for it: nothing reclaimable is left there. */
static void squeeze(int nid)
{
	pid_t pid;

	if (in_child(&pid)) {
		write_text("/proc/self/oom_score_adj", "1000\n");
		bind_node(nid);
		for (;;)
			touch(map(MIB), MIB / page_size);
	}
	wait_for(pid);
}

/*
 * Have a task on CPU @asks_on take more of node @nid than is free, but less than is free
 * and on the lists of the CPUs before that one. True if the task could, and can again.
 */
static bool ask(struct __test_metadata *_metadata, int nid, const cpu_set_t *cpus, int asks_on)
{
	long want, kills, held = 0;
	struct zones z;
	int status;
	pid_t pid;

	for (int cpu = 0; cpu < asks_on; cpu++) {
		if (CPU_ISSET(cpu, cpus))
			fill_lists(cpu, nid, 24 * MIB / page_size, 4);
	}
	/* Where reclaim makes progress, the lists are drained after that, and nobody is killed. */
	write_text("/proc/sys/vm/drop_caches", "3\n");
	read_zones(nid, &z);
	for (int cpu = 0; cpu < asks_on; cpu++)
		held += z.on_cpu[cpu];
	ASSERT_GT(held, 1000);
	/* The task leaves a quarter, for watermarks that are boosted meanwhile. */
	want = z.room + held * 3 / 4;
	kills = vm_event("oom_kill");
	if (in_child(&pid)) {
		write_text("/proc/self/oom_score_adj", "1000\n");
		pin_cpu(asks_on);
		bind_node(nid);
		touch(map(want * page_size), want);
		_exit(0);
	}
	status = wait_for(pid);
	ksft_print_msg("node %d: %ld pages free, %ld of them usable, %ld on other CPUs' lists\n",
		       nid, z.free, z.room, held);
	ksft_print_msg("asked for %ld, %ld killed\n", want, vm_event("oom_kill") - kills);
	EXPECT_EQ(0, status);
	EXPECT_EQ(kills, vm_event("oom_kill"));
	return !status && kills == vm_event("oom_kill");
}

/*
 * A node's memory is all taken, and none of it can be reclaimed. Part of what
 * is left is on the lists of idle CPUs. A task on another CPU asks for more
 * than is free, but for less than is free and on the lists together. The lists
 * of other nodes cannot help the task, and must keep their pages.
 */
TEST_F_TIMEOUT(pcp_drain, found_before_oom, 150)
{
	int cpu, asks_on = -1, pipes[2];
	long want, left, others = 0;
	struct zones z;
	char c;

	if (read_figure("/proc/meminfo", "SwapTotal:") > 0)
		SKIP(return, "there is something to reclaim: swapoff -a");
	if (oom_does_more())
		SKIP(return, "tasks are killed for memory: set %s to 0", oom_does_more());
	if (strict_limit())
		SKIP(return, STRICT_LIMIT);
	if (node_mib(self->nid) > 1024)
		SKIP(return, "the node has more than 1 GiB: filling it takes too long");
	for (cpu = 0; cpu < MAX_CPUS; cpu++) {
		if (CPU_ISSET(cpu, &self->cpus))
			asks_on = cpu;
	}
	if (asks_on < 0)
		SKIP(return, "no CPU of the last node has a number below %d", MAX_CPUS);
	/* Reclaim must not make progress with the text of this test. */
	ASSERT_EQ(0, mlockall(MCL_CURRENT));
	ASSERT_EQ(0, write_text("/proc/sys/vm/drop_caches", "3\n"));
	squeeze(self->nid);
	read_zones(self->nid, &z);
	if (zones_sum(self->nid, "cma"))
		SKIP(return, "memory of a CMA area is free, and not for all allocations");
	want = z.room - 64 * MIB / page_size;
	ASSERT_GT(want, 0);
	ASSERT_EQ(0, pipe(pipes));
	if (in_child(&self->hog)) {
		write_text("/proc/self/oom_score_adj", "1000\n");
		bind_node(self->nid);
		touch(map(want * page_size), want);
		if (write(pipes[1], "", 1) != 1)
			_exit(2);
		pause();
	}
	/* Without this end a hog that is killed would never be noticed. */
	close(pipes[1]);
	ASSERT_EQ(1, read(pipes[0], &c, 1));
	close(pipes[0]);
	if (self->nid) {
		others = fill_node_lists(0);
		ASSERT_GT(others, 500);
	}
	/* What reclaim still finds in one round is gone in the next. */
	for (int round = 0; round < 5; round++) {
		if (!ask(_metadata, self->nid, &self->cpus, asks_on))
			break;
	}
	if (self->nid) {
		left = zones_sum(0, "count:");
		EXPECT_GE(left, others * 3 / 4)
			TH_LOG("%ld of %ld pages are left on node 0's lists", left, others);
	}
}

TEST_HARNESS_MAIN
