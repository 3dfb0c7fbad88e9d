#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Lockstep's own test: what workers do together, each on a vCPU of its own. Usage: self-check.sh [locked-]WORKERS...

. bench/workloads/lib.sh

# What booting has left to do is over by then, and the code is translated.
"$BIN/spin" 2 "$(($(nproc) - 1))" >/dev/null || exit 1
for point; do
	words=("${SECONDS_EACH:-8}" "${point#locked-}")
	[ "$point" = "${point#locked-}" ] || words+=(locked)
	slow "$point"
	out=$("$BIN/spin" "${words[@]}") || exit 1
	fast
	value "$point" loops "$(sed -n 's/^loops=\([0-9]*\).*/\1/p' <<<"$out")"
done
