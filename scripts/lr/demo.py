# SPDX-License-Identifier: GPL-2.0-only
"""The verb `demo`: both kernels from nothing, and a tour of what the series does, stock and ours side by side."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path

from lr import build, guest
from lr.guest import Outcome, Spec
from lr.lab.kernels import programs
from lr.layout import Layout, here
from lr.options import env, number
from lr.stations import STATIONS, Station
from lr.ui import Progress, clock, say

_WORD = re.compile(r"(\w+)=(\S+)")


def words_of(output: str) -> dict[str, str]:
    """All name=value words; the last one counts where a name comes twice."""
    return dict(_WORD.findall(output))


def screen(number_: int, station: Station, first: Mapping[str, str], second: Mapping[str, str]) -> str:
    """One station on one screen."""
    label = max(len(name) for name, _ in station.columns)
    left, right = (side.head for side in station.sides)
    column = max(12, *(len(text(first)) for _, text in station.columns))
    lines = ["", f"{number_}. {station.title}", "=" * (len(station.title) + 3), "", "What was done", ""]
    lines += [f"  {line}" for line in station.done.splitlines()]
    lines += ["", f"  {'':{label}}  {left:{column}}  {right}", f"  {'-' * label}  {'-' * column}  {'-' * 12}"]
    lines += [f"  {name:{label}}  {text(first):{column}}  {text(second)}" for name, text in station.columns]
    return "\n".join([*lines, ""])


def main(argv: list[str]) -> int:
    """Build both, run the stations; 1 when the series does not do what a station shows."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument(
        "--timeout", default=env("TIMEOUT", "0"), help="seconds one guest may take; default the station's"
    )
    options = parser.parse_args(argv)
    timeout = number("TIMEOUT", options.timeout, 0, 86400)
    layout = here()
    whole = Progress("demo")
    built = {name: build.ensure(layout, name).image for name in ("series", "stock")}
    build.selftests(layout)
    programs(layout, ["readers"])
    with guest.folder_of(layout) as folder:
        # Another make may build meanwhile, and the two sides would be of different kernels.
        bad = tour(layout, {name: build.keep(image, folder, name) for name, image in built.items()}, timeout)
    say(f"demo: {len(STATIONS) - bad} of {len(STATIONS)} stations as they should be, in {clock(whole.elapsed())}")
    say("Next: `make boot` for a shell in the series kernel, `make test` for its tests.")
    return 1 if bad else 0


def tour(layout: Layout, images: Mapping[str, Path], timeout: int) -> int:
    """Run the stations and show them; how many are not as they should be."""
    bad = 0
    for index, station in enumerate(STATIONS, start=1):
        told: list[dict[str, str]] = []
        troubles: list[str] = []
        for side in station.sides:
            with Progress(f"station {index} of {len(STATIONS)}, {station.title}: {side.head}"):
                wanted = Spec(images[side.kernel], disks=station.disks, timeout=timeout or station.timeout)
                outcome = guest.run(layout, wanted, f"{side.environment} {station.command}".strip())
            told.append(words_of(outcome.output))
            if why := trouble(outcome, side is station.sides[1]):
                troubles.append(f"{side.head}: {why}")
        say(screen(index, station, told[0], told[1]))
        for why in troubles:
            say(why)
        bad += bool(troubles) or not station.good(told[1])
    return bad


def trouble(outcome: Outcome, ours: bool) -> str:
    """Why a side shows nothing, whatever it printed; empty: it does. Only ours must succeed: stock fails its test."""
    if outcome.ended != "exited":
        return outcome.story()
    if words_of(outcome.output) and not (ours and outcome.status):
        return ""
    tail = "\n  ".join(outcome.output.strip().splitlines()[-5:])
    return f"the command ended with status {outcome.status}: {tail}"
