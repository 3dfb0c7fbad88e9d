// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reclaim starts the flushers of the dirty folios it has met, and no others.
 *
 * Periodic writeback is off and the dirty limits are out of reach, so only
 * reclaim makes flushers write. writeback_start events with reason=vmscan show
 * which ones: by device, and by the cgroup of the writeback domain.
 *
 * Needs root, and two scratch disks or loop devices (see reclaim_scene.h).
 */
#include "kselftest_harness.h"
#include "reclaim_scene.h"

#define EVENT		"writeback/writeback_start"

/* Indices of cgroups; with two disks, also of disks. */
enum { MET, OTHER };

FIXTURE(flushers) {
	struct scene s;
	char trace[96];
};

FIXTURE_VARIANT(flushers) {
	bool one_disk;
};

FIXTURE_VARIANT_ADD(flushers, ext4_disks) { .one_disk = false };
/* Two cgroups that write to one disk: two writeback domains. */
FIXTURE_VARIANT_ADD(flushers, ext4_domains) { .one_disk = true };

FIXTURE_SETUP(flushers)
{
	static const char * const disks[] = { "RECLAIM_DISK_EXT4", "RECLAIM_DISK_XFS" };

	begin_setup(_metadata);
	if (!scene_setup(&self->s, "reclaim_flushers"))
		SKIP(return, "%s", self->s.why);
	for (int i = MET; i <= (variant->one_disk ? MET : OTHER); i++) {
		struct scratch *d = scene_disk(&self->s, disks[i]);

		if (!d || !scratch_make(&self->s, d, "ext4", "")) {
			ASSERT_FALSE(self->s.failed)
				TH_LOG("%s", self->s.why);
			SKIP(return, "%s", self->s.why);
		}
	}
	/* Write what mkfs and mount have left. */
	for (int i = 0; i < self->s.nr_disks; i++)
		sync_fs(self->s.disk[i].dir);
	ASSERT_EQ(0, scene_cgroup(&self->s, MET));
	ASSERT_EQ(0, scene_cgroup(&self->s, OTHER));
	ASSERT_TRUE(trace_open(self->trace, sizeof(self->trace), "reclaim_flushers",
			       EVENT, NULL));
}

/* In the parent, so that a test that is killed leaves nothing behind either. */
FIXTURE_TEARDOWN_PARENT(flushers)
{
	trace_close(self->trace);
	scene_teardown(&self->s);
}

/* How often reclaim started flusher @nr: a disk's, or a domain's of the one disk. */
static long nr_starts(struct scene *s, const char *trace, int nr, bool one_disk)
{
	char bdi[64], cgroup[64];
	struct stat st;

	snprintf(bdi, sizeof(bdi), "bdi %s:", s->disk[one_disk ? 0 : nr].bdi);
	if (!one_disk)
		return trace_count(trace, bdi, "reason=vmscan", NULL);
	if (stat(s->cgroup[nr], &st))
		return -1;
	snprintf(cgroup, sizeof(cgroup), "cgroup_ino=%lu\n", (unsigned long)st.st_ino);
	return trace_count(trace, bdi, "reason=vmscan", cgroup);
}

static bool cgroup_writeback(struct scene *s)
{
	char path[128], has[256];

	snprintf(path, sizeof(path), "%s/cgroup.controllers", s->cgroups);
	return !read_text(path, has, sizeof(has)) && strstr(has, "io");
}

/* Reclaim takes one cgroup's dirty data; the other's must stay as it is. */
TEST_F_TIMEOUT(flushers, only_those_whose_folios_were_met, 60)
{
	struct scene *s = &self->s;
	char path[PATH_MAX];
	double until;
	long met, other;

	if (variant->one_disk && !cgroup_writeback(s))
		SKIP(return, "no io controller in cgroup v2: a disk has one writeback domain");
	for (int i = MET; i <= OTHER; i++) {
		snprintf(path, sizeof(path), "%s/file%d",
			 s->disk[variant->one_disk ? 0 : i].dir, i);
		ASSERT_EQ(0, cgroup_fill(s, i, path, i == MET ? 32 : 16));
	}
	/* With many CPUs the statistics may lag by two seconds. */
	until = now() + 20;
	while ((cgroup_unclean(s, MET) < 28 * (long)MIB ||
		cgroup_unclean(s, OTHER) < 14 * (long)MIB) && now() < until)
		nap(100);
	ASSERT_LT(now(), until);
	ASSERT_EQ(0, nr_starts(s, self->trace, MET, variant->one_disk));
	ASSERT_EQ(0, nr_starts(s, self->trace, OTHER, variant->one_disk));

	until = now() + 20;
	while (cgroup_unclean(s, MET) > (long)MIB && now() < until) {
		cgroup_reclaim(s, MET, 24 * MIB);
		nap(100);
	}
	EXPECT_LE(cgroup_unclean(s, MET), (long)MIB);
	met = nr_starts(s, self->trace, MET, variant->one_disk);
	other = nr_starts(s, self->trace, OTHER, variant->one_disk);
	ksft_print_msg("runs for reclaim: %ld of what it met, %ld of the other\n", met, other);
	EXPECT_GT(met, 0);
	EXPECT_EQ(0, other);
	EXPECT_EQ(0, events_lost(self->trace));
	EXPECT_GE(cgroup_unclean(s, OTHER), 14 * (long)MIB);
}

TEST_HARNESS_MAIN
