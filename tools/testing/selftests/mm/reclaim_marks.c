// SPDX-License-Identifier: GPL-2.0-only
/*
 * Metadata that was only read ahead must not become active.
 *
 * On an ext4 with many inodes, the test looks up every 512th inode. Each lookup
 * reads 32 blocks of an inode table and uses one. The task that does the
 * lookups is in its own memory cgroup, so /proc/kpagecgroup identifies its
 * pages. Those that /proc/kpageflags shows as page cache are ext4's metadata.
 * Few of them may be active. The block that a lookup wants is active: it is among
 * those that are read ahead, which counts as a use, too.
 *
 * A page's flags show neither the generations of MGLRU nor how often MGLRU has
 * seen the page used. The KUnit suite bdev_getblk checks that.
 *
 * Needs root and a scratch disk (see reclaim_scene.h).
 */
#include "kselftest_harness.h"
#include "reclaim_scene.h"

#include <linux/kernel-page-flags.h>

#define STRIDE		512
#define NR_LOOKUPS	32
#define NR_FILES	(STRIDE * NR_LOOKUPS)

struct pages {
	long cached, active;
};

FIXTURE(marks) {
	struct scene s;
	struct scratch *disk;
};

FIXTURE_SETUP(marks)
{
	struct scene *s = &self->s;
	char path[128];

	begin_setup(_metadata);
	if (sysconf(_SC_PAGESIZE) != 4096)
		SKIP(return, "its sizes are made for pages of 4096 bytes");
	if (mglru())
		SKIP(return, "MGLRU's flags do not tell how often a page was used");
	if (too_big())
		SKIP(return, "more than 1 GiB of memory, all of which it would compact and read");
	if (access("/proc/kpageflags", R_OK) || access("/proc/kpagecgroup", R_OK))
		SKIP(return, "no /proc/kpagecgroup: needs root, PROC_PAGE_MONITOR and MEMCG");
	if (!scene_setup(s, "reclaim_marks"))
		SKIP(return, "%s", s->why);
	self->disk = scene_disk(s, "RECLAIM_DISK_EXT4");
	/* Whatever the disk's size, a group has 16384 inodes, enough for a long row. */
	if (!self->disk || !scratch_make(s, self->disk, "ext4", "-b 4096 -I 256 -i 8192")) {
		ASSERT_FALSE(s->failed)
			TH_LOG("%s", s->why);
		SKIP(return, "%s", s->why);
	}
	ASSERT_EQ(0, scene_cgroup(s, 0));
	/* Files created in a row in one directory have inodes in a row. */
	for (int i = 0; i < NR_FILES; i++) {
		snprintf(path, sizeof(path), "%s/%d", self->disk->dir, i);
		ASSERT_EQ(0, mknod(path, S_IFREG | 0600, 0));
	}
	/* The last close of the device empties its cache. */
	ASSERT_TRUE(scratch_umount(s, self->disk) && scratch_mount(s, self->disk))
		TH_LOG("%s", s->why);
}

/* In the parent, so that a test that is killed leaves nothing behind either. */
FIXTURE_TEARDOWN_PARENT(marks)
{
	scene_teardown(&self->s);
}

static int scan(const char *dir)
{
	char path[128];
	struct stat st;

	for (int i = 0; i < NR_FILES; i += STRIDE) {
		snprintf(path, sizeof(path), "%s/%d", dir, i);
		if (stat(path, &st))
			return 1;
	}
	return 0;
}

/* A scan by a task in the cgroup: what it reads is charged there. */
static bool scan_in_cgroup(struct scene *s, const char *dir)
{
	pid_t pid = fork_into(s, 0);

	if (!pid)
		_exit(scan(dir));
	return !wait_for(pid);
}

/* The cgroup's page cache, and how much of it is active. */
static bool look_at_pages(struct scene *s, struct pages *p)
{
	static uint64_t flags[4096], owner[4096];
	int flags_fd, owner_fd;
	struct stat st;
	ssize_t len;

	memset(p, 0, sizeof(*p));
	/* Marked and activated folios wait in the CPUs' batches; this drains them. */
	write_text("/proc/sys/vm/compact_memory", "1");
	if (stat(s->cgroup[0], &st))
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
		}
	}
	close(flags_fd);
	close(owner_fd);
	ksft_print_msg("%ld pages of the device cached, %ld active\n", p->cached, p->active);
	return !len;
}

TEST_F_TIMEOUT(marks, a_scan_does_not_activate, 120)
{
	const char *dir = self->disk->dir;
	struct scene *s = &self->s;
	struct pages p;

	ASSERT_TRUE(scan_in_cgroup(s, dir));
	ASSERT_TRUE(look_at_pages(s, &p));
	/* Without readahead this would not test what it is meant to. */
	ASSERT_GT(p.cached, NR_LOOKUPS * 16);
	EXPECT_LT(p.active * 4, p.cached)
		TH_LOG("%ld of %ld pages active after one scan", p.active, p.cached);
}

TEST_HARNESS_MAIN
