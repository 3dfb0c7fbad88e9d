# SPDX-License-Identifier: GPL-2.0-only
"""The report's pictures: lines and bars as SVG elements that stand in a page."""

from __future__ import annotations

import importlib
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

# Colours that a colour-blind reader tells apart; the first is the base kernel's.
_COLOURS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
# Text stays text, in the reader's font; a $ in a name is no formula.
_PLOT = {"svg.fonttype": "none", "text.parse_math": False, "font.size": 9}


@dataclass(frozen=True)
class Line:
    """One kernel in a plot; spread, where known, is drawn as error bars."""

    kernel: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    spread: tuple[float, ...] = ()


def plot(
    name: str,
    title: str,
    axis: str,
    kernels: Sequence[str],
    lines: Sequence[Line],
    ticks: Mapping[str, float] | None = None,
    size: tuple[float, float] = (5.4, 3.4),
    bars: bool = False,
) -> str:
    """A plot of lines or bars as an SVG element; name, unique in the page, keeps its ids apart from other plots'."""
    matplotlib, figure_of = _matplotlib()
    with matplotlib.rc_context({**_PLOT, "svg.hashsalt": name}):
        # The legend stands below, where it hides nothing.
        figure = figure_of(figsize=(size[0], size[1] + 0.17 * len(lines)), layout="constrained")
        axes = figure.add_subplot()
        for number, line in enumerate(lines):
            colour = _COLOURS[kernels.index(line.kernel) % len(_COLOURS)]
            spread = line.spread if any(line.spread) else None
            # A name that begins with _ would be left out of the legend.
            label = line.kernel.lstrip("_") or "?"
            if bars:
                width = 0.8 / len(lines)
                x = [spot + (number + 0.5) * width - 0.4 for spot in line.x]
                axes.bar(x, line.y, width * 0.95, yerr=spread, color=colour, ecolor="#777777", label=label, capsize=2)
            else:
                axes.errorbar(
                    line.x, line.y, yerr=spread, color=colour, label=label, marker="o", ms=3, lw=1.3, capsize=2
                )
        axes.set_title(title)
        axes.set_xlabel(axis)
        if ticks:
            axes.set_xticks(list(ticks.values()), list(ticks))
            if bars:
                # One bar alone would be a wall.
                room = 0.6 if len(ticks) > 1 else 1.2
                axes.set_xlim(-room, len(ticks) - 1 + room)
                axes.set_axisbelow(True)
        if min(y for line in lines for y in line.y) >= 0:
            # From nothing, with some room above what is level.
            axes.set_ylim(0, max(axes.get_ylim()[1], 1.06 * max(y for line in lines for y in line.y)))
        axes.grid(alpha=0.25)
        return _finish(figure, name, title)


def shares(name: str, title: str, columns: Mapping[str, Mapping[str, float]], rows: Sequence[str]) -> str:
    """Horizontal bars: for each row the columns' percentages below each other, the first row on top."""
    matplotlib, figure_of = _matplotlib()
    height = 0.8 / len(columns)
    with matplotlib.rc_context({**_PLOT, "svg.hashsalt": name}):
        figure = figure_of(figsize=(7.2, 0.8 + len(rows) * (0.1 + 0.12 * len(columns))), layout="constrained")
        axes = figure.add_subplot()
        for number, (column, own) in enumerate(columns.items()):
            y = [spot + (number + 0.5) * height - 0.4 for spot in range(len(rows))]
            widths = [own.get(row, 0.0) for row in rows]
            colour = _COLOURS[number % len(_COLOURS)]
            axes.barh(y, widths, height * 0.95, color=colour, label=column.lstrip("_") or "?")
        axes.set_title(title)
        axes.set_yticks(range(len(rows)), rows)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_axisbelow(True)
        axes.grid(axis="x", alpha=0.25)
        return _finish(figure, name, title)


def _finish(figure: Any, name: str, title: str) -> str:
    """The figure with its legend as an svg element."""
    figure.legend(loc="outside lower center", fontsize=8, frameon=False)
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    return _inline(drawn.getvalue(), re.sub(r"[^A-Za-z0-9]+", "-", name), title)


def _inline(svg: str, prefix: str, title: str) -> str:
    """The svg element alone: no prologue, no metadata that names other sites, ids that occur once in the page."""
    body = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{prefix}-', body)
    body = re.sub(r'href="#', f'href="#{prefix}-', body)
    body = body.replace("url(#", f"url(#{prefix}-")
    return body.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1)


def _matplotlib() -> tuple[Any, Callable[..., Any]]:
    """matplotlib and its Figure, which take a second to load; drawing never needs a display."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    figure_of: Callable[..., Any] = importlib.import_module("matplotlib.figure").Figure
    return matplotlib, figure_of
