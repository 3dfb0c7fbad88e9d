# SPDX-License-Identifier: GPL-2.0-only
"""The lab's harness: scenario files, kernels named, the order of runs, resuming, being stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from lr import ablate, build, compose
from lr.guest import Disk, Outcome, Spec
from lr.lab import estimate, kernels, runner, sample, scenario
from lr.lab.kernels import Kernel
from lr.lab.lockstep import Lockstep
from lr.lab.qemu import Emulator
from lr.lab.runner import Job, Options
from lr.lab.sample import Point, Sample
from lr.layout import Layout
from lr.ui import Fail, Progress, clock

LOCKSTEP = Lockstep(Emulator(Path("/q/qemu"), (Path("/q/data"),), "QEMU emulator version 10.0.2"), Path("/p.so"), "d")

TEXT = """
title = "t"
about = "a"
seed = "s"
workload = "w.sh"
axis = "n"
points = ["1", "3"]
quick_points = ["3"]
seconds = 4
[machine]
cpus = 2
mib = 256
[[metric]]
name = "kib"
title = "KiB"
better = "higher"
[variants.a]
lru_gen = "off"
env = { MODE = "read" }
[variants.b]
quick = false
nodes = 2
"""


def one_scenario() -> scenario.Scenario:
    return scenario.parse("toy", TEXT)


def one_sample(job: Job, digest: str) -> Sample:
    where = (job.scenario.name, job.variant.name, job.kernel.label, job.pair)
    return Sample(*where, digest, "now", 1.0, (Point("1", {"kib": 1.0}, {}, {"e": [(1.0, 2.0)]}),), ("n",))


def test_a_scenario_file() -> None:
    found = one_scenario()
    assert [variant.name for variant in found.variants] == ["a", "b"]
    assert (found.variants[0].lru_gen, found.variants[1].lru_gen) == (False, True)
    assert (found.variants[0].machine.nodes, found.variants[1].machine.nodes) == (1, 2)
    assert found.quick_seconds == 4


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("mib = 256", "megs = 256", "key megs is not known"),
        ('lru_gen = "off"', 'lru_gen = "no"', "lru_gen is no"),
        ("axis =", "# axis =", "axis"),
        ('quick_points = ["3"]', 'quick_points = ["4"]', "quick_points"),
        ("[variants.a]", "[variants.A]", "variant A"),
        ("title = ", "title ", "toy.toml"),
    ],
)
def test_a_bad_scenario_file_is_named(old: str, new: str, told: str) -> None:
    with pytest.raises(Fail, match=told):
        scenario.parse("toy", TEXT.replace(old, new, 1))


def test_the_scenarios_of_the_repository_can_be_read() -> None:
    root = Path(__file__).resolve().parents[1]
    for found in scenario.load_all(Layout(root)).values():
        assert (root / "bench" / "workloads" / found.workload).exists()
        assert all((root / "bench" / "workloads" / f"{name}.c").exists() for name in found.programs)
        assert any(variant.quick for variant in found.variants)


def test_latencies_are_known_to_a_round_only() -> None:
    for found in scenario.load_all(Layout(Path(__file__).resolve().parents[1])).values():
        us = max(variant.machine.us for variant in found.variants)
        for metric in found.metrics:
            # The clock of the guest that measures irqs_* counts instructions, not rounds.
            if metric.name.endswith("_us") and not metric.per and not metric.name.startswith("irqs_"):
                assert metric.resolution >= us, f"{found.name}: {metric.name} needs resolution = {us}"


def test_kernels_named() -> None:
    found = kernels.parse("stock series:kswapd_threads=4,swappiness=10 ablated:a-b stock")
    assert [kernel.label for kernel in found][::3] == ["stock", "stock~2"]
    assert found[1] == Kernel("series:kswapd_threads=4,swappiness=10", "series", ("kswapd_threads=4", "swappiness=10"))
    assert found[2].what == "ablated:a-b"
    for bad in ("", "mine", "series:x", "series:a=b", "stock;rm"):
        with pytest.raises(Fail, match="KERNELS"):
            kernels.parse(bad)


def test_an_unknown_ablation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Fail, match="ablated:nope: no such ablation"):
        kernels.images(Layout(tmp_path), kernels.parse("ablated:nope"))


def test_all_kernels_are_built_from_the_same_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(tmp_path)
    image = tmp_path / "obj/arch/x86/boot/bzImage"
    image.parent.mkdir(parents=True)
    (tmp_path / "obj/System.map").write_text("map")
    (tmp_path / "series/one/ablations").mkdir(parents=True)
    (tmp_path / "series/one/ablations/a.patch").write_text("Ablation: a\nCaught-by: kunit a\n")
    said: list[str] = []

    def made(what: str) -> Path:
        said.append(what)
        image.write_text(what)
        return image

    monkeypatch.setattr(compose, "ensure_tree", lambda _: said.append("tree"))
    monkeypatch.setattr(build, "ensure", lambda _, what: build.Target(what, tmp_path, tmp_path / "obj", made(what)))
    monkeypatch.setattr(ablate, "image", lambda _, ablation: made(ablation.mechanism))
    found = kernels.images(layout, kernels.parse("ablated:a stock:x=1 stock"))
    assert said == ["tree", "a", "stock"]
    assert {what: path.read_text() for what, path in found.items()} == {"ablated:a": "a", "stock": "stock"}
    assert kernels.system_map(found["stock"]).read_text() == "map" and found["ablated:a"].name.startswith("ablated-a-")
    kernels.images(layout, kernels.parse("stock"))
    assert said[3] == "tree" and not list(layout.build.rglob("*.part"))


def test_kernels_alternate_and_pairs_are_complete() -> None:
    todo = runner.jobs([one_scenario()], kernels.parse("stock series"), Options(2, False))
    assert [(job.pair, job.variant.name, job.kernel.label) for job in todo[:4]] == [
        (1, "a", "stock"),
        (1, "a", "series"),
        (1, "b", "stock"),
        (1, "b", "series"),
    ]
    assert len(todo) == 8
    assert len(runner.jobs([one_scenario()], kernels.parse("stock"), Options(1, True))) == 1


def test_what_says_nothing_about_kernels_runs_once() -> None:
    once = replace(one_scenario(), name="lab", once=True)
    columns = kernels.parse("stock series")
    together = runner.jobs([one_scenario(), once], columns, Options(2, False))
    assert [job.label for job in together if job.scenario is once] == ["lab a, stock, pair 1", "lab b, stock, pair 1"]
    assert together[0].scenario is once
    assert len(runner.jobs([once], columns, Options(2, False))) == 8


def test_what_runs_in_the_guest() -> None:
    job = runner.jobs([one_scenario()], kernels.parse("series:kswapd_threads=4"), Options(1, True))[0]
    command = runner.command_of(job, Options(1, True))
    assert "MODE=read" in command and "LRU_GEN=0" in command and "SETTINGS=kswapd_threads=4" in command
    assert "LOCKSTEP=0" in command and "LOCKSTEP=1" in runner.command_of(job, Options(1, True, LOCKSTEP))
    icount = replace(job, variant=replace(job.variant, machine=replace(job.variant.machine, icount=True)))
    assert "LOCKSTEP=0" in runner.command_of(icount, Options(1, True, LOCKSTEP))
    assert command.endswith("bash bench/workloads/w.sh 3")


def test_a_variant_may_have_its_own_points() -> None:
    found = scenario.parse("toy", TEXT.replace('MODE = "read"', 'ONLY = "3 9"'))
    assert scenario.points_of(found, found.variants[0], False) == ("3",)
    assert scenario.points_of(found, found.variants[1], False) == ("1", "3")
    found = scenario.parse("toy", TEXT.replace('MODE = "read"', 'POINTS = "5 7"'))
    assert scenario.points_of(found, found.variants[0], False) == ("5", "7")
    assert scenario.points_of(found, found.variants[0], True) == ("3",)


def test_a_variant_without_a_point_is_not_booted() -> None:
    toy = scenario.parse("toy", TEXT.replace('MODE = "read"', 'ONLY = "1"'))
    columns = kernels.parse("stock")
    assert len(runner.jobs([toy], columns, Options(1, False))) == 2
    with pytest.raises(Fail, match="toy, VARIANT=a: a quick run measures none of its points; say QUICK=0"):
        runner.jobs([toy], columns, Options(1, True, variants=("a",)))


def test_points_are_read_and_nonsense_is_noted() -> None:
    points, notes = sample.read_points("hello\n@value 3 kib 12\n@vmstat 3 a -4\n@series 3 e 1 50.5\n@value 3 x nan?\n")
    assert points == (Point("3", {"kib": 12.0}, {"a": -4.0}, {"e": [(1.0, 50.5)]}),)
    assert notes == ("not a number: @value 3 x nan?",)


def test_durations() -> None:
    assert [clock(seconds) for seconds in (0, 59.6, 3599, 3600, 12345)] == [
        "0:00",
        "1:00",
        "59:59",
        "1:00:00",
        "3:25:45",
    ]


def test_a_sample_survives_its_file(tmp_path: Path) -> None:
    job = runner.jobs([one_scenario()], kernels.parse("stock"), Options(1, False))[0]
    kept = one_sample(job, "d")
    assert sample.read(sample.write(tmp_path, kept)) == kept
    # An option of QEMU names the folder and ends at a comma.
    assert "," not in str(sample.path_of(Path(), "toy", "v", "series:kswapd_threads=4,swappiness=1", 1))
    assert sample.read_all(tmp_path, "toy") == [kept]


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    options = Options(2, False)
    todo = runner.jobs([one_scenario()], kernels.parse("stock series"), options)
    taken: list[str] = []

    def take(_: Layout, job: Job, image: Path, asked: Options, wanted: str) -> Sample:
        if len(taken) == 3:
            raise KeyboardInterrupt
        taken.append(job.label)
        return one_sample(job, wanted)

    images = {"stock": tmp_path / "a", "series": tmp_path / "b"}
    digests = {"stock": "1", "series": "2"}
    with pytest.raises(KeyboardInterrupt):
        runner.run(layout, todo, images, digests, options, take)
    again: list[str] = []

    def rest(_: Layout, job: Job, image: Path, asked: Options, wanted: str) -> Sample:
        again.append(job.label)
        return one_sample(job, wanted)

    left = runner.missing(layout, todo, digests, options)
    assert runner.run(layout, left, images, digests, options, rest) == []
    assert [*taken, *again] == [job.label for job in todo]
    # Another kernel image makes its samples stale, and only those.
    stale = runner.missing(layout, todo, {**digests, "series": "3"}, options)
    assert len(stale) == 4 and all(job.kernel.what == "series" for job in stale)
    # A quick look measures again, and costs the long run nothing.
    quick = Options(1, True)
    looks = runner.jobs([one_scenario()], kernels.parse("stock series"), quick)
    assert runner.missing(layout, looks, digests, quick) == looks
    for job in looks:
        sample.write(quick.folder(layout), replace(one_sample(job, "q"), quick=True))
    assert runner.missing(layout, todo, digests, options) == []


def test_the_way_of_measuring_makes_a_sample_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = runner.jobs([one_scenario()], kernels.parse("series"), Options(1, False))[0]
    ways = (None, LOCKSTEP, replace(LOCKSTEP, quantum=2000), replace(LOCKSTEP, digest="e"))
    newer = replace(LOCKSTEP, emulator=replace(LOCKSTEP.emulator, version="QEMU emulator version 10.2.0"))
    found = {runner.digest(Layout(tmp_path), job, "i", Options(1, False, way)) for way in (*ways, newer)}
    assert len(found) == 5
    # At full speed the system's QEMU, KVM and the CPU make the figures; where instructions are the clock, they do not.
    icount = replace(job, variant=replace(job.variant, machine=replace(job.variant.machine, icount=True)))
    cases = [(job, Options(1, False)), (job, Options(1, False, LOCKSTEP)), (icount, Options(1, False, LOCKSTEP))]
    before = [runner.digest(Layout(tmp_path), toy, "i", asked) for toy, asked in cases]
    monkeypatch.setattr(runner, "at_full_speed", lambda: ("another",))
    after = [runner.digest(Layout(tmp_path), toy, "i", asked) for toy, asked in cases]
    assert [old == new for old, new in zip(before, after, strict=True)] == [False, True, True]


def test_metrics_of_other_values() -> None:
    text = (
        TEXT
        + """
