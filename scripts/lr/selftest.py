# SPDX-License-Identifier: GPL-2.0-only
"""The verb `selftest`: our kselftests in guests, over lru_gen on/off and one/two nodes, with scratch disks."""

from __future__ import annotations

import argparse
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lr import again, build, console, guest, ktap
from lr.guest import Disk, Outcome, Spec
from lr.layout import Layout, here
from lr.options import KERNELS, checks, choice, env, number
from lr.results import Case, Counts, conclude, without_result, write_junit
from lr.ui import Fail, Progress, clock, say

# Each test makes its own filesystem there; a blank disk each, large enough for what the tests write.
DISKS = tuple(Disk(fs, "blank", 512) for fs in ("ext4", "xfs"))
_SELECTION = re.compile(r"([A-Za-z0-9_-]+)(?::([A-Za-z0-9_.-]+))?$")
# Tests of memory pressure have to fill it all.
_MIB = 640


@dataclass(frozen=True)
class Cell:
    """One cell of the matrix."""

    lru_gen: bool
    nodes: int
    # One node more, without CPUs, whose memory is a module of its own and movable: it can go as a whole.
    module: bool = False
    # The cases that run there when none is named, and must not be skipped; empty: all.
    only: tuple[str, ...] = ()
    # Of the tests that are named those that run there; empty: all that are named.
    runs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As it is shown, and named in JUnit."""
        return f"lru_gen={'on' if self.lru_gen else 'off'},nodes={self.nodes}{',module=1' if self.module else ''}"

    @property
    def programs(self) -> set[str]:
        """The programs that have something to run there; none: all."""
        return {word.split(":")[0] for word in self.only}

    def of(self, tests: Sequence[str]) -> tuple[str, ...]:
        """Those of the tests that the machine is made for; empty where it is made for all."""
        return tuple(word for word in tests if word.split(":")[0] in self.programs)

    @property
    def append(self) -> tuple[str, ...]:
        """What the kernel's command line says there."""
        return ("memhp_default_state=online_movable",) if self.module else ()

    @property
    def qemu(self) -> tuple[str, ...]:
        """What QEMU is told there."""
        if not self.module:
            return ()
        node = ("-m", "slots=1,maxmem=4G", "-numa", f"node,nodeid={self.nodes}")
        memory = ("-object", "memory-backend-ram,id=module,size=256M")
        return (*node, *memory, "-device", f"pc-dimm,memdev=module,node={self.nodes}")


MATRIX = tuple(Cell(lru_gen, nodes) for nodes in (1, 2) for lru_gen in (True, False))
# Machines that only some cases have something to find on; none of these may be skipped there.
_OF_MANY_NODES = (
    "reclaim_numa_balancing:numa.normal.working_set_bigger_than_its_node",
    "reclaim_numa_balancing:numa.normal.huge_pages_and_a_fragmented_node",
    "reclaim_numa_balancing:numa.both.working_set_bigger_than_its_node",
    "reclaim_numa_balancing:numa.both.huge_pages_and_a_fragmented_node",
    "reclaim_pcp_drain:other_nodes.cpuset.keep_their_lists",
    "reclaim_pcp_drain:other_nodes.policy.keep_their_lists",
)
_OF_A_MODULE = ("reclaim_kswapd_threads:kswapd_threads.a_node_goes_and_comes",)
# What a case says where the load did not do what it is to find, which depends on how fast the host is.
OF_THE_HOST = re.compile(r"one thread bears this load|: too few")
SPECIAL = (
    Cell(True, 4, only=_OF_MANY_NODES),
    Cell(True, 2, module=True, only=_OF_A_MODULE),
    Cell(False, 2, module=True, only=_OF_A_MODULE),
)


def parse_matrix(text: str, tests: Sequence[str] = ()) -> tuple[Cell, ...]:
    """Cells by name, separated by blanks; an empty text is all that have something to run of the tests (empty: all)."""
    known = {cell.name: cell for cell in (*MATRIX, *SPECIAL)}
    if not text.split():
        found = (replace(cell, runs=cell.of(tests)) for cell in known.values())
        return tuple(cell for cell in found if not cell.only or not tests or cell.runs)
    for word in text.split():
        choice("MATRIX", word, tuple(known))
    return tuple(known[word] for word in text.split())


