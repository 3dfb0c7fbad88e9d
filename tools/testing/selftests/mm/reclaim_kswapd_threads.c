// SPDX-License-Identifier: GPL-2.0-only
/*
 * vm.kswapd_threads: what it accepts, which threads it starts, when they work.
 *
 * The load is page cache: readers stream through a null_blk device, which costs
 * only memory and the CPU time to reclaim it again. Without /dev/nullb0 those
 * tests are skipped. RECLAIM_DISK_EXT4 names a block device that may be
 * overwritten, for the test of a node that goes offline. Needs root.
 */
#include "kselftest_harness.h"
#include "reclaim_util.h"

#include <ctype.h>
#include <dirent.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <sys/time.h>

#define SYSCTL		"/proc/sys/vm/kswapd_threads"
#define BOOST_FACTOR	"/proc/sys/vm/watermark_boost_factor"
#define TAINTED		"/proc/sys/kernel/tainted"
#define TAINT_WARN	0x200
#define MAX_THREADS	16
#define MAX_NODES	64
#define NR_READERS	6
#define BUSY_READERS	4	/* where helpers need CPU time, too */
#define MAX_BLOCKS	64
#define MAX_CGROUPS	512

static const char * const counters[] = {
	"kswapd_helper_wake", "kswapd_helper_steal", "pgsteal_kswapd",
};

enum { WAKE, HELPER_STEAL, STEAL, NR_COUNTERS };

static int read_number(const char *path)
{
	char buf[32];

	return read_text(path, buf, sizeof(buf)) ? -1 : atoi(buf);
}

static int set_threads(int threads)
{
	char buf[16];

	snprintf(buf, sizeof(buf), "%d\n", threads);
	return write_text(SYSCTL, buf);
}

static void read_counters(long *values)
{
	for (int i = 0; i < NR_COUNTERS; i++)
		values[i] = vm_event(counters[i]);
}

struct threads {
	int leaders[MAX_NODES];
	int nr_leaders;
	int helpers[MAX_NODES];
	/* CPU time of the helpers, in clock ticks */
	long ticks[MAX_NODES];
	/* Helpers that the freezer leaves alone */
	int unfreezable;
	int strange;
};

/* PF_NOFREEZE of linux/sched.h */
#define NOFREEZE	0x8000

/* A helper's CPU time in the kernel, and whether it can be frozen. */
static void count_helper(struct threads *t, int nid, const char *pid)
{
	char path[300], text[512], *after;
	unsigned int flags = 0;
	long ticks = 0;

	t->helpers[nid]++;
	snprintf(path, sizeof(path), "/proc/%s/stat", pid);
	if (read_text(path, text, sizeof(text)))
		return;
	after = strrchr(text, ')');
	if (after)
		sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %ld",
		       &flags, &ticks);
	t->ticks[nid] += ticks;
	t->unfreezable += !!(flags & NOFREEZE);
}

/* Count kswapdN and kswapdN:M; M must be between 1 and the number of helpers. */
static void count_threads(struct threads *t)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;

	memset(t, 0, sizeof(*t));
	while (proc && (entry = readdir(proc))) {
		char path[300], comm[32], rest;
		int nid, helper;

		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		snprintf(path, sizeof(path), "/proc/%s/comm", entry->d_name);
		if (read_text(path, comm, sizeof(comm)) || strncmp(comm, "kswapd", 6))
			continue;
		if (sscanf(comm, "kswapd%d:%d%c", &nid, &helper, &rest) == 2 &&
		    nid < MAX_NODES && helper >= 1 && helper < MAX_THREADS) {
			count_helper(t, nid, entry->d_name);
		} else if (sscanf(comm, "kswapd%d%c", &nid, &rest) == 1 && nid < MAX_NODES) {
			t->leaders[nid]++;
			t->nr_leaders++;
		} else {
			t->strange++;
		}
	}
	if (proc)
		closedir(proc);
}

static const char *cgroup_file(int i, const char *name)
{
	static char path[80];

	snprintf(path, sizeof(path), "/sys/fs/cgroup/reclaim_kswapd_threads%d/%s", i, name);
	return path;
}

/* Some tests switch the boost off. */
static const struct knob knobs[] = { { SYSCTL, "1" }, { BOOST_FACTOR, NULL } };

