# SPDX-License-Identifier: GPL-2.0-only
"""The null test: a kernel against itself (KERNELS="stock stock") must show no difference, or the lab sees ghosts.

Of N comparisons of equal things, N times ALPHA have a p below ALPHA by chance. So each table corrects its p values by
Holm's method: with it, one table in 1/ALPHA has a false mark. The null test looks at all tables of a run together and
corrects once more for all their comparisons: if nothing differs, it fails in one run of 1/ALPHA at most, whatever the
number of metrics and however they depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lr.lab import stats
from lr.lab.kernels import Kernel
from lr.lab.tables import Comparison


@dataclass(frozen=True)
class Verdict:
    """tested comparisons; low of them have p < ALPHA uncorrected; marked are starred in their tables; ghosts are what
    remains after the correction for the whole run, and fail the test."""

    compared: int
    tested: int
    low: int
    marked: int
    ghosts: tuple[Comparison, ...]

    @property
    def expected(self) -> float:
        """How many p below ALPHA chance alone makes."""
        return self.tested * stats.ALPHA

    @property
    def holds(self) -> bool:
        """Nothing differs; with nothing tested nothing is known, and that is no success."""
        return self.tested > 0 and not self.ghosts


def twins(kernels: Sequence[Kernel]) -> set[str]:
    """The labels of the kernels that are the first one once more."""
    first = (kernels[0].what, kernels[0].settings)
    return {kernel.label for kernel in kernels[1:] if (kernel.what, kernel.settings) == first}


def judge(comparisons: Iterable[Comparison]) -> Verdict:
    """The verdict on comparisons of a kernel with itself, of all tables that are judged together."""
    found = list(comparisons)
    tested = [each for each in found if each.p is not None]
    again = stats.holm([each.p for each in tested])
    ghosts = [
        replace(each, corrected=p) for each, p in zip(tested, again, strict=True) if p is not None and p < stats.ALPHA
    ]
    return Verdict(
        compared=len(found),
        tested=len(tested),
        low=sum(each.p < stats.ALPHA for each in tested if each.p is not None),
        marked=sum(each.verdict != "" for each in found),
        ghosts=tuple(ghosts),
    )


def render(verdict: Verdict) -> str:
    """The verdict in words."""
    if not verdict.tested:
        return (
            f"null test: no verdict: none of {verdict.compared} comparisons can be tested; two pairs at least, better 5"
        )
    # Were they independent; metrics of one run are not, so the number may lie further off.
    spread = math.sqrt(verdict.tested * stats.ALPHA * (1 - stats.ALPHA))
    lines = [
        f"null test {'holds' if verdict.holds else 'FAILED'}: of {verdict.tested} comparisons of a kernel with itself "
        f"{verdict.low} have p < {stats.ALPHA:g} (chance alone: about {verdict.expected:.0f} +- {spread:.0f}), "
        f"{verdict.marked} are marked in their tables, {len(verdict.ghosts)} remain when corrected over all"
    ]
    for each in verdict.ghosts:
        lines.append(
            f"  {each.scenario} {each.variant}: {each.metric}, {each.x}: p {each.p:.2g}, corrected {each.corrected:.2g}"
        )
    return "\n".join(lines)
