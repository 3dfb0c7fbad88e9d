# SPDX-License-Identifier: GPL-2.0-only
"""A second try, told, for a selftest that failed in one guest where all of them run one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from lr.results import Case
from lr.ui import say

# How much memory is free when is decided by what ran before and by the other guest on the same cores. Where a failure
# means data lost or written by the wrong one, a single one counts.
_NEVER = ("reclaim_dontcache", "reclaim_dirty")
# More than that is no chance.
_MOST = 3

# The cases of the second run of a program, by suite and program.
Run = Callable[[str, str], list[Case]]


def program_of(case: Case) -> str | None:
    """The program a failed case belongs to, if it may have a second try: not for a console's or a guest's failure."""
    program, slash, _ = case.name.partition("/")
    return program if slash and case.status == "failed" and program not in _NEVER else None


def second_try(cases: Sequence[Case], run: Run) -> list[Case]:
    """The cases; failed ones have passed where their program then passes by itself; what failed is told and kept."""
    failed = [case for case in cases if case.status == "failed"]
    programs = [(case.suite, program_of(case)) for case in failed]
    wanted = [(suite, program) for suite, program in dict.fromkeys(programs) if program]
    # Where something fails that has none nothing would be won, and what fails on two machines is no chance.
    alone = len({program for _, program in wanted}) == len(wanted) == len(set(programs))
    if not alone or len(wanted) > _MOST:
        return list(cases)
    found = list(cases)
    for suite, program in wanted:
        say(f"{suite}: {program} failed among the others: a second try in a guest of its own")
        second = run(suite, program)
        passed = {case.name for case in second if case.status == "passed"}
        ours = {case.name for case in failed if (case.suite, program_of(case)) == (suite, program)}
        if any(case.status == "failed" for case in second) or not ours <= passed:
            say(f"{suite}: {program} failed again")
            continue
        for at, case in enumerate(found):
            if case.suite == suite and program_of(case) == program:
                say(f"UNSTABLE {suite}: {case.name}")
                say("\n".join(f"    {line}" for line in case.message.splitlines()))
                told = f"failed first, passed by itself: {case.message}"
                found[at] = replace(case, status="passed", message=told, unstable=True)
    return found
