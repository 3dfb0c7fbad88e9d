# SPDX-License-Identifier: GPL-2.0-only
"""Building: configuration, what is told of a failed make, and the ablations', selftests' and demo's pure parts."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from lr import ablate, alltests, build, compose, demo, kunit, selftest
from lr.clean import clean
from lr.guest import Outcome, Spec
from lr.layout import Layout
from lr.results import Case, Counts, without_result
from lr.stations import STATIONS
from lr.ui import Fail
from toy import Toy


def built(layout: Layout, kernel: str, debug: str = "", content: str = "first") -> build.Target:
    """A kernel as a build leaves it; built again, the same file has other content."""
    spec = build.target(layout, kernel, debug)
    image = spec.objects / "arch/x86/boot/bzImage"
    image.parent.mkdir(parents=True, exist_ok=True)
    image.write_text(content)
    (spec.objects / "System.map").write_text("")
    spec.image.unlink(missing_ok=True)
    spec.image.symlink_to(image)
    return spec


def test_targets_lie_side_by_side(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    for kernel in ("series", "stock", "ablate"):
        spec = build.target(layout, kernel)
        assert spec.source.parent == spec.objects.parent == spec.image.parent
    assert build.target(layout, "series", "debug").objects == tmp_path / "build/debug/obj"
    assert build.target(layout, "series", "races").image == tmp_path / "build/races/bzImage"


def test_lost_symbols_are_only_ours() -> None:
    report = (
        "WARNING: Value requested for CONFIG_NUMA not in final .config\nRequested value: CONFIG_NUMA=y\n"
        "WARNING: Value requested for CONFIG_X86_32 not in final .config\n"
    )
    assert build.lost_symbols(report, "# why\nCONFIG_NUMA=y\n") == ["CONFIG_NUMA"]


def test_stock_leaves_our_suites_out(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.configs.mkdir(parents=True)
    (layout.configs / "reclaim.config").write_text("CONFIG_KUNIT=y\nCONFIG_A_KUNIT_TEST=y\n")
    (tmp_path / "mm/tests").mkdir(parents=True)
    (tmp_path / "mm/tests/.kunitconfig").write_text("CONFIG_KUNIT=y\nCONFIG_B_KUNIT_TEST=y\n")
    composed = layout.linux / "mm/tests"
    composed.mkdir(parents=True)
    (composed / ".kunitconfig").write_text("CONFIG_KUNIT=y\nCONFIG_B_KUNIT_TEST=y\n")
    assert "KUNIT_TEST" not in build.wanted_config(layout, build.target(layout, "stock"))
    ours = build.wanted_config(layout, build.target(layout, "series"))
    assert "CONFIG_A_KUNIT_TEST=y" in ours
    assert "CONFIG_B_KUNIT_TEST=y" in ours


def test_a_mechanism_is_compiled_before_its_suite_comes(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    (tmp_path / "mm/tests").mkdir(parents=True)
    (tmp_path / "mm/tests/a.kunitconfig").write_text("CONFIG_KUNIT=y\nCONFIG_A=y\nCONFIG_A_KUNIT_TEST=y\n")
    source = tmp_path / "source"
    (source / "mm").mkdir(parents=True)
    (source / "mm/Kconfig").write_text("config AB\n")
    assert build.kunit_symbols(layout, source) == []
    (source / "mm/Kconfig").write_text("config AB\nconfig A\n")
    assert build.kunit_symbols(layout, source) == ["CONFIG_A=y"]


def test_make_is_not_told_our_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL", "stock")
    monkeypatch.setenv("MAKEFLAGS", "-- KERNEL=stock")
    env = build.make_env(Layout(tmp_path))
    assert "KERNEL" not in env
    assert "MAKEFLAGS" not in env
    assert env["CCACHE_BASEDIR"] == str(tmp_path / "build")


def test_failed_make_shows_the_compilers_lines(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    (tmp_path / "Makefile").write_text(
        "all:\n\t@echo '  CC      mm/a.o'\n\t@echo 'mm/a.c:3:1: error: no such thing'; false\n"
    )
    with pytest.raises(Fail, match="error: no such thing"):
        build.make(layout, ["make", "-C", str(tmp_path)], "toy", layout.build / "logs/toy.log", 2)
    assert "no such thing" in (layout.build / "logs/toy.log").read_text()


HEADER = "Ablation: dirty inodes are kept\nCaught-by: selftest reclaim_dontcache:dontcache.xfs.memory_reclaim\n"


def test_ablation_header() -> None:
    parsed = ablate.parse(Path("a.patch"), HEADER + "Caught-by: kunit inode_reclaim\n---\ndiff --git a/x b/x\n")
    assert parsed.mechanism == "dirty inodes are kept"
    assert [catch.kind for catch in parsed.catches] == ["selftest", "kunit"]
    assert parsed.catches[0].matrix[0].name == "lru_gen=on,nodes=2"
    other = ablate.parse(Path("a.patch"), "Ablation: x\nCaught-by: selftest reclaim_dontcache lru_gen=off,nodes=1\n")
    assert other.catches[0].matrix[0].name == "lru_gen=off,nodes=1"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Subject: x\n",
        "Ablation: x\n",
        "Ablation: x\nCaught-by: luck\n",
        "Ablation: x\nCaught-by: selftest a lru_gen=maybe\n",
        "Ablation: x\n---\nCaught-by: kunit late\n",
    ],
)
def test_wrong_ablation_headers(text: str) -> None:
    with pytest.raises(Fail):
        ablate.parse(Path("a.patch"), text)


EXPECTED = "reclaim_a.c:12:case:Expected 1 (1) < 0 (0)"
ALARM = "case: Test terminated unexpectedly by signal 14"


@pytest.mark.parametrize(
    ("fails_in", "runs", "other"),
    [
        (1, 1, Case("s", "prog/fix.case")),
        (3, 3, Case("s", "prog/fix.case")),
        (None, 3, Case("s", "prog/fix.case")),
        (2, 2, Case("s", "prog/fix.case", "skipped", "one thread bears this load: no task stalled")),
        (None, 1, Case("s", "prog/fix.case", "skipped", "no tracefs")),
        (3, 3, Case("s", "prog/fix.case", "failed", ALARM)),
        (None, 1, Case("s", "guest", "failed", "panicked")),
    ],
)
def test_an_ablation_may_need_luck_to_be_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_in: int | None, runs: int, other: Case
) -> None:
    ablation = ablate.parse(Path("lost.patch"), "Ablation: no loss\nCaught-by: selftest prog:fix.case\n")
    calls: list[str] = []

    def run(*_args: object, **_kwargs: object) -> list[Case]:
        calls.append("run")
        found = Case("s", "prog/fix.case", "failed", EXPECTED) if len(calls) == fails_in else other
        return [found]

    monkeypatch.setattr(selftest, "run_selftests", run)
    case = ablate._test(Layout(tmp_path), ablation, ablation.catches[0], Path("bzImage"), 60)
    assert len(calls) == runs
    assert case.status == ("passed" if fails_in else "failed")
    assert case.message == EXPECTED if fails_in else "it must fail without this mechanism" in case.message


def test_ablations_in_turn_are_all_there_and_begin_elsewhere() -> None:
    ablations = [ablate.Ablation(Path(name), name, ()) for name in "abcdefg"]
    turns = [[each.mechanism for each in ablate.in_turn(ablations, day)] for day in range(7)]
    assert all(sorted(turn) == list("abcdefg") for turn in turns)
    for number in (7, 54, 55, 56):
        many = [ablate.Ablation(Path(str(i)), str(i), ()) for i in range(number)]
        begun = {each.mechanism for day in range(number) for each in ablate.in_turn(many, day)[:1]}
        assert len(begun) == number
    assert ablate.in_turn([], 5) == []


def test_an_ablation_is_noticed_only_by_an_assertion(tmp_path: Path) -> None:
    catch = ablate.parse(Path("a.patch"), HEADER).catches[0]
    name = "reclaim_dontcache/dontcache.xfs.memory_reclaim"
    failed, other = Case("one cell", name, "failed", EXPECTED), Case("another", name)

    def verdict(*cases: Case) -> str:
        return ablate.verdict(catch, cases, tmp_path)

    assert verdict(failed) == ""
    assert verdict(other) == "passed"
    assert verdict(replace(other, status="skipped")) == "was skipped"
    assert verdict(failed, other) == "passed"
    assert verdict(failed, replace(other, status="skipped")) == "was skipped"
    assert verdict(failed, replace(failed, suite="another")) == ""
    assert verdict(Case("s", "guest", "failed", EXPECTED)) == "did not run"
    suite = ablate.Catch("kunit", "inode_reclaim")
    told = "a: EXPECTATION FAILED at fs/tests/inode_reclaim_kunit.c:12"
    assert ablate.verdict(suite, [Case("s", "inode_reclaim/a", "failed", told)], tmp_path) == ""
    # Not by what a busy host does as well.
    for message in ("", "Test failed", ALARM, f"{EXPECTED}\n{ALARM}", f"{told}\ntry timed out"):
        assert verdict(replace(failed, message=message)).startswith("failed by its setup, out of time or")
    assert verdict(replace(failed, message=f"{EXPECTED}\n{ALARM}"), other).startswith("failed by its setup")


def test_an_assertion_of_the_setup_notices_nothing(tmp_path: Path) -> None:
    catch = ablate.Catch("selftest", "reclaim_a")
    source = "\n\nFIXTURE_SETUP(fix)\n{\n\tif (x) {\n\t}\n\tASSERT(1);\n}\n\nTEST_F(fix, case)\n{\n\tASSERT(2);\n}\n"
    (tmp_path / "reclaim_a.c").write_text(source)
    found = {
        line: ablate.verdict(
            catch, [Case("s", "reclaim_a/fix.case", "failed", f"reclaim_a.c:{line}:case:Expected 1")], tmp_path
        )
        for line in (7, 12)
    }
    assert found[7].startswith("failed by its setup") and found[12] == ""


def test_selftest_options() -> None:
    assert [cell.name for cell in selftest.parse_matrix("", ["reclaim_dontcache:a"])] == [
        cell.name for cell in selftest.MATRIX
    ]
    special = tuple(cell.name for cell in selftest.SPECIAL)
    assert special == ("lru_gen=on,nodes=4", "lru_gen=on,nodes=2,module=1", "lru_gen=off,nodes=2,module=1")
    assert len(selftest.parse_matrix("")) == 7
    assert len(selftest.parse_matrix("", ["reclaim_pcp_drain", "reclaim_numa_balancing"])) == 5
    # Where a case of a program is all that runs by itself, the program runs when it is named.
    assert len(selftest.parse_matrix("", ["reclaim_kswapd_threads"])) == 6
    # Beside others it runs alone where the machine is made for it; and all do where the machine is named.
    both = selftest.parse_matrix("", ["reclaim_throttle", "reclaim_kswapd_threads"])
    assert [cell.runs for cell in both] == [()] * 4 + [("reclaim_kswapd_threads",)] * 2
    named = selftest.parse_matrix("lru_gen=on,nodes=2,module=1", ["reclaim_throttle", "reclaim_kswapd_threads"])
    assert [cell.runs for cell in named] == [()]
    assert selftest.parse_matrix("lru_gen=on,nodes=2,module=1")[0].module
    assert selftest.parse_tests("a:b.c.d e") == ("a:b.c.d", "e")
    assert "LRU_GEN=0" in selftest.command_of(["a"], selftest.Cell(False, 1), "build/selftests")
    with pytest.raises(Fail, match="MATRIX"):
        selftest.parse_matrix("nodes=3")
    with pytest.raises(Fail, match="TEST"):
        selftest.parse_tests("a;rm")


def test_all_cases_that_need_a_machine_of_its_own_are_named() -> None:
    """Those of a fixture that a special machine has a case of."""
    folder = Path(__file__).resolve().parents[1] / "tools/testing/selftests/mm"
    for cell in selftest.SPECIAL:
        for fixture, program in {re.split(r"[:.]", word)[1]: word.split(":")[0] for word in cell.only}.items():
            source = (folder / f"{program}.c").read_text()
            variants = re.findall(rf"^FIXTURE_VARIANT_ADD\({fixture}, (\w+)\)", source, re.MULTILINE)
            middles = [f"{fixture}.{name}" for name in variants] or [fixture]
            named = {word for word in cell.only if word.startswith(f"{program}:{fixture}.")}
            cases = re.findall(rf"^TEST_F(?:_TIMEOUT)?\({fixture}, (\w+)", source, re.MULTILINE)
            assert named <= {f"{program}:{middle}.{name}" for middle in middles for name in cases}
            if not cell.module:
                assert len(named) == len(middles) * len(cases)


def test_a_case_must_run_on_the_machine_that_is_made_for_it() -> None:
    cell = selftest.Cell(True, 2, module=True, only=("a:f.goes",))
    cases = [
        Case("s", "a/f.goes", "skipped", "no node"),
        Case("s", "a/f.other", "skipped"),
        Case("t", "a/f.goes", "skipped"),
    ]
    found = selftest.not_skipped(cases, {"s": cell, "t": selftest.Cell(True, 2)})
    assert [case.status for case in found] == ["failed", "skipped", "skipped"]
    assert "no node" in found[0].message


def test_a_program_that_did_not_run_has_failed() -> None:
    cases = [Case("s", "reclaim_a/f.x"), Case("s", "reclaim_b", "skipped"), Case("t", "reclaim_b/f.x", "skipped")]
    cases += [Case("t", "reclaim_a"), Case("u", "guest", "failed")]
    found = without_result(cases, ["reclaim_a", "reclaim_b"], ["s", "t", "u"])
    assert [(case.suite, case.name, case.status) for case in found] == [("t", "reclaim_a", "failed")]


def test_a_case_that_is_skipped_everywhere_has_failed() -> None:
    cases = [Case("s", "a/f.x", "skipped"), Case("t", "a/f.x"), Case("s", "a/f.y", "skipped", "no disk")]
    cases += [Case("t", "a/f.y", "skipped", "no disk")]
    found = selftest.nowhere(cases)
    assert [case.status for case in found] == ["skipped", "passed", "failed", "failed"]
    assert "no disk" in found[2].message


def test_a_suite_of_which_no_case_ran_has_failed() -> None:
    cases = [Case("kunit uml", "a/x"), Case("kunit uml", "b/x", "skipped"), Case("kunit qemu", "guest", "failed")]
    tried = [case for case in cases if case.status != "skipped"]
    found = without_result(tried, ["a", "b"], ["kunit uml", "kunit qemu"])
    assert [(case.suite, case.name, case.status) for case in found] == [("kunit uml", "b", "failed")]


def test_an_ablation_names_tests_that_exist(tmp_path: Path) -> None:
    source = tmp_path / "tools/testing/selftests/mm/reclaim_a.c"
    source.parent.mkdir(parents=True)
    source.write_text("FIXTURE_VARIANT_ADD(fix, xfs)\nTEST_F_TIMEOUT(fix, case, 60)\n")
    suite = tmp_path / "mm/tests/suite_kunit.c"
    suite.parent.mkdir(parents=True)
    suite.write_text("KUNIT_CASE_PARAM(case, gen)\n")
    good = ("selftest reclaim_a", "selftest reclaim_a:case", "selftest reclaim_a:fix.xfs.case", "kunit suite")
    bad = ("selftest reclaim_b", "selftest reclaim_a:other", "selftest reclaim_a:fix.ext4.case", "kunit suite.x")
    for names, number in ((good, 0), (bad, len(bad))):
        text = "Ablation: x\n" + "".join(f"Caught-by: {name}\n" for name in names)
        assert len(ablate.unknown(Layout(tmp_path), ablate.parse(Path("a.patch"), text))) == number


def test_the_assertion_that_caught_an_ablation_is_told() -> None:
    catch = ablate.parse(Path("a.patch"), HEADER).catches[0]
    message = "woken 3 times\n/any/where/reclaim_a.c:12:case:Expected 1 (1) < 0 (0)\nTest failed"
    cases = [Case("s", "reclaim_dontcache/dontcache.xfs.memory_reclaim", "failed", message)]
    assert ablate.assertion(catch, cases, Path()) == EXPECTED


def test_an_unknown_selftest_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    source = tmp_path / "tools/testing/selftests/mm/reclaim_a.c"
    source.parent.mkdir(parents=True)
    source.write_text("TEST(x)\n")
    with pytest.raises(Fail, match="TEST=nope: no such program; there are reclaim_a"):
        selftest.collect(Layout(tmp_path), "series", "", "reclaim_a:x nope", "", 60)
    with pytest.raises(Fail, match="TEST=reclaim_a:y: no such case"):
        selftest.collect(Layout(tmp_path), "series", "", "reclaim_a:x reclaim_a:y", "", 60)
    assert not (tmp_path / "build").exists()


def test_another_make_does_not_change_the_kernel_under_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(tmp_path)
    program = layout.build / "selftests" / "reclaim_a"
    found: list[tuple[str, str]] = []

    def make(version: str) -> Path:
        built(layout, "series", content=version)
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(version)
        return program.parent

    def boot(_layout: Layout, spec: Spec, command: str, on_output: Callable[[str], None]) -> Outcome:
        make("second")
        found.append((spec.kernel.read_text(), (tmp_path / command.split()[1][10:] / program.name).read_text()))
        # What fails among the others passes by itself.
        verdict = "not ok" if len(found) == 1 else "ok"
        for line in ("TAP version 13", "# 1..1", f"# {verdict} 1 f.c", f"{verdict} 1 reclaim_a", "1..1"):
            on_output(line)
        return Outcome("exited", 0, "", "", 1)

    monkeypatch.setattr(build, "ensure", built)
    monkeypatch.setattr(build, "_selftests", lambda *_: make("first"))
    monkeypatch.setattr("lr.guest.run", boot)
    cases = selftest.collect(layout, "series", "", "", "lru_gen=on,nodes=1", 60)
    assert [(case.name, case.status) for case in cases] == [("reclaim_a/f.c", "passed")]
    assert found == [("first", "first")] * 2
    assert not list((layout.build / "tmp").iterdir())


def test_a_selftest_built_from_edited_sources_is_not_taken_for_the_committed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(tmp_path)
    for folder in (tmp_path / "tools/testing/selftests/mm", layout.linux / "tools/testing/selftests/mm"):
        folder.mkdir(parents=True)
        (folder / "reclaim_a.c").write_text("int main(void) { return 0; }\n")
        (folder / "run_vmtests.sh").write_text("")
    states: list[str | None] = ["committed"]
    monkeypatch.setattr(build, "_state", lambda *_: states[0])
    monkeypatch.setattr(build, "make", lambda *_: [])
    stamp = build.selftests(layout) / ".built"
    assert stamp.read_text() == "committed"
    states[0] = None
    build.selftests(layout)
    assert not stamp.exists()
    # Edited and committed while it was compiled: what is in it is not known.
    answers = iter(("before", "after"))
    monkeypatch.setattr(build, "_state", lambda *_: next(answers))
    with pytest.raises(Fail, match="build/linux changed while it was compiled"):
        build.selftests(layout)
    assert not stamp.exists()
    assert {path.name for path in stamp.parent.iterdir()} == {"reclaim_a", "run_vmtests.sh"}


def test_one_make_at_a_time_runs_in_a_folder_of_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, inside, most = Layout(tmp_path), [0], [0]

    def compiling(_layout: Layout, spec: build.Target) -> Path:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.1)
        inside[0] -= 1
        return spec.image

    monkeypatch.setattr(build, "_compile", compiling)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: build.compile_kernel(layout, build.target(layout, "series")), range(2)))
    assert most == [1]


def test_edits_of_a_work_tree_are_not_reset(made: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "compile_kernel", lambda _, spec: spec.source / "fs/inode.c")
    diff = "--- a/fs/inode.c\n+++ b/fs/inode.c\n@@ -1,3 +1,3 @@\n-int a;\n+int z;\n int b;\n int c;\n"
    made.write("series/first/ablations/a.patch", diff)
    ablation = ablate.Ablation(made.root / "series/first/ablations/a.patch", "a", ())
    # Twice: what an ablation leaves in its work tree is nobody's work, nor is a commit that was amended since.
    for subject in ("a", "b"):
        made.commit(subject, "Why.", "--allow-empty", *(["--amend"] if subject == "b" else []))
        assert ablate.image(made.layout, ablation).read_text().startswith("int z;")
    made.write("build/ablate/linux/fs/inode.c", "int mine;\n")
    with pytest.raises(Fail, match=r"build/ablate/linux has changes, which would be lost: fs/inode.c; keep them"):
        ablate.image(made.layout, ablation)
    assert (made.layout.build / "ablate/linux/fs/inode.c").read_text() == "int mine;\n"
    made.edit("mm/vmscan.c", "line 1\n", "line one\n")
    with pytest.raises(Fail, match="build/linux holds edits, .* commit them"):
        ablate.image(made.layout, ablation)


@pytest.mark.parametrize("keep_original", [True, False])
def test_a_copied_checkout_has_work_trees_of_its_own(made: Toy, tmp_path: Path, keep_original: bool) -> None:
    build.worktree(made.layout, made.layout.build / "stock/linux", "base")
    copy = Layout(tmp_path / "copy")
    linux = copy.build / "stock/linux"
    shutil.copytree(made.root, copy.root, symlinks=True)
    if not keep_original:
        made.root.rename(tmp_path / "gone")
    (linux / "fs/inode.c").write_text("int mine;\n")
    with pytest.raises(Fail, match="build/stock/linux has changes, which would be lost: fs/inode.c;"):
        build.worktree(copy, linux, "series")
    (linux / "fs/inode.c").write_text("int a;\nint b;\nint c;\n")
    build.worktree(copy, linux, "series")
    assert "line ten" in (linux / "mm/vmscan.c").read_text()
    assert build.changes(linux) == []
    if keep_original:
        original = made.layout.build / "stock/linux"
        assert made.git("-C", str(original), "rev-parse", "HEAD") == made.git("rev-parse", "base")
        assert made.git("-C", str(original), "status", "--porcelain") == ""


def test_a_work_tree_of_a_build_linux_that_was_moved_away_stays(made: Toy) -> None:
    stock = made.layout.build / "stock/linux"
    build.worktree(made.layout, stock, "base")
    made.write("build/stock/linux/fs/inode.c", "int mine;\n")
    made.linux.rename(made.layout.build / "linux-away")
    made.tree()
    # A work tree of the new one may bear the name that the old one had.
    build.worktree(made.layout, made.layout.build / "ablate/linux", "base")
    with pytest.raises(
        Fail, match="build/stock/linux is a work tree of another repository .* `rm -r build/stock/linux`"
    ):
        build.worktree(made.layout, stock, "base")
    assert clean(made.layout) == ["build/stock: linux is a work tree of another repository than build/linux"]
    assert (stock / "fs/inode.c").read_text() == "int mine;\n"
    shutil.rmtree(stock)
    made.tree()
    build.worktree(made.layout, stock, "base")


def test_kunit_parts() -> None:
    assert kunit.glob_of("") == "*"
    with pytest.raises(Fail, match="FILTER"):
        kunit.glob_of("a b")
    assert kunit.strip_level("# ok 1 a\n#     ok 1 b\n# note\n") == "ok 1 a\n    ok 1 b\n# note\n"


def test_what_kunit_py_started_ends_with_the_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(tmp_path)
    layout.linux.mkdir(parents=True)
    # Not bash, which cannot trap a signal that was ignored when it started, as in a job in the background.
    script = (
        "import pathlib, signal, subprocess, sys\n"
        f"signal.signal(signal.SIGINT, lambda *_: (pathlib.Path('{tmp_path}/told').touch(), sys.exit(1)))\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    made: list[str] = []

    def stopped(line: str) -> str:
        made.append(line)
        raise KeyboardInterrupt

    monkeypatch.setattr("lr.guest.clean", stopped)
    with pytest.raises(KeyboardInterrupt):
        kunit._kunit_py(layout, [sys.executable, "-c", script], "toy")
    # As kunit.py is told, which then ends UML.
    assert (tmp_path / "told").exists()
    status = Path(f"/proc/{made[0].strip()}/status")
    until = time.monotonic() + 10
    while status.exists() and "zombie" not in status.read_text() and time.monotonic() < until:
        time.sleep(0.05)
    assert not status.exists() or "zombie" in status.read_text()


def test_a_filter_that_matches_nothing_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compose, "ensure_tree", lambda _: None)
    ran = [Case("kunit uml", "a_suite/a_case")]
    monkeypatch.setattr(kunit, "run_uml", lambda *_: list(ran))
    assert kunit.collect(Layout(tmp_path), "uml", "a_*", 60) == ran
    ran.clear()
    with pytest.raises(Fail, match=r"FILTER=typo\*: no case of that name ran"):
        kunit.collect(Layout(tmp_path), "uml", "typo*", 60)


def test_a_verb_that_ends_without_counts_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_argv: list[str]) -> Counts:
        raise Fail("it does not build")

    monkeypatch.setattr(alltests, "STEPS", {"check": lambda _: Counts(3, 0, 2)})
    assert alltests.main([]) == 0
    monkeypatch.setattr(alltests, "STEPS", {"kunit": broken, "check": lambda _: Counts(3, 0, 2)})
    assert alltests.main([]) == 1
    said = capsys.readouterr().out
    assert "kunit: it does not build" in said
    assert said.endswith("3 passed, 1 failed, 2 skipped\n")


def test_demo_screen() -> None:
    stock = demo.words_of("[1] noise\n# xfs: written_by_reclaim=500 kept=0\n# xfs: lost=500 files=500 warnings=1\n")
    ours = demo.words_of("# xfs: written_by_reclaim=0 kept=500\n# xfs: lost=0 files=500 warnings=0\n")
    text = demo.screen(1, STATIONS[0], stock, ours)
    assert "500 of 500 files" in text
    assert STATIONS[0].good(ours)
    assert not STATIONS[0].good(stock)
    assert len(text.splitlines()) < 24


@pytest.mark.parametrize(
    ("stock", "ours", "told"),
    [
        (("exited", 1), ("exited", 0), ""),
        (("exited", 1), ("panic", 1), "series: the kernel panicked"),
        (("died", 1), ("exited", 0), "stock 7.3: the guest ended before the command did"),
        (("exited", 1), ("exited", 1), "series: the command ended with status 1: # lost=0 files=500"),
    ],
)
def test_a_guest_that_died_is_no_good_station(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stock: tuple[str, int],
    ours: tuple[str, int],
    told: str,
) -> None:
    """It may have printed good figures before."""
    ends = iter((stock, ours))
    monkeypatch.setattr(demo, "here", lambda: Layout(tmp_path))
    monkeypatch.setattr(demo, "STATIONS", STATIONS[:1])
    monkeypatch.setattr(demo, "programs", lambda *_: None)
    monkeypatch.setattr(build, "ensure", built)
    monkeypatch.setattr(build, "selftests", lambda _: None)
    booted: list[str] = []

    def boot(layout: Layout, spec: Spec, _command: str) -> Outcome:
        # Another make.
        for kernel in ("stock", "series"):
            built(layout, kernel, content="second")
        booted.append(spec.kernel.read_text())
        return Outcome(*next(ends), "# lost=0 files=500", "", 1)

    monkeypatch.setattr("lr.guest.run", boot)
    assert demo.main([]) == (1 if told else 0)
    assert booted == ["first", "first"]
    said = capsys.readouterr().out
    assert f"demo: {0 if told else 1} of 1 stations as they should be" in said and told in said


def test_a_station_with_sides_of_its_own() -> None:
    station = next(each for each in STATIONS if each.sides[0].kernel == each.sides[1].kernel)
    text = demo.screen(2, station, {"helpers": "0"}, {"helpers": "77"})
    assert all(side.head in text for side in station.sides) and "stock 7.3" not in text
    assert station.good({"helpers": "77"})
    assert not station.good({"helpers": "0"}) and not station.good({})
