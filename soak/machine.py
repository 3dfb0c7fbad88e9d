# SPDX-License-Identifier: GPL-2.0-only
"""In a guest: the files of /proc, /sys and cgroups that the storm turns, and processes that must end."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
NODES = Path("/sys/devices/system/node")
BLOCKS = Path("/sys/devices/system/memory")
CPUS = Path("/sys/devices/system/cpu")
VM = Path("/proc/sys/vm")
# What a full disk says.
FULL = (errno.ENOSPC, errno.EDQUOT)


def say(text: str) -> None:
    """A line of the log, with the time."""
    print(f"[{time.monotonic():9.2f}] {text}", flush=True)


def finding(text: str) -> None:
    """Something that must not be; the host counts these lines."""
    print(f"@finding {text}", flush=True)


def put(path: Path, value: object) -> str:
    """Write a short text; the error's name, or an empty string."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
    except OSError as exc:
        return exc.strerror or str(exc)
    try:
        os.write(fd, str(value).encode())
    except OSError as exc:
        return exc.strerror or str(exc)
    finally:
        os.close(fd)
    return ""


def get(path: Path, default: str = "") -> str:
    """A short text without its newline."""
    try:
        return path.read_text().strip()
    except OSError:
        return default


def figures(path: Path) -> dict[str, int]:
    """A file of "name figure" lines."""
    return {name: int(value) for name, value in re.findall(r"^(\S+?):?\s+(\d+)", get(path), re.MULTILINE)}


def numbered(folder: Path, kind: str) -> list[int]:
    """The numbers N of the folder's entries kindN."""
    names = (re.fullmatch(rf"{kind}(\d+)", path.name) for path in folder.iterdir())
    return sorted(int(match[1]) for match in names if match)


def tasks() -> dict[int, str]:
    """The name of each task, by pid."""
    return {int(path.name): get(path / "comm") for path in Path("/proc").iterdir() if path.name.isdigit()}


def stack(pid: int) -> str:
    """Where a task is, in one line."""
    calls = re.findall(r"\] (\S+?)\+", get(Path(f"/proc/{pid}/stack")))
    return " < ".join(calls[:12]) or "no stack"


def child(work: Callable[[], None]) -> int:
    """Run it in a process of its own; its pid."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        work()
        status = 0
    except BaseException as exc:  # what a child raises must not run on in the parent's code
        # The disks are small, and hogs fill them.
        if not (isinstance(exc, OSError) and exc.errno in FULL):
            finding(f"task: {type(exc).__name__}: {exc}")
    finally:
        os._exit(status)


def ended(pid: int, seconds: float) -> bool:
    """Whether our child has ended within that time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return True
        time.sleep(0.02)
    return False


def run(*words: object, seconds: float = 60) -> str:
    """A command; empty, or why it failed."""
    try:
        done = subprocess.run([str(word) for word in words], capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"no end after {seconds} s"
    return "" if done.returncode == 0 else done.stderr.decode(errors="replace").strip().replace("\n", " / ") or "failed"


def enter(cgroup: Path) -> None:
    """Move ourselves there; where it has gone meanwhile, end: nobody would find us to kill."""
    if put(cgroup / "cgroup.procs", 0):
        os._exit(0)


def end_cgroup(cgroup: Path, seconds: float) -> str:
    """Kill all in it and remove it; empty, or which tasks did not go."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        put(cgroup / "cgroup.kill", 1)
        try:
            cgroup.rmdir()
            return ""
        except OSError:
            time.sleep(0.05)
    pids = get(cgroup / "cgroup.procs").split()
    return f"{cgroup.name}: {len(pids)} tasks outlive SIGKILL by {seconds:.0f} s: " + "; ".join(
        f"{pid} {get(Path(f'/proc/{pid}/comm'))} in {stack(int(pid))}" for pid in pids[:4]
    )
