# SPDX-License-Identifier: GPL-2.0-only
"""Statistics of the lab: means, the difference between two kernels, and whether it may be called one.

Two kernels are compared with Welch's t-test on the pairs' values. A table makes many such comparisons, of which one in
twenty would look significant by chance; Holm's correction keeps the chance of even one false mark in a table at ALPHA.
"""

from __future__ import annotations

import importlib
import math
import statistics
from collections.abc import Sequence
from typing import Any

from lr.lab.scenario import Better

ALPHA = 0.05


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean."""
    return statistics.fmean(values)


def harmonic_mean(values: Sequence[float]) -> float:
    """The mean for rates. 0 if one of them is 0, which is its limit; not a number if one is negative."""
    return statistics.harmonic_mean(values) if min(values) >= 0 else math.nan


def deviation(values: Sequence[float]) -> float | None:
    """The sample standard deviation; one value has none."""
    return statistics.stdev(values) if len(values) > 1 else None


def percent(base: float, value: float, better: Better = "neither") -> float | None:
    """The difference against base in percent; positive is better, or just more where neither is.

    A difference against nothing has no percentage.
    """
    if base == 0:
        return 0.0 if value == 0 else None
    change = 100 * (value - base) / abs(base)
    return -change if better == "lower" else change


def p_value(first: Sequence[float], second: Sequence[float], resolution: float = 1.0) -> float | None:
    """Welch's p: how likely chance alone makes means differ so much. None where nothing can be said.

    One sample a side says nothing. Where the samples of a side repeat (a counter that is deterministic, or nearly so),
    t would be huge or infinite however small the difference and no correction could undo it. Values are only known to
    their resolution (one event, or the last digit shown), so that is the least deviation that a side has: 0 against
    1000 stays significant, 100 against 101 does not become so. Where both sides repeat exactly, fewer than three a side
    may have done so by chance: None.
    """
    if min(len(first), len(second)) < 2:
        return None
    constant = max(first) == min(first) and max(second) == min(second)
    if constant and (first[0] == second[0] or min(len(first), len(second)) < 3):
        return None
    sides = [(mean(each), max(statistics.stdev(each), resolution), len(each)) for each in (first, second)]
    found = float(_scipy_stats().ttest_ind_from_stats(*sides[0], *sides[1], equal_var=False).pvalue)
    return found if math.isfinite(found) else None


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """The p values of one table, corrected by Holm's method for their number; None is no comparison and stays None."""
    known = sorted((p, spot) for spot, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    worst = 0.0
    for rank, (p, spot) in enumerate(known):
        worst = max(worst, min(1.0, p * (len(known) - rank)))
        corrected[spot] = worst
    return corrected


def _scipy_stats() -> Any:
    """scipy.stats has no types, and takes a second to load."""
    return importlib.import_module("scipy.stats")
