// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reclaim waits where pages cannot be cleaned fast enough, and only there.
 *
 * slow_disk: io.max slows down a memory cgroup's writes to an ext4. A writer
 * fills memory, or its cgroup, with pages that wait for that disk. The
 * tracepoint mm_vmscan_throttled shows who slept in reclaim, and why.
 *
 * Scratch disk: RECLAIM_DISK_EXT4 names a block device that may be overwritten.
 * Without it a sparse file under $TMPDIR, not on tmpfs or overlayfs, is used
 * through a loop device. Needs root, and cgroup v2 with the controllers memory and io.
 */
#include "kselftest_harness.h"
#include "reclaim_util.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#define SLOW_BPS	(4 * MIB)
#define CGROUP_MIB	64
#define NR_CHILDREN	3

static const struct {
	const char *path, *value;
} knobs[] = {
	/* Let reclaim meet dirty pages before dirty throttling stops the writers. */
	{ "/proc/sys/vm/dirty_ratio", "90" },
	/* Only saved for later: setting a ratio clears its bytes. */
	{ "/proc/sys/vm/dirty_background_ratio", NULL },
	{ "/proc/sys/vm/dirty_bytes", NULL },
	{ "/proc/sys/vm/dirty_background_bytes", NULL },
};

#define NR_KNOBS	((int)ARRAY_SIZE(knobs))

struct scene {
	char dir[64];
	char disk[128];
	bool loop;
	bool mounted;
	bool own_memory, own_io;		/* controllers that the test enabled */
	char root[80], slow[128], clean[128];	/* cgroups */
	char tracefs[160];
	char saved[NR_KNOBS][32];
	pid_t children[NR_CHILDREN];
	const char *cannot;
	char why[256];
};

static bool fail(struct scene *s, const char *what)
{
	snprintf(s->why, sizeof(s->why), "%s: %s", what, strerror(errno));
	return false;
}

static bool cannot(struct scene *s, const char *what)
{
	s->cannot = what;
	return false;
}

static bool setup_disk(struct scene *s)
{
	const char *disk = getenv("RECLAIM_DISK_EXT4"), *folder = scratch_folder();
	char mnt[80];

	if (!folder)
		return cannot(s, BAD_FOLDER);
	s->loop = !disk;
	snprintf(s->dir, sizeof(s->dir), "%s/reclaim_throttle.%d", folder, getpid());
	if (mkdir(s->dir, 0700)) {
		s->dir[0] = '\0';
		return fail(s, "scratch directory");
	}
	if (disk) {
		snprintf(s->disk, sizeof(s->disk), "%s", disk);
	} else {
		char name[32], command[sizeof(s->disk)];
		struct statfs fs;
		FILE *f;

		/* The pages of a file in tmpfs would be charged to the writer's cgroup. */
		if (statfs(s->dir, &fs))
			return fail(s, "statfs");
		if (fs.f_type == TMPFS_MAGIC || fs.f_type == OVERLAYFS_SUPER_MAGIC)
			return cannot(s, "tmpfs: set RECLAIM_DISK_EXT4 or TMPDIR to a disk");
		if (shell("truncate -s 512M %s/disk", s->dir))
			return fail(s, "scratch file");
		snprintf(command, sizeof(command), "losetup --direct-io=on -f --show %s/disk",
			 s->dir);
		f = popen(command, "r");
		if (!f || fscanf(f, "%31s", name) != 1 || pclose(f))
			return cannot(s, "no loop device");
		snprintf(s->disk, sizeof(s->disk), "%s", name);
	}
	if (shell("mkfs.ext4 -F -q -E lazy_itable_init=1,nodiscard %s >/dev/null 2>&1", s->disk))
		return fail(s, "mkfs.ext4");
	snprintf(mnt, sizeof(mnt), "%s/mnt", s->dir);
	mkdir(mnt, 0700);
	if (mount(s->disk, mnt, "ext4", MS_NOATIME, "noinit_itable"))
		return fail(s, "mount of ext4");
	s->mounted = true;
	/* Reading a hole fills the page cache without using the disk. */
	return shell("truncate -s 1T %s/hole", mnt) ? fail(s, "sparse file") : true;
}

