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
        title="Files that reclaim loses",
        done=(
            "On XFS, 4000 files with two names each; the second names' dentries belong to memory cgroup B.\n"
            "Through each first name 16 KiB were written and FS_XFLAG_DAX was toggled, which asks for the inode\n"
            "to be evicted once it is unused. Then `echo 40M > B/memory.reclaim`, sync, umount, mount, and\n"
            "every byte was compared. write, close, sync and umount had all reported success."
        ),
        command=(
            ". scripts/guest/lib.sh; export RECLAIM_DISK_XFS=$(scratch_device xfs) TMPDIR=/tmp; "
            "cd build/selftests && ./reclaim_dontcache --demo xfs"
        ),
        columns=(
            ("data lost", _files),
            ("writeback begun by reclaim", lambda words: words.get("written_by_reclaim", "-")),
            ("inodes kept for the flusher", lambda words: words.get("kept", "-")),
            ("kernel warnings", lambda words: words.get("warnings", "-")),
        ),
        good=lambda words: words.get("lost") == "0",
        disks=(Disk("xfs", "blank", 1024),),
    ),
)
