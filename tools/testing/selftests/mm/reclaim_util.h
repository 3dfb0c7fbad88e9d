/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by the tests of reclaim: short files of /proc, /sys and cgroups, counting
 * of tracepoints, and tasks.
 */
#ifndef RECLAIM_UTIL_H
#define RECLAIM_UTIL_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB		(1024 * 1024UL)
#define TRACING		"/sys/kernel/tracing"

/*
 * Begins each FIXTURE_SETUP() that has a FIXTURE_TEARDOWN_PARENT(). A signal ends
 * the test before the harness does, which counts from the fork and would kill the
 * teardown, too. The parent's teardown follows whatever becomes of the setup;
 * otherwise it would not follow one that fails, skips or is killed. So the teardown
 * has to tolerate a fixture that is only partly filled, and otherwise 0.
 */
static inline void begin_setup(struct __test_metadata *metadata)
{
	alarm(metadata->timeout - 5);
	*metadata->no_teardown = false;
}

/* Seconds of a monotonic clock. */
static inline double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static inline void nap(int ms)
{
	usleep(ms * 1000);
}

/* Read the first line of a file; 0 or a negative errno. */
static inline int read_text(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY);
	ssize_t len;

	if (fd < 0)
		return -errno;
	len = read(fd, buf, size - 1);
	close(fd);
	if (len < 0)
		return -errno;
	buf[len] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	return 0;
}

/* Write text to a file; 0 or a negative errno. */
static inline int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_TRUNC);
	int ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

/* Settings, restored in the order of their table: setting a ratio clears its bytes. */
struct knob {
	const char *path, *value;	/* NULL: the test sets it, or another knob does */
};

#define KNOB_TEXT	64

/* Save settings, all before the first is changed; false if one cannot be read. */
static inline bool set_knobs(const struct knob *knobs, char (*saved)[KNOB_TEXT], int nr)
{
	char *open, *close;
	bool ok = true;

	for (int i = 0; i < nr; i++) {
		saved[i][0] = '\0';
		ok = !read_text(knobs[i].path, saved[i], sizeof(saved[i])) && ok;
		/* A sysfs file shows the choices, with the current one in brackets. */
		open = strchr(saved[i], '[');
		close = strchr(saved[i], ']');
		if (open && close > open) {
			*close = '\0';
			memmove(saved[i], open + 1, close - open);
		}
	}
	for (int i = 0; i < nr; i++) {
		if (saved[i][0] && knobs[i].value)
			write_text(knobs[i].path, knobs[i].value);
	}
	return ok;
}

/* Those that have been saved. Bytes of 0 (the NULLs) do not count, a ratio of 0 may. */
static inline void restore_knobs(const struct knob *knobs, char (*saved)[KNOB_TEXT],
				 int nr)
{
	for (int i = 0; i < nr; i++) {
		if (saved[i][0] && (knobs[i].value || strcmp(saved[i], "0")))
			write_text(knobs[i].path, saved[i]);
	}
}

/* Write formatted text to a file of a directory; 0 or a negative errno. */
__printf(3, 4)
static inline int write_under(const char *dir, const char *name, const char *fmt, ...)
{
	char path[256], text[128];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return write_text(path, text);
}

/*
 * Give the children of @root, the root of cgroup v2, a controller; false if that
 * cannot be. Sets *@own if they did not have the controller before, so that
 * disable_controller() has to follow.
 */
static inline bool enable_controller(const char *root, const char *name, bool *own)
{
	char path[128], text[256];

	snprintf(path, sizeof(path), "%s/cgroup.subtree_control", root);
	if (read_text(path, text, sizeof(text)))
		return false;
	if (strstr(text, name))
		return true;
	*own = !write_under(root, "cgroup.subtree_control", "+%s\n", name);
	return *own;
}

/* A task of the cgroup may not have exited yet. */
static inline void remove_cgroup(const char *path)
{
	for (int i = 0; i < 100 && rmdir(path) && errno == EBUSY; i++)
		nap(50);
}

static inline void disable_controller(const char *root, const char *name)
{
	write_under(root, "cgroup.subtree_control", "-%s\n", name);
}

/* system(3) of a formatted command */
__printf(1, 2)
static inline int shell(const char *fmt, ...)
{
	char cmd[8192];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	return system(cmd);
}

/* Write what is dirty on one filesystem: others may take long, and are not ours. */
static inline int sync_fs(const char *mnt)
{
	int fd = open(mnt, O_RDONLY | O_DIRECTORY);
	int ret = fd < 0 ? -1 : syncfs(fd);

	if (fd >= 0)
		close(fd);
	return ret;
}

/* After a timeout the test's children may still be exiting. */
static inline void unmount(const char *dir)
{
	for (int i = 0; i < 10 && umount(dir); i++) {
		if (errno != EBUSY)
			return;
		nap(100);
	}
	/* If need be when its last user is gone; nothing is mounted there otherwise. */
	umount2(dir, MNT_DETACH);
}

#define BAD_FOLDER	"TMPDIR: not more than 40 letters, digits and /._-"

/*
 * Where files for loop devices lie: $TMPDIR, else /var/tmp, which is less often in
 * memory than /tmp. NULL if shells or buffers could not take the name.
 */