static bool setup_cgroups(struct scene *s)
{
	struct stat st;

	snprintf(s->root, sizeof(s->root), "/sys/fs/cgroup");
	if (access("/sys/fs/cgroup/cgroup.controllers", F_OK)) {
		snprintf(s->root, sizeof(s->root), "%s/cgroup", s->dir);
		mkdir(s->root, 0700);
		if (mount("none", s->root, "cgroup2", 0, NULL))
			return cannot(s, "no cgroup v2");
	}
	if (!enable_controller(s->root, "memory", &s->own_memory) ||
	    !enable_controller(s->root, "io", &s->own_io))
		return cannot(s, "no controllers memory and io in cgroup v2");
	snprintf(s->slow, sizeof(s->slow), "%s/reclaim_throttle.%d.slow", s->root, getpid());
	snprintf(s->clean, sizeof(s->clean), "%s/reclaim_throttle.%d.clean", s->root, getpid());
	if (mkdir(s->slow, 0700) || mkdir(s->clean, 0700))
		return fail(s, "mkdir of a cgroup");
	if (stat(s->disk, &st))
		return fail(s, s->disk);
	if (write_under(s->slow, "io.max", "%u:%u wbps=%lu", major(st.st_rdev),
			minor(st.st_rdev), SLOW_BPS))
		return cannot(s, "no io.max: the kernel is built without BLK_DEV_THROTTLING");
	return true;
}

static void unlimit_disk(struct scene *s)
{
	struct stat st;

	if (!stat(s->disk, &st))
		write_under(s->slow, "io.max", "%u:%u wbps=max", major(st.st_rdev),
			    minor(st.st_rdev));
}

static bool setup_trace(struct scene *s)
{
	const char *root = "/sys/kernel/tracing";

	if (access("/sys/kernel/tracing/instances", F_OK) &&
	    mount("none", root, "tracefs", 0, NULL))
		return cannot(s, "no tracefs");
	snprintf(s->tracefs, sizeof(s->tracefs), "%s/instances/reclaim_throttle.%d", root,
		 getpid());
	if (mkdir(s->tracefs, 0700)) {
		s->tracefs[0] = '\0';
		return cannot(s, "no instances in tracefs");
	}
	write_under(s->tracefs, "buffer_size_kb", "2048");
	if (write_under(s->tracefs, "events/vmscan/mm_vmscan_throttled/enable", "1"))
		return cannot(s, "no tracepoint mm_vmscan_throttled");
	return true;
}

/*
 * How many events were recorded: of tasks whose name begins with comm, or of one
 * pid, or of all; for one reason, or any. -1 if that is unknown.
 */
static int traced(struct scene *s, const char *event, const char *comm, pid_t pid,
		  const char *reason)
{
	char path[256], line[512], wanted[64];
	int found = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/trace", s->tracefs);
	snprintf(wanted, sizeof(wanted), "-%d ", pid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f)) {
		char *who = line + strspn(line, " ");

		if (!strstr(line, event) || (reason && !strstr(line, reason)))
			continue;
		if (comm && strncmp(who, comm, strlen(comm)))
			continue;
		if (pid && !strstr(line, wanted))
			continue;
		found++;
	}
	if (f)
		fclose(f);
	return events_lost(s->tracefs) ? -1 : found;
}

/* How often tasks slept in reclaim. */
static int sleeps(struct scene *s, const char *comm, pid_t pid, const char *reason)
{
	return traced(s, "mm_vmscan_throttled:", comm, pid, reason);
}

static int open_hole(struct scene *s)
{
	char path[96];

	snprintf(path, sizeof(path), "%s/mnt/hole", s->dir);
	return open(path, O_RDONLY);
}

/*
 * A child that ends with the test; cgroup may be NULL. Returns the pid in the
 * parent, 0 in the child.
 */
