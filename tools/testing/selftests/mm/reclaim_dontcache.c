// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reclaim must neither lose nor write the data of an I_DONTCACHE inode.
 *
 * When reclaim prunes the last dentry of an inode that d_mark_dontcache() has
 * marked, iput_final() evicts the inode instead of caching it. If the inode is
 * dirty at that time, its data has to go somewhere first. Linux 7.3 wrote the
 * data synchronously from the reclaiming task. ext4 and XFS complained, and XFS
 * refused, so the data was gone while write(2), sync(2) and umount(2) had all
 * reported success.
 *
 * Each test makes files with two names. A task in memory cgroup A writes and
 * marks the inode through aN. The dentry of bN belongs to memory cgroup B and
 * is all that holds the inode afterwards. memory.reclaim then takes B's dentries.
 * Periodic writeback is off, so nothing else writes the data in the meantime. After
 * a remount every byte is compared.
 *
 * The inodes are marked by toggling FS_XFLAG_DAX.
 *
 * Scratch disks: RECLAIM_DISK_XFS and RECLAIM_DISK_EXT4 name block devices that
 * may be overwritten. Without them a sparse file under $TMPDIR is used through a
 * loop device. Needs root.
 */
#include "kselftest_harness.h"
#include "reclaim_util.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>

#define NR_FILES	500
#define FILE_SIZE	(16 << 10)

struct scene {
	const char *fs;
	int nr_files;
	char dir[64];		/* our directory; the mount point is dir/mnt */
	char disk[PATH_MAX];
	bool loop;
	bool mounted;
	bool traced;
	bool cannot;		/* the machine lacks something: no failure */
	bool own_memory;	/* we switched the memory controller on */
	char cgroup[2][128];	/* A writes, B holds the last dentries */
	char root[80];		/* of the cgroups */
	char tracefs[160];
	int kmsg;
	long inodes;		/* all in the kernel, with our dirty ones */
	long left;		/* cached inodes of the filesystem at its umount */
	char saved[6][32];
	char why[256];		/* what went wrong, or why it cannot run */
};

enum { A, B };

static const struct {
	const char *path, *value;
} knobs[] = {
	/* Only reclaim may write: no periodic writeback, no dirty throttling. */
	{ "/proc/sys/vm/dirty_writeback_centisecs", "0" },
	{ "/proc/sys/vm/dirty_ratio", "90" },
	{ "/proc/sys/vm/dirty_background_ratio", "80" },
	/* The default; a test changes it. */
	{ "/proc/sys/vm/dirty_expire_centisecs", "3000" },
	/* Only saved for later: setting a ratio clears these. */
	{ "/proc/sys/vm/dirty_bytes", NULL },
	{ "/proc/sys/vm/dirty_background_bytes", NULL },
};

static long nr_inodes(void)
{
	char buf[64];

	return read_text("/proc/sys/fs/inode-nr", buf, sizeof(buf)) ? -1 : atol(buf);
}

static bool fail(struct scene *s, const char *what, int err)
{
	snprintf(s->why, sizeof(s->why), "%s: %s: %s", s->fs, what, strerror(err));
	return false;
}

static bool cannot(struct scene *s, const char *what)
{
	snprintf(s->why, sizeof(s->why), "%s: %s", s->fs, what);
	s->cannot = true;
	return false;
}

static void file_name(const struct scene *s, char kind, int i, char *buf, size_t size)
{
	snprintf(buf, size, "%s/mnt/%c%d", s->dir, kind, i);
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
static int in_cgroup(struct scene *s, int cgroup, int (*fn)(struct scene *s))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		if (write_under(s->cgroup[cgroup], "cgroup.procs", "0"))
			_exit(255);
		_exit(fn(s));
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status))
		return 255;
	return WEXITSTATUS(status);
}

