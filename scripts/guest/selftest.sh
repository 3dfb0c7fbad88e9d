#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# In a guest: run our selftests, all through their kselftest wrapper or those named. Prints KTAP only.
# Usage: LRU_GEN=0|1 SELFTESTS=folder selftest.sh [PROGRAM | PROGRAM:CASE ...]

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=scripts/guest/lib.sh disable=SC1091
. scripts/guest/lib.sh

if [ -e /sys/kernel/mm/lru_gen/enabled ]; then
	if [ "${LRU_GEN:-1}" = 1 ]; then
		echo y >/sys/kernel/mm/lru_gen/enabled
	else
		echo n >/sys/kernel/mm/lru_gen/enabled
	fi
fi

mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
for controller in cpuset cpu io memory pids; do
	echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null
done
mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug 2>/dev/null

for fs in ext4 xfs; do
	if device=$(scratch_device $fs 2>/dev/null); then
		export "RECLAIM_DISK_${fs^^}=$device"
	fi
done
export TMPDIR=/tmp

cd "${SELFTESTS:-build/selftests}" || exit 1
if [ $# = 0 ]; then
	# run_vmtests.sh pipes through sed, which would keep everything to the end.
	exec stdbuf -oL sh ./ksft_reclaim.sh -d
fi

# The same shape as run_vmtests.sh prints: each program's own KTAP nested behind "# ", its verdict after it.
echo "TAP version 13"
number=0
failed=0
for selection in "$@"; do
	number=$((number + 1))
	program=${selection%%:*}
	wanted=${selection#"$program"}
	wanted=${wanted#:}
	arguments=()
	if [[ $wanted == *.* ]]; then
		arguments=(-r "$wanted")
	elif [ -n "$wanted" ]; then
		arguments=(-t "$wanted")
	fi
	"./$program" "${arguments[@]}" 2>&1 | tee /tmp/selftest.ktap | sed -u 's/^/# /'
	status=${PIPESTATUS[0]}
	# The harness runs nothing, and is content, when no case has the name.
	[ -z "$wanted" ] || ! grep -qx '1\.\.0' /tmp/selftest.ktap || status=none
	case $status in
	none)
		echo "not ok $number $program # no case $wanted; write FIXTURE.CASE, or FIXTURE.VARIANT.CASE where there are variants"
		failed=1
		;;
	0) echo "ok $number $program" ;;
	4) echo "ok $number $program # SKIP" ;;
	*)
		echo "not ok $number $program # exit=$status"
		failed=1
		;;
	esac
done
echo "1..$number"
exit $failed