static pid_t child(struct scene *s, const char *cgroup)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (cgroup && write_under(cgroup, "cgroup.procs", "0"))
			_exit(1);
		return 0;
	}
	for (int i = 0; i < NR_CHILDREN; i++) {
		if (!s->children[i]) {
			s->children[i] = pid;
			break;
		}
	}
	return pid;
}

static pid_t start_writer(struct scene *s, const char *cgroup, unsigned long mib)
{
	pid_t pid = child(s, cgroup);
	static char buf[MIB];
	char path[96];
	int fd;

	if (pid)
		return pid;
	snprintf(path, sizeof(path), "%s/mnt/written", s->dir);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	for (unsigned long at = 0; fd >= 0; at = (at + 1) % mib) {
		if (pwrite(fd, buf, MIB, at * MIB) < 0)
			break;
	}
	_exit(1);
}

/* Start writeback of everything the writer has left, which takes the disk a while. */
static pid_t start_syncer(struct scene *s)
{
	pid_t pid = child(s, NULL);
	char path[96];
	int fd;

	if (pid)
		return pid;
	snprintf(path, sizeof(path), "%s/mnt/written", s->dir);
	fd = open(path, O_WRONLY);
	while (fd >= 0 && !fsync(fd))
		usleep(100000);
	_exit(1);
}

static pid_t start_reader(struct scene *s, const char *cgroup)
{
	pid_t pid = child(s, cgroup);
	static char buf[MIB];
	int fd;

	if (pid)
		return pid;
	fd = open_hole(s);
	for (unsigned long at = 0; fd >= 0; at = (at + 1) % 65536) {
		/* Charges for readahead never wait; those for anonymous memory may. */
		void *anon = mmap(NULL, MIB, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		if (anon == MAP_FAILED || munmap(anon, MIB) || pread(fd, buf, MIB, at * MIB) < 0)
			break;
	}
	_exit(1);
}

static long free_mib(void)
{
	return read_figure("/proc/vmstat", "nr_free_pages") * getpagesize() / (long)MIB;
}

/* Have the kernel allocate memory for a member of a cgroup. */
static pid_t start_piper(struct scene *s, const char *cgroup)
{
	struct rlimit files = { 4096, 4096 };
	pid_t pid = child(s, NULL);
	int fds[2];

	if (pid)
		return pid;
	/* What the child itself needs, it touches outside the cgroup. */
	if (setrlimit(RLIMIT_NOFILE, &files) || pipe(fds) ||
	    write_under(cgroup, "cgroup.procs", "0"))
		_exit(1);
	while (!pipe(fds))
		;
	pause();
	_exit(1);
}

/* Use more and more anonymous memory, so that only file pages are left to reclaim. */
static pid_t start_hog(struct scene *s, unsigned long mib)
{
	pid_t pid = child(s, NULL);

	if (pid)
		return pid;
	write_text("/proc/self/oom_score_adj", "1000");
	for (unsigned long i = 0; i < mib; i++) {
		void *p = mmap(NULL, MIB, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		if (p == MAP_FAILED)
			_exit(1);
		/* Slowly only where kswapd is near. */
		if (free_mib() < 128)
			usleep(50000);
	}
	pause();
	_exit(1);
}

/* Pages that have to be written, under writeback or not yet. */
static unsigned long dirty_mib(void)
{
	return (read_figure("/proc/vmstat", "nr_dirty") +
		read_figure("/proc/vmstat", "nr_writeback")) * getpagesize() / MIB;
}

static bool alive(pid_t pid)
{
	return pid > 0 && waitpid(pid, NULL, WNOHANG) == 0;
}

static void end_children(struct scene *s)
{
	for (int i = 0; i < NR_CHILDREN; i++) {
		if (s->children[i] > 0 && !kill(s->children[i], SIGKILL)) {
			waitpid(s->children[i], NULL, 0);
			/* Children of a killed test are not this task's to wait for. */
			for (int ms = 0; ms < 5000 && !kill(s->children[i], 0); ms += 10)
				usleep(10000);
		}
		s->children[i] = 0;
	}
}

/* The sum of one figure over all nodes and zones. */
static unsigned long zoneinfo_sum(const char *name)
{
	FILE *f = fopen("/proc/zoneinfo", "r");
	unsigned long value, sum = 0;
	char line[256], word[32];

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, " %31s %lu", word, &value) == 2 && !strcmp(word, name))
			sum += value;
	}
	if (f)
		fclose(f);
	return sum;
}

