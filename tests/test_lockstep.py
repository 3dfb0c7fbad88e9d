# SPDX-License-Identifier: GPL-2.0-only
"""Lockstep: the QEMU it needs, the plugin, what the plugin wrote, when a sample says so, and profiles."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from lr import bench
from lr.lab import kernels, lockstep, profile, qemu, runner, scenario
from lr.lab.lockstep import Window
from lr.layout import Layout
from lr.ui import Fail

ROOT = Path(__file__).resolve().parents[1]
LINE = {
    "number": 1,
    "quantum": 5000,
    "ns": 50000,
    "rounds": 100,
    "host_us": 900,
    "vcpus": [7, 8],
    "threads": {"swapper": 5, "kswapd0": 10, "kswapd0:1": 20, "readers": 70},
}
WINDOW = Window(1, 5000, 100, 900, (7, 8), {"readers": 70})
LOCKSTEP = lockstep.Lockstep(qemu.Emulator(Path("q"), (Path("/data"),), "v"), Path("/p.so"), "d")


@pytest.mark.parametrize(
    ("said", "good"),
    [
        ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)", False),
        ("QEMU emulator version 9.2.0", False),
        ("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)", True),
        ("QEMU emulator version 11.1.0", False),
        ("", False),
    ],
)
def test_which_qemu_fits(said: str, good: bool) -> None:
    assert qemu.fits(said) == good


def test_the_pinned_qemu() -> None:
    lock = qemu.read_lock(ROOT / "bases" / "qemu.toml")
    assert lock.suite == "bookworm-backports" and len(lock.packages) == 3
    assert all(len(digest) == 64 for digest in lock.packages.values())


@pytest.mark.parametrize("text", ["suite = ", 'suite = "a"\n', 'suite = "a"\nversion = "1"\npackages = 3\n'])
def test_a_damaged_pin_is_said(tmp_path: Path, text: str) -> None:
    path = tmp_path / "qemu.toml"
    path.write_text(text)
    with pytest.raises(Fail, match=r"qemu.toml: .*git checkout -- bases"):
        qemu.read_lock(path)


def test_the_libraries_that_a_package_names() -> None:
    depends = "libaio1 (>= 0.3.93), libc6:amd64, qemu-system-common (= 1), seabios (>> 1), a-lib | b-lib, ipxe-qemu"
    assert qemu.libraries(depends) == ["libaio1", "libc6", "a-lib"]


def test_the_plugin_compiles_and_says_what_it_needs(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "lockstep").symlink_to(ROOT / "bench" / "lockstep")
    out = lockstep.build(layout)
    names = subprocess.run(["nm", "-D", "--defined-only", out], capture_output=True, text=True, check=True).stdout
    found = {line.split()[-1] for line in names.splitlines()}
    assert {"qemu_plugin_install", "qemu_plugin_version"} <= found and "rounds_on" not in found
    stamp = out.stat().st_mtime_ns
    assert lockstep.build(layout).stat().st_mtime_ns == stamp


def test_a_plugin_of_other_sources_or_flags_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "bench" / "lockstep" / "toy.c"
    source.parent.mkdir(parents=True)
    source.write_text("int one;\n")
    found = [lockstep.build(Layout(tmp_path))]
    source.write_text("int two;\n")
    # As git and tar may leave it.
    os.utime(source, (0, 0))
    found.append(lockstep.build(Layout(tmp_path)))
    monkeypatch.setattr(lockstep, "_FLAGS", (*lockstep._FLAGS, "-g"))
    found.append(lockstep.build(Layout(tmp_path)))
    # A guest that another lab has yet to boot finds the plugin of its own sources.
    assert len(set(found)) == 3 and all(path.exists() for path in found)
    # Its samples are of that plugin.
    monkeypatch.setattr(qemu, "obtain", lambda _: LOCKSTEP.emulator)
    assert found[2].name in lockstep.prepare(Layout(tmp_path)).identity


@pytest.fixture(scope="module")
def strings(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """bench/lockstep/strings.c by itself."""
    out = tmp_path_factory.mktemp("strings") / "strings.so"
    source = ROOT / "bench" / "lockstep" / "strings.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", out, source], check=True)
    found = ctypes.CDLL(str(out))
    found.string_cost.argtypes, found.string_cost.restype = (ctypes.c_uint64, ctypes.c_uint), ctypes.c_uint64
    found.string_width.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
    return found


@pytest.mark.parametrize(
    ("code", "width"),
    [
        ("f3 a4", 1),  # rep movsb
        ("f3 48 a5", 8),  # rep movsq
        ("f3 a5", 4),  # rep movsd
        ("66 f3 ab", 2),  # rep stosw
        ("f3 66 48 ab", 8),  # rep stosq: REX.W wins
        ("f2 67 40 aa", 1),  # a prefix that means nothing here, a short address, a REX without W
        ("a4", 0),  # movsb, once
        ("48 ab", 0),  # stosq, once
        ("f3 a6", 0),  # repe cmpsb
        ("f2 ae", 0),  # repne scasb
        ("f3 90", 0),  # pause
        ("f3 0f b8 c1", 0),  # popcnt
        ("f3 a4 00", 0),  # more than one instruction
        ("f3", 0),
        ("", 0),
    ],
)
def test_string_instructions_are_known(strings: ctypes.CDLL, code: str, width: int) -> None:
    raw = bytes.fromhex(code)
    assert strings.string_width(raw, len(raw)) == width


def test_what_string_instructions_cost(strings: ctypes.CDLL) -> None:
    # A page is 128 instructions, however wide.
    assert [strings.string_cost(4096 // width, width) for width in (1, 2, 4, 8)] == [128] * 4
    assert [strings.string_cost(count, 8) for count in (0, 3, 4)] == [0, 0, 1]
    # QEMU leaves the loop where the low 16 bits are 0, and enters it again: each turn is counted once.
    assert strings.string_cost(0x10000, 8) == 16384
    for count in (0x10001, 0x18000, 3 * 0x10000):
        left, sum_ = count, 0
        while left:
            sum_ += strings.string_cost(left, 8)
            left = (left - 1) & ~0xFFFF
        assert abs(sum_ - count * 8 // 32) <= 1


def test_what_the_plugin_wrote() -> None:
    second = {**LINE, "number": 2, "profile": [[0, "readers", "memset", 12]], "waiting": [["ff", "iput", 3, 1]]}
    first, other = lockstep.read(f"{json.dumps(LINE)}\n\n{json.dumps(second)}\n")
    assert (first.quantum, first.rounds, first.host_us, first.vcpus, first.profile) == (5000, 100, 900, (7, 8), ())
    assert other.profile == ((0, "readers", "memset", 12),) and other.waiting == (("ff", "iput", 3, 1),)


def test_measurements_find_their_points() -> None:
    windows = [replace(WINDOW, number=number) for number in (1, 2, 3)]
    found = lockstep.by_point("x\n@window 3 ceiling\n@window 3\n@value 3 a 1\n@window 3\n", windows)
    assert {key: [one.number for one in own] for key, own in found.items()} == {
        ("3", "ceiling"): [1],
        ("3", ""): [2, 3],
    }
    with pytest.raises(Fail, match="no measurement number 4, @window 7"):
        lockstep.by_point("@window 3\n" * 3 + "@window 7\n", windows)


def test_the_figures_of_a_point() -> None:
    (window,) = lockstep.read(json.dumps(LINE))
    found = lockstep.values([window, window])
    assert found["rounds"] == 200 and found["host_us"] == 9.0
    # What idle CPUs execute is no work; a node's helpers are its kswapd's.
    assert found["instructions"] == 200 and found["instructions_kswapd"] == 60 and found["instructions_readers"] == 140
    # With it shares of a CPU are exact.
    assert found["cpu_instructions"] == 200 * 5000
    assert lockstep.values([window], "ceiling")["ceiling_rounds"] == 100


def test_a_measurement_without_rounds_is_none() -> None:
    with pytest.raises(Fail, match="enclose nothing"):
        lockstep.by_point("@window 3\n", [replace(WINDOW, rounds=0)])


def test_spinlocks_are_queued_in_short_rounds_only() -> None:
    found = replace(LOCKSTEP, quantum=1000)
    assert "max,-hypervisor" in found.options(50, Path("/map"), Path("/out")) and "hypervisor" in found.identity
    found = replace(found, quantum=5000)
    assert "-cpu" not in found.options(50, Path("/map"), Path("/out")) and "hypervisor" not in found.identity


def test_a_path_with_a_comma_is_refused(tmp_path: Path) -> None:
    found = LOCKSTEP
    words = found.options(50, Path("/map"), Path("/out"))
    assert words[:4] == ("-L", "/data", "-nodefaults", "-plugin") and words[4].endswith("quantum=5000,ns=50000")
    # The guest's clock keeps its ratio to what its CPUs do.
    assert replace(found, quantum=2000).options(50, Path("/map"), Path("/out"))[4].endswith("quantum=2000,ns=20000")
    assert found.environment == (("QEMU_MODULE_DIR", "/data"), ("LD_PRELOAD", "/p.so"))
    with pytest.raises(Fail, match="no comma"):
        found.options(50, Path("/a,b"), Path("/out"))


def test_locks_are_named_by_caller_and_address() -> None:
    rows = [
        ("a0", "__remove_mapping", 5, 1),
        ("a0", "__filemap_add_folio", 5, 1),
        ("b8", "__remove_mapping", 5, 1),
        ("c0", "free_pcppages_bulk", 5, 1),
        ("c0", "some_function", 5, 1),
        ("d0", "some_function", 5, 1),
    ]
    assert list(profile.lock_names(rows).values()) == ["i_pages", "i_pages", "i_lock", "zone", "zone", "?"]


def test_a_profile_sums_up_threads_and_stands_in_a_table() -> None:
    text = """
