#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# dd in a small memory cgroup writes files to a slow disk, while clean page cache fills the rest of the memory.
#
# Usage: cgroup-copy.sh MIB-DISK..., the cgroup's memory.max and the name of a disk, such as 40-usb. The variant's environment:
# FS ext4, xfs, vfat or nfs (a server in the same guest, on ext4), DIRTY_RATIO (the kernel's default), AT_ONCE (1), how
# many dd's write at a time. No lockstep: what counts is how the CPU compares with the disk, and that takes the host's time.

# shellcheck source=bench/workloads/lib.sh
. bench/workloads/lib.sh
set -u

FS=${FS:-ext4}
AT_ONCE=${AT_ONCE:-1}
CGROUP=/sys/fs/cgroup/lab-copy
INSTANCE=/sys/kernel/tracing/instances/lab-copy

die() {
	echo "cgroup-copy: $*" >&2
	exit 1
}

# mount_nfs DEVICE: $LAB/disk is a mount of a server in this guest.
mount_nfs() {
	command -v rpc.nfsd >/dev/null ||
		die "FS=nfs needs Debian's nfs-kernel-server; if no server is to run on this machine, systemctl disable --now nfs-server rpcbind"
	mount_new ext4 "$1" $LAB/export || return
	if ! mountpoint -q /proc/fs/nfsd; then
		ip link set lo up && mount -t tmpfs none /var/lib/nfs && touch /var/lib/nfs/etab /var/lib/nfs/rmtab || return
		mount -t nfsd nfsd /proc/fs/nfsd && rpc.mountd --no-udp --nfs-version 4 || return
	fi
	exportfs -i -o rw,sync,no_root_squash,insecure,no_subtree_check,fsid=0 127.0.0.1:$LAB/export || return
	rpc.nfsd --grace-time 10 --lease-time 10 --no-nfs-version 3 8 || return
	# The first file that is opened waits for the grace period to end.
	mkdir -p $LAB/disk && mount -t nfs4 -o vers=4.1,noatime 127.0.0.1:/ $LAB/disk && touch $LAB/disk/grace
}

# mount_fs DISK: a new filesystem at $LAB/disk, and as much clean page cache as there is memory.
mount_fs() {
	local device
	device=$(scratch_device "$1") || exit 1
	case $FS in
	nfs) mount_nfs "$device" ;;
	*) mount_new "$FS" "$device" $LAB/disk ;;
	esac || die "there is no $FS on $device"
	dd if=/dev/nullb0 of=/dev/null bs=1M count="$(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo)" status=none
}

unmount_fs() {
	local i
	umount $LAB/disk || return
	[ "$FS" = nfs ] || return 0
	rpc.nfsd 0 && exportfs -ua || return
	# The server lets go of its files a moment later.
	for i in {1..50}; do
		umount $LAB/export 2>/dev/null && return
		sleep 0.1
	done
	return 1
}

# memory_stat NAME: of the cgroup's memory.stat.
memory_stat() { awk -v name="$1" '$1 == name { print $2 }' $CGROUP/memory.stat; }

copy() {
	local point=$1 mib=$2 start end i status failed=0 pid pids=()
	mkdir $CGROUP || die "no cgroup can be made"
	echo "${mib}M" >$CGROUP/memory.max || die "no memory controller"
	echo >$INSTANCE/trace
	start=$EPOCHREALTIME
	# Files of 50 MiB, or of 6 where eight are written at a time, together at least twice what the cgroup may hold.
	for ((i = 0; i < AT_ONCE * (2 + mib * 2 / 50); i++)); do
		(echo 0 >$CGROUP/cgroup.procs && exec dd if=/dev/zero of=$LAB/disk/$i bs=1M count=$((50 / AT_ONCE)) status=none) &
		pids+=($!)
		((${#pids[@]} == AT_ONCE)) || continue
		for pid in "${pids[@]}"; do
			wait "$pid"
			status=$?
			case $status in
			0) ;;
			137) failed=$((failed + 1)) ;;
			*) die "dd failed with status $status" ;;
			esac
		done
		pids=()
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
	rm -f $LAB/disk/[0-9]*
	unmount_fs || die "$FS can not be unmounted"
	# What was charged goes with the filesystem; the rest of it a moment later.
	for i in {1..50}; do
		rmdir $CGROUP 2>/dev/null && break
		sleep 0.1
	done
done