/* Whether kswapd of any node has given up; earlier tests may leave that behind. */
static bool hopeless(void)
{
	return zoneinfo_sum("node_unreclaimable:");
}

/*
 * Successful reclaim, even a cgroup's own, on a node with enough free memory
 * clears hopelessness.
 */
static bool give_hope(struct scene *s)
{
	double until = now() + 20;

	if (!hopeless())
		return true;
	if (write_under(s->clean, "memory.max", "%luM", (unsigned long)CGROUP_MIB) ||
	    start_reader(s, s->clean) < 0)
		return false;
	while (hopeless() && now() < until)
		usleep(100000);
	end_children(s);
	return !write_under(s->clean, "memory.max", "max") && !hopeless();
}

static bool setup_scene(struct scene *s)
{
	if (geteuid())
		return cannot(s, "needs root");
	for (int i = 0; i < NR_KNOBS; i++) {
		if (read_text(knobs[i].path, s->saved[i], sizeof(s->saved[i])))
			continue;
		if (knobs[i].value)
			write_text(knobs[i].path, knobs[i].value);
	}
	return setup_disk(s) && setup_cgroups(s) && setup_trace(s);
}

static void end_scene(struct scene *s)
{
	end_children(s);
	/* Pages that still wait for the slow disk would keep umount waiting, too. */
	unlimit_disk(s);
	if (s->mounted) {
		shell("rm -f %s/mnt/written", s->dir);
		shell("umount %s/mnt", s->dir);
	}
	if (s->loop && s->disk[0])
		shell("losetup -d %s 2>/dev/null", s->disk);
	if (s->tracefs[0])
		rmdir(s->tracefs);
	if (s->slow[0])
		remove_cgroup(s->slow);
	if (s->clean[0])
		remove_cgroup(s->clean);
	if (s->own_memory)
		disable_controller(s->root, "memory");
	if (s->own_io)
		disable_controller(s->root, "io");
	if (s->dir[0]) {
		shell("cd %s && { umount cgroup; rm -f disk; rmdir cgroup mnt; } 2>/dev/null",
		      s->dir);
		rmdir(s->dir);
	}
	for (int i = 0; i < NR_KNOBS; i++) {
		/* Ratios and bytes exclude each other: if one was 0, the other was set. */
		bool bytes = strstr(knobs[i].path, "_bytes");

		if (s->saved[i][0] && (!bytes || strcmp(s->saved[i], "0")))
			write_text(knobs[i].path, s->saved[i]);
	}
}

FIXTURE(slow_disk) {
	struct scene scene;
};

FIXTURE_SETUP(slow_disk)
{
	begin_setup(_metadata);
	if (setup_scene(&self->scene))
		return;
	if (self->scene.cannot)
		SKIP(return, "%s", self->scene.cannot);
	ASSERT_TRUE(false) {
		TH_LOG("%s", self->scene.why);
	}
}

/* In the parent, so that a test that is killed leaves nothing behind either. */
FIXTURE_TEARDOWN_PARENT(slow_disk)
{
	end_scene(&self->scene);
}

/*
 * A third of memory is dirtied, then a task takes the rest, so kswapd finds
 * only pages under writeback. The pages are under writeback before kswapd
 * looks: dirty pages that no flusher has reached yet make kswapd give up within
 * milliseconds instead of wait. MGLRU has to see this as the classic LRU does.
 * On the classic LRU kswapd need not meet a whole pass of such pages with this
 * load, so there is nothing to assert.
 */
