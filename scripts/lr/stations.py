# SPDX-License-Identifier: GPL-2.0-only
"""The stations of the demo's tour: what each shows, what runs in the guest, and how its figures are read.

A station is one entry in STATIONS. Its command runs in a guest of each of two sides, stock and series unless it says
otherwise; it prints `name=value` words, which the columns pick out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lr.guest import Disk


@dataclass(frozen=True)
class Side:
    """One column: its head, the kernel it is measured on, and what the command finds in the environment."""

    head: str
    kernel: str
    environment: str = ""


@dataclass(frozen=True)
class Station:
    """One stop of the tour."""

    title: str
    done: str
    command: str
    # What to show of the command's words: a label, and the text made of them.
    columns: tuple[tuple[str, Callable[[Mapping[str, str]], str]], ...]
    # Whether the second side's words are what the series promises.
    good: Callable[[Mapping[str, str]], bool]
    sides: tuple[Side, Side] = (Side("stock 7.3", "stock"), Side("series", "series"))
    disks: tuple[Disk, ...] = ()
    timeout: int = 600


def _files(words: Mapping[str, str]) -> str:
    return f"{words.get('lost', '?')} of {words.get('files', '?')} files"


STATIONS: tuple[Station, ...] = (
    Station(
        title="Files that reclaim loses",
        done=(
            "On XFS, 500 files with two names each; the second names' dentries belong to memory cgroup B.\n"
            "Through each first name 16 KiB were written and FS_XFLAG_DAX was toggled, which asks for the inode\n"
            "to be evicted once it is unused. Then `echo 40M > B/memory.reclaim`, syncfs, umount, mount, and\n"
            "every byte was compared. write, close, syncfs and umount had all reported success."
        ),
        command=(
            ". scripts/guest/lib.sh; export RECLAIM_DISK_XFS=$(scratch_device xfs) TMPDIR=/tmp; "
            "cd build/selftests && ./reclaim_dontcache -r dontcache.xfs.memory_reclaim"
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
    Station(
        title="A kswapd that cannot keep up",
        done=(
            "Six tasks fill the page cache from a disk that costs nothing (null_blk) for 20 seconds, on four CPUs,\n"
            "with vm.kswapd_threads at 1, as on stock, and at 4. A direct reclaim is a task that had to\n"
            "free memory for itself. Rates mean little in an emulator: `make bench` measures with more care."
        ),
        command="bash scripts/guest/kswapd.sh",
        columns=(
            ("direct reclaims for each GiB read", lambda words: words.get("stalls", "?")),
            ("CPU time of kswapd and helpers", lambda words: words.get("cpu", "?")),
            ("pages freed by kswapd's threads", lambda words: words.get("kswapd", "?")),
            ("of them by helpers", lambda words: words.get("helpers", "?")),
        ),
        good=lambda words: words.get("helpers", "0").isdigit() and int(words.get("helpers", "0")) > 0,
        sides=(Side("1 thread", "series", "THREADS=1"), Side("4 threads", "series", "THREADS=4")),
    ),
)
