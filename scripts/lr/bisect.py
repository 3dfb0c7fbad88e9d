# SPDX-License-Identifier: GPL-2.0-only
"""The verb `bisect`: every commit of the series compiles by itself with W=1, without a new warning, and links."""

from __future__ import annotations

import argparse
import re

from lr import build, compose
from lr.build import Target
from lr.git import Git
from lr.layout import Layout, here
from lr.results import Case, conclude, write_junit
from lr.ui import Fail, Progress, say

# A header that all of mm includes has 1,500 users, and a warning in it shows in each: some of them are enough.
_USERS_AT_MOST = 40
_WARNING = re.compile(r"^(?:.*/linux/)?(?P<file>[\w./-]+):\d+:(?:\d+:)? warning: (?P<text>.*)$")


def commits(layout: Layout) -> list[tuple[str, str]]:
    """Hash and subject of each commit, the first one first."""
    text = Git.of(layout.linux).text("log", "--reverse", "--format=%H %s", "base..HEAD")
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in text.splitlines()]


def warnings_of(lines: list[str]) -> set[str]:
    """The compiler's warnings without their line numbers, which an unrelated hunk above would move."""
    return {f"{found['file']}: {found['text']}" for line in lines if (found := _WARNING.match(line))}


def objects_of(layout: Layout, commit: str) -> list[str]:
    """The objects of the C files that a commit touches."""
    names = Git.of(layout.linux).text("diff", "--name-only", "--diff-filter=AM", f"{commit}~", commit)
    return [name[:-2] + ".o" for name in names.splitlines() if name.endswith(".c") and not name.startswith("tools/")]


def _compile(layout: Layout, spec: Target, title: str, goals: list[str], extra: str = "") -> list[str]:
    words = build.make_words(spec, *goals) + ([extra] if extra else [])
    return build.make(layout, words, title, layout.build / "logs" / "bisect.log", 0)


def collect(layout: Layout) -> list[Case]:
    """Walk the series; one case a commit."""
    spec = build.target(layout, "bisect")
    cases: list[Case] = []
    series = commits(layout)
    build.worktree(layout, spec.source, "base")
    # What each commit's build compiles anew tells what its headers' users are.
    build.configure(layout, spec)
    _compile(layout, spec, "the base", ["vmlinux"])
    for number, (commit, subject) in enumerate(series, start=1):
        title = f"commit {number} of {len(series)}, {subject[:60]}"
        timer = Progress(title)
        try:
            touched = objects_of(layout, commit)
            build.worktree(layout, spec.source, commit)
            build.configure(layout, spec)
            lines = _compile(layout, spec, f"{title}: link", ["vmlinux"])
            users = some_users([goal for goal in rebuilt(lines) if goal not in touched])
            compiled = [name for name in [*touched, *users] if (spec.objects / name).exists()]
            new = _w1(layout, spec, compiled, title)
            if new:
                build.worktree(layout, spec.source, f"{commit}~")
                present = [name for name in compiled if (spec.source / (name[:-2] + ".c")).exists()]
                new -= _w1(layout, spec, present, f"{title}: its parent")
                build.worktree(layout, spec.source, commit)
            told = "\n".join(sorted(new))
            cases.append(Case("bisect", subject, "failed" if new else "passed", told, timer.elapsed()))
        except Fail as exc:
            cases.append(Case("bisect", subject, "failed", str(exc), timer.elapsed()))
        say(f"{'FAILED' if cases[-1].status == 'failed' else 'ok'} {number}/{len(series)} {subject}")
    write_junit(layout.build / "results" / "bisect.xml", cases)
    return cases


def some_users(users: list[str]) -> list[str]:
    """At most so many of the objects that use what was touched: those in mm/ and fs/ first, spread over the rest."""
    near = [name for name in users if name.startswith(("mm/", "fs/"))]
    ordered = near[:: max(1, len(near) // (_USERS_AT_MOST // 2))] + users[:: max(1, len(users) // _USERS_AT_MOST)]
    return list(dict.fromkeys(ordered))[:_USERS_AT_MOST]


def rebuilt(lines: list[str]) -> list[str]:
    """The objects that a make compiled."""
    return [found[1] for line in lines if (found := re.match(r"^  CC +(?:\[M\] +)?(\S+\.o)$", line))]


def _w1(layout: Layout, spec: Target, objects: list[str], title: str) -> set[str]:
    """The warnings of these objects under W=1; they are compiled again even where nothing changed."""
    if not objects:
        return set()
    for name in objects:
        (spec.objects / name).unlink(missing_ok=True)
    return warnings_of(_compile(layout, spec, f"{title}: W=1, {len(objects)} objects", objects, "W=1"))


def main(argv: list[str]) -> int:
    """Check every commit; 1 when one does not build or warns anew."""
    argparse.ArgumentParser(prog="bisect", description=__doc__).parse_args(argv)
    whole = Progress("bisect")
    layout = here()
    compose.ensure_tree(layout)
    with build.locked(layout, build.target(layout, "bisect")):
        cases = collect(layout)
    return conclude(cases, whole.elapsed()).status
