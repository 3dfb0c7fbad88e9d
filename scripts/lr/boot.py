# SPDX-License-Identifier: GPL-2.0-only
"""The verb `boot`: a shell, or one command, in a kernel of ours under virtme-ng."""

from __future__ import annotations

import argparse
import sys

from lr import build, guest
from lr.guest import Disk, Outcome, Spec
from lr.layout import Layout, here
from lr.options import KERNELS, checks, choice, env, number, size_mib
from lr.ui import Fail, clock, notice, say

# In the guest: where a scratch disk is mounted.
MOUNT = "/mnt"


def parser() -> argparse.ArgumentParser:
    """The options; each has the environment's variable of the same name as its default."""
    words = argparse.ArgumentParser(prog="boot", description=__doc__)
    words.add_argument("--kernel", default=env("KERNEL", "series"), help="series (ours) or stock; default series")
    words.add_argument("--debug", default=env("DEBUG", "0"), help="1, races: the debug build of it")
    words.add_argument("--cpus", default=env("CPUS", "4"), help="default 4")
    words.add_argument("--mem", default=env("MEM", "2G"), help="default 2G")
    words.add_argument("--nodes", default=env("NODES", "2"), help="NUMA nodes, default 2")
    words.add_argument("--disk", default=env("DISK", ""), help="fs:size, a scratch disk mounted at /mnt, e.g. xfs:1G")
    words.add_argument("--run", default=env("RUN", ""), help="a command instead of the shell; its status is passed on")
    words.add_argument("--timeout", default=env("TIMEOUT", "600"), help="seconds a command may take, default 600")
    return words


def spec_of(options: argparse.Namespace, layout: Layout) -> Spec:
    """The guest that the options ask for; a wrong option is a Fail."""
    kernel = choice("KERNEL", options.kernel, KERNELS)
    cpus = number("CPUS", options.cpus, 1, 64)
    nodes = number("NODES", options.nodes, 1, 8)
    mib = size_mib("MEM", options.mem, 256)
    if mib // nodes < 128:
        raise Fail(f"MEM={options.mem} NODES={nodes}: each node needs 128M at least; raise MEM or lower NODES")
    disks: tuple[Disk, ...] = (guest.parse_disk(options.disk),) if options.disk else ()
    timeout = number("TIMEOUT", options.timeout, 1, 86400)
    image = build.target(layout, kernel, checks(options.debug)).image
    return Spec(image, cpus=cpus, mib=mib, nodes=nodes, disks=disks, timeout=timeout)


def command_of(spec: Spec, wanted: str) -> str:
    """What runs in the guest: the command, after the scratch disk is mounted; a blank one has nothing to mount."""
    prepare = ". scripts/guest/lib.sh && " if spec.disks else ""
    prepare += "".join(f"mount_scratch {disk.name} {MOUNT} && " for disk in spec.disks if disk.fs != "blank")
    return f"{prepare}{{ {wanted}\n}}"


def main(argv: list[str]) -> int:
    """Boot; the status of RUN, or 1 for a panic or a hang."""
    options = parser().parse_args(argv)
    layout = here()
    spec = spec_of(options, layout)
    if not options.run and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Fail("boot: no terminal here for a shell; give a command, as in `make boot RUN='uname -r'`")
    build.ensure(layout, options.kernel, checks(options.debug))
    if options.run:
        return report(guest.run(layout, spec, command_of(spec, options.run), on_output=say))
    notice("leave the guest with `exit`; Ctrl-A X ends it at once")
    return report(guest.interact(layout, spec))


def report(outcome: Outcome) -> int:
    """Say how it ended where that is not a plain exit; the status to leave with."""
    if outcome.ended != "exited":
        raise Fail(outcome.story())
    notice(f"the command ended with status {outcome.status} after {clock(outcome.seconds)}")
    return outcome.status
