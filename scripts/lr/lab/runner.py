# SPDX-License-Identifier: GPL-2.0-only
"""Running scenarios: every kernel in turn, pair after pair; a sample that is kept already is not measured again."""

from __future__ import annotations

import hashlib
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from lr import console, guest, proc
from lr.files import whole
from lr.guest import Disk, Spec
from lr.lab import lockstep as locksteps
from lr.lab import qemu
from lr.lab import sample as samples
from lr.lab.kernels import COMPILE, Kernel, system_map
from lr.lab.lockstep import Lockstep
from lr.lab.sample import Point, Sample
from lr.lab.scenario import Bar, Scenario, Variant, points_of
from lr.layout import Layout
from lr.ui import Fail, Progress, notice

# How guests are booted, by the module that we have loaded: it may be edited while we run.
_BOOTING = hashlib.sha256(Path(guest.__file__).read_bytes()).hexdigest()


@dataclass(frozen=True)
class Options:
    """What a run of the lab was asked for; lockstep None: at full speed, where vCPUs take turns on the host's CPUs."""

    pairs: int
    quick: bool
    lockstep: Lockstep | None = None
    # Names; empty: all, or in a quick run the quick ones.
    variants: tuple[str, ...] = ()

    def folder(self, layout: Layout) -> Path:
        """Where samples lie; the report shows those in build/bench, which are of the usual rounds."""
        if not self.lockstep:
            return layout.build / "bench-full-speed"
        quantum = self.lockstep.quantum
        return layout.build / ("bench" if quantum == locksteps.QUANTUM else f"bench-quantum-{quantum}")


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
                why = "a quick run measures none of its points; say QUICK=0" if options.quick else "it has no point"
                raise Fail(f"{scenario.name}, VARIANT={each.name}: {why}")
        once = scenario.once and len(scenarios) > 1
        for pair in range(1, 2 if once else options.pairs + 1):
            columns = kernels[:1] if once else kernels
            found += [Job(scenario, variant, kernel, pair) for variant in variants for kernel in columns]
    return found


def seconds_each(scenario: Scenario, quick: bool) -> int:
    """How long a point is measured."""
    return scenario.quick_seconds if quick else scenario.seconds


def lockstep_of(job: Job, options: Options) -> Lockstep | None:
    """What the job's guest runs in; none where the guest's clock counts instructions."""
    return None if job.variant.machine.icount else options.lockstep


def digest(layout: Layout, job: Job, image_digest: str, options: Options) -> str:
    """What a sample depends on; one with another digest is measured again.

    Not the whole file of the scenario: another variant, a word in a title, or what only tables are made with (metrics,
    vmstat) must not cost hours.
    """
    scenario, workloads = job.scenario, layout.root / "bench" / "workloads"
    whole = hashlib.sha256()
    files = sorted(workloads.glob("*.h")) + [workloads / f"{name}.c" for name in ("mark", *scenario.programs)]
    files += [workloads / name for name in ("lib.sh", scenario.workload)]
    files.append(layout.root / "scripts" / "guest" / "lib.sh")
    for path in files:
        if path.exists():
            whole.update(path.read_bytes() + b"\0")
    method = lockstep_of(job, options)
    words = [image_digest, command_of(job, options)]
    words.append(repr((job.variant.machine, scenario.disks, scenario.packages)))
    words += [_BOOTING, *COMPILE, versions(scenario.packages)]
    if method:
        words += [method.identity, *locksteps.KERNEL_OPTIONS]
    elif not options.lockstep:
        words += at_full_speed()
    whole.update("\0".join(words).encode())
    return whole.hexdigest()


@cache
def versions(packages: tuple[str, ...]) -> str:
    """The installed versions of these packages; empty where they are not Debian's."""
    if not packages or not shutil.which("dpkg-query"):
        return ""
    return proc.run(["dpkg-query", "-W", *packages], check=False).stdout.decode()


@cache
def at_full_speed() -> tuple[str, ...]:
    """What a sample depends on besides where guests run without lockstep: QEMU, KVM or not, the host's CPU."""
    kvm = guest.kvm_usable(Path("/proc/cpuinfo").read_text())
    found = qemu.system()
    return (found.version if found else "", "KVM" if kvm else "TCG", locksteps.host_cpu())


