#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# dd of a tenth of memory, over and over, with and without the function profiler; and a scan of inode tables.
#
# Points: FS-sync, FS-async, FS-profile for ext4, xfs, btrfs, tmpfs (scratch disks have these names); metadata.
# And rescan-ext4, the same sparse look-ups in every round with a stream of data between them; dense-ext4, the same with
# every block of the inode tables; walk-ext4, a tree walked beside such a stream; git-ext4, the same with git status;
# find-ext4, a file in use that find pushes out of memory, or does not, when it reads large directories once.

# shellcheck source=bench/workloads/lib.sh
. bench/workloads/lib.sh
set -u

TRACE=/sys/kernel/tracing
# What marks a folio accessed or follows from it, by the names of several kernels.
WANTED="folio_mark_accessed init_page_accessed touch_buffer folio_activate lru_activate workingset_activation
	filemap_add_folio pagecache_get_page"
TENTH_MIB=$(awk '/^MemTotal:/ { print int($2 / 10240) }' /proc/meminfo)
# Inodes lie 512 apart where the scan looks: each read-ahead of inode tables (32 blocks of 16) serves one look-up.
STRIDE=512
LOOKUPS=60
DIRS=48
[ "${QUICK:-0}" != 1 ] || LOOKUPS=40 DIRS=24

die() {
	echo "page-cache-write: $*" >&2
	exit 1
}

profile_setup() {
	local name missing=() can
	PROFILED=
	[ -e $TRACE/function_profile_enabled ] || die "no function profiler; build the kernel with CONFIG_FUNCTION_PROFILER"
	# shellcheck disable=SC2086 # a list of names
	can=$(traceable $WANTED)
	for name in $WANTED; do
		if grep -qxF "$name" <<<"$can"; then
			PROFILED+=" $name"
		else
			missing+=("$name")
		fi
	done
	[ ${#missing[@]} -eq 0 ] || echo "@note not in this kernel, or inlined: ${missing[*]}"
	[ -n "$PROFILED" ] || die "none of the functions to profile is in this kernel"
	echo "$PROFILED" >$TRACE/set_ftrace_filter || die "the ftrace filter refuses$PROFILED"
}

# Off and on: that is what sets the counts to zero.
profile_start() {
	echo 0 >$TRACE/function_profile_enabled
	echo 1 >$TRACE/function_profile_enabled
}

# Function Hit ..., a file for each CPU. The times beside are those of the guest's clock, whose ticks are longer.
profile_stop() {
	local point=$1 name
	echo 0 >$TRACE/function_profile_enabled
	for name in $PROFILED; do
		awk -v x="$point" -v name="$name" '$1 == name { hits += $2 }
			END { printf "@value %s hits_%s %.0f\n", x, name, hits }' \
			$TRACE/trace_stat/function*
	done
}

# mount_target FS: sets TARGET to a folder there.
mount_target() {
	local device
	TARGET=$LAB/$1
	mkdir -p "$TARGET"
	mountpoint -q "$TARGET" && return
	if [ "$1" = tmpfs ]; then
		mount -t tmpfs -o size=50% lab "$TARGET"
		return
	fi
	device=$(scratch_device "$1") || return
	if [ "$1" = ext4 ]; then
		# Its thread that zeroes inode tables would be measured with the rest.
		mount -o noatime,noinit_itable "$device" "$TARGET"
	else
		mount -o noatime "$device" "$TARGET"
	fi
}

# Writes and deletes until the time is over; dd's own seconds, one a line, in $LAB/dd.seconds.
write_loop() {
	local file=$TARGET/lab-file until
	: >$LAB/dd.seconds
	until=$((${EPOCHREALTIME%%[.,]*} + SECONDS_EACH))
	while [ "${EPOCHREALTIME%%[.,]*}" -lt $until ]; do
		LC_ALL=C dd if=/dev/zero of="$file" bs=1M count="$TENTH_MIB" "$@" 2>$LAB/dd.said ||
			{ cat $LAB/dd.said >&2; die "dd failed"; }
		# ... copied, 0.0906 s, 1.2 GB/s
		sed -n 's/.* copied, \([0-9.e-]*\) s,.*/\1/p' $LAB/dd.said >>$LAB/dd.seconds
		rm "$file"
	done
	[ -s $LAB/dd.seconds ] || { cat $LAB/dd.said >&2; die "dd told no time"; }
}

run_writes() {
	local point=$1 kind=$2
	settle
	vmstat_save before
	slow "$point"
	case $kind in
	sync) write_loop conv=fsync ;;
	async) write_loop ;;
	profile)
		profile_start
		write_loop
		profile_stop "$point"
		;;
	esac
	fast
	vmstat_save after
	if [ "$kind" = profile ]; then
		# No times here: the profiler is part of them.
		value "$point" written_mib $(($(wc -l <$LAB/dd.seconds) * TENTH_MIB))
	else
		awk -v x="$point" -v mib="$TENTH_MIB" '{ n++; sum += $1; if ($1 > max) max = $1 }
			END { printf "@value %s write_mib_s %.2f\n@value %s mean_s %.4f\n@value %s max_s %.4f\n@value %s iterations %d\n",
				x, mib * n / sum, x, sum / n, x, max, x, n }' $LAB/dd.seconds
	fi
	vmstat_diff "$point"
}

