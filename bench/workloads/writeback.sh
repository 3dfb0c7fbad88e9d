#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Writers against reclaim: fs_mark, simple-wb (dd), mmap-strm, and a stream beside readers, on a fast or a slow disk.
#
# The variant's environment: FS xfs or ext4, DISK fast or usb (names of scratch disks), DIRTY_RATIO (40, the seed's).

# shellcheck source=bench/workloads/lib.sh
. bench/workloads/lib.sh
set -u

TRACE=/sys/kernel/tracing
EVENT=$TRACE/events/vmscan/mm_vmscan_throttled
INSTANCE=$TRACE/instances/lab-writeback
FS=${FS:-ext4} DISK=${DISK:-fast}
RAM_MIB=$(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo)
# What the slow disk takes in a second, about: writeback.toml limits it to 5 MB.
USB_MIB_S=5

die() {
	echo "writeback: $*" >&2
	exit 1
}

# mount_fs DISK FOLDER
mount_fs() {
	local device
	device=$(scratch_device "$1") || exit 1
	mount_new "$FS" "$device" "$2" || die "there is no $FS on $device"
}

# Reads of a sparse file fill the page cache and cost the disk nothing.
fill_cache() { dd if=$LAB/read/hole0 of=/dev/null bs=1M count="$RAM_MIB" status=none; }

# The reasons this kernel knows, in small letters: writeback, isolated, noprogress, congested.
reasons() {
	grep -o '"VMSCAN_THROTTLE_[A-Z]*"' $EVENT/format | tr -d '"' | sed 's/^VMSCAN_THROTTLE_//' |
		grep -vx NONE | sort -u | tr '[:upper:]' '[:lower:]'
}

throttle_setup() {
	[ -e $EVENT/enable ] || die "no tracepoint vmscan/mm_vmscan_throttled; build the kernel with CONFIG_FTRACE"
	mkdir -p $INSTANCE || die "no tracefs instance can be made"
	echo 256 >$INSTANCE/buffer_size_kb
	[ -n "$(reasons)" ] || die "$EVENT/format names no reason; the script must learn this kernel's format"
}

# The event is on before the window, to which tracing_on is enough: to switch an event patches code.
throttle_start() {
	echo 0 >$INSTANCE/tracing_on
	echo >$INSTANCE/trace
	echo 1 >$INSTANCE/events/vmscan/mm_vmscan_throttled/enable || die "the tracepoint can not be enabled"
}

throttle_figures() {
	local point=$1 lost reason
	echo 0 >$INSTANCE/events/vmscan/mm_vmscan_throttled/enable
	awk '$1 == "entries:" || $1 == "overrun:" { sum += $2 } END { print sum + 0 }' \
		$INSTANCE/per_cpu/cpu*/stats >$LAB/throttle.total
	value "$point" throttle_events "$(cat $LAB/throttle.total)"
	lost=$(awk '$1 == "overrun:" { sum += $2 } END { print sum + 0 }' $INSTANCE/per_cpu/cpu*/stats)
	if [ "$lost" != 0 ]; then
		echo "@note $point: $lost throttle events did not fit the trace buffer: no figures by reason"
		return
	fi
	for reason in $(reasons); do
		value "$point" "throttle_$reason" \
			"$(grep -c "reason=.*VMSCAN_THROTTLE_${reason^^}\b" $INSTANCE/trace)"
	done
	value "$point" kswapd_waits "$(grep -c '^ *kswapd.*reason=.*VMSCAN_THROTTLE_WRITEBACK' $INSTANCE/trace)"
	# Spelt usect_delayed in the kernel.
	value "$point" throttle_ms "$(awk '/mm_vmscan_throttled:/ && match($0, /_delayed=[0-9]+/) {
		us += substr($0, RSTART + 9, RLENGTH - 9) } END { printf "%.0f\n", us / 1000 }' $INSTANCE/trace)"
}

# kswapd_pages: in FOUND, the pages that kswapd has scanned and freed, and hundredths of a second since boot.
kswapd_pages() {
	local name count scanned freed uptime
	while read -r name count; do
		case $name in
		pgscan_kswapd) scanned=$count ;;
		pgsteal_kswapd) freed=$count ;;
		esac
	done </proc/vmstat
	read -r uptime _ </proc/uptime
	FOUND="$scanned $freed ${uptime/./}"
}

