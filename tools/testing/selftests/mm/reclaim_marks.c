// SPDX-License-Identifier: GPL-2.0-only
/*
 * Metadata that is used once, or only read ahead, must not look used often.
 *
 * On an ext4 with many inodes, the test looks up every 512th inode. Each lookup
 * reads 32 blocks of an inode table and uses one. The task that does the
 * lookups is in its own memory cgroup, so /proc/kpagecgroup identifies its
 * pages. Those that /proc/kpageflags shows as page cache are ext4's metadata.
 * Most of what was only read ahead must carry no mark, and what was used once
 * must not be active. A second scan must find its blocks in memory and activate
 * them, as a real second use does. The test does not map or read the pages in
 * between, as that would be a use.
 *
 * A page's flags show neither the generations of MGLRU nor how often MGLRU has
 * seen the page used. There the test checks the marks of the pages that were
 * only read ahead. The KUnit suite bdev_getblk checks the rest.
 *
 * Scratch disk: RECLAIM_DISK_EXT4 names a block device that may be overwritten;
 * without it a sparse file under $TMPDIR is used through a loop device. Needs
 * root.
 */
#include "kselftest_harness.h"
#include "reclaim_util.h"

#include <fcntl.h>
#include <linux/kernel-page-flags.h>
#include <linux/limits.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define STRIDE		512
#define NR_LOOKUPS	32
#define NR_FILES	(STRIDE * NR_LOOKUPS)
#define DISK_MIB	256UL

struct pages {
	long cached, active, referenced;
};

struct scene {
	char dir[64], mnt[80], disk[PATH_MAX], file[PATH_MAX], cgroup[96];
	bool mounted, loop, enabled;
};

FIXTURE(marks) {
	struct scene scene;
};

/* The first free loop device, backed by the test's file. */
static bool setup_loop(struct scene *s)
{
	const char *folder = scratch_folder();
	int control, fd, backing, nr;

	snprintf(s->file, sizeof(s->file), "%s/reclaim_marks.%d", folder, getpid());
	backing = open(s->file, O_RDWR | O_CREAT, 0600);
	if (backing < 0 || ftruncate(backing, DISK_MIB << 20))
		return false;
	control = open("/dev/loop-control", O_RDWR);
	nr = control < 0 ? -1 : ioctl(control, LOOP_CTL_GET_FREE);
	close(control);
	if (nr < 0)
		return false;
	snprintf(s->disk, sizeof(s->disk), "/dev/loop%d", nr);
	fd = open(s->disk, O_RDWR);
	if (fd < 0 || ioctl(fd, LOOP_SET_FD, backing))
		return false;
	close(fd);
	close(backing);
	s->loop = true;
	return true;
}

static bool mount_disk(struct scene *s)
{
	/* The thread that zeroes inode tables would use blocks, too. */
	s->mounted = !mount(s->disk, s->mnt, "ext4", MS_NOATIME, "noinit_itable");
	return s->mounted;
}

static bool umount_disk(struct scene *s)
{
	if (umount(s->mnt))
		return false;
	s->mounted = false;
	return true;
}

static bool create(const char *path)
{
	int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);

	return fd >= 0 && !close(fd);
}

static bool make_scene(struct scene *s)
{
	const char *disk = getenv("RECLAIM_DISK_EXT4");
	char path[128];

	snprintf(s->dir, sizeof(s->dir), "/tmp/reclaim_marks.XXXXXX");
	if (!mkdtemp(s->dir)) {
		s->dir[0] = '\0';
		return false;
	}
	snprintf(s->cgroup, sizeof(s->cgroup), "/sys/fs/cgroup/reclaim_marks.%d", getpid());
	snprintf(s->mnt, sizeof(s->mnt), "%s/mnt", s->dir);
	if (mkdir(s->cgroup, 0700) || mkdir(s->mnt, 0700))
		return false;
	if (disk)
		snprintf(s->disk, sizeof(s->disk), "%s", disk);
	else if (!setup_loop(s))
		return false;
	if (shell("mkfs.ext4 -F -q -b 4096 -I 256 -N %d %s %luM >/dev/null 2>&1",
		  2 * NR_FILES, s->disk, DISK_MIB) || !mount_disk(s))
		return false;
	/* Files created in a row in one directory have inodes in a row. */
	for (int i = 0; i < NR_FILES; i++) {
		snprintf(path, sizeof(path), "%s/%d", s->mnt, i);
		if (!create(path))
			return false;
	}
	/* The last close of the device empties its cache. */
	return umount_disk(s) && mount_disk(s);
}

static void end_scene(struct scene *s)
{
	if (s->mounted)
		umount_disk(s);
	if (s->cgroup[0])
		remove_cgroup(s->cgroup);
	if (s->enabled)
		disable_controller("/sys/fs/cgroup", "memory");
	if (s->loop) {
		int fd = open(s->disk, O_RDWR);

		ioctl(fd, LOOP_CLR_FD, 0);
		close(fd);
	}
	if (s->file[0])
		unlink(s->file);
	if (s->mnt[0])
		rmdir(s->mnt);
	if (s->dir[0])
		rmdir(s->dir);
}

