# SPDX-License-Identifier: GPL-2.0-only
"""Tests of lr.lab.stats, lr.lab.tables and lr.lab.report on recorded samples."""

from __future__ import annotations

import json
import random
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from lr.lab import kernels, nulltest, plots, profile, report, stats, tables
from lr.lab.sample import Point, Sample, read_all, write
from lr.lab.scenario import Scenario, parse
from lr.layout import Layout, here
from lr.ui import Fail

TOML = """
title = "Readers & kswapd"
about = "Reads <fast>."
seed = "shared/seeds/3-threads.txt"
workload = "readers"
axis = "readers"
points = ["1", "3", "7"]
seconds = 15
vmstat = ["pgscan_kswapd", "allocstall", "pgscan_direct", "nr_vmscan_write"]
[[metric]]
name = "kib"
title = "KiB/s"
better = "higher"
plot = true
[[metric]]
name = "stalls"
title = "allocstall"
better = "lower"
[[metric]]
name = "lost"
title = "never printed"
[[seed_table]]
title = "Test #3"
columns = ["dd", "sy"]
rows = [[10, 4], [90, 43]]
[variants.classic]
lru_gen = "off"
[variants.mglru]
"""
# scenario, kernel, pair, digest, then a point's values, vmstat and series
RECORDED = """
[["stock", 0, "d", {"1": [{"kib": 100, "stalls": 0}, {"pgscan_kswapd": 10, "allocstall_normal": 3}, {}],
                    "3": [{"kib": 300, "stalls": 1859}, {"pgscan_kswapd": 50}, {"eff": [[0, 1], [1, 0.5]]}]}],
 ["stock", 1, "d", {"1": [{"kib": 104, "stalls": 0}, {"pgscan_kswapd": 14, "allocstall_dma32": 2}, {}],
                    "3": [{"kib": 310, "stalls": 1900}, {"pgscan_kswapd": 50}, {"eff": [[0, 9], [1, 9]]}]}],
 ["stock", 2, "d", {"1": [{"kib": 102, "stalls": 0}, {"pgscan_kswapd": 12}, {}],
                    "3": [{"kib": 305, "stalls": 1880}, {"pgscan_kswapd": 50}, {}]}],
 ["series", 0, "e", {"1": [{"kib": 101, "stalls": 0}, {"pgscan_kswapd": 12}, {}],
                     "3": [{"kib": 600, "stalls": 20}, {}, {"eff": [[0, 1], [1, 0.9]]}]}],
 ["series", 1, "e", {"1": [{"kib": 103, "stalls": 0}, {"pgscan_kswapd": 12}, {}],
                     "3": [{"kib": 610, "stalls": 25}, {}, {}]}],
 ["series", 2, "e", {"1": [{"kib": 102}, {"pgscan_kswapd": 12}, {}]}]]
"""


@pytest.fixture
def scenario() -> Scenario:
    return parse("kswapd-scaling", TOML)


def keep(folder: Path, recorded: str = RECORDED, notes: tuple[str, ...] = ("one node only",)) -> list[Sample]:
    for kernel, pair, digest, raw in json.loads(recorded):
        points = tuple(Point(x, *parts) for x, parts in raw.items())
        write(
            folder,
            Sample("kswapd-scaling", "classic", kernel, pair, digest, f"2030-01-0{pair + 1}", 9.0, points, notes),
        )
    return read_all(folder)


# A kernel that ran one point, "1", in as many pairs as there are values.
def simple(kernel: str, values: Sequence[Mapping[str, float]], digest: str = "d") -> list[Sample]:
    return [
        Sample("kswapd-scaling", "classic", kernel, pair, digest, f"2030-01-0{pair + 1}", 1.0, (Point("1", one),))
        for pair, one in enumerate(values)
    ]


def test_means_and_deviation() -> None:
    assert stats.mean([1, 2, 6]) == 3
    assert stats.harmonic_mean([40, 60]) == 48
    assert stats.harmonic_mean([0, 5]) == 0
    assert stats.deviation([2, 4]) == pytest.approx(2**0.5)
    assert stats.deviation([2]) is None


def test_percent_is_positive_where_better() -> None:
    assert stats.percent(200, 250, "higher") == 25
    assert stats.percent(200, 250, "lower") == -25
    assert stats.percent(-200, -100) == 50
    assert stats.percent(0, 0) == 0
    assert stats.percent(0, 5) is None


