# SPDX-License-Identifier: GPL-2.0-only
"""Slow motion: every vCPU thread of a guest gets the same small share of a host CPU, through the cpu cgroup, v1 or v2.

With shares that add up to less than the host, N vCPUs behave as N slow processors that really run in parallel.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lr.ui import Fail

_PERIOD_US = 20000
_VCPU = re.compile(r"CPU ([0-9]+)/(?:TCG|KVM)$")
_PREFIX = "reclaim-lab-"
# The usual weight, and the greatest.
_WEIGHTS = {"v1": ("1024", "262144"), "v2": ("100", "10000")}
# The controllers that v2 lets control threads.
_THREADED = frozenset({"cpu", "cpuset", "perf_event", "pids"})
# What QEMU's other threads and the host itself need.
_SPARE = 15


def check_share(cpus: int, share: int, host: float) -> None:
    """Fail if the guest's processors together would want more than the host has, in percent of a CPU."""
    if cpus * share > host - _SPARE:
        most = max(0, int(host - _SPARE)) // cpus
        raise Fail(
            f"{cpus} vCPUs at {share}% want {cpus * share}%, the host gives {host:.0f}%: too much to be parallel.\n"
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


def cpu_hierarchy(mounts: str, own: str) -> tuple[str, Path, Path]:
    """Which cgroup version carries the cpu controller, where it is mounted, and our own cgroup's folder there.

    From the texts of /proc/mounts and /proc/self/cgroup.
    """
    v2 = None
    for line in mounts.splitlines():
        words = line.split()
        if len(words) > 3 and words[2] == "cgroup" and "cpu" in words[3].split(","):
            return "v1", Path(words[1]), Path(words[1]) / _own_path(own, "cpu").lstrip("/")
        if len(words) > 3 and words[2] == "cgroup2" and v2 is None:
            v2 = Path(words[1])
    if v2 is None:
        raise Fail("slow motion needs the cpu cgroup, and none is mounted; mount one, or run with SHARE=0")
    return "v2", v2, v2 / _own_path(own, "").lstrip("/")


def _own_path(own: str, controller: str) -> str:
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path
    return "/"


def _refused(what: str, exc: OSError) -> Fail:
    return Fail(f"slow motion can not {what} ({exc.strerror}); run as root where cgroups are writable, or with SHARE=0")


def _write(path: Path, text: str, may_be_over: bool = False) -> None:
    """may_be_over: the text is a process, and it does not matter if that is no longer there."""
    try:
        path.write_text(text)
    except OSError as exc:
        if not (may_be_over and isinstance(exc, ProcessLookupError)):
            raise _refused(f"write {path}", exc) from exc


class Shares:
    """The cgroups of one guest, a folder a vCPU; home is the cgroup that we and the guest are in.

    v1 takes threads anywhere. In v2 all threads of a process must stay in one domain, below which cgroups are threaded:

    - If home or a cgroup above it may have children with a cpu controller (it is the root, or has no processes of its
      own), the guest's processes move to a new domain there, and its threads below.
    - Else home itself becomes the domain, with the processes where they are. That works for the cpu controller as long
      as home has no other children and has handed down no memory or io controller.
    """

    def __init__(self, version: str, home: Path, name: str, mount: Path | None = None) -> None:
        self.version = version
        self.home = home
        self.name = name
        # The folder that holds the vCPUs' folders, as soon as there is one.
        self.top = home / name
        # Where the search for a place ends.
        self.mount = mount or home
        self.made: list[Path] = []
        self.vcpus: list[Path] = []
        # The cgroup to which we handed down the controller.
        self.lent: Path | None = None

    def _make(self, path: Path) -> Path:
        try:
            path.mkdir()
        except OSError as exc:
            raise _refused(f"make {path}", exc) from exc
        self.made.append(path)
        return path

    def apply(self, pids: list[int], threads: list[int], share: int) -> None:
        """Give each thread a cgroup of its own, with its share, in percent of one CPU."""
        top = self.top = self._domain(pids) if self.version == "v2" else self._whole(pids)
        for number, thread in enumerate(threads):
            folder = self._make(top / f"cpu{number}")
            if self.version == "v2":
                # New below a domain with processes: good for nothing until it is threaded.
                _write(folder / "cgroup.type", "threaded")
                if number == 0:
                    _write(top / "cgroup.subtree_control", "+cpu")
                _write(folder / "cgroup.threads", str(thread))
            else:
                _write(folder / "cpu.cfs_period_us", str(_PERIOD_US))
                _write(folder / "tasks", str(thread))
            self.vcpus.append(folder)
        self.set(share)

    def set(self, share: int | None) -> None:
        """Change all the shares; None: as much as there is.

        Shares are what a vCPU gets at most. Against the host's other tasks all vCPUs together would weigh as much as
        one of them: on a busy host, many would get less than few. As long as the shares leave room for others, the
        guest weighs the most.
        """
        if not self.vcpus:
            return
        quota = None if share is None else _PERIOD_US * share // 100
        weight = "cpu.weight" if self.version == "v2" else "cpu.shares"
        _write(self.top / weight, _WEIGHTS[self.version][share is not None])
        for folder in self.vcpus:
            if self.version == "v2":
                _write(folder / "cpu.max", f"{'max' if quota is None else quota} {_PERIOD_US}")
            else:
                _write(folder / "cpu.cfs_quota_us", str(-1 if quota is None else quota))

    def _whole(self, pids: list[int]) -> Path:
        """v1: the whole guest. QEMU's other threads, its disks and files, must not starve beside the vCPUs."""
        top = self._make(self.home / self.name)
        for pid in pids:
            _write(top / "cgroup.procs", str(pid), may_be_over=True)
        return top

    def _domain(self, pids: list[int]) -> Path:
        """v2: the cgroup below which the vCPUs' cgroups go."""
        place = next((each for each in self.places() if _may_have_domains(each)), None)
        if place is not None:
            self._lend(place)
            top = self._make(place / self.name)
            for pid in pids:
                _write(top / "cgroup.procs", str(pid), may_be_over=True)
            return top
        if not _may_have_threads(self.home):
            raise Fail(
                f"slow motion finds no place for cgroups: {self.home} and those above it have processes and other\n"
                "children, or no cpu controller. Run in a scope of its own (systemd-run --scope -p Delegate=yes make"
                " bench), or with SHARE=0"
            )
        self._lend(self.home)
        top = self._make(self.home / self.name)
        _write(top / "cgroup.type", "threaded")
        # QEMU's other threads, for its disks and files, must not starve beside the vCPUs.
        for task in (task for pid in pids for task in Path(f"/proc/{pid}/task").glob("[0-9]*")):
            _write(top / "cgroup.threads", task.name, may_be_over=True)
        return top

    def places(self) -> Iterator[Path]:
        """Home and what is above it, as far as it is mounted."""
        yield self.home
        for each in self.home.parents:
            if not each.is_relative_to(self.mount):
                return
            yield each

    def host(self) -> float:
        """What the host gives us, in percent of a CPU: the CPUs we may use, or less if a cgroup limits us to that."""
        limits = [100.0 * len(os.sched_getaffinity(0))]
        for place in self.places():
            if self.version == "v2":
                words = _words(place / "cpu.max")
            else:
                words = _words(place / "cpu.cfs_quota_us") + _words(place / "cpu.cfs_period_us")
            # No limit is "max", or -1.
            if len(words) == 2 and words[0].isdigit():
                limits.append(100 * int(words[0]) / int(words[1]))
        return min(limits)

    def _lend(self, place: Path) -> None:
        """Hand the cpu controller down to the place's children, if that has not been done."""
        if "cpu" not in _words(place / "cgroup.subtree_control"):
            _write(place / "cgroup.subtree_control", "+cpu")
            self.lent = place

    def remove(self, patience: float = 5.0) -> None:
        """Take the cgroups away once the guest is gone; one that is still busy stays, empty of meaning."""
        until = time.monotonic() + patience
        for path in reversed(self.made):
            # A process that was killed is in its cgroup until it is really gone.
            while not _removed(path) and time.monotonic() < until:
                time.sleep(0.05)
        self.made.clear()
        if self.lent is not None:
            # Refused while another run of ours needs it.
            with suppress(Fail):
                _write(self.lent / "cgroup.subtree_control", "-cpu")
            self.lent = None


def _removed(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _words(path: Path) -> list[str]:
    """The words in a cgroup's file; none if it can not be read."""
    try:
        return path.read_text().split()
    except OSError:
        return []


def _may_have_domains(place: Path) -> bool:
    """v2: whether children with a cpu controller and processes may be made here."""
    if "cpu" not in _words(place / "cgroup.controllers"):
        return False
    kind = _words(place / "cgroup.type")
    # Only the root has no type, and only the root may have processes beside such children.
    return not kind or (kind == ["domain"] and not _words(place / "cgroup.procs"))


def _may_have_threads(place: Path) -> bool:
    """v2: whether a cgroup with processes may become the domain of threaded children: it has none of another kind."""
    kind = " ".join(_words(place / "cgroup.type"))
    handed = set(_words(place / "cgroup.subtree_control"))
    return (
        "cpu" in _words(place / "cgroup.controllers")
        and (kind == "domain threaded" or (kind == "domain" and not _busy_children(place)))
        and handed <= _THREADED
    )


def _busy_children(place: Path) -> bool:
    return any("populated 1" in each.read_text() for each in place.glob("*/cgroup.events"))


def _sweep(places: Iterable[Path]) -> None:
    """Remove what runs that were killed have left; a guest of one that still runs keeps its cgroups."""
    for top in (top for place in places for top in place.glob(f"{_PREFIX}*")):
        if not Path(f"/proc/{top.name.rsplit('-', 1)[-1]}").exists():
            for path in (*top.glob("cpu[0-9]*"), top):
                _removed(path)


@contextmanager
def slow_motion(name: str) -> Iterator[Shares]:
    """The cgroups for one guest; apply() them when it is up."""
    version, mount, home = cpu_hierarchy(Path("/proc/mounts").read_text(), Path("/proc/self/cgroup").read_text())
    # In a container the path may be the host's, of which nothing is mounted here.
    home = home if home.is_dir() else mount
    shares = Shares(version, home, f"{_PREFIX}{name}-{os.getpid()}", mount)
    _sweep(shares.places())
    try:
        yield shares
    finally:
        shares.remove()
