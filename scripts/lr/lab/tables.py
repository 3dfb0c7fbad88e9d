# SPDX-License-Identifier: GPL-2.0-only
"""Tables of a scenario in mmtests' style: computed from samples as Table objects, and printed as text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lr.lab import stats
from lr.lab.sample import Point, Sample, derived
from lr.lab.scenario import Better, Metric, Scenario, SeedTable, points_of
from lr.ui import grid

# Some counters are kept for each zone; their name without the zone is the sum.
_ZONES = ("dma", "dma32", "normal", "high", "movable", "device")
BETTER: Mapping[Better, str] = {"higher": "more", "lower": "less", "neither": ""}

Verdict = Literal["", "better", "worse", "changed"]


@dataclass(frozen=True)
class Cell:
    """One kernel in one row: the pairs' values and, but for the first kernel, how they compare with the first's."""

    raw: tuple[float, ...]
    value: float | None
    percent: float | None = None
    p: float | None = None
    corrected: float | None = None

    @property
    def significant(self) -> bool:
        """Whether the difference holds after the correction for the table's many comparisons."""
        return self.corrected is not None and self.corrected < stats.ALPHA


@dataclass(frozen=True)
class Row:
    """One metric, or vmstat counter, at one point; a cell a kernel. average is Hmean or Amean."""

    name: str
    title: str
    x: str
    average: str
    better: Better
    digits: int
    cells: tuple[Cell, ...]

    def verdict(self, cell: Cell) -> Verdict:
        """What a significant difference means; empty for one that is not."""
        if not cell.significant:
            return ""
        if self.better == "neither":
            return "changed"
        base, value = self.cells[0].value, cell.value
        if base is None or value is None or base == value:
            return "changed"
        return "better" if (value > base) == (self.better == "higher") else "worse"


@dataclass(frozen=True)
class Table:
    """All figures of one variant. unmoved: counters that stood still; missing: what no sample has."""

    variant: str
    about: str
    kernels: tuple[str, ...]
    pairs: tuple[int, ...]
    points: tuple[str, ...]
    rows: tuple[Row, ...]
    vmstat: tuple[Row, ...]
    unmoved: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """One kernel against the first, in one metric at one point; p is before and corrected after Holm's correction."""

    scenario: str
    variant: str
    metric: str
    x: str
    kernel: str
    percent: float | None
    p: float | None
    corrected: float | None
    verdict: Verdict


def current(samples: Iterable[Sample]) -> tuple[list[Sample], list[str]]:
    """The samples that may be averaged and compared, and notes about those left out.

    The kernels of a variant are compared under the conditions of the newest sample: quick ones count only where there
    are no others, and those of another workload do not. A kernel's samples that differ in digest all the same were made
    by different code; the newest count.
    """
    kept: list[Sample] = []
    notes: list[str] = []
    groups: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.scenario, sample.variant), []).append(sample)
    for (_, variant), group in groups.items():
        full = [sample for sample in group if not sample.quick] or group
        told = max((sample for sample in full if sample.conditions), key=_started, default=full[0]).conditions
        for kernel in dict.fromkeys(sample.kernel for sample in group):
            own = [sample for sample in full if sample.kernel == kernel]
            alike = [sample for sample in own if sample.conditions in ("", told)]
            last = max(alike, key=_started).digest if alike else ""
            fresh = [sample for sample in alike if sample.digest == last]
            kept += sorted(fresh, key=lambda sample: sample.pair)
            if looks := sum(sample.kernel == kernel for sample in group) - len(own):
                notes.append(f"{variant}, {kernel}: {looks} samples of quick runs are left out")
            if old := len(own) - len(fresh):
                notes.append(f"{variant}, {kernel}: {old} older samples, made by other code or options, are left out")
    return kept, notes


def _started(sample: Sample) -> str:
    return sample.started


def build(scenario: Scenario, samples: Iterable[Sample], kernels: Sequence[str]) -> list[Table]:
    """The tables of all variants that have samples, in the scenario's order; kernels gives the columns."""
    usable, _ = current(sample for sample in samples if sample.scenario == scenario.name)
    usable = [replace(each, points=tuple(derived(scenario.metrics, p) for p in each.points)) for each in usable]
    about = {variant.name: _about(scenario, variant.name) for variant in scenario.variants}
    found = []
    for variant in (*about, *sorted({sample.variant for sample in usable} - set(about))):
        columns = [[s for s in usable if (s.variant, s.kernel) == (variant, kernel)] for kernel in kernels]
        if any(columns):
            found.append(_table(scenario, variant, about.get(variant, "no longer a variant"), tuple(kernels), columns))
    return found


