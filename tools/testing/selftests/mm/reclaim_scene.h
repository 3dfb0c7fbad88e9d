/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by tests of reclaim, mostly of dirty data: scratch disks, memory
 * cgroups, and settings that leave all writing to reclaim.
 *
 * Scratch disks: RECLAIM_DISK_XFS and _EXT4 name whole block devices, not
 * partitions, that may be overwritten, with any filesystem. Without them sparse
 * files under $TMPDIR, not on tmpfs or overlayfs, are used through loop devices.
 */
#ifndef RECLAIM_SCENE_H
#define RECLAIM_SCENE_H

#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include "reclaim_util.h"

#define MAX_DISKS	2
#define MAX_CGROUPS	2
#define MAX_KNOBS	6

static const struct knob scene_knobs[MAX_KNOBS] = {
	/* Only reclaim makes flushers write: neither age nor dirty limits do. */
	{ "/proc/sys/vm/dirty_writeback_centisecs", "0" },
	{ "/proc/sys/vm/dirty_ratio", "100" },
	{ "/proc/sys/vm/dirty_background_ratio", "99" },
	{ "/proc/sys/vm/dirty_bytes", NULL },
	{ "/proc/sys/vm/dirty_background_bytes", NULL },
	/* The default; a test changes it. */
	{ "/proc/sys/vm/dirty_expire_centisecs", "3000" },
};

struct scratch {
	char dev[64];
	char file[PATH_MAX];	/* behind a loop device of ours */
	char bdi[32];		/* its name in tracepoints */
	unsigned int number;	/* the same for their filters: dev == number */
	const char *fs;
	char dir[96];		/* the mount point */
	bool slow;		/* see scratch_limit() */
};

struct scene {
	char dir[64];
	char cgroups[80];	/* the root of cgroup v2 */
	bool own_cgroups, own_memory, own_io;
	char cgroup[MAX_CGROUPS][128];
	struct scratch disk[MAX_DISKS];
	int nr_disks;
	const struct knob *knobs;	/* NULL for scene_knobs */
	char saved[MAX_KNOBS][KNOB_TEXT];
	char why[256];		/* why it cannot run */
	bool failed;		/* and that is not because the machine lacks something */
};

__printf(2, 3)
static inline bool scene_cannot(struct scene *s, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(s->why, sizeof(s->why), fmt, ap);
	va_end(ap);
	return false;
}

static inline int nr_knobs(const struct scene *s)
{
	int nr = 0;

	while (s->knobs && nr < MAX_KNOBS && s->knobs[nr].path)
		nr++;
	return nr;
}

static inline bool scene_setup(struct scene *s, const char *name)
{
	if (geteuid())
		return scene_cannot(s, "needs root");
	if (oom_does_more())
		return scene_cannot(s, "tasks may be killed: set %s to 0", oom_does_more());
	snprintf(s->dir, sizeof(s->dir), "/tmp/%s.XXXXXX", name);
	if (!mkdtemp(s->dir)) {
		s->dir[0] = '\0';
		return scene_cannot(s, "no directory in /tmp");
	}
	if (!s->knobs)
		s->knobs = scene_knobs;
	if (!set_knobs(s->knobs, s->saved, nr_knobs(s)))
		return scene_cannot(s, "no dirty limits in /proc/sys/vm");
	snprintf(s->cgroups, sizeof(s->cgroups), "/sys/fs/cgroup");
	if (access("/sys/fs/cgroup/cgroup.controllers", F_OK)) {
		snprintf(s->cgroups, sizeof(s->cgroups), "%s/cgroup", s->dir);
		s->own_cgroups = true;
		mkdir(s->cgroups, 0700);
		if (mount("none", s->cgroups, "cgroup2", 0, NULL))
			return scene_cannot(s, "no cgroup v2");
	}
	if (!enable_controller(s->cgroups, "memory", &s->own_memory))
		return scene_cannot(s, "no memory controller in cgroup v2");
	if (!trace_fs())
		return scene_cannot(s, "no tracefs");
	return true;
}

