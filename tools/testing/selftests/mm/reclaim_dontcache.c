// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reclaim must neither lose nor write the data of an I_DONTCACHE inode.
 *
 * When reclaim prunes the last dentry of an inode that d_mark_dontcache() has
 * marked, iput_final() evicts the inode instead of caching it. If the inode is
 * dirty at that time, its data has to go somewhere first. Linux 7.3 wrote the
 * data synchronously from the reclaiming task. ext4 and XFS complained, and XFS
 * refused, so the data was gone while write(2), syncfs(2) and umount(2) had
 * all reported success.
 *
 * Each test makes files with two names. A task in memory cgroup A writes and
 * marks the inode through aN. The dentry of bN belongs to memory cgroup B and
 * is all that holds the inode afterwards. memory.reclaim then takes B's dentries.
 * Periodic writeback is off, so nothing else writes the data in the meantime. After
 * a remount every byte is compared.
 *
 * The inodes are marked by toggling FS_XFLAG_DAX.
 *
 * Needs root and scratch disks (see reclaim_scene.h).
 */
#include "kselftest_harness.h"
#include "reclaim_scene.h"

#include <linux/fs.h>
#include <linux/openat2.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>

#define NR_FILES	500
#define FILE_SIZE	(16 << 10)

/* XFS_IOC_BULKSTAT, which needs no headers of XFS this way. */
#define BULK		64
#define BULKSTAT	_IOR('X', 127, struct bulkstat_head)

struct bulkstat_head {
	uint64_t ino;
	uint32_t flags, icount, ocount, agno;
	uint64_t reserved[5];
};

struct bulkstat {
	struct bulkstat_head head;
	char inode[BULK][192];
};

/* XFS_IOC_FREE_EOFBLOCKS: free what is reserved for appends and for copies on write. */
#define FREE_BLOCKS	_IOR('X', 58, struct free_blocks)

struct free_blocks {
	uint32_t version, flags, ids[3], pad;
	uint64_t min_file_size, reserved[12];
};

struct marked {
	struct scene s;
	struct scratch *disk;
	int nr_files;
	char written[96], evicted[96];	/* trace instances */
	int kmsg;
};

/* Cgroups: A writes, B holds the last dentries. */
enum { A, B };

static void file_name(const struct marked *m, char kind, int i, char *buf, size_t size)
{
	snprintf(buf, size, "%s/%c%d", m->disk->dir, kind, i);
}

/* Every file has its own content, none of it zero. */
static void file_content(int i, unsigned char *buf)
{
	unsigned int x = i * 2654435761u + 1;

	for (int j = 0; j < FILE_SIZE; j++) {
		x = x * 1664525 + 1013904223;
		buf[j] = (x >> 24) | 1;
	}
}

/* Run fn in a child that has moved into a memory cgroup, so that it is charged. */
static int in_cgroup(struct marked *m, int cgroup, int (*fn)(struct marked *m))
{
	pid_t pid = fork_into(&m->s, cgroup);

	if (!pid)
		_exit(fn(m));
	return wait_for(pid);
}

/*
 * On XFS every other file is a clone, so that a write to it reserves blocks. Only
 * the ablation shows that the walk over reserved blocks meets these files.
 */
static int make_files(struct marked *m)
{
	static unsigned char buf[FILE_SIZE];
	bool clone = !strcmp(m->disk->fs, "xfs");
	char a[128], b[128];
	int source;

	file_name(m, 's', 0, a, sizeof(a));
	source = open(a, O_CREAT | O_RDWR, 0600);
	if (source < 0 || write(source, buf, FILE_SIZE) != FILE_SIZE)
		return 1;
	for (int i = 0; i < m->nr_files; i++) {
		int fd;

		file_name(m, 'a', i, a, sizeof(a));
		file_name(m, 'b', i, b, sizeof(b));
		fd = open(a, O_CREAT | O_EXCL | O_WRONLY, 0600);
		if (fd < 0 || (clone && i % 2 && ioctl(fd, FICLONE, source)))
			return 1;
		if (close(fd) || link(a, b))
			return 1;
	}
	return close(source);
}

