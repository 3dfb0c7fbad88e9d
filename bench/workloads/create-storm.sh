#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Empty files by the thousand on a full memory, and a cpuset out of memory beside nodes that are not: drains and stalls.
# crowd: as many failing allocations as the machine gives, with something on every CPU's lists, to be counted.
# irqs: how long drains keep interrupts off, for one CPU whose clock counts instructions.
#
# The variant's environment: KEEP_MIB of memory for the storm (default 128).

# shellcheck source=bench/workloads/lib.sh
. bench/workloads/lib.sh
set -u

TRACE=/sys/kernel/tracing
INSTANCE=$TRACE/instances/lab-drain
DRAIN=events/kmem/mm_page_pcpu_drain
NODES=/sys/devices/system/node
CGROUPS=/sys/fs/cgroup
MNT=$LAB/storm
KEEP_MIB=${KEEP_MIB:-128}
STALLS="allocstall_dma allocstall_dma32 allocstall_normal allocstall_movable allocstall_device"
READERS=12

die() {
	echo "create-storm: $*" >&2
	exit 1
}

# The tracepoint counts pages that leave a per-cpu list. Only its counter is wanted, so a tiny ring is enough. Drains are
# calls of free_pcppages_bulk() below drain_pages_zone(), which leaves out ordinary frees, and lists that are found empty.
drain_setup() {
	[ -e $TRACE/$DRAIN/enable ] || die "no tracepoint kmem/mm_page_pcpu_drain; build the kernel with CONFIG_FTRACE"
	mkdir -p $INSTANCE || die "no tracefs instance can be made"
	echo 8 >$INSTANCE/buffer_size_kb
	graph_setup 4096
}

# graph_setup KIB: drains are traced, with a buffer of KIB a CPU, while tracing is on.
graph_setup() {
	echo 0 >$TRACE/tracing_on
	echo drain_pages_zone free_pcppages_bulk >$TRACE/set_ftrace_filter || die "drain_pages_zone can not be traced"
	echo drain_pages_zone >$TRACE/set_graph_function || die "no function_graph tracer"
	echo "$1" >$TRACE/buffer_size_kb
}

# Before the measurement begins: to switch these on patches code, which takes long in lockstep.
drain_on() {
	echo 1 >$INSTANCE/$DRAIN/enable || die "the tracepoint can not be enabled"
	echo function_graph >$TRACE/current_tracer || die "no function_graph tracer"
	echo >$TRACE/trace
}

# An edge of the measurement: the counters of all CPUs, PAGES off the lists, then those of vmstat, with nothing between
# and no new process.
edge() {
	local file name count
	PAGES=0
	for file in "$INSTANCE"/per_cpu/cpu*/stats; do
		while read -r name count; do
			case $name in
			entries: | overrun:) PAGES=$((PAGES + count)) ;;
			esac
		done <"$file"
	done
	vmstat_save "$1"
}

measure_start() {
	edge before
	WAS=$PAGES
	echo 1 >$TRACE/tracing_on
}

# measure_stop POINT PID...: these processes end with the measurement.
measure_stop() {
	local point=$1 pid
	shift
	echo 0 >$TRACE/tracing_on
	edge after
	fast
	for pid; do
		kill "$pid" 2>/dev/null || die "a reader of the victim's node ended too early: nothing was proved"
	done
	echo 0 >$INSTANCE/$DRAIN/enable
	trace_complete || die "drains were not traced; give $TRACE/buffer_size_kb more"
	value "$point" drained_batches "$(grep -c free_pcppages_bulk $TRACE/trace)"
	echo nop >$TRACE/current_tracer
	value "$point" drained_pages $((PAGES - WAS))
	# shellcheck disable=SC2086 # a list of names
	value "$point" direct_reclaims "$(vmstat_delta $STALLS)"
	value "$point" oom_kills "$(vmstat_delta oom_kill)"
	vmstat_diff "$point"
}

# Memory beyond KEEP_MIB goes into the pool of huge pages: taken at once, not reclaimable, given back at once.
ballast() {
	local mib
	settle
	mib=$(awk -v keep="$KEEP_MIB" '/^MemAvailable:/ { print int($2 / 1024 - keep) }' /proc/meminfo)
	[ "$mib" -ge 2 ] || { echo "@note storm: only $((mib + KEEP_MIB)) MiB available, no ballast"; return; }
	echo $((mib / 2)) >/proc/sys/vm/nr_hugepages
	mib=$(awk '/^HugePages_Total:/ { n = $2 } /^Hugepagesize:/ { k = $2 } END { print int(n * k / 1024) }' /proc/meminfo)
	value storm ballast_mib "$mib"
}

