# SPDX-License-Identifier: GPL-2.0-only
"""The verb `tree`: fetch and check the base, compose the series on it into build/linux, rewrite only what differs."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lr import base as bases
from lr import patch as patches
from lr import series as listing
from lr import state as states
from lr.files import whole
from lr.git import Git, GitError, Identity
from lr.layout import Layout, here
from lr.options import env
from lr.patch import Patch
from lr.series import Entry, Series
from lr.state import State
from lr.ui import Fail, Progress, notice, say

# Counts up when the same files would compose to other commits, so that no stale result is taken.
_FORMAT = "1"
_IN_PROGRESS = {
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase or git am",
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "BISECT_LOG": "a bisect",
}
_OFFSET = re.compile(r"^Hunk #(\d+) succeeded at \d+ \(offset (-?\d+) lines?\)")
_CHECKING = re.compile(r"^Checking patch (.+?)\.\.\.$")


@dataclass(frozen=True)
class Item:
    """One commit to be: its entry in series, the patch, and the overlay files' mode and bytes by path."""

    entry: Entry
    patch: Patch
    overlay: Mapping[str, tuple[str, bytes]]

    @property
    def digest(self) -> str:
        """Changes when the commit would."""
        parts = [_FORMAT.encode(), self.patch.render()]
        for path, (mode, content) in sorted(self.overlay.items()):
            parts += [path.encode(errors="surrogateescape"), mode.encode(), content]
        return hashlib.sha256(b"".join(b"%d:%b" % (len(part), part) for part in parts)).hexdigest()


def load_items(root: Path, series: Series) -> list[Item]:
    """The series' commits as the files say; a file that is missing or odd is a Fail."""
    items = []
    for entry in series.entries:
        path = root / entry.path
        if listing.file_mode(path) is None:
            raise Fail(f"{entry.path}: not there, but {listing.INDEX} lists it; add or move the file, or drop the line")
        overlay = {}
        for name in entry.paths:
            mode = listing.file_mode(root / name)
            if mode is None:
                raise Fail(f"{name}: not there or not a plain file, but {listing.INDEX} lists it under {entry.name}")
            overlay[name] = (mode, (root / name).read_bytes())
        items.append(Item(entry, patches.parse(path.read_bytes(), entry.path), overlay))
    return items


def digests(root: Path, series: Series) -> dict[str, str]:
    """Each file of the series with its digest; an absent file is absent."""
    names = [listing.INDEX, *(entry.path for entry in series.entries)]
    names += [path for entry in series.entries for path in entry.paths]
    found = {}
    for name in names:
        mode = listing.file_mode(root / name)
        if mode is not None:
            found[name] = f"{mode} {hashlib.sha256((root / name).read_bytes()).hexdigest()}"
    return found


def _refuse_wrong_files(git: Git, base: str, items: Sequence[Item]) -> None:
    """A patch holds hunks in files of the base only, an overlay file is none of the base's."""
    touched = {diff.path: item for item in reversed(items) for diff in patches.files(item.patch)}
    strange = sorted(set(touched) - git.present(base, sorted(touched)))
    owners = {path: item.entry.name for item in items for path in item.overlay}
    for path in strange:
        name = touched[path].entry.path
        if path in owners:
            raise Fail(f"{name}: changes {path}, an overlay file of {owners[path]}; change that file itself")
        raise Fail(f"{name}: {path} is not in the base; a new file lies in the repository at its kernel path, not here")
    for path in sorted(git.present(base, sorted(owners))):
        raise Fail(
            f"{path}: overlay file of {owners[path]}, but the base has it; carry the change as hunks in the patch"
        )