# Scan efficiency over time, while the window is open, so without a new process; says nothing for a span in which kswapd
# did not scan.
sample_efficiency() {
	local never from now scanned freed percent was_scanned was_freed
	# Nothing ever comes from this pipe.
	exec {never}<> <(:)
	kswapd_pages
	read -r was_scanned was_freed from <<<"$FOUND"
	while ! read -rt 2 -u "$never"; do
		kswapd_pages
		read -r scanned freed now <<<"$FOUND"
		if ((scanned > was_scanned)); then
			percent=$((10000 * (freed - was_freed) / (scanned - was_scanned)))
			printf '@series %s scan_efficiency %d.%02d %d.%02d\n' "$1" $(((now - from) / 100)) $(((now - from) % 100)) \
				$((percent / 100)) $((percent % 100))
		fi
		was_scanned=$scanned was_freed=$freed
	done
}

measure_start() {
	throttle_start
	sample_efficiency "$1" &
	SAMPLER=$!
	slow "$1"
	echo 1 >$INSTANCE/tracing_on
	disk_figures "$DEVICE"
	WAIT=$FOUND
	vmstat_save before
	START=$EPOCHREALTIME
}

# The end of the window: everything is read once, while the load goes on and all CPUs are still in lockstep. The program
# that ends lockstep comes after.
measure_stop() {
	ELAPSED=$EPOCHREALTIME
	vmstat_save after
	disk_figures "$DEVICE"
	WAIT="$WAIT $FOUND"
	echo 0 >$INSTANCE/tracing_on
	fast
	kill "$SAMPLER"
	wait "$SAMPLER" 2>/dev/null
	ELAPSED=$(awk -v a="$START" -v b="$ELAPSED" 'BEGIN { printf "%.3f", b - a }')
}

figures() {
	local point=$1 name ios ms was_ios was_ms
	throttle_figures "$point"
	for name in pgscan_kswapd pgsteal_kswapd pgscan_direct nr_vmscan_write nr_vmscan_immediate_reclaim; do
		value "$point" $name "$(vmstat_delta $name)"
	done
	read -r was_ios was_ms _ ios ms _ <<<"$WAIT"
	value "$point" disk_ios $((ios - was_ios))
	value "$point" disk_ms $((ms - was_ms))
	value "$point" window_s "$ELAPSED"
	vmstat_diff "$point"
}

# How much to write: as much as there is memory on the fast disk; on the slow one what fills the dirty limit (40%) and keeps
# it writing for SECONDS_EACH.
total_mib() {
	if [ "$DISK" = usb ]; then
		echo $((RAM_MIB * 2 / 5 + USB_MIB_S * SECONDS_EACH))
	else
		echo "$RAM_MIB"
	fi
}

# fs_mark with the seed's options; 1 MiB files (the seed: 10 MiB) so that 16 threads have some each.
run_fsmark() {
	local point=$1 threads=$2 i dirs=() files
	for ((i = 0; i < threads; i++)); do
		mkdir -p "$LAB/disk/fsmark/$i"
		dirs+=(-d "$LAB/disk/fsmark/$i")
	done
	files=$(($(total_mib) / (5 * threads)))
	((files > 0)) || files=1
	measure_start "$point"
	fs_mark "${dirs[@]}" -D 10 -N 150 -n "$files" -L 5 -S0 -s 1048576 -l $LAB/fs_log >$LAB/fs_mark.out 2>&1 ||
		{ cat $LAB/fs_mark.out >&2; die "fs_mark failed"; }
	measure_stop
	value "$point" elapsed_s "$ELAPSED"
	# FSUse% Count Size Files/sec Overhead, one line an iteration.
	awk -v x="$point" 'NF == 5 && $2 ~ /^[0-9]+$/ && $4 ~ /^[0-9.]+$/ { sum += $4; n++; if (n == 1 || $4 < min) min = $4 }
		END { if (!n) exit 1; printf "@value %s files_s %.2f\n@value %s files_s_worst %.2f\n", x, sum / n, x, min }' \
		$LAB/fs_mark.out || { cat $LAB/fs_mark.out >&2; die "fs_mark printed no iteration"; }
}

run_simple_wb() {
	local point=$1 mib
	mib=$(total_mib)
	# All of it must reach the disk here, so the slow disk gets no more than it writes in the time.
	[ "$DISK" != usb ] || mib=$((USB_MIB_S * SECONDS_EACH))
	measure_start "$point"
	dd if=/dev/zero of=$LAB/disk/simple bs=1M count="$mib" conv=fsync status=none || die "dd failed"
	measure_stop
	value "$point" elapsed_s "$ELAPSED"
	value "$point" written_bytes $((mib << 20))
}