static int make_files(struct scene *s)
{
	char a[128], b[128];

	for (int i = 0; i < s->nr_files; i++) {
		int fd;

		file_name(s, 'a', i, a, sizeof(a));
		file_name(s, 'b', i, b, sizeof(b));
		fd = open(a, O_CREAT | O_EXCL | O_WRONLY, 0600);
		if (fd < 0 || close(fd) || link(a, b))
			return 1;
	}
	return 0;
}

static int stat_files(struct scene *s)
{
	struct stat st;
	char b[128];

	for (int i = 0; i < s->nr_files; i++) {
		file_name(s, 'b', i, b, sizeof(b));
		if (stat(b, &st))
			return 1;
	}
	return 0;
}

/* And mark their inodes. */
static int write_files(struct scene *s)
{
	static unsigned char buf[FILE_SIZE];
	char a[128];

	for (int i = 0; i < s->nr_files; i++) {
		struct fsxattr fsx;
		int fd;

		file_name(s, 'a', i, a, sizeof(a));
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

static bool setup_cgroups(struct scene *s)
{
	const char *root = "/sys/fs/cgroup";
	char own[80];

	if (access("/sys/fs/cgroup/cgroup.controllers", F_OK)) {
		snprintf(own, sizeof(own), "%s/cgroup", s->dir);
		mkdir(own, 0700);
		if (mount("none", own, "cgroup2", 0, NULL))
			return cannot(s, "no cgroup v2");
		root = own;
	}
	if (!enable_controller(root, "memory", &s->own_memory))
		return cannot(s, "no memory controller in cgroup v2");
	snprintf(s->root, sizeof(s->root), "%s", root);
	for (int i = A; i <= B; i++) {
		snprintf(s->cgroup[i], sizeof(s->cgroup[i]), "%s/reclaim_dontcache.%d.%c",
			 root, getpid(), "AB"[i]);
		if (mkdir(s->cgroup[i], 0700))
			return fail(s, "mkdir of a memory cgroup", errno);
	}
	return true;
}

static bool mount_scratch(struct scene *s)
{
	char mnt[80];
	int ret;

	snprintf(mnt, sizeof(mnt), "%s/mnt", s->dir);
	if (s->loop)
		ret = shell("mount -t %s -o loop %s %s", s->fs, s->disk, mnt);
	else
		ret = mount(s->disk, mnt, s->fs, 0, NULL);
	if (ret)
		return fail(s, "mount", s->loop ? EIO : errno);
	s->mounted = true;
	return true;
}

static bool umount_scratch(struct scene *s)
{
	char mnt[80];

	snprintf(mnt, sizeof(mnt), "%s/mnt", s->dir);
	if (umount(mnt))
		return fail(s, "umount", errno);
	s->mounted = false;
	return true;
}

static int sync_scratch(struct scene *s)
{
	char mnt[80];

	snprintf(mnt, sizeof(mnt), "%s/mnt", s->dir);
	return sync_fs(mnt);
}

static bool setup_disk(struct scene *s)
{
	const char *disk, *folder = scratch_folder();
	char var[32] = "RECLAIM_DISK_", mnt[80];
	const char *force = !strcmp(s->fs, "ext4") ? "-F" : "-f";

	for (size_t i = 0, at = strlen(var); s->fs[i] && at + i + 1 < sizeof(var); i++)
		var[at + i] = toupper(s->fs[i]);
	disk = getenv(var);
	if (!disk && !folder)
		return cannot(s, BAD_FOLDER);
	s->loop = !disk;
	if (disk) {
		snprintf(s->disk, sizeof(s->disk), "%s", disk);
	} else {
		snprintf(s->disk, sizeof(s->disk), "%s/reclaim_dontcache.%d", folder, getpid());
		if (shell("truncate -s 512M %s", s->disk))
			return fail(s, "scratch file", EIO);
	}
	if (shell("command -v mkfs.%s >/dev/null", s->fs))
		return cannot(s, "no mkfs for it");
	if (shell("grep -qw %s /proc/filesystems || modprobe -q %s", s->fs, s->fs))
		return cannot(s, "not in this kernel");
	if (shell("mkfs.%s -q %s %s >/dev/null 2>&1", s->fs, force, s->disk))
		return fail(s, "mkfs", EIO);
	snprintf(mnt, sizeof(mnt), "%s/mnt", s->dir);
	mkdir(mnt, 0700);
	return mount_scratch(s);
}

/*
 * Record the inodes that this task writes. A task that writes to memory.reclaim
 * does the reclaim itself, and must not show up.
 */
static void setup_trace(struct scene *s)
{
	const char *root = "/sys/kernel/tracing";

	if (access("/sys/kernel/tracing/instances", F_OK) &&
	    mount("none", root, "tracefs", 0, NULL))
		return;
	snprintf(s->tracefs, sizeof(s->tracefs), "%s/instances/reclaim_dontcache.%d",
		 root, getpid());
	if (mkdir(s->tracefs, 0700)) {
		s->tracefs[0] = '\0';
		return;
	}
	s->traced = !write_under(s->tracefs,
				 "events/writeback/writeback_single_inode_start/filter",
				 "common_pid == %d", getpid()) &&
		    !write_under(s->tracefs,
				 "events/writeback/writeback_single_inode_start/enable", "1");
}

static long inodes_written_by_us(struct scene *s)
{
	char path[192], line[512];
	long nr = 0;
	FILE *f;

	if (!s->traced)
		return -1;
	snprintf(path, sizeof(path), "%s/trace", s->tracefs);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		nr += !!strstr(line, "writeback_single_inode_start");
	if (f)
		fclose(f);
	return nr;
}

/* Count kernel warnings since the scene was set up, and show the first. */
static int kernel_warnings(struct scene *s)
{
	char rec[8192];
	ssize_t len;
	int nr = 0;

	for (;;) {
		len = read(s->kmsg, rec, sizeof(rec) - 1);
		if (len < 0 && errno == EPIPE)
			continue;
		if (len <= 0)
			break;
		rec[len] = '\0';
		if (!strstr(rec, "WARNING:") && !strstr(rec, "BUG:") &&
		    !strstr(rec, "Busy inodes"))
			continue;
		if (!nr++)
			ksft_print_msg("%s: kernel: %s\n", s->fs,
				       strchr(rec, ';') ? strchr(rec, ';') + 1 : rec);
	}
	return nr;
}

/* Files whose dentry in B is no longer cached: reclaim has pruned it. */
static int nr_pruned(struct scene *s)
{
	const struct open_how how = { .flags = O_PATH, .resolve = RESOLVE_CACHED };
	int nr = 0;
	char b[128];

	for (int i = 0; i < s->nr_files; i++) {
		int fd;

		file_name(s, 'b', i, b, sizeof(b));
		fd = syscall(SYS_openat2, AT_FDCWD, b, &how, sizeof(how));
		if (fd >= 0)
			close(fd);
		nr += fd < 0 && errno == EAGAIN;
	}
	return nr;
}

/* Files that have lost their data after a remount. */
static int lost_files(struct scene *s)
{
	static unsigned char want[FILE_SIZE], have[FILE_SIZE + 1];
	int lost = 0;
	char a[128];

	for (int i = 0; i < s->nr_files; i++) {
		int fd;

		file_name(s, 'a', i, a, sizeof(a));
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

static bool scene_setup(struct scene *s, const char *fs, int nr_files)
{
	char dir[] = "/tmp/reclaim_dontcache.XXXXXX";

	s->fs = fs;
	s->nr_files = nr_files;
	s->kmsg = -1;
	if (geteuid())
		return cannot(s, "needs root");
	if (!mkdtemp(dir))
		return fail(s, "mkdtemp", errno);
	snprintf(s->dir, sizeof(s->dir), "%s", dir);
	for (size_t i = 0; i < ARRAY_SIZE(knobs); i++) {
		if (read_text(knobs[i].path, s->saved[i], sizeof(s->saved[i])))
			return fail(s, knobs[i].path, EIO);
	}
	for (size_t i = 0; i < ARRAY_SIZE(knobs); i++) {
		if (knobs[i].value && write_text(knobs[i].path, knobs[i].value))
			return fail(s, knobs[i].path, EIO);
	}
	return setup_cgroups(s) && setup_disk(s);
}

/* The data is dirty, and only B's dentries hold the inodes. */
static bool scene_dirty(struct scene *s)
{
	/* What creation left in the cache belongs to no test. */
	if (in_cgroup(s, A, make_files) || sync_scratch(s))
		return fail(s, "making files", EIO);
	write_text("/proc/sys/vm/drop_caches", "3");

	/* A WARN_ONCE() that fired in an earlier test must be able to fire again. */
	if (access("/sys/kernel/debug/clear_warn_once", F_OK))
		mount("none", "/sys/kernel/debug", "debugfs", 0, NULL);
	if (write_text("/sys/kernel/debug/clear_warn_once", "1"))
		ksft_print_msg("no clear_warn_once: a second warning is not seen\n");
	s->kmsg = open("/dev/kmsg", O_RDONLY | O_NONBLOCK);
	if (s->kmsg < 0)
		return fail(s, "/dev/kmsg", errno);
	lseek(s->kmsg, 0, SEEK_END);
	if (in_cgroup(s, B, stat_files))
		return fail(s, "looking at files", EIO);
	if (in_cgroup(s, A, write_files))
		return fail(s, "writing and marking files", EIO);
	setup_trace(s);
	s->inodes = nr_inodes();
	return true;
}

static void scene_teardown(struct scene *s)
{
	char cmd[160];

	if (!s->dir[0])
		return;
	if (s->tracefs[0])
		rmdir(s->tracefs);
	if (s->mounted)
		umount_scratch(s);
	for (int i = A; i <= B; i++) {
		if (s->cgroup[i][0])
			remove_cgroup(s->cgroup[i]);
	}
	if (s->own_memory)
		disable_controller(s->root, "memory");
	/* Bytes that are 0 do not count, a ratio of 0 may. */
	for (size_t i = 0; i < ARRAY_SIZE(knobs); i++) {
		if (s->saved[i][0] && (knobs[i].value || strcmp(s->saved[i], "0")))
			write_text(knobs[i].path, s->saved[i]);
	}
	if (s->loop)
		unlink(s->disk);
	snprintf(cmd, sizeof(cmd), "%s/cgroup", s->dir);
	if (!access(cmd, F_OK)) {
		umount(cmd);
		rmdir(cmd);
	}
	snprintf(cmd, sizeof(cmd), "%s/mnt", s->dir);
	rmdir(cmd);
	rmdir(s->dir);
}

static void reclaim_by_request(struct scene *s)
{
	/* -EAGAIN only means that there was less than 40M. */
	write_under(s->cgroup[B], "memory.reclaim", "40M");
}

/*
 * syncfs, umount and mount again: what is not on the disk now is lost. The number
 * of inodes that disappear with the filesystem is the number that were cached.
 * If some tens of other inodes appear meanwhile, that number comes out too
 * small, even negative.
 */
static bool scene_remount(struct scene *s)
{
	long before = nr_inodes();

	/* syncfs() evicts what reclaim has kept, so it is part of the test. */
	if (sync_scratch(s) || !umount_scratch(s))
		return false;
	s->left = before - nr_inodes();
	return mount_scratch(s);
}

FIXTURE(dontcache) {
	struct scene scene;
};

FIXTURE_VARIANT(dontcache) {
	const char *fs;
};

FIXTURE_VARIANT_ADD(dontcache, xfs) { .fs = "xfs" };
FIXTURE_VARIANT_ADD(dontcache, ext4) { .fs = "ext4" };

FIXTURE_SETUP(dontcache)
{
	struct scene *s = &self->scene;

	/* More CPUs may hide more inodes, see freed_when_clean. The disk has room for 10000. */
	int nr_files = 40 * get_nprocs();

	begin_setup(_metadata);
	if (nr_files < NR_FILES)
		nr_files = NR_FILES;
	if (nr_files > 10000)
		nr_files = 10000;
	if (!scene_setup(s, variant->fs, nr_files) || !scene_dirty(s)) {
		if (s->cannot)
			SKIP(return, "%s", s->why);
		ASSERT_EQ(0, 1)
			TH_LOG("%s", s->why);
	}
}

/* In the parent, so that a test that is killed leaves nothing behind either. */
FIXTURE_TEARDOWN_PARENT(dontcache)
{
	scene_teardown(&self->scene);
}

static void expect_nothing_lost(struct __test_metadata *_metadata, struct scene *s)
{
	int lost, warnings;

	ASSERT_TRUE(scene_remount(s))
		TH_LOG("%s", s->why);
	lost = lost_files(s);
	warnings = kernel_warnings(s);
	ksft_print_msg("%s: lost=%d files=%d warnings=%d\n", s->fs, lost, s->nr_files, warnings);
	EXPECT_EQ(0, lost);
	EXPECT_EQ(0, warnings);
}

/* Without this the test has not reached the path that it tests. */
static void expect_pruned(struct __test_metadata *_metadata, struct scene *s)
{
	int pruned = nr_pruned(s);

	EXPECT_GE(pruned, s->nr_files * 9 / 10)
		TH_LOG("%s: reclaim took only %d of %d dentries", s->fs, pruned, s->nr_files);
}

/* What must hold where the test's own task did the reclaim. */
static void expect_kept_unwritten(struct __test_metadata *_metadata, struct scene *s)
{
	long gone = s->inodes - nr_inodes(), written = inodes_written_by_us(s);

	ksft_print_msg("%s: written_by_reclaim=%ld kept=%ld\n", s->fs, written, s->nr_files - gone);
	/* Without tracefs nobody knows who writes. */
	EXPECT_LE(written, 0);
	/* Other inodes come and go, too, some tens of them. */
	EXPECT_LE(gone, s->nr_files / 2);
	expect_pruned(_metadata, s);
}

TEST_F_TIMEOUT(dontcache, memory_reclaim, 240)
{
	reclaim_by_request(&self->scene);
	expect_kept_unwritten(_metadata, &self->scene);
	expect_nothing_lost(_metadata, &self->scene);
}

/*
 * Let the flushers clean A's files. Do not use sync(): it takes references, and
 * evicts the inodes when it drops them.
 */
static void let_flushers_write(struct scene *s)
{
	write_text("/proc/sys/vm/dirty_expire_centisecs", "1");
	write_text("/proc/sys/vm/dirty_writeback_centisecs", "10");
	for (int i = 0; i < 600; i++) {
		if (figure_under(s->cgroup[A], "memory.stat", "file_dirty") <= 0 &&
		    figure_under(s->cgroup[A], "memory.stat", "file_writeback") <= 0)
			break;
		usleep(100000);
	}
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
	struct scene *s = &self->scene;
	long allowed = s->nr_files / 10 + get_nprocs() * 64 / 8;
	long freed = 0;
	double until;

	reclaim_by_request(s);
	let_flushers_write(s);
	until = now() + 100;
	for (int i = 0; i < 300 && freed < s->nr_files * 9 / 10 && now() < until; i++) {
		/* The folios are charged to A. */
		write_under(s->cgroup[A], "memory.reclaim", "40M");
		reclaim_by_request(s);
		figure_under(s->cgroup[A], "memory.stat", "file");
		freed = s->inodes - nr_inodes();
		usleep(100000);
	}
	/* @freed only says when to stop: other inodes come and go, too. */
	expect_nothing_lost(_metadata, s);
	ksft_print_msg("%s: %ld inodes fewer than the %d files had, %ld left\n", s->fs, freed,
		       s->nr_files, s->left);
	EXPECT_LE(s->left, allowed);
}

TEST_HARNESS_MAIN