active_file() { awk '$1 == "Active(file):" { print $2 }' /proc/meminfo; }

# KiB read from a block device.
kib_read() { awk -v disk="${1#/dev/}" '$3 == disk { print $6 / 2 }' /proc/diskstats; }

# kib_since BEFORE DEVICE: the whole KiB read from it since kib_read said BEFORE.
kib_since() { awk -v a="$1" -v b="$(kib_read "$2")" 'BEGIN { printf "%.0f", b - a }'; }

# Files in a row of one directory have inodes in a row.
scan_setup() {
	mount_target ext4 || die "ext4's scratch disk does not mount"
	mkdir -p "$TARGET/inodes"
	(cd "$TARGET/inodes" && seq $((LOOKUPS * STRIDE)) | xargs touch) || die "the inodes could not be made"
	sync
	# Nothing of them may stay in memory.
	umount "$TARGET" || die "ext4 can not be unmounted"
}

run_metadata() {
	local point=$1 device before read active
	device=$(scratch_device ext4) || exit 1
	mount_target ext4 || die "ext4's scratch disk does not mount"
	umount "$TARGET" || die "ext4 can not be unmounted"
	settle
	mount_target ext4 || die "ext4's scratch disk does not mount"
	before=$(active_file)
	read=$(kib_read "$device")
	vmstat_save before
	slow "$point"
	profile_start
	(cd "$TARGET/inodes" && seq 1 $STRIDE $((LOOKUPS * STRIDE)) | xargs stat -c %i >/dev/null) || die "stat failed"
	profile_stop "$point"
	fast
	vmstat_save after
	active=$(($(active_file) - before))
	read=$(kib_since "$read" "$device")
	[ "$read" -gt 0 ] || die "the scan read nothing from $device: the inode tables were still in memory"
	value "$point" stats $LOOKUPS
	value "$point" read_kib "$read"
	value "$point" active_kib "$active"
	value "$point" active_percent "$(awk -v a="$active" -v b="$read" 'BEGIN { printf "%.1f", 100 * a / b }')"
	vmstat_diff "$point"
}

# word NAME: the value of NAME= in what a program printed last.
word() { sed -n "s/.*\<$1=\([0-9.]*\).*/\1/p" $LAB/said; }

# A fresh filesystem on $device, with files in a row for rescan and directories for walk.
tree_setup() {
	local dir
	mkdir -p "$TARGET"
	mkfs.ext4 -F -q -b 4096 -I 256 "$device" >/dev/null || return
	mount -o noatime,noinit_itable "$device" "$TARGET" || return
	# Only what a point needs.
	if [[ " $POINTS " = *" "@(rescan|dense)-ext4" "* ]]; then
		mkdir -p "$TARGET/inodes"
		(cd "$TARGET/inodes" && seq $((LOOKUPS * STRIDE)) | xargs touch) || return
	fi
	if [[ " $POINTS " = *" find-ext4 "* ]]; then
		large_setup || return
	fi
	if [[ " $POINTS " = *" "@(walk|git)-ext4" "* ]]; then
		for ((dir = 0; dir < DIRS; dir++)); do
			mkdir -p "$TARGET/tree/$dir"
			(cd "$TARGET/tree/$dir" && seq 250 | xargs touch) || return
		done
	fi
	sync
	umount "$TARGET" || return
	mount -o noatime,noinit_itable "$device" "$TARGET"
}

