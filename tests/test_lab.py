# SPDX-License-Identifier: GPL-2.0-only
"""The lab's harness: scenario files, kernels named, the order of runs, resuming, slow motion's cgroups."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from lr.guest import Disk, Outcome, Spec
from lr.lab import estimate, kernels, runner, sample, scenario, slowmotion
from lr.lab.awake import awake
from lr.lab.kernels import Kernel
from lr.lab.runner import Job, Options
from lr.lab.sample import Point, Sample
from lr.layout import Layout
from lr.ui import Fail, Progress, clock

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
share = 20
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
    assert found.variants[1].machine.share == 20
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
    assert "SLOW=1" in command and "SLOW=0" in runner.command_of(job, Options(1, True, share=0))
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
    with pytest.raises(Fail, match="toy, VARIANT=a: a quick run measures none of its points; leave QUICK=1 out"):
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
    assert sample.read_all(tmp_path, "toy") == [kept]


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    options = Options(2, False)
    todo = runner.jobs([one_scenario()], kernels.parse("stock series"), options)
    taken: list[str] = []

    def take(_: Layout, job: Job, image: Path, asked: Options, image_digest: str) -> Sample:
        if len(taken) == 3:
            raise KeyboardInterrupt
        taken.append(job.label)
        return one_sample(job, runner.digest(layout, job, image_digest, asked))

    images = {"stock": tmp_path / "a", "series": tmp_path / "b"}
    digests = {"stock": "1", "series": "2"}
    with pytest.raises(KeyboardInterrupt):
        runner.run(layout, todo, images, digests, options, take)
    again: list[str] = []

    def rest(_: Layout, job: Job, image: Path, asked: Options, image_digest: str) -> Sample:
        again.append(job.label)
        return one_sample(job, runner.digest(layout, job, image_digest, asked))

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
        sample.write(layout.build / "bench", replace(one_sample(job, "q"), quick=True))
    assert runner.missing(layout, todo, digests, options) == []


def test_what_makes_a_sample_stale(tmp_path: Path) -> None:
    workloads = tmp_path / "bench" / "workloads"
    workloads.mkdir(parents=True)
    for name in ("w.sh", "lib.sh", "other.sh", "lab.h", "load.c", "other.c"):
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
    for old, new in (('title = "KiB"', 'title = "KB"'), ("[variants.b]", "[variants.c]"), ("nodes = 2", "nodes = 4")):
        assert digest((old, new)) == first
    for old, new in (
        ('"read"', '"mmap"'),
        ("mib = 256", "mib = 512"),
        ("share = 20", "share = 10"),
        ("seconds = 4", "seconds = 5"),
        ('"1", "3"', '"2", "3"'),
        ('lru_gen = "off"', 'lru_gen = "on"'),
        ('title = "t"', 'title = "t"\nvmstat = ["pgfault"]'),
        ('name = "kib"', 'name = "mib"'),
    ):
        assert digest((old, new)) != first, new
    for name in ("other.sh", "other.c"):
        (workloads / name).write_text("2\n")
        assert digest() == first
    for name in ("w.sh", "lib.sh", "lab.h", "load.c"):
        (workloads / name).write_text("2\n")
        assert digest() != first, name
        (workloads / name).write_text("1\n")


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


@pytest.mark.parametrize(("options", "minutes"), [(Options(3, False), 235), (Options(1, True), 25)])
def test_the_full_set_fits_a_night_and_the_quick_one_a_break(options: Options, minutes: int) -> None:
    """4 hours and 25 minutes are what the lab may take; estimates leave some of it for a slower machine."""
    known = list(scenario.load_all(Layout(Path(__file__).resolve().parents[1])).values())
    todo = runner.jobs(known, kernels.parse("stock series"), options)
    costs = [estimate.cost(job, options, []) for job in todo]
    assert estimate.total(costs).seconds <= minutes * 60, estimate.report(todo, costs)


def test_the_time_left_goes_by_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layout = Layout(tmp_path)
    todo = runner.jobs([one_scenario()], kernels.parse("stock"), Options(1, False))
    seen: list[float] = []

    class Line(Progress):
        def update(self, done: int | None = None, note: str = "") -> None:
            super().update(done, note)
            seen.append(self.done / self.total)

    def take(_: Layout, job: Job, image: Path, asked: Options, image_digest: str) -> Sample:
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


def test_one_failure_does_not_stop_the_others(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    todo = runner.jobs([one_scenario()], kernels.parse("stock"), Options(2, True))

    def take(_: Layout, job: Job, image: Path, asked: Options, image_digest: str) -> Sample:
        if job.pair == 1:
            raise Fail("broken")
        return one_sample(job, runner.digest(layout, job, image_digest, asked))

    assert runner.run(layout, todo, {"stock": tmp_path}, {"stock": "1"}, Options(2, True), take) == ["broken"]
    assert len(sample.read_all(tmp_path / "build" / "bench")) == 1


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
        runner.take(Layout(tmp_path), job, tmp_path, Options(1, True, share=0), "d")
    assert seen[0].mib == 256 and "debug-threads=on" in seen[0].qemu[1]


@pytest.mark.parametrize(("said", "boots"), [("", 2), ("half\n", 1)])
def test_a_guest_that_goes_away_before_it_said_anything_is_booted_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, boots: int
) -> None:
    seen: list[Spec] = []

    def run(layout: Layout, spec: Spec, *rest: object) -> Outcome:
        seen.append(spec)
        return Outcome("died", 1, said, "pci", 1.0)

    monkeypatch.setattr("lr.guest.run", run)
    job = runner.jobs([one_scenario()], kernels.parse("stock"), Options(1, True))[0]
    with pytest.raises(Fail, match="ended before the command did"):
        runner.take(Layout(tmp_path), job, tmp_path, Options(1, True, share=0), "d")
    assert len(seen) == boots


def test_a_throttled_disk_is_one_for_qemu(tmp_path: Path) -> None:
    from lr import guest

    words = guest._disks(tmp_path, (Disk("usb", "blank", 1, 5000000), Disk("fast", "blank", 1)))
    assert "throttling.bps-total=5000000" in words[1] and "throttling" not in words[5]


def test_slow_motion_refuses_more_than_the_host_has() -> None:
    slowmotion.check_share(8, 20, 200)
    with pytest.raises(Fail, match=r"Use share = 11 or less"):
        slowmotion.check_share(16, 20, 200)
    with pytest.raises(Fail, match=r"gives 150%: .*\nUse share = 16 or less"):
        slowmotion.check_share(8, 20, 150)


def test_what_the_host_gives_us(tmp_path: Path) -> None:
    """A container may be limited to less than its CPUs."""
    cpus = 100 * len(os.sched_getaffinity(0))
    root = cgroup(tmp_path / "cg")
    home = cgroup(root / "box", "domain")
    shares = slowmotion.Shares("v2", home, "lab", root)
    assert shares.host() == cpus
    (root / "cpu.max").write_text("max 100000\n")
    (home / "cpu.max").write_text("50000 100000\n")
    assert shares.host() == 50
    old = slowmotion.Shares("v1", tmp_path, "lab")
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / "cpu.cfs_quota_us").write_text("-1\n")
    assert old.host() == cpus
    (tmp_path / "cpu.cfs_quota_us").write_text("75000\n")
    assert old.host() == 75


def test_vcpu_threads_in_order(tmp_path: Path) -> None:
    for thread, name in (("11", "CPU 1/TCG"), ("12", "CPU 0/TCG"), ("10", "qemu-system-x86")):
        (tmp_path / "9" / "task" / thread).mkdir(parents=True)
        (tmp_path / "9" / "task" / thread / "comm").write_text(name + "\n")
    assert slowmotion.vcpu_threads([9, 7], tmp_path) == [12, 11]


def test_the_processes_of_a_session(tmp_path: Path) -> None:
    for pid, session in (("5", "5"), ("6", "5"), ("7", "7")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "stat").write_text(f"{pid} (a ) b) S 1 5 {session} 0\n")
    assert sorted(slowmotion.session_processes(5, tmp_path)) == [5, 6]


def test_which_cgroup_version_carries_the_cpu_controller() -> None:
    v1 = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
    assert slowmotion.cpu_hierarchy(v1, "2:cpu:/x\n0::/\n") == (
        "v1",
        Path("/sys/fs/cgroup/cpu"),
        Path("/sys/fs/cgroup/cpu/x"),
    )
    v2 = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"
    assert slowmotion.cpu_hierarchy(v2, "0::/a.slice\n") == (
        "v2",
        Path("/sys/fs/cgroup"),
        Path("/sys/fs/cgroup/a.slice"),
    )
    with pytest.raises(Fail, match="SHARE=0"):
        slowmotion.cpu_hierarchy("", "")


def cgroup(path: Path, kind: str = "", controllers: str = "cpu memory", handed: str = "", procs: str = "") -> Path:
    """A toy folder that looks like a cgroup of version 2; the root has no type."""
    path.mkdir(exist_ok=True)
    (path / "cgroup.controllers").write_text(controllers)
    (path / "cgroup.subtree_control").write_text(handed)
    (path / "cgroup.procs").write_text(procs)
    (path / "cgroup.events").write_text(f"populated {1 if procs else 0}\nfrozen 0\n")
    if kind:
        (path / "cgroup.type").write_text(kind + "\n")
    return path


def test_shares_in_version_1(tmp_path: Path) -> None:
    shares = slowmotion.Shares("v1", tmp_path, "lab")
    shares.apply([1], [2, 3], 20)
    second = tmp_path / "lab" / "cpu1"
    assert (second / "cpu.cfs_quota_us").read_text() == "4000"
    assert (second / "tasks").read_text() == "3"
    assert (tmp_path / "lab" / "cgroup.procs").read_text() == "1"
    assert (tmp_path / "lab" / "cpu.shares").read_text() == "262144"
    # At full speed the guest is one of many again.
    shares.set(None)
    assert (tmp_path / "lab" / "cpu.shares").read_text() == "1024"


def test_shares_in_version_2_below_the_root(tmp_path: Path) -> None:
    root = cgroup(tmp_path / "cg", procs="1\n", handed="memory")
    slowmotion.Shares("v2", root, "lab").apply([1], [2, 3], 20)
    second = root / "lab" / "cpu1"
    assert (second / "cpu.max").read_text() == "4000 20000"
    assert (second / "cgroup.type").read_text() == "threaded"
    assert (second / "cgroup.threads").read_text() == "3"
    assert (root / "lab" / "cpu.weight").read_text() == "10000"
    assert (root / "cgroup.subtree_control").read_text() == "+cpu"
    assert (root / "lab" / "cgroup.procs").read_text() == "1"
    assert (root / "lab" / "cgroup.subtree_control").read_text() == "+cpu"
    assert not (root / "lab" / "cgroup.type").exists()


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_guest_says_when_it_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    shares = slowmotion.Shares(version, cgroup(tmp_path / "cg"), "lab")
    monkeypatch.setattr(runner, "session_processes", lambda session: [1])
    monkeypatch.setattr(runner, "vcpu_threads", lambda pids: [2, 3])
    throttle = runner._Throttle(shares, 20, 2)
    name, slow, fast = {"v1": ("cpu.cfs_quota_us", "4000", "-1"), "v2": ("cpu.max", "4000 20000", "max 20000")}[version]
    file = shares.top / "cpu1" / name
    seen = []
    for line in ("hello", "@fast", "@slow", "@fast ", "@value 1 a 2", "@slow"):
        throttle.line(line)
        seen.append(file.read_text() if file.exists() else "")
    assert seen == ["", "", slow, fast, fast, slow]
    assert throttle.applied and throttle.problem is None
    monkeypatch.setattr(runner, "vcpu_threads", lambda pids: [2])
    throttle = runner._Throttle(slowmotion.Shares(version, tmp_path / "cg", "other"), 20, 2)
    throttle.line("@slow")
    assert throttle.problem is not None and "found 1 vCPU threads of 2" in str(throttle.problem)


def test_a_cgroup_with_processes_is_no_place_for_domains(tmp_path: Path) -> None:
    """The one above has none, and has handed down the controller."""
    root = cgroup(tmp_path / "cg", procs="1\n")
    above = cgroup(root / "slice", "domain", handed="cpu")
    home = cgroup(above / "scope", "domain", procs="9\n")
    shares = slowmotion.Shares("v2", home, "lab", root)
    shares.apply([1], [2], 20)
    assert (above / "lab" / "cpu0" / "cgroup.threads").read_text() == "2"
    assert (above / "cgroup.subtree_control").read_text() == "cpu" and shares.lent is None


def test_threads_below_our_own_cgroup_when_nothing_else_is_left(tmp_path: Path) -> None:
    """As in a container: the processes stay where they are, and what was changed is changed back."""
    home = cgroup(tmp_path / "cg", "domain", procs="1\n9\n")
    shares = slowmotion.Shares("v2", home, "lab")
    shares.apply([9], [2], 20)
    assert (home / "lab" / "cgroup.type").read_text() == "threaded"
    assert (home / "lab" / "cpu0" / "cpu.max").read_text() == "4000 20000"
    assert (home / "cgroup.procs").read_text() == "1\n9\n"
    shares.remove(patience=0)
    assert (home / "cgroup.subtree_control").read_text() == "-cpu"


@pytest.mark.parametrize(
    "make",
    [
        lambda path: cgroup(path, "domain", procs="9\n", handed="memory"),
        lambda path: cgroup(path, "domain", procs="9\n", controllers="memory"),
        lambda path: cgroup(cgroup(path, "domain", procs="9\n") / "busy", "domain", procs="8\n").parent,
        lambda path: cgroup(path, "threaded", procs="9\n"),
    ],
)
def test_no_place_for_cgroups_is_said(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    with pytest.raises(Fail, match="finds no place"):
        slowmotion.Shares("v2", make(tmp_path / "cg"), "lab").apply([9], [2], 20)


def test_a_process_that_is_over_is_no_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_text(self: Path, text: str) -> int:
        if self.name in ("cgroup.procs", "cgroup.threads"):
            raise ProcessLookupError(3, "No such process")
        return len(text)

    root = cgroup(tmp_path / "cg")
    monkeypatch.setattr(Path, "write_text", write_text)
    slowmotion.Shares("v2", root, "a").apply([9], [], 20)
    # A vCPU that is over is: the guest has died.
    with pytest.raises(Fail, match="No such process"):
        slowmotion.Shares("v2", root, "b").apply([9], [2], 20)


def test_cgroups_of_runs_that_were_killed_go(tmp_path: Path) -> None:
    gone, ours = tmp_path / "reclaim-lab-a-b-4194305", tmp_path / f"reclaim-lab-a-{os.getpid()}"
    (gone / "cpu0").mkdir(parents=True)
    (ours / "cpu0").mkdir(parents=True)
    slowmotion._sweep([tmp_path])
    assert list(tmp_path.iterdir()) == [ours]


_STOPPED = """
import sys, types
from pathlib import Path
from lr import __main__, guest
from lr.lab import slowmotion

