#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# NUMA balancing towards nodes that are full: memcached with FILL percent of the memory (80) under load, and a task with
# huge pages whose target has no huge page left. HUGE=1: memcached with huge pages.
# Usage: numa-full-node.sh POINT...
# Points: clients-N, huge-folios.

. bench/workloads/lib.sh

seconds=${SECONDS_EACH:-20}
socket=$LAB/memcached
# A value and memcached's own words fill a chunk of its slab class; so many chunks are in a MiB.
bytes=8700
chunks=118
fill=${FILL:-80}
# Rates are taken over so many ms: an interval without any request has no harmonic mean.
interval=2000
server=

fail() {
	echo "numa-full-node: $*" >&2
	exit 1
}

# measured POINT METRIC NAME TEXT: print NAME= of a program's output as a metric, if the program measured it.
measured() {
	local each
	for each in $4; do
		[ "${each%%=*}" != "$3" ] || value "$1" "$2" "${each#*=}"
	done
}

start_server() {
	local total huge=() i out
	[ -z "$server" ] || return 0
	total=$(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo)
	keys=$((total * fill * chunks / 100))
	[ "${HUGE:-0}" = 0 ] || huge=(-L)
	# Its limit is higher than what it gets: nothing is to be evicted.
	memcached -u root -s "$socket" -m $((total * (fill + 10) / 100)) -t "$(nproc)" -c 256 -o hashpower=18 "${huge[@]}" &
	server=$!
	for ((i = 0; i < 100; i++)); do
		[ ! -S "$socket" ] || break
		sleep 0.2
	done
	out=$("$BIN/mcload" "$socket" fill 4 $keys $bytes) || fail "memcached can not be filled"
	echo "memcached filled: $out"
	out=${out#*items=}
	if [ "${out%% *}" -lt $((keys * 99 / 100)) ]; then
		echo "@note memcached kept ${out%% *} of $keys values: it is smaller than $fill% of the memory"
	fi
}

stop_server() {
	[ -n "$server" ] || return 0
	kill "$server"
	wait "$server"
	server=
	settle
}

# The load, with N clients; what seed 5 measured, and its vmstat table.
point_clients() {
	local out last
	start_server
	# What the server has left: all of its memory is taken before the first point.
	value "$1" free_mib "$(awk '$1 == "MemFree:" { print int($2 / 1024) }' /proc/meminfo)"
	slow "$1"
	# Let the scanner find the clients before anything counts.
	"$BIN/mcload" "$socket" run "$2" "$keys" "$bytes" 2 10 >/dev/null || fail "the load failed"
	vmstat_save before
	out=$("$BIN/mcload" "$socket" run "$2" "$keys" "$bytes" "$seconds" 10 $interval) || fail "the load failed"
	vmstat_save after
	fast
	last=${out##*$'\n'}
	measured "$1" ops hmean "$last"
	measured "$1" ops_worst worst "$last"
	measured "$1" request_p50_us p50_us "$last"
	measured "$1" request_p99_us p99_us "$last"
	measured "$1" request_max_us max_us "$last"
	measured "$1" misses misses "$last"
	value "$1" allocstall "$(vmstat_delta allocstall_dma allocstall_dma32 allocstall_normal allocstall_movable)"
	value "$1" major_faults "$(vmstat_delta pgmajfault)"
	value "$1" pages_migrated "$(vmstat_delta numa_pages_migrated)"
	value "$1" swapped_out "$(vmstat_delta pswpout)"
	awk -v x="$1" '$1 == "tick" { print "@series", x, "ops", $2, $3 }' <<<"$out"
	vmstat_diff "$1"
}

# Huge pages towards a node whose free memory is in pieces.
point_huge_folios() {
	local out last_node faults failed
	stop_server
	swapoff -a
	# What the server has left lies in pieces.
	settle
	echo 1 >/proc/sys/vm/compact_memory
	# The pieces must stay pieces, and filling the node must not make room by itself.
	echo never >/sys/kernel/mm/transparent_hugepage/defrag
	echo 0 >/sys/kernel/mm/transparent_hugepage/khugepaged/defrag
	echo 0 >/proc/sys/vm/compaction_proactiveness
	echo 0 >/proc/sys/vm/compact_unevictable_allowed
	mkdir -p /sys/fs/cgroup/huge-folios
	last_node=$(printf '%s\n' /sys/devices/system/node/node[0-9]* | sed 's/.*node//' | sort -n | tail -n 1)
	slow "$1"
	out=$(HUGEFOLIOS_DIR=$LAB HUGEFOLIOS_CGROUP=/sys/fs/cgroup/huge-folios \
		"$BIN/hugefolios" "$seconds" 0 "$last_node" 80 75) || fail "the huge pages could not be measured"
	fast
	echo "$out"
	faults=${out#*hint_faults=}
	faults=${faults%% *}
	failed=$(vmstat_delta thp_migration_fail)
	measured "$1" huge_faults hint_faults "$out"
	value "$1" huge_isolated_in_vain "$failed"
	value "$1" huge_migrated "$(vmstat_delta thp_migration_success)"
	if [ "$faults" -gt 0 ]; then
		value "$1" vain_percent "$(awk -v a="$failed" -v b="$faults" 'BEGIN { printf "%.1f\n", 100 * a / b }')"
		value "$1" pgmigrate_fail_per_fault \
			"$(awk -v a="$(vmstat_delta pgmigrate_fail)" -v b="$faults" 'BEGIN { printf "%.1f\n", a / b }')"
	else
		echo "@note $1: NUMA balancing made no hinting fault in the time given"
	fi
	measured "$1" free_blocks blocks "$out"
	measured "$1" passes passes "$out"
	value "$1" pages_migrated "$(vmstat_delta numa_pages_migrated)"
	vmstat_diff "$1"
}

prepare() {
	local debug=/sys/kernel/debug/sched/numa_balancing device setting
	[ -d /sys/devices/system/node/node1 ] || fail "this scenario needs two nodes or more"
	command -v memcached >/dev/null || fail "memcached is not installed; on Debian: apt-get install memcached"
	echo 1 >/proc/sys/kernel/numa_balancing || fail "this kernel has no NUMA balancing"
	# An emulated guest is slow: scan early and often, so that a short run has faults to count.
	for setting in scan_period_max_ms=1000 scan_delay_ms=200 scan_period_min_ms=200; do
		if ! echo "${setting#*=}" >"$debug/${setting%%=*}"; then
			echo "@note numa_balancing/${setting%%=*} can not be set: the scanner runs at its own pace"
		fi
	done 2>/dev/null
	device=$(scratch_device swap) || exit 1
	{ mkswap "$device" >/dev/null && swapon "$device"; } || fail "$device can not be swapped to"
	echo madvise >/sys/kernel/mm/transparent_hugepage/enabled || fail "this kernel has no huge pages"
	# After huge pages, which raise it. What is kept free for them is made for machines that are larger: here it would be
	# what is left beside memcached, and kswapd would be woken by whoever takes the next page.
	echo 16384 >/proc/sys/vm/min_free_kbytes || fail "vm.min_free_kbytes can not be set"
	case " $* " in
	*" clients-"*) start_server ;;
	esac
}

prepare "$@"
for point in "$@"; do
	case $point in
	clients-[1-9]*) point_clients "$point" "${point#clients-}" ;;
	huge-folios) point_huge_folios "$point" ;;
	*) fail "there is no point $point" ;;
	esac
done
[ -z "$server" ] || kill "$server"