FIXTURE(kswapd_threads) {
	char saved[ARRAY_SIZE(knobs)][KNOB_TEXT];
	pid_t readers[NR_READERS];
	bool enabled;
	int blocks[MAX_BLOCKS], nr_blocks;
	char mnt[64];
};

FIXTURE_SETUP(kswapd_threads)
{
	begin_setup(_metadata);
	if (geteuid())
		SKIP(return, "needs root");
	if (!set_knobs(knobs, self->saved, ARRAY_SIZE(knobs)))
		SKIP(return, "no vm.kswapd_threads: the kernel is built without KSWAPD_HELPERS");
	ASSERT_EQ(1, read_number(SYSCTL));
}

static const char *block_file(int block, const char *name)
{
	static char path[80];

	snprintf(path, sizeof(path), "/sys/devices/system/memory/memory%d/%s", block, name);
	return path;
}

static bool node_comes(const int *blocks, int nr)
{
	bool ok = true;

	for (int i = 0; i < nr; i++)
		ok = !write_text(block_file(blocks[i], "state"), "online_movable\n") && ok;
	return ok;
}

/* In the parent, so that a test that is killed leaves nothing behind either. */
FIXTURE_TEARDOWN_PARENT(kswapd_threads)
{
	restore_knobs(knobs, self->saved, ARRAY_SIZE(knobs));
	kill_all(self->readers, NR_READERS);
	for (int i = 0; i < MAX_CGROUPS; i++)
		remove_cgroup(cgroup_file(i, ""));
	if (self->enabled)
		disable_controller("/sys/fs/cgroup", "memory");
	node_comes(self->blocks, self->nr_blocks);
	if (self->mnt[0]) {
		unmount(self->mnt);
		rmdir(self->mnt);
	}
}

static bool start_readers_of(pid_t *readers, const char *path)
{
	if (access(path, R_OK))
		return false;
	for (int i = 0; i < NR_READERS; i++) {
		if (in_child(&readers[i]))
			read_for_ever(path, i, NR_READERS);
		if (readers[i] < 0)
			return false;
	}
	return true;
}

/* False without null_blk, or where a test would wait too long for memory to be full. */
static bool start_readers(pid_t *readers)
{
	return sysconf(_SC_PHYS_PAGES) <= (16LL << 30) / getpagesize() &&
	       start_readers_of(readers, "/dev/nullb0");
}

static bool more_helpers_than(const struct threads *t, int helpers)
{
	for (int nid = 0; nid < MAX_NODES; nid++) {
		if (t->helpers[nid] > (t->leaders[nid] ? helpers : 0))
			return true;
	}
	return false;
}

/* Every node with memory has one kswapd, and as many helpers as requested, all freezable. */
static void expect_threads(struct __test_metadata *_metadata, int threads)
{
	double until = now() + 20;
	struct threads t;

	/*
	 * A stopped thread remains visible until it has exited. A new one makes
	 * itself freezable when it begins.
	 */
	do {
		count_threads(&t);
	} while ((more_helpers_than(&t, threads - 1) || t.unfreezable) &&
		 now() < until && !usleep(10000));
	EXPECT_EQ(0, t.strange);
	EXPECT_EQ(0, t.unfreezable);
	for (int nid = 0; nid < MAX_NODES; nid++) {
		EXPECT_EQ(t.leaders[nid] ? threads - 1 : 0, t.helpers[nid])
			TH_LOG("node %d: %d helpers", nid, t.helpers[nid]);
	}
	EXPECT_GT(t.nr_leaders, 0);
}

TEST_F_TIMEOUT(kswapd_threads, every_number_in_range, 120)
{
	for (int threads = 1; threads <= MAX_THREADS; threads++) {
		ASSERT_EQ(0, set_threads(threads));
		EXPECT_EQ(-EINVAL, set_threads(0));
		EXPECT_EQ(-EINVAL, set_threads(MAX_THREADS + 1));
		EXPECT_EQ(threads, read_number(SYSCTL));
		expect_threads(_metadata, threads);
	}
	for (int threads = MAX_THREADS; threads >= 1; threads -= 5) {
		ASSERT_EQ(0, set_threads(threads));
		expect_threads(_metadata, threads);
	}
}

/* CPU time that the helpers of all nodes have used, in clock ticks. */
static long helpers_ticks(void)
{
	struct threads t;
	long ticks = 0;

	count_threads(&t);
	for (int nid = 0; nid < MAX_NODES; nid++)
		ticks += t.ticks[nid];
	return ticks;
}

