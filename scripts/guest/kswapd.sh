#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# In a guest, for the demo: readers fill the page cache for 20 seconds with THREADS reclaim threads a node. Prints one
# line: stalls= (direct reclaims for each GiB read), cpu= (of all kswapd and helpers), kswapd= and helpers= (pages freed).
# Usage: THREADS=1|4 kswapd.sh

fail() {
	echo "kswapd.sh: $*" >&2
	exit 1
}

figure() {
	awk -v name="$1" '$1 ~ "^" name "$" { sum += $2 } END { printf "%d\n", sum }' /proc/vmstat
}

# CPU time of the nodes' reclaim threads, in ms.
cpu_ms() {
	local stat line fields ticks=0
	for stat in $(pgrep '^kswapd[0-9]'); do
		read -r line <"/proc/$stat/stat" || continue
		read -ra fields <<<"${line##*) }"
		ticks=$((ticks + fields[11] + fields[12]))
	done
	echo $((ticks * 1000 / $(getconf CLK_TCK)))
}

[ -b /dev/nullb0 ] || fail "there is no /dev/nullb0: the kernel is built without null_blk"
echo "${THREADS:-1}" >/proc/sys/vm/kswapd_threads || fail "vm.kswapd_threads cannot be set to ${THREADS:-1}"
read_before=$(figure pgpgin)
stalls=$(figure 'allocstall_.*')
kswapd=$(figure pgsteal_kswapd)
helpers=$(figure kswapd_helper_steal)
ms=$(cpu_ms)
build/bench/bin/readers 6 20 fadvise /dev/nullb0 >/dev/null || fail "the readers failed"
ms=$(($(cpu_ms) - ms))
kib=$(($(figure pgpgin) - read_before))
[ $kib -gt 0 ] || fail "nothing was read"
stalls=$(awk -v n=$(($(figure 'allocstall_.*') - stalls)) -v kib=$kib 'BEGIN { printf "%.2f\n", n * 1048576 / kib }')
echo "stalls=$stalls cpu=${ms}ms kswapd=$(($(figure pgsteal_kswapd) - kswapd)) helpers=$(($(figure kswapd_helper_steal) - helpers))"