def command_of(job: Job, options: Options) -> str:
    """What runs in the guest."""
    words = {
        **job.variant.env,
        "LRU_GEN": "1" if job.variant.lru_gen else "0",
        "QUICK": "1" if options.quick else "0",
        "LOCKSTEP": "1" if lockstep_of(job, options) else "0",
        "SECONDS_EACH": str(seconds_each(job.scenario, options.quick)),
        "SETTINGS": " ".join(job.kernel.settings),
    }
    environment = [f"{name}={shlex.quote(value)}" for name, value in words.items()]
    points = points_of(job.scenario, job.variant, options.quick)
    return " ".join([*environment, "bash", f"bench/workloads/{job.scenario.workload}", *points])


def boot(
    layout: Layout, job: Job, image: Path, options: Options, out: Path, profile: bool = False
) -> tuple[guest.Outcome, list[locksteps.Window]]:
    """Run the workload in a guest. Fails when the workload did.

    What lockstep measured goes to the file `out`, the console beside it.
    """
    machine = job.variant.machine
    method = lockstep_of(job, options)
    words: tuple[str, ...] = ("-icount", "shift=0,sleep=off") if machine.icount else ()
    if machine.dma32_mib:
        words = (*words, "-machine", f"max-ram-below-4g={machine.dma32_mib}M")
    # Another lab may be taking the same sample: the plugin writes to a file of this one's own.
    with whole(out) as part:
        part.touch()
        if method:
            words = (*words, *method.options(machine.us, system_map(image), part, profile))
        spec = Spec(
            image,
            cpus=machine.cpus,
            mib=machine.mib,
            nodes=machine.nodes,
            disks=tuple(Disk(disk.name, disk.fs, disk.mib, disk.bps) for disk in job.scenario.disks),
            append=(*machine.append, *(locksteps.KERNEL_OPTIONS if method else ())),
            timeout=job.scenario.timeout,
            qemu=words,
            emulator=method.emulator.program if method else None,
            environment=method.environment if method else (),
        )
        outcome = guest.run(layout, spec, command_of(job, options))
        out.with_suffix(".console").write_text(outcome.console)
        if not outcome.ok:
            why = "the workload failed:" if outcome.ended == "exited" else outcome.story(5)
            tail = "\n  ".join(outcome.output.strip().splitlines()[-5:])
            raise Fail(f"{job.label}: {why}\n  {tail}")
        return outcome, locksteps.read(part.read_text())


def take(layout: Layout, job: Job, image: Path, options: Options, wanted: str) -> Sample:
    """One sample, of digest `wanted`: boot, run, read. Fails when the guest did, or told nothing of a point."""
    name = (job.scenario.name, job.variant.name, job.kernel.label, job.pair, options.quick)
    path = samples.path_of(options.folder(layout), *name)
    started = time.strftime("%Y-%m-%dT%H:%M:%S")
    outcome, windows = boot(layout, job, image, options, path.with_suffix(".lockstep"))
    points, notes = samples.read_points(outcome.output)
    if lockstep_of(job, options):
        try:
            measured = locksteps.by_point(outcome.output, windows)
        except Fail as exc:
            raise Fail(f"{job.label}: {exc}") from exc
        points = tuple(replace(point, values={**point.values, **_measured(measured, point.x)}) for point in points)
    asked = set(points_of(job.scenario, job.variant, options.quick))
    missing = asked - {point.x for point in points}
    if missing:
        raise Fail(f"{job.label}: no value came for {', '.join(sorted(missing))}")
    try:
        for bar in job.scenario.bars if lockstep_of(job, options) else ():
            check(bar, [samples.derived(job.scenario.metrics, point) for point in points])
    except Fail as exc:
        raise Fail(f"{job.label}: {exc}") from exc
    findings = tuple(f"console: {finding.kind}" for finding in console.scan(outcome.console, ()))
    return Sample(
        scenario=job.scenario.name,
        variant=job.variant.name,
        kernel=job.kernel.label,
        pair=job.pair,
        digest=wanted,
        started=started,
        seconds=round(outcome.seconds, 1),
        points=points,
        notes=(*notes, *findings),
        quick=options.quick,
        seconds_each=seconds_each(job.scenario, options.quick),
        conditions=digest(layout, replace(job, kernel=Kernel("", "")), "", options),
    )


