#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Reclaim threads among other work, the cases that maintainers asked for. Usage: kswapd-mixed.sh POINT...
# Points: zram, hog-bystanders, small-task, metadata.

. bench/workloads/lib.sh

seconds=${SECONDS_EACH:-15}
cpus=$(nproc)
# Directories of 500 files each.
dirs=24
held=0

fail() {
	echo "kswapd-mixed: $*" >&2
	exit 1
}

# word NAME FILE: the value of NAME= in a program's output; nothing if it did not print one. Without a new process,
# of which each costs a noticeable part of a second in lockstep.
word() {
	local words each
	while read -ra words; do
		for each in "${words[@]}"; do
			[ "${each%%=*}" != "$1" ] || echo "${each#*=}"
		done
	done <"$LAB/$2"
}

# measured POINT METRIC NAME FILE: print a program's value as a metric, if the program measured it.
measured() {
	local found
	found=$(word "$3" "$4")
	[ -z "$found" ] || value "$1" "$2" "$found"
}

# finish PID...: all of these programs must end well.
finish() {
	local pid
	for pid in "$@"; do
		wait "$pid" || fail "a program ended with status $?; see above"
	done
}

begin() {
	vmstat_save before
}

# over POINT: figures that every point has.
over() {
	vmstat_save after
	value "$1" allocstall "$(vmstat_delta allocstall_dma allocstall_dma32 allocstall_normal allocstall_movable)"
	# What came, not what readers asked for.
	[ "$1" = zram ] || value "$1" hog_kib "$(vmstat_delta pgpgin)"
	value "$1" refaults "$(vmstat_delta workingset_refault_anon workingset_refault_file)"
	if [ "$(word samples watch)" = 0 ]; then
		echo "@note $1: free memory never fell to the high watermark, so there is no overshoot"
	else
		measured "$1" overshoot over_percent watch
	fi
	vmstat_diff "$1"
}

# The page cache must be full before anything is measured. Held open: the last close of a block device empties its
# cache. Two devices serve this only, so that the points' readers meet nothing that was read before.
fill_cache() {
	local fd
	[ $held = 0 ] || return 0
	for fd in 0 1 2 3 4 5 6 7; do
		eval "exec 1$fd</dev/nullb$fd" || fail "no /dev/nullb$fd: is null_blk built in, with eight devices?"
	done
	held=1
	fill_memory /dev/nullb6 /dev/nullb7 || fail "the page cache could not be filled"
}

# Let go of that page cache, before a point that wants all memory for itself.
empty_cache() {
	local fd
	[ $held = 1 ] || return 0
	for fd in 0 1 2 3 4 5 6 7; do
		eval "exec 1$fd<&-"
	done
	held=0
	settle
}

# spins SECONDS FILE: bystanders on all CPUs but one; their output goes to FILE, their pids to bystanders.
spins() {
	local i
	bystanders=()
	: >"$LAB/$2"
	for ((i = 1; i < cpus; i++)); do
		"$BIN/spin" "$1" >>"$LAB/$2" &
		bystanders+=($!)
	done
}

# Work done by bystanders in a second of each, from their output.
spin_rate() {
	awk -v s="$1" '{ split($1, part, "="); sum += part[2] } END { printf "%.1f\n", sum / NR / s }' "$LAB/$2"
}

# One hog among tasks that only compute: what does it take from them, and do the reclaim threads take more?
point_hog_bystanders() {
	local alone beside short=$((seconds / 2 > 2 ? seconds / 2 : 2)) pids
	slow "$1" alone
	spins "$short" alone
	finish "${bystanders[@]}"
	fast
	alone=$(spin_rate "$short" alone)
	fill_cache
	begin
	slow "$1"
	"$BIN/freewatch" "$seconds" 10 >$LAB/watch &
	pids=($!)
	"$BIN/readers" 1 "$seconds" fadvise /dev/nullb0 >$LAB/hog &
	pids+=($!)
	spins "$seconds" beside
	finish "${bystanders[@]}" "${pids[@]}"
	fast
	beside=$(spin_rate "$seconds" beside)
	value "$1" bystander_loops "$beside"
	value "$1" bystander_percent "$(awk -v a="$alone" -v b="$beside" 'BEGIN { printf "%.1f\n", 100 * b / a }')"
	over "$1"
}

