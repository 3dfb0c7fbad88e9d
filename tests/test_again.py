# SPDX-License-Identifier: GPL-2.0-only
"""Tests of lr.again: which failures have a second try, and what becomes of them."""

from __future__ import annotations

import pytest
from lr.again import second_try
from lr.results import Case, Status

BAD = Case("selftest a", "reclaim_x/case.one", "failed", "17 of 20")
GOOD = Case("selftest a", "reclaim_x/case.two")


class Guests:
    """Second runs, each ending as told."""

    def __init__(self, status: Status = "passed") -> None:
        self.asked: list[tuple[str, str]] = []
        self.status: Status = status

    def run(self, suite: str, program: str) -> list[Case]:
        self.asked.append((suite, program))
        return [Case(suite, f"{program}/case.one", self.status)]


def test_what_passes_by_itself_is_told_and_kept(capsys: pytest.CaptureFixture[str]) -> None:
    guests = Guests()
    found = second_try([BAD, GOOD], guests.run)
    assert guests.asked == [("selftest a", "reclaim_x")]
    assert [case.status for case in found] == ["passed", "passed"]
    assert found[0].message == "failed first, passed by itself: 17 of 20"
    assert [case.unstable for case in found] == [True, False]
    assert "UNSTABLE selftest a: reclaim_x/case.one\n    17 of 20" in capsys.readouterr().out


@pytest.mark.parametrize("status", ["failed", "skipped"])
def test_what_fails_again_or_does_not_run_has_failed(status: Status) -> None:
    guests = Guests(status)
    assert second_try([BAD, GOOD], guests.run) == [BAD, GOOD]
    assert len(guests.asked) == 1


@pytest.mark.parametrize("name", ["console: warning", "guest", "reclaim_dontcache/dontcache.xfs.kept"])
def test_data_and_consoles_have_no_second_try(name: str) -> None:
    guests = Guests()
    cases = [BAD, Case("selftest b", name, "failed")]
    assert second_try(cases, guests.run) == cases
    assert not guests.asked


@pytest.mark.parametrize(("programs", "cells"), [(4, 1), (1, 2)])
def test_many_failures_and_many_machines_are_no_chance(programs: int, cells: int) -> None:
    guests = Guests()
    many = [
        Case(f"selftest {cell}", f"reclaim_{program}/case.one", "failed")
        for program in range(programs)
        for cell in range(cells)
    ]
    assert second_try(many, guests.run) == many
    assert not guests.asked
