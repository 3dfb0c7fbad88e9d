# SPDX-License-Identifier: GPL-2.0-only
"""Trouble in a kernel's console."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from lr import console
from lr.layout import Layout

WARN = """[   44.7] ------------[ cut here ]------------
[   44.7] WARNING: mm/page-writeback.c:2700 at do_writepages+0x98/0xb0, CPU#1: cat/135
[   44.7] Modules linked in:
[   44.7] Call Trace:
[   44.7]  shrink_folio_list+0x1/0x2
[   44.7] ---[ end trace 0000000000000000 ]---
[   44.8] XFS (vda): Ending clean mount
"""


def test_quiet_console() -> None:
    assert console.scan("[    1.0] XFS (vda): Mounting V5 Filesystem\nvirtme-ng-init: udev is done\n") == []


def test_warning_with_its_trace() -> None:
    (found,) = console.scan(WARN)
    assert found.kind == "warning"
    assert "shrink_folio_list" in found.report
    assert "clean mount" not in found.report


def test_memory_that_stays_online_is_nothing_bad() -> None:
    assert console.scan("[ 1.0] page dumped because: unmovable page\n") == []
    assert console.scan("[ 1.0] page dumped because: isolation failed\n") == []
    assert console.scan("[ 1.0] page dumped because: nonzero mapcount\n") != []


def test_races_of_others_are_left_out_and_hide_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    added = [
        "unsigned long helper_shrink(int a)",
        "static struct x *leave(struct y *y,",
        "\tcall(b)",
        "int declared(int);",
    ]
    diff = "\n".join(f"+{line}" for line in added)
    done = subprocess.CompletedProcess([], 0, diff.encode(), b"")
    monkeypatch.setattr("lr.console.Git.run", lambda *_, **__: done)
    race = "[ 1.0] BUG: KCSAN: data-race in {} / {}\n[ 1.0] write to 0xff of 8 bytes by task 9 on cpu 0:\n"
    allowed = [console.race_of_others(Layout(tmp_path))]
    others = race.format("lru_add", "folio_batch_move_lru")
    assert len(console.scan(others)) == 1
    assert console.scan(others, allowed) == []
    assert console.scan(race.format("call", "declared"), allowed) == []
    for ours in (("kswapd", "helper_shrink"), ("leave", "kswapd")):
        assert len(console.scan(race.format(*ours) + others, allowed)) == 1
    # Its two stacks belong to a report, up to its last line.
    long = race.format("a", "leave") + "[ 1.0]  frame\n" * 20 + "[ 1.0] " + "=" * 66 + "\n[ 1.0] after\n"
    (found,) = console.scan(long, allowed)
    assert found.kind == "race" and found.report.count("frame") == 20 and "after" not in found.report
    # Nor does a report that comes before one of them belong to it.
    assert len(console.scan("[ 1.0] BUG: sleeping function called\n" + others, allowed)) == 1


def test_expected_warning_is_left_out_and_another_is_not() -> None:
    other = WARN.replace("do_writepages", "ext4_write_inode")
    assert console.scan(WARN, [r"at do_writepages\+"]) == []
    assert len(console.scan(WARN + other, [r"at do_writepages\+"])) == 1


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("[ 1.0] BUG: KASAN: slab-use-after-free in x+0x1/0x2", "KASAN"),
        ("[ 1.0] WARNING: possible circular locking dependency detected", "lockdep"),
        ("[ 1.0] WARNING: suspicious RCU usage", "lockdep"),
        ("[ 1.0] INFO: task sync:123 blocked for more than 60 seconds.", "hung task"),
        ("[ 1.0] BUG: kernel NULL pointer dereference, address: 0000000000000008", "bug"),
        ("[ 1.0] BUG: sleeping function called from invalid context at mm/x.c:1", "bug"),
        ("[ 1.0] kernel BUG at mm/vmscan.c:100!", "bug"),
        ("[ 1.0] Oops: general protection fault, probably for non-canonical address 0x1: 0000 [#1] SMP", "oops"),
        ("[ 1.0] watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [cat:1]", "lockup"),
        ("[ 1.0] Kernel panic - not syncing: sysrq triggered crash", "panic"),
        ("[ 1.0] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks: { 1 } stall", "lockup"),
        ("[ 1.0] list_add corruption. prev->next should be next", "bad state"),
        ("[ 1.0] EXT4-fs error (device vda): ext4_lookup:1: inode #2: comm ls: deleted inode referenced", "damage"),
    ],
)
def test_kinds(line: str, kind: str) -> None:
    assert [found.kind for found in console.scan(line + "\n")] == [kind]
