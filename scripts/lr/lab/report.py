# SPDX-License-Identifier: GPL-2.0-only
"""The verb `report`: all kept samples as one HTML page, tables and plots, that needs nothing outside itself."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from lr.files import whole
from lr.lab import profile, stats, tables
from lr.lab.plots import Line, plot, shares
from lr.lab.sample import Sample, path_of, read_all
from lr.lab.scenario import Scenario, SeedTable, load_all
from lr.layout import Layout, here
from lr.ui import Fail, notice, say

_PROFILE_ROWS = 20
_STYLE = """
body { font: 15px/1.45 sans-serif; margin: 2em auto; max-width: 84em; padding: 0 1em; color: #1a1a1a; background: #fff }
h2 { border-top: 2px solid #ccc; padding-top: 1em; margin-top: 2em }
.wide { overflow-x: auto }
table { border-collapse: collapse; margin: .6em 0 1.2em; font-variant-numeric: tabular-nums }
caption { text-align: left; font-weight: bold; padding-bottom: .3em }
th, td { padding: .12em .7em; border-bottom: 1px solid #e4e4e4; text-align: left; white-space: nowrap }
th { vertical-align: bottom }
.k { white-space: normal }
.n { text-align: right }
.better { color: #00633a; font-weight: bold }
.worse { color: #b00020; font-weight: bold }
.changed { font-weight: bold }
.plots { display: flex; flex-wrap: wrap; gap: 1em }
figure { margin: 0 }
.small { font-size: 13px; color: #444 }
svg { max-width: 100%; height: auto }
"""


def main(argv: list[str]) -> int:
    """The verb."""
    argparse.ArgumentParser(prog="report", description=__doc__).parse_args(argv)
    layout = here()
    path, scenarios, samples = write_page(layout)
    say(f"{path}: {scenarios} scenarios, {samples} samples")
    return 0


def write_page(layout: Layout) -> tuple[Path, int, int]:
    """Write the page; returns where it lies and how many scenarios and samples it shows."""
    folder = layout.build / "bench"
    samples = read_all(folder)
    profiles = profile.read_all(layout)
    if not samples and not profiles:
        raise Fail(f"there are no samples under {folder}; run `make bench` first")
    os.environ.setdefault("MPLCONFIGDIR", str(layout.build / "matplotlib"))
    shown: list[tuple[Scenario, list[Sample]]] = []
    known = load_all(layout)
    for name in sorted({sample.scenario for sample in samples}):
        own = [sample for sample in samples if sample.scenario == name]
        if name in known:
            shown.append((known[name], own))
        else:
            notice(f"{len(own)} samples of {name} are left out: bench/scenarios/{name}.toml is no longer there")
    if not shown and not profiles:
        raise Fail(f"no sample under {folder} belongs to a scenario in bench/scenarios; run `make bench` first")
    path = folder / "report.html"
    with whole(path) as part:
        part.write_text(page(folder, shown, profiles))
    return path, len(shown), sum(len(own) for _, own in shown)


def kernel_order(folder: Path, scenario: str, samples: Iterable[Sample]) -> list[str]:
    """The columns: as order.json lists them, else stock first; kernels it does not list follow by name."""
    names = sorted({sample.kernel for sample in samples}, key=lambda name: (name != "stock", name))
    path = folder / scenario / "order.json"
    if not path.exists():
        return names
    try:
        listed = json.loads(path.read_text())
    except ValueError as exc:
        raise Fail(f"{path}: {exc}; it holds a list of kernel names, or remove it") from exc
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise Fail(f"{path}: it must hold a list of kernel names; correct or remove it")
    return list(dict.fromkeys([*listed, *names]))


def page(folder: Path, shown: Sequence[tuple[Scenario, list[Sample]]], profiles: Sequence[profile.Profile] = ()) -> str:
    """The whole page."""
    links = "".join(f'<li><a href="#{escape(s.name)}">{escape(s.name)}</a>: {escape(s.title)}</li>' for s, _ in shown)
    links += '<li><a href="#profiles">profiles</a>: where the instructions go</li>' if profiles else ""
    sections = "".join(_section(folder, scenario, samples) for scenario, samples in shown)
    return (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>linux-reclaim: the lab</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n<h1>linux-reclaim: the lab</h1>\n"
        "<p>Guests run without KVM on a small machine, their CPUs in lockstep: a round is so many instructions of each "
        "CPU that is busy. Rounds are the unit of time, instructions that of work; a second is so many rounds. "
        f"Hmean and Amean are the harmonic and the arithmetic mean.</p>\n<ul>{links}</ul>\n{sections}"
        f"{_profiles(profiles)}</body>\n</html>\n"
    )


def _section(folder: Path, scenario: Scenario, samples: list[Sample]) -> str:
    kernels = kernel_order(folder, scenario.name, samples)
    usable, _ = tables.current(samples)
    parts = [
        f'<h2 id="{escape(scenario.name)}">{escape(scenario.name)}: {escape(scenario.title)}</h2>',
        f"<p>{escape(scenario.about)}</p><p>Seed: {escape(scenario.seed)}</p>",
        f'<p class="small">{escape(tables.legend(kernels))}. Point at a figure to see what it was made from.</p>',
    ]
    for table in tables.build(scenario, samples, kernels):
        own = [sample for sample in usable if sample.variant == table.variant]
        parts.append(f"<h3>{escape(table.variant)}: {escape(table.about)}</h3>")
        parts.append(_table(scenario.axis, table, table.rows, "metrics"))
        if table.vmstat:
            parts.append(_table(scenario.axis, table, table.vmstat, "vmstat (not tested)"))
        parts += [f'<p class="small">{escape(line)}</p>' for line in tables.closing(table)]
        plots = [*metric_plots(scenario, table), *series_plots(scenario, table, own)]
        if plots:
            parts.append('<div class="plots">' + "".join(f"<figure>{plot}</figure>" for plot in plots) + "</div>")
            words = "Whiskers are standard deviations. Values over time are those of the first pair."
            parts.append(f'<p class="small">{words}</p>')
        parts.append(_sources(folder, table, own))
    parts += [_seed(scenario, table) for table in scenario.seed_tables]
    if notes := tables.notes_of(scenario, samples):
        parts.append("<p>Notes:</p><ul>" + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>")
    return "\n".join(parts) + "\n"


def _table(axis: str, table: tables.Table, rows: Sequence[tables.Row], caption: str) -> str:
    # Long names break where their parts end.
    names = [re.sub(r"([:,])", r"\1<wbr>", escape(kernel)) for kernel in table.kernels]
    heads = "".join(f'<th class="n k" colspan="2">{name}</th>' for name in names)
    pairs = "".join(f'<td class="n">{count}</td><td></td>' for count in table.pairs)
    lines = [
        f'<div class="wide"><table><caption>{escape(caption)}</caption>',
        f'<tr><th></th><th>metric</th><th class="n">{escape(axis)}</th><th>better</th>{heads}</tr>',
        f"<tr><td></td><td>pairs</td><td></td><td></td>{pairs}</tr>",
    ]
    for row in rows:
        cells = "".join(_cell(row, cell) for cell in row.cells)
        lines.append(
            f'<tr><td>{row.average}</td><td>{escape(row.title)}</td><td class="n">{escape(row.x)}</td>'
            f"<td>{tables.BETTER[row.better]}</td>{cells}</tr>"
        )
    return "\n".join([*lines, "</table></div>"])


def _cell(row: tables.Row, cell: tables.Cell) -> str:
    if cell.value is None:
        return '<td class="n">-</td><td></td>'
    origin = "pairs: " + ", ".join(f"{value:g}" for value in cell.raw)
    if cell.p is not None and cell.corrected is not None:
        origin += f"; Welch's p {cell.p:.3g}, corrected {cell.corrected:.3g}"
    mark = "*" if cell.significant else ""
    kind = f"n {row.verdict(cell)}".strip()
    return (
        f'<td class="n" title="{escape(origin)}">{tables.number(cell.value, row.digits)}</td>'
        f'<td class="{kind}">{tables.difference(cell.percent)}{mark}</td>'
    )


def _seed(scenario: Scenario, table: SeedTable) -> str:
    first, *others = table.columns or ("",)
    heads = f"<th>{escape(first)}</th>" + "".join(f'<th class="n">{escape(column)}</th>' for column in others)
    rows = "".join(
        f"<tr><td>{escape(row[0])}</td>" + "".join(f'<td class="n">{escape(c)}</td>' for c in row[1:]) + "</tr>"
        for row in table.rows
        if row
    )
    caption = escape(tables.seed_title(scenario, table))
    return f'<div class="wide"><table><caption>{caption}</caption><tr>{heads}</tr>{rows}</table></div>'


def _sources(folder: Path, table: tables.Table, samples: list[Sample]) -> str:
    """Links to the raw samples, relative to the page."""
    items = []
    for kernel in table.kernels:
        links = []
        for sample in (sample for sample in samples if sample.kernel == kernel):
            path = path_of(Path(), sample.scenario, sample.variant, kernel, sample.pair, sample.quick)
            if (folder / path).exists():
                links.append(f'<a href="{escape(quote(path.as_posix()))}">{sample.pair}</a>')
        if links:
            items.append(f"{escape(kernel)}: pairs {', '.join(links)}")
    return f'<p class="small">Raw samples: {"; ".join(items)}</p>'


def metric_plots(scenario: Scenario, table: tables.Table) -> list[str]:
    """A plot for each metric that asks for one: its means against the axis, a line a kernel.

    Points that are no numbers have nothing between them: those are bars, and only where the metric was measured.
    """
    found = []
    for metric in scenario.metrics:
        if not metric.plot:
            continue
        rows = [row for row in table.rows if row.name == metric.name]
        numbers = _numbers(table.points)
        places = numbers or {row.x: float(spot) for spot, row in enumerate(rows)}
        lines = []
        for column, kernel in enumerate(table.kernels):
            spots = [(places[row.x], row.cells[column]) for row in rows]
            known = [(x, cell.value, stats.deviation(cell.raw)) for x, cell in spots if cell.value is not None]
            if known:
                x, y, spread = zip(*known, strict=True)
                lines.append(Line(kernel, x, y, tuple(0.0 if one is None else one for one in spread)))
        if lines:
            name = f"{scenario.name}-{table.variant}-{metric.name}"
            found.append(plot(name, metric.title, scenario.axis, table.kernels, lines, places, bars=numbers is None))
    return found


def series_plots(scenario: Scenario, table: tables.Table, samples: Iterable[Sample]) -> list[str]:
    """A small plot for each value over time that was recorded at a point: each kernel's first pair."""
    found: dict[tuple[str, str], dict[str, Line]] = {}
    for sample in sorted(samples, key=lambda sample: sample.pair):
        for point in sample.points:
            for name, spots in point.series.items():
                good = sorted((t, value) for t, value in spots if math.isfinite(t) and math.isfinite(value))
                if good:
                    lines = found.setdefault((name, point.x), {})
                    lines.setdefault(sample.kernel, Line(sample.kernel, *zip(*good, strict=True)))
    plots = []
    for name, x in sorted(found, key=lambda key: (key[0], table.points.index(key[1]))):
        drawn = [found[name, x][kernel] for kernel in table.kernels if kernel in found[name, x]]
        if drawn:
            label = f"{scenario.name}-{table.variant}-{name}-{x}"
            title = f"{name.replace('_', ' ')}, {scenario.axis} {x}"
            plots.append(plot(label, title, "seconds", table.kernels, drawn, size=(3.6, 2.4)))
    return plots


def _profiles(profiles: Sequence[profile.Profile]) -> str:
    """What `make profile` kept: functions of all threads and waiting for spinlocks, the kernels beside each other."""
    parts = ['<h2 id="profiles">profiles: where the instructions go</h2>'] if profiles else []
    for own in profile.beside(profiles):
        first = own[0]
        label = f"{first.scenario} {first.variant}, {first.point}"
        dates = ", ".join(f"{one.kernel} {one.started}" for one in own)
        parts.append(f'<h3>{escape(label)}</h3><p class="small">{escape(dates)}</p><div class="plots">')
        functions = {one.kernel: profile.shares(profile.functions(one), one.instructions) for one in own}
        waiting = {one.kernel: profile.shares(one.waiting, one.instructions) for one in own}
        for what, columns in (("instructions", functions), ("waiting for a spinlock", waiting)):
            if rows := profile.top(list(columns.values()), _PROFILE_ROWS):
                title = f"{what}, percent of all that are not idle"
                parts.append(f"<figure>{shares(f'{label} {what}', title, columns, rows)}</figure>")
        parts.append("</div>")
    return "\n".join(parts) + "\n"


def _numbers(points: Sequence[str]) -> dict[str, float] | None:
    """Where points lie on the axis if all of them are numbers."""
    try:
        places = {x: float(x) for x in points}
    except ValueError:
        return None
    return places if all(map(math.isfinite, places.values())) else None
