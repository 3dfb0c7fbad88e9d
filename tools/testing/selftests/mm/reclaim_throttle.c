// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reclaim waits where pages cannot be cleaned fast enough, and only there.
 *
 * slow_disk: io.max slows down a memory cgroup's writes to an ext4. A writer
 * fills memory, or its cgroup, with pages that wait for that disk. The
 * tracepoint mm_vmscan_throttled shows who slept in reclaim, and why.
 *
 * Needs root, a scratch disk (see reclaim_scene.h), and cgroup v2 with the controller io.
 */
#include "kselftest_harness.h"
#include "reclaim_scene.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#define SLOW_BPS	(4 * MIB)
#define CGROUP_MIB	64

/* Cgroups: the disk is slow for the first, which scratch_limit() limits. */
enum { SLOW, CLEAN };

enum { WRITER, READER, NEEDY, HOG, NR_CHILDREN };

static const struct knob knobs[MAX_KNOBS] = {
	/* Let reclaim meet dirty pages before dirty throttling stops the writers. */
	{ "/proc/sys/vm/dirty_ratio", "90" },
	/* The default; tests change it. */
	{ "/proc/sys/vm/dirty_background_ratio", "10" },
	{ "/proc/sys/vm/dirty_bytes", NULL },
	{ "/proc/sys/vm/dirty_background_bytes", NULL },
	{ "/proc/sys/vm/dirty_writeback_centisecs", "500" },
};

struct throttle {
	struct scene s;
	struct scratch *disk;
	char hole[128], written[128];	/* files */
	char sleeps[96], reclaims[96];	/* trace instances */
	pid_t children[NR_CHILDREN];
};

/*
 * How often a task slept in reclaim, for anything or for writeback, which no node is
 * named for. -1 if that is unknown.
 */
static long sleeps(struct throttle *t, pid_t pid, bool writeback)
{
	char who[16];
	long found;

	snprintf(who, sizeof(who), "-%d ", pid);
	found = trace_count(t->sleeps, who, writeback ? "nid=-1 " : NULL, NULL);
	return events_lost(t->sleeps) ? -1 : found;
}

/* Begin a child in a cgroup, or (-1) where the test is: true in it. */
static bool begin(struct throttle *t, int who, int cgroup)
{
	if (!in_child(&t->children[who]))
		return false;
	if (cgroup >= 0 && cgroup_write(&t->s, cgroup, "cgroup.procs", "0"))
		_exit(1);
	return true;
}

static pid_t start_writer(struct throttle *t, unsigned long mib)
{
	static char buf[MIB];
	int fd;

	if (!begin(t, WRITER, SLOW))
		return t->children[WRITER];
	fd = open(t->written, O_CREAT | O_WRONLY, 0600);
	for (unsigned long at = 0; fd >= 0; at = (at + 1) % mib) {
		if (pwrite(fd, buf, MIB, at * MIB) < 0)
			break;
	}
	_exit(1);
}

/*
 * Write a file once in a cgroup. The task's id; 0 if the file was not written within
 * 30 s.
 */
static pid_t write_once(struct throttle *t, int cgroup, const char *path, unsigned long mib)
{
	static char buf[MIB];
	double until = now() + 30;
	pid_t done, pid;
	int fd, status;

	if (begin(t, WRITER, cgroup)) {
		fd = open(path, O_CREAT | O_WRONLY, 0600);
		for (unsigned long i = 0; i < mib; i++) {
			if (write(fd, buf, MIB) != MIB)
				_exit(1);
		}
		_exit(0);
	}
	pid = t->children[WRITER];
	while (pid > 0 && now() < until) {
		done = waitpid(pid, &status, WNOHANG);
		if (done) {
			t->children[WRITER] = 0;
			return done == pid && !status ? pid : 0;
		}
		nap(50);
	}
	return 0;
}

