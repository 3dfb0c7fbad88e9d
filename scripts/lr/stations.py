# SPDX-License-Identifier: GPL-2.0-only
"""The stations of the demo's tour: what each shows, what runs in the guest, and how its figures are read.

A station is one entry in STATIONS. Its command runs in a guest of stock and in one of the series; it prints one line
of `name=value` words, which the columns pick out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lr.guest import Disk


@dataclass(frozen=True)
class Station:
    """One stop of the tour."""

    title: str
    done: str
    command: str
    # What to show of the command's words: a label, and the text made of them.
    columns: tuple[tuple[str, Callable[[Mapping[str, str]], str]], ...]
    good: Callable[[Mapping[str, str]], bool]
    disks: tuple[Disk, ...] = ()
    timeout: int = 600


def _files(words: Mapping[str, str]) -> str:
    return f"{words.get('lost', '?')} of {words.get('files', '?')} files"


STATIONS: tuple[Station, ...] = (
    Station(
        title="Dirty inodes in reclaim",
        done=(
            "On an XFS disk: write new files, mark them as not worth caching, drop their directory entries,\n"
            "and have the memory group's pages reclaimed. Then sync, unmount, mount again, read every file."
        ),
        command=(
            ". scripts/guest/lib.sh; export RECLAIM_DISK_XFS=$(scratch_device xfs) TMPDIR=/tmp; "
            "cd build/selftests && ./reclaim_dontcache --demo xfs"
        ),
        columns=(
            ("data lost", _files),
            ("inodes written by reclaim", lambda words: words.get("written_by_reclaim", "-")),
            ("inodes kept for the flusher", lambda words: words.get("kept", "-")),
            ("kernel warnings", lambda words: words.get("warnings", "-")),
        ),
        good=lambda words: words.get("lost") == "0",
        disks=(Disk("xfs", "blank", 1024),),
    ),
)
