// SPDX-License-Identifier: GPL-2.0-only
/*
 * Draining the per-cpu page lists for an allocation that failed.
 *
 * Pages on a CPU's list are free for that CPU only, and no watermark counts
 * them. A task that can not get a page gives such pages back to the zones that
 * it may take one from, and to no others: the lists of the rest of the machine
 * are none of its business.
 *
 * One task at a time drains a zone, as ZONE_PCP_DRAIN says; others leave that
 * zone to it and wait for its end before they try to allocate again. The flag
 * only keeps tasks from polling the same lists together. The lists themselves
 * are under pcp->lock, and pages go from there to the free lists in one section
 * of zone->lock, so whoever wants a zone's lists empty for good, such as
 * zone_pcp_disable(), need not know about this.
 */
#include <linux/cpumask.h>
#include <linux/cpuset.h>
#include <linux/jiffies.h>
#include <linux/mmzone.h>
#include <linux/percpu.h>
#include <linux/smp.h>
#include <linux/vmstat.h>
#include <linux/wait_bit.h>
#include <kunit/static_stub.h>
#include <kunit/visibility.h>

#include "page_alloc.h"
#include "page_drain.h"

/*
 * How long to wait for another task's drain of a zone, which takes milliseconds
 * at worst; more only if that task has lost its CPU. And how often, where one
 * drain follows the other.
 */
#define PCP_DRAIN_WAIT_MS	20
#define PCP_DRAIN_WAITS		2

/*
 * Would the allocation succeed in this zone now?
 *
 * What is answered with yes must be so, or the drain stops too early each time.
 * Hence the ordinary watermark, also for who may go below it: there is room
 * below that may be in highatomic blocks, which not all of them can use. And
 * hence no for who may not take pages of another migratetype's blocks, as no
 * watermark knows about those.
 */
VISIBLE_IF_KUNIT
bool drain_zone_has_room(struct zone *zone, unsigned int order,
			 unsigned int alloc_flags,
			 const struct alloc_context *ac)
{
	KUNIT_STATIC_STUB_REDIRECT(drain_zone_has_room, zone, order,
				   alloc_flags, ac);

	if (alloc_flags & ALLOC_NOFRAGMENT)
		return false;
	return zone_watermark_ok(zone, order,
				 wmark_pages(zone, alloc_flags & ALLOC_WMARK_MASK),
				 ac->highest_zoneidx,
				 alloc_flags & ~ALLOC_RESERVES);
}

/*
 * Drain one CPU's lists of a zone. A page that comes to an empty list right
 * after the look at it is missed. Nobody relies on more.
 */
VISIBLE_IF_KUNIT
unsigned int drain_zone_cpu(struct zone *zone, int cpu)
{
	KUNIT_STATIC_STUB_REDIRECT(drain_zone_cpu, zone, cpu);

	if (!READ_ONCE(per_cpu_ptr(zone->per_cpu_pageset, cpu)->count))
		return 0;
	return drain_pages_zone(cpu, zone);
}

/*
 * Drain CPU after CPU, all of them or, with @stop, until there is room. This one
 * first: what direct reclaim has just freed lies on its lists.
 */
static bool drain_zone(struct zone *zone, unsigned int order,
		       unsigned int alloc_flags, const struct alloc_context *ac,
		       bool stop)
{
	unsigned long drained = 0;
	bool room = false;
	int cpu;

	/* A CPU that goes offline drains its lists itself, under pcp->lock too. */
	for_each_cpu_wrap(cpu, cpu_online_mask, raw_smp_processor_id()) {
		unsigned int pages = drain_zone_cpu(zone, cpu);

		if (!pages)
			continue;
		drained += pages;
		room = drain_zone_has_room(zone, order, alloc_flags, ac);
		if (room && stop)
			break;
	}
	if (drained) {
		count_vm_event(PCP_DRAIN_ALLOC);
		count_vm_events(PCP_DRAIN_ALLOC_PAGES, drained);
	}
	return room;
}

/**
 * drain_pages_for_alloc - drain the per-cpu lists that may help an allocation
 * @gfp_mask: of the allocation
 * @order: of the allocation
 * @alloc_flags: as get_page_from_freelist() would be called with
 * @ac: as get_page_from_freelist() would be called with
 * @all: do not stop when there is room
 *
 * To be called when get_page_from_freelist() has just failed, from where direct
 * reclaim may be entered: it may sleep. Stops when a zone has room for the
 * allocation, unless its order is costly. Where another task is draining a zone,
 * and no other zone has room, waits for the end of that, for a limited time, and
 * looks again: what it leaves, because it wanted less, is drained here; with @all
 * also if that has not ended.
 *
 * Return: true if there is room now.
 */
bool drain_pages_for_alloc(gfp_t gfp_mask, unsigned int order,
			   unsigned int alloc_flags,
			   const struct alloc_context *ac, bool all)
{
	/*
	 * A large block is made of pieces that lie on many lists, or is there as a
	 * whole. To reclaim and to compact for one takes far longer than to look at
	 * all lists, and would be done for each in turn if one was all that came.
	 */
	bool stop = !all && order <= PAGE_ALLOC_COSTLY_ORDER;
	struct zone *zone, *busy;
	struct zoneref *z;
	bool room = false, mine;
	int waits = 0;

again:
	busy = NULL;
	for_each_zone_zonelist_nodemask(zone, z, ac->zonelist,
					ac->highest_zoneidx, ac->nodemask) {
		/* Offline, but still on the zonelist: its lists may be gone. */
		if (!populated_zone(zone))
			continue;
		if (cpusets_enabled() && (alloc_flags & ALLOC_CPUSET) &&
		    !__cpuset_zone_allowed(zone, gfp_mask))
			continue;
		if (drain_zone_has_room(zone, order, alloc_flags, ac))
			return true;
		/* A look first: the flags share a cache line with much else. */
		mine = !test_bit(ZONE_PCP_DRAIN, &zone->flags) &&
		       !test_and_set_bit_lock(ZONE_PCP_DRAIN, &zone->flags);
		/* Who has it may have lost its CPU. Nobody is killed for that. */
		if (!mine && !(all && waits > PCP_DRAIN_WAITS)) {
			count_vm_event(PCP_DRAIN_ALLOC_SKIP);
			if (!busy)
				busy = zone;
			continue;
		}
		if (drain_zone(zone, order, alloc_flags, ac, stop))
			room = true;
		/* A release: who waits for it finds the pages it has freed. */
		if (mine)
			clear_and_wake_up_bit(ZONE_PCP_DRAIN, &zone->flags);
		if (room && stop)
			return true;
	}
	/* Who would rather fail than reclaim again does not wait for this either. */
	if (busy && !room && !(gfp_mask & __GFP_NORETRY) &&
	    waits++ < PCP_DRAIN_WAITS + all) {
		if (waits <= PCP_DRAIN_WAITS)
			wait_on_bit_timeout(&busy->flags, ZONE_PCP_DRAIN,
					    TASK_UNINTERRUPTIBLE,
					    msecs_to_jiffies(PCP_DRAIN_WAIT_MS));
		goto again;
	}
	return room;
}