# A task that allocates and reads now and then beside three hogs: does it pay for them?
point_small_task() {
	local metric pids
	fill_cache
	begin
	slow "$1"
	"$BIN/freewatch" "$seconds" 10 >$LAB/watch &
	pids=($!)
	"$BIN/readers" 3 "$seconds" fadvise /dev/nullb1 /dev/nullb2 /dev/nullb3 >$LAB/hog &
	pids+=($!)
	"$BIN/latency" "$seconds" 10000 128 /tmp/ext4/block >$LAB/latency &
	pids+=($!)
	finish "${pids[@]}"
	fast
	for metric in faults fault_p50_us fault_p99_us fault_max_us reads read_p50_us read_p99_us read_max_us; do
		measured "$1" "$metric" "$metric" latency
	done
	over "$1"
}

# Inodes and dentries that are used again and again beside two streams of data that are not.
point_metadata() {
	local pids
	fill_cache
	begin
	slow "$1"
	"$BIN/freewatch" "$seconds" 10 >$LAB/watch &
	pids=($!)
	"$BIN/readers" 2 "$seconds" fadvise /dev/nullb4 /dev/nullb5 >$LAB/hog &
	pids+=($!)
	"$BIN/walk" "$seconds" /tmp/ext4/tree >$LAB/walk &
	pids+=($!)
	finish "${pids[@]}"
	fast
	measured "$1" files_walked files walk
	over "$1"
}

# A little more anonymous memory than there is, over compressed swap.
point_zram() {
	local kib watch
	[ -b /dev/zram0 ] || fail "no /dev/zram0: is zram built in?"
	empty_cache
	echo 1 >/sys/block/zram0/reset
	echo 512M >/sys/block/zram0/disksize || fail "zram0 can not be set up"
	{ mkswap /dev/zram0 >/dev/null && swapon /dev/zram0; } || fail "zram0 can not be swapped to"
	kib=$(awk '/^MemAvailable:/ { print $2 + 64 * 1024 }' /proc/meminfo)
	begin
	slow "$1"
	"$BIN/freewatch" 600 10 >$LAB/watch &
	watch=$!
	"$BIN/anon" $((cpus - 2)) "$kib" "$seconds" $watch >$LAB/anon || fail "anon failed"
	finish $watch
	fast
	measured "$1" touches touches anon
	measured "$1" touch_max_us max_us anon
	measured "$1" fill_ms fill_ms anon
	over "$1"
	value "$1" swap_in "$(vmstat_delta pswpin)"
	value "$1" swap_out "$(vmstat_delta pswpout)"
	value "$1" anon_scanned "$(vmstat_delta pgscan_anon)"
	swapoff /dev/zram0 || fail "zram0 can not be let go"
	echo 1 >/sys/block/zram0/reset
}

# At full speed. Files are made by as few processes as possible: each comes over 9p.
prepare() {
	local dir
	mount_scratch mixed /tmp/ext4 || exit 1
	# The kernel would go on formatting in the background.
	mount -o remount,noinit_itable /tmp/ext4
	dd if=/dev/urandom of=/tmp/ext4/block bs=1M count=32 status=none || fail "the scratch disk can not be written"
	for ((dir = 0; dir < dirs; dir++)); do
		mkdir -p "/tmp/ext4/tree/$dir" || fail "no folder could be made"
		(cd "/tmp/ext4/tree/$dir" && touch f{1..500}) || fail "no files could be made"
	done
	settle
}

prepare
for point in "$@"; do
	case $point in
	hog-bystanders | small-task | metadata | zram) "point_${point//-/_}" "$point" ;;
	*) fail "there is no point $point" ;;
	esac
done