def check(bar: Bar, points: Sequence[Point]) -> None:
    """Fail if a sample misses a bar of its scenario."""
    found = {point.x: point.values[bar.metric] for point in points if bar.metric in point.values}
    if bar.x not in found or not found.get(bar.base):
        raise Fail(f"{bar.metric} of {bar.x} and {bar.base} was not measured")
    ratio = found[bar.x] / found[bar.base]
    if not bar.low <= ratio <= bar.high:
        raise Fail(
            f"{bar.metric} of {bar.x} is {ratio:.3f} times that of {bar.base}; {bar.low} to {bar.high} is expected: "
            "lockstep does not hold here, and no sample of this machine means anything"
        )


def _measured(found: Mapping[tuple[str, str], Sequence[locksteps.Window]], x: str) -> dict[str, float]:
    """What lockstep measured at a point, under each of the names that the workload gave."""
    return {
        name: value
        for (point, what), windows in found.items()
        if point == x
        for name, value in locksteps.values(windows, what).items()
    }


def kept(layout: Layout, job: Job, digests: Mapping[str, str], options: Options) -> Sample | None:
    """This job's sample, if it has been taken already, of the same kernel and workload, and can be read."""
    name = (job.scenario.name, job.variant.name, job.kernel.label, job.pair, options.quick)
    path = samples.path_of(options.folder(layout), *name)
    if not path.exists():
        return None
    try:
        found = samples.read(path)
    except Fail:
        return None
    return found if found.digest == digest(layout, job, digests[job.kernel.what], options) else None


def missing(layout: Layout, todo: Sequence[Job], digests: Mapping[str, str], options: Options) -> list[Job]:
    """The samples that are still to be taken."""
    left = [job for job in todo if kept(layout, job, digests, options) is None]
    if len(left) < len(todo):
        where = options.folder(layout)
        notice(f"{len(todo) - len(left)} of {len(todo)} samples are kept from an earlier run in {where}")
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

    In lockstep two guests run at once: but for requests to disks, what they measure does not depend on what the host
    does beside them.
    costs, the seconds that each sample may take, make the time left better known than their number does.
    """
    failed: list[str] = []
    # As things are now, with the workloads' programs just compiled: a guest reads the scripts while it runs.
    wanted = [digest(layout, job, digests[job.kernel.what], options) for job in todo]

    def unchanged(job: Job, before: str) -> None:
        if digest(layout, job, digests[job.kernel.what], options) != before:
            raise Fail(f"{job.label}: files that it depends on were edited since the run began; run it again")

    def attempt(job: Job, before: str) -> None:
        try:
            unchanged(job, before)
            sample = one(layout, job, images[job.kernel.what], options, before)
            unchanged(job, before)
            samples.write(options.folder(layout), sample)
        except Exception as exc:
            # Whatever it is, it must not cost the other samples.
            failed.append(str(exc) if isinstance(exc, Fail) else f"{job.label}: {exc!r}")
            notice(failed[-1])

    costs = costs or [1.0] * len(todo)
    done = 0.0
    # In tenths of a second: the progress line counts whole numbers.
    with Progress("bench", int(sum(costs) * 10)) as progress, guest.several(at_once(options)) as pool:
        ends = [pool.submit(attempt, job, before) for job, before in zip(todo, wanted, strict=True)]
        for job, price, end in zip(todo, costs, ends, strict=True):
            progress.update(int(done * 10), job.label)
            end.result()
            done += price
            progress.update(int(done * 10), job.label)
    return failed


def at_once(options: Options) -> int:
    """How many guests run at the same time: at full speed one would slow the other down."""
    return guest.AT_ONCE if options.lockstep else 1
