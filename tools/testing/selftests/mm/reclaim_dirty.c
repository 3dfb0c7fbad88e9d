// SPDX-License-Identifier: GPL-2.0-only
/*
 * Dirty file folios in reclaim: no reclaimer writes one, and a folio that was
 * met is freed by the next pass once it is clean.
 *
 * mm_vmscan_write_folio events show what reclaim writes. Anonymous memory and
 * shmem may be among it, and are, to show that the events work. cachestat(2)
 * tells clean folios from others.
 *
 * Needs root and scratch disks (see reclaim_scene.h), and zram for something
 * that reclaim may write.
 */
#include "kselftest_harness.h"
#include "reclaim_scene.h"

#include <linux/mman.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>

#define EVENT		"vmscan/mm_vmscan_write_folio"
/* RECLAIM_WB_ANON and RECLAIM_WB_FILE, unchanged since the event has flags. */
#define ANON_ONLY	"reclaim_flags & 1"
#define FILE_ONLY	"reclaim_flags & 2"
#define PAGE		((long)getpagesize())

#ifndef __NR_cachestat
#define __NR_cachestat	451
#endif

FIXTURE(dirty) {
	struct scene s;
	struct scratch *disk;
	char anon[96], file[96];	/* trace instances */
	int zram;
};

FIXTURE_VARIANT(dirty) {
	const char *fs, *disk;
};

FIXTURE_VARIANT_ADD(dirty, ext4) { "ext4", "RECLAIM_DISK_EXT4" };
FIXTURE_VARIANT_ADD(dirty, xfs) { "xfs", "RECLAIM_DISK_XFS" };

FIXTURE_SETUP(dirty)
{
	self->zram = -1;
	begin_setup(_metadata);
	if (!scene_setup(&self->s, "reclaim_dirty"))
		SKIP(return, "%s", self->s.why);
	self->disk = scene_disk(&self->s, variant->disk);
	if (!self->disk || !scratch_make(&self->s, self->disk, variant->fs, "")) {
		ASSERT_FALSE(self->s.failed)
			TH_LOG("%s", self->s.why);
		SKIP(return, "%s", self->s.why);
	}
	ASSERT_EQ(0, scene_cgroup(&self->s, 0));
	sync_fs(self->disk->dir);
}

/* In the parent, so that a test that is killed leaves nothing behind either. */
FIXTURE_TEARDOWN_PARENT(dirty)
{
	trace_close(self->anon);
	trace_close(self->file);
	scene_teardown(&self->s);
	zram_swap_off(self->zram);
}