run_storm() {
	local i dirs=() files=500
	[ "${QUICK:-0}" != 1 ] || files=250
	ballast
	for i in 0 1 2 3 4 5 6 7; do
		mkdir -p "$MNT/$i"
		dirs+=(-d "$MNT/$i")
	done
	# What is left is full of clean page cache: reclaim is at work from the first file on.
	dd if="$MNT/hole0" of=/dev/null bs=1M count="$KEEP_MIB" status=none
	drain_on
	slow storm
	measure_start
	# Line by line, because the time ends it in the middle of an iteration.
	timeout "$SECONDS_EACH" stdbuf -oL fs_mark "${dirs[@]}" -D 100 -L 100000 -n $files -S0 -s 0 \
		-l $LAB/fs_log >$LAB/fs_mark.out 2>&1
	case $? in
	124) ;;
	*) cat $LAB/fs_mark.out >&2; die "fs_mark ended before its time" ;;
	esac
	measure_stop storm
	# FSUse% Count Size Files/sec Overhead, one line an iteration.
	awk 'NF == 5 && $2 ~ /^[0-9]+$/ && $4 ~ /^[0-9.]+$/ {
			n++; sum += $4; square += $4 * $4; if ($4 > 0) took += ($2 - was) / $4; was = $2
			if (n == 1 || $4 < min) min = $4
			printf "@series storm files_s %.1f %.1f\n", took, $4 }
		END { if (n < 3) exit 1
			mean = sum / n; spread = square / n - mean * mean
			printf "@value storm iterations %d\n@value storm files_s %.1f\n@value storm files_s_worst %.1f\n", n, mean, min
			printf "@value storm files_s_spread %.1f\n", 100 * (spread > 0 ? sqrt(spread) : 0) / mean }' $LAB/fs_mark.out ||
		{ cat $LAB/fs_mark.out >&2; die "fewer than 3 iterations in $SECONDS_EACH s: give the storm more time"; }
	echo 0 >/proc/sys/vm/nr_hugepages
}

# in_cpuset NODE COMMAND...: on that node's CPUs and memory only. Never returns: call it in (...) or with &.
in_cpuset() {
	local group=$CGROUPS/lab-node$1
	shift
	echo $BASHPID >"$group/cgroup.procs" || exit 1
	exec "$@"
}

# Pages on the per-cpu lists of all nodes but the victim.
innocent_lists() {
	awk -v victim="$VICTIM," '$1 == "Node" { mine = $2 != victim }
		mine && $1 == "count:" { sum += $2 }
		END { print sum + 0 }' /proc/zoneinfo
}