static int stat_files(struct marked *m)
{
	struct stat st;
	char b[128];

	for (int i = 0; i < m->nr_files; i++) {
		file_name(m, 'b', i, b, sizeof(b));
		if (stat(b, &st))
			return 1;
	}
	return 0;
}

/* And mark their inodes. */
static int write_files(struct marked *m)
{
	static unsigned char buf[FILE_SIZE];
	char a[128];

	for (int i = 0; i < m->nr_files; i++) {
		struct fsxattr fsx;
		int fd;

		file_name(m, 'a', i, a, sizeof(a));
		fd = open(a, O_RDWR);
		file_content(i, buf);
		if (fd < 0 || write(fd, buf, FILE_SIZE) != FILE_SIZE)
			return 1;
		if (ioctl(fd, FS_IOC_FSGETXATTR, &fsx))
			return 1;
		fsx.fsx_xflags ^= FS_XFLAG_DAX;
		if (ioctl(fd, FS_IOC_FSSETXATTR, &fsx) || close(fd))
			return 1;
	}
	return 0;
}

/* Count kernel warnings since the scene was set up, and show the first. */
static int kernel_warnings(struct marked *m)
{
	char rec[8192];
	ssize_t len;
	int nr = 0;

	for (;;) {
		len = read(m->kmsg, rec, sizeof(rec) - 1);
		if (len < 0 && errno == EPIPE)
			continue;
		if (len <= 0)
			break;
		rec[len] = '\0';
		if (!strstr(rec, "WARNING:") && !strstr(rec, "BUG:") &&
		    !strstr(rec, "Busy inodes"))
			continue;
		if (!nr++)
			ksft_print_msg("%s: kernel: %s\n", m->disk->fs,
				       strchr(rec, ';') ? strchr(rec, ';') + 1 : rec);
	}
	return nr;
}

/* Files whose dentry in B is no longer cached: reclaim has pruned it. */
static int nr_pruned(struct marked *m)
{
	const struct open_how how = { .flags = O_PATH, .resolve = RESOLVE_CACHED };
	int nr = 0;
	char b[128];

	for (int i = 0; i < m->nr_files; i++) {
		int fd;

		file_name(m, 'b', i, b, sizeof(b));
		fd = syscall(SYS_openat2, AT_FDCWD, b, &how, sizeof(how));
		if (fd >= 0)
			close(fd);
		nr += fd < 0 && errno == EAGAIN;
	}
	return nr;
}

/* Files that have lost their data after a remount. */
static int lost_files(struct marked *m)
{
	static unsigned char want[FILE_SIZE], have[FILE_SIZE + 1];
	int lost = 0;
	char a[128];

	for (int i = 0; i < m->nr_files; i++) {
		int fd;

		file_name(m, 'a', i, a, sizeof(a));
		file_content(i, want);
		fd = open(a, O_RDONLY);
		if (fd < 0 || read(fd, have, sizeof(have)) != FILE_SIZE ||
		    memcmp(want, have, FILE_SIZE))
			lost++;
		if (fd >= 0)
			close(fd);
	}
	return lost;
}

/* Count the inodes that this task writes, and those of the disk that are evicted. */
static bool count_inodes(struct marked *m)
{
	bool xfs = !strcmp(m->disk->fs, "xfs");
	char filter[64];

	/*
	 * A task that writes to memory.reclaim does the reclaim itself, and must
	 * not show up.
	 */
	snprintf(filter, sizeof(filter), "common_pid == %d", getpid());
	if (!trace_open(m->written, sizeof(m->written), "reclaim_written",
			"writeback/writeback_single_inode_start", filter))
		return false;
	snprintf(filter, sizeof(filter), "dev == %u", m->disk->number);
	return trace_open(m->evicted, sizeof(m->evicted), "reclaim_evicted",
			  xfs ? "xfs/xfs_destroy_inode" : "ext4/ext4_evict_inode", filter);
}