def comparisons(scenario: Scenario, samples: Iterable[Sample], kernels: Sequence[str]) -> list[Comparison]:
    """Every comparison that the tables make. The correction is for one table: nulltest.py corrects over all of them.

    The vmstat figures explain the metrics and are not tested.
    """
    return [
        Comparison(
            scenario.name,
            table.variant,
            row.name,
            row.x,
            kernel,
            cell.percent,
            cell.p,
            cell.corrected,
            row.verdict(cell),
        )
        for table in build(scenario, samples, kernels)
        for row in table.rows
        for kernel, cell in zip(table.kernels[1:], row.cells[1:], strict=True)
    ]


def notes_of(scenario: Scenario, samples: Iterable[Sample]) -> list[str]:
    """What the samples' workloads noted, each note once, and what had to be left out."""
    usable, notes = current(sample for sample in samples if sample.scenario == scenario.name)
    counted = Counter(note for sample in usable for note in dict.fromkeys(sample.notes))
    return [*notes, *(f"{note} ({count} of {len(usable)} samples)" for note, count in counted.items())]


def seed_title(scenario: Scenario, table: SeedTable) -> str:
    """A seed's table is told from ours by the name of the seed's file."""
    return f"the seed's figures, {scenario.seed.rsplit('/', 1)[-1]}: {table.title}"


def legend(kernels: Sequence[str]) -> str:
    """How to read the tables, in one line."""
    base = kernels[0] if kernels else "the first kernel"
    return (
        f"mean over pairs ( difference against {base} ): + is better where `better` says more or less, else just more; "
        f"* significant (Welch's test, Holm's correction over the table, {stats.ALPHA:.0%}); - not measured"
    )


def number(value: float | None, digits: int) -> str:
    """A figure as both tables show it."""
    return "-" if value is None else f"{value:.{digits}f}"


def difference(percent: float | None) -> str:
    """A percentage as both tables show it; there is none against nothing."""
    if percent is None:
        return "-"
    return "0.00%" if abs(percent) < 0.005 else f"{percent:+.2f}%"


def spread(cell: Cell) -> str:
    """How far the pair that is farthest from the mean lies from it, in percent of it; one pair has no spread."""
    if len(cell.raw) < 2 or not cell.value:
        return ""
    return f"+-{100 * max(abs(raw - cell.value) for raw in cell.raw) / abs(cell.value):.1f}%"


def render(scenario: Scenario, samples: Iterable[Sample], kernels: Sequence[str]) -> str:
    """A scenario's tables as text: a variant's metrics and vmstat figures, the seed's figures, the samples' notes."""
    samples = list(samples)
    tables = build(scenario, samples, kernels)
    parts = [f"{scenario.name}: {scenario.title}", f"{legend(kernels)}; +- the pair farthest from the mean"]
    for table in tables:
        parts.append(f"== {table.variant}: {table.about}")
        parts.append(_text(scenario.axis, table.kernels, table.pairs, table.rows))
        if table.vmstat:
            parts.append("vmstat (not tested)\n" + _text(scenario.axis, table.kernels, table.pairs, table.vmstat))
        parts.append("\n".join(closing(table)))
    if not tables:
        parts.append("no samples")
    for seed in scenario.seed_tables:
        parts.append(f"{seed_title(scenario, seed)}\n{grid([list(seed.columns), *map(list, seed.rows)], 1)}")
    if notes := notes_of(scenario, samples):
        parts.append("\n".join(f"note: {note}" for note in notes))
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def closing(table: Table) -> list[str]:
    """What a table has no rows for."""
    lines = []
    if table.unmoved:
        lines.append(f"did not move, or are unknown to these kernels: {', '.join(table.unmoved)}")
    if table.missing:
        lines.append(f"not measured: {', '.join(table.missing)}")
    return lines


def _about(scenario: Scenario, name: str) -> str:
    variant = next(variant for variant in scenario.variants if variant.name == name)
    machine = variant.machine
    nodes = f"{machine.nodes} node" + ("s" if machine.nodes != 1 else "")
    lru = "MGLRU" if variant.lru_gen else "classic LRU"
    speed = " of a nanosecond an instruction" if machine.icount else ""
    zones = f" of which {machine.dma32_mib} in DMA32" if machine.dma32_mib else ""
    return f"{machine.cpus} CPU{'s' if machine.cpus != 1 else ''}{speed}, {machine.mib} MiB{zones}, {nodes}, {lru}"