# Long names make directories large: 6 of 11 MiB. And a file of FILE_MIB beside them, by default nine tenths of what is
# free, less 40 MiB.
large_setup() {
	local dir pad
	pad=$(printf 'x%.0s' {1..240})
	for dir in 1 2 3 4 5 6; do
		mkdir -p "$TARGET/large/$dir"
		(cd "$TARGET/large/$dir" && seq -f "$pad%06g" 30000 | xargs touch) || return
	done
	echo 3 >/proc/sys/vm/drop_caches
	dd if=/dev/zero of="$TARGET/file" bs=1M status=none \
		count="${FILE_MIB:-$(($(awk '/^MemFree:/ { print int($2 / 1024) }' /proc/meminfo) * 9 / 10 - 40))}"
}

ADDED=$TRACE/events/filemap/mm_filemap_add_to_page_cache

# From here on the folios of the filesystem's metadata that come into the page cache are traced: those of its block device.
added_start() {
	echo "i_ino == $((0x$(stat -c %t "$device") << 20 | 0x$(stat -c %T "$device")))" >$ADDED/filter ||
		die "$ADDED takes no filter"
	echo >$TRACE/trace
	echo 1 >$ADDED/enable
}

# added_stop POINT: how many came, and how many of these had been there since added_start.
added_stop() {
	echo 0 >$ADDED/enable
	trace_complete || die "events were lost; give $TRACE/buffer_size_kb more"
	awk -v x="$1" '/mm_filemap_add_to_page_cache:/ { sub(/.*: dev/, ""); sub(/pfn=[^ ]*/, ""); n++; again += seen[$0]++ > 0 }
		END { printf "@value %s metadata_folios %d\n@value %s metadata_again %d\n", x, n, x, again }' $TRACE/trace
}

# The caches are full of the stream before anything is measured.
stream_first() {
	exec 9</dev/nullb0 || die "no /dev/nullb0: is null_blk built in, and given to the guest?"
	fill_memory /dev/nullb0 || die "the page cache could not be filled"
}

# One inode of each block of 4 KiB, for as long as readahead has a window.
run_dense() { run_rescan "$1" $((LOOKUPS * STRIDE / 16)) 16; }

# run_rescan POINT [COUNT STRIDE]
run_rescan() {
	local point=$1 count=${2:-$LOOKUPS} stride=${3:-$STRIDE} mib name
	mib=$(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo)
	stream_first
	added_start
	vmstat_save before
	# Not in lockstep: what is read is counted, and the streams, each as large as memory, would take minutes.
	"$BIN/rescan" 5 "$TARGET/inodes" "$count" "$stride" "$mib" /dev/nullb1 "${device#/dev/}" >$LAB/said ||
		die "rescan failed"
	vmstat_save after
	added_stop "$point"
	for name in first_kib second_kib later_kib; do
		value "$point" $name "$(word $name)"
	done
	value "$point" refaults "$(vmstat_delta workingset_refault_file)"
	vmstat_diff "$point"
}

# The KiB of the file that have to be read again after find, of all and in the mean of four rounds that begin anew.
run_find() {
	local point=$1 round before again read=0 found=0
	vmstat_save before
	for round in 1 2 3 4; do
		{ umount "$TARGET" && mount -o noatime,noinit_itable "$device" "$TARGET"; } || die "ext4 does not mount again"
		echo 3 >/proc/sys/vm/drop_caches
		for _ in 1 2 3 4; do
			cat "$TARGET/file" >/dev/null
		done
		before=$(kib_read "$device")
		find "$TARGET/large" >/dev/null
		found=$((found + $(kib_since "$before" "$device")))
		before=$(kib_read "$device")
		cat "$TARGET/file" >/dev/null
		again=$(kib_since "$before" "$device")
		echo "@note $point: round $round: $again KiB of the file were read again"
		read=$((read + again))
	done
	vmstat_save after
	value "$point" file_kib "$(du -k "$TARGET/file" | cut -f 1)"
	value "$point" find_kib $((found / 4))
	value "$point" file_again_kib $((read / 4))
	vmstat_diff "$point"
}

run_walk() { beside_stream "$1" "$BIN/walk" "$SECONDS_EACH" "$TARGET/tree"; }

