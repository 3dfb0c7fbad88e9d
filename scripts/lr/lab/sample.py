# SPDX-License-Identifier: GPL-2.0-only
"""Raw samples: what one boot of a guest measured, as JSON under build/bench/SCENARIO/VARIANT/KERNEL/PAIR.json.

Those of quick runs are quick-PAIR.json: a look at something must not cost a long run its samples.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from lr.files import whole
from lr.lab.scenario import Metric
from lr.ui import Fail, notice


@dataclass(frozen=True)
class Point:
    """One point of the axis: values the workload printed, /proc/vmstat's differences, and (seconds, value) series."""

    x: str
    values: Mapping[str, float]
    vmstat: Mapping[str, float] = field(default_factory=dict)
    series: Mapping[str, list[tuple[float, float]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """One run of one scenario on one kernel. digest says what it depends on: image, scenario, workload, options.

    conditions is the same without the kernel and its settings ("": recorded before that was kept).
    seconds is what the boot took, seconds_each how long it measured at each point (0: recorded before that was kept).
    """

    scenario: str
    variant: str
    kernel: str
    pair: int
    digest: str
    started: str
    seconds: float
    points: tuple[Point, ...]
    notes: tuple[str, ...] = ()
    quick: bool = False
    seconds_each: int = 0
    conditions: str = ""


def read_points(output: str) -> tuple[tuple[Point, ...], tuple[str, ...]]:
    """The points and notes in a workload's output; lines that are not `@...` are for people."""
    values: dict[str, dict[str, float]] = {}
    vmstat: dict[str, dict[str, float]] = {}
    series: dict[str, dict[str, list[tuple[float, float]]]] = {}
    notes: list[str] = []
    for line in output.splitlines():
        words = line.split()
        if not words:
            continue
        try:
            if words[0] == "@value" and len(words) == 4:
                values.setdefault(words[1], {})[words[2]] = float(words[3])
            elif words[0] == "@vmstat" and len(words) == 4:
                vmstat.setdefault(words[1], {})[words[2]] = float(words[3])
            elif words[0] == "@series" and len(words) == 5:
                spot = (float(words[3]), float(words[4]))
                series.setdefault(words[1], {}).setdefault(words[2], []).append(spot)
            elif words[0] == "@note":
                notes.append(" ".join(words[1:]))
        except ValueError:
            notes.append(f"not a number: {line}")
    points = [Point(x, values[x], vmstat.get(x, {}), series.get(x, {})) for x in values]
    return tuple(points), tuple(notes)


def path_of(folder: Path, scenario: str, variant: str, kernel: str, pair: int, quick: bool = False) -> Path:
    """Where a sample lies; a kernel's settings become part of its folder's name, which QEMU takes without a comma."""
    name = kernel.replace("/", "_").replace(",", "+")
    return folder / scenario / variant / name / f"{'quick-' if quick else ''}{pair}.json"


def write(folder: Path, sample: Sample) -> Path:
    """Keep a sample; whole or not at all. One that is there already, of another state, is kept beside it."""
    path = path_of(folder, sample.scenario, sample.variant, sample.kernel, sample.pair, sample.quick)
    if path.exists():
        old = [int(each.suffix.removeprefix(".old-")) for each in path.parent.glob(f"{path.stem}.old-*")]
        path.rename(path.with_name(f"{path.stem}.old-{max(old, default=0) + 1}"))
    with whole(path) as part:
        part.write_text(json.dumps(asdict(sample), indent=1, sort_keys=True) + "\n")
    return path


def read(path: Path) -> Sample:
    """A kept sample."""
    try:
        raw = json.loads(path.read_text())
        points = []
        for point in raw.pop("points"):
            series = {name: [(float(t), float(v)) for t, v in spots] for name, spots in point.pop("series").items()}
            points.append(Point(**point, series=series))
        return Sample(**{**raw, "points": tuple(points), "notes": tuple(raw["notes"])})
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as exc:
        raise Fail(f"{path} is no sample ({exc}); `make bench` measures it again") from exc


def derived(metrics: Sequence[Metric], point: Point) -> Point:
    """The point with the metrics that are made of its values; samples hold raw values, so that metrics may change."""
    values = dict(point.values)
    for metric in metrics:
        found = metric.value(values)
        if found is not None:
            values[metric.name] = found
    return replace(point, values=values)


def read_all(folder: Path, scenario: str | None = None) -> list[Sample]:
    """All kept samples, of one scenario or of all, in the order of their paths.

    One that cannot be read is named and left out.
    """
    found = []
    for path in sorted(folder.glob(f"{scenario or '*'}/*/*/*.json")):
        try:
            found.append(read(path))
        except Fail as exc:
            notice(str(exc))
    return found