static pid_t start_reader(struct throttle *t)
{
	static char buf[MIB];
	int fd;

	if (!begin(t, READER, CLEAN))
		return t->children[READER];
	fd = open(t->hole, O_RDONLY);
	for (unsigned long at = 0; fd >= 0; at = (at + 1) % 65536) {
		/* Charges for readahead never wait; those of faults from user mode may. */
		char *anon = mmap(NULL, MIB, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (anon == MAP_FAILED)
			break;
		memset(anon, 1, MIB);
		if (munmap(anon, MIB) || pread(fd, buf, MIB, at * MIB) < 0)
			break;
	}
	_exit(1);
}

/* What a member of the slow cgroup needs memory for, and whether it may wait there. */
enum { PIPES, FILLED, OWN };

static const struct need {
	const char *what;
	bool waits;
} needs[] = {
	[PIPES] = { "kernel memory for pipes", false },
	[FILLED] = { "pages that the kernel fills in a system call", false },
	[OWN] = { "pages that the task fills itself", true },
};

static pid_t start_needy(struct throttle *t, int need)
{
	struct rlimit files = { 4096, 4096 };
	int fds[2], zero;
	char *new;

	if (!begin(t, NEEDY, -1))
		return t->children[NEEDY];
	/* Where it may not wait, somebody may be killed: not the writer. */
	write_text("/proc/self/oom_score_adj", "1000");
	/* What the child itself needs, it touches outside the cgroup. */
	zero = open("/dev/zero", O_RDONLY);
	if (zero < 0 || setrlimit(RLIMIT_NOFILE, &files) || pipe(fds) ||
	    mlockall(MCL_CURRENT) || cgroup_write(&t->s, SLOW, "cgroup.procs", "0"))
		_exit(1);
	/* Until its reclaims are counted. */
	raise(SIGSTOP);
	while (need == PIPES) {
		if (pipe(fds))
			pause();
	}
	for (;;) {
		new = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);
		if (new == MAP_FAILED)
			_exit(1);
		if (need == OWN)
			memset(new, 1, MIB);
		else if (need == FILLED && read(zero, new, MIB) < 0)
			_exit(1);
		munmap(new, MIB);
	}
}

static long free_mib(void)
{
	struct sysinfo si;

	sysinfo(&si);
	return si.freeram * si.mem_unit / MIB;
}

