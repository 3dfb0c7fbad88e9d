# SPDX-License-Identifier: GPL-2.0-only
"""The verb `soak`: hours of storm on several kernels, in guests of ten minutes that each follow from a seed.

What a guest did and found is kept in build/soak/, so that a run that was interrupted goes on. soak/ has what runs in
the guests.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lr import ablate, build, compose, console, guest, proc, state
from lr.files import whole
from lr.guest import Disk, Outcome, Spec
from lr.layout import Layout, here
from lr.options import KERNELS, checks, choice, env, number
from lr.results import Case, count, summary_line, write_junit
from lr.selftest import Cell
from lr.ui import Fail, Progress, clock, grid, say

PARTS = {
    "storm": "knobs, CPUs, nodes, cgroups, swap, freezer beside hogs and kept files",
    "faults": "the same beside allocations that fail and disks that stop or fail (DEBUG=1 only)",
    "others": "stress-ng's stressors and fio, which verify what they do, beside a hog",
}
# Of a guest. What is slow after it, comparing and looking for leaks, comes on top.
_SECONDS = 600
_AFTERWARDS = 1800
# Files and hogs must not fit; the slow checks take memory for themselves.
_MIB = {"": 640, "debug": 1152, "races": 896}
_FINDING = re.compile(r"@finding (.*)$", re.MULTILINE)
_RESULT = re.compile(r"^@result (.*)$", re.MULTILINE)
# What only a soak has to read in a console: counters below zero, a kmemleak that has given up.
_COMPLAINTS = re.compile(r"vmstat_refresh: .* -\d|Memory leak detector disabled")


@dataclass(frozen=True)
class Job:
    """One guest to run."""

    part: str
    kernel: str
    debug: str
    seed: int
    seconds: int

    @property
    def column(self) -> str:
        """The kernel as the table names it."""
        return f"{self.kernel}-{self.debug}" if self.debug else self.kernel

    @property
    def cell(self) -> Cell:
        """The machine: it follows from the seed, so that the seed is all one needs to repeat it."""
        two = self.seed // 2 % 2 == 1
        return Cell(lru_gen=self.seed % 2 == 1, nodes=1 + two, module=two)

    @property
    def again(self) -> str:
        """The command that repeats it."""
        debug = {"": "0", "debug": "1"}.get(self.debug, self.debug)
        # Not a second less: what was found late must come again.
        hours = f"HOURS={math.ceil(self.seconds / 3.6) / 1000:.3f}"
        return f"make soak PART={self.part} KERNELS={self.kernel} DEBUG={debug} SEED={self.seed} {hours}"


@dataclass(frozen=True)
class Kept:
    """What one guest did and found."""

    part: str
    kernel: str
    seed: int
    seconds: float
    figures: dict[str, int]
    findings: list[str]
    again: str


def hours(text: str) -> float:
    """HOURS as a number; minutes are hundredths."""
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3})?", text) or not 0.02 <= float(text) <= 100:
        raise Fail(f"HOURS={text}: give hours from 0.02 to 100, such as 0.5")
    return float(text)


def jobs(parts: Sequence[str], kernels: Sequence[str], debugs: Sequence[str], long: float, seed: int) -> list[Job]:
    """Guests of ten minutes that make up so many hours of each part on each kernel; kernels take turns."""
    if "faults" in parts and "debug" not in debugs:
        raise Fail("PART=faults needs a kernel in which things can fail: DEBUG=1, or several, one of them 1")
    seconds = round(long * 3600)
    count = max(1, round(seconds / _SECONDS))
    found: list[Job] = []
    for index in range(count):
        for part in parts:
            for debug in debugs:
                if part == "faults" and debug != "debug":
                    continue
                found += [Job(part, kernel, debug, seed + index, seconds // count) for kernel in kernels]
    if not found:
        raise Fail("nothing to soak: PART=, KERNELS= or DEBUG= holds only blanks")
    return found


def judge(outcome: Outcome, allowed: Sequence[str] = ()) -> list[str]:
    """What must not be: what the guest's program found, how the guest ended, and what its console says."""
    found = [line.strip() for line in _FINDING.findall(outcome.output)]
    told = [f"console: {one.kind}: {one.report}" for one in console.scan(outcome.console, allowed)]
    told += [f"console: {line.strip()}" for line in outcome.console.splitlines() if _COMPLAINTS.search(line)]
    if outcome.ended != "exited" or outcome.status:
        # The console's last lines only where the console says nothing else.
        found.append(f"the guest: {outcome.ended}" if told else outcome.story(6).replace("\n", " / "))
    elif not _RESULT.search(outcome.output):
        found.append("the storm ended without a result")
    elif not figures(outcome.output).get("actions"):
        found.append("the storm did nothing")
    return found + told