/* Whether the readers fill the memory, within two minutes, so that kswapd is at work. */
static bool fill_memory(void)
{
	long enough = vm_event("pgsteal_kswapd") + 10000;
	double until = now() + 120;

	while (vm_event("pgsteal_kswapd") <= enough) {
		if (now() > until)
			return false;
		nap(100);
	}
	return true;
}

/* The MiB that readers read: @mib, or less if that takes longer than @seconds. */
static double let_read(double mib, int seconds)
{
	double until = now() + seconds;
	long begun = vm_event("pgpgin");
	double read;

	do {
		nap(100);
		read = (vm_event("pgpgin") - begun) / 1024.0;
	} while (read < mib && now() < until);
	return read;
}

/*
 * The purpose: under the same load, helpers spare tasks most of their direct
 * reclaims. When the load ends, so does the helpers' work.
 */
TEST_F_TIMEOUT(kswapd_threads, helpers_spare_tasks_direct_reclaim, 300)
{
	long before[NR_COUNTERS], after[NR_COUNTERS], later[NR_COUNTERS], ticks;
	static const int threads[] = { 1, 8 };
	double stalls[2] = {}, mib[2] = {};
	char taint[2][16];
	double until;
	long rate[2];

	if (sysconf(_SC_NPROCESSORS_ONLN) < BUSY_READERS)
		SKIP(return, "fewer CPUs than the %d readers", BUSY_READERS);
	if (!start_readers(self->readers))
		SKIP(return, "no /dev/nullb0 (load null_blk), or more than 16 GiB to fill");
	signal_all(self->readers + BUSY_READERS, NR_READERS - BUSY_READERS, SIGSTOP);
	ASSERT_TRUE(fill_memory());
	read_counters(before);
	ASSERT_EQ(0, read_text(TAINTED, taint[0], sizeof(taint[0])));
	if (atol(taint[0]) & TAINT_WARN)
		ksft_print_msg("the kernel has warned before: a warning here is not seen\n");
	/* By turns and in pairs, so that what else runs on this machine meets both. */
	until = now() + 120;
	for (int window = 0; window < 6 || window % 2 || (stalls[0] < 300 && now() < until);
	     window++) {
		int which = window % 2;
		long begun[NR_COUNTERS], ended[NR_COUNTERS], stalled;
		double read;

		ASSERT_EQ(0, set_threads(threads[which]));
		/* MiB, not seconds: on a busy host little may happen in a second. */
		let_read(128, 5);
		read_counters(begun);
		stalled = direct_reclaims();
		read = let_read(256, 10);
		stalled = direct_reclaims() - stalled;
		read_counters(ended);
		ksft_print_msg("%d threads: %ld stalls in %.0f MiB; %ld wakes, %ld pages\n",
			       threads[which], stalled, read,
			       ended[WAKE] - begun[WAKE],
			       ended[HELPER_STEAL] - begun[HELPER_STEAL]);
		stalls[which] += stalled;
		mib[which] += read;
	}
	kill_all(self->readers, NR_READERS);
	/* A boost wakes kswapd, which may wake helpers, without any load. */
	ASSERT_EQ(0, write_text(BOOST_FACTOR, "0"));
	/* The kernel warns if helpers that stop still count as at work. */
	ASSERT_EQ(0, read_text(TAINTED, taint[1], sizeof(taint[1])));
	if (!(atol(taint[0]) & TAINT_WARN))
		ASSERT_FALSE(atol(taint[1]) & TAINT_WARN);
	if (stalls[0] <= 20 && stalls[1] <= 20)
		SKIP(return, "one thread bears this load: there is nothing to compare");
	/* Until the helpers have used no CPU time for a second. */
	until = now() + 20;
	do {
		ticks = helpers_ticks();
		sleep(1);
	} while (helpers_ticks() > ticks && now() < until);
	read_counters(after);
	EXPECT_GT(after[WAKE], before[WAKE]);
	EXPECT_GT(after[HELPER_STEAL] - before[HELPER_STEAL], 10000);
	/* Helpers' pages are part of kswapd's. */
	EXPECT_LT(after[HELPER_STEAL] - before[HELPER_STEAL], after[STEAL] - before[STEAL]);
	ksft_print_msg("helpers freed %ld of kswapd's %ld pages, woken %ld times\n",
		       after[HELPER_STEAL] - before[HELPER_STEAL],
		       after[STEAL] - before[STEAL], after[WAKE] - before[WAKE]);
	ticks = helpers_ticks();
	/* No longer: a helper that frees nothing rests for one second, and the last was quiet. */
	sleep(2);
	read_counters(later);
	EXPECT_LE(helpers_ticks() - ticks, 1);
	EXPECT_EQ(after[HELPER_STEAL], later[HELPER_STEAL]);
	EXPECT_EQ(after[WAKE], later[WAKE]);
	for (int i = 0; i < 2; i++) {
		ASSERT_GT(mib[i], 0);
		/* For each 100 GiB, because the harness shows integers. */
		rate[i] = stalls[i] * 1024 * 100 / mib[i];
		ksft_print_msg("%d threads: %.0f direct reclaims, %.1f for each GiB read\n",
			       threads[i], stalls[i], rate[i] / 100.0);
	}
	EXPECT_LT(4 * rate[1], rate[0]);
}