TEST_F_TIMEOUT(slow_disk, kswapd_waits_for_writeback, 120)
{
	struct scene *s = &self->scene;
	unsigned long mib = sysconf(_SC_PHYS_PAGES) * getpagesize() / MIB;
	/* The disk's queue may not take more than that. */
	unsigned long written = mib < 600 ? mib / 3 : 200;
	int kswapd = 0;
	long scanned;
	double until;
	pid_t writer;

	if (!mglru())
		SKIP(return, "the classic LRU need not meet a whole pass of such pages");
	if (too_big())
		SKIP(return, "more than 1 GiB of memory to fill: boot with mem=1G");
	if (strict_limit())
		SKIP(return, STRICT_LIMIT);
	ASSERT_TRUE(give_hope(s));
	scanned = read_figure("/proc/vmstat", "pgscan_kswapd");
	until = now() + 20;
	writer = start_writer(s, s->slow, written);
	ASSERT_GT(writer, 0);
	while (now() < until && dirty_mib() < written * 3 / 4)
		usleep(200000);
	ASSERT_EQ(0, kill(writer, SIGSTOP));
	ASSERT_GT(start_syncer(s), 0);
	until = now() + 10;
	while (now() < until && read_figure("/proc/vmstat", "nr_dirty") * 10 >
				read_figure("/proc/vmstat", "nr_writeback"))
		usleep(100000);
	ASSERT_LT(now(), until) {
		TH_LOG("not under writeback in time: %ld of %ld pages",
		       read_figure("/proc/vmstat", "nr_dirty"),
		       read_figure("/proc/vmstat", "nr_writeback"));
	}
	ASSERT_GT(start_hog(s, mib), 0);
	until = now() + 40;
	do {
		sleep(1);
		kswapd = sleeps(s, "kswapd", 0, "VMSCAN_THROTTLE_WRITEBACK");
	} while (now() < until && kswapd < 3);
	EXPECT_TRUE(alive(writer));
	scanned = read_figure("/proc/vmstat", "pgscan_kswapd") - scanned;
	TH_LOG("kswapd waited for writeback %d times, direct reclaim for congestion %d times",
	       kswapd, sleeps(s, NULL, 0, "VMSCAN_THROTTLE_CONGESTED"));
	TH_LOG("kswapd scanned %ld pages; %ld MiB are free%s", scanned, free_mib(),
	       hopeless() ? "; it has given up" : "");
	EXPECT_GT(kswapd, 0);
}

/*
 * With the default dirty ratios dirty throttling holds a writer back before its
 * small cgroup is full of dirty pages.
 */
TEST_F_TIMEOUT(slow_disk, writer_is_held_back_in_time, 90)
{
	struct scene *s = &self->scene;
	unsigned long most = 0;

	ASSERT_EQ(0, write_text("/proc/sys/vm/dirty_ratio", "20"));
	ASSERT_EQ(0, write_text("/proc/sys/vm/dirty_background_ratio", "10"));
	ASSERT_EQ(0, write_under(s->slow, "memory.max", "%luM", (unsigned long)CGROUP_MIB));
	/* The periodic flush of the statistics, every 2 s, may come just in time. */
	for (int round = 0; round < 3; round++) {
		pid_t writer = start_writer(s, s->slow, 360);
		unsigned long mib;

		ASSERT_GT(writer, 0);
		nap(1500);
		EXPECT_TRUE(alive(writer));
		/* To read the figures may flush them, and the writer would see that. */
		kill(writer, SIGSTOP);
		mib = (figure_under(s->slow, "memory.stat", "file_dirty") +
		       figure_under(s->slow, "memory.stat", "file_writeback")) / MIB;
		if (mib > most)
			most = mib;
		end_children(s);
		ASSERT_EQ(0, shell("rm %s/mnt/written", s->dir));
	}
	TH_LOG("%lu MiB of %d were dirty", most, CGROUP_MIB);
	EXPECT_GE(most, CGROUP_MIB / 10);
	EXPECT_LT(most, CGROUP_MIB / 2);
}

