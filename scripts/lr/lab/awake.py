# SPDX-License-Identifier: GPL-2.0-only
"""Keeps the host's CPUs from falling asleep between a slow guest's turns."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from lr import stop
from lr.ui import Fail


@contextmanager
def awake(cpus: Iterable[int]) -> Iterator[None]:
    """On each of these CPUs something runs when nothing else wants to.

    A CPU that falls asleep in each period of slow motion is slower when it wakes up. Few busy vCPUs leave more time to
    sleep than many, so that many would do up to 7% more than they should. Fails if they were not kept awake throughout.
    """
    burners: list[subprocess.Popen[bytes]] = []
    try:
        for cpu in cpus:
            # No signal may come before `finally` can end it.
            with stop.held():
                burners.append(_burner(cpu))
        yield
        if any(each.poll() is not None for each in burners):
            raise Fail("the host's CPUs could not be kept awake: chrt or taskset was refused; run with SHARE=0")
    finally:
        for each in burners:
            each.kill()
            each.wait()


def _burner(cpu: int) -> subprocess.Popen[bytes]:
    # It must not outlive us, however we end.
    words = ["setpriv", "--pdeathsig", "KILL", "chrt", "--idle", "0", "taskset", "-c", str(cpu)]
    try:
        return subprocess.Popen([*words, "sh", "-c", "while :; do :; done"], stdin=subprocess.DEVNULL)
    except FileNotFoundError as exc:
        raise Fail(f"{words[0]}: not found; it comes with Debian's util-linux") from exc