def parse_tests(text: str) -> tuple[str, ...]:
    """PROGRAM, or PROGRAM:CASE with a case as kselftest_harness.h names it; several are separated by blanks."""
    for word in text.split():
        if not _SELECTION.match(word):
            raise Fail(
                f"TEST={word}: write PROGRAM or PROGRAM:CASE, as in reclaim_dontcache:dontcache.xfs.memory_reclaim"
            )
    return tuple(text.split())


def programs(layout: Layout) -> list[str]:
    """All of ours."""
    # In build/linux also those that are not saved yet.
    folders = (home / "tools/testing/selftests/mm" for home in (layout.root, layout.linux))
    return sorted({path.stem for folder in folders for path in folder.glob("reclaim_*.c")})


def refuse_unknown(layout: Layout, selection: Sequence[str]) -> None:
    """Fail, before half an hour of building, if a program is none of ours."""
    ours = programs(layout)
    for word in selection:
        if word.split(":")[0] not in ours:
            raise Fail(f"TEST={word}: no such program; there are {', '.join(ours) or 'none yet'}")
        if not (defines(layout.root, word) or defines(layout.linux, word)):
            raise Fail(
                f"TEST={word}: no such case; see TEST_F() and FIXTURE_VARIANT_ADD() in {word.partition(':')[0]}.c"
            )


def defines(tree: Path, name: str) -> bool:
    """Whether the tree's sources have that PROGRAM, or PROGRAM:CASE as the harness names a case."""
    program, _, case = name.partition(":")
    source = tree / f"tools/testing/selftests/mm/{program}.c"
    return source.exists() and names_all(case, source.read_text())


def names_all(case: str, text: str) -> bool:
    """Whether a test defines each word of a case: its fixture, its variant, itself; a KUnit case stands alone."""
    defined = re.findall(r"\b(?:TEST|FIXTURE|KUNIT_CASE)\w*\(([^)]*)", text)
    names = {name.strip() for one in defined for name in one.split(",")}
    return all(word in names for word in case.split(".") if word)


def command_of(tests: Sequence[str], cell: Cell, folder: str) -> str:
    """What runs in the guest; folder: where the programs lie in the checkout."""
    words = [f"LRU_GEN={'1' if cell.lru_gen else '0'}", f"SELFTESTS={folder}", "bash scripts/guest/selftest.sh"]
    return " ".join([*words, *tests])


def run_selftests(
    layout: Layout,
    kernel_image: Path,
    tests: Sequence[str] | None = None,
    matrix: Sequence[Cell] = MATRIX,
    *,
    allowed: Sequence[str] = (),
    timeout: int = 1800,
    show: bool = True,
    label: str = "selftest",
    folder: str = "build/selftests",
) -> list[Case]:
    """Run the programs of a folder in a guest for each cell; a warning in a console is a failed case too."""
    results = layout.build / "results"
    results.mkdir(parents=True, exist_ok=True)
    screen = threading.Lock()

    def one(cell: Cell) -> list[Case]:
        stamped: list[str] = []

        def on_output(line: str) -> None:
            stamped.append(f"[{progress.elapsed():.3f}] {line}")
            if show:
                with screen:
                    say(f"[{cell.name} {clock(progress.elapsed())}] {line}")

        spec = Spec(
            kernel_image,
            mib=_MIB,
            nodes=cell.nodes,
            append=cell.append,
            qemu=cell.qemu,
            disks=DISKS,
            timeout=timeout,
        )
        outcome = guest.run(layout, spec, command_of(cell.runs or tests or cell.only, cell, folder), on_output)
        stem = f"{label}-{cell.name.replace(',', '-').replace('=', '_')}"
        (results / f"{stem}.ktap").write_text(outcome.output)
        (results / f"{stem}.console").write_text(outcome.console)
        return judge(replace(outcome, output="\n".join(stamped)), f"{label} {cell.name}", allowed)

    cases: list[Case] = []
    with Progress(f"{label}: {len(matrix)} guests", len(matrix)) as progress, guest.several() as pool:
        for done, found in enumerate(pool.map(one, matrix), start=1):
            cases += found
            progress.update(done)
    return cases