/*
 * A small cgroup full of dirty pages on a node with plenty of clean ones: its
 * writer waits for the disk instead of cycling through its pages, and is not
 * killed for lack of clean ones. A task in another cgroup never waits, nor does
 * one in this cgroup for which the kernel allocates.
 */
TEST_F_TIMEOUT(slow_disk, full_cgroup_waits_alone, 90)
{
	struct scene *s = &self->scene;
	/* What the disk writes in a second. After less, one burst would decide the ratio. */
	const long second = SLOW_BPS / getpagesize();
	const struct sched_param urgent = { .sched_priority = 1 };
	long scanned, stolen, neighbours;
	int waited, reclaims;
	pid_t writer, reader, piper;
	double until;

	/*
	 * Nothing slows the writer down before its cgroup is full. Else it may write
	 * as fast as the disk does, and reclaim finds clean pages all the time. A
	 * real-time task may have a quarter more dirty pages than that.
	 */
	ASSERT_EQ(0, write_text("/proc/sys/vm/dirty_ratio", "100"));
	ASSERT_EQ(0, write_text("/proc/sys/vm/dirty_background_ratio", "99"));
	ASSERT_EQ(0, write_under(s->slow, "memory.max", "%luM", (unsigned long)CGROUP_MIB));
	ASSERT_EQ(0, write_under(s->clean, "memory.max", "%luM", (unsigned long)CGROUP_MIB));
	reader = start_reader(s, s->clean);
	writer = start_writer(s, s->slow, 360);
	ASSERT_GT(reader, 0);
	ASSERT_GT(writer, 0);
	if (sched_setscheduler(writer, SCHED_RR, &urgent))
		TH_LOG("the writer may be slowed down: %s", strerror(errno));
	until = now() + 30;
	do {
		nap(200);
		waited = sleeps(s, NULL, writer, "VMSCAN_THROTTLE_CONGESTED");
		scanned = figure_under(s->slow, "memory.stat", "pgscan");
		stolen = figure_under(s->slow, "memory.stat", "pgsteal");
		neighbours = figure_under(s->clean, "memory.stat", "pgsteal");
	} while (now() < until && (waited < 50 || stolen < second || neighbours <= 0));
	EXPECT_TRUE(alive(writer));
	EXPECT_TRUE(alive(reader));
	TH_LOG("%ld pages scanned, %ld stolen; the writer waited %d times", scanned, stolen,
	       waited);
	EXPECT_EQ(0, figure_under(s->slow, "memory.events", "oom_kill"));
	/* How often depends on the host's disk, too: a pass that frees something does not wait. */
	EXPECT_GT(waited, 0);
	/* Seen: 148 to 433 pages scanned for each one stolen; 2,149 and more on stock. */
	EXPECT_LT(scanned, 1000 * stolen);
	/* The neighbour has reclaimed meanwhile, and never waited. */
	EXPECT_GT(neighbours, 0);
	EXPECT_EQ(0, sleeps(s, NULL, reader, NULL));

	/* Its events would crowd out the others. */
	kill(reader, SIGKILL);
	piper = start_piper(s, s->slow);
	ASSERT_GT(piper, 0);
	ASSERT_EQ(0, write_under(s->tracefs,
				 "events/vmscan/mm_vmscan_memcg_reclaim_begin/filter",
				 "common_pid == %d", piper));
	ASSERT_EQ(0, write_under(s->tracefs,
				 "events/vmscan/mm_vmscan_memcg_reclaim_begin/enable", "1"));
	until = now() + 20;
	do {
		nap(200);
		reclaims = traced(s, "mm_vmscan_memcg_reclaim_begin:", NULL, piper, NULL);
		waited = sleeps(s, NULL, piper, NULL);
	} while (now() < until && reclaims < 50 && !waited && alive(piper));
	TH_LOG("kernel memory: reclaimed %d times, waited %d times", reclaims, waited);
	EXPECT_GT(reclaims, 0);
	EXPECT_EQ(0, waited);
}

TEST_HARNESS_MAIN
