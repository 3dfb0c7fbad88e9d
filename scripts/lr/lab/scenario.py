# SPDX-License-Identifier: GPL-2.0-only
"""A scenario of the lab: one TOML file in bench/scenarios that names topology, disks, workload and metrics.

The file's keys are the fields of Scenario; bench/workloads/README.md tells what a workload prints.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from lr.layout import Layout
from lr.ui import Fail

Better = Literal["higher", "lower", "neither"]
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*$")


@dataclass(frozen=True)
class Machine:
    """The guest; us is what a round of lockstep is on its clock: 50 are a CPU of 100 million instructions a second.

    icount: its clock counts instructions, one a nanosecond; for one CPU, as they take turns then. Without lockstep.
    dma32_mib: so much of a node's memory lies below 4 GiB, in zone DMA32, and the rest in zone Normal; 0: all below.
    """

    cpus: int = 4
    mib: int = 1024
    nodes: int = 1
    us: int = 250
    icount: bool = False
    append: tuple[str, ...] = ()
    dma32_mib: int = 0


@dataclass(frozen=True)
class ScratchDisk:
    """A disk of the guest; fs "blank" leaves it unformatted, bps limits bytes a second (0: unlimited)."""

    name: str
    mib: int
    fs: str = "blank"
    bps: int = 0


@dataclass(frozen=True)
class Variant:
    """One way to run a scenario: its LRU, its guest, and what its workload finds in the environment.

    quick: a quick run takes it too. named: only a run that names it takes it.
    """

    name: str
    machine: Machine
    lru_gen: bool
    env: Mapping[str, str]
    quick: bool
    named: bool = False


@dataclass(frozen=True)
class Metric:
    """A value of each point, from the workload or from lockstep; digits after the decimal point in tables.

    of: the value's name, if not the metric's own; per: the value that it is divided by, as in KiB a round; times: a
    factor, as for percent. Both may be metrics that come before. resolution: the least difference that can be measured,
    if it is more than the last digit.
    """

    name: str
    title: str
    of: str = ""
    per: str = ""
    times: float = 1.0
    better: Better = "neither"
    digits: int = 0
    resolution: float = 0.0
    plot: bool = False

    def value(self, values: Mapping[str, float]) -> float | None:
        """The metric of a point with these values; None if one that is needed was not measured, or is 0 below."""
        found = values.get(self.of or self.name)
        if found is None or not self.per:
            return found if found is None else found * self.times
        base = values.get(self.per)
        return found * self.times / base if base else None


@dataclass(frozen=True)
class Bar:
    """What a sample must show, or it is none: a metric at point x is low to high times the same at point base."""

    metric: str
    x: str
    base: str
    low: float
    high: float


@dataclass(frozen=True)
class SeedTable:
    """Figures that a seed gives, shown beside ours."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Scenario:
    """One scenario; points are what the axis runs over, all of them in one boot of the guest.

    beside is what a point takes beyond its seconds, for estimates of boots that were never timed. once: it says
    something about the lab and nothing about kernels, so that a run of several scenarios takes one sample of it.
    """

    name: str
    title: str
    about: str
    seed: str
    workload: str
    axis: str
    points: tuple[str, ...]
    quick_points: tuple[str, ...]
    seconds: int
    quick_seconds: int
    metrics: tuple[Metric, ...]
    variants: tuple[Variant, ...]
    disks: tuple[ScratchDisk, ...] = ()
    programs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    vmstat: tuple[str, ...] = ()
    seed_tables: tuple[SeedTable, ...] = ()
    bars: tuple[Bar, ...] = ()
    timeout: int = 900
    beside: int = 5
    once: bool = False


def _take(where: str, kind: type[Any], table: Mapping[str, Any]) -> Any:
    """An instance of a dataclass from a TOML table; a key it does not know is an error, lists become tuples."""
    known = {field.name for field in fields(kind)}
    for key in table:
        if key not in known:
            raise Fail(f"{where}: key {key} is not known; there are {', '.join(sorted(known))}")
    try:
        return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in table.items()})
    except TypeError as exc:
        raise Fail(f"{where}: {str(exc).replace('__init__() ', '')}") from exc


def parse(name: str, text: str) -> Scenario:
    """A scenario from its file's text."""
    where = f"bench/scenarios/{name}.toml"
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise Fail(f"{where}: {exc}") from exc
    base = _take(f"{where}: machine", Machine, table.pop("machine", {}))
    variants = []
    for key, raw in table.pop("variants", {}).items():
        if not _NAME.match(key):
            raise Fail(f"{where}: variant {key}: use small letters, digits and -")
        own = dict(raw)
        lru, quick = own.pop("lru_gen", "on"), own.pop("quick", True)
        if lru not in ("on", "off"):
            raise Fail(f"{where}: variant {key}: lru_gen is {lru}; write on or off")
        named = own.pop("named", False)
        env = {str(word): str(value) for word, value in own.pop("env", {}).items()}
        machine = replace(base, **vars(_take(f"{where}: variant {key}", Machine, {**vars(base), **own})))
        variants.append(Variant(key, machine, lru == "on", env, bool(quick), bool(named)))
    if not variants:
        raise Fail(f"{where}: it has no [variants.NAME]")
    metrics = tuple(_take(f"{where}: metric", Metric, raw) for raw in table.pop("metric", []))
    disks = tuple(_take(f"{where}: disk", ScratchDisk, raw) for raw in table.pop("disk", []))
    seeds = []
    for raw in table.pop("seed_table", []):
        rows = tuple(tuple(str(cell) for cell in row) for row in raw.get("rows", []))
        seeds.append(_take(f"{where}: seed_table", SeedTable, {**raw, "rows": rows}))
    table.setdefault("quick_points", table.get("points", []))
    table.setdefault("quick_seconds", table.get("seconds", 0))
    whole = {"name": name, "metrics": metrics, "disks": disks, "variants": tuple(variants), "seed_tables": tuple(seeds)}
    whole["bars"] = tuple(_take(f"{where}: bar", Bar, raw) for raw in table.pop("bar", []))
    found: Scenario = _take(where, Scenario, {**table, **whole})
    if not found.points or not set(found.quick_points) <= set(found.points):
        raise Fail(f"{where}: points is empty, or quick_points names one that points lacks")
    return found


def points_of(scenario: Scenario, variant: Variant, quick: bool) -> tuple[str, ...]:
    """What the axis runs over. A variant's env may have points of its own (POINTS), or leave some out (ONLY)."""
    own = variant.env.get("POINTS")
    points = scenario.quick_points if quick else tuple(own.split()) if own else scenario.points
    only = variant.env.get("ONLY")
    return tuple(point for point in points if point in only.split()) if only else points


def load_all(layout: Layout) -> dict[str, Scenario]:
    """All scenarios by name, in the order of their file names."""
    found = {}
    for path in sorted((layout.root / "bench" / "scenarios").glob("*.toml")):
        found[path.stem] = parse(path.stem, path.read_text())
    return found