/* Make memory cgroup @nr; 0 or what went wrong. */
static inline int scene_cgroup(struct scene *s, int nr)
{
	snprintf(s->cgroup[nr], sizeof(s->cgroup[nr]), "%s/reclaim.%d.%d",
		 s->cgroups, getpid(), nr);
	return mkdir(s->cgroup[nr], 0700) ? -errno : 0;
}

static inline int cgroup_write(struct scene *s, int nr, const char *file, const char *text)
{
	return write_under(s->cgroup[nr], file, "%s", text);
}

static inline long cgroup_figure(struct scene *s, int nr, const char *file, const char *name)
{
	return figure_under(s->cgroup[nr], file, name);
}

/* Have reclaim take @bytes bytes; it may find fewer. */
static inline void cgroup_reclaim(struct scene *s, int nr, unsigned long bytes)
{
	char text[32];

	snprintf(text, sizeof(text), "%lu", bytes);
	cgroup_write(s, nr, "memory.reclaim", text);
}

/* Data that is dirty or under writeback, in bytes. */
static inline long cgroup_unclean(struct scene *s, int nr)
{
	return cgroup_figure(s, nr, "memory.stat", "file_dirty") +
	       cgroup_figure(s, nr, "memory.stat", "file_writeback");
}

/* The scratch disk that @var names, else a loop device; NULL with s->why. */
static inline struct scratch *scene_disk(struct scene *s, const char *var)
{
	struct scratch *d = &s->disk[s->nr_disks];
	const char *dev = getenv(var), *folder = scratch_folder();
	struct statfs fs;
	struct stat st;
	FILE *f;

	if (!dev && !folder) {
		scene_cannot(s, BAD_FOLDER);
		return NULL;
	}
	/* The pages of a file in tmpfs would be charged to the writer's cgroup. */
	if (!dev && !statfs(folder, &fs) &&
	    (fs.f_type == TMPFS_MAGIC || fs.f_type == OVERLAYFS_SUPER_MAGIC)) {
		scene_cannot(s, "%s is on tmpfs or overlayfs: set %s, or TMPDIR to a disk", folder,
			     var);
		return NULL;
	}
	s->nr_disks++;
	if (dev) {
		snprintf(d->dev, sizeof(d->dev), "%s", dev);
	} else {
		char cmd[PATH_MAX + 64];

		snprintf(d->file, sizeof(d->file), "%s/reclaim_scene.%d.%d", folder,
			 getpid(), (int)(d - s->disk));
		snprintf(cmd, sizeof(cmd),
			 "truncate -s 512M %s && losetup --direct-io=on -f --show %s",
			 d->file, d->file);
		f = popen(cmd, "r");
		if (!f || fscanf(f, "%63s", d->dev) != 1)
			d->dev[0] = '\0';
		if (f)
			pclose(f);
	}
	if (!d->dev[0] || stat(d->dev, &st)) {
		scene_cannot(s, "no scratch disk: set %s", var);
		return NULL;
	}
	snprintf(d->bdi, sizeof(d->bdi), "%u:%u", major(st.st_rdev), minor(st.st_rdev));
	/* As the kernel has it. */
	d->number = major(st.st_rdev) << 20 | minor(st.st_rdev);
	return d;
}

static inline bool scratch_mount(struct scene *s, struct scratch *d)
{
	/* The thread that zeroes inode tables would use blocks, too. */
	const char *options = !strcmp(d->fs, "ext4") ? "noinit_itable" : NULL;

	if (mount(d->dev, d->dir, d->fs, MS_NOATIME, options)) {
		s->failed = true;
		return scene_cannot(s, "%s: mount: %s", d->fs, strerror(errno));
	}
	return true;
}

static inline bool scratch_umount(struct scene *s, struct scratch *d)
{
	if (umount(d->dir)) {
		s->failed = true;
		return scene_cannot(s, "%s: umount: %s", d->fs, strerror(errno));
	}
	return true;
}