/* The data is dirty, and only B's dentries hold the inodes. */
static void dirty_files(struct __test_metadata *_metadata, struct marked *m)
{
	/* What creation left in the cache belongs to no test. */
	ASSERT_EQ(0, in_cgroup(m, A, make_files));
	ASSERT_EQ(0, sync_fs(m->disk->dir));
	write_text("/proc/sys/vm/drop_caches", "3");

	/* A WARN_ONCE() that fired in an earlier test must be able to fire again. */
	if (access("/sys/kernel/debug/clear_warn_once", F_OK))
		mount("none", "/sys/kernel/debug", "debugfs", 0, NULL);
	if (write_text("/sys/kernel/debug/clear_warn_once", "1"))
		ksft_print_msg("no clear_warn_once: a second warning is not seen\n");
	m->kmsg = open("/dev/kmsg", O_RDONLY | O_NONBLOCK);
	ASSERT_GE(m->kmsg, 0);
	lseek(m->kmsg, 0, SEEK_END);
	ASSERT_EQ(0, in_cgroup(m, B, stat_files));
	ASSERT_EQ(0, in_cgroup(m, A, write_files));
}

static void reclaim_by_request(struct marked *m)
{
	/* There may be less than that. */
	cgroup_reclaim(&m->s, B, 40 * MIB);
}

FIXTURE(dontcache) {
	struct marked m;
};

FIXTURE_VARIANT(dontcache) {
	const char *fs, *disk;
};

FIXTURE_VARIANT_ADD(dontcache, xfs) { "xfs", "RECLAIM_DISK_XFS" };
FIXTURE_VARIANT_ADD(dontcache, ext4) { "ext4", "RECLAIM_DISK_EXT4" };

FIXTURE_SETUP(dontcache)
{
	struct marked *m = &self->m;
	bool xfs = !strcmp(variant->fs, "xfs");
	struct scene *s = &m->s;

	begin_setup(_metadata);
	/* More CPUs may hide more inodes, see freed_when_clean. The disk has room for 10000. */
	m->nr_files = 40 * get_nprocs();
	if (m->nr_files < NR_FILES)
		m->nr_files = NR_FILES;
	if (m->nr_files > 10000)
		m->nr_files = 10000;
	if (!scene_setup(s, "reclaim_dontcache"))
		SKIP(return, "%s", s->why);
	m->disk = scene_disk(s, variant->disk);
	if (!m->disk || !scratch_make(s, m->disk, variant->fs, xfs ? "-m reflink=1" : "")) {
		ASSERT_FALSE(s->failed)
			TH_LOG("%s", s->why);
		SKIP(return, "%s", s->why);
	}
	ASSERT_EQ(0, scene_cgroup(s, A));
	ASSERT_EQ(0, scene_cgroup(s, B));
	dirty_files(_metadata, m);
	if (!count_inodes(m))
		SKIP(return, "no tracepoints of writeback and %s", variant->fs);
}

/* In the parent, so that a test that is killed leaves nothing behind either. */
FIXTURE_TEARDOWN_PARENT(dontcache)
{
	trace_close(self->m.written);
	trace_close(self->m.evicted);
	scene_teardown(&self->m.s);
}

/* syncfs, umount and mount again: what is not on the disk now is lost. */
static void expect_nothing_lost(struct __test_metadata *_metadata, struct marked *m)
{
	int lost, warnings;

	/* syncfs() evicts what reclaim has kept, so it is part of the test. */
	ASSERT_EQ(0, sync_fs(m->disk->dir));
	ASSERT_TRUE(scratch_umount(&m->s, m->disk) && scratch_mount(&m->s, m->disk))
		TH_LOG("%s", m->s.why);
	lost = lost_files(m);
	warnings = kernel_warnings(m);
	ksft_print_msg("%s: lost=%d files=%d warnings=%d\n", m->disk->fs, lost, m->nr_files,
		       warnings);
	EXPECT_EQ(0, lost);
	EXPECT_EQ(0, warnings);
}

/* Without this the test has not reached the path that it tests. */
static void expect_pruned(struct __test_metadata *_metadata, struct marked *m)
{
	int pruned = nr_pruned(m);

	EXPECT_GE(pruned, m->nr_files * 9 / 10)
		TH_LOG("%s: reclaim took only %d of %d dentries", m->disk->fs, pruned,
		       m->nr_files);
}

