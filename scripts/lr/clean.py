# SPDX-License-Identifier: GPL-2.0-only
"""The verb `clean`: remove build/, except work in it that is not saved. Needs no build/venv, which it removes too."""

from __future__ import annotations

import argparse
import re
import shutil
from contextlib import ExitStack
from pathlib import Path

from lr import build, compose, mbox, stable
from lr import state as states
from lr.git import Git
from lr.layout import Layout, here
from lr.options import env, flag
from lr.ui import Fail, say

_LOCK = re.compile(r"^\.|-lock$")
# What compilers, Python and editors leave in a source tree.
_MADE = re.compile(r"(?:__pycache__/|\.(?:pyc|o|a|ko|cmd|d|mod|order|swp)$|~$)")


def work_in(layout: Layout) -> list[str]:
    """What build/linux holds that would be lost: all that tree would refuse to overwrite, other branches, stashes."""
    if not layout.linux.exists():
        return []
    try:
        state = states.load(layout.linux)
    except Fail as exc:
        return [str(exc)]
    if state is None:
        return ["it was not made by `make tree`"]
    git = Git.of(layout.linux)
    found = [work.text for work in compose.unsaved(git, state)]
    branches = git.text("for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/stash").splitlines()
    ahead = []
    for branch in branches:
        # Commits that a save took over, and no others, lie under refs/lr/kept: they are in the series.
        rest = git.text("rev-list", branch, "--not", state.composed, "--glob=refs/lr/kept/*", "--glob=refs/lr/base/*")
        if branch != "series" and rest:
            ahead.append(branch)
    if hidden := _ignored(git):
        found.append(f"{len(hidden)} files that git ignores: {', '.join(hidden[:3])}")
    return found + ([f"other branches or stashes: {', '.join(ahead[:3])}"] if ahead else [])


def _ignored(git: Git) -> list[str]:
    """Files that the kernel's .gitignore hides (dot files, *.patch) and no build has made: save does not see them."""
    raw = git.run("ls-files", "--others", "--ignored", "--exclude-standard", "-z").stdout
    names = raw.decode(errors="surrogateescape").split("\0")
    return [name for name in names if name and not _MADE.search(name)]


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        # Out of its place first: half a build/linux, left by an interrupt, would look like somebody's work.
        gone = path.with_name(path.name.removesuffix(".gone") + ".gone")
        if gone != path:
            if gone.exists():
                shutil.rmtree(gone)
            path.rename(gone)
        shutil.rmtree(gone)
    else:
        path.unlink(missing_ok=True)


def clean(layout: Layout, force: bool = False) -> list[str]:
    """Remove what was built, but for the files of locks; returns what else was kept and why."""
    if not layout.build.is_dir():
        return []
    with ExitStack() as held:
        # All that there are. A verb that takes a second one takes what lies below the first: it comes later here, too.
        # The files stay, because one who waits has its file open.
        known = {_LOCK.sub("", path.name) for path in layout.build.glob(".*-lock")}
        for name in sorted({"ablate", "linux", *known} - {states.GUESTS}):
            held.enter_context(states.locked(layout, name))
        held.enter_context(states.guests(layout, none=True))
        kept = {} if force else _work(layout)
        # build/linux last: without it nobody could tell what its work trees hold.
        for path in sorted(layout.build.iterdir(), key=lambda path: (path == layout.linux, path)):
            if path not in kept and not path.match(".*-lock"):
                _remove(path)
        if layout.linux in kept and (layout.linux / ".git").is_dir():
            Git.of(layout.linux).run("worktree", "prune", check=False)
    return [f"{layout.told(path)}: {why}" for path, why in kept.items()]


def _work(layout: Layout) -> dict[Path, str]:
    """What is to be kept in build/, and why."""
    kept: dict[Path, str] = {}
    if work := work_in(layout):
        kept[layout.linux] = "; ".join(work)
    for name in ("stock", "ablate", "bisect"):
        if build.foreign(layout, layout.build / name / "linux"):
            kept[layout.build / name] = "linux is a work tree of another repository than build/linux"
        elif changed := build.changes(layout.build / name / "linux"):
            kept[layout.build / name] = f"edited in linux: {', '.join(changed[:3])}"
            kept.setdefault(layout.linux, f"build/{name}/linux is a work tree of it")
    for linux in sorted(layout.build.glob("stable/*/linux")):
        if changed := stable.own_work(linux, "--all"):
            kept[layout.build / "stable"] = f"edited in {linux.parent.name}/linux: {', '.join(changed[:3])}"
    for samples in (*layout.build.glob("bench*"), layout.build / "soak"):
        if samples.suffix != ".gone" and any(samples.glob("**/*.json")):
            kept[samples] = "samples, which take hours"
    if sections := mbox.edited(layout):
        kept[layout.build / "mbox"] = f"edited mails: {', '.join(sections)}"
    if (layout.build / "kept").exists():
        kept[layout.build / "kept"] = "copies of what save and mbox overwrote"
    return kept


def main(argv: list[str]) -> int:
    """The verb."""
    words = argparse.ArgumentParser(prog="clean", description=__doc__)
    words.add_argument("--force", default=env("FORCE", "0"), help="1: remove work that is not saved, too")
    kept = clean(here(), flag("FORCE", words.parse_args(argv).force))
    for line in kept:
        say(f"kept {line}")
    say("the rest of build/ is removed; FORCE=1 removes this too" if kept else "build/ is empty, but for locks")
    return 0
