# SPDX-License-Identifier: GPL-2.0-only
"""What a kernel's console tells of trouble: warnings, hung tasks, lockdep and KASAN reports, damaged filesystems."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lr.git import Git
from lr.layout import Layout

_RACE_START = re.compile(r"BUG: KCSAN: ")
# What a line looks like that opens a report. The first that matches names the kind.
_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("panic", re.compile(r"Kernel panic - not syncing")),
    ("race", _RACE_START),
    ("KASAN", re.compile(r"BUG: K[A-Z]*SAN: ")),
    (
        "lockup",
        re.compile(
            r"(?:BUG: soft lockup|Watchdog detected hard LOCKUP"
            r"|rcu: INFO: .* (?:detected|detected expedited|self-detected) stall)"
        ),
    ),
    (
        "lockdep",
        re.compile(
            r"WARNING: (?:possible (?:circular locking|recursive locking|irq lock inversion|deadlock)"
            r"|inconsistent lock state|bad unlock balance|suspicious RCU usage|Nested lock was not taken"
            r"|[^ ]*-safe -> [^ ]*-unsafe lock order)"
            r"|INFO: possible (?:circular locking|recursive locking|irq lock inversion)"
        ),
    ),
    (
        "hung task",
        re.compile(
            r"INFO: task .+ blocked (?:for more than|in I/O wait for more than)|blocked for more than \d+ seconds"
        ),
    ),
    ("bug", re.compile(r"(?:^|\] )(?:kernel BUG at |BUG: |INFO: trying to register non-static key)")),
    (
        "oops",
        re.compile(r"\bOops(?:: |\b.*\[#)|general protection fault|Unable to handle kernel|double fault|stack segment"),
    ),
    ("warning", re.compile(r"(?:^|\] )WARNING: ")),
    (
        "bad state",
        # Memory that cannot go offline is dumped, too: a refusal, nothing bad.
        re.compile(
            r"BUG: Bad (?:page|rss)|page dumped because: (?!unmovable page|migration failure|isolation failed)|"
            r"slab error|list_(?:add|del) corruption"
        ),
    ),
    (
        "damage",
        # In faults, disks that fail for good are behind dm-4; the others are vdX or dm-0 to 3.
        re.compile(
            r"EXT4-fs error \(device (?:vd|dm-[0-3])|XFS \((?:vd|dm-[0-3]).*[Cc]orrupt|BTRFS (?:critical|error)"
            r"|F2FS-fs \((?:vd|dm-[0-3]).*(?:inconsisten|corrupt)"
        ),
    ),
)
# The head of a function's definition, which the series adds or removes.
_DEFINITION = re.compile(r"^([+-])[a-z_]\w*[\w *]*?[ *](\w+)\([^;\n]*$", re.MULTILINE)
_RACE_END = re.compile(r"={40}")
# A report goes on until its closing line; what is in between belongs to it.
_TRACE_END = re.compile(r"---\[ end trace")
_TRACE_START = re.compile(r"------------\[ cut here \]")
# Lines within which a report's closing line is looked for.
_AT_MOST = 60


def race_of_others(layout: Layout) -> str:
    """KCSAN's report of a race in which none of the two functions is one that the series adds.

    What the compiler inlines, and what the series adds to functions of others, goes by their names: but for two of
    them, those are to be looked for in build/results.
    """
    words = ("diff", "--no-color", "--no-ext-diff", "base..HEAD", "--", "fs", "include", "mm")
    done = Git.of(layout.linux).run(*words, ":!fs/tests", ":!mm/tests", literal=False)
    found = _DEFINITION.findall(done.stdout.decode(errors="replace"))
    ours = {name for sign, name in found if sign == "+"} - {name for sign, name in found if sign == "-"}
    return rf"BUG: KCSAN: (?!.*\b(?:{'|'.join(sorted(ours | {'nr_pcp_alloc', 'migrate_balanced_pgdat'}))})\b)"


@dataclass(frozen=True)
class Finding:
    """One report: its kind, and its lines."""

    kind: str
    report: str


def _kind(line: str) -> str | None:
    for kind, pattern in _KINDS:
        if pattern.search(line):
            return kind
    return None


def scan(text: str, allowed: Iterable[str] = ()) -> list[Finding]:
    """The trouble in a console's text; a report with a line that matches an allowed regular expression is left out."""
    expected = [re.compile(pattern) for pattern in allowed]
    lines = text.splitlines()
    found: list[Finding] = []
    skip_to = 0
    for index, line in enumerate(lines):
        if index < skip_to:
            continue
        kind = _kind(line)
        if kind is None:
            continue
        end = _report_end(lines, index)
        body = lines[index:end]
        if kind == "warning" and end > index + 1 and _TRACE_END.search(body[-1]):
            skip_to = end
        if not any(pattern.search(part) for pattern in expected for part in body):
            found.append(Finding(kind, "\n".join(body)))
    return found


def _report_end(lines: list[str], start: int) -> int:
    """The line after the report: its end mark, the next report's beginning, or a limit."""
    limit = min(len(lines), start + _AT_MOST)
    race = _RACE_START.search(lines[start])
    for index in range(start + 1, limit):
        if race and _RACE_END.search(lines[index]):
            return index
        if _TRACE_END.search(lines[index]):
            return index + 1
        if _TRACE_START.search(lines[index]) or _RACE_START.search(lines[index]):
            return index
    return min(limit, start + 12)