class Composer:
    """Makes commits in a repository through a private index; the work tree and the references stay as they are."""

    def __init__(self, git: Git, who: Identity | None = None) -> None:
        self.git, self.who = git, who or Identity()
        self.offsets: list[str] = []
        self._index = {"GIT_INDEX_FILE": str(git.directory / f"lr-index-{os.getpid()}-{id(self):x}")}
        self._cache_path = git.directory / "lr" / "composed.json"

    def compose(self, base: str, items: Sequence[Item], message: Callable[[Patch], str] | None = None) -> list[str]:
        """One commit an item on top of the commit `base`; returns them in order. A patch that fails is a Fail."""
        _refuse_wrong_files(self.git, base, items)
        # Known results save half a second a commit; a user's own identity or message is never kept.
        usable = self.who == Identity() and message is None
        cache = self._load() if usable else {}
        commits: list[str] = []
        keys: list[str] = []
        parent = base
        for item in items:
            keys.append(hashlib.sha256(f"{parent} {item.digest}".encode()).hexdigest())
            if keys[-1] not in cache:
                break
            parent = cache[keys[-1]]
            commits.append(parent)
        if commits and self.git.resolve(f"{parent}^{{commit}}") is None:
            commits, parent = [], base
        rest = items[len(commits) :]
        if rest:
            try:
                self.git.run("read-tree", f"{parent}^{{tree}}", env=self._index)
                for item in rest:
                    key = hashlib.sha256(f"{parent} {item.digest}".encode()).hexdigest()
                    parent = self._commit(parent, item, message(item.patch) if message else item.patch.message)
                    commits.append(parent)
                    cache[key] = parent
            finally:
                Path(self._index["GIT_INDEX_FILE"]).unlink(missing_ok=True)
            if usable:
                self._save(cache)
        return commits

    def _commit(self, parent: str, item: Item, message: str) -> str:
        if item.patch.diff:
            self._apply(item)
        if item.overlay:
            lines = [
                f"{mode} {self.git.write_blob(content)}\t{path}\0" for path, (mode, content) in item.overlay.items()
            ]
            try:
                self.git.run("update-index", "-z", "--index-info", text_in="".join(lines).encode(), env=self._index)
            except GitError as exc:
                raise Fail(f"{item.entry.path}: overlay files cannot be added: {exc.stderr.strip()}") from exc
        tree = self.git.text("write-tree", env=self._index)
        return self.git.commit_tree(tree, [parent], message, self.who)

    def _apply(self, item: Item) -> None:
        words = ("apply", "--cached", "-v", "--whitespace=nowarn", "-p1", "-")
        done = self.git.run(*words, text_in=item.patch.diff, env=self._index, check=False)
        said = done.stderr.decode(errors="replace").splitlines()
        if done.returncode != 0:
            raise Fail(_why_not(item, said))
        path = ""
        for line in said:
            if match := _CHECKING.match(line):
                path = match[1]
            elif match := _OFFSET.match(line):
                self.offsets.append(
                    f"{item.entry.path}: {path} hunk {match[1]} applies {match[2]} lines from where it says"
                )

    def _load(self) -> dict[str, str]:
        try:
            found: dict[str, str] = json.loads(self._cache_path.read_text())
            return found
        except (FileNotFoundError, ValueError):
            return {}

    def _save(self, cache: dict[str, str]) -> None:
        # The newest come last; a few thousand are all the recent series there were.
        with whole(self._cache_path) as part:
            part.write_text(json.dumps(dict(list(cache.items())[-4000:])))


def _place(diff: bytes, line: int) -> str:
    """The file and the hunk that a line of a diff lies in."""
    path, number, header = "its hunks", 0, ""
    # A hunk that is shorter than it says is noticed where the next one begins: that line is not its own.
    for text in diff.decode(errors="replace").splitlines()[: max(0, line - 1)]:
        if text.startswith("+++ "):
            path, number, header = text[4:].removeprefix("b/"), 0, ""
        elif text.startswith("@@ "):
            number, header = number + 1, text.split(" @@")[0] + " @@"
    return f"{path}, hunk {number} ({header}) is not as long as it says" if number else f"{path}, before its first hunk"


def _why_not(item: Item, said: Sequence[str]) -> str:
    """The patch, the file and the hunk that git apply refused."""
    name = item.entry.path
    errors = [line[7:] for line in said if line.startswith("error: ")]
    for error in errors:
        if match := re.match(r"patch failed: (.+):(\d+)$", error):
            for diff in patches.files(item.patch):
                for number, hunk in enumerate(diff.hunks, 1):
                    if diff.path == match[1] and hunk.old_start == int(match[2]):
                        where = f"{diff.path}, hunk {number} ({hunk.header})"
                        return f"{name} does not apply: {where} does not match; correct it, build/linux is as it was"
            return f"{name} does not apply: {match[1]}, near line {match[2]}; correct it, build/linux is as it was"
    for error in errors:
        if match := re.match(r"(corrupt patch|patch fragment without header|.*garbage) at line (\d+)", error):
            where = _place(item.patch.diff, int(match[2]))
            return f"{name} is malformed: {where}; correct it or `make save` it anew, build/linux is as it was"
    return f"{name} does not apply: {errors[0] if errors else 'git apply failed'}; correct it, build/linux is as it was"


@dataclass(frozen=True)
class Work:
    """Something in build/linux that the series does not hold; only commits can be saved as they are."""

    text: str
    committed: bool = False