def test_no_p_value_where_nothing_can_be_said() -> None:
    assert stats.p_value([1], [2, 3]) is None
    assert stats.p_value([7, 7, 7], [7, 7, 7]) is None
    assert stats.p_value([7, 7], [900, 900]) is None


def test_welch() -> None:
    # By hand: t = 3 / sqrt(2) with 2 degrees of freedom, for which p is 1 - t / sqrt(t^2 + 2).
    assert stats.p_value([1, 3], [4, 6]) == pytest.approx(0.167950, abs=1e-6)
    # Variances 1 and 4: t = 3 / sqrt(5/3) with 2.941 degrees of freedom; its density integrated in small steps.
    assert stats.p_value([1, 2, 3], [3, 5, 7]) == pytest.approx(0.104479, abs=1e-6)
    assert (stats.p_value([0, 0, 0], [1000, 1000, 1000]) or 1) < 1e-6
    assert (stats.p_value([100] * 5, [101] * 5) or 0) > 0.05
    assert (stats.p_value([1.0] * 5, [1.1] * 5, resolution=0.01) or 1) < 0.01


def test_no_side_is_known_better_than_the_resolution() -> None:
    same = stats.p_value([5, 5, 5], [6, 6, 6])
    # Means 1 apart, deviations of 1: t = 1 / sqrt(2/3) with 4 degrees of freedom.
    assert same == pytest.approx(0.287864, abs=1e-6)
    assert stats.p_value([5, 5, 5], [6, 6, 6.0001]) == pytest.approx(same, abs=1e-4)
    assert (stats.p_value([5, 5, 5], [6, 6, 6.0001], resolution=0.1) or 1) < 0.01


def test_a_metric_is_known_to_its_resolution(scenario: Scenario) -> None:
    samples = simple("stock", [{"kib": 500}] * 3) + simple("series", [{"kib": 750}] * 3)
    for resolution, verdict in ((0.0, "better"), (250.0, "")):
        own = replace(scenario, metrics=(replace(scenario.metrics[0], resolution=resolution),))
        assert [one.verdict for one in tables.comparisons(own, samples, ["stock", "series"])] == [verdict]


def test_holm() -> None:
    assert stats.holm([0.01, None, 0.04, 0.03]) == [pytest.approx(0.03), None, pytest.approx(0.06), pytest.approx(0.06)]
    assert stats.holm([0.9, 0.8]) == [1.0, 1.0]
    assert stats.holm([]) == []


def test_null_keeps_the_family_error() -> None:
    rng = random.Random(7)

    def gauss() -> list[float]:
        return [rng.gauss(100, 5) for _ in range(5)]

    false = 0
    for _ in range(100):
        found = [stats.p_value(gauss(), gauss()) for _ in range(20)]
        false += any(p is not None and p < stats.ALPHA for p in stats.holm(found))
    # At most 5 of 100, and three deviations of chance; without the correction it would be about 64.
    assert false <= 5 + 3 * 2.2


def test_table(scenario: Scenario, tmp_path: Path) -> None:
    text = tables.render(scenario, keep(tmp_path), ["stock", "series", "ablated:x"])
    assert "difference against stock" in text
    assert "== classic: 4 CPUs, 1024 MiB, 1 node, classic LRU" in text
    assert "mglru" not in text
    assert re.findall(r"\S+", text.split("pairs  ")[1].splitlines()[0]) == ["3", "3", "0"]
    # Harmonic means: 101.974 and 101.993, 304.945 and 604.959; a kernel without samples is a dash.
    assert re.search(
        r"Hmean +KiB/s 1 +more +102 +\+-2\.0% \(  0\.00%\) +102 +\+-1\.0% \( \+0\.02%\) +-$", text, re.MULTILINE
    )
    assert re.search(
        r"Hmean +KiB/s 3 +more +305 +\+-1\.7% \(  0\.00%\) +605 +\+-0\.8% \(\+98\.38%\)\* +-$", text, re.MULTILINE
    )
    # Fewer is better, so a fall is positive.
    assert re.search(
        r"Amean +allocstall 3 +less +1880 +\+-1\.1% \(  0\.00%\) +22 \+-11\.1% \(\+98\.80%\)\* +-$", text, re.MULTILINE
    )
    assert "not measured: readers 7, never printed" in text
    assert "the seed's figures, 3-threads.txt: Test #3\ndd  sy\n10   4\n90  43\n" in text
    assert text.endswith("\nnote: one node only (6 of 6 samples)\n")
    assert not [line for line in text.splitlines() if line != line.rstrip()]