/* Take memory, page by page, and end. */
static pid_t start_hog(struct throttle *t, unsigned long mib)
{
	char *p;

	if (!begin(t, HOG, -1))
		return t->children[HOG];
	write_text("/proc/self/oom_score_adj", "1000");
	p = mmap(NULL, mib * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		_exit(1);
	madvise(p, mib * MIB, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < mib * MIB; i += getpagesize())
		p[i] = 1;
	_exit(0);
}

/* The disk is fast then: children that wait for it, unlink() and umount() need not. */
static void end_children(struct throttle *t)
{
	signal_all(t->children, NR_CHILDREN, SIGKILL);
	if (t->disk && t->disk->slow)
		scratch_limit(&t->s, t->disk, 0);
	kill_all(t->children, NR_CHILDREN);
}

/* Pages that have to be written, under writeback or not yet. */
static unsigned long dirty_mib(void)
{
	return (vm_event("nr_dirty") + vm_event("nr_writeback")) * getpagesize() / MIB;
}

static bool alive(pid_t pid)
{
	return pid > 0 && waitpid(pid, NULL, WNOHANG) == 0;
}

static int limit_cgroup(struct scene *s, int nr)
{
	return write_under(s->cgroup[nr], "memory.max", "%dM", CGROUP_MIB);
}

FIXTURE(slow_disk) {
	struct throttle t;
};

FIXTURE_SETUP(slow_disk)
{
	struct throttle *t = &self->t;
	struct scene *s = &t->s;
	int fd;

	begin_setup(_metadata);
	s->knobs = knobs;
	if (!scene_setup(s, "reclaim_throttle"))
		SKIP(return, "%s", s->why);
	t->disk = scene_disk(s, "RECLAIM_DISK_EXT4");
	if (!t->disk || !scratch_make(s, t->disk, "ext4", "")) {
		ASSERT_FALSE(s->failed)
			TH_LOG("%s", s->why);
		SKIP(return, "%s", s->why);
	}
	snprintf(t->written, sizeof(t->written), "%s/written", t->disk->dir);
	snprintf(t->hole, sizeof(t->hole), "%s/hole", t->disk->dir);
	/* Reading a hole fills the page cache without using the disk. */
	fd = open(t->hole, O_CREAT | O_WRONLY, 0600);
	ASSERT_EQ(0, ftruncate(fd, 1ULL << 40));
	close(fd);
	ASSERT_EQ(0, scene_cgroup(s, SLOW));
	ASSERT_EQ(0, scene_cgroup(s, CLEAN));
	if (scratch_limit(s, t->disk, SLOW_BPS))
		SKIP(return, "no io.max: needs the io controller and BLK_DEV_THROTTLING");
	if (!trace_open(t->sleeps, sizeof(t->sleeps), "reclaim_sleeps",
			"vmscan/mm_vmscan_throttled", NULL))
		SKIP(return, "no tracepoint mm_vmscan_throttled");
}

/* In the parent, so that a test that is killed leaves nothing behind either. */
FIXTURE_TEARDOWN_PARENT(slow_disk)
{
	struct throttle *t = &self->t;

	end_children(t);
	/* What is still dirty need not go to the disk. */
	unlink(t->written);
	trace_close(t->sleeps);
	trace_close(t->reclaims);
	scene_teardown(&t->s);
}

/*
 * A third of memory waits for the disk, and a task needs part of that. The task waits
 * for writeback, instead of scanning in vain until it is killed.
 */
TEST_F_TIMEOUT(slow_disk, who_needs_dirty_memory_waits, 240)
{
	struct throttle *t = &self->t;
	unsigned long mib = sysconf(_SC_PHYS_PAGES) * getpagesize() / MIB;
	/* The disk writes 4 MiB in a second. */
	unsigned long written = mib < 600 ? mib / 3 : 200;
	long kills = vm_event("oom_kill");
	long scanned, stolen;
	pid_t writer, hog;
	double until;
	int status;

	if (too_big())
		SKIP(return, "more than 1 GiB of memory to fill: boot with mem=1G");
	if (strict_limit())
		SKIP(return, STRICT_LIMIT);
	until = now() + 20;
	writer = start_writer(t, written);
	ASSERT_GT(writer, 0);
	while (now() < until && dirty_mib() < written * 3 / 4)
		nap(50);
	ASSERT_EQ(0, kill(writer, SIGSTOP));
	ASSERT_EQ(0, write_text("/proc/sys/vm/drop_caches", "1"));
	ASSERT_GE(dirty_mib(), written / 2);
	scanned = vm_event("pgscan_direct");
	stolen = vm_event("pgsteal_direct");
	/* More than the disk writes while the task takes what is free. */
	hog = start_hog(t, free_mib() + dirty_mib() * 2 / 3);
	ASSERT_GT(hog, 0);
	ASSERT_EQ(hog, waitpid(hog, &status, 0));
	t->children[HOG] = 0;
	ksft_print_msg("the task waited %ld times; %ld pages scanned, %ld freed; %ld killed\n",
		       sleeps(t, hog, true), vm_event("pgscan_direct") - scanned,
		       vm_event("pgsteal_direct") - stolen, vm_event("oom_kill") - kills);
	EXPECT_TRUE(alive(writer));
	EXPECT_EQ(0, status);
	EXPECT_GT(sleeps(t, hog, true), 0);
}

/*
 * With the default dirty ratios dirty throttling holds a writer back before its
 * small cgroup is full of dirty pages.
 */
TEST_F_TIMEOUT(slow_disk, writer_is_held_back_in_time, 120)
{
	struct throttle *t = &self->t;
	struct scene *s = &t->s;
	long most = 0;

	/* Where nothing is left to pause for, there is an event, too. */
	ASSERT_TRUE(trace_open(t->reclaims, sizeof(t->reclaims), "reclaim_pauses",
			       "writeback/balance_dirty_pages", "pause > 0"));
	ASSERT_EQ(0, write_text("/proc/sys/vm/dirty_ratio", "20"));
	ASSERT_EQ(0, write_text("/proc/sys/vm/dirty_background_ratio", "10"));
	ASSERT_EQ(0, limit_cgroup(s, SLOW));
	/* The periodic flush of the statistics, every 2 s, may come just in time. */
	for (int round = 0; round < 3; round++) {
		pid_t writer = start_writer(t, 360);
		double until = now() + 15;
		struct stat st = {};
		char who[16];
		long mib;

		ASSERT_GT(writer, 0);
		snprintf(who, sizeof(who), "-%d ", writer);
		/* Until the writer is held back, or half of its cgroup is full. */
		do {
			nap(10);
			stat(t->written, &st);
		} while (now() < until && st.st_size < CGROUP_MIB / 2 * (long)MIB &&
			 trace_count(t->reclaims, who, NULL, NULL) < 2);
		EXPECT_TRUE(alive(writer));
		/* Reading the figures may flush them, which the writer would see. */
		kill(writer, SIGSTOP);
		mib = cgroup_unclean(s, SLOW) / (long)MIB;
		if (mib > most)
			most = mib;
		end_children(t);
		ASSERT_EQ(0, unlink(t->written));
		ASSERT_EQ(0, scratch_limit(s, t->disk, SLOW_BPS));
		/* The next round must not begin with figures of this one. */
		cgroup_unclean(s, SLOW);
	}
	ksft_print_msg("%ld MiB of %d were dirty\n", most, CGROUP_MIB);
	EXPECT_GE(most, CGROUP_MIB / 10);
	/* A fifth is the limit; without a flush in time about half is dirty by then. */
	EXPECT_LT(most, CGROUP_MIB * 3 / 8);
}

/*
 * A bdi_writeback counts what anybody dirties in the inodes of its cgroup. The
 * cgroup's own writers must not be held back for the pages of others.
 */
TEST_F_TIMEOUT(slow_disk, writer_does_not_wait_for_pages_of_others, 120)
{
	struct throttle *t = &self->t;
	struct scene *s = &t->s;
	char own[160], who[16];
	pid_t writer;

	snprintf(own, sizeof(own), "%s/own", t->disk->dir);
	/* Nothing is written back for now, so the inode stays with its first writer. */
	ASSERT_EQ(0, write_text("/proc/sys/vm/dirty_writeback_centisecs", "6000"));
	ASSERT_EQ(0, write_text("/proc/sys/vm/dirty_ratio", "80"));
	ASSERT_EQ(0, write_text("/proc/sys/vm/dirty_background_ratio", "70"));
	ASSERT_EQ(0, limit_cgroup(s, SLOW));
	ASSERT_GT(write_once(t, SLOW, t->written, 1), 0);
	ASSERT_GT(write_once(t, CLEAN, t->written, 2 * CGROUP_MIB), 0);
	ASSERT_TRUE(trace_open(t->reclaims, sizeof(t->reclaims), "reclaim_pauses",
			       "writeback/balance_dirty_pages", NULL));
	writer = write_once(t, SLOW, own, CGROUP_MIB / 4);
	EXPECT_GT(writer, 0);
	EXPECT_GT(dirty_mib(), CGROUP_MIB * 2);
	snprintf(who, sizeof(who), "-%d ", writer);
	EXPECT_EQ(0, trace_count(t->reclaims, who, NULL, NULL));
	EXPECT_EQ(0, events_lost(t->reclaims));
	unlink(own);
}

/*
 * The statistics remember a deleted file's dirty pages until they are flushed. The
 * next writer must not be held back for them.
 */
TEST_F_TIMEOUT(slow_disk, writer_does_not_wait_for_deleted_pages, 240)
{
	struct throttle *t = &self->t;
	struct scene *s = &t->s;
	char own[160], who[16];
	long paused = 0;
	pid_t writer;

	snprintf(own, sizeof(own), "%s/own", t->disk->dir);
	/* Nothing is written back. */
	ASSERT_EQ(0, write_text("/proc/sys/vm/dirty_writeback_centisecs", "6000"));
	ASSERT_EQ(0, limit_cgroup(s, SLOW));
	ASSERT_TRUE(trace_open(t->reclaims, sizeof(t->reclaims), "reclaim_pauses",
			       "writeback/balance_dirty_pages", NULL));
	/* The periodic flush, every 2 s, may come between the writers. */
	for (int round = 0; round < 3; round++) {
		ASSERT_EQ(0, write_text("/proc/sys/vm/dirty_ratio", "80"));
		ASSERT_EQ(0, write_text("/proc/sys/vm/dirty_background_ratio", "70"));
		ASSERT_GT(write_once(t, SLOW, t->written, CGROUP_MIB * 5 / 8), 0);
		/* A flush of the root counts as a periodic one: none is late for 4 s. */
		figure_under(s->cgroups, "memory.stat", "file_dirty");
		ASSERT_GE(cgroup_unclean(s, SLOW), CGROUP_MIB / 2 * (long)MIB);
		/* From here on nothing that flushes. */
		ASSERT_EQ(0, unlink(t->written));
		ASSERT_EQ(0, write_text("/proc/sys/vm/dirty_ratio", "20"));
		ASSERT_EQ(0, write_text("/proc/sys/vm/dirty_background_ratio", "10"));
		writer = write_once(t, SLOW, own, CGROUP_MIB / 16);
		EXPECT_GT(writer, 0);
		snprintf(who, sizeof(who), "-%d ", writer);
		paused += trace_count(t->reclaims, who, NULL, NULL);
		unlink(own);
	}
	EXPECT_EQ(0, paused);
	EXPECT_EQ(0, events_lost(t->reclaims));
}

/*
 * Statistics are flushed where dirty pages gather, and not for each megabyte that
 * a writer writes again and again.
 */
TEST_F_TIMEOUT(slow_disk, statistics_are_flushed_seldom, 120)
{
	static char buf[MIB];
	struct throttle *t = &self->t;
	struct scene *s = &t->s;
	const long rounds = 200;
	double until, flush_at = 0;
	pid_t writer, done;
	char who[16];
	long flushed;
	int status;

	ASSERT_EQ(0, limit_cgroup(s, SLOW));
	if (!trace_open(t->reclaims, sizeof(t->reclaims), "reclaim_flushes",
			"memcg/memcg_flush_stats", NULL))
		SKIP(return, "no tracepoint memcg_flush_stats");
	if (begin(t, WRITER, SLOW)) {
		int hole = open(t->hole, O_RDONLY);
		int fd = open(t->written, O_CREAT | O_WRONLY, 0600);

		/* Fill the cgroup with clean pages. */
		for (long i = 0; i < CGROUP_MIB; i++) {
			if (read(hole, buf, MIB) != MIB)
				_exit(1);
		}
		/* Until the root's statistics are flushed: they have changed by that much. */
		raise(SIGSTOP);
		for (long i = 0; i < rounds; i++) {
			if (pwrite(fd, buf, MIB, 0) != MIB || ftruncate(fd, 0))
				_exit(1);
		}
		_exit(0);
	}
	writer = t->children[WRITER];
	ASSERT_EQ(writer, waitpid(writer, &status, WUNTRACED));
	ASSERT_TRUE(WIFSTOPPED(status));
	/* To fill the cgroup, too, may have flushed. */
	snprintf(who, sizeof(who), "-%d ", writer);
	flushed = -trace_count(t->reclaims, who, NULL, NULL);
	/*
	 * While the periodic flush is late, as it may be on an idle CPU, each call
	 * flushes, as on stock. Reading the root's statistics takes its place; the
	 * events of that are this task's.
	 */
	until = now() + 90;
	do {
		if (now() >= flush_at) {
			figure_under(s->cgroups, "memory.stat", "file_dirty");
			flush_at = now() + 0.5;
			kill(writer, SIGCONT);
		}
		nap(20);
		done = waitpid(writer, &status, WNOHANG);
	} while (!done && now() < until);
	ASSERT_EQ(writer, done);
	t->children[WRITER] = 0;
	ASSERT_EQ(0, status);
	flushed += trace_count(t->reclaims, who, NULL, NULL);
	ksft_print_msg("%ld flushes for %ld MiB\n", flushed, rounds);
	/* This task has flushed. */
	EXPECT_GT(trace_total(t->reclaims), 0);
	EXPECT_EQ(0, events_lost(t->reclaims));
	EXPECT_LT(flushed, rounds / 4);
}

/*
 * A small cgroup full of dirty pages on a node with plenty of clean ones: its
 * writer waits for the disk instead of cycling through its pages, and is not
 * killed for lack of clean ones. A task in another cgroup never waits, nor does
 * one in this cgroup in a system call for which the kernel needs memory.
 */
TEST_F_TIMEOUT(slow_disk, full_cgroup_waits_alone, 180)
{
	struct throttle *t = &self->t;
	struct scene *s = &t->s;
	/* The disk writes in bursts of that much. One burst must not decide the ratio. */
	const long burst = SLOW_BPS / getpagesize();
	const struct sched_param urgent = { .sched_priority = 1 };
	long scanned, stolen, neighbours, waited, reclaims;
	pid_t writer, reader, needy;
	char filter[32];
	double until;

	/*
	 * Nothing slows the writer down before its cgroup is full. Else it may write
	 * as fast as the disk does, and reclaim finds clean pages all the time. A
	 * real-time task may exceed the dirty limit by a quarter.
	 */
	ASSERT_EQ(0, write_text("/proc/sys/vm/dirty_ratio", "100"));
	ASSERT_EQ(0, write_text("/proc/sys/vm/dirty_background_ratio", "99"));
	ASSERT_EQ(0, limit_cgroup(s, SLOW));
	ASSERT_EQ(0, limit_cgroup(s, CLEAN));
	reader = start_reader(t);
	writer = start_writer(t, 360);
	ASSERT_GT(reader, 0);
	ASSERT_GT(writer, 0);
	if (sched_setscheduler(writer, SCHED_RR, &urgent))
		ksft_print_msg("the writer may be slowed down: %s\n", strerror(errno));
	until = now() + 30;
	do {
		nap(200);
		waited = sleeps(t, writer, true);
		scanned = cgroup_figure(s, SLOW, "memory.stat", "pgscan");
		stolen = cgroup_figure(s, SLOW, "memory.stat", "pgsteal");
		neighbours = cgroup_figure(s, CLEAN, "memory.stat", "pgsteal");
	} while (now() < until && (waited < 50 || stolen < 4 * burst || neighbours <= 0));
	EXPECT_TRUE(alive(writer));
	EXPECT_TRUE(alive(reader));
	ksft_print_msg("%ld pages scanned, %ld stolen; the writer waited %ld times\n", scanned,
		       stolen, waited);
	EXPECT_EQ(0, cgroup_figure(s, SLOW, "memory.events", "oom_kill"));
	/* How often depends on the host's disk, too: a pass that frees something does not wait. */
	EXPECT_GT(waited, 0);
	/* Seen: 83 to 875 pages scanned for each one stolen; 2,149 and more on stock. */
	EXPECT_LT(scanned, 1000 * stolen);
	/* The neighbour has reclaimed meanwhile, and never waited. */
	EXPECT_GT(neighbours, 0);
	EXPECT_EQ(0, sleeps(t, reader, false));

	for (size_t i = 0; i < ARRAY_SIZE(needs); i++) {
		long writers = sleeps(t, writer, true);

		needy = start_needy(t, i);
		ASSERT_GT(needy, 0);
		snprintf(filter, sizeof(filter), "common_pid == %d", needy);
		ASSERT_TRUE(trace_open(t->reclaims, sizeof(t->reclaims), "reclaim_reclaims",
				       "vmscan/mm_vmscan_memcg_reclaim_begin", filter));
		ASSERT_EQ(needy, waitpid(needy, NULL, WUNTRACED));
		ASSERT_EQ(0, kill(needy, SIGCONT));
		until = now() + 30;
		/* As long as the writer has not waited, nobody else would, either. */
		do {
			nap(50);
			reclaims = trace_total(t->reclaims);
			waited = sleeps(t, needy, true);
		} while (now() < until &&
			 (sleeps(t, writer, true) == writers ||
			  (needs[i].waits ? !waited : reclaims < 50 && alive(needy))));
		ksft_print_msg("%s: reclaimed %ld times, waited %ld times\n", needs[i].what,
			       reclaims, waited);
		EXPECT_GT(sleeps(t, writer, true), writers);
		EXPECT_GT(reclaims, 0);
		EXPECT_EQ(needs[i].waits, waited > 0);
		kill_all(&t->children[NEEDY], 1);
		trace_close(t->reclaims);
	}
}

TEST_HARNESS_MAIN
