# SPDX-License-Identifier: GPL-2.0-only
"""Running scenarios: every kernel in turn, pair after pair; a sample that is kept already is not measured again."""

from __future__ import annotations

import hashlib
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lr import console, guest
from lr.guest import Disk, Spec
from lr.lab import sample as samples
from lr.lab.awake import awake
from lr.lab.kernels import Kernel
from lr.lab.sample import Sample
from lr.lab.scenario import Scenario, Variant, points_of
from lr.lab.slowmotion import Shares, check_share, session_processes, slow_motion, vcpu_threads
from lr.layout import Layout
from lr.ui import Fail, Progress, notice


@dataclass(frozen=True)
class Options:
    """What a run of the lab was asked for; share None means as the scenario says."""

    pairs: int
    quick: bool
    share: int | None = None
    # Names; empty: all, or in a quick run the quick ones.
    variants: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """One sample to take."""

    scenario: Scenario
    variant: Variant
    kernel: Kernel
    pair: int

    @property
    def label(self) -> str:
        """As the progress line shows it."""
        return f"{self.scenario.name} {self.variant.name}, {self.kernel.label}, pair {self.pair}"


def jobs(scenarios: Sequence[Scenario], kernels: Sequence[Kernel], options: Options) -> list[Job]:
    """In the order of running: kernels alternate, and a pair is complete before the next one begins.

    What checks the lab itself comes first.
    """
    found = []
    for scenario in sorted(scenarios, key=lambda each: not each.once):
        usual = (each for each in scenario.variants if not each.named and (each.quick or not options.quick))
        wanted = options.variants or tuple(each.name for each in usual)
        variants = [each for each in scenario.variants if each.name in wanted]
        if not variants and len(scenarios) == 1:
            names = " ".join(each.name for each in scenario.variants)
            raise Fail(f'SCENARIO={scenario.name}: its variants wait to be named; choose with VARIANT="{names}"')
        for each in variants:
            if not points_of(scenario, each, options.quick):
                why = (
                    "a quick run measures none of its points; leave QUICK=1 out" if options.quick else "it has no point"
                )
                raise Fail(f"{scenario.name}, VARIANT={each.name}: {why}")
        once = scenario.once and len(scenarios) > 1
        for pair in range(1, 2 if once else options.pairs + 1):
            columns = kernels[:1] if once else kernels
            found += [Job(scenario, variant, kernel, pair) for variant in variants for kernel in columns]
    return found


def seconds_each(scenario: Scenario, quick: bool) -> int:
    """How long a point is measured."""
    return scenario.quick_seconds if quick else scenario.seconds


def share_of(job: Job, options: Options) -> int:
    """What each vCPU gets of a host CPU while it is measured, in percent; 0: as much as there is."""
    return job.variant.machine.share if options.share is None else options.share


def digest(layout: Layout, job: Job, image_digest: str, options: Options) -> str:
    """What a sample depends on; one with another digest is measured again.

    Not the whole file of the scenario: another variant, or a word in a title, must not cost hours.
    """
    scenario, workloads = job.scenario, layout.root / "bench" / "workloads"
    whole = hashlib.sha256()
    files = sorted(workloads.glob("*.h")) + [workloads / f"{name}.c" for name in scenario.programs]
    files += [workloads / name for name in ("lib.sh", scenario.workload)]
    files.append(layout.root / "scripts" / "guest" / "lib.sh")
    for path in files:
        if path.exists():
            whole.update(path.read_bytes() + b"\0")
    # Samples of slow motion from before the host's CPUs were kept awake are of another kind.
    method = ("awake",) if share_of(job, options) else ()
    guest = (job.variant.machine, scenario.disks, scenario.packages, scenario.vmstat)
    told = tuple(metric.name for metric in scenario.metrics)
    words = (image_digest, command_of(job, options), repr(guest), repr(told), str(options.share), *method)
    whole.update("\0".join(words).encode())
    return whole.hexdigest()


def command_of(job: Job, options: Options) -> str:
    """What runs in the guest."""
    words = {
        **job.variant.env,
        "LRU_GEN": "1" if job.variant.lru_gen else "0",
        "QUICK": "1" if options.quick else "0",
        "SLOW": "1" if share_of(job, options) else "0",
        "SECONDS_EACH": str(seconds_each(job.scenario, options.quick)),
        "SETTINGS": " ".join(job.kernel.settings),
    }
    environment = [f"{name}={shlex.quote(value)}" for name, value in words.items()]
    points = points_of(job.scenario, job.variant, options.quick)
    return " ".join([*environment, "bash", f"bench/workloads/{job.scenario.workload}", *points])


class _Throttle:
    """Puts a guest into slow motion and out of it when it says so; keeps what went wrong for the main thread."""

    def __init__(self, shares: Shares | None, share: int, cpus: int) -> None:
        self.shares, self.share, self.cpus = shares, share, cpus
        self.session = 0
        self.problem: Fail | None = None
        self.applied = False

    def started(self, session: int) -> None:
        self.session = session

    def line(self, text: str) -> None:
        word = text.strip()
        if word not in ("@slow", "@fast") or self.shares is None or self.problem is not None:
            return
        try:
            if word == "@fast" or self.applied:
                self.shares.set(self.share if word == "@slow" else None)
                return
            self.applied = True
            pids = session_processes(self.session)
            threads = vcpu_threads(pids)
            if len(threads) != self.cpus:
                raise Fail(f"slow motion found {len(threads)} vCPU threads of {self.cpus}; is this QEMU too old?")
            self.shares.apply(pids, threads, self.share)
        except Fail as exc:
            self.problem = exc