def judge(outcome: Outcome, suite: str, allowed: Sequence[str]) -> list[Case]:
    """The cases of one guest: its KTAP, how it ended, and what its console says."""
    cases = ktap.parse(outcome.output, suite)
    if outcome.ended != "exited":
        cases.append(Case(suite, "guest", "failed", outcome.story()))
    elif outcome.status not in (0, 4) and not any(case.status == "failed" for case in cases):
        # 4 is kselftest's "skipped".
        cases.append(Case(suite, "exit status", "failed", f"the tests ended with status {outcome.status}"))
    for finding in console.scan(outcome.console, allowed):
        cases.append(Case(suite, f"console: {finding.kind}", "failed", finding.report))
    return cases


def not_skipped(cases: Sequence[Case], cells: Mapping[str, Cell]) -> list[Case]:
    """The cases; one that is skipped on the machine that is there for it has failed. cells: by suite."""

    def checked(case: Case) -> Case:
        cell = cells.get(case.suite)
        if case.status != "skipped" or cell is None or case.name.replace("/", ":", 1) not in cell.only:
            return case
        return replace(case, status="failed", message=f"skipped on the machine that is made for it: {case.message}")

    return [checked(case) for case in cases]


def nowhere(cases: Sequence[Case]) -> list[Case]:
    """The cases, of all machines; one that is skipped on all of them has failed there, unless the host may be why."""
    ran = {case.name for case in cases if case.status != "skipped" or OF_THE_HOST.search(case.message)}
    return [
        case
        if case.name in ran
        else replace(case, status="failed", message=f"skipped on every machine: {case.message}")
        for case in cases
    ]


def collect(layout: Layout, kernel: str, debug: str, tests: str, matrix: str, timeout: int) -> list[Case]:
    """The verb's work: check the options, build, run, write JUnit."""
    selection = parse_tests(tests)
    cells = parse_matrix(matrix, selection)
    refuse_unknown(layout, selection)
    spec = build.ensure(layout, kernel, debug)
    label = "selftest" if kernel == "series" and not debug else f"selftest-{spec.name}"
    # Elsewhere the kernel is full of races that its authors accept.
    allowed = (console.race_of_others(layout),) if debug == "races" else ()
    with guest.folder_of(layout) as folder:
        # Another make may build meanwhile: every guest, those of second tries too, gets what is there now.
        programs_now = layout.told(build.selftests(layout, folder / "selftests"))
        image = build.keep(spec.image, folder, kernel)
        run = partial(run_selftests, layout, image, allowed=allowed, timeout=timeout, folder=programs_now)

        def alone(suite: str, program: str) -> list[Case]:
            (cell,) = (cell for cell in cells if suite == f"{label} {cell.name}")
            words = [word for word in cell.only if word.split(":")[0] == program] or [program]
            return run(words, [cell], label=f"{label}-again")

        cases = run(selection, cells, label=label)
        if not selection:
            cases = again.second_try(cases, alone)
    if not selection:
        everywhere = [f"{label} {cell.name}" for cell in cells if not cell.only]
        cases += without_result(cases, programs(layout), everywhere)
    if kernel == "series" and not debug and not selection and not matrix.split():
        cases = nowhere(cases)
    if kernel == "series":
        cases = not_skipped(cases, {f"{label} {cell.name}": cell for cell in cells})
    write_junit(layout.build / "results" / f"{label}.xml", cases)
    return cases


def run(argv: list[str]) -> Counts:
    """The verb; what passed and what did not."""
    words = argparse.ArgumentParser(prog="selftest", description=__doc__)
    words.add_argument("--kernel", default=env("KERNEL", "series"), help="series (ours) or stock; default series")
    words.add_argument("--debug", default=env("DEBUG", "0"), help="1, races: the debug build of it")
    words.add_argument("--test", default=env("TEST", ""), help="PROGRAM or PROGRAM:CASE; default all")
    words.add_argument("--matrix", default=env("MATRIX", ""), help="e.g. lru_gen=off,nodes=2; default all")
    words.add_argument("--timeout", default=env("TIMEOUT", "1800"), help="seconds one guest may take, default 1800")
    options = words.parse_args(argv)
    kernel = choice("KERNEL", options.kernel, KERNELS)
    timeout = number("TIMEOUT", options.timeout, 1, 86400)
    whole = Progress("selftest")
    cases = collect(here(), kernel, checks(options.debug), options.test, options.matrix, timeout)
    for case in cases:
        if case.status == "skipped":
            say(f"skipped {case.suite}: {case.name}: {case.message}")
    return conclude(cases, whole.elapsed())


def main(argv: list[str]) -> int:
    """Run the selftests; 1 when a case failed."""
    return run(argv).status
