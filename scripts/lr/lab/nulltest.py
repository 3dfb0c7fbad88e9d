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
    """What was tested; what of it is starred in its table; ghosts are what remains when corrected for the whole run."""

    tested: tuple[Comparison, ...]
    marked: tuple[Comparison, ...]
    ghosts: tuple[Comparison, ...]

    @property
    def low(self) -> int:
        """How many p are below ALPHA before any correction."""
        return sum(each.p is not None and each.p < stats.ALPHA for each in self.tested)

    @property
    def expected(self) -> float:
        """How many chance alone makes."""
        return len(self.tested) * stats.ALPHA

    @property
    def holds(self) -> bool:
        """Nothing differs; with nothing tested nothing is known, and that is no success."""
        return bool(self.tested) and not self.ghosts


def twins(kernels: Sequence[Kernel]) -> set[str]:
    """The labels of the kernels that are the first one once more."""
    first = (kernels[0].what, kernels[0].settings)
    return {kernel.label for kernel in kernels[1:] if (kernel.what, kernel.settings) == first}


def judge(comparisons: Iterable[Comparison]) -> Verdict:
    """The verdict on comparisons of a kernel with itself, of all tables that are judged together."""
    found = list(comparisons)
    tested = tuple(each for each in found if each.p is not None)
    corrected = stats.holm([each.p for each in tested])
    ghosts = [
        replace(each, corrected=p)
        for each, p in zip(tested, corrected, strict=True)
        if p is not None and p < stats.ALPHA
    ]
    return Verdict(tested, tuple(each for each in found if each.verdict), tuple(ghosts))


def render(verdict: Verdict) -> str:
    """The verdict in words: the whole run, its scenarios, and the comparisons that are marked or worse."""
    if not verdict.tested:
        return "null test: no verdict, nothing could be tested: it needs two pairs at least, better five"
    lines = [
        f"null test {'holds' if verdict.holds else 'FAILED'}: {_counts(verdict)}, "
        f"{len(verdict.ghosts)} remain when corrected over all tables"
    ]
    for name in dict.fromkeys(each.scenario for each in verdict.tested):
        tested, marked = (
            tuple(each for each in part if each.scenario == name) for part in (verdict.tested, verdict.marked)
        )
        lines.append(f"  {name}: {_counts(Verdict(tested, marked, ()))}")
    for word, part in (("marked", verdict.marked), ("remains", verdict.ghosts)):
        for each in part:
            p = f"p {each.p:.2g}, corrected {each.corrected:.2g}"
            lines.append(f"  {word}: {each.scenario} {each.variant}, {each.kernel}: {each.metric}, {each.x}: {p}")
    return "\n".join(lines)


def _counts(verdict: Verdict) -> str:
    # Were they independent; metrics of one boot are not, so the number may well lie further off.
    spread = math.sqrt(verdict.expected * (1 - stats.ALPHA))
    return (
        f"of {len(verdict.tested)} comparisons {verdict.low} have p < {stats.ALPHA:g} "
        f"(by chance about {verdict.expected:.1f} +- {spread:.1f}), {len(verdict.marked)} are marked"
    )
