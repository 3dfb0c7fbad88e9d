#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# dd in a small memory cgroup writes files to a slow disk, while clean page cache fills the rest of the memory.
#
# Usage: cgroup-copy.sh MIB-DISK..., the cgroup's memory.max and the name of a disk, such as 40-usb. The variant's environment:
# FS ext4, xfs or vfat, DIRTY_RATIO (the kernel's default). No lockstep: what counts is how the CPU compares with the disk, and
# that takes the host's time.

# shellcheck source=bench/workloads/lib.sh
. bench/workloads/lib.sh
set -u

FS=${FS:-ext4}
CGROUP=/sys/fs/cgroup/lab-copy
INSTANCE=/sys/kernel/tracing/instances/lab-copy

die() {
	echo "cgroup-copy: $*" >&2
	exit 1
}

# mount_fs DISK: a new filesystem at $LAB/disk, and as much clean page cache as there is memory.
mount_fs() {
	local device
	device=$(scratch_device "$1") || exit 1
	case $FS in
	ext4) mkfs.ext4 -q -F -E lazy_itable_init=1,lazy_journal_init=1,nodiscard "$device" && mount -o noatime,noinit_itable "$device" $LAB/disk ;;
	xfs) mkfs.xfs -q -f -K "$device" && mount -o noatime "$device" $LAB/disk ;;
	vfat) mkfs.vfat -F 32 "$device" >/dev/null && mount -o noatime "$device" $LAB/disk ;;
	*) die "FS=$FS: write ext4, xfs or vfat" ;;
	esac || die "$device can not be formatted as $FS and mounted"
	dd if=/dev/nullb0 of=/dev/null bs=1M count="$(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo)" status=none
}

# memory_stat NAME: of the cgroup's memory.stat.
memory_stat() { awk -v name="$1" '$1 == name { print $2 }' $CGROUP/memory.stat; }

copy() {
	local point=$1 mib=$2 start end i status failed=0
	mkdir $CGROUP || die "no cgroup can be made"
	echo "${mib}M" >$CGROUP/memory.max || die "no memory controller"
	echo >$INSTANCE/trace
	start=$EPOCHREALTIME
	# Files of 50 MB, twice as much as the cgroup may hold at least.
	for ((i = 0; i < 2 + mib * 2 / 50; i++)); do
		(echo 0 >$CGROUP/cgroup.procs && exec dd if=/dev/zero of=$LAB/disk/$i bs=1M count=50 status=none)
		status=$?
		case $status in
		0) ;;
		137) failed=$((failed + 1)) ;;
		*) die "dd failed with status $status" ;;
		esac
	done
	sync -f $LAB/disk
	end=$EPOCHREALTIME
	value "$point" files $i
	value "$point" failed $failed
	value "$point" scanned "$(memory_stat pgscan)"
	value "$point" stolen "$(memory_stat pgsteal)"
	value "$point" waits "$(grep -c mm_vmscan_throttled: $INSTANCE/trace)"
	# Of a copy that was killed the time says nothing.
	[ $failed != 0 ] || value "$point" elapsed_s "$(awk -v a="$start" -v b="$end" 'BEGIN { printf "%.3f", b - a }')"
}

# The page cache of a block device goes when nobody has it open any more.
exec 9</dev/nullb0 || die "no /dev/nullb0: is null_blk built in?"
mkdir -p $INSTANCE $LAB/disk || die "no tracefs instance can be made"
echo 1 >$INSTANCE/events/vmscan/mm_vmscan_throttled/enable || die "the tracepoint can not be enabled"
[ -z "${DIRTY_RATIO:-}" ] || echo "$DIRTY_RATIO" >/proc/sys/vm/dirty_ratio || die "DIRTY_RATIO=$DIRTY_RATIO is refused"
for point; do
	[[ $point =~ ^([0-9]+)-([a-z]+)$ ]] || die "no point $point; write MIB-DISK, such as 40-usb"
	mount_fs "${BASH_REMATCH[2]}"
	copy "$point" "${BASH_REMATCH[1]}"
	rm -f $LAB/disk/*
	umount $LAB/disk || die "$LAB/disk can not be unmounted"
	# What was charged goes with the filesystem; the rest of it a moment later.
	for i in {1..50}; do
		rmdir $CGROUP 2>/dev/null && break
		sleep 0.1
	done
done