def unsaved(git: Git, state: State) -> list[Work]:
    """What build/linux holds that the series does not: things in progress, edits, commits. Empty: nothing."""
    progress = dict.fromkeys(what for name, what in _IN_PROGRESS.items() if (git.directory / name).exists())
    found = [Work(f"{what} in progress") for what in progress]
    entries = git.status()
    if entries:
        names = [f"{entry[3:]}{' (new)' if entry.startswith('??') else ''}" for entry in entries]
        found.append(Work(few(names, "edited file")))
    head, branch = git.resolve("HEAD"), git.resolve("refs/heads/series")
    detached = git.run("symbolic-ref", "-q", "HEAD", check=False).returncode != 0
    for tip, name in dict.fromkeys(((head, "HEAD"), (branch, "the branch series"))):
        if tip is None or tip == state.composed or (name != "HEAD" and tip == head):
            continue
        ahead = git.text("log", "--format=%h %s", f"{state.composed}..{tip}", "--").splitlines()
        if ahead:
            found.append(Work(few(ahead, "commit"), True))
        elif name != "HEAD" or not detached:
            # Somebody went back on purpose; a detached HEAD on one of our commits just looks at it.
            dropped = git.text("log", "--format=%h %s", f"{tip}..{state.composed}", "--").splitlines()
            found.append(Work(few(dropped, "dropped commit"), True))
    return found


def few(things: Sequence[str], word: str) -> str:
    """How many, and the first of them."""
    shown = ", ".join(things[:3])
    more = f" and {len(things) - 3} more" if len(things) > 3 else ""
    return f"{len(things)} {word}{'s' if len(things) != 1 else ''}: {shown}{more}"


def _unsaved_text(found: Sequence[Work]) -> str:
    how = "`make save` keeps it" if all(work.committed for work in found) else "commit it, then `make save` keeps it"
    if any(work.text.endswith(" in progress") for work in found):
        how = "finish or abort what is in progress (git -C build/linux status tells how), then `make save` keeps it"
    return f"build/linux holds work that is not saved: {'; '.join(work.text for work in found)}; {how}"


def keep(git: Git, commit: str) -> None:
    """Hold on to a commit that no reference of ours will reach any more."""
    names = git.text("for-each-ref", "--format=%(refname) %(objectname)", "refs/lr/kept").splitlines()
    if any(line.split()[1] == commit for line in names):
        return
    number = max((int(line.split()[0].rpartition("/")[2]) for line in names), default=0) + 1
    git.run("update-ref", f"refs/lr/kept/{number}", commit)


def _refuse_clobber(git: Git, old: str, new: str) -> None:
    """git overwrites ignored files without a word; such a file may be somebody's work too."""
    assert git.worktree is not None
    for change in git.changes(old, new):
        path = git.worktree / change.path
        if change.status == "A" and os.path.lexists(path):
            if not path.is_file() or path.is_symlink() or path.read_bytes() != git.blob(change.new):
                raise Fail(f"build/linux/{change.path} is in the way of the series' file of that name; move it away")
            path.unlink()


def _move(layout: Layout, git: Git, state: State, new: str) -> None:
    """Take the work tree and the branch from HEAD to a commit, rewriting only files that differ."""
    head = git.resolve("HEAD")
    if head is None:
        raise Fail("build/linux has no commit; run `make clean tree`")
    if git.tree_of(head) != git.tree_of(new):
        _refuse_clobber(git, head, new)
        state.moving = new
        states.store(layout.linux, state)
        try:
            git.run("read-tree", "-m", "-u", head, new)
        except GitError as exc:
            raise Fail(f"build/linux could not be updated: {exc.stderr.strip().splitlines()[0]}") from exc
    _point(git, new, state.base.commit)


def _point(git: Git, tip: str, base: str) -> None:
    """HEAD on the branch `series` at its new tip."""
    git.run("update-ref", "-m", "lr: compose", "refs/heads/series", tip)
    git.run("symbolic-ref", "-m", "lr: compose", "HEAD", "refs/heads/series")
    git.run("update-ref", "refs/tags/base", base)


