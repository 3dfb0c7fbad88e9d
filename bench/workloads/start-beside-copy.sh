#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# A program starts, and needs most of the memory, while dd writes to a slow disk.
#
# Usage: start-beside-copy.sh DISK.... The variant's environment: REQUEST_KB, the largest request to the disk. No lockstep:
# the disk takes the host's time.

# shellcheck source=bench/workloads/lib.sh
. bench/workloads/lib.sh
set -u

INSTANCE=/sys/kernel/tracing/instances/lab-start

die() {
	echo "start-beside-copy: $*" >&2
	exit 1
}

# vmstat NAME...: the sum of these counters.
vmstat() { awk -v names=" $* " 'index(names, " " $1 " ") { sum += $2 } END { print sum }' /proc/vmstat; }

# Until dirty throttling holds the writer back: that is above half of the way from the background ratio to the other.
await_throttling() {
	local i
	for ((i = 0; i < 300; i++)); do
		(($(vmstat nr_dirty nr_writeback) < $(vmstat nr_dirty_threshold) * 3 / 4)) || return 0
		sleep 0.1
	done
	die "the copy did not reach its dirty limit in 30 s"
}

start_beside() {
	local point=$1 device mib writer status
	device=$(scratch_device "$point") || exit 1
	echo "$REQUEST_KB" >"/sys/block/${device#/dev/}/queue/max_sectors_kb" || die "REQUEST_KB=$REQUEST_KB is refused"
	mount_new ext4 "$device" $LAB/disk || die "there is no ext4 on $device"
	mib=$(awk '/^MemAvailable:/ { print int($2 / 1024 * 0.88) }' /proc/meminfo)
	dd if=/dev/zero of=$LAB/disk/copy bs=1M status=none &
	writer=$!
	# If somebody must be killed, the program.
	echo -500 >/proc/$writer/oom_score_adj
	await_throttling
	echo >$INSTANCE/trace
	vmstat_save before
	TIMEFORMAT='%R %S'
	{ time dd if=/dev/zero of=/dev/null bs="${mib}M" count=1 status=none; } 2>$LAB/times
	status=$?
	vmstat_save after
	kill $writer 2>/dev/null || die "the copy ended too early"
	wait $writer 2>/dev/null
	case $status in
	0) tail -n 1 $LAB/times | awk -v x="$point" '{ print "@value", x, "elapsed_s", $1; print "@value", x, "cpu_s", $2 }' ;;
	137) ;;
	*) die "dd failed with status $status: $(cat $LAB/times)" ;;
	esac
	value "$point" killed $((status == 137))
	value "$point" pgscan_direct "$(vmstat_delta pgscan_direct)"
	value "$point" pgsteal_direct "$(vmstat_delta pgsteal_direct)"
	value "$point" pgscan_kswapd "$(vmstat_delta pgscan_kswapd)"
	value "$point" waits "$(grep -c mm_vmscan_throttled: $INSTANCE/trace)"
	# Deleting drops what is dirty: no wait for the slow disk.
	rm $LAB/disk/copy
	umount $LAB/disk || die "the disk can not be unmounted"
}

mkdir -p $INSTANCE $LAB/disk || die "no tracefs instance can be made"
echo 1 >$INSTANCE/events/vmscan/mm_vmscan_throttled/enable || die "the tracepoint can not be enabled"
for point; do
	start_beside "$point"
done
