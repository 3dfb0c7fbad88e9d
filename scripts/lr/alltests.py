# SPDX-License-Identifier: GPL-2.0-only
"""The verb `test`: check, kunit and selftest, with all their results counted in the last line."""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys

from lr.results import Counts, summary_line
from lr.ui import Fail, clock, say
from lr.ui import Progress as Timer

STEPS = ("check", "kunit", "selftest")
_LINE = re.compile(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?")


def closing_counts(text: str) -> Counts | None:
    """The counts in the last line that gives any."""
    found = [match for line in text.splitlines() if (match := _LINE.search(line))]
    return Counts(int(found[-1][1]), int(found[-1][2]), int(found[-1][3] or 0)) if found else None


def run_step(verb: str) -> Counts:
    """One verb in a process of its own, shown as it runs; one that ends without counts is one failure."""
    say(f"== {verb}")
    child = subprocess.Popen(
        [sys.executable, "-m", "lr", verb], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    last = None
    try:
        for line in child.stdout:
            say(line.rstrip("\n"))
            last = closing_counts(line) or last
        status = child.wait()
    finally:
        # It has guests of its own to end.
        if child.poll() is None:
            child.terminate()
            child.wait()
    if last is None:
        return Counts(failed=1) if status else Counts(passed=1)
    # A verb that fails must show in the sum whatever it counted.
    return last if status == 0 or last.failed else last + Counts(failed=1)


def main(argv: list[str]) -> int:
    """Run all; 1 when anything failed."""
    argparse.ArgumentParser(prog="test", description=__doc__).parse_args(argv)
    for verb in STEPS:
        if importlib.util.find_spec("lr." + verb) is None:
            raise Fail(f"{verb}: that verb is missing from scripts/lr; is the checkout complete?")
    whole = Timer("test")
    total = Counts()
    rows: list[str] = []
    for verb in STEPS:
        timer = Timer(verb)
        counts = run_step(verb)
        rows.append(f"{verb}: {summary_line(counts)} in {clock(timer.elapsed())}")
        total += counts
    say("== test")
    say("\n".join(rows))
    say(f"all of it took {clock(whole.elapsed())}")
    say(summary_line(total))
    return 1 if total.failed else 0