[[metric]]
name = "round"
title = "KiB a round"
of = "kib"
per = "rounds"
[[metric]]
name = "share"
title = "%"
of = "round"
per = "ceiling"
times = 100.0
"""
    )
    toy = scenario.parse("toy", text)
    found = sample.derived(toy.metrics, Point("1", {"kib": 8.0, "rounds": 4.0, "ceiling": 5.0})).values
    assert found["round"] == 2.0 and found["share"] == 40.0
    assert "round" not in sample.derived(toy.metrics, Point("1", {"kib": 8.0, "rounds": 0.0})).values
    assert "share" not in sample.derived(toy.metrics, Point("1", {"kib": 8.0, "rounds": 4.0})).values


def test_a_sample_that_misses_a_bar_is_none() -> None:
    bar = scenario.Bar("loops", "6", "2", 2.97, 3.03)
    runner.check(bar, (Point("2", {"loops": 100.0}), Point("6", {"loops": 301.0})))
    with pytest.raises(Fail, match=r"loops of 6 is 2\.900 times that of 2; .* does not hold"):
        runner.check(bar, (Point("2", {"loops": 100.0}), Point("6", {"loops": 290.0})))
    with pytest.raises(Fail, match="was not measured"):
        runner.check(bar, (Point("2", {"loops": 100.0}),))


def test_what_makes_a_sample_stale(tmp_path: Path) -> None:
    workloads = tmp_path / "bench" / "workloads"
    workloads.mkdir(parents=True)
    for name in ("w.sh", "lib.sh", "other.sh", "lab.h", "load.c", "mark.c", "other.c"):
        (workloads / name).write_text("1\n")

    def digest(*changes: tuple[str, str]) -> str:
        text = TEXT.replace('workload = "w.sh"', 'workload = "w.sh"\nprograms = ["load"]')
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        options = Options(1, False)
        job = runner.jobs([scenario.parse("toy", text)], kernels.parse("series"), options)[0]
        return runner.digest(Layout(tmp_path), job, "i", options)

    first = digest()
    for old, new in (
        ('title = "KiB"', 'title = "KB"'),
        ("[variants.b]", "[variants.c]"),
        ("nodes = 2", "nodes = 4"),
        ('title = "t"', 'title = "t"\nvmstat = ["pgfault"]'),
        ('name = "kib"', 'name = "mib"\nof = "kib"\ntimes = 0.001'),
    ):
        assert digest((old, new)) == first, new
    for old, new in (
        ('"read"', '"mmap"'),
        ("mib = 256", "mib = 512"),
        ("seconds = 4", "seconds = 5"),
        ('"1", "3"', '"2", "3"'),
        ('lru_gen = "off"', 'lru_gen = "on"'),
    ):
        assert digest((old, new)) != first, new
    for name in ("other.sh", "other.c"):
        (workloads / name).write_text("2\n")
        assert digest() == first
    for name in ("w.sh", "lib.sh", "lab.h", "load.c", "mark.c"):
        (workloads / name).write_text("2\n")
        assert digest() != first, name
        (workloads / name).write_text("1\n")


@pytest.mark.parametrize(
    ("name", "value"),
    [("_BOOTING", "other"), ("COMPILE", ("gcc", "-O3")), ("versions", lambda packages: f"{packages[0]} 1.7")],
)
def test_other_tools_make_a_sample_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    toy = scenario.parse("toy", TEXT.replace('workload = "w.sh"', 'workload = "w.sh"\npackages = ["dpkg"]'))
    job, options = runner.jobs([toy], kernels.parse("series"), Options(1, False))[0], Options(1, False)
    before = runner.digest(Layout(tmp_path), job, "i", options)
    assert runner.digest(Layout(tmp_path), job, "i", options) == before
    monkeypatch.setattr(runner, name, value)
    assert runner.digest(Layout(tmp_path), job, "i", options) != before


def test_the_versions_of_packages() -> None:
    assert runner.versions(()) == "" and (runner.versions(("dpkg", "no-such-package")) or "dpkg\t").startswith("dpkg\t")


def test_what_a_run_will_take() -> None:
    options = Options(2, False)
    todo = runner.jobs([one_scenario()], kernels.parse("stock series"), options)
    known = [
        replace(one_sample(todo[0], "d"), seconds=seconds, seconds_each=4, points=(Point("1", {}), Point("3", {})))
        for seconds in (100.0, 300.0, 110.0)
    ]
    # Other points, other seconds, or from before both were kept: they say nothing.
    known += [replace(known[0], points=(Point("3", {}),)), replace(known[0], seconds_each=8), one_sample(todo[0], "d")]
    costs = [estimate.cost(job, options, known) for job in todo]
    guess = estimate.cost(todo[2], options, [])
    assert costs[0] == costs[1] == estimate.Cost(110.0, True)
    # Two points of 4 seconds each, what they take beside, and the boot.
    assert costs[2] == guess and guess == estimate.Cost(20.0 + 2 * (4 + 5), False)
    told = estimate.report(todo, costs).splitlines()
    assert told[0] == "about 9:52 for 8 boots, 4 as earlier ones took, 4 by the scenario's seconds:"
    assert told[1].split() == ["toy", "9:52", "8", "boots", "of", "2", "variants"]
    assert estimate.report(todo, costs, 2).startswith("about 4:56 for 8 boots")
    # One guest alone takes its time, however many might run beside it.
    assert estimate.report(todo[:1], costs[:1], 2).startswith("about 1:50 for 1 boot,")


@pytest.mark.parametrize(("options", "minutes"), [(Options(3, False), 175), (Options(1, True), 20)])
def test_the_full_set_fits_a_night_and_the_quick_one_a_break(options: Options, minutes: int) -> None:
    """3 hours and 20 minutes are what the lab may take."""
    known = list(scenario.load_all(Layout(Path(__file__).resolve().parents[1])).values())
    todo = runner.jobs(known, kernels.parse("stock series"), options)
    costs = [estimate.cost(job, options, []) for job in todo]
    assert estimate.total(costs) <= minutes * 60, estimate.report(todo, costs)


def test_the_time_left_goes_by_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layout = Layout(tmp_path)
    todo = runner.jobs([one_scenario()], kernels.parse("stock"), Options(1, False))
    seen: list[float] = []

    class Line(Progress):
        def update(self, done: int | None = None, note: str = "") -> None:
            super().update(done, note)
            seen.append(self.done / self.total)

    def take(_: Layout, job: Job, image: Path, asked: Options, wanted: str) -> Sample:
        return one_sample(job, "d")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lr.lab.runner.Progress", Line)
        runner.run(layout, todo, {"stock": tmp_path}, {"stock": "1"}, Options(1, False), take, [30.0, 10.0])
    assert seen == [0.0, 0.75, 0.75, 1.0]


def test_a_variant_that_wants_to_be_named_waits_for_that() -> None:
    toy = scenario.parse("toy", TEXT.replace("quick = false", "named = true"))
    column = kernels.parse("stock")
    assert {job.variant.name for job in runner.jobs([toy], column, Options(1, False))} == {"a"}
    assert {job.variant.name for job in runner.jobs([toy], column, Options(1, False, None, ("b",)))} == {"b"}


def test_a_scenario_of_such_variants_alone_says_so() -> None:
    toy = scenario.parse(
        "toy", TEXT.replace("quick = false", "named = true").replace("[variants.a]", "[variants.a]\nnamed = true")
    )
    with pytest.raises(Fail, match='VARIANT="a b"'):
        runner.jobs([toy], kernels.parse("stock"), Options(1, False))
    assert runner.jobs([toy, one_scenario()], kernels.parse("stock"), Options(1, False))


@pytest.mark.parametrize(
    ("why", "told"),
    [(Fail("broken"), "broken"), (OSError(28, "full"), "toy a, stock, pair 1: OSError(28, 'full')")],
)
def test_one_failure_does_not_stop_the_others(tmp_path: Path, why: Exception, told: str) -> None:
    todo = runner.jobs([one_scenario()], kernels.parse("stock"), Options(2, True))

    def take(_: Layout, job: Job, image: Path, asked: Options, wanted: str) -> Sample:
        if job.pair == 1:
            raise why
        return one_sample(job, wanted)

    assert runner.run(Layout(tmp_path), todo, {"stock": tmp_path}, {"stock": "1"}, Options(2, True), take) == [told]
    assert len(sample.read_all(Options(2, True).folder(Layout(tmp_path)))) == 1


def test_a_sample_of_files_edited_meanwhile_is_none(tmp_path: Path) -> None:
    todo = runner.jobs([one_scenario()], kernels.parse("stock"), Options(2, True))
    (tmp_path / "bench" / "workloads").mkdir(parents=True)
    booted: list[int] = []

    def take(_: Layout, job: Job, image: Path, asked: Options, wanted: str) -> Sample:
        booted.append(job.pair)
        (tmp_path / "bench" / "workloads" / "w.sh").write_text("edited\n")
        return one_sample(job, wanted)

    failed = runner.run(Layout(tmp_path), todo, {"stock": tmp_path}, {"stock": "1"}, Options(2, True), take)
    assert [why.partition(": ")[2][:36] for why in failed] == ["files that it depends on were edited"] * 2
    # The second one need not be booted to know.
    assert booted == [1] and sample.read_all(Options(2, True).folder(Layout(tmp_path))) == []


def test_a_damaged_sample_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layout, options = Layout(tmp_path), Options(1, False)
    todo = runner.jobs([one_scenario()], kernels.parse("stock"), options)
    folder = options.folder(layout)
    for job in todo:
        path = sample.write(folder, one_sample(job, runner.digest(layout, job, "1", options)))
    assert runner.missing(layout, todo, {"stock": "1"}, options) == []
    path.write_text('{"points": ')
    assert runner.missing(layout, todo, {"stock": "1"}, options) == todo[-1:]
    assert len(sample.read_all(folder)) == 1 and f"{path} is no sample" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (Outcome("panic", 1, "", "Kernel panic - not syncing", 1.0), "panicked"),
        (Outcome("exited", 1, "no disk\n", "", 1.0), "no disk"),
        (Outcome("exited", 0, "@value 1 kib 2\n", "", 1.0), "no value came for 3"),
    ],
)
def test_a_guest_that_measured_nothing_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome, told: str
) -> None:
    seen: list[Spec] = []

    def run(layout: Layout, spec: Spec, *rest: object) -> Outcome:
        seen.append(spec)
        return outcome

    monkeypatch.setattr("lr.guest.run", run)
    job = runner.jobs([one_scenario()], kernels.parse("stock"), Options(1, True))[0]
    with pytest.raises(Fail, match=told):
        runner.take(Layout(tmp_path), job, tmp_path, Options(1, True), "d")
    assert seen[0].mib == 256 and seen[0].emulator is None and "nokaslr" not in seen[0].append


def test_two_labs_that_take_the_same_sample_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = runner.jobs([one_scenario()], kernels.parse("stock"), Options(1, True))[0]
    options, out = Options(1, True, LOCKSTEP), tmp_path / "1.lockstep"
    seen: list[int] = []

    def run(layout: Layout, spec: Spec, *_: object) -> Outcome:
        lab = len(seen)
        seen.append(lab)
        found = re.search(r"out=([^,]*)", " ".join(spec.qemu))
        assert found
        raw = {"number": 1, "quantum": 5000, "rounds": lab, "host_us": 1, "vcpus": [], "threads": {}}
        Path(found[1]).write_text(json.dumps(raw))
        if not lab:
            # The second lab's guest ends before the first one's.
            with monkeypatch.context() as second:
                second.setattr(os, "getpid", lambda: -1)
                assert boot() == 1
        return Outcome("exited", 0, "", "", 1.0)

    def boot() -> int:
        (window,) = runner.boot(Layout(tmp_path), job, tmp_path, options, out)[1]
        return window.rounds

    monkeypatch.setattr("lr.guest.run", run)
    assert boot() == 0 and seen == [0, 1]
    assert json.loads(out.read_text())["rounds"] == 0 and not list(tmp_path.glob("*.part"))


def test_the_conditions_of_a_sample_are_those_of_other_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = Outcome("exited", 0, "@value 1 kib 2\n@value 3 kib 2\n", "", 1.0)
    monkeypatch.setattr("lr.guest.run", lambda *_: outcome)

    def conditions(text: str, kernel: str) -> str:
        (job, *_) = runner.jobs([scenario.parse("toy", text)], kernels.parse(kernel), Options(1, False))
        return runner.take(Layout(tmp_path), job, tmp_path, Options(1, False), "d").conditions

    assert (
        conditions(TEXT, "stock") == conditions(TEXT, "series:a=1") != conditions(TEXT.replace("256", "512"), "stock")
    )


def test_a_throttled_disk_is_one_for_qemu(tmp_path: Path) -> None:
    from lr import guest

    words = guest._disks(tmp_path, (Disk("usb", "blank", 1, 5000000), Disk("fast", "blank", 1)))
    assert "throttling.bps-total=5000000" in words[1] and "throttling" not in words[5]


_STOPPED = """
import sys, types
from pathlib import Path
from lr import __main__, guest