/* Reads as read_for_ever(), in each step as a member of the next of nr memory cgroups. */
static void read_in_cgroups(int me, int nr)
{
	int fd = open("/dev/nullb0", O_RDONLY);
	unsigned long size = lseek(fd, 0, SEEK_END), at = size / NR_READERS * me;

	for (int i = me;; i++, at = (at + MIB) % size) {
		if (write_text(cgroup_file(i % nr, "cgroup.procs"), "0\n") ||
		    posix_fadvise(fd, at, MIB, POSIX_FADV_WILLNEED))
			_exit(1);
	}
}

/*
 * All memory is in nr memory cgroups, and four threads a node reclaim: the percentage of a
 * CPU that helpers use there, and what they free, in some seconds or until they have been
 * woken and have freed more than @enough. False if that cannot be; the test is then skipped.
 */
static bool help_in_cgroups(struct __test_metadata *_metadata, pid_t *readers, bool *enabled,
			    int nr, int seconds, long enough, long *percent, long *freed)
{
	long before[NR_COUNTERS], after[NR_COUNTERS], stalled, ticks;
	double begun, taken;

	if (too_big())
		SKIP(return false, "more than 1 GiB of memory, so that no cgroup is small");
	if (access("/dev/nullb0", R_OK))
		SKIP(return false, "no /dev/nullb0: load null_blk");
	if (!enable_controller("/sys/fs/cgroup", "memory", enabled))
		SKIP(return false, "no memory controller in cgroup v2");
	for (int i = 0; i < nr; i++)
		mkdir(cgroup_file(i, ""), 0755);
	/* Not EXPECT: a skip later on would hide the failure. */
	ASSERT_EQ(0, set_threads(4));
	for (int i = 0; i < NR_READERS; i++) {
		if (in_child(&readers[i]))
			read_in_cgroups(i, nr);
	}
	ASSERT_TRUE(fill_memory());
	read_counters(before);
	stalled = direct_reclaims();
	/* kswapd may keep up for some seconds, without a helper and without stalls. */
	begun = now();
	while (vm_event("kswapd_helper_wake") <= before[WAKE] && now() < begun + 30)
		nap(100);
	ticks = helpers_ticks();
	begun = now();
	do {
		nap(100);
		read_counters(after);
		*freed = after[HELPER_STEAL] - before[HELPER_STEAL];
		taken = now() - begun;
	} while (taken < seconds && (*freed <= enough || after[WAKE] <= before[WAKE]));
	*percent = (helpers_ticks() - ticks) * 100 / sysconf(_SC_CLK_TCK) / taken;
	for (int i = 0; i < NR_READERS; i++)
		ASSERT_EQ(0, waitpid(readers[i], NULL, WNOHANG));
	ksft_print_msg("helpers: %ld%% CPU, %ld of kswapd's %ld pages, %ld wakes, %ld stalls\n",
		       *percent, *freed, after[STEAL] - before[STEAL],
		       after[WAKE] - before[WAKE], direct_reclaims() - stalled);
	ASSERT_GT(after[STEAL], before[STEAL]);
	if (after[WAKE] == before[WAKE] && direct_reclaims() == stalled)
		SKIP(return false, "one thread bears this load: no task stalled");
	EXPECT_GT(after[WAKE], before[WAKE]);
	return true;
}

