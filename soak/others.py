# SPDX-License-Identifier: GPL-2.0-only
"""In a guest: other people's tests of what reclaim serves, in the seed's order, beside a hog that keeps memory short.

Usage: others.py --seed N --seconds S

stress-ng's stressors of four classes with --verify, five seconds each, and between them fio with --verify=crc32c on a
filesystem. Prints `@finding` lines, and one `@result` line.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

from machine import CGROUPS, child, end_cgroup, enter, figures, finding, put, run, say
from storm import FILESYSTEMS, HOGS, MOUNTS, PATIENCE, audit, mount, settle, umount

# The stressor numa is in memory.
CLASSES = ("vm", "memory", "filesystem", "cpu-cache")
# What stress-ng ends with when a stressor cannot run here: no resource, not implemented.
_NOT_HERE = (3, 4)
# Not of one machine: these would end the guest, fill the host's files, or take minutes for one round.
_LEFT_OUT = {"reboot", "swap", "bad-ioctl", "dev", "sysfs", "procfs", "oom-pipe", "binderfs"}


def stressors() -> list[str]:
    """All of these classes."""
    found: set[str] = set()
    for name in CLASSES:
        words = ["stress-ng", "--class", f"{name}?"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        listed = re.match(rf"class '{name}' stressors:(.*)", done.stdout)
        if not listed:
            finding(f"stress-ng has no class {name}: {(done.stdout + done.stderr).strip()[:200]}")
            continue
        found |= set(listed[1].split())
    return sorted(found - _LEFT_OUT)


def stress(name: str) -> bool:
    """Five seconds of one; whether it ran."""
    words = ["stress-ng", f"--{name}", "2", "--timeout", "5s", "--verify", "--oomable", "--temp-path", "."]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        finding(f"stress-ng --{name} does not end")
        return True
    said = done.stdout + done.stderr
    if done.returncode in _NOT_HERE or "No stress workers invoked" in said:
        return False
    told = re.findall(r"(?:fail|error): (.*)", said)
    if done.returncode:
        finding(f"stress-ng --{name} ended with {done.returncode}: {' / '.join(told[:3])}")
    return True


def verified(fs: str, seed: int) -> None:
    """fio writes, and reads back what it wrote."""
    words = ["fio", "--name=soak", f"--directory={MOUNTS / fs}", "--rw=randwrite", "--size=48m", "--bsrange=4k-64k"]
    words += ["--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--end_fsync=1", "--minimal"]
    words += [f"--randseed={seed}"]
    told = run(*words, seconds=PATIENCE)
    if told:
        finding(f"fio on {fs}: {told[:300]}")


def hog() -> None:
    """Memory stays short."""
    enter(HOGS)
    put(Path("/proc/self/oom_score_adj"), 800)
    words = "--quiet --timeout 0 --vm 1 --vm-bytes 50% --oomable --hdd 1 --hdd-bytes 96M".split()
    os.chdir(MOUNTS / "xfs")
    os.execvp("stress-ng", ["stress-ng", *words])


def main() -> int:
    """As many as there is time for."""
    words = argparse.ArgumentParser()
    words.add_argument("--seed", type=int, required=True)
    words.add_argument("--seconds", type=float, required=True)
    options = words.parse_args()
    run("mount", "-t", "tmpfs", "none", MOUNTS)
    run("mount", "-t", "cgroup2", "none", CGROUPS)
    run("mount", "-t", "debugfs", "none", "/sys/kernel/debug")
    put(CGROUPS / "cgroup.subtree_control", "+memory +cpu +io +pids")
    HOGS.mkdir(exist_ok=True)
    mount()
    umount()
    before = settle()
    mount()
    child(hog)
    order = stressors()
    random.Random(options.seed).shuffle(order)
    say(f"{len(order)} stressors")
    until = time.monotonic() + options.seconds
    ran = 0
    for number, name in enumerate(order):
        if time.monotonic() > until:
            break
        os.chdir(MOUNTS / FILESYSTEMS[number % 4])
        here = stress(name)
        ran += here
        say(f"{number} stress-ng --{name}{'' if here else ': not here'}")
        if number % 8 == 0:
            verified(FILESYSTEMS[number // 8 % 4], options.seed)
    os.chdir("/")
    left = end_cgroup(HOGS, PATIENCE)
    if left:
        finding(left)
    umount()
    audit(before, settle())
    print(f"@result actions={ran} compared=0 oom_kill={figures(Path('/proc/vmstat')).get('oom_kill', 0)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