static inline const char *scratch_folder(void)
{
	const char *dir = getenv("TMPDIR");
	size_t len;

	if (!dir)
		return "/var/tmp";
	len = strspn(dir, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-");
	return len <= 40 && !dir[len] ? dir : NULL;
}

/* The figure @name in a file whose lines begin with "name figure", or -1 without it. */
static inline long read_figure(const char *path, const char *name)
{
	FILE *f = fopen(path, "r");
	char key[64], line[256];
	long value = -1, v;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%63s %ld", key, &v) == 2 && !strcmp(key, name))
			value = v;
	}
	if (f)
		fclose(f);
	return value;
}

/* The same of a file in a directory */
static inline long figure_under(const char *dir, const char *file, const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	return read_figure(path, name);
}

static inline long vm_event(const char *name)
{
	return read_figure("/proc/vmstat", name);
}

/* How often tasks have had to reclaim for themselves, whatever zones there are. */
static inline long direct_reclaims(void)
{
	static const char * const names[] = {
		"allocstall_dma", "allocstall_dma32", "allocstall_normal", "allocstall_movable",
	};
	long sum = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		long value = vm_event(names[i]);

		if (value > 0)
			sum += value;
	}
	return sum;
}

/* Whether MGLRU is in use; the lowest bit of the file is its main switch. */
static inline bool mglru(void)
{
	char text[32];

	return !read_text("/sys/kernel/mm/lru_gen/enabled", text, sizeof(text)) &&
	       strtol(text, NULL, 16) & 1;
}

/* Loads that fill the machine are made for little memory: more is not filled in time. */
static inline bool too_big(void)
{
	return sysconf(_SC_PHYS_PAGES) > (1L << 30) / sysconf(_SC_PAGESIZE);
}

/* Loads take more memory than a strict limit of what tasks may map allows. */
#define STRICT_LIMIT	"vm.overcommit_memory is 2: set it to 0"

static inline bool strict_limit(void)
{
	char text[16];

	return !read_text("/proc/sys/vm/overcommit_memory", text, sizeof(text)) &&
	       !strcmp(text, "2");
}

/*
 * Loads may have a task killed for memory. The name of a sysctl by which more than that
 * would come of it, or NULL.
 */
static inline const char *oom_does_more(void)
{
	static const char * const knobs[] = {
		"/proc/sys/vm/panic_on_oom", "/proc/sys/vm/oom_kill_allocating_task",
	};
	char text[16];

	for (size_t i = 0; i < ARRAY_SIZE(knobs); i++) {
		if (read_text(knobs[i], text, sizeof(text)) || strcmp(text, "0"))
			return knobs[i];
	}
	return NULL;
}

/* The sum over CPUs of a figure in the stats of a trace instance, or of the global trace. */
static inline long trace_stats(const char *tracefs, const char *name)
{
	int cpus = sysconf(_SC_NPROCESSORS_CONF);
	char path[256];
	long sum = 0;

	for (int cpu = 0; cpu < cpus; cpu++) {
		snprintf(path, sizeof(path), "%s/per_cpu/cpu%d/stats", tracefs, cpu);
		if (!access(path, R_OK))
			sum += read_figure(path, name);
	}
	return sum;
}

/* Events that have been dropped because the buffer was full. */
static inline long events_lost(const char *tracefs)
{
	return trace_stats(tracefs, "overrun:");
}

/* Whether there is a tracefs, which is mounted if need be. */
static inline bool trace_fs(void)
{
	return !access(TRACING "/instances", F_OK) ||
	       !mount("none", TRACING, "tracefs", 0, NULL);
}

/* A tracefs instance that records one event; false without it. */
static inline bool trace_open(char *instance, size_t size, const char *name,
			      const char *event, const char *filter)
{
	char path[PATH_MAX];

	snprintf(instance, size, TRACING "/instances/%s.%d", name, getpid());
	if (mkdir(instance, 0700))
		return false;
	snprintf(path, sizeof(path), "%s/events/%s/filter", instance, event);
	if (filter && write_text(path, filter))
		return false;
	snprintf(path, sizeof(path), "%s/events/%s/enable", instance, event);
	return !write_text(path, "1");
}

/* The number of events since trace_open(), those that the buffer has dropped included. */
static inline long trace_total(const char *instance)
{
	return trace_stats(instance, "entries:") + events_lost(instance);
}

/* The number of recorded events whose line contains all of these. */
static inline long trace_count(const char *instance, const char *a, const char *b,
			       const char *c)
{
	char path[PATH_MAX], line[512];
	long nr = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/trace", instance);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		nr += line[0] != '#' && strstr(line, a) && (!b || strstr(line, b)) &&
		      (!c || strstr(line, c));
	if (f)
		fclose(f);
	return nr;
}

static inline void trace_close(const char *instance)
{
	if (instance[0])
		rmdir(instance);
}

static inline void zram_swap_off(int zram)
{
	char text[32];

	if (zram < 0)
		return;
	snprintf(text, sizeof(text), "/dev/zram%d", zram);
	swapoff(text);
	write_under("/sys/class/zram-control", "hot_remove", "%d", zram);
}

