# SPDX-License-Identifier: GPL-2.0-only
"""Lockstep: the plugin of bench/lockstep built and given to a guest, and the measurements that it wrote, read.

All vCPUs execute a quantum of instructions, then wait for each other: a round. So a guest of many CPUs behaves as one,
however few the host has. Rounds are the unit of time, for the guest's clock too, instructions that of CPU use.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lr import proc
from lr.files import whole
from lr.lab import qemu
from lr.layout import Layout
from lr.ui import Fail

QUANTUM, QUANTUM_RANGE = 5000, (500, 100000)
# Up to this quantum spinlocks are queued and fair, as on a real machine. With longer rounds a hand-over of a lock could
# take a round. There the kernel sees a hypervisor and takes test-and-set locks (virt_spin_lock): a CPU that unlocks and
# locks again then goes before those that wait, and a CPU that holds a lock for long harms no other.
QUEUED_LOCKS = 1000
_FLAGS = ("-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-fvisibility=hidden", "-pthread")


@dataclass(frozen=True)
class Lockstep:
    """What guests are run with."""

    emulator: qemu.Emulator
    plugin: Path
    digest: str
    quantum: int = QUANTUM

    @property
    def identity(self) -> str:
        """What a sample depends on."""
        return "\0".join((self.emulator.version, self.digest, str(self.quantum), host_cpu(), *self.cpu))

    @property
    def cpu(self) -> tuple[str, ...]:
        """The guest's kind of CPU, where it is not the usual one."""
        return ("-cpu", "max,-hypervisor") if self.quantum <= QUEUED_LOCKS else ()

    @property
    def environment(self) -> tuple[tuple[str, str], ...]:
        """What QEMU's environment has beside ours: the plugin stands in for the C library's clock."""
        return (*self.emulator.environment, ("LD_PRELOAD", str(self.plugin)))

    def options(self, us: int, system_map: Path, out: Path, profile: bool = False) -> tuple[str, ...]:
        """For QEMU; us is what QUANTUM instructions take on the guest's clock."""
        words = [f"file={self.plugin}", f"map={system_map}", f"out={out}", f"quantum={self.quantum}"]
        words += [f"ns={us * 1000 * self.quantum // QUANTUM}", *(["profile=on"] if profile else [])]
        for word in words:
            if "," in word or " " in word:
                raise Fail(f"{word}: QEMU takes no comma or blank there; move the checkout to a path without")
        return (*self.emulator.options, *self.cpu, "-plugin", ",".join(words))


# What the guest's kernel is told: the plugin knows functions by the addresses that they were linked at, and the TSC is
# the host's.
KERNEL_OPTIONS = ("nokaslr", "clearcpuid=tsc")


def host_cpu(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The model of the host's CPU."""
    found = re.search(r"^model name\s*:\s*(.*)$", cpuinfo.read_text(), re.MULTILINE)
    return found[1].strip() if found else "unknown"


def prepare(layout: Layout, quantum: int = QUANTUM) -> Lockstep:
    """QEMU and the plugin, fetched and built if they are not there yet."""
    plugin = build(layout)
    return Lockstep(qemu.obtain(layout), plugin, plugin.name, quantum)


def sources(layout: Layout) -> list[Path]:
    """The plugin's files."""
    folder = layout.root / "bench" / "lockstep"
    return sorted([*folder.glob("*.c"), *folder.glob("*.h")])


def build(layout: Layout) -> Path:
    """Compile the plugin into build/bench; it takes two seconds.

    Its name says what it was made of. Older ones stay: another lab may have guests yet to run with one.
    """
    files = sources(layout)
    made_of = hashlib.sha256(
        b"\0".join([" ".join(_FLAGS).encode(), *(path.read_bytes() for path in files)])
    ).hexdigest()
    out = layout.build / "bench" / f"lockstep-{made_of[:12]}.so"
    if not out.exists():
        with whole(out) as part:
            proc.run(["gcc", *_FLAGS, "-o", part, *(path for path in files if path.suffix == ".c")])
    return out


@dataclass(frozen=True)
class Window:
    """One measurement: rounds of so many instructions (quantum), the host's time for them, instructions by vCPU and by
    thread; in a profile more.

    profile: (vCPU, thread, function, instructions); waiting: (lock's address, caller, instructions, times).
    """

    number: int
    quantum: int
    rounds: int
    host_us: int
    vcpus: tuple[int, ...]
    threads: Mapping[str, int]
    profile: tuple[tuple[int, str, str, int], ...] = ()
    waiting: tuple[tuple[str, str, int, int], ...] = ()


def read(text: str) -> list[Window]:
    """What the plugin wrote."""
    return [_window(json.loads(line)) for line in text.splitlines() if line.strip()]


def _window(raw: Mapping[str, Any]) -> Window:
    plain = {name: int(raw[name]) for name in ("number", "quantum", "rounds", "host_us")}
    return Window(
        **plain,
        vcpus=tuple(raw["vcpus"]),
        threads=dict(raw["threads"]),
        profile=tuple((row[0], row[1], row[2], row[3]) for row in raw.get("profile", ())),
        waiting=tuple((row[0], row[1], row[2], row[3]) for row in raw.get("waiting", ())),
    )


def by_point(output: str, windows: Sequence[Window]) -> dict[tuple[str, str], list[Window]]:
    """The measurements of each point and name: the workload's N-th line `@window` is the plugin's number N.

    Where a program marks its own window several times between `slow` and `fast` the last one counts.
    """
    numbered = {window.number: window for window in windows}
    found: dict[tuple[str, str], list[Window]] = {}
    told = (line.split() for line in output.splitlines() if line.startswith("@window "))
    for number, words in enumerate(told, start=1):
        if number not in numbered:
            raise Fail(f"lockstep: the plugin has no measurement number {number}, {' '.join(words)}")
        if not numbered[number].rounds:
            raise Fail(f"lockstep: measurement {' '.join(words)} has no round; its `slow` and `fast` enclose nothing")
        key = (words[1], words[2] if len(words) > 2 else "")
        found.setdefault(key, []).append(numbered[number])
    return found


def values(windows: Sequence[Window], name: str = "") -> dict[str, float]:
    """A point's figures: rounds, what the host took for one, instructions of all and of each thread."""
    prefix = f"{name}_" if name else ""
    rounds = sum(window.rounds for window in windows)
    found = {"rounds": float(rounds)}
    found["host_us"] = sum(window.host_us for window in windows) / max(rounds, 1)
    # What a busy CPU executes: of this, what a thread did is its share of a CPU.
    found["cpu_instructions"] = float(sum(window.rounds * window.quantum for window in windows))
    threads: dict[str, int] = {}
    for window in windows:
        for thread, count in window.threads.items():
            threads[thread] = threads.get(thread, 0) + count
    # What idle CPUs execute is no work.
    found["instructions"] = float(sum(count for thread, count in threads.items() if thread != "swapper"))
    for thread, count in threads.items():
        # kswapd0 and its helpers, those of all nodes, are one.
        name = "kswapd" if thread.startswith("kswapd") else thread
        found[f"instructions_{name}"] = found.get(f"instructions_{name}", 0.0) + count
    return {prefix + key: value for key, value in found.items()}