/* What must hold where the test's own task did the reclaim. */
static void expect_kept_unwritten(struct __test_metadata *_metadata, struct marked *m)
{
	long evicted = trace_total(m->evicted), written = trace_total(m->written);

	ksft_print_msg("%s: written_by_reclaim=%ld kept=%ld\n", m->disk->fs, written,
		       m->nr_files - evicted);
	EXPECT_EQ(0, written);
	EXPECT_LE(evicted, m->nr_files / 10);
	expect_pruned(_metadata, m);
}

/* Look at all inodes of an XFS, as xfsdump(8) does: how many there are, or -1. */
static long bulkstat(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY), ret;
	static struct bulkstat req;
	long nr = 0;

	req.head.ino = 0;
	do {
		req.head.icount = BULK;
		ret = ioctl(fd, BULKSTAT, &req);
		nr += req.head.ocount;
	} while (!ret && req.head.ocount);
	close(fd);
	return ret ? -1 : nr;
}

/*
 * bulkstat drops the inodes in a transaction, where it must not write.
 * Transactions that are short of space wait for the other walk.
 */
static void expect_walks_unwritten(struct __test_metadata *_metadata, struct marked *m)
{
	long evicted = trace_total(m->evicted), written = trace_total(m->written), by_bulkstat;
	struct free_blocks all = { .version = 1 };
	int dir = open(m->disk->dir, O_RDONLY | O_DIRECTORY);

	EXPECT_GE(bulkstat(m->disk->dir), m->nr_files);
	by_bulkstat = trace_total(m->written) - written;
	EXPECT_EQ(0, ioctl(dir, FREE_BLOCKS, &all));
	close(dir);
	evicted = trace_total(m->evicted) - evicted;
	written = trace_total(m->written) - written;
	ksft_print_msg("bulkstat wrote %ld inodes, the other walk %ld; %ld evicted\n",
		       by_bulkstat, written - by_bulkstat, evicted);
	EXPECT_EQ(0, written);
	EXPECT_LE(evicted, m->nr_files / 10);
}

TEST_F_TIMEOUT(dontcache, memory_reclaim, 240)
{
	reclaim_by_request(&self->m);
	expect_kept_unwritten(_metadata, &self->m);
	if (!strcmp(variant->fs, "xfs"))
		expect_walks_unwritten(_metadata, &self->m);
	expect_nothing_lost(_metadata, &self->m);
}

/*
 * Let the flushers clean A's files. Do not use sync(): it takes references, and
 * evicts the inodes when it drops them.
 */
static void let_flushers_write(struct marked *m)
{
	write_text("/proc/sys/vm/dirty_expire_centisecs", "1");
	write_text("/proc/sys/vm/dirty_writeback_centisecs", "10");
	for (int i = 0; i < 600 && cgroup_unclean(&m->s, A) > 0; i++)
		nap(100);
}

/*
 * Reclaim may free an inode that waited for its writeback like any other, but
 * not at once. The inode goes on the LRU when its last folio and that folio's
 * shadow entry are gone. Reclaim tolerates one node full of shadows for every
 * eight pages that the cgroup's statistics show. The statistics lag by seconds
 * until somebody reads them, so the test does; even then they may lag by 64
 * pages a CPU.
 */
TEST_F_TIMEOUT(dontcache, freed_when_clean, 240)
{
	struct marked *m = &self->m;
	long allowed = m->nr_files / 10 + get_nprocs() * 64 / 8, left;
	double until;

	reclaim_by_request(m);
	let_flushers_write(m);
	until = now() + 100;
	for (int i = 0; i < 300 && now() < until; i++) {
		if (trace_total(m->evicted) >= m->nr_files * 9 / 10)
			break;
		/* The folios are charged to A. */
		cgroup_reclaim(&m->s, A, 40 * MIB);
		reclaim_by_request(m);
		cgroup_figure(&m->s, A, "memory.stat", "file");
		nap(100);
	}
	/* Before the remount, which evicts the others. */
	left = m->nr_files - trace_total(m->evicted);
	expect_nothing_lost(_metadata, m);
	ksft_print_msg("%s: %ld of %d inodes left\n", m->disk->fs, left, m->nr_files);
	EXPECT_LE(left, allowed);
}

TEST_HARNESS_MAIN
