# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# What scripts in a guest share. Sourced; runs nothing by itself.

PATH=$PATH:/usr/sbin:/sbin

# scratch_device NAME: the block device of the scratch disk of that name (its serial number; letters may move).
scratch_device() {
	local serial
	for serial in /sys/block/vd*/serial; do
		if [ "$(cat "$serial" 2>/dev/null)" = "$1" ]; then
			serial=${serial%/serial}
			echo "/dev/${serial##*/}"
			return 0
		fi
	done
	echo "no scratch disk named $1" >&2
	return 1
}

# mount_scratch NAME FOLDER: mount that disk, already formatted.
mount_scratch() {
	local device
	device=$(scratch_device "$1") || return 1
	mountpoint -q "$2" && return 0
	{ [ -d "$2" ] || mkdir -p "$2"; } && mount "$device" "$2" && echo "scratch disk $1 is $device, mounted at $2" >&2
}
