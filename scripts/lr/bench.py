# SPDX-License-Identifier: GPL-2.0-only
"""The verb `bench`: scenarios on several kernels in turn, compared in tables as the seeds print them."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

from lr import files, proc
from lr.lab import estimate, kernels, lockstep, nulltest, runner, sample, scenario, tables
from lr.layout import Layout, here
from lr.options import env, flag, number
from lr.ui import Fail, Progress, clock, say

_PAIRS, _PAIRS_QUICK = "3", "1"


def select(layout: Layout, names: str) -> list[scenario.Scenario]:
    """The scenarios named, or all."""
    known = scenario.load_all(layout)
    for name in names.split():
        if name not in known:
            raise Fail(f"SCENARIO={name}: no such scenario; there are {', '.join(known)}")
    return [known[name] for name in names.split() or known]


def variants(chosen: list[scenario.Scenario], names: str) -> tuple[str, ...]:
    """The variants named; one that no chosen scenario has is a mistake."""
    known = {variant.name for each in chosen for variant in each.variants}
    for name in names.split():
        if name not in known:
            raise Fail(f"VARIANT={name}: no such variant; there are {', '.join(sorted(known))}")
    return tuple(names.split())


def prepare(layout: Layout, chosen: list[scenario.Scenario]) -> None:
    """The packages that workloads use, and our own small programs."""
    packages = sorted({package for each in chosen for package in each.packages})
    if packages:
        proc.setup(layout.root, *packages)
    kernels.programs(layout, sorted({"mark", *(program for each in chosen for program in each.programs)}))


def main(argv: list[str]) -> int:
    """Measure and print the tables; 1 when a sample could not be taken."""
    words = argparse.ArgumentParser(prog="bench", description=__doc__)
    words.add_argument("--scenario", default=env("SCENARIO", ""), help="names in bench/scenarios; default all")
    words.add_argument("--kernels", default=env("KERNELS", "stock series"), help="default: stock series")
    words.add_argument("--quick", default=env("QUICK", "0"), help="1: few points, one pair, no test of significance")
    words.add_argument("--pairs", default=env("PAIRS", ""), help="samples of each kernel; default 3, quick 1")
    words.add_argument("--lockstep", default=env("LOCKSTEP", "1"), help="0: at full speed, vCPUs as the host lets them")
    words.add_argument("--quantum", default=env("QUANTUM", str(lockstep.QUANTUM)), help="instructions of a round")
    words.add_argument("--variant", default=env("VARIANT", ""), help="variants by name; default all, quick: a few")
    options = words.parse_args(argv)
    quick = flag("QUICK", options.quick)
    pairs = number("PAIRS", options.pairs or (_PAIRS_QUICK if quick else _PAIRS), 1, 100)
    quantum = number("QUANTUM", options.quantum, *lockstep.QUANTUM_RANGE)
    wanted = flag("LOCKSTEP", options.lockstep)
    layout = here()
    whole = Progress("bench")
    chosen, columns = select(layout, options.scenario), kernels.parse(options.kernels)
    asked = runner.Options(pairs, quick, variants=variants(chosen, options.variant))
    todo = runner.jobs(chosen, columns, asked)
    images = kernels.images(layout, columns)
    # After the kernels, which take minutes: what is compiled here must be what the samples' digests are made of.
    prepare(layout, chosen)
    if wanted:
        asked = replace(asked, lockstep=lockstep.prepare(layout, quantum))
    digests = {what: kernels.digest(image) for what, image in images.items()}
    left = runner.missing(layout, todo, digests, asked)
    folder = asked.folder(layout)
    known = sample.read_all(folder)
    costs = [estimate.cost(job, asked, known) for job in left]
    if left:
        say(estimate.report(left, costs, runner.at_once(asked)))
    failed = runner.run(layout, left, images, digests, asked, costs=[each.seconds for each in costs])
    labels = [column.label for column in columns]
    same = nulltest.twins(columns)
    null: list[tables.Comparison] = []
    for each in chosen:
        # The report, which reads build/bench only, shows the kernels in the order of the last run.
        if folder == layout.build / "bench":
            with files.whole(folder / each.name / "order.json") as part:
                part.write_text(json.dumps(labels) + "\n")
        found = [one for job in todo if job.scenario is each and (one := runner.kept(layout, job, digests, asked))]
        say(tables.render(each, found, labels))
        null += [one for one in tables.comparisons(each, found, labels) if one.kernel in same]
    say(f"bench: {len(todo) - len(failed)} of {len(todo)} samples, in {clock(whole.elapsed())}; raw in {folder}")
    for why in failed:
        say(f"FAILED {why}")
    verdict = nulltest.judge(null)
    if same:
        say(nulltest.render(verdict))
    # One pair cannot be tested, so a quick run of a kernel with itself has no verdict: that is no failure.
    return 1 if failed or verdict.ghosts else 0