title = "t"
about = "a"
seed = "s"
workload = "w.sh"
axis = "n"
points = ["3"]
seconds = 4
[machine]
cpus = 2
[variants.a]
"""
    (job,) = runner.jobs([scenario.parse("toy", text)], kernels.parse("stock"), runner.Options(1, True))
    rows = ((0, "readers", "memset", 60), (1, "kswapd0", "memset", 20), (1, "kswapd0:1", "xas_load", 15))
    window = replace(WINDOW, profile=(*rows, (0, "swapper", "hlt", 900), (0, "bash", "user", 5)))
    found = profile.summarize(job, "3", [replace(window, waiting=(("c0", "free_pcppages_bulk", 10, 2),))])
    assert found.instructions == 100 and found.vcpus == [65, 35]
    assert found.threads["kswapd"] == {"memset": 20, "xas_load": 15}
    told = profile.render([found, replace(found, kernel="series", waiting={})])
    assert "60.0    60.0" in told and "zone: free_pcppages_bulk" in told
    assert "hlt" not in told


@pytest.mark.parametrize(
    ("main", "words", "told"),
    [
        (bench.main, "--scenario writeback --variant nope", "VARIANT=nope: no such variant"),
        (bench.main, "--scenario create-storm --variant drain-irqs --quick 1", "VARIANT=drain-irqs: a quick run"),
        (profile.main, "--variant nope", "VARIANT=nope: no such variant"),
        (profile.main, "--quick 2", "QUICK=2: not known"),
        (profile.main, "--kernels mine", "KERNELS: mine"),
        (profile.main, "--scenario create-storm --variant drain-irqs --quick 0", "nothing to measure: none of the"),
    ],
)
def test_a_mistake_is_told_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, main: Callable[[list[str]], int], words: str, told: str
) -> None:
    for module, name in ((bench, "prepare"), (lockstep, "prepare"), (kernels, "images")):
        monkeypatch.setattr(module, name, lambda *_: pytest.fail("something was built"))
    with pytest.raises(Fail, match=told):
        main(words.split())
