# SPDX-License-Identifier: GPL-2.0-only
"""Results of checks and tests: one Case each, counted, summed up in one line, and written as JUnit."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lr.files import whole
from lr.ui import clock, say

Status = Literal["passed", "failed", "skipped"]

# XML 1.0 has no way to write these, and a console log may hold them.
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Case:
    """One check or test; message says why it failed or was skipped, or what is to be known of one that passed."""

    suite: str
    name: str
    status: Status = "passed"
    message: str = ""
    seconds: float = 0.0
    # It failed among others, and passed by itself.
    unstable: bool = False


@dataclass(frozen=True)
class Counts:
    """How many passed (unstable ones, too), failed and were skipped; counts add up with +."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    unstable: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.passed + other.passed,
            self.failed + other.failed,
            self.skipped + other.skipped,
            self.unstable + other.unstable,
        )

    @property
    def status(self) -> int:
        """The exit status of a verb: 1 where something failed."""
        return 1 if self.failed else 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.passed + self.failed + self.skipped


def count(cases: Iterable[Case]) -> Counts:
    """Count cases by status."""
    listed = list(cases)
    found = [case.status for case in listed]
    unstable = sum(case.unstable for case in listed)
    return Counts(found.count("passed"), found.count("failed"), found.count("skipped"), unstable)


def summary_line(counts: Counts) -> str:
    """The closing line of a verb that tests."""
    unstable = f"; {counts.unstable} of the passed UNSTABLE" if counts.unstable else ""
    return f"{counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped{unstable}"


def without_result(cases: Sequence[Case], ours: Sequence[str], suites: Sequence[str]) -> list[Case]:
    """A failed case for each program or KUnit suite of ours that left no case on a machine on which all run.

    Where the guest itself has failed, that is the news.
    """
    broken = {case.suite for case in cases if case.name == "guest" and case.status == "failed"}
    # A program that passed without a case of its own has tested nothing.
    ran = {(case.suite, case.name.partition("/")[0]) for case in cases if "/" in case.name or case.status != "passed"}
    missing = (
        (suite, program) for suite in suites if suite not in broken for program in ours if (suite, program) not in ran
    )
    return [Case(suite, program, "failed", "did not run, or ran no case") for suite, program in missing]


def failures(cases: Sequence[Case], limit: int = 20) -> str:
    """The failed cases for a person: the name, and how the message begins and ends."""
    lines: list[str] = []
    failed = [case for case in cases if case.status == "failed"]
    for case in failed[:limit]:
        lines.append(f"FAILED {case.suite}: {case.name}")
        said = case.message.splitlines()
        if len(said) > 17:
            said = [*said[:8], f"[{len(said) - 16} lines]", *said[-8:]]
        lines += [f"    {line}" for line in said]
    if len(failed) > limit:
        lines.append(f"... and {len(failed) - limit} more; all are in build/results")
    return "\n".join(lines)


def conclude(cases: Sequence[Case], seconds: float) -> Counts:
    """The end of a verb that tests: what failed, and the closing line."""
    if failures(cases):
        say(failures(cases))
    counts = count(cases)
    say(f"{summary_line(counts)} ({clock(seconds)})")
    return counts


def write_junit(path: Path, cases: Iterable[Case]) -> None:
    """Write the cases as JUnit XML, one testsuite element a suite in order of appearance."""
    suites: dict[str, list[Case]] = {}
    for case in cases:
        suites.setdefault(case.suite, []).append(case)
    root = ET.Element("testsuites")
    for name, members in suites.items():
        counts = count(members)
        suite = ET.SubElement(
            root,
            "testsuite",
            name=_clean(name),
            tests=str(counts.total),
            failures=str(counts.failed),
            errors="0",
            skipped=str(counts.skipped),
            time=f"{sum(case.seconds for case in members):.3f}",
        )
        for case in members:
            node = ET.SubElement(
                suite, "testcase", classname=_clean(name), name=_clean(case.name), time=f"{case.seconds:.3f}"
            )
            if case.status == "passed" and case.message:
                ET.SubElement(node, "system-out").text = _clean(case.message)
            elif case.status != "passed":
                lines = _clean(case.message).splitlines()
                tag = "failure" if case.status == "failed" else "skipped"
                ET.SubElement(node, tag, message=lines[0] if lines else "").text = "\n".join(lines)
    ET.indent(root)
    with whole(path) as part:
        ET.ElementTree(root).write(part, encoding="utf-8", xml_declaration=True)


def _clean(text: str) -> str:
    return _NOT_XML.sub("?", text)