nodes_setup() {
	local node group cpus i pids=()
	INNOCENTS=()
	for node in "$NODES"/node[0-9]*; do
		node=${node##*/node}
		group=$CGROUPS/lab-node$node
		cpus=$(cat "$NODES/node$node/cpulist")
		[ -n "$cpus" ] || die "node $node has no CPU"
		if ! { mkdir -p "$group" && echo "$cpus" >"$group/cpuset.cpus" && echo "$node" >"$group/cpuset.mems"; }; then
			die "no cpuset for node $node; is the cpuset controller in $CGROUPS/cgroup.subtree_control?"
		fi
		INNOCENTS+=("$node")
	done
	# The last one: node 0 has the DMA zone and most of the kernel.
	VICTIM=${INNOCENTS[-1]}
	unset 'INNOCENTS[-1]'
	for ((i = 0; i < READERS; i++)); do
		truncate -s 256G "$MNT/hole$i"
	done
	i=$(awk '$3 == "MemTotal:" { print int($4 / 1024) }' "$NODES/node$VICTIM/meminfo")
	(in_cpuset "$VICTIM" dd if="$MNT/hole0" of=/dev/null bs=1M count="$i" status=none) || die "dd in a cpuset failed"
	for node in "${INNOCENTS[@]}"; do
		# Fill the lists: 16 MiB taken and given back, some times.
		in_cpuset "$node" $BIN/latency 1 100000 16384 >/dev/null &
		pids+=($!)
	done
	for i in "${pids[@]}"; do
		wait "$i" || die "latency failed in a node's cpuset"
	done
}

# probe PREFIX SECONDS: page-fault latency on all innocent nodes at once; the worst node's figures.
probe() {
	local prefix=$1 seconds=$2 node pid pids=()
	for node in "${INNOCENTS[@]}"; do
		in_cpuset "$node" $BIN/latency "$seconds" 20000 64 >"$LAB/latency.$node" &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do
		wait "$pid" || die "latency failed"
	done
	for node in "${INNOCENTS[@]}"; do
		cat "$LAB/latency.$node"
	done | awk -v prefix="$prefix" -v nodes="${#INNOCENTS[@]}" '
		{ for (i = 1; i <= NF; i++) if (split($i, w, "=") == 2) {
			seen[w[1]]++
			if (w[2] + 0 > worst[w[1]] + 0) worst[w[1]] = w[2]
		} }
		END { split("p50_us p99_us max_us", want, " ")
			for (i = 1; i <= 3; i++) {
				name = "fault_" want[i]
				if (seen[name] != nodes) exit 1
				print "@value innocents", prefix want[i], worst[name] + 0
			} }' || die "latency did not print fault_p50_us=, fault_p99_us= and fault_max_us= for each node"
}

# The innocents' lists each second, for the lowest value and a plot.
sample_lists() {
	local from=$EPOCHREALTIME count
	while sleep 1; do
		count=$(innocent_lists)
		echo "$count" >>$LAB/lists
		awk -v a="$from" -v b="$EPOCHREALTIME" -v n="$count" \
			'BEGIN { printf "@series innocents innocent_pcp %.1f %d\n", b - a, n }'
	done
}

run_innocents() {
	local i readers=() sampler lists
	[ ${#INNOCENTS[@]} -ge 1 ] || die "the point innocents wants a guest of several nodes"
	drain_on
	slow innocents
	probe quiet_ $(((SECONDS_EACH + 2) / 3))
	: >$LAB/lists
	value innocents pcp_before "$(innocent_lists)"
	sample_lists &
	sampler=$!
	measure_start
	for ((i = 0; i < READERS; i++)); do
		in_cpuset "$VICTIM" dd if="$MNT/hole$i" of=/dev/null bs=1M status=none &
		readers+=($!)
	done
	probe "" "$SECONDS_EACH"
	kill "$sampler"
	wait "$sampler" 2>/dev/null
	lists=$(innocent_lists)
	measure_stop innocents "${readers[@]}"
	value innocents pcp_after "$lists"
	[ ! -s $LAB/lists ] || value innocents pcp_lowest "$(sort -n $LAB/lists | head -1)"
	# Killed, and so with a status that is not the workload's.
	wait "${readers[@]}" 2>/dev/null || true
}

run_crowd() {
	local node cpu i pids=()
	for node in "${INNOCENTS[@]}" "$VICTIM"; do
		for cpu in "$NODES/node$node"/cpu[0-9]*; do
			in_cpuset "$node" taskset -c "${cpu##*/cpu}" $BIN/latency 1000 20000 64 >/dev/null &
			pids+=($!)
		done
	done
	for ((i = 0; i < READERS; i++)); do
		in_cpuset "$VICTIM" dd if="$MNT/hole$i" of=/dev/null bs=1M status=none &
		pids+=($!)
	done
	sleep 3
	drain_on
	slow crowd
	measure_start
	sleep "$SECONDS_EACH"
	measure_stop crowd "${pids[@]}"
	wait "${pids[@]}" 2>/dev/null || true
}

# Pages leave a list in free_pcppages_bulk(), which has interrupts off and zone->lock for all but its first lines.
run_irqs() {
	local i pids=()
	graph_setup 16384
	echo function_graph >$TRACE/current_tracer || die "no function_graph tracer"
	# Memory taken and given back, so that there is something on the lists.
	(while :; do dd if=/dev/zero of=/dev/null bs=16M count=2 status=none; done) &
	pids=($!)
	for ((i = 0; i < READERS; i++)); do
		in_cpuset "$VICTIM" dd if="$MNT/hole$i" of=/dev/null bs=1M status=none &
		pids+=($!)
	done
	sleep 3
	vmstat_save before
	echo 1 >$TRACE/tracing_on
	sleep "$SECONDS_EACH"
	echo 0 >$TRACE/tracing_on
	vmstat_save after
	kill "${pids[@]}" || die "a reader ended too early: nothing was proved"
	wait "${pids[@]}" 2>/dev/null || true
	# shellcheck disable=SC2086 # a list of names
	value irqs direct_reclaims "$(vmstat_delta $STALLS)"
	awk '/free_pcppages_bulk/ { for (i = 2; i <= NF; i++) if ($i == "us") {
			n++; sum += $(i - 1); if ($(i - 1) + 0 > max) max = $(i - 1) + 0 } }
		END { if (!n) exit 1
			printf "@value irqs irqs_sections %d\n@value irqs irqs_mean_us %.1f\n@value irqs irqs_max_us %.1f\n", n, sum / n, max
		}' $TRACE/trace || die "no list was drained"
	echo nop >$TRACE/current_tracer
	vmstat_diff irqs
}

[ "$#" -gt 0 ] || die "name at least one point"
[ -n "${SECONDS_EACH:-}" ] || die "SECONDS_EACH is not set"
trap 'kill $(jobs -p) 2>/dev/null' EXIT
for point; do
	case $point in
	storm | innocents | crowd | irqs) ;;
	*) die "no point $point; there are storm, innocents, crowd and irqs" ;;
	esac
done

device=$(scratch_device storm) || exit 1
mkdir -p "$MNT"
# The seed's mkfs and mount options, as far as they still exist.
mkfs.xfs -q -f -K -d agcount=16 "$device" >/dev/null || die "mkfs.xfs failed"
mount -o logbsize=256k "$device" "$MNT" || die "$device does not mount"
truncate -s 256G "$MNT/hole0"
drain_setup
case " $* " in
*" innocents "* | *" crowd "* | *" irqs "*) nodes_setup ;;
esac
for point; do
	"run_$point"
done