/* Make @dev swap space, as mkswap(8) does: the first page says so, and how many there are. */
static inline bool make_swap(const char *dev, size_t size)
{
	size_t page = sysconf(_SC_PAGESIZE);
	char *header = calloc(1, page);
	/* After 1024 bytes for boot loaders. */
	unsigned int *info = (unsigned int *)(header + 1024);
	int fd = open(dev, O_WRONLY);
	bool ok;

	info[0] = 1;				/* the version */
	info[1] = size / page - 1;		/* the last page */
	memcpy(header + page - 10, "SWAPSPACE2", 10);
	ok = write(fd, header, page) == page;
	close(fd);
	free(header);
	return ok;
}

/* 128 MiB of swap on a zram device of the test's own: its number, or -1 without it. */
static inline int zram_swap_on(void)
{
	char text[64];
	int zram;

	if (access("/sys/class/zram-control/hot_add", F_OK))
		shell("modprobe -q zram");
	if (read_text("/sys/class/zram-control/hot_add", text, sizeof(text)))
		return -1;
	zram = atoi(text);
	snprintf(text, sizeof(text), "/sys/block/zram%d/disksize", zram);
	write_text(text, "128M");
	snprintf(text, sizeof(text), "/dev/zram%d", zram);
	if (make_swap(text, 128 * MIB) && !swapon(text, 0))
		return zram;
	zram_swap_off(zram);
	return -1;
}

static inline const char *node_file(int nid, const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/%s", nid, name);
	return path;
}

/* Parse a CPU list such as 0-2,5; returns the number of CPUs. */
static inline int parse_list(const char *text, cpu_set_t *set)
{
	int first, last, len, n = 0;

	CPU_ZERO(set);
	while (sscanf(text, "%d%n", &first, &len) == 1) {
		text += len;
		last = first;
		if (*text == '-' && sscanf(text, "-%d%n", &last, &len) == 1)
			text += len;
		for (; first <= last; first++, n++)
			CPU_SET(first, set);
		if (*text == ',')
			text++;
	}
	return n;
}

/* CPUs of a node; 0 if the node does not exist. */
static inline int node_cpus(int nid, cpu_set_t *set)
{
	char text[256];

	if (read_text(node_file(nid, "cpulist"), text, sizeof(text)))
		return 0;
	return parse_list(text, set);
}

/* The memory of a node in MiB, free or not. */
static inline long node_mib(int nid)
{
	FILE *f = fopen(node_file(nid, "meminfo"), "r");
	char line[256];
	long kib = 0;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "Node %*d MemTotal: %ld", &kib) == 1)
			break;
	}
	if (f)
		fclose(f);
	return kib >> 10;
}

/* The sum of one figure of /proc/zoneinfo over a node's zones, or (-1) over all. */
static inline long zones_sum(int nid, const char *name)
{
	FILE *f = fopen("/proc/zoneinfo", "r");
	char line[256], word[32];
	long value, sum = 0;
	int at = -1;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "Node %d, zone", &at) == 1 || (nid >= 0 && at != nid))
			continue;
		/* The first figure has one word more. */
		if ((sscanf(line, " pages %31s %ld", word, &value) == 2 ||
		     sscanf(line, " %31s %ld", word, &value) == 2) && !strcmp(word, name))
			sum += value;
	}
	if (f)
		fclose(f);
	return sum;
}

/* Fill the page cache from a file for ever; each of @nr readers begins at its own place. */
static inline void read_for_ever(const char *path, int me, int nr)
{
	int fd = open(path, O_RDONLY);
	unsigned long steps, at;

	if (fd < 0)
		_exit(1);
	steps = lseek(fd, 0, SEEK_END) / MIB;
	for (at = steps / nr * me; ; at = (at + 1) % steps)
		posix_fadvise(fd, at * MIB, MIB, POSIX_FADV_WILLNEED);
}

/*
 * Fork: true in the child, which ends with its parent. Only the parent writes *@pid,
 * which a fixture with its teardown in the parent shares with all its children.
 */
static inline bool in_child(pid_t *pid)
{
	pid_t parent = getpid(), new = fork();

	if (new) {
		*pid = new;
		return false;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* The parent may have ended before that. */
	if (getppid() != parent)
		_exit(255);
	return true;
}

/* A child's exit status, more than 127 if it was killed. */
static inline int wait_for(pid_t pid)
{
	int status;

	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return 255;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A signal to those of the tasks that have been started. */
static inline void signal_all(const pid_t *pids, int n, int sig)
{
	for (int i = 0; i < n; i++) {
		if (pids[i] > 0)
			kill(pids[i], sig);
	}
}

static inline void kill_all(pid_t *pids, int n)
{
	double until = now() + 2;

	signal_all(pids, n, SIGKILL);
	for (int i = 0; i < n; i++) {
		/* Children of a test that was killed are not this task's to wait for. */
		while (pids[i] > 0 && waitpid(pids[i], NULL, 0) < 0 &&
		       !kill(pids[i], 0) && now() < until)
			nap(10);
		pids[i] = 0;
	}
}

#endif
