# SPDX-License-Identifier: GPL-2.0-only
"""How long a run of the lab will take: from what earlier boots took, or from what the scenario's file says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from lr.lab.runner import Job, Options, seconds_each
from lr.lab.sample import Sample
from lr.lab.scenario import points_of
from lr.ui import clock

# From the start of QEMU to the first point, and from the last one to the guest's end, of a guest that nobody measured.
_BOOT = 20.0


@dataclass(frozen=True)
class Cost:
    """Seconds that one boot is expected to take; recorded: by boots of the same variant before."""

    seconds: float
    recorded: bool


def cost(job: Job, options: Options, samples: Iterable[Sample]) -> Cost:
    """One boot: what earlier ones with the same points took, of any kernel, since the kernels hardly differ."""
    points = points_of(job.scenario, job.variant, options.quick)
    each = seconds_each(job.scenario, options.quick)
    same = (job.scenario.name, job.variant.name, each, set(points))
    taken = [
        sample.seconds
        for sample in samples
        if (sample.scenario, sample.variant, sample.seconds_each, {point.x for point in sample.points}) == same
    ]
    if taken:
        return Cost(median(taken), True)
    return Cost(_BOOT + len(points) * (each + job.scenario.beside), False)


def total(costs: Iterable[Cost]) -> float:
    """The seconds of all of them, one after another."""
    return sum(each.seconds for each in costs)


def report(todo: Sequence[Job], costs: Sequence[Cost], at_once: int = 1) -> str:
    """What is going to be run, so many guests at once, and how long that takes, a line a scenario."""
    lines = []
    for name in dict.fromkeys(job.scenario.name for job in todo):
        own = [(job, each) for job, each in zip(todo, costs, strict=True) if job.scenario.name == name]
        variants = len({job.variant.name for job, _ in own})
        words = f"{_some(len(own), 'boot')} of {_some(variants, 'variant')}"
        lines.append(f"  {name:<16} {clock(total(each for _, each in own) / min(at_once, len(own))):>9}  {words}")
    recorded = sum(each.recorded for each in costs)
    known = f"{recorded} as earlier ones took, {len(costs) - recorded} by the scenario's seconds"
    whole = clock(total(costs) / min(at_once, len(todo)))
    return "\n".join([f"about {whole} for {_some(len(costs), 'boot')}, {known}:", *lines])


def _some(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