def _finish_interrupted(layout: Layout, git: Git, state: State) -> None:
    """Complete a move that was interrupted, when every file is as it was before or as it was to be."""
    assert git.worktree is not None
    if (git.directory / "index.lock").exists():
        raise Fail(
            "build/linux/.git/index.lock: another git is at work there, or one was killed; "
            "if none is running, remove the file"
        )
    halves = []
    for entry in git.status():
        path, file = entry[3:], git.worktree / entry[3:]
        found = file.read_bytes() if file.is_file() else None
        try:
            wanted = git.blob(f"{state.moving}:{path}")
        except GitError:
            if entry.startswith("??"):
                continue  # a new file of somebody's, which is in nobody's way
            wanted = None
        # Absent: git had just removed it. A beginning of what was to come: git was killed while writing.
        if found is not None and (wanted is None or not wanted.startswith(found)):
            raise Fail(
                f"an interrupted `make tree` left build/linux half updated, and {path} was edited since: copy it "
                f"away, `git -C build/linux checkout -f HEAD -- {path}`, and run `make tree` again"
            )
        if entry.startswith("??"):
            halves.append(file)
    # Not refs/lr/at: what a work tree was at need not be saved.
    known = (state.composed, state.moving, "--glob=refs/lr/kept/*", "--glob=refs/lr/base/*")
    for tip in filter(None, {git.resolve("HEAD"), git.resolve("refs/heads/series")}):
        if git.text("rev-list", "-1", tip, "--not", *known):
            # A branch: what `keep` holds on to counts as saved.
            git.run("update-ref", f"refs/heads/kept-{tip[:12]}", tip)
            notice(f"build/linux held commits that were not saved; its branch kept-{tip[:12]} has them")
    for file in halves:
        file.unlink()
    git.run("read-tree", "--reset", "-u", state.moving)
    _point(git, state.moving, state.base.commit)
    # No inputs: what the files held then is not known, so the series is composed anew.
    state.composed, state.moving, state.inputs = state.moving, "", {}
    states.store(layout.linux, state)


def ensure_tree(layout: Layout, strict: bool = False, wish: bases.Wish | None = None) -> State:
    """Bring build/linux up to the series. Nothing to do: unsaved work is only mentioned; with strict it is a Fail."""
    with states.locked(layout):
        return _ensure(layout, strict, wish if wish is not None else bases.wish_from_environment())


def _ensure(layout: Layout, strict: bool, wish: bases.Wish) -> State:
    lock = bases.read_lock(layout.lock)
    series = listing.load(layout.root)
    state = states.load(layout.linux)
    if state is None and layout.linux.exists():
        raise Fail("build/linux exists, but was not made by `make tree`; move it away")
    git = Git.of(layout.linux)
    if state is not None and state.moving:
        _finish_interrupted(layout, git, state)
    found = bases.find(wish, lock, state.base if state else None, state.bases if state else [])
    inputs = digests(layout.root, series)
    if state is not None:
        work = unsaved(git, state)
        same = found == state.base and inputs == state.inputs
        if work and (strict or not same):
            raise Fail(_unsaved_text(work))
        at_home = git.resolve("HEAD") == state.composed
        if same and (work or at_home):
            if work:
                notice(_unsaved_text(work) + "; used as it is")
            return state
    items = load_items(layout.root, series)
    if found is None:
        found = bases.obtain(layout, wish, lock, git if state else None)
        if state is None:
            state = State(found, [], found.commit)
        # Remembered at once: if a patch fails now, the base need not be imported again.
        state.bases.append(found)
        git.run("update-ref", f"refs/lr/base/{len(state.bases)}", found.commit)
        states.store(layout.linux, state)
    assert state is not None
    composer = Composer(git)
    with Progress(f"compose {len(items)} patches on Linux {found.version}") as shown:
        commits = composer.compose(found.commit, items)
        shown.update()
    for line in composer.offsets:
        notice(line + "; `make save` refreshes it")
    before, state.base = state.base, found
    new = commits[-1] if commits else found.commit
    try:
        _move(layout, git, state, new)
    except Fail:
        state.base, state.moving = before, ""
        states.store(layout.linux, state)
        raise
    state.composed, state.inputs, state.moving = new, inputs, ""
    states.store(layout.linux, state)
    return state


def main(argv: list[str]) -> int:
    """The verb."""
    words = argparse.ArgumentParser(prog="tree", description=__doc__)
    words.add_argument("--base-tarball", default=env("BASE_TARBALL", ""), help="a kernel tarball as the base")
    words.add_argument("--base-git", default=env("BASE_GIT", ""), help="a kernel clone as the base; needs --rev")
    words.add_argument("--rev", default=env("REV", ""), help="the release to take from it, e.g. v7.3.4")
    words.add_argument("--base", default=env("BASE", ""), help="locked: back to the base of bases/7.3.lock")
    options = words.parse_args(argv)
    if options.rev and not options.base_git:
        raise Fail(f"REV={options.rev} needs BASE_GIT= too, the clone to take that release from")
    for name in ("BASE_TARBALL", "BASE_GIT", "REV", "BASE"):
        os.environ[name] = getattr(options, name.lower())
    layout = here()
    before = states.load(layout.linux)
    state = ensure_tree(layout, strict=True)
    git = Git.of(layout.linux)
    number = git.text("rev-list", "--count", f"{state.base.commit}..HEAD")
    same = before is not None and before.composed == state.composed
    word = "unchanged" if same else "composed"
    say(f"build/linux: {word}, {number} commits on Linux {state.base.version}, HEAD {state.composed[:12]}")
    return 0