/* Write and map files, and use anonymous and shared memory, beyond the limit. */
static int load(const char *dir)
{
	const size_t mem = 12 * MIB;
	char path[PATH_MAX];
	char *anon, *shared, *map;
	int fd;

	anon = mmap(NULL, mem, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	shared = mmap(NULL, mem, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	snprintf(path, sizeof(path), "%s/mapped", dir);
	fd = open(path, O_CREAT | O_RDWR, 0600);
	if (fd < 0 || ftruncate(fd, mem))
		return 1;
	map = mmap(NULL, mem, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (anon == MAP_FAILED || shared == MAP_FAILED || map == MAP_FAILED)
		return 2;
	for (size_t at = 0; at < mem; at += PAGE) {
		anon[at] = 1;
		shared[at] = 1;
		map[at] = 1;
	}
	snprintf(path, sizeof(path), "%s/written", dir);
	if (fill_file(path, 24))
		return 3;
	return 0;
}

/* Take as much memory as is free, and @mib MiB more; 0 on success. */
static int hog(int mib)
{
	unsigned long size, at = 0;
	struct sysinfo si;
	pid_t pid;
	char *p;

	sysinfo(&si);
	size = si.freeram * si.mem_unit;
	if (size > 64 * MIB)
		at = size - 64 * MIB;
	size += mib * MIB;
	if (in_child(&pid)) {
		write_text("/proc/self/oom_score_adj", "1000");
		p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED)
			_exit(1);
		/* All at once as long as there is plenty. */
		if (madvise(p, at, MADV_POPULATE_WRITE))
			at = 0;
		for (; at < size; at += PAGE)
			p[at] = 1;
		_exit(0);
	}
	return wait_for(pid);
}

/* Since the last call reclaim must have met dirty pages, and written what it may. */
static void expect_met(struct __test_metadata *_metadata, const char *anon, long *met,
		       long *written)
{
	long now_met = vm_event("nr_vmscan_immediate_reclaim"), now_written = trace_total(anon);

	ksft_print_msg("dirty pages met: %ld; folios written, none of a file: %ld\n",
		       now_met - *met, now_written - *written);
	EXPECT_GT(now_met, *met);
	EXPECT_GT(now_written, *written);
	*met = now_met;
	*written = now_written;
}

TEST_F_TIMEOUT(dirty, only_anon_and_shmem_are_written, 90)
{
	long met, written = 0;
	struct scene *s = &self->s;
	char path[PATH_MAX];
	pid_t pid;

	if (too_big())
		SKIP(return, "more than 1 GiB of memory to fill: boot with mem=1G");
	if (strict_limit())
		SKIP(return, STRICT_LIMIT);
	self->zram = zram_swap_on();
	/* Else load() does not fit in its cgroup, and nothing shows that the events work. */
	if (self->zram < 0)
		SKIP(return, "no swap on zram: load zram");
	ASSERT_TRUE(trace_open(self->anon, sizeof(self->anon), "reclaim_dirty_anon",
			       EVENT, ANON_ONLY));
	ASSERT_TRUE(trace_open(self->file, sizeof(self->file), "reclaim_dirty_file",
			       EVENT, FILE_ONLY));
	met = vm_event("nr_vmscan_immediate_reclaim");

	/* Reclaim of a cgroup, by tasks that charge it and by request. */
	ASSERT_EQ(0, cgroup_write(s, 0, "memory.max", "24M"));
	pid = fork_into(s, 0);
	if (!pid)
		_exit(load(self->disk->dir));
	for (;;) {
		siginfo_t info = {};

		if (waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid)
			break;
		cgroup_reclaim(s, 0, 4 * MIB);
		nap(250);
	}
	ASSERT_EQ(0, wait_for(pid));
	expect_met(_metadata, self->anon, &met, &written);

	/* kswapd, and direct reclaim of the whole machine. */
	write_text("/proc/sys/vm/drop_caches", "1");
	snprintf(path, sizeof(path), "%s/more", self->disk->dir);
	ASSERT_EQ(0, fill_file(path, 48));
	ASSERT_EQ(0, hog(64));
	expect_met(_metadata, self->anon, &met, &written);
	EXPECT_EQ(0, trace_total(self->file));
}

struct cached {
	unsigned long pages, dirty, writeback, evicted, recently_evicted;
};

static bool cached(const char *path, struct cached *c)
{
	struct { unsigned long off, len; } range = {};
	int fd = open(path, O_RDONLY);
	bool ok = fd >= 0 && !syscall(__NR_cachestat, fd, &range, c, 0);

	if (fd >= 0)
		close(fd);
	return ok;
}

/*
 * Dirty data first, the rest after it: reclaim from the tail meets the dirty
 * folios. On one CPU, because each node has its own tail.
 */
static int dirty_then_read(const char *dirty, const char *clean)
{
	static char buf[MIB];
	cpu_set_t here;
	int fd, ret;

	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	if (sched_setaffinity(0, sizeof(here), &here))
		return -errno;
	ret = fill_file(dirty, 8);
	fd = open(clean, O_RDONLY);
	while (!ret && read(fd, buf, sizeof(buf)) > 0)
		;
	close(fd);
	if (!ret) {
		fd = open(dirty, O_RDWR);
		ret = sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
		close(fd);
	}
	return ret;
}

/*
 * The disk is slow while reclaim meets a cgroup's dirty folios, so that they
 * stay under writeback. Once they are clean, a second pass must free them before
 * the data that was never dirty, although the first pass has moved them off the
 * tail. Folios that are only dirty would not do: the first ones that are met wake
 * the flusher, which locks many, and reclaim puts a locked folio back without
 * marking it for rotation.
 */
TEST_F_TIMEOUT(dirty, a_written_folio_is_freed_first, 60)
{
	struct scene *s = &self->s;
	struct scratch *disk = self->disk;
	char dirty[PATH_MAX], clean[PATH_MAX];
	struct cached d = {}, c = {}, d2 = {}, c2 = {};
	long scanned, stolen, rotated, stayed;
	double until;
	pid_t pid;

	snprintf(dirty, sizeof(dirty), "%s/dirty", disk->dir);
	snprintf(clean, sizeof(clean), "%s/clean", disk->dir);
	ASSERT_EQ(0, fill_file(clean, 24));
	ASSERT_EQ(0, sync_fs(disk->dir));
	write_text("/proc/sys/vm/drop_caches", "1");

	/*
	 * Folios that are written before they are met would be clean, and
	 * satisfy the first pass. A page takes a second or more, so that a host which
	 * stalls for some does not matter. Without the limit all go at once.
	 */
	if (scratch_limit(s, disk, 4 << 10))
		SKIP(return, "no io.max: nothing stays under writeback");
	pid = fork_into(s, 0);
	if (!pid)
		_exit(dirty_then_read(dirty, clean));
	ASSERT_EQ(0, wait_for(pid));
	if (!cached(dirty, &d))
		SKIP(return, "no cachestat(2)");
	ASSERT_EQ(8 * (long)MIB / PAGE, d.pages);
	ASSERT_GE(d.writeback, d.pages * 31 / 32);

	rotated = read_figure("/proc/vmstat", "pgrotated");
	cgroup_reclaim(s, 0, MIB);
	scratch_limit(s, disk, 0);
	for (until = now() + 20; now() < until; nap(50)) {
		cached(dirty, &d);
		if (!d.dirty && !d.writeback)
			break;
	}
	ASSERT_EQ(0, d.dirty + d.writeback);
	rotated = read_figure("/proc/vmstat", "pgrotated") - rotated;

	cached(clean, &c);
	ASSERT_GT(c.pages, 12 * (long)MIB / PAGE);
	scanned = cgroup_figure(s, 0, "memory.stat", "pgscan");
	stolen = cgroup_figure(s, 0, "memory.stat", "pgsteal");
	if (d.pages)
		cgroup_reclaim(s, 0, d.pages * PAGE);
	scanned = cgroup_figure(s, 0, "memory.stat", "pgscan") - scanned;
	stolen = cgroup_figure(s, 0, "memory.stat", "pgsteal") - stolen;
	cached(dirty, &d2);
	cached(clean, &c2);
	ksft_print_msg("%ld pages rotated; then %ld scanned, %ld freed\n",
		       rotated, scanned, stolen);
	ksft_print_msg("cached before, after: once dirty %lu, %lu; clean %lu, %lu\n",
		       d.pages, d2.pages, c.pages, c2.pages);
	EXPECT_GE(rotated, 7 * (long)MIB / PAGE);
	stayed = rotated < (long)d.pages ? d.pages - rotated : 0;
	/* A few folios may still wait on a CPU to be moved to the tail. */
	EXPECT_LE(d2.pages, stayed + d.pages / 8);
	EXPECT_LE(c.pages - c2.pages, stayed + d.pages / 4 + 64);
	EXPECT_LE(scanned, stolen + stolen / 2 + 64);
}

TEST_HARNESS_MAIN