/* kswapd's first pass takes nothing from LRU lists of 2048 pages; a helper has to. */
TEST_F_TIMEOUT(kswapd_threads, many_small_cgroups, 240)
{
	const long enough = 1000;
	long percent, freed;
	struct threads t;
	int nr;

	count_threads(&t);
	ASSERT_GT(t.nr_leaders, 0);
	/* A cgroup's pages are spread over the nodes, a list on each of 1024 to 2048 pages. */
	nr = sysconf(_SC_PHYS_PAGES) / 2048 / t.nr_leaders;
	if (nr < 1)
		SKIP(return, "too many nodes for so few pages");
	if (help_in_cgroups(_metadata, self->readers, &self->enabled, nr, 60, enough,
			    &percent, &freed))
		EXPECT_GT(freed, enough);
}

/*
 * On the classic LRU no pass of a helper takes anything from lists as short as
 * these, and MGLRU takes little. A helper must not spin there.
 */
TEST_F_TIMEOUT(kswapd_threads, many_tiny_cgroups, 240)
{
	long percent, freed;
	struct threads t;

	count_threads(&t);
	if (help_in_cgroups(_metadata, self->readers, &self->enabled, MAX_CGROUPS, 3, LONG_MAX,
			    &percent, &freed))
		EXPECT_LT(percent, 20 * t.nr_leaders);
}

/* Allocations that another node served, because this one had no room. */
static long numa_foreign(int nid)
{
	return read_figure(node_file(nid, "numastat"), "numa_foreign");
}

