# SPDX-License-Identifier: GPL-2.0-only
"""The verb `test`: check, kunit and selftest, with all their results counted in the last line."""

from __future__ import annotations

import argparse
import traceback
from collections.abc import Callable

from lr import check, kunit, selftest
from lr.results import Counts, summary_line
from lr.ui import Fail, Progress, clock, say

STEPS: dict[str, Callable[[list[str]], Counts]] = {"check": check.run, "kunit": kunit.run, "selftest": selftest.run}


def main(argv: list[str]) -> int:
    """Run all; 1 when anything failed. A verb that ends without counts is one failure."""
    argparse.ArgumentParser(prog="test", description=__doc__).parse_args(argv)
    whole = Progress("test")
    total = Counts()
    rows: list[str] = []
    for verb, run in STEPS.items():
        say(f"== {verb}")
        timer = Progress(verb)
        try:
            counts = run([])
        except Fail as exc:
            say(f"{verb}: {exc}")
            counts = Counts(failed=1)
        except Exception:  # A full disk, for instance: the other verbs may tell more.
            traceback.print_exc()
            counts = Counts(failed=1)
        rows.append(f"{verb}: {summary_line(counts)} in {clock(timer.elapsed())}")
        total += counts
    say("== test")
    say("\n".join(rows))
    say(f"all of it took {clock(whole.elapsed())}")
    say(summary_line(total))
    return 1 if total.failed else 0