home = Path(sys.argv[1])
slowmotion.cpu_hierarchy = lambda mounts, own: ("v1", home, home)
slowmotion._write = lambda path, text, may_be_over=False: None

def bench(argv):
    with slowmotion.slow_motion("toy") as shares:
        def line(text):
            shares.apply([], [1, 2], 20)
            print(text, flush=True)
        toy = "sleep 600 & echo $$ $!; wait"
        guest._watch(["sh", "-c", toy], 600, line, None)
    return 0

toy = types.ModuleType("toy")
toy.main = bench
sys.modules["toy"] = toy
__main__.VERBS["bench"] = "toy"
sys.exit(__main__.main(["bench"]))
"""


def test_the_hosts_cpus_are_kept_awake_by_what_runs_last_and_ends_with_us() -> None:
    def idlers() -> list[int]:
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                words = stat.read_text().rsplit(")", 1)[1].split()
                # A child's scheduling policy, by its number in the line.
                if int(words[1]) == os.getpid() and int(words[38]) == os.SCHED_IDLE:
                    found.append(int(stat.parent.name))
        return found

    with awake([min(os.sched_getaffinity(0))]):
        until = time.monotonic() + 10
        while not idlers() and time.monotonic() < until:
            time.sleep(0.05)
        assert len(idlers()) == 1
    assert not idlers()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_run_that_is_stopped_leaves_no_guest_and_no_cgroup(tmp_path: Path, number: signal.Signals) -> None:
    scripts = Path(__file__).resolve().parents[1] / "scripts"
    run = subprocess.Popen(
        [sys.executable, "-c", _STOPPED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(scripts)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert run.stdout is not None and run.stderr is not None
    with run.stdout, run.stderr:
        guests = [int(word) for word in run.stdout.readline().split()]
        assert len(guests) == 2 and len(list(tmp_path.glob("reclaim-lab-toy-*/cpu*"))) == 2
        run.send_signal(number)
        # One more must not stop the cleaning up.
        run.send_signal(signal.SIGTERM)
        assert run.wait(30) == 128 + number, run.stderr.read().decode()
    assert list(tmp_path.iterdir()) == []
    for pid in guests:
        state = Path(f"/proc/{pid}/stat")
        assert not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] == "Z"


def test_cgroups_that_can_not_be_written_are_said(tmp_path: Path) -> None:
    with pytest.raises(Fail, match="SHARE=0"):
        slowmotion.Shares("v1", tmp_path / "gone", "lab").apply([1], [2], 20)
