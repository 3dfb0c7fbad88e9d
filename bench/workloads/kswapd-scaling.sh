#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Page-cache readers against kswapd, stages for each number of readers: direct I/O, page cache that fits (the ceiling),
# page cache that must be reclaimed. MODE: fadvise, mmap or read. TARGET: null_blk or holes. MEMCGS=1: a cgroup for each
# reader. STAGES: which of direct, ceiling and reclaim, all by default.
# Usage: kswapd-scaling.sh READERS...

. bench/workloads/lib.sh

seconds=${SECONDS_EACH:-1}
mode=${MODE:-fadvise}
ticks_per_second=$(getconf CLK_TCK)

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
		done
		export READERS_CGROUPS=/sys/fs/cgroup/reader
	fi
}

# kib OUTPUT: the KiB in the line that readers prints.
kib() { awk -F'[= ]' '/^kib=/ { print $2 }' <<<"$1"; }

# Percent of a CPU that each reader used.
reader_cpu() { awk -F'[= ]' -v n="$2" '/^kib=/ { printf "%.1f\n", $6 * 100 / $4 / n }' <<<"$1"; }

# kswapd_cpu NODE MS: percent of a CPU that the kswapd threads of a node used in the window, helpers included.
kswapd_cpu() {
	awk -v name="kswapd$1" -v hz="$ticks_per_second" -v ms="$2" '
		{ split($1, part, ":") } part[1] != name { next }
		FILENAME ~ /before$/ { used -= $2; next } { used += $2 }
		END { printf "%.1f\n", used * 100000 / hz / ms }' $LAB/kswapd.before $LAB/kswapd.after
}

# Percent of all CPUs' time that the kernel used in the window.
system_share() {
	awk '$1 == "cpu" { n = 0; for (i = 2; i <= 9; i++) n += $i; if (NR == FNR) { all -= n; sys -= $4 + $7 + $8 }
		else { all += n; sys += $4 + $7 + $8 } } $1 == "cpu" && NR != FNR { printf "%.1f\n", 100 * sys / all }' \
		$LAB/stat.before $LAB/stat.after
}

stage_direct() {
	local out
	slow "$1" direct
	out=$(READERS_WARM=0.1 $BIN/readers "$1" "$((seconds * 200))e-3" direct "${paths[@]}") || return 1
	fast
	value "$1" direct_kib "$(kib "$out")"
}

# The same load as long as nothing has to be reclaimed: what the other stage could do at most.
stage_ceiling() {
	local out
	settle
	vmstat_save before
	slow "$1" ceiling
	out=$(READERS_WARM=0.05 $BIN/readers "$1" "$((seconds * 300))e-3" "$mode" "${paths[@]}") || return 1
	fast
	vmstat_save after
	if [ "$(vmstat_delta pgscan_kswapd pgscan_direct)" != 0 ]; then
		echo "@note $1 readers: reclaim ran where there should be none, so there is no ceiling"
		return
	fi
	value "$1" ceiling_kib "$(kib "$out")"
}

# Pages scanned so far, by anybody.
scanned() { awk '/^pgscan_(kswapd|direct) / { sum += $2 } END { printf "%.0f\n", sum }' /proc/vmstat; }

stage_reclaim() {
	local out ms node i before readers
	settle
	before=$(scanned)
	READERS_WARM=signal READERS_DIR=$LAB \
		$BIN/readers "$1" "$seconds" "$mode" "${paths[@]}" >$LAB/reclaim &
	readers=$!
	# At full speed until the memory is full, and for a while more.
	for ((i = 0; i < 60; i++)); do
		sleep 0.5
		[ "$(scanned)" = "$before" ] || break
	done
	[ $i -lt 60 ] || echo "@note $1 readers: the memory was not full after half a minute"
	sleep 2
	slow "$1"
	sleep 0.1
	kill -USR1 $readers
	wait $readers || return 1
	fast
	out=$(<$LAB/reclaim)
	ms=$(awk -F'[= ]' '/^kib=/ { print $4 }' <<<"$out")
	value "$1" kib "$(kib "$out")"
	# What the readers say they read must be what came in.
	[ "${TARGET:-null_blk}" = holes ] || awk -v x="$1" -v came="$(vmstat_delta pgpgin)" -F'[= ]' '/^kib=/ {
		if (came < $2 * 0.95 || came > $2 * 1.05) print "@note", x, "readers: they count", $2, "KiB, pgpgin", came }' <<<"$out"
	value "$1" reader_cpu "$(reader_cpu "$out" "$1")"
	value "$1" system "$(system_share)"
	for node in /sys/devices/system/node/node[0-9]*; do
		value "$1" "kswapd${node##*node}_cpu" "$(kswapd_cpu "${node##*node}" "$ms")"
	done
	value "$1" allocstall "$(vmstat_delta allocstall_normal allocstall_dma32 allocstall_dma allocstall_movable)"
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