static inline bool has_filesystem(const char *fs)
{
	FILE *f = fopen("/proc/filesystems", "r");
	char word[32] = "";

	while (f && strcmp(word, fs) && fscanf(f, "%31s", word) == 1)
		;
	if (f)
		fclose(f);
	return !strcmp(word, fs);
}

/* Make a filesystem, with more options for mkfs, and mount it. */
static inline bool scratch_make(struct scene *s, struct scratch *d, const char *fs,
				const char *more)
{
	const char *force = !strcmp(fs, "ext4") ? "-F -q -E nodiscard" : "-f -q -K";

	if (shell("command -v mkfs.%s >/dev/null", fs))
		return scene_cannot(s, "%s: no mkfs for it", fs);
	if (!has_filesystem(fs) && shell("modprobe -q %s", fs))
		return scene_cannot(s, "%s: not in this kernel", fs);
	if (shell("mkfs.%s %s %s %s >/dev/null 2>&1", fs, force, more, d->dev)) {
		s->failed = true;
		return scene_cannot(s, "%s: mkfs failed on %s", fs, d->dev);
	}
	d->fs = fs;
	snprintf(d->dir, sizeof(d->dir), "%s/mnt%d", s->dir, (int)(d - s->disk));
	mkdir(d->dir, 0700);
	return scratch_mount(s, d);
}

/* Slow a disk down to @bps bytes a second, or (0) no longer, for what cgroup 0 writes. */
static inline int scratch_limit(struct scene *s, struct scratch *d, unsigned long bps)
{
	char limit[32] = "max";

	enable_controller(s->cgroups, "io", &s->own_io);
	if (bps)
		snprintf(limit, sizeof(limit), "%lu", bps);
	d->slow = bps;
	return write_under(s->cgroup[0], "io.max", "%s wbps=%s", d->bdi, limit);
}

static inline void scene_teardown(struct scene *s)
{
	/* First, because little time is left after a timeout. */
	restore_knobs(s->knobs, s->saved, nr_knobs(s));
	for (int i = s->nr_disks - 1; i >= 0; i--) {
		struct scratch *d = &s->disk[i];

		/* Data that still waits for a slow disk would keep umount waiting. */
		if (d->slow)
			scratch_limit(s, d, 0);
		if (d->dir[0]) {
			unmount(d->dir);
			rmdir(d->dir);
		}
		if (d->file[0]) {
			if (d->dev[0])
				shell("losetup -d %s", d->dev);
			unlink(d->file);
		}
	}
	for (int i = 0; i < MAX_CGROUPS; i++) {
		if (s->cgroup[i][0])
			remove_cgroup(s->cgroup[i]);
	}
	if (s->own_memory)
		disable_controller(s->cgroups, "memory");
	if (s->own_io)
		disable_controller(s->cgroups, "io");
	if (s->own_cgroups) {
		umount(s->cgroups);
		rmdir(s->cgroups);
	}
	if (s->dir[0])
		rmdir(s->dir);
}

/* Write @mib MiB of dirty data into a file; 0 or an exit status. */
static inline int fill_file(const char *path, int mib)
{
	static char buf[MIB];
	int fd = open(path, O_CREAT | O_RDWR, 0600);
	int ret = fd < 0;

	memset(buf, 0x5a, sizeof(buf));
	for (int i = 0; i < mib && !ret; i++)
		ret = pwrite(fd, buf, MIB, i * MIB) != MIB;
	if (fd >= 0)
		close(fd);
	return ret;
}

/* Fork a child into a cgroup; 0 in the child. */
static inline pid_t fork_into(struct scene *s, int nr)
{
	pid_t pid = 0;

	if (in_child(&pid) && cgroup_write(s, nr, "cgroup.procs", "0"))
		_exit(255);
	return pid;
}

/* Dirty a file from inside a cgroup. */
static inline int cgroup_fill(struct scene *s, int nr, const char *path, int mib)
{
	pid_t pid = fork_into(s, nr);

	if (!pid)
		_exit(fill_file(path, mib));
	return wait_for(pid);
}

#endif
