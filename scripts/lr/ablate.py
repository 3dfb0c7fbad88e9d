# SPDX-License-Identifier: GPL-2.0-only
"""The verb `ablate`: undo one mechanism at a time and demand that the tests it names fail."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from lr import build, compose, kunit, selftest, state
from lr.git import Git, Identity
from lr.layout import Layout, here
from lr.options import env, number
from lr.results import Case, conclude, write_junit
from lr.ui import Fail, Progress, grid, say

_HEAD = re.compile(r"Ablation: (\S.*)$")
# A test may need luck to meet a race; that it has caught the ablation once shows that it can.
_RUNS = 3
_ASSERTION = re.compile("Expected|EXPECTATION|ASSERTION")
# By the harness, by our tests' alarm before that, and by KUnit: a busy host does that with any mechanism.
_OUT_OF_TIME = re.compile(r"terminated by timeout|unexpectedly by signal 14\b|(?:try|case|cleanup) timed out")
_NO_ASSERTION = "failed by its setup, out of time or without an assertion"
_CAUGHT = re.compile(r"Caught-by: (selftest|kunit) (\S+)(?: +(\S.*))?$")


@dataclass(frozen=True)
class Catch:
    """One test that must fail: of kselftest PROGRAM[:CASE] in the matrix' cells, or a KUnit SUITE[.TEST]."""

    kind: str
    name: str
    matrix: tuple[selftest.Cell, ...] = ()

    @property
    def label(self) -> str:
        """As the table shows it."""
        cells = " ".join(cell.name for cell in self.matrix)
        return f"{self.kind} {self.name}" + (f" ({cells})" if cells else "")


@dataclass(frozen=True)
class Ablation:
    """One ablation and what it must be noticed by."""

    path: Path
    mechanism: str
    catches: tuple[Catch, ...]


def parse(path: Path, text: str) -> Ablation:
    """Read the header; one that does not keep the form is a Fail."""
    lines = text.splitlines()
    head = _HEAD.match(lines[0]) if lines else None
    if head is None:
        raise Fail(f"{path.name}: the first line must be `Ablation: MECHANISM`")
    catches: list[Catch] = []
    for line in lines[1:]:
        if line.startswith(("diff ", "---")):
            break
        if not line.startswith("Caught-by:"):
            continue
        found = _CAUGHT.match(line)
        if found is None:
            raise Fail(
                f"{path.name}: {line!r}: write `Caught-by: kunit SUITE` or "
                "`Caught-by: selftest PROGRAM:CASE lru_gen=on,nodes=2`"
            )
        cells: tuple[selftest.Cell, ...] = ()
        if found[1] == "selftest":
            try:
                selftest.parse_tests(found[2])
                # One cell is enough to notice; the usual one unless another is named.
                cells = selftest.parse_matrix(found[3] or "lru_gen=on,nodes=2")
            except Fail as exc:
                raise Fail(f"{path.name}: {line!r}: {exc}") from exc
        catches.append(Catch(found[1], found[2], cells))
    if not catches:
        raise Fail(f"{path.name}: no `Caught-by:` line; name the tests that must fail")
    return Ablation(path, head[1].strip(), tuple(catches))


def _named(catch: Catch, cases: Sequence[Case]) -> list[Case]:
    """The results of the test."""
    if catch.kind == "kunit":
        pattern = catch.name.replace(".", "/", 1) + ("" if "." in catch.name else "/*")
    else:
        program, _, case = catch.name.partition(":")
        pattern = f"{program}/{case}" if "." in case else f"{program}/*.{case}" if case else f"{program}/*"
    # A parametrised KUnit case has one case more for each parameter below it.
    return [case for case in cases if fnmatchcase(case.name, pattern) or fnmatchcase(case.name, f"{pattern}/*")]


def _in_setup(line: str, folder: Path) -> bool:
    """Whether an assertion, told by FILE.c:LINE, belongs to a fixture's setup; folder: where the source lies."""
    place = re.search(r"([\w-]+\.c):(\d+):", line)
    path = folder / place[1] if place else folder
    if place is None or not path.is_file():
        return False
    before = path.read_text().splitlines()[: int(place[2])]
    begins = [at for at, text in enumerate(before) if text.startswith("FIXTURE_SETUP(")]
    return bool(begins) and "}" not in before[begins[-1] :]


def _assertions(case: Case, folder: Path) -> list[str]:
    """Those by which the test itself failed, in time."""
    if case.status != "failed" or _OUT_OF_TIME.search(case.message):
        return []
    told = [line.strip() for line in case.message.splitlines() if _ASSERTION.search(line)]
    return [re.sub(r"^\S*/", "", line) for line in told if not _in_setup(line, folder)]


def assertion(catch: Catch, cases: Sequence[Case], folder: Path) -> str:
    """Which one failed, for a person to see whether it is there for this mechanism."""
    return next((line for case in _named(catch, cases) for line in _assertions(case, folder)), "")


def verdict(catch: Catch, cases: Sequence[Case], folder: Path) -> str:
    """Empty when an assertion of the test failed in each cell named; otherwise what happened instead."""
    named = _named(catch, cases)
    if not named:
        return "did not run"
    # One suite for each cell.
    silent = {case.suite for case in named} - {case.suite for case in named if _assertions(case, folder)}
    if not silent:
        return ""
    found = {case.status for case in named if case.suite in silent}
    if "failed" in found:
        return _NO_ASSERTION
    return "was skipped" if found == {"skipped"} else "passed"


def _by_chance(catch: Catch, cases: Sequence[Case], problem: str) -> bool:
    """Whether another run may end otherwise."""
    skipped = [case for case in _named(catch, cases) if case.status == "skipped"]
    of_the_host = all(selftest.OF_THE_HOST.search(case.message) for case in skipped)
    return problem in ("passed", _NO_ASSERTION) or (problem == "was skipped" and of_the_host)


