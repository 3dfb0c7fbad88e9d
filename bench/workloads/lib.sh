# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# What workloads share in the guest. Sourced; the README beside it tells what each function prints and what is set.

PATH=$PATH:/usr/sbin:/sbin
# shellcheck source=scripts/guest/lib.sh disable=SC1091
. scripts/guest/lib.sh

export BIN=build/bench/bin
LAB=/tmp/lab
mkdir -p $LAB

# What follows, up to io_bytes, is for the edges of a measurement: no new process, of which each takes half a second in
# lockstep.

# Both at the start of a point and at its end.
vmstat_save() {
	local lines
	mapfile -t lines </proc/vmstat
	printf '%s\n' "${lines[@]}" >"$LAB/vmstat.$1"
}

# disk_figures DEVICE: in FOUND, requests, the ms they took, and sectors written.
disk_figures() {
	local row
	read -ra row <"/sys/block/${1#/dev/}/stat"
	FOUND="$((row[0] + row[4])) $((row[3] + row[7])) ${row[6]}"
}

# io_bytes rchar|wchar PID...: in FOUND, bytes that tasks have moved by read() or write().
io_bytes() {
	local what=$1 pid name count
	shift
	FOUND=0
	for pid; do
		while read -r name count; do
			[ "$name" != "$what:" ] || FOUND=$((FOUND + count))
		done <"/proc/$pid/io"
	done
}

# vmstat_diff POINT: what changed between `vmstat_save before` and `vmstat_save after`, as @vmstat lines.
vmstat_diff() {
	awk -v x="$1" 'NR == FNR { was[$1] = $2; next } $2 != was[$1] { print "@vmstat", x, $1, $2 - was[$1] }' \
		$LAB/vmstat.before $LAB/vmstat.after
}

# vmstat_delta NAME...: the sum of these counters' differences.
vmstat_delta() {
	awk -v names=" $* " 'index(names, " " $1 " ") { if (NR == FNR) sum -= $2; else sum += $2 } END { printf "%d\n", sum }' \
		$LAB/vmstat.before $LAB/vmstat.after
}

# value POINT NAME NUMBER: one measured value.
value() { echo "@value $1 $2 $3"; }

# traceable NAME...: those of these functions that ftrace can trace. One look for all: the list is long, and the kernel
# takes seconds to write it.
traceable() {
	awk -v names=" $* " 'index(names, " " $1 " ") && !seen[$1]++ { print $1 }' /sys/kernel/tracing/available_filter_functions
}

# Whether the trace has all events since it was emptied.
trace_complete() {
	cat /sys/kernel/tracing/per_cpu/cpu*/stats | awk '$1 == "overrun:" { lost += $2 } END { exit lost != 0 }'
}

# slow POINT [NAME]: from here on all CPUs run in lockstep, and what they do is measured, for that point; its figures
# have NAME_ before them. What comes before and after need not be measured, and goes faster without.
slow() {
	[ "${LOCKSTEP:-0}" = 1 ] || return 0
	echo "@window $1 ${2:-}"
	mark on
}

# At full speed again.
fast() { [ "${LOCKSTEP:-0}" != 1 ] || mark off; }

# Returns when it is done; starts no process.
mark() {
	echo "$1" >&"${MARK[1]}" && read -ru "${MARK[0]}"
}

# scanned: pages that anybody has scanned so far.
scanned() { awk '/^pgscan_(kswapd|direct) / { sum += $2 } END { printf "%.0f\n", sum }' /proc/vmstat; }

# await_reclaim BEFORE: until more is scanned than `scanned` said before, that is until the memory is full.
await_reclaim() {
	local i
	for ((i = 0; i < 60; i++)); do
		[ "$(scanned)" = "$1" ] || return 0
		sleep 0.5
	done
	return 1
}

# fill_memory DEVICE...: read these until the memory is full of their page cache.
fill_memory() {
	local before i
	before=$(scanned)
	for ((i = 0; i < 30; i++)); do
		"$BIN/readers" $# 2 fadvise "$@" >/dev/null || return 1
		[ "$(scanned)" = "$before" ] || return 0
	done
	echo "the memory was not full after a minute of reading" >&2
	return 1
}

# mount_new ext4|xfs|vfat DEVICE FOLDER: a new filesystem there. On a slow disk most of what mkfs writes is needless, and
# ext4's thread that zeroes inode tables would compete for the disk.
mount_new() {
	local options=noatime
	case $1 in
	ext4)
		mkfs.ext4 -q -F -E lazy_itable_init=1,lazy_journal_init=1,nodiscard "$2" || return
		options=$options,noinit_itable
		;;
	xfs) mkfs.xfs -q -f -K "$2" || return ;;
	vfat) mkfs.vfat -F 32 "$2" || return ;;
	*)
		echo "no filesystem $1: write ext4, xfs or vfat" >&2
		return 1
		;;
	esac >/dev/null
	mkdir -p "$3" && mount -o "$options" "$2" "$3"
}

# Free what earlier points have left.
settle() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
	sleep 1
}

if [ -e /sys/kernel/mm/lru_gen/enabled ]; then
	if [ "${LRU_GEN:-1}" = 1 ]; then echo y; else echo n; fi >/sys/kernel/mm/lru_gen/enabled
fi
if [ "${LOCKSTEP:-0}" = 1 ]; then
	coproc MARK { exec "$BIN/mark"; }
fi
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
for controller in cpuset cpu io memory pids; do
	echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null
done
mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug 2>/dev/null
mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing 2>/dev/null

# A fadvise reads no more than the device's readahead at once: with the default seven eighths of each step of 1 MiB would
# stay out of memory and still count.
for null in /sys/block/nullb*/queue/read_ahead_kb; do
	[ ! -e "$null" ] || echo 1024 >"$null" || exit 1
done

# What booting has left to do is not to be measured.
udevadm settle --timeout=30 2>/dev/null

# SETTINGS: sysctls of vm and the like, as in kswapd_threads=4; a kernel that lacks one can not be measured with it.
for setting in ${SETTINGS:-}; do
	if ! echo "${setting#*=}" >"/proc/sys/vm/${setting%%=*}"; then
		echo "this kernel has no vm.${setting%%=*}, or refuses ${setting#*=}" >&2
		exit 1
	fi
done