def test_vmstat_sums_zones_and_tells_missing_from_zero(scenario: Scenario, tmp_path: Path) -> None:
    text = tables.render(scenario, keep(tmp_path), ["stock", "series"])
    vmstat = text.split("vmstat (not tested)\n")[1]
    assert re.search(r"pgscan_kswapd 3 +50 +\+-0\.0% \( +0\.00%\) +-$", vmstat, re.MULTILINE)
    assert re.search(r"allocstall 1 +1\.7 \+-100\.0% \( +0\.00%\) +0\.0 +\(-100\.00%\)$", vmstat, re.MULTILINE)
    assert "did not move, or are unknown to these kernels: pgscan_direct, nr_vmscan_write" in vmstat
    assert "*" not in vmstat.split("\n\n")[0]


def test_comparisons(scenario: Scenario, tmp_path: Path) -> None:
    found = {(c.metric, c.x): c for c in tables.comparisons(scenario, keep(tmp_path), ["stock", "series"])}
    assert {key: one.verdict for key, one in found.items()} == {
        ("kib", "1"): "",
        ("kib", "3"): "better",
        ("stalls", "1"): "",
        ("stalls", "3"): "better",
    }
    # Three comparisons have a p; the smallest is multiplied by three.
    known = sorted((one.p, one.corrected) for one in found.values() if one.p is not None)
    assert len(known) == 3 and known[0][1] == pytest.approx(known[0][0] * 3)
    assert found["stalls", "1"].p is None


def test_stock_against_stock_shows_nothing(scenario: Scenario) -> None:
    rng = random.Random(3)
    samples = []
    for kernel in ("stock", "stock~2"):
        samples += simple(kernel, [{"kib": rng.gauss(500, 20), "stalls": rng.randrange(90, 110)} for _ in range(5)])
    assert not [c for c in tables.comparisons(scenario, samples, ["stock", "stock~2"]) if c.verdict]
    assert "*" not in tables.render(scenario, samples, ["stock", "stock~2"]).split("== ")[1]


def test_the_null_test_fails_where_something_differs(scenario: Scenario) -> None:
    rng = random.Random(5)
    samples = simple("stock", [{"kib": rng.gauss(500, 5), "stalls": rng.gauss(90, 9)} for _ in range(5)])
    samples += simple("stock~2", [{"kib": rng.gauss(400, 4), "stalls": rng.gauss(90, 9)} for _ in range(5)])
    verdict = nulltest.judge(tables.comparisons(scenario, samples, ["stock", "stock~2"]))
    assert not verdict.holds and [each.metric for each in verdict.ghosts] == ["kib"]
    told = nulltest.render(verdict)
    assert told.startswith("null test FAILED: of 2 comparisons ")
    assert "\n  remains: kswapd-scaling classic, stock~2: kib, 1: p " in told


def ghostly(rng: random.Random) -> list[tables.Comparison]:
    """A whole run that compares equal things: 14 tables of 20 figures, 5 pairs each."""
    found = []
    for table in range(14):
        p = [
            stats.p_value([rng.gauss(9, 1) for _ in range(5)], [rng.gauss(9, 1) for _ in range(5)], 0.01)
            for _ in range(20)
        ]
        for spot, (one, corrected) in enumerate(zip(p, stats.holm(p), strict=True)):
            verdict: tables.Verdict = "changed" if corrected is not None and corrected < stats.ALPHA else ""
            found.append(tables.Comparison("s", str(table), str(spot), "1", "k~2", 0.0, one, corrected, verdict))
    return found


def test_the_null_test_allows_what_chance_alone_marks() -> None:
    """Some tables in 100 runs have a mark by chance; the whole run fails far more seldom."""
    rng = random.Random(11)
    verdicts = [nulltest.judge(ghostly(rng)) for _ in range(20)]
    assert all(len(verdict.tested) == 280 and verdict.expected == 14 for verdict in verdicts)
    # Uncorrected, one figure in twenty: Welch with 5 a side is a little on the safe side.
    assert 0.035 < sum(verdict.low for verdict in verdicts) / (20 * 280) < 0.055
    # 20 runs of 14 tables, at most 5% each: 14 marks, and three deviations.
    assert 1 < sum(len(verdict.marked) for verdict in verdicts) < 14 + 11
    assert sum(not verdict.holds for verdict in verdicts) <= 4