def unknown(layout: Layout, ablation: Ablation) -> list[str]:
    """The named tests that are not in our sources, so that none of them could fail."""
    return [f"{ablation.path.name}: there is no {each.label}" for each in ablation.catches if not _exists(layout, each)]


def _exists(layout: Layout, catch: Catch) -> bool:
    if catch.kind != "kunit":
        return selftest.defines(layout.root, catch.name)
    suite, _, case = catch.name.partition(".")
    files = list(layout.root.glob(f"*/tests/{suite}_kunit.c"))
    return bool(files) and selftest.names_all(case, "".join(path.read_text() for path in files))


def image(layout: Layout, ablation: Ablation) -> Path:
    """Apply and build, with build/ablate locked; the image of the series without that mechanism, while it is locked."""
    linux = Git.of(layout.linux)
    if linux.status():
        raise Fail("build/linux holds edits, and an ablation is built from what is committed there; commit them first")
    spec = build.target(layout, "ablate")
    build.worktree(layout, spec.source, linux.text("rev-parse", "HEAD"))
    git = Git.of(spec.source)
    done = git.run("apply", "--index", str(ablation.path), check=False)
    if done.returncode != 0:
        why = done.stderr.decode(errors="replace").strip().splitlines()[:1]
        raise Fail(f"{ablation.path.name} does not apply to the series: {' '.join(why)}")
    # What an interrupt leaves behind must not look like somebody's edit.
    commit = git.commit_tree(git.text("write-tree"), ["HEAD"], ablation.mechanism, Identity())
    git.run("update-ref", "HEAD", commit)
    return build.compile_kernel(layout, spec)


def run_one(layout: Layout, ablation: Ablation, timeout: int) -> list[Case]:
    """Build it, run the named tests; one case a named test."""
    with state.locked(layout, "ablate"):
        built = image(layout, ablation)
        return [_test(layout, ablation, catch, built, timeout) for catch in ablation.catches]


def _run_named(layout: Layout, ablation: Ablation, catch: Catch, kernel: Path, timeout: int) -> list[Case]:
    if catch.kind == "kunit":
        return kunit.run_qemu(layout, kernel, catch.name, timeout)
    label = f"ablate-{ablation.path.stem}"
    return selftest.run_selftests(layout, kernel, [catch.name], catch.matrix, timeout=timeout, show=False, label=label)


def _test(layout: Layout, ablation: Ablation, catch: Catch, kernel: Path, timeout: int) -> Case:
    timer = Progress(catch.label)
    folder = layout.linux / "tools/testing/selftests/mm"
    for number_of_run in range(1, _RUNS + 1):
        cases = _run_named(layout, ablation, catch, kernel, timeout)
        problem = verdict(catch, cases, folder)
        if not _by_chance(catch, cases, problem):
            break
        say(f"{catch.label} {problem} with ablation {ablation.path.stem}: run {number_of_run} of {_RUNS}")
    told = f"{catch.label} {problem}; it must fail without this mechanism"
    message = told if problem else assertion(catch, cases, folder)
    return Case(ablation.mechanism, catch.label, "failed" if problem else "passed", message, timer.elapsed())


def in_turn(ablations: Sequence[Ablation], day: int) -> list[Ablation]:
    """The same ones, beginning elsewhere each day, so that a budget does not leave out the same ones for ever.

    One further each day: however many a day has time for, none is left out for ever.
    """
    first = day % max(len(ablations), 1)
    return [*ablations[first:], *ablations[:first]]


def main(argv: list[str]) -> int:
    """Run every ablation; 1 when one goes unnoticed."""
    words = argparse.ArgumentParser(prog="ablate", description=__doc__)
    words.add_argument("--only", default=env("ABLATION", ""), help="one, by its file's name; default all")
    words.add_argument("--timeout", default=env("TIMEOUT", "1800"), help="seconds one guest may take, default 1800")
    words.add_argument(
        "--budget", default=env("BUDGET", "0"), help="minutes after which none is begun; default no limit"
    )
    options = words.parse_args(argv)
    timeout = number("TIMEOUT", options.timeout, 1, 86400)
    budget = number("BUDGET", options.budget, 0, 1440) * 60
    layout = here()
    whole = Progress("ablate")
    paths = layout.ablations
    wanted = [path for path in paths if not options.only or path.name.startswith(options.only)]
    if options.only and not wanted:
        raise Fail(f"ABLATION={options.only}: none of that name; there are {', '.join(path.stem for path in paths)}")
    # All headers first: a wrong one should not show after half an hour.
    ablations = [parse(path, path.read_text()) for path in wanted]
    if budget:
        ablations = in_turn(ablations, int(time.time() // 86400))

    compose.ensure_tree(layout)
    build.selftests(layout)
    cases: list[Case] = []
    rows = [("mechanism", "ablation", "caught by")]
    left: list[str] = []
    for ablation in ablations:
        if budget and cases and whole.elapsed() > budget:
            left.append(ablation.path.stem)
            continue
        say(f"ablation {ablation.path.name}: without {ablation.mechanism}")
        found = run_one(layout, ablation, timeout)
        cases += found
        for case in found:
            if case.status == "passed":
                say(f"  caught by {case.name}: {case.message}")
            told = case.name if case.status == "passed" else f"NOT: {case.message}"
            rows.append((ablation.mechanism, ablation.path.name, told))
    write_junit(layout.build / "results" / "ablate.xml", cases)
    say(grid(rows, 3))
    if left:
        say(f"BUDGET={budget // 60}: no time for {len(left)} of {len(ablations)} ablations: {', '.join(left)}")
    return conclude(cases, whole.elapsed()).status