# git status until the time is over, and at least twice; as the program walk it says how many files it has looked at.
statuses() {
	local until rounds=0 files start
	until=$((${EPOCHREALTIME%%[.,]*} + SECONDS_EACH))
	files=$(git -C "$TARGET/tree" ls-files | wc -l)
	start=${EPOCHREALTIME/[.,]/}
	while [ "${EPOCHREALTIME%%[.,]*}" -lt $until ] || [ $rounds -lt 2 ]; do
		[ -z "$(git -C "$TARGET/tree" status --porcelain)" ] || return
		rounds=$((rounds + 1))
	done
	echo "files=$((files * rounds)) us=$(((${EPOCHREALTIME/[.,]/} - start) / rounds))"
}

run_git() {
	export HOME=$LAB GIT_CONFIG_COUNT=3 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*' \
		GIT_CONFIG_KEY_1=user.name GIT_CONFIG_VALUE_1=lab GIT_CONFIG_KEY_2=user.email GIT_CONFIG_VALUE_2=lab@localhost
	if [ ! -e "$TARGET/tree/.git" ]; then
		# The files are empty and so all of one object: the index is what it takes.
		{ git init -q "$TARGET/tree" && git -C "$TARGET/tree" add . && git -C "$TARGET/tree" commit -q -m lab; } ||
			die "git can not take in the tree"
		sync
	fi
	beside_stream "$1" statuses
	value "$1" status_us "$(word us)"
}

# beside_stream POINT COMMAND...: what says files=, while data is streamed and the caches of inodes are shrunk.
beside_stream() {
	local point=$1 before pids=()
	shift
	stream_first
	# Inodes must not outlive their blocks.
	echo 1000 >/proc/sys/vm/vfs_cache_pressure
	added_start
	before=$(kib_read "$device")
	vmstat_save before
	slow "$point"
	"$BIN/readers" 1 "$SECONDS_EACH" fadvise /dev/nullb1 >$LAB/hog &
	pids=($!)
	"$@" >$LAB/said || die "$1 failed"
	wait "${pids[@]}" || die "readers failed"
	fast
	vmstat_save after
	added_stop "$point"
	echo 100 >/proc/sys/vm/vfs_cache_pressure
	value "$point" files_walked "$(word files)"
	value "$point" read_kib "$(kib_since "$before" "$device")"
	value "$point" kib_per_1000_files "$(awk -v a="$before" -v b="$(kib_read "$device")" -v n="$(word files)" \
		'BEGIN { printf "%.1f", (b - a) * 1000 / n }')"
	value "$point" refaults "$(vmstat_delta workingset_refault_file)"
	value "$point" hog_kib "$(sed -n 's/.*kib=\([0-9]*\).*/\1/p' $LAB/hog)"
	vmstat_diff "$point"
}

[ "$#" -gt 0 ] || die "name at least one point"
POINTS=$*
[ -n "${SECONDS_EACH:-}" ] || die "SECONDS_EACH is not set"
for point; do
	case $point in
	ext4-sync | ext4-async | ext4-profile | xfs-sync | xfs-async | xfs-profile) ;;
	btrfs-sync | btrfs-async | btrfs-profile | tmpfs-sync | tmpfs-async | tmpfs-profile | metadata) ;;
	rescan-ext4 | dense-ext4 | walk-ext4 | git-ext4 | find-ext4) ;;
	*) die "no point $point; the head of this file lists them" ;;
	esac
done
profile_setup
case " $* " in
*" metadata "*)
	scan_setup
	[ "${LRU_GEN:-1}" != 1 ] ||
		echo "@note metadata: under MGLRU Active(file) is its two youngest generations, new folios too; compare the hits"
	;;
esac
for point; do
	case $point in
	metadata)
		run_metadata "$point"
		continue
		;;
	rescan-* | dense-* | walk-* | git-* | find-*)
		TARGET=$LAB/tree-ext4
		device=$(scratch_device ext4) || exit 1
		mountpoint -q "$TARGET" || tree_setup || die "ext4 can not be made or mounted"
		"run_${point%-*}" "$point"
		continue
		;;
	esac
	mount_target "${point%-*}" || die "${point%-*} does not mount"
	run_writes "$point" "${point##*-}"
done
