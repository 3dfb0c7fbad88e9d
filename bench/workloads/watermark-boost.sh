#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Unmovable memory comes where free memory is in pieces among page cache: kswapd reclaims for a watermark boost, and
# huge pages are wanted afterwards. Usage: watermark-boost.sh POINT...
# Points: boost, and off: vm.watermark_boost_factor=0.

. bench/workloads/lib.sh

ROUNDS=12
INODES=2000
WANTED=150

fail() {
	echo "watermark-boost: $*" >&2
	exit 1
}

# Page cache of single pages fills memory; then every eighth page of it goes.
fill() {
	local pages
	pages=$(($(awk '/^MemTotal:/ { print $2 }' /proc/meminfo) / 4))
	truncate -s $((pages * 4096)) $LAB/fs/holes || fail "no sparse file"
	xfs_io -r -c "fadvise -r" -c "pread -q -b 4k 0 $((pages * 4096))" $LAB/fs/holes || fail "the page cache can not be filled"
	seq 0 $((8 * 4096)) $(((pages - 1) * 4096)) | sed 's/.*/fadvise -d & 4096/' | xfs_io -r $LAB/fs/holes >/dev/null ||
		fail "the page cache takes no holes"
}

measure() {
	local trace=/sys/kernel/tracing round
	settle
	fill
	echo >$trace/trace
	echo 1 >$trace/events/kmem/mm_page_alloc_extfrag/enable
	vmstat_save before
	value "$1" free_pages "$(awk '$1 == "nr_free_pages" { print $2 }' $LAB/vmstat.before)"
	mkdir $LAB/inodes/"$1"
	for ((round = 0; round < ROUNDS; round++)); do
		(cd $LAB/inodes/"$1" && seq $((round * INODES)) $((round * INODES + INODES - 1)) | xargs touch) || fail "no inodes"
		sleep 0.3
	done
	vmstat_save after
	echo 0 >$trace/events/kmem/mm_page_alloc_extfrag/enable
	trace_complete || fail "events were lost; give $trace/buffer_size_kb more"
	value "$1" mixed "$(grep -c mm_page_alloc_extfrag: $trace/trace)"
	value "$1" stolen "$(vmstat_delta pgsteal_kswapd)"
	value "$1" passes "$(vmstat_delta pageoutrun)"
	vmstat_diff "$1"
	# What kcompactd has left undone, and then huge pages.
	echo 1 >/proc/sys/vm/compact_memory
	echo $WANTED >/proc/sys/vm/nr_hugepages
	value "$1" huge_pages "$(</proc/sys/vm/nr_hugepages)"
	echo 0 >/proc/sys/vm/nr_hugepages
	rm -r $LAB/inodes/"$1" $LAB/fs/holes
}

command -v xfs_io >/dev/null || fail "xfs_io is not installed; on Debian: apt-get install xfsprogs"
mount_scratch ext4 $LAB/fs || exit 1
mkdir -p $LAB/inodes
mount -t tmpfs -o nr_inodes=1000000 none $LAB/inodes || fail "no tmpfs"
# Cgroups that have nothing to free must not hide the page cache.
mkdir -p /sys/fs/cgroup/empty{1..20} || fail "no cgroups"
echo never >/sys/kernel/mm/transparent_hugepage/enabled
# What is free in pieces is to stay so, but for what a boost brings about.
echo 0 >/proc/sys/vm/compaction_proactiveness
for point in "$@"; do
	case $point in
	boost) echo 15000 >/proc/sys/vm/watermark_boost_factor ;;
	off) echo 0 >/proc/sys/vm/watermark_boost_factor ;;
	*) fail "there is no point $point" ;;
	esac || fail "vm.watermark_boost_factor can not be set"
	measure "$point"
done
