#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Slow motion's own test: independent workers, each on a vCPU of its own, must add up. Usage: self-check.sh WORKERS...

. bench/workloads/lib.sh

cpus=$(nproc)

# workers N SECONDS FIRST: each on a vCPU of its own, from the vCPU FIRST on.
workers() {
	local i
	for ((i = 0; i < $1; i++)); do
		taskset -c $((($3 + i) % cpus)) "$BIN/spin" "$2" &
	done
	wait
}

# The first run of any code is translated by QEMU, and read from the host.
workers "$cpus" 3 0 >/dev/null
# In turn, several times: the host's own speed drifts from second to second. Each round begins at another vCPU, so that
# all take part equally often: they are not alike, the first one has the guest's interrupts and its clock.
rounds=$((cpus / 2))
each=$(awk -v s="${SECONDS_EACH:-10}" -v n=$rounds 'BEGIN { print s / n }')
declare -A loops
for ((round = 0; round < rounds; round++)); do
	for workers in "$@"; do
		slow
		out=$(workers "$workers" "$each" $((round * 2)))
		fast
		echo "round $round, $workers workers: ${out//$'\n'/, }"
		[ "$(grep -c loops= <<<"$out")" = "$workers" ] || { echo "a worker failed" >&2; exit 1; }
		done=$(grep -o 'loops=[0-9]*' <<<"$out" | awk -F= '{ sum += $2 } END { printf "%.0f\n", sum }')
		loops[$workers]=$((${loops[$workers]:-0} + done))
	done
done
for workers in "$@"; do
	scaling=$(awk -v a="${loops[$1]}" -v n="$1" -v b="${loops[$workers]}" -v m="$workers" \
		'BEGIN { printf "%.3f\n", b * n / a / m }')
	value "$workers" loops "${loops[$workers]}"
	value "$workers" scaling "$scaling"
	awk -v s="$scaling" 'BEGIN { exit s < 0.95 || s > 1.05 }' || {
		echo "slow motion does not hold: $workers workers did $scaling of the ideal, and the bar is 5%; is the host busy?" >&2
		exit 1
	}
done
