# SPDX-License-Identifier: GPL-2.0-only
"""Tests of lr.results."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from lr.results import Case, Counts, count, failures, summary_line, write_junit


def test_counts_add_and_sum_up() -> None:
    cases = [Case("a", "x"), Case("a", "y", "failed", "no"), Case("b", "z", "skipped", "no disk")]
    counts = count(cases) + Counts(passed=2)
    assert counts == Counts(3, 1, 1)
    assert counts.total == 5
    assert summary_line(counts) == "3 passed, 1 failed, 1 skipped"
    counts += count([Case("a", "x", unstable=True)])
    assert summary_line(counts) == "4 passed, 1 failed, 1 skipped; 1 of the passed UNSTABLE"


def test_a_failure_shows_how_it_begins_and_ends() -> None:
    long = failures([Case("a", "x", "failed", "\n".join(f"line {at}" for at in range(30)))]).splitlines()
    assert long[:2] == ["FAILED a: x", "    line 0"]
    assert long[8:11] == ["    line 7", "    [14 lines]", "    line 22"]
    assert long[-1] == "    line 29"
    assert len(failures([Case("a", "x", "failed", "a line\n" * 17)]).splitlines()) == 18


def test_junit_is_valid_whatever_a_console_holds(tmp_path: Path) -> None:
    cases = [
        Case("a", "x", message="once"),
        Case("b", "y", "failed", "first\x1b[0m <line>\nsecond\x00", 1.5),
        Case("a", "z", "skipped"),
    ]
    write_junit(tmp_path / "new" / "r.xml", cases)
    root = ET.parse(tmp_path / "new" / "r.xml").getroot()
    assert [(suite.get("name"), suite.get("tests")) for suite in root] == [("a", "2"), ("b", "1")]
    assert root.findtext("testsuite/testcase/system-out") == "once"
    failure = root.find("testsuite/testcase/failure")
    assert failure is not None and failure.get("message") == "first?[0m <line>"
    assert failure.text == "first?[0m <line>\nsecond?"
