# SPDX-License-Identifier: GPL-2.0-only
"""The verb bisect: which warnings are the same, and whom a touched header is tried on."""

from __future__ import annotations

from lr.bisect import rebuilt, some_users, warnings_of


def test_warnings_ignore_the_line_number() -> None:
    first = warnings_of(["../linux/mm/a.c:10:5: warning: unused variable 'x' [-Wunused]", "  CC      mm/a.o"])
    second = warnings_of(["/somewhere/linux/mm/a.c:12:5: warning: unused variable 'x' [-Wunused]"])
    assert first == second and len(first) == 1


def test_rebuilt_objects() -> None:
    assert rebuilt(["  CC      mm/a.o", "  LD      vmlinux", "  CC [M]  fs/b.o"]) == ["mm/a.o", "fs/b.o"]


def test_users_of_a_common_header_are_sampled_near_ones_first() -> None:
    users = [f"drivers/d{i}.o" for i in range(1000)] + [f"mm/m{i}.o" for i in range(100)]
    some = some_users(users)
    assert len(some) <= 40 and len(set(some)) == len(some)
    assert some[0].startswith("mm/") and any(name.startswith("drivers/") for name in some)


def test_few_users_are_all_tried() -> None:
    assert sorted(some_users(["mm/a.o", "lib/b.o"])) == ["lib/b.o", "mm/a.o"]