def take(layout: Layout, job: Job, image: Path, options: Options, image_digest: str) -> Sample:
    """One sample: boot, run, read. Fails when the guest did, or printed nothing that the scenario wants."""
    machine = job.variant.machine
    share = share_of(job, options)
    spec = Spec(
        image,
        cpus=machine.cpus,
        mib=machine.mib,
        nodes=machine.nodes,
        disks=tuple(Disk(disk.name, disk.fs, disk.mib, disk.bps) for disk in job.scenario.disks),
        append=machine.append,
        timeout=job.scenario.timeout,
        qemu=("-name", "lab,debug-threads=on", *(("-icount", "shift=0,sleep=off") if machine.icount else ())),
    )
    remarks: list[str] = []
    with ExitStack() as stack:
        shares = None
        if share:
            shares = stack.enter_context(slow_motion(job.scenario.name))
            host, cpus = shares.host(), os.sched_getaffinity(0)
            check_share(machine.cpus, share, host)
            # Where a limit holds for all of us it would be used up; in v2 they would run in another cgroup than the
            # guest, and not last.
            if shares.version == "v1" and host >= 100 * len(cpus):
                stack.enter_context(awake(cpus))
            else:
                remarks.append("the host's CPUs were not kept awake: many vCPUs may do up to 7% more than they should")
        throttle = _Throttle(shares, share, machine.cpus)
        started = time.strftime("%Y-%m-%dT%H:%M:%S")
        boot = partial(guest.run, layout, spec, command_of(job, options), throttle.line, throttle.started)
        outcome = boot()
        if outcome.ended == "died" and not outcome.output:
            # Rarely QEMU goes away while the guest boots. Here that is no verdict on the kernel, as in a test.
            notice(f"{job.label}: {outcome.story(2)}\nonce more")
            outcome = boot()
    if throttle.problem is not None:
        raise throttle.problem
    if not outcome.ok:
        why = "the workload failed:" if outcome.ended == "exited" else outcome.story(5)
        tail = "\n  ".join(outcome.output.strip().splitlines()[-5:])
        raise Fail(f"{job.label}: {why}\n  {tail}")
    if share and not throttle.applied:
        raise Fail(f"{job.label}: the workload never said @slow, so it did not run in slow motion")
    points, notes = samples.read_points(outcome.output)
    wanted = set(points_of(job.scenario, job.variant, options.quick))
    missing = wanted - {point.x for point in points}
    if missing:
        raise Fail(f"{job.label}: no value came for {', '.join(sorted(missing))}")
    findings = tuple(f"console: {finding.kind}" for finding in console.scan(outcome.console, ()))
    return Sample(
        scenario=job.scenario.name,
        variant=job.variant.name,
        kernel=job.kernel.label,
        pair=job.pair,
        digest=digest(layout, job, image_digest, options),
        started=started,
        seconds=round(outcome.seconds, 1),
        points=points,
        notes=(*notes, *remarks, *findings),
        quick=options.quick,
        seconds_each=seconds_each(job.scenario, options.quick),
    )


def kept(layout: Layout, job: Job, digests: Mapping[str, str], options: Options) -> Sample | None:
    """This job's sample, if it has been taken already, of the same kernel and workload."""
    name = (job.scenario.name, job.variant.name, job.kernel.label, job.pair, options.quick)
    path = samples.path_of(layout.build / "bench", *name)
    if not path.exists():
        return None
    found = samples.read(path)
    return found if found.digest == digest(layout, job, digests[job.kernel.what], options) else None


def missing(layout: Layout, todo: Sequence[Job], digests: Mapping[str, str], options: Options) -> list[Job]:
    """The samples that are still to be taken."""
    left = [job for job in todo if kept(layout, job, digests, options) is None]
    if len(left) < len(todo):
        notice(f"{len(todo) - len(left)} of {len(todo)} samples are kept from an earlier run in build/bench")
    return left


def run(
    layout: Layout,
    todo: Sequence[Job],
    images: dict[str, Path],
    digests: dict[str, str],
    options: Options,
    one: Callable[[Layout, Job, Path, Options, str], Sample] = take,
    costs: Sequence[float] = (),
) -> list[str]:
    """Take these samples; returns what failed. One that fails does not stop the others.

    costs, the seconds that each sample may take, make the time left better known than their number does.
    """
    folder = layout.build / "bench"
    failed: list[str] = []
    costs = costs or [1.0] * len(todo)
    done = 0.0
    # In tenths of a second: the progress line counts whole numbers.
    with Progress("bench", int(sum(costs) * 10)) as progress:
        for job, price in zip(todo, costs, strict=True):
            progress.update(int(done * 10), job.label)
            try:
                samples.write(folder, one(layout, job, images[job.kernel.what], options, digests[job.kernel.what]))
            except Fail as exc:
                failed.append(str(exc))
                notice(str(exc))
            done += price
            progress.update(int(done * 10), job.label)
    return failed