def figures(output: str) -> dict[str, int]:
    """The name=value words of the result."""
    match = _RESULT.search(output)
    return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", match[1])} if match else {}


def shape(finding: str) -> str:
    """A finding without what differs each time, to tell whether stock has it too. Lost data is its own each time.

    What hangs is named by the task alone in its first line: where it hangs tells one from another.
    """
    if finding.startswith("lost:"):
        return finding
    line = re.sub(r"\[ *\d+\.\d+\] ", "", finding.splitlines()[0])
    where = re.findall(r"\]  (\w[\w.]*)\+0x", finding)[:8] if finding.startswith("console: hung task") else []
    return " ".join([re.sub(r"0x[0-9a-f]+|\d+", "N", line)[:400], *where])


def table(kept: Sequence[Kept]) -> list[tuple[str, ...]]:
    """A row for each part and kernel."""
    rows: list[tuple[str, ...]] = [("part", "kernel", "time", "actions", "files compared", "OOM kills", "findings")]
    groups: dict[tuple[str, str], list[Kept]] = {}
    for one in kept:
        groups.setdefault((one.part, one.kernel), []).append(one)
    for (part, kernel), members in groups.items():
        sums = [str(sum(one.figures.get(name, 0) for one in members)) for name in ("actions", "compared", "oom_kill")]
        findings = sum(len(one.findings) for one in members)
        rows.append((part, kernel, clock(sum(one.seconds for one in members)), *sums, str(findings)))
    return rows


def run_job(layout: Layout, job: Job, image: Path) -> Kept:
    """The guest, or what is kept of it."""
    folder = layout.build / "soak"
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(image.read_bytes())
    judges = [Path(__file__).parent / name for name in ("soak.py", "console.py", "guest.py", "selftest.py")]
    for source in (*sorted((layout.root / "soak").glob("*.py")), *judges):
        digest.update(source.read_bytes())
    stem = folder / f"{job.part}-{job.column.replace(':', '-')}-{job.seed}-{job.seconds}-{digest.hexdigest()[:12]}"
    file = stem.with_suffix(".json")
    # One that has found something is run again: that is what its command is for.
    if file.exists() and not json.loads(file.read_text())["findings"]:
        return Kept(**json.loads(file.read_text()))
    disks = [Disk(fs, fs, 512) for fs in ("ext4", "xfs", "btrfs", "f2fs")]
    spec = Spec(
        image,
        mib=_MIB[job.debug],
        nodes=job.cell.nodes,
        disks=(*disks, Disk("victim", "blank", 400)),
        append=(*job.cell.append, "sysctl.kernel.hung_task_timeout_secs=120"),
        qemu=job.cell.qemu,
        timeout=job.seconds + _AFTERWARDS,
    )
    allowed = (console.race_of_others(layout),) if job.debug == "races" else ()
    program = "others.py" if job.part == "others" else "storm.py"
    lru = f"echo {int(job.cell.lru_gen)} >/sys/kernel/mm/lru_gen/enabled"
    command = f"{lru}; python3 -B soak/{program} --seed {job.seed} --seconds {job.seconds}"
    with Progress(f"{job.part} on {job.column}, seed {job.seed}, {job.cell.name}", job.seconds) as progress:

        def on_output(line: str) -> None:
            stamp = re.match(r"\[ *(\d+)", line)
            progress.update(min(int(stamp[1]), job.seconds) if stamp else None)
            if line.startswith("@finding"):
                say(line)

        outcome = guest.run(layout, spec, f"{command} {'--faults' if job.part == 'faults' else ''}", on_output)
    stem.with_suffix(".log").write_text(outcome.output)
    stem.with_suffix(".console").write_text(outcome.console)
    findings = judge(outcome, allowed)
    kept = Kept(job.part, job.column, job.seed, outcome.seconds, figures(outcome.output), findings, job.again)
    with whole(file) as part:
        part.write_text(json.dumps(asdict(kept), indent=1) + "\n")
    return kept


def _missing(finding: str) -> int:
    """MiB that a finding says are missing, or 0."""
    match = re.match(r"(\d+) MiB of memory are missing", finding)
    return int(match[1]) if match else 0