def test_the_null_test_without_pairs_has_no_verdict(scenario: Scenario) -> None:
    samples = simple("stock", [{"kib": 5}]) + simple("stock~2", [{"kib": 6}])
    verdict = nulltest.judge(tables.comparisons(scenario, samples, ["stock", "stock~2"]))
    assert not verdict.holds and not verdict.ghosts
    assert nulltest.render(verdict).startswith("null test: no verdict, nothing could be tested")


def test_which_columns_are_the_first_kernel_again() -> None:
    assert nulltest.twins(kernels.parse("stock series stock stock:a=1")) == {"stock~2"}
    assert nulltest.twins(kernels.parse("series:a=1 stock series:a=1")) == {"series:a=1~2"}


def test_only_what_was_asked_for_can_be_missing() -> None:
    found = parse("kswapd-scaling", TOML.replace('lru_gen = "off"', 'lru_gen = "off"\nenv = { ONLY = "1 7" }'))
    text = tables.render(found, simple("stock", [{"kib": 5, "stalls": 1, "lost": 2}]), ["stock"])
    assert "not measured: readers 7\n" in text


def test_quick_samples_count_only_alone(scenario: Scenario) -> None:
    quick = [replace(one, quick=True, started="2031") for one in simple("stock", [{"kib": 1}], "q")]
    text = tables.render(scenario, quick + simple("stock", [{"kib": 100}]), ["stock"])
    assert re.search(r"KiB/s 1 +more +100 \(0\.00%\)$", text, re.MULTILINE)
    assert "note: classic, stock: 1 samples of quick runs are left out" in text
    assert re.search(r"KiB/s 1 +more +1 \(0\.00%\)$", tables.render(scenario, quick, ["stock"]), re.MULTILINE)