run_mmap_strm() {
	local point=$1 half
	half=$(($(total_mib) / 2))
	measure_start "$point"
	# Anonymous memory that does not fit beside what is dirty: the seed's test swapped, too.
	$BIN/mmap-strm $LAB/disk/map1 $half $LAB/disk/map2 $half $((RAM_MIB / 2)) >$LAB/mmap-strm.out ||
		die "mmap-strm failed"
	measure_stop
	value "$point" elapsed_s "$ELAPSED"
	tr ' ' '\n' <$LAB/mmap-strm.out | awk -F= -v x="$point" '{ print "@value", x, $1, $2 }'
}

# Sets writer, a variable of the caller.
start_stream() {
	dd if=/dev/zero of=$LAB/disk/stream bs=1M status=none &
	writer=$!
}

# Until half of the memory waits for the slow disk.
await_dirty() {
	local i
	for ((i = 0; i < 100; i++)); do
		awk -v pages=$((RAM_MIB * 256)) '/^nr_(dirty|writeback) / { n += $2 } END { exit n < pages / 2 }' /proc/vmstat &&
			return
		sleep 0.2
	done
	die "the stream did not make half of the memory dirty in 20 s"
}

# One stream to the disk and three readers of clean page cache, for a given time. read-after-stream: the stream has
# filled memory before.
run_stream_and_read() {
	local point=$1 writer readers=() i pid read wrote before=0
	[ "$point" = stream-and-read ] || { start_stream && await_dirty && sleep 3; }
	measure_start "$point"
	if [ "$point" = stream-and-read ]; then
		start_stream
	else
		# What has filled the memory is no part of the window.
		io_bytes wchar "$writer"
		before=$FOUND
	fi
	for i in 1 2 3; do
		dd if=$LAB/read/hole$i of=/dev/null bs=1M status=none &
		readers+=($!)
	done
	sleep "$SECONDS_EACH"
	io_bytes wchar "$writer"
	wrote=$((FOUND - before))
	io_bytes rchar "${readers[@]}"
	read=$FOUND
	measure_stop
	for pid in "$writer" "${readers[@]}"; do
		kill "$pid" 2>/dev/null || die "a dd of $point ended too early"
	done
	wait "$writer" "${readers[@]}" 2>/dev/null
	value "$point" written_bytes "$wrote"
	value "$point" read_bytes "$read"
}

# Deleting drops what is dirty: no wait for the slow disk.
delete_written() { rm -rf $LAB/disk/fsmark $LAB/disk/simple $LAB/disk/map1 $LAB/disk/map2 $LAB/disk/stream; }

trap 'kill $(jobs -p) 2>/dev/null' EXIT
[ "$#" -gt 0 ] || die "name at least one point"
[ -n "${SECONDS_EACH:-}" ] || die "SECONDS_EACH is not set"
DEVICE=$(scratch_device "$DISK") || exit 1
SWAP=$(scratch_device swap) || exit 1
mount_fs "$DISK" $LAB/disk
if [ "$DISK" = fast ]; then
	mkdir -p $LAB/disk/holes $LAB/read
	mount --bind $LAB/disk/holes $LAB/read
else
	mount_fs fast $LAB/read
fi
for i in 0 1 2 3; do
	truncate -s 256G $LAB/read/hole$i || die "no sparse file on $FS"
done
mkswap "$SWAP" >/dev/null || die "mkswap failed"
throttle_setup
# As in the seed.
echo "${DIRTY_RATIO:-40}" >/proc/sys/vm/dirty_ratio
sync
fill_cache

for point; do
	swap=1
	case $point in stream-and-read | read-after-stream) swap=0 ;; esac
	[ $swap = 0 ] || swapon "$SWAP" || die "no swap"
	case $point in
	fsmark-[1-9]*) run_fsmark "$point" "${point#fsmark-}" ;;
	simple-wb) run_simple_wb "$point" ;;
	mmap-strm) run_mmap_strm "$point" ;;
	stream-and-read | read-after-stream) run_stream_and_read "$point" ;;
	*) die "no point $point; there are fsmark-N, simple-wb, mmap-strm, stream-and-read, read-after-stream" ;;
	esac
	figures "$point"
	[ $swap = 0 ] || swapoff "$SWAP" || die "swapoff failed"
	delete_written
	[ "$point" = "${!#}" ] || { settle; fill_cache; }
done
