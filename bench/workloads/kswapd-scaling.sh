#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Page-cache readers against kswapd, stages for each number of readers: direct I/O, page cache that fits (the ceiling),
# page cache that must be reclaimed. MODE: fadvise, mmap or read. TARGET: null_blk or holes. MEMCGS=1: a cgroup for each
# reader, LOW: how many of these are below their memory.low. STAGES: which of direct, ceiling and reclaim, all by default.
# Usage: kswapd-scaling.sh READERS...

. bench/workloads/lib.sh

seconds=${SECONDS_EACH:-1}
mode=${MODE:-fadvise}

prepare() {
	local i
	if [ "${TARGET:-null_blk}" = holes ]; then
		# Files of holes: the filesystem's read path at its full length, and no device that could be the limit.
		mount_scratch xfs /tmp/xfs || exit 1
		for i in 0 1 2 3 4 5 6 7; do
			truncate -s 16G "/tmp/xfs/big$i"
			paths+=("/tmp/xfs/big$i")
		done
	else
		paths=(/dev/nullb[0-7])
		[ -b "${paths[0]}" ] || { echo "no /dev/nullb0: is null_blk built in?" >&2; exit 1; }
	fi
	if [ "${MEMCGS:-0}" = 1 ]; then
		for i in 0 1 2 3 4 5 6 7; do
			mkdir -p "/sys/fs/cgroup/reader$i"
			[ "$i" -ge "${LOW:-0}" ] || echo 256M >"/sys/fs/cgroup/reader$i/memory.low" || exit 1
		done
		export READERS_CGROUPS=/sys/fs/cgroup/reader
	fi
}

# asked OUTPUT: the KiB that readers say they asked for.
asked() { awk -F'[= ]' '/^kib=/ { print $2 }' <<<"$1"; }

# came OUTPUT: the KiB that came in the window. Not all that is asked for does: readahead that finds no memory is let
# go, and fadvise does not tell. Files of holes come from no device, and no counter has them.
came() { if [ "${TARGET:-null_blk}" = holes ]; then asked "$1"; else vmstat_delta pgpgin; fi; }

stage_direct() {
	local out
	slow "$1" direct
	out=$(READERS_WARM=0.1 $BIN/readers "$1" "$((seconds * 200))e-3" direct "${paths[@]}") || return 1
	fast
	value "$1" direct_kib "$(asked "$out")"
}

# The same load as long as nothing has to be reclaimed: what the other stage could do at most.
stage_ceiling() {
	local out
	settle
	slow "$1" ceiling
	out=$(READERS_WARM=0.05 READERS_DIR=$LAB $BIN/readers "$1" "$((seconds * 300))e-3" "$mode" "${paths[@]}") || return 1
	fast
	if [ "$(vmstat_delta pgscan_kswapd pgscan_direct)" != 0 ]; then
		echo "@note $1 readers: reclaim ran where there should be none, so there is no ceiling"
		return
	fi
	value "$1" ceiling_kib "$(came "$out")"
}

stage_reclaim() {
	local out before readers name
	settle
	before=$(scanned)
	READERS_WARM=signal READERS_DIR=$LAB \
		$BIN/readers "$1" "$seconds" "$mode" "${paths[@]}" >$LAB/reclaim &
	readers=$!
	# At full speed until the memory is full, and for a while more.
	await_reclaim "$before" || echo "@note $1 readers: the memory was not full after half a minute"
	sleep 2
	slow "$1"
	sleep 0.1
	kill -USR1 $readers
	wait $readers || return 1
	fast
	out=$(<$LAB/reclaim)
	value "$1" kib "$(came "$out")"
	value "$1" asked_kib "$(asked "$out")"
	awk -v x="$1" -v asked="$(asked "$out")" -v came="$(came "$out")" 'BEGIN {
		if (came < asked * 0.97 || came > asked * 1.03)
			print "@note", x, "readers: they asked for", asked, "KiB, and", came, "came" }'
	value "$1" allocstall "$(vmstat_delta allocstall_normal allocstall_dma32 allocstall_dma allocstall_movable)"
	for name in psi_some_us psi_full_us; do
		value "$1" "$name" "$(vmstat_delta "$name")"
	done
	value "$1" window_us "$(awk -F'[= ]' '/^kib=/ { print $4 * 1000 }' <<<"$out")"
	value "$1" pgscan_kswapd "$(vmstat_delta pgscan_kswapd)"
	value "$1" pgscan_direct "$(vmstat_delta pgscan_direct)"
	vmstat_diff "$1"
}

paths=()
prepare
for readers in "$@"; do
	for stage in ${STAGES:-direct ceiling reclaim}; do
		"stage_$stage" "$readers" || exit 1
	done
done