def test_one_pair_needs_no_scipy(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    samples = simple("stock", [{"kib": 5}]) + simple("series", [{"kib": float("nan"), "stalls": 4}])
    text = tables.render(scenario, samples, ["stock", "series"])
    assert re.search(r"KiB/s 1 +more +5 \(0\.00%\) +-$", text, re.MULTILINE)
    assert re.search(r"allocstall 1 +less +- +4 \( +-\)$", text, re.MULTILINE)


def test_samples_of_older_code_are_left_out(scenario: Scenario) -> None:
    old = simple("stock", [{"kib": 1}], "old")
    new = [one for one in simple("stock", [{}, {"kib": 100}], "new") if one.pair == 1]
    text = tables.render(scenario, old + new, ["stock"])
    assert re.search(r"KiB/s 1 +more +100 \(0\.00%\)$", text, re.MULTILINE)
    assert "note: classic, stock: 1 older samples, made by other code or options, are left out" in text


def test_kernels_are_compared_under_the_same_conditions(scenario: Scenario) -> None:
    def column(kernel: str, kib: float, day: str, **words: object) -> list[Sample]:
        return [replace(simple(kernel, [{"kib": kib}])[0], started=day, **words)]  # type: ignore[arg-type]

    same = column("stock", 100, "2031", conditions="new") + column("series", 200, "2030", conditions="new")
    # From before conditions were kept: nothing is known against it.
    same += column("ablated:old", 300, "2029")
    other = column("ablated:x", 400, "2029", conditions="old") + column("ablated:q", 500, "2032", quick=True)
    kept, notes = tables.current(same + other)
    assert kept == same
    assert notes == [
        "classic, ablated:x: 1 older samples, made by other code or options, are left out",
        "classic, ablated:q: 1 samples of quick runs are left out",
    ]


def test_no_samples_at_all(scenario: Scenario) -> None:
    assert "\nno samples\n" in tables.render(scenario, [], ["stock"])


def checkout(tmp_path: Path) -> Layout:
    folder = tmp_path / "bench" / "scenarios"
    folder.mkdir(parents=True)
    (folder / "kswapd-scaling.toml").write_text(TOML)
    return Layout(tmp_path)


def test_report_without_samples(tmp_path: Path) -> None:
    with pytest.raises(Fail, match="run `make bench` first"):
        report.write_page(checkout(tmp_path))


def test_report_names_a_broken_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layout = checkout(tmp_path)
    path = layout.build / "bench" / "kswapd-scaling" / "classic" / "stock" / "0.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    with pytest.raises(Fail, match="run `make bench` first"):
        report.write_page(layout)
    assert f"{path} is no sample" in capsys.readouterr().err


def test_report_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Kept between runs: matplotlib looks through all fonts where it finds no cache.
    monkeypatch.setenv("MPLCONFIGDIR", str(here().build / "matplotlib"))
    layout = checkout(tmp_path)
    bench = layout.build / "bench"
    keep(bench, notes=("a <note>",))
    keep(bench, RECORDED.replace('"series"', '"series:kswapd_threads=4"'), ())
    profiles = layout.build / "profile"
    profiles.mkdir()
    for kernel, waiting in (("stock", {"zone: rmqueue_bulk": 5}), ("series", {})):
        threads = {"readers": {"memset": 60}, "kswapd": {"xas_load": 40}, "swapper": {"hlt": 900}}
        one = profile.Profile("kswapd-scaling", "classic", kernel, "3", 100, threads, [100], waiting)
        (profiles / f"{kernel}.json").write_text(json.dumps(asdict(one)))
    path, scenarios, samples = report.write_page(layout)
    assert (path, scenarios, samples) == (bench / "report.html", 1, 9)
    html = path.read_text()
    assert "Readers &amp; kswapd" in html and "Reads &lt;fast&gt;." in html and "a &lt;note&gt;" in html
    assert '<td class="n better">+98.38%*</td>' in html
    # Two kernels and a plot for KiB/s; efficiency over time was recorded at one point. Two of the profiles.
    drawings = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert len(drawings) == 4
    assert html.index("readers: memset") < html.index("kswapd: xas_load") and "hlt" not in html
    assert "zone: rmqueue_bulk" in html
    for drawing in drawings:
        ET.fromstring(drawing)
    ids = re.findall(r'\bid="([^"]*)"', html)
    assert len(ids) == len(set(ids))
    assert {name[1:] for name in re.findall(r'href="(#[^"]*)"', html)} <= set(ids)
    # Nothing outside is loaded, and each link to a raw sample leads to one.
    assert not re.findall(r'(?:src|href)="(?:https?:|//)', html)
    links = re.findall(r'<a href="([^#"]*)"', html)
    assert len(links) == 9
    for link in links:
        assert (bench / link.replace("%3A", ":").replace("%3D", "=")).is_file()


def test_report_names_a_broken_profile(tmp_path: Path) -> None:
    layout = checkout(tmp_path)
    keep(layout.build / "bench")
    (layout.build / "profile").mkdir()
    (layout.build / "profile" / "a.json").write_text("{}")
    with pytest.raises(Fail, match="a.json is no profile"):
        report.write_page(layout)


def test_report_orders_kernels(tmp_path: Path) -> None:
    samples = keep(tmp_path) + simple("ablated:x", [{"kib": 1}])
    assert report.kernel_order(tmp_path, "kswapd-scaling", samples) == ["stock", "ablated:x", "series"]
    order = tmp_path / "kswapd-scaling" / "order.json"
    order.write_text('["series", "stock"]')
    assert report.kernel_order(tmp_path, "kswapd-scaling", samples) == ["series", "stock", "ablated:x"]
    order.write_text("{}")
    with pytest.raises(Fail, match="order.json"):
        report.kernel_order(tmp_path, "kswapd-scaling", samples)


def test_points_that_are_no_numbers_are_bars(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, list[plots.Line], Mapping[str, float] | None]] = []

    def plot(
        name: str, title: str, axis: str, kernels: Sequence[str], lines: list[plots.Line], *rest: object, **words: bool
    ) -> str:
        seen.append((words["bars"], lines, rest[0]))  # type: ignore[arg-type]
        return ""

    monkeypatch.setattr(report, "plot", plot)
    for points in (("1", "16"), ("read", "mmap")):
        own = replace(scenario, points=points)
        values: list[Mapping[str, float]] = [{"stalls": 1.0}, {"kib": 5.0}]
        both = tuple(Point(x, one) for x, one in zip(points, values, strict=True))
        samples = [replace(simple("stock", [{}])[0], points=both)]
        report.metric_plots(own, tables.build(own, samples, ["stock"])[0])
    assert seen[0][0] is False and seen[0][1][0].x == (16.0,)
    # Only the point that has a value has a place.
    assert seen[1] == (True, [plots.Line("stock", (0.0,), (5.0,), (0.0,))], {"mmap": 0.0})


def test_a_percentage_of_a_rate_is_no_rate(scenario: Scenario) -> None:
    metric = replace(scenario.metrics[0], title="KiB/s spread % of mean")
    own = replace(scenario, metrics=(metric,))
    text = tables.render(own, simple("stock", [{"kib": 0.0}, {"kib": 30.0}]), ["stock"])
    assert re.search(r"Amean +KiB/s spread % of mean 1 +more +15 ", text, re.MULTILINE)
