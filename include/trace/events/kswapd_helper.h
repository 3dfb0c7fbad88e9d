/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM kswapd_helper

#if !defined(_TRACE_KSWAPD_HELPER_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_KSWAPD_HELPER_H

#include <linux/tracepoint.h>

TRACE_EVENT(kswapd_helper_wake,

	TP_PROTO(int nid, unsigned int helper, unsigned int target),

	TP_ARGS(nid, helper, target),

	TP_STRUCT__entry(
		__field(int, nid)
		__field(unsigned int, helper)
		__field(unsigned int, target)
	),

	TP_fast_assign(
		__entry->nid = nid;
		__entry->helper = helper;
		__entry->target = target;
	),

	TP_printk("nid=%d helper=%u target=%u",
		  __entry->nid, __entry->helper, __entry->target)
);

TRACE_EVENT(kswapd_helper_scale,

	TP_PROTO(int nid, unsigned int ms, unsigned long reclaimed,
		 bool pressure, bool ended, unsigned int target),

	TP_ARGS(nid, ms, reclaimed, pressure, ended, target),

	TP_STRUCT__entry(
		__field(int, nid)
		__field(unsigned int, ms)
		__field(unsigned long, reclaimed)
		__field(bool, pressure)
		__field(bool, ended)
		__field(unsigned int, target)
	),

	TP_fast_assign(
		__entry->nid = nid;
		__entry->ms = ms;
		__entry->reclaimed = reclaimed;
		__entry->pressure = pressure;
		__entry->ended = ended;
		__entry->target = target;
	),

	TP_printk("nid=%d ms=%u reclaimed=%lu pressure=%d ended=%d target=%u",
		  __entry->nid, __entry->ms, __entry->reclaimed,
		  __entry->pressure, __entry->ended, __entry->target)
);

TRACE_EVENT(kswapd_helper_round,

	TP_PROTO(int nid, unsigned int helper, unsigned long scanned,
		 unsigned long reclaimed, int priority, int highest_zoneidx),

	TP_ARGS(nid, helper, scanned, reclaimed, priority, highest_zoneidx),

	TP_STRUCT__entry(
		__field(int, nid)
		__field(unsigned int, helper)
		__field(unsigned long, scanned)
		__field(unsigned long, reclaimed)
		__field(int, priority)
		__field(int, highest_zoneidx)
	),

	TP_fast_assign(
		__entry->nid = nid;
		__entry->helper = helper;
		__entry->scanned = scanned;
		__entry->reclaimed = reclaimed;
		__entry->priority = priority;
		__entry->highest_zoneidx = highest_zoneidx;
	),

	/* A helper's rounds are all of order 0. */
	TP_printk("nid=%d helper=%u scanned=%lu reclaimed=%lu order=0 priority=%d highest_zoneidx=%d",
		  __entry->nid, __entry->helper, __entry->scanned,
		  __entry->reclaimed, __entry->priority, __entry->highest_zoneidx)
);

TRACE_EVENT(kswapd_helper_sleep,

	TP_PROTO(int nid, unsigned int helper),

	TP_ARGS(nid, helper),

	TP_STRUCT__entry(
		__field(int, nid)
		__field(unsigned int, helper)
	),

	TP_fast_assign(
		__entry->nid = nid;
		__entry->helper = helper;
	),

	TP_printk("nid=%d helper=%u", __entry->nid, __entry->helper)
);

#endif /* _TRACE_KSWAPD_HELPER_H */

#include <trace/define_trace.h>
