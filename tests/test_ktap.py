# SPDX-License-Identifier: GPL-2.0-only
"""KTAP: flat, nested behind "# ", indented, unfinished, and with printk's stamps."""

from __future__ import annotations

from lr import ktap

HARNESS = """TAP version 13
1..3
# Starting 3 tests from 1 test cases.
#  RUN           dontcache.xfs.memory_reclaim ...
#            OK  dontcache.xfs.memory_reclaim
ok 1 dontcache.xfs.memory_reclaim
#  RUN           dontcache.ext4.memory_reclaim ...
# a.c:9:memory_reclaim:Expected 0 (0) == lost (7)
not ok 2 dontcache.ext4.memory_reclaim
ok 3 dontcache.f2fs.memory_reclaim # SKIP no mkfs for it
# FAILED: 2 / 3 tests passed.
# Totals: pass:1 fail:1 xfail:0 xpass:0 skip:1 error:0
"""


def states(text: str) -> list[tuple[str, str]]:
    return [(case.name, case.status) for case in ktap.parse(text, "s")]


def test_harness_output() -> None:
    cases = ktap.parse(HARNESS, "s")
    assert [(case.name, case.status) for case in cases] == [
        ("dontcache.xfs.memory_reclaim", "passed"),
        ("dontcache.ext4.memory_reclaim", "failed"),
        ("dontcache.f2fs.memory_reclaim", "skipped"),
    ]
    assert "lost (7)" in cases[1].message
    assert cases[2].message == "no mkfs for it"


def test_stamps_say_how_long_a_case_took() -> None:
    lines = HARNESS.splitlines()
    stamped = "\n".join(f"[{second * 1.5:.3f}] {line}" for second, line in enumerate(lines))
    assert [case.seconds for case in ktap.parse(stamped, "s")] == [6.0, 4.5, 1.5]
    nested = (
        "\n".join(f"[{second}.000] # {line}" for second, line in enumerate(lines)) + "\n[99.000] not ok 1 x\n1..1\n"
    )
    assert [(case.name, case.seconds) for case in ktap.parse(nested, "s")][:2] == [
        ("x/dontcache.xfs.memory_reclaim", 4.0),
        ("x/dontcache.ext4.memory_reclaim", 3.0),
    ]


def test_nested_behind_hashes() -> None:
    inner = "".join(f"# {line}\n" for line in HARNESS.splitlines())
    text = f"TAP version 13\n# ------\n# running ./x\n# ------\n{inner}# [FAIL]\nnot ok 1 x # exit=1\n1..1\n"
    assert states(text) == [
        ("x/dontcache.xfs.memory_reclaim", "passed"),
        ("x/dontcache.ext4.memory_reclaim", "failed"),
        ("x/dontcache.f2fs.memory_reclaim", "skipped"),
    ]


def test_kunit_indentation_and_stamps() -> None:
    text = """[    0.1] KTAP version 1
[    0.1] 1..1
[    0.1]     KTAP version 1
[    0.1]     # Subtest: inode_reclaim
[    0.1]     # module: x
[    0.1]     1..2
[    0.1]     ok 1 keeps_dirty
[    0.1]         KTAP version 1
[    0.1]         # Subtest: params
[    0.1]         ok 1 one
[    0.1]         ok 2 two
[    0.1]     ok 2 params
[    0.1] # inode_reclaim: pass:2 fail:0 skip:0 total:2
[    0.1] ok 1 inode_reclaim
"""
    assert states(text) == [
        ("inode_reclaim/keeps_dirty", "passed"),
        ("inode_reclaim/params/one", "passed"),
        ("inode_reclaim/params/two", "passed"),
    ]


def test_plan_not_kept_is_a_failure() -> None:
    assert states("TAP version 13\n1..3\nok 1 a\n") == [("a", "passed"), ("plan", "failed")]


def test_a_suite_of_which_no_planned_test_ran_is_a_failure() -> None:
    nested = "KTAP version 1\n1..1\n    KTAP version 1\n    1..3\nok 1 suite"
    assert [(case.name, case.message) for case in ktap.parse(nested, "s")] == [("suite", "0 of 3 planned results")]
    assert states(nested) == [("suite", "failed")]
    assert states(f"{nested} # SKIP no disk") == [("suite", "skipped")]


def test_output_that_ends_early_is_a_failure() -> None:
    names = dict(states("TAP version 13\n# TAP version 13\n# 1..2\n# ok 1 a\n"))
    assert "failed" in names.values()


def test_nothing_at_all_is_a_failure() -> None:
    assert states("hello\n") == [("output", "failed")]


def test_whole_skip_and_empty_plan() -> None:
    assert states("TAP version 13\n1..0 # SKIP needs root\n") == [("all", "skipped")]


def test_parent_that_fails_alone_is_kept() -> None:
    assert states("TAP version 13\n# 1..1\n# ok 1 a\nnot ok 1 prog # exit=1\n1..1\n") == [
        ("prog/a", "passed"),
        ("prog", "failed"),
    ]


def test_bail_out_and_expected_failure() -> None:
    found = dict(states("TAP version 13\n1..2\nnot ok 1 a # XFAIL known\nBail out! no memory\n"))
    assert found["a"] == "skipped"
    assert found["bail out"] == "failed"
