# SPDX-License-Identifier: GPL-2.0-only
"""The verb `kunit`: our KUnit suites under UML (the kernel's kunit.py), and in a guest with two nodes and SMP."""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
from pathlib import Path

from lr import build, compose, console, guest, ktap
from lr import state as states
from lr.guest import Outcome, Spec
from lr.layout import Layout, here
from lr.options import choice, env, number
from lr.results import Case, Counts, conclude, without_result, write_junit
from lr.ui import Fail, Progress, say

WHERE = ("all", "uml", "qemu")
# A result that some runner nested once more behind "# "; kunit.py's own parser would lose it.
_NESTED = re.compile(r"^# (?=\s*(?:ok\b|not ok\b|1\.\.|K?TAP version|# Subtest))", re.MULTILINE)


def glob_of(wanted: str) -> str:
    """The glob for KUnit; everything when FILTER is empty: our configurations switch on no suite but ours."""
    if wanted and not re.fullmatch(r"[A-Za-z0-9_*?.\-\[\]]+", wanted):
        raise Fail(f"FILTER={wanted}: write a glob over suites, or suite.test, as in inode_reclaim*")
    return wanted or "*"


def strip_level(text: str) -> str:
    """Results one level up, where they were nested behind "# "."""
    return _NESTED.sub("", text)


def run_uml(layout: Layout, wanted: str, timeout: int) -> list[Case]:
    """Under UML: seconds once it is built, but one CPU and one node."""
    tool = layout.linux / "tools/testing/kunit/kunit.py"
    folder = layout.build / "kunit-uml"
    words = [sys.executable, str(tool), "run", "--arch=um", f"--build_dir={folder}", f"--jobs={build.jobs()}"]
    words += [f"--timeout={timeout}", "--raw_output=all", f"--make_options=CC={build.COMPILER}"]
    for path in build.kunit_configs(layout):
        words.append(f"--kunitconfig={layout.linux / path.relative_to(layout.root)}")
    with states.locked(layout, "kunit-uml"):
        text = _kunit_py(layout, [*words, glob_of(wanted)], "kunit under UML")
    log = layout.build / "results" / "kunit-uml.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(text)
    cases = ktap.parse(_ktap_part(text), "kunit uml")
    for finding in console.scan(text):
        cases.append(Case("kunit uml", f"console: {finding.kind}", "failed", finding.report))
    return cases


def _kunit_py(layout: Layout, words: list[str], what: str) -> str:
    """One kunit.py run; its output, or a Fail when the kernel could not be built or configured."""
    lines: list[str] = []
    with Progress(what) as progress:
        child = subprocess.Popen(
            words, cwd=layout.linux, env=build.make_env(layout), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        assert child.stdout is not None
        try:
            for line in child.stdout:
                lines.append(guest.clean(line).rstrip("\n"))
                progress.update(note=lines[-1][:60])
            child.wait()
        finally:
            # make is of the same session; UML makes one of its own, and kunit.py ends it when it gets a SIGINT.
            guest.end(child, signal.SIGINT)
        if not any("KTAP version" in line or "TAP version" in line for line in lines):
            raise Fail(f"{what}: no tests ran\n  " + "\n  ".join(build.errors_of(lines)))
    return "\n".join(lines) + "\n"


def _ktap_part(text: str) -> str:
    """From the first KTAP header on: what comes before is the kernel's boot."""
    found = re.search(r"^.*K?TAP version", strip_level(ktap.strip_stamps(text)), re.MULTILINE)
    return strip_level(ktap.strip_stamps(text))[found.start() :] if found else ""


def run_qemu(layout: Layout, image: Path, wanted: str, timeout: int) -> list[Case]:
    """In a guest: SMP and two nodes. KUnit runs at boot, before the command."""
    results = layout.build / "results"
    results.mkdir(parents=True, exist_ok=True)
    with Progress("kunit in a guest with two nodes"):
        append = ("kunit.enable=1", f"kunit.filter_glob={glob_of(wanted)}")
        spec = Spec(image, append=append, timeout=timeout, begins="KTAP version")
        outcome = guest.run(layout, spec, "true")
    (results / "kunit-qemu.console").write_text(outcome.console)
    return judge(outcome, "kunit qemu")


def judge(outcome: Outcome, suite: str) -> list[Case]:
    """The cases in one guest's console."""
    cases = ktap.parse(_ktap_part(outcome.console), suite)
    if not outcome.ok:
        cases.append(Case(suite, "guest", "failed", outcome.story()))
    for finding in console.scan(outcome.console):
        cases.append(Case(suite, f"console: {finding.kind}", "failed", finding.report))
    return cases


def collect(layout: Layout, where: str, wanted: str, timeout: int) -> list[Case]:
    """The verb's work."""
    compose.ensure_tree(layout)
    cases: list[Case] = []
    if where in ("all", "uml"):
        cases += run_uml(layout, wanted, timeout)
    if where in ("all", "qemu"):
        spec = build.target(layout, "series")
        cases += run_qemu(layout, build.compile_kernel(layout, spec), wanted, timeout)
    if not wanted:
        ours = sorted(path.stem.removesuffix("_kunit") for path in layout.root.glob("*/tests/*_kunit.c"))
        wheres = ("kunit uml", "kunit qemu") if where == "all" else (f"kunit {where}",)
        cases += without_result([case for case in cases if case.status != "skipped"], ours, wheres)
    write_junit(layout.build / "results" / "kunit.xml", cases)
    if wanted and not any("/" in case.name or case.status == "failed" for case in cases):
        raise Fail(f"FILTER={wanted}: no case of that name ran; give a glob over suites or suite.test, as in pcp_*")
    return cases


def run(argv: list[str]) -> Counts:
    """The verb; what passed and what did not."""
    words = argparse.ArgumentParser(prog="kunit", description=__doc__)
    words.add_argument(
        "--filter", default=env("FILTER", ""), help="a glob over suites or suite.test; default all of ours"
    )
    words.add_argument("--where", default=env("WHERE", "all"), help="uml, qemu or all; default all")
    words.add_argument("--timeout", default=env("TIMEOUT", "600"), help="seconds one boot may take, default 600")
    options = words.parse_args(argv)
    whole = Progress("kunit")
    where = choice("WHERE", options.where, WHERE)
    cases = collect(here(), where, options.filter, number("TIMEOUT", options.timeout, 1, 86400))
    for case in cases:
        if case.status != "failed":
            say(f"{'ok' if case.status == 'passed' else 'skipped'} {case.suite}: {case.name} {case.message}".rstrip())
    return conclude(cases, whole.elapsed())


def main(argv: list[str]) -> int:
    """Run the suites; 1 when a case failed."""
    return run(argv).status
