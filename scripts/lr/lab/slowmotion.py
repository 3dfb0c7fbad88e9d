# SPDX-License-Identifier: GPL-2.0-only
"""Slow motion: every vCPU thread of a guest gets the same small share of a host CPU, through the cpu cgroup, v1 or v2.

With shares that add up to less than the host, N vCPUs behave as N slow processors that really run in parallel.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lr.ui import Fail

_PERIOD_US = 20000
_VCPU = re.compile(r"CPU ([0-9]+)/(?:TCG|KVM)$")
# What QEMU's other threads and the host itself need.
_SPARE = 15


def check_share(cpus: int, share: int, host_cpus: int) -> None:
    """Fail if the guest's processors together would want more than the host has."""
    if cpus * share > 100 * host_cpus - _SPARE:
        most = (100 * host_cpus - _SPARE) // cpus
        raise Fail(
            f"{cpus} vCPUs at {share}% want {cpus * share}% of a host of {host_cpus} CPUs: too much to be parallel.\n"
            f"Use share = {most} or less, or fewer vCPUs."
        )


def vcpu_threads(pids: list[int], proc: Path = Path("/proc")) -> list[int]:
    """The thread ids of the vCPUs of these processes, in the order of the vCPUs; QEMU names them (debug-threads=on)."""
    found: dict[int, int] = {}
    for pid in pids:
        for task in (proc / str(pid) / "task").glob("*"):
            with suppress(OSError):
                match = _VCPU.match((task / "comm").read_text().strip())
                if match:
                    found[int(match[1])] = int(task.name)
    return [found[number] for number in sorted(found)]


def session_processes(session: int, proc: Path = Path("/proc")) -> list[int]:
    """The processes of a session: a guest and what started it."""
    found = []
    for stat in proc.glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            # The name may hold blanks and brackets: what counts comes after the last one.
            if int(stat.read_text().rsplit(")", 1)[1].split()[3]) == session:
                found.append(int(stat.parent.name))
    return found


def cpu_hierarchy(mounts: str, own: str) -> tuple[str, Path]:
    """Which cgroup version carries the cpu controller, and our own cgroup's folder there.

    From the texts of /proc/mounts and /proc/self/cgroup.
    """
    v2 = None
    for line in mounts.splitlines():
        words = line.split()
        if len(words) > 3 and words[2] == "cgroup" and "cpu" in words[3].split(","):
            return "v1", Path(words[1]) / _own_path(own, "cpu").lstrip("/")
        if len(words) > 3 and words[2] == "cgroup2" and v2 is None:
            v2 = Path(words[1])
    if v2 is None:
        raise Fail("slow motion needs the cpu cgroup, and none is mounted; mount one, or run with SHARE=0")
    return "v2", v2 / _own_path(own, "").lstrip("/")


def _own_path(own: str, controller: str) -> str:
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path
    return "/"


def _refused(what: str, exc: OSError) -> Fail:
    return Fail(f"slow motion can not {what} ({exc.strerror}); run as root where cgroups are writable, or with SHARE=0")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as exc:
        raise _refused(f"write {path}", exc) from exc


class Shares:
    """The cgroups of one guest. v1: a folder a vCPU. v2: the guest's processes move to a folder, its threads below."""

    def __init__(self, version: str, home: Path, name: str) -> None:
        self.version = version
        self.home = home
        self.top = home / name
        self.made: list[Path] = []

    def _make(self, path: Path) -> Path:
        try:
            path.mkdir()
        except OSError as exc:
            raise _refused(f"make {path}", exc) from exc
        self.made.append(path)
        return path

    def apply(self, pids: list[int], threads: list[int], share: int) -> None:
        """Give each thread its share, in percent of one CPU."""
        quota = _PERIOD_US * share // 100
        if self.version == "v2":
            # The root may keep processes of its own; elsewhere the controller must already be handed down.
            if "cpu" not in (self.home / "cgroup.subtree_control").read_text().split():
                _write(self.home / "cgroup.subtree_control", "+cpu")
            self._make(self.top)
            for pid in pids:
                _write(self.top / "cgroup.procs", str(pid))
        else:
            self._make(self.top)
        for number, thread in enumerate(threads):
            folder = self._make(self.top / f"cpu{number}")
            if self.version == "v2":
                _write(folder / "cgroup.type", "threaded")
                if number == 0:
                    _write(self.top / "cgroup.subtree_control", "+cpu")
                _write(folder / "cpu.max", f"{quota} {_PERIOD_US}")
                _write(folder / "cgroup.threads", str(thread))
            else:
                _write(folder / "cpu.cfs_period_us", str(_PERIOD_US))
                _write(folder / "cpu.cfs_quota_us", str(quota))
                _write(folder / "tasks", str(thread))

    def remove(self) -> None:
        """Take the cgroups away once the guest is gone; one that is still busy stays, empty of meaning."""
        for path in reversed(self.made):
            with suppress(OSError):
                path.rmdir()


@contextmanager
def slow_motion(name: str) -> Iterator[Shares]:
    """The cgroups for one guest; apply() them when it is up."""
    version, home = cpu_hierarchy(Path("/proc/mounts").read_text(), Path("/proc/self/cgroup").read_text())
    shares = Shares(version, home, f"reclaim-lab-{name}-{os.getpid()}")
    try:
        yield shares
    finally:
        shares.remove()