FIXTURE_SETUP(marks)
{
	struct scene *s = &self->scene;

	begin_setup(_metadata);
	if (geteuid())
		SKIP(return, "needs root");
	if (sysconf(_SC_PAGESIZE) != 4096)
		SKIP(return, "its sizes are made for pages of 4096 bytes");
	if (access("/proc/kpageflags", R_OK) || access("/proc/kpagecgroup", R_OK))
		SKIP(return, "no /proc/kpagecgroup: it needs PROC_PAGE_MONITOR and MEMCG");
	if (!getenv("RECLAIM_DISK_EXT4") && !scratch_folder())
		SKIP(return, BAD_FOLDER);
	if (shell("command -v mkfs.ext4 >/dev/null"))
		SKIP(return, "no mkfs.ext4");
	if (shell("grep -qw ext4 /proc/filesystems || modprobe -q ext4"))
		SKIP(return, "no ext4 in this kernel");
	if (!enable_controller("/sys/fs/cgroup", "memory", &s->enabled))
		SKIP(return, "no memory controller in cgroup v2 at /sys/fs/cgroup");
	ASSERT_TRUE(make_scene(s)) {
		TH_LOG("the scratch filesystem cannot be made");
	}
}

/* In the parent, so that a test that is killed leaves nothing behind either. */
FIXTURE_TEARDOWN_PARENT(marks)
{
	end_scene(&self->scene);
}

static int scan(struct scene *s)
{
	char path[128];
	struct stat st;

	for (int i = 0; i < NR_FILES; i += STRIDE) {
		snprintf(path, sizeof(path), "%s/%d", s->mnt, i);
		if (stat(path, &st))
			return -1;
	}
	return 0;
}

/* A scan by a task in the cgroup: what it reads is charged there. */
static bool scan_in_cgroup(struct scene *s)
{
	pid_t pid = fork();
	char path[128];
	int status;

	if (!pid) {
		snprintf(path, sizeof(path), "%s/cgroup.procs", s->cgroup);
		if (write_text(path, "0"))
			_exit(1);
		_exit(scan(s) ? 2 : 0);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && !status;
}

/* The cgroup's page cache, and how much of it is active and marked. */
static bool look_at_pages(struct scene *s, struct pages *p)
{
	static uint64_t flags[4096], owner[4096];
	int flags_fd, owner_fd;
	struct stat st;
	ssize_t len;

	memset(p, 0, sizeof(*p));
	/* Marked and activated folios wait in the CPUs' batches; this drains them. */
	write_text("/proc/sys/vm/compact_memory", "1");
	if (stat(s->cgroup, &st))
		return false;
	flags_fd = open("/proc/kpageflags", O_RDONLY);
	owner_fd = open("/proc/kpagecgroup", O_RDONLY);
	while ((len = read(flags_fd, flags, sizeof(flags))) > 0 &&
	       read(owner_fd, owner, len) == len) {
		for (size_t i = 0; i < len / sizeof(flags[0]); i++) {
			if (owner[i] != st.st_ino || !(flags[i] & (1ULL << KPF_LRU)) ||
			    flags[i] & (1ULL << KPF_ANON))
				continue;
			p->cached++;
			p->active += !!(flags[i] & (1ULL << KPF_ACTIVE));
			p->referenced += !!(flags[i] & (1ULL << KPF_REFERENCED));
		}
	}
	close(flags_fd);
	close(owner_fd);
	ksft_print_msg("%s: %ld pages of the device cached, %ld active, %ld referenced\n",
		       mglru() ? "MGLRU" : "classic LRU", p->cached, p->active, p->referenced);
	return !len;
}

TEST_F_TIMEOUT(marks, a_scan_does_not_activate, 120)
{
	struct scene *s = &self->scene;
	struct pages p;

	ASSERT_TRUE(scan_in_cgroup(s));
	ASSERT_TRUE(look_at_pages(s, &p));
	/* Without readahead this would not test what it is meant to. */
	ASSERT_GT(p.cached, NR_LOOKUPS * 16);
	/* A block of the directory may be used for several names. */
	EXPECT_LT(p.active, NR_LOOKUPS / 2)
		TH_LOG("%ld of %ld pages active after one use", p.active, p.cached);
	EXPECT_LE(p.referenced * 5, p.cached)
		TH_LOG("%ld of %ld pages marked; most were only read ahead",
		       p.referenced, p.cached);
	if (mglru())
		return;
	/* Drop inodes and dentries; the device's pages stay. */
	ASSERT_EQ(0, write_text("/proc/sys/vm/drop_caches", "2"));
	ASSERT_TRUE(scan_in_cgroup(s));
	ASSERT_TRUE(look_at_pages(s, &p));
	ASSERT_GT(p.cached, NR_LOOKUPS * 16);
	EXPECT_GE(p.active, NR_LOOKUPS)
		TH_LOG("%ld of %ld pages active after two uses", p.active, p.cached);
	EXPECT_LE((p.active + p.referenced) * 5, p.cached);
}

TEST_HARNESS_MAIN