def judged(kept: Sequence[Kept]) -> list[Case]:
    """A case a guest: failed when the series has a finding that stock has not, or more memory is missing."""
    of_stock = [finding for one in kept if one.kernel.startswith("stock") for finding in one.findings]
    stocks = {shape(finding) for finding in of_stock}
    most = max(map(_missing, of_stock), default=0)
    cases: list[Case] = []
    for one in kept:
        ours = [each for each in one.findings if shape(each) not in stocks or _missing(each) > most]
        if one.kernel.startswith("stock"):
            ours = []
        told = [finding if finding in ours else f"of stock, too: {finding}" for finding in one.findings]
        told += [f"again with `{one.again}`"] if told else []
        suite, name = f"soak {one.part} {one.kernel}", f"seed {one.seed}"
        cases.append(Case(suite, name, "failed" if ours else "passed", "\n".join(told), one.seconds))
    return cases


def report(layout: Layout, kept: Sequence[Kept]) -> int:
    """Table, findings, JUnit, closing line; 1 when something of ours was found."""
    say(grid(table(kept), 7))
    cases = judged(kept)
    for case in cases:
        if case.message:
            say(f"\n{case.suite}, {case.name}: {case.status}")
            for line in case.message.splitlines()[:60]:
                say(f"  {line[:1000]}")
    write_junit(layout.build / "results" / "soak.xml", cases)
    say(summary_line(count(cases)))
    return 1 if count(cases).failed else 0


def bugs(layout: Layout, only: str, seconds: int, seed: int) -> int:
    """Put each bug of soak/bugs/ into the series; the storm must find it."""
    paths = [path for path in layout.bugs if only in ("1", path.stem)]
    if not paths:
        raise Fail(f"BUGS={only}: no such file in soak/bugs/; 1 means all")
    say(f"soak: {len(paths)} bugs, a guest of {clock(seconds)} each")
    missed = 0
    for path in paths:
        pattern = re.search(r"^Found-as: (.*)$", path.read_text(), re.MULTILINE)
        if pattern is None:
            raise Fail(f"{path.name}: no `Found-as: REGEX` line; say what the storm must find")
        with state.locked(layout, "ablate"):
            image = ablate.image(layout, ablate.Ablation(path, path.stem, ()))
            kept = run_job(layout, Job("storm", f"bug:{path.stem}", "", seed, seconds), image)
        told = [finding for finding in kept.findings if re.search(pattern[1], finding)]
        say(f"{path.stem}: " + (f"found: {told[0][:300]}" if told else f"NOT found among {kept.findings}"))
        missed += not told
    say(f"{len(paths) - missed} passed, {missed} failed")
    return 1 if missed else 0


def main(argv: list[str]) -> int:
    """Soak; 1 when something of ours was found."""
    words = argparse.ArgumentParser(prog="soak", description=__doc__)
    words.add_argument("--hours", default=env("HOURS", "1"), help="of each part on each kernel; default 1")
    words.add_argument("--kernels", default=env("KERNELS", ""), help="default series; also stock, beside it")
    words.add_argument("--part", default=env("PART", ""), help="; ".join(f"{a}: {b}" for a, b in PARTS.items()))
    words.add_argument("--debug", default=env("DEBUG", ""), help="0, 1, races, or several of them; default 0")
    words.add_argument("--seed", default=env("SEED", "1"), help="the first guest's; the next ones count up; default 1")
    words.add_argument("--bugs", default=env("BUGS", ""), help="1, or a file of soak/bugs: the storm must find it")
    options = words.parse_args(argv)
    long = hours(options.hours)
    seed = number("SEED", options.seed, 0, 999999999)
    if options.bugs and (options.kernels or options.part or options.debug):
        raise Fail("BUGS= is always the storm on the plain series; leave out KERNELS=, PART= and DEBUG=")
    wanted = jobs(
        [choice("PART", part, tuple(PARTS)) for part in (options.part or "storm").split()],
        [choice("KERNELS", kernel, KERNELS) for kernel in (options.kernels or "series").split()],
        [checks(debug) for debug in (options.debug or "0").split()],
        long,
        seed,
    )
    layout = here()
    proc.setup(layout.root, "stress-ng", "fio", "dmsetup")
    if options.bugs:
        compose.ensure_tree(layout)
        return bugs(layout, options.bugs, min(round(long * 3600), _SECONDS), seed)
    images: dict[tuple[str, str], Path] = {}
    for kernel, debug in dict.fromkeys((job.kernel, job.debug) for job in wanted):
        image = build.ensure(layout, kernel, debug).image
        images[kernel, debug] = build.keep(image, layout.build / "soak" / "kernels", f"{kernel}-{debug or 'plain'}")
    whole = Progress("soak", len(wanted), every=0)
    say(f"soak: {len(wanted)} guests, about {clock(sum(job.seconds for job in wanted) * 1.4)}")
    kept = []
    for index, job in enumerate(wanted, start=1):
        kept.append(run_job(layout, job, images[(job.kernel, job.debug)]))
        whole.update(index)
    return report(layout, kept)
