#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# A stream to a slow disk from a small cgroup, beside a task that uses a fast disk. Usage: writeback-neighbour.sh POINT...

# shellcheck source=bench/workloads/lib.sh
. bench/workloads/lib.sh
set -u

INSTANCE=/sys/kernel/tracing/instances/lab-neighbour
BACKUP=/sys/fs/cgroup/lab-backup

die() {
	echo "writeback-neighbour: $*" >&2
	exit 1
}

# mount_fs NAME: its device in DEVICE, mounted at $LAB/NAME.
mount_fs() {
	DEVICE=$(scratch_device "$1") || exit 1
	mount_new ext4 "$DEVICE" "$LAB/$1" || die "there is no ext4 on $DEVICE"
}

# runs DEVICE: flusher runs for reclaim that the trace has.
runs() { grep -c "bdi $(stat -c '%Hr:%Lr' "$1"):.*reason=vmscan" $INSTANCE/trace; }

# Change 256 KiB of the file, a little further each time.
dirty_a_little() {
	local at=0
	while :; do
		dd if=/dev/zero of=$LAB/fast/changed bs=4k count=64 seek=$at conv=notrunc status=none
		at=$(((at + 1021) % 16000))
		sleep 0.1
	done
}

stream_to_usb() {
	local point=$1 writer neighbour was is usb_was usb_is out each
	slow "$point"
	vmstat_save before
	disk_figures "$FAST"
	was=$FOUND
	disk_figures "$USB"
	usb_was=$FOUND
	echo >$INSTANCE/trace
	echo 1 >$INSTANCE/tracing_on
	(echo 0 >$BACKUP/cgroup.procs && exec dd if=/dev/zero of=$LAB/usb/stream bs=1M status=none) &
	writer=$!
	dirty_a_little &
	neighbour=$!
	out=$("$BIN/latency" "$SECONDS_EACH" 20000 64 $LAB/fast/read) || die "latency failed"
	vmstat_save after
	disk_figures "$FAST"
	is=$FOUND
	disk_figures "$USB"
	usb_is=$FOUND
	echo 0 >$INSTANCE/tracing_on
	fast
	kill $writer 2>/dev/null || die "the stream ended too early"
	kill $neighbour
	wait $writer $neighbour 2>/dev/null
	value "$point" runs_fast "$(runs "$FAST")"
	value "$point" runs_usb "$(runs "$USB")"
	echo "$was $is" | awk -v x="$point" '{ printf "@value %s written_fast_mib %.2f\n", x, ($6 - $3) / 2048 }
		$4 > $1 { printf "@value %s wait_fast_ms %.3f\n", x, ($5 - $2) / ($4 - $1) }'
	for each in $out; do
		case $each in
		read_p50_us=* | read_p99_us=*) value "$point" "${each%%=*}" "${each#*=}" ;;
		esac
	done
	value "$point" usb_mib_s "$(echo "$usb_was $usb_is" |
		awk -v s="$SECONDS_EACH" '{ printf "%.3f", ($6 - $3) / 2048 / s }')"
	vmstat_diff "$point"
}

trap 'kill $(jobs -p) 2>/dev/null' EXIT
[ -n "${SECONDS_EACH:-}" ] || die "SECONDS_EACH is not set"
mount_fs fast
FAST=$DEVICE
mount_fs usb
USB=$DEVICE
mkdir -p $INSTANCE $BACKUP || die "no tracefs instance or no cgroup can be made"
echo 96M >$BACKUP/memory.max || die "no memory controller"
echo 1024 >$INSTANCE/buffer_size_kb
echo 1 >$INSTANCE/events/writeback/writeback_start/enable || die "the tracepoint can not be enabled"
dd if=/dev/zero of=$LAB/fast/changed bs=1M count=64 status=none
dd if=/dev/zero of=$LAB/fast/read bs=1M count=128 status=none
# Only reclaim is to have something written before its time.
echo 80 >/proc/sys/vm/dirty_ratio
echo 70 >/proc/sys/vm/dirty_background_ratio
settle
for point; do
	case $point in
	stream-to-usb) stream_to_usb "$point" ;;
	*) die "no point $point; there is stream-to-usb" ;;
	esac
done