def _table(
    scenario: Scenario, variant: str, about: str, kernels: tuple[str, ...], columns: list[list[Sample]]
) -> Table:
    measured = {point.x for column in columns for sample in column for point in sample.points}
    points = (*(x for x in scenario.points if x in measured), *sorted(measured - set(scenario.points)))
    wanted = scenario.points
    for each in scenario.variants:
        if each.name == variant:
            wanted = points_of(scenario, each, all(sample.quick for column in columns for sample in column))
    missing = [f"{scenario.axis} {x}" for x in wanted if x not in measured]
    rows: list[Row] = []
    for metric in scenario.metrics:
        own = [_metric_row(metric, x, columns) for x in points]
        # Points may measure different things: a row that no kernel has says nothing.
        own = [row for row in own if any(cell.raw for cell in row.cells)]
        rows += own
        if not own:
            missing.append(metric.title)
    vmstat: list[Row] = []
    unmoved: list[str] = []
    for name in scenario.vmstat:
        own = [_vmstat_row(name, x, columns) for x in points]
        if any(cell.value for row in own for cell in row.cells):
            vmstat += own
        elif any(cell.raw for row in own for cell in row.cells):
            unmoved.append(name)
    pairs = tuple(len(column) for column in columns)
    return Table(
        variant, about, kernels, pairs, points, _corrected(rows), tuple(vmstat), tuple(unmoved), tuple(missing)
    )


def _metric_row(metric: Metric, x: str, columns: list[list[Sample]]) -> Row:
    # Rates are averaged like mmtests does: time is what adds up. A percentage of a rate is none.
    rate = "/s" in metric.title and "%" not in metric.title
    mean = stats.harmonic_mean if rate else stats.mean
    cells = _cells(columns, x, lambda point: point.values.get(metric.name), mean, metric.better)
    base, others = cells[0], cells[1:]
    unit = metric.resolution or 10.0**-metric.digits
    tested = (replace(cell, p=stats.p_value(base.raw, cell.raw, unit)) for cell in others)
    average = "Hmean" if rate else "Amean"
    return Row(metric.name, metric.title, x, average, metric.better, metric.digits, (base, *tested))


def _vmstat_row(name: str, x: str, columns: list[list[Sample]]) -> Row:
    cells = _cells(columns, x, lambda point: vmstat_of(point, name), stats.mean, "neither")
    # The mean of a rare event is a fraction, and 0 would deny it.
    rare = any(cell.value is not None and abs(cell.value) < 10 and cell.value % 1 for cell in cells)
    return Row(name, name, x, "Amean", "neither", 1 if rare else 0, cells)


def vmstat_of(point: Point, name: str) -> float | None:
    """A counter's difference, summed over zones where it is kept for each; one not listed did not move.

    None if the point recorded no counters at all.
    """
    if not point.vmstat:
        return None
    return sum(point.vmstat.get(key, 0.0) for key in (name, *(f"{name}_{zone}" for zone in _ZONES)))


def _cells(
    columns: list[list[Sample]],
    x: str,
    pick: Callable[[Point], float | None],
    average: Callable[[Sequence[float]], float],
    better: Better,
) -> tuple[Cell, ...]:
    cells: list[Cell] = []
    for column in columns:
        picked = (pick(point) for sample in column for point in sample.points if point.x == x)
        raw = tuple(value for value in picked if value is not None and math.isfinite(value))
        value = average(raw) if raw else math.nan
        cells.append(Cell(raw, value if math.isfinite(value) else None))
    base = cells[0].value
    if base is None:
        return tuple(cells)
    return tuple(
        cell if cell.value is None else replace(cell, percent=stats.percent(base, cell.value, better)) for cell in cells
    )


def _corrected(rows: list[Row]) -> tuple[Row, ...]:
    """The rows with p values corrected for all comparisons in them."""
    found = iter(stats.holm([cell.p for row in rows for cell in row.cells]))
    return tuple(replace(row, cells=tuple(replace(c, corrected=next(found)) for c in row.cells)) for row in rows)


def _text(axis: str, kernels: tuple[str, ...], pairs: tuple[int, ...], rows: tuple[Row, ...]) -> str:
    percents = [difference(cell.percent) for row in rows for cell in row.cells if cell.value is not None]
    width = max(map(len, percents), default=0)
    spreads = max((len(spread(cell)) for row in rows for cell in row.cells), default=0)
    blank = " " * (width + 4 + (spreads and spreads + 1))
    body = [["", f"metric, {axis}", "better", *kernels], ["", "pairs", "", *(f"{count}{blank}" for count in pairs)]]
    for row in rows:
        line = [row.average, f"{row.title} {row.x}", BETTER[row.better]]
        for cell in row.cells:
            if cell.value is None:
                line.append(f"-{blank}")
            else:
                mark = "*" if cell.significant else " "
                around = f" {spread(cell):>{spreads}}" if spreads else ""
                line.append(f"{number(cell.value, row.digits)}{around} ({difference(cell.percent):>{width}}){mark}")
        body.append(line)
    return grid(body, 3)
