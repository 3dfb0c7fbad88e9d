# SPDX-License-Identifier: GPL-2.0-only
"""In a guest: allocations that fail, and disks that stop or fail. Only with a kernel built with DEBUG=1.

The kept files lie on device mapper's linear targets, so that their disks can stop. What fails for good is a disk of its
own, whose filesystem nobody keeps.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

from machine import VM, child, ended, finding, get, put, run, stack

DEBUGFS = Path("/sys/kernel/debug")
THREADS = VM / "kswapd_threads"
VICTIM = Path("/tmp/victim")
PATIENCE = 240


def scratch(name: str) -> str:
    """The block device of the scratch disk of that name."""
    for serial in Path("/sys/block").glob("vd*/serial"):
        if get(serial) == name:
            return f"/dev/{serial.parent.name}"
    raise OSError(f"no scratch disk {name}")


def device(fs: str) -> str:
    """Where that filesystem is: on its disk, or on the target that can stop."""
    return f"/dev/mapper/{fs}" if Path(f"/dev/mapper/{fs}").exists() else scratch(fs)


def targets(names: tuple[str, ...]) -> None:
    """A linear target for each disk."""
    for name in names:
        told = dmsetup("create", name, "--table", table(name))
        if told:
            finding(f"dmsetup create {name}: {told}")


def table(name: str, target: str = "linear") -> str:
    """All of that disk, working or failing."""
    sectors = get(Path("/sys/block") / Path(scratch(name)).name / "size")
    return f"0 {sectors} linear {scratch(name)} 0" if target == "linear" else f"0 {sectors} error"


def dmsetup(*words: str) -> str:
    """Empty, or why it failed."""
    # Whatever a guest's udev does or not: dmsetup makes the nodes in /dev/mapper.
    os.environ["DM_DISABLE_UDEV"] = "1"
    return run("dmsetup", *words, seconds=PATIENCE)


def switch(name: str, probability: int, **more: object) -> None:
    """Turn one of the kernel's fault capabilities on; probability 0: off."""
    if not probability:
        # The filter stays: without it everybody's would fail until the probability is 0.
        put(DEBUGFS / name / "probability", 0)
        return
    knobs = {"interval": 1, "times": -1, "space": 0, "verbose": 0, "task-filter": "N", **more}
    for knob, value in knobs.items():
        put(DEBUGFS / name / knob.replace("_", "-"), value)
    put(DEBUGFS / name / "probability", probability)


def stop() -> None:
    """Nothing fails any more."""
    for name in ("failslab", "fail_page_alloc", "fail_make_request"):
        if (DEBUGFS / name).exists():
            switch(name, 0)


def threads_without_memory(rng: random.Random) -> str:
    """Who changes kswapd_threads has allocations fail: the value is as asked, even with fewer helpers, or as it was."""
    if not THREADS.exists():
        return "not in this kernel"
    was, wanted = int(get(THREADS)), rng.randint(1, 16)
    # Opened before: only what the write itself allocates may fail.
    fails, threads = (os.open(path, os.O_WRONLY) for path in ("/proc/self/make-it-fail", THREADS))
    switch("failslab", rng.choice((5, 30, 100)), task_filter="Y", cache_filter="N", ignore_gfp_wait="N")
    told = ""
    os.write(fails, b"1")
    try:
        os.write(threads, str(wanted).encode())
    except OSError as exc:
        told = exc.strerror or str(exc)
    finally:
        os.pwrite(fails, b"0", 0)
    switch("failslab", 0)
    now = int(get(THREADS))
    if now != (was if told else wanted):
        finding(f"vm.kswapd_threads: {wanted} written over {was} ({told or 'accepted'}), {now} read")
    return f"{was} to {wanted}: {told or 'accepted'}"


def tasks_without_memory(rng: random.Random) -> str:
    """A task whose slab and page allocations fail now and then writes, reads and makes cgroups."""
    probability = rng.choice((1, 10))
    for name in ("failslab", "fail_page_alloc"):
        switch(name, probability, task_filter="Y", ignore_gfp_wait="N", min_order=0)

    def work() -> None:
        put(Path("/proc/self/make-it-fail"), 1)
        until = time.monotonic() + 4
        while time.monotonic() < until:
            try:
                Path("/tmp/failing").write_bytes(bytes(rng.randint(1, 1 << 18)))
                group = Path("/sys/fs/cgroup/failing")
                group.mkdir(exist_ok=True)
                put(group / "memory.max", "16M")
                group.rmdir()
            except (OSError, MemoryError):
                continue
        os._exit(0)

    pid = child(work)
    if not ended(pid, PATIENCE):
        finding(f"a task whose allocations fail does not end: {stack(pid)}")
    for name in ("failslab", "fail_page_alloc"):
        switch(name, 0)
    return f"{probability}%"


def atomic_without_memory(rng: random.Random) -> str:
    """Everybody's atomic allocations fail now and then; those that may sleep do not."""
    switch("fail_page_alloc", rng.choice((1, 20)), ignore_gfp_wait="Y", min_order=0)
    time.sleep(rng.uniform(1, 4))
    switch("fail_page_alloc", 0)
    return ""


def disk_stops(rng: random.Random) -> str:
    """A disk with kept files on it does nothing for a while."""
    fs = rng.choice(("ext4", "xfs", "btrfs", "f2fs"))
    seconds = rng.choice((2, 8, 30))
    told = dmsetup("suspend", "--nolockfs", "--noflush", fs)
    time.sleep(seconds)
    resumed = dmsetup("resume", fs)
    return told or resumed or f"{fs}, {seconds} s"


def disk_fails(rng: random.Random) -> str:
    """The victim's disk fails some requests, or all, below dirty pages; then its filesystem goes."""
    fs = rng.choice(("ext4", "xfs", "f2fs"))
    VICTIM.mkdir(exist_ok=True)
    dmsetup("create", "victim", "--table", table("victim"))
    told = run(f"mkfs.{fs}", "-q", "-F" if fs == "ext4" else "-f", "/dev/mapper/victim")
    told = told or run("mount", "/dev/mapper/victim", VICTIM)
    if told:
        dmsetup("remove", "victim")
        return told

    def work() -> None:
        number = 0
        while True:
            number += 1
            try:
                (VICTIM / str(number % 500)).write_bytes(bytes(rng.randint(1, 1 << 17)))
            except OSError:
                time.sleep(0.05)

    pid = child(work)
    time.sleep(2)
    if rng.random() < 0.5:
        minor = os.minor(os.stat("/dev/mapper/victim").st_rdev)
        put(Path(f"/sys/block/dm-{minor}/make-it-fail"), 1)
        switch("fail_make_request", rng.choice((5, 50)))
        time.sleep(4)
        switch("fail_make_request", 0)
    else:
        dmsetup("suspend", "--nolockfs", "--noflush", "victim")
        dmsetup("load", "victim", "--table", table("victim", "error"))
        dmsetup("resume", "victim")
        time.sleep(4)
    os.kill(pid, 9)
    if not ended(pid, PATIENCE):
        finding(f"a writer to a failed disk ({fs}) outlives SIGKILL: {stack(pid)}")
    told = run("umount", VICTIM, seconds=PATIENCE)
    if told:
        finding(f"umount of a failed disk ({fs}): {told}")
    return dmsetup("remove", "--retry", "victim") or fs


ACTIONS: tuple[tuple[int, Callable[[random.Random], str]], ...] = (
    (8, threads_without_memory),
    (3, tasks_without_memory),
    (3, atomic_without_memory),
    (3, disk_stops),
    (3, disk_fails),
)
