# SPDX-License-Identifier: GPL-2.0-only
"""Read KTAP, nested or not, as kselftest_harness.h, run_vmtests.sh and KUnit print it: one Case a leaf."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from lr.results import Case, Status

# Nesting is written as indentation (KUnit) or as "# " before each line (kselftest's runners).
_LEVEL = re.compile(
    r"(?:# (?=(?:# |    |  )*(?:not ok\b|ok\b|1\.\.|TAP version|KTAP version|Bail out!))|    |  (?=\S))*"
)
_RESULT = re.compile(
    r"(?P<verdict>ok|not ok)\b\s*(?P<number>\d+)?\s*(?:- )?(?P<name>[^#]*?)\s*(?:# *(?P<directive>.*))?$"
)
_PLAN = re.compile(r"1\.\.(\d+)\b(?:\s*# *SKIP\s*(.*))?")
_VERSION = re.compile(r"K?TAP version \d+$")
_STAMP = re.compile(r"^\[ *(\d+\.\d+)\](?:\[ *[TC]\d+\])? ")


@dataclass
class _Level:
    """What has been read at one depth since the last result of the depth above."""

    done: list[list[Case]] = field(default_factory=list)
    results: int = 0
    plan: int | None = None
    skipped: str = ""
    version: bool = False


def strip_stamps(text: str) -> str:
    """Without printk's time stamps."""
    return "\n".join(_STAMP.sub("", line) for line in text.splitlines())


def parse(text: str, suite: str) -> list[Case]:
    """The leaves, named by their path; a plan that is not kept, or output with no plan at all, is a failed case.

    With a time stamp before each line, as printk's, a leaf took as long as passed since the result or plan before it.
    """
    levels: dict[int, _Level] = {}
    notes: list[str] = []
    extra: list[Case] = []
    now = since = 0.0
    for raw in text.splitlines():
        stamp = _STAMP.match(raw)
        now = float(stamp[1]) if stamp else now
        line = raw[stamp.end() if stamp else 0 :].rstrip()
        match = _LEVEL.match(line)
        depth = match.end() if match else 0
        content = line[depth:]
        if _VERSION.match(content):
            # A new document at this depth: an unfinished one that lay deeper is not its parent's any more.
            levels.setdefault(depth, _Level()).version = True
        elif plan := _PLAN.match(content):
            level = levels.setdefault(depth, _Level())
            since = now
            level.plan = int(plan[1])
            level.skipped = plan[2] or ("whole test skipped" if plan[1] == "0" else "")
        elif content.startswith("Bail out!"):
            extra.append(Case(suite, "bail out", "failed", content))
        elif (found := _RESULT.match(content)) and (found["number"] or found["name"]):
            _add(levels, depth, found, notes, suite, now - since)
            since = now
            notes.clear()
            continue
        if content.lstrip().startswith("#"):
            notes.append(content.lstrip("# ").strip())
    return [*_finish(levels, suite), *extra]


def _add(
    levels: dict[int, _Level], depth: int, found: re.Match[str], notes: list[str], suite: str, seconds: float
) -> None:
    """One result line: with what lies deeper it becomes a parent, otherwise a leaf."""
    name = found["name"] or f"test {found['number']}"
    children: list[Case] = []
    problems: list[str] = []
    for deeper in sorted(key for key in levels if key > depth):
        level = levels.pop(deeper)
        children += [case for group in level.done for case in group]
        if level.plan is not None and level.results != level.plan:
            problems.append(f"{level.results} of {level.plan} planned results")
    status, reason = _verdict(found)
    here = levels.setdefault(depth, _Level())
    here.results += 1
    if not children:
        # Its own line alone says nothing of tests that were planned and did not report.
        if problems and status == "passed":
            status, reason = "failed", "; ".join(problems)
        message = reason if status == "skipped" else "\n".join([*([reason] if reason else []), *notes[-20:]])
        here.done.append([Case(suite, name, status, message if status != "passed" else "", seconds)])
        return
    group = [replace(case, name=f"{name}/{case.name}") for case in children]
    if problems or (status == "failed" and not any(case.status == "failed" for case in children)):
        group.append(
            Case(suite, name, "failed", "; ".join(problems) or reason or "failed though none of its parts did")
        )
    here.done.append(group)


def _verdict(found: re.Match[str]) -> tuple[Status, str]:
    directive = (found["directive"] or "").strip()
    word = directive.split(" ", 1)[0].upper().rstrip(":")
    reason = directive.split(" ", 1)[1].strip() if " " in directive else ""
    if word == "SKIP":
        return "skipped", reason or "no reason given"
    if found["verdict"] == "ok":
        return "passed", ""
    if word in ("TODO", "XFAIL"):
        return "skipped", f"expected failure: {reason}"
    return "failed", directive


def _finish(levels: dict[int, _Level], suite: str) -> list[Case]:
    """What is left when the text ends: the outermost results, and those of a test that never reported."""
    if not levels:
        return [Case(suite, "output", "failed", "no test results in the output")]
    cases: list[Case] = []
    top = min(levels)
    for depth in sorted(levels):
        level = levels[depth]
        cases += [case for group in level.done for case in group]
        if depth != top and level.results:
            cases.append(Case(suite, "unfinished test", "failed", "its parts reported, the test itself did not"))
        if level.plan == 0 and level.skipped and not level.results:
            cases.append(Case(suite, "all", "skipped", level.skipped))
        elif level.plan is not None and level.plan != level.results:
            cases.append(Case(suite, "plan", "failed", f"{level.results} of {level.plan} planned results"))
        elif level.plan is None and depth == top:
            cases.append(
                Case(suite, "plan", "failed", f"the output ended after {level.results} results, without a plan")
            )
    return cases