def bench(argv):
    toy = "sleep 600 & echo $$ $!; wait"
    guest._watch(["sh", "-c", toy], guest.Spec(Path("k")), lambda text: print(text, flush=True))
    return 0

toy = types.ModuleType("toy")
toy.main = bench
sys.modules["toy"] = toy
__main__.VERBS["bench"] = "toy"
sys.exit(__main__.main(["bench"]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_run_that_is_stopped_leaves_no_guest(number: signal.Signals) -> None:
    scripts = Path(__file__).resolve().parents[1] / "scripts"
    run = subprocess.Popen(
        [sys.executable, "-c", _STOPPED],
        env={**os.environ, "PYTHONPATH": str(scripts)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert run.stdout is not None and run.stderr is not None
    with run.stdout, run.stderr:
        guests = [int(word) for word in run.stdout.readline().split()]
        assert len(guests) == 2
        run.send_signal(number)
        # One more must not stop the cleaning up. It may be the one that is seen first, or come when all is done and
        # Python has given up its handlers.
        run.send_signal(signal.SIGTERM)
        ends = (128 + number, 128 + signal.SIGTERM, -signal.SIGTERM)
        assert run.wait(30) in ends, run.stderr.read().decode()
    for pid in guests:
        state = Path(f"/proc/{pid}/stat")
        assert not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] == "Z"