/* On a node's CPU: read 64 MiB, take the room that is left, and go on slowly. */
static void take_all_room(int nid)
{
	const long size = getpagesize();
	int fd = open("/dev/nullb0", O_RDONLY);
	bool full = false;
	long foreign;
	cpu_set_t cpus;
	char *map;

	if (!node_cpus(nid, &cpus) || sched_setaffinity(0, sizeof(cpus), &cpus))
		_exit(1);
	map = mmap(NULL, 1UL << 30, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		_exit(1);
	madvise(map, 1UL << 30, MADV_NOHUGEPAGE);
	for (int mib = 0; mib < 64; mib++) {
		/* Into memory that is touched next. */
		if (pread(fd, map, MIB, mib * MIB) != (ssize_t)MIB)
			_exit(1);
	}
	foreign = numa_foreign(nid);
	for (long i = 0; i < (1L << 30) / size; i++) {
		map[i * size] = 1;
		/* Slowly, because the other node must not be full before the test ends. */
		if (i % (full ? 8 : 256))
			continue;
		full = full || numa_foreign(nid) > foreign + 256;
		if (full)
			nap(10);
	}
	_exit(1);
}

/*
 * While another node has room, allocations that find a node below low go there
 * and wake nobody: its kswapd sleeps on. Helpers must not begin either.
 */
TEST_F_TIMEOUT(kswapd_threads, a_node_below_low_whose_kswapd_sleeps, 180)
{
	long freed = 0, ticks = 0, foreign, elsewhere, runs, scans, steal, used;
	int nid = MAX_NODES - 1, asleep = 0;
	struct threads t;
	cpu_set_t cpus;
	double until;

	if (too_big())
		SKIP(return, "more than 1 GiB of memory");
	if (access("/dev/nullb0", R_OK))
		SKIP(return, "no /dev/nullb0: load null_blk");
	count_threads(&t);
	while (nid > 0 && (!t.leaders[nid] || !node_cpus(nid, &cpus)))
		nid--;
	if (!nid)
		SKIP(return, "there are no two nodes with memory");
	/* A boost wakes kswapd. */
	ASSERT_EQ(0, write_text(BOOST_FACTOR, "0"));
	ASSERT_EQ(0, write_text("/proc/sys/vm/drop_caches", "1\n"));
	foreign = numa_foreign(nid);
	if (in_child(&self->readers[0]))
		take_all_room(nid);
	until = now() + 60;
	while (numa_foreign(nid) <= foreign + 256 && now() < until)
		nap(100);
	ASSERT_GT(numa_foreign(nid), foreign + 256);
	foreign = numa_foreign(nid);
	until = now() + 60;
	/* Half seconds in which no allocation that must have this node woke kswapd. */
	while (asleep < 6 && now() < until) {
		ASSERT_EQ(0, set_threads(1));
		runs = vm_event("pageoutrun");
		scans = vm_event("pgscan_kswapd");
		elsewhere = numa_foreign(nid);
		nap(300);
		/* New helpers have to find the node below low, and kswapd asleep. */
		if (vm_event("pageoutrun") > runs || vm_event("pgscan_kswapd") > scans ||
		    numa_foreign(nid) < elsewhere + 20)
			continue;
		steal = vm_event("kswapd_helper_steal");
		ASSERT_EQ(0, set_threads(8));
		/* To begin takes CPU time, too. */
		expect_threads(_metadata, 8);
		used = helpers_ticks();
		elsewhere = numa_foreign(nid);
		nap(500);
		steal = vm_event("kswapd_helper_steal") - steal;
		used = helpers_ticks() - used;
		if (vm_event("pageoutrun") > runs || numa_foreign(nid) < elsewhere + 20)
			continue;
		freed += steal;
		if (used > ticks)
			ticks = used;
		asleep++;
	}
	ksft_print_msg("%ld went elsewhere; in %d half seconds %ld freed, at most %ld ticks\n",
		       numa_foreign(nid) - foreign, asleep, freed, ticks);
	EXPECT_EQ(0, waitpid(self->readers[0], NULL, WNOHANG));
	ASSERT_GE(asleep, 3);
	EXPECT_EQ(0, freed);
	EXPECT_LE(ticks, 2);
}

/* List the memory blocks of a node in sysfs, in one zone ("": in any); returns how many. */
static int node_blocks(int nid, const char *zone, int *blocks, int max)
{
	DIR *dir = opendir(node_file(nid, ""));
	struct dirent *entry;
	char zones[64], state[16];
	int n = 0;

	while (dir && (entry = readdir(dir)) && n < max) {
		if (sscanf(entry->d_name, "memory%d", &blocks[n]) == 1 &&
		    !read_text(block_file(blocks[n], "state"), state, sizeof(state)) &&
		    !strcmp(state, "online") &&
		    !read_text(block_file(blocks[n], "valid_zones"), zones, sizeof(zones)) &&
		    !strncmp(zones, zone, strlen(zone)))
			n++;
	}
	if (dir)
		closedir(dir);
	return n;
}

/* A node whose memory is all movable, so that it can go offline; -1 if there is none. */
static int node_that_can_go(int *blocks, int *nr)
{
	for (int nid = 0; nid < MAX_NODES; nid++) {
		int all = node_blocks(nid, "", blocks, MAX_BLOCKS);

		*nr = node_blocks(nid, "Movable", blocks, MAX_BLOCKS);
		/* With more blocks than fit in the array, not all would go offline. */
		if (*nr && *nr == all && all < MAX_BLOCKS)
			return nid;
	}
	*nr = 0;
	return -1;
}

static void no_action(int sig)
{
}

/* Taking memory offline retries until it succeeds, or until a signal comes. */
static int offline_within(int block, int seconds)
{
	const struct sigaction act = { .sa_handler = no_action };
	struct itimerval left = { .it_interval.tv_sec = 1, .it_value.tv_sec = seconds };
	struct sigaction saved;
	struct itimerval end;
	double begun = now();
	int ret;

	sigaction(SIGALRM, &act, &saved);
	setitimer(ITIMER_REAL, &left, &end);
	ret = write_text(block_file(block, "state"), "offline\n");
	/* The alarm that ends the test in time goes on, see begin_setup(). */
	end.it_value.tv_sec -= now() - begun;
	if (end.it_value.tv_sec < 1)
		end.it_value.tv_sec = 1;
	setitimer(ITIMER_REAL, &end, NULL);
	sigaction(SIGALRM, &saved, NULL);
	return ret;
}

/*
 * On a slow machine readers may refill a node faster than it is emptied. If the
 * node does not go offline while they work, they pause until it has.
 */
static bool node_goes(const int *blocks, int nr, const pid_t *readers)
{
	double until = now() + 90;
	int block = 0;

	while (block < nr && now() < until) {
		if (!offline_within(blocks[block], 30))
			block++;
		else
			signal_all(readers, NR_READERS, SIGSTOP);
	}
	signal_all(readers, NR_READERS, SIGCONT);
	return block == nr;
}

static bool node_has_threads(int nid)
{
	struct threads t;

	count_threads(&t);
	return t.leaders[nid] || t.helpers[nid];
}

/* Whether a node's helpers have begun to use CPU time, within some seconds. */
static bool helpers_work(int nid, int seconds)
{
	double until = now() + seconds;
	struct threads t;
	long before;

	count_threads(&t);
	before = t.ticks[nid];
	while (now() < until) {
		usleep(100000);
		count_threads(&t);
		if (t.ticks[nid] > before + 2)
			return true;
	}
	return false;
}

/* A large file of holes: its page cache may be in movable memory, a device's cannot. */
static const char *file_of_holes(const char *disk, const char *mnt)
{
	static char path[80];
	char command[256];
	int fd, ret;

	snprintf(command, sizeof(command),
		 "mkfs.ext4 -F -q -E lazy_itable_init=1,nodiscard %s >/dev/null 2>&1", disk);
	if (system(command) || mount(disk, mnt, "ext4", MS_NOATIME, "noinit_itable"))
		return NULL;
	snprintf(path, sizeof(path), "%s/holes", mnt);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	ret = fd < 0 ? -1 : ftruncate(fd, 64ULL << 30);
	if (fd >= 0)
		close(fd);
	return ret ? NULL : path;
}

/* A node's last memory goes offline while its helpers work, and comes back. */
TEST_F_TIMEOUT(kswapd_threads, a_node_goes_and_comes, 900)
{
	int nid = node_that_can_go(self->blocks, &self->nr_blocks), rounds = 0;
	long total = read_figure("/proc/meminfo", "MemTotal:"), stolen;
	const char *disk = getenv("RECLAIM_DISK_EXT4"), *path;
	unsigned long mask;

	if (nid < 0)
		SKIP(return, "no node of movable memory only (memhp_default_state=online_movable)");
	if (!disk)
		SKIP(return, "no disk that may be overwritten: set RECLAIM_DISK_EXT4");
	if (system("command -v mkfs.ext4 >/dev/null"))
		SKIP(return, "no mkfs.ext4: install e2fsprogs");
	/*
	 * An earlier test may have left its kswapd hopeless; a new kswapd
	 * starts without failures.
	 */
	ASSERT_TRUE(node_goes(self->blocks, self->nr_blocks, self->readers));
	ASSERT_TRUE(node_comes(self->blocks, self->nr_blocks));
	strcpy(self->mnt, "/tmp/reclaim-node.XXXXXX");
	ASSERT_NE(NULL, mkdtemp(self->mnt));
	path = file_of_holes(disk, self->mnt);
	ASSERT_NE(NULL, path);
	ASSERT_EQ(0, set_threads(4));
	expect_threads(_metadata, 4);
	/*
	 * The readers' pages are on the node while it is online. Readahead may
	 * fail, and kills no task.
	 */
	mask = 1UL << nid;
	ASSERT_EQ(0, syscall(SYS_set_mempolicy, MPOL_BIND | MPOL_F_STATIC_NODES, &mask,
			     8 * sizeof(mask)));
	ASSERT_TRUE(start_readers_of(self->readers, path));
	ASSERT_EQ(0, syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0));
	for (; rounds < 3; rounds++) {
		/* Raise and lower the setting while the node is offline. */
		int threads = rounds % 2 ? 4 : 7;

		stolen = read_figure(node_file(nid, "vmstat"), "pgsteal_kswapd");
		ASSERT_TRUE(helpers_work(nid, 30))
			TH_LOG("round %d: node %d's helpers do nothing", rounds, nid);
		EXPECT_GT(read_figure(node_file(nid, "vmstat"), "pgsteal_kswapd"), stolen);
		ASSERT_TRUE(node_goes(self->blocks, self->nr_blocks, self->readers));
		for (double until = now() + 20; node_has_threads(nid) && now() < until;)
			usleep(10000);
		EXPECT_FALSE(node_has_threads(nid));
		ASSERT_EQ(0, set_threads(threads));
		expect_threads(_metadata, threads);
		EXPECT_FALSE(node_has_threads(nid));
		ASSERT_TRUE(node_comes(self->blocks, self->nr_blocks));
		EXPECT_TRUE(node_has_threads(nid));
		expect_threads(_metadata, threads);
	}
	/* Failures from lack of memory are forgotten when the node has memory again. */
	EXPECT_TRUE(helpers_work(nid, 30));
	kill_all(self->readers, NR_READERS);
	ksft_print_msg("node %d went and came %d times\n", nid, rounds);
	EXPECT_EQ(total, read_figure("/proc/meminfo", "MemTotal:"));
}

TEST_HARNESS_MAIN
