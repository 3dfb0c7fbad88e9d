# SPDX-License-Identifier: GPL-2.0-only
"""The verb `save`: turn base..HEAD of build/linux back into series/ and overlay files."""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lr import compose, series
from lr import patch as patches
from lr import state as states
from lr.files import whole
from lr.git import Change, Git, GitError
from lr.layout import Layout, here
from lr.options import env, flag
from lr.patch import Patch
from lr.series import Entry, Overlay, Series
from lr.state import State
from lr.ui import Fail, Progress, notice, say

_UNFINISHED = re.compile(r"^(fixup|squash|amend)! ")
_PLAIN_MODES = ("100644", "100755")


@dataclass(frozen=True)
class Saved:
    """One commit read back: its name for people, the patch, and the overlay files' mode and bytes by path."""

    commit: str
    label: str
    patch: Patch
    overlay: dict[str, tuple[str, bytes]]


def linear(git: Git, base: str, tip: str) -> list[str]:
    """The commits from base to tip, oldest first; anything but one line of them is a Fail."""
    merge = git.text("log", "--merges", "-1", "--format=%h %s", f"{base}..{tip}")
    if merge:
        raise Fail(f"{merge}: a merge; the series is a line of commits: rebase onto `base` (git rebase base)")
    commits = []
    parent = base
    for line in git.text("rev-list", "--reverse", "--topo-order", "--parents", f"{base}..{tip}").splitlines():
        commit, *parents = line.split()
        if parents != [parent]:
            raise Fail("HEAD of build/linux does not stand on its tag `base`; rebase onto it (git rebase base)")
        commits.append(commit)
        parent = commit
    if not commits and git.resolve(tip) != base:
        raise Fail("HEAD of build/linux does not stand on its tag `base`; rebase onto it (git rebase base)")
    return commits


def read_commits(git: Git, base: str, commits: Sequence[str]) -> list[Saved]:
    """Each commit as a patch and overlay files."""
    changes: list[list[Change]] = []
    parent = base
    for commit in commits:
        changes.append(git.changes(parent, commit))
        parent = commit
    in_base = git.present(base, sorted({change.path for found in changes for change in found}))
    owners: dict[str, str] = {}
    saved = []
    parent = base
    for commit, found in zip(commits, changes, strict=True):
        message = git.message(commit)
        label = f"{commit[:12]} ({message.split(chr(10))[0][:60]})"
        if match := _UNFINISHED.match(message):
            raise Fail(
                f"{label}: a {match[1]}! commit; fold it in first: git -C build/linux rebase -i --autosquash base"
            )
        overlay = {}
        for change in found:
            if change.path in in_base:
                _check_hunk(change, label)
                continue
            if change.path in owners:
                raise Fail(
                    f"{change.path} is changed by {owners[change.path]} and by {label}; an overlay file belongs to one "
                    "commit: fold the change into it (git commit --fixup, git rebase -i --autosquash base)"
                )
            owners[change.path] = label
            overlay[change.path] = (change.new_mode, _overlay_content(git, change, label))
        diff = git.diff(parent, commit, [change.path for change in found if change.path in in_base])
        if b"\nBinary files " in diff:
            raise Fail(f"{label}: changes a binary file of the kernel; the series carries text only")
        saved.append(Saved(commit, label, patches.from_message(message, diff, label), overlay))
        parent = commit
    return saved


def _check_hunk(change: Change, label: str) -> None:
    if "160000" in (change.old_mode, change.new_mode):
        raise Fail(f"{label}: {change.path}: a submodule; the series carries plain files only")


def _overlay_content(git: Git, change: Change, label: str) -> bytes:
    if change.new_mode not in _PLAIN_MODES:
        what = {"120000": "a symbolic link", "160000": "a submodule"}.get(change.new_mode, f"of mode {change.new_mode}")
        raise Fail(f"{label}: {change.path} is {what}; the series carries plain files only")
    series.check_overlay_path(change.path, label)
    return git.blob(change.new)


def arrange(old: Series, old_items: Sequence[compose.Item], saved: Sequence[Saved]) -> Series:
    """The new series file: names, sections and comments kept where a commit is recognised, else from its neighbour."""
    by_subject = {item.patch.subject: item for item in old_items}
    subjects = [item.patch.subject for item in saved]
    for subject in subjects:
        if subjects.count(subject) > 1:
            raise Fail(f"two commits are called {subject[:70]!r}; give each its own subject (git rebase -i base)")
    # A commit with a new subject and the old content keeps its place among the sections.
    gone = [item for item in old_items if item.patch.subject not in subjects]
    by_content = {(item.patch.diff, tuple(sorted(item.overlay))): item for item in gone}
    matched = [
        by_subject.get(item.patch.subject) or by_content.get((item.patch.diff, tuple(sorted(item.overlay))))
        for item in saved
    ]
    first = next((item.entry.section for item in matched if item), old.entries[0].section if old.entries else "")
    used = {item.entry.name for item in matched if item and item.patch.subject in subjects}
    comments = {overlay.path: overlay.lead for entry in old.entries for overlay in entry.overlay}
    new = Series(leads=old.leads, tail=old.tail)
    section = first
    for item, match in zip(saved, matched, strict=True):
        if match:
            section = match.entry.section
        if match and match.patch.subject == item.patch.subject:
            name = match.entry.name
        else:
            name = _free_name(patches.slug(item.patch.subject), used)
        lead = match.entry.lead if match else []
        overlay = [Overlay(path, comments.get(path, [])) for path in sorted(item.overlay)]
        new.entries.append(Entry(name, section, overlay, lead))
    return new


def _free_name(stem: str, used: set[str]) -> str:
    name, letter = f"{stem}.patch", ord("b")
    while name in used:
        name, letter = f"{stem}-{chr(letter)}.patch", letter + 1
    used.add(name)
    return name


def contents(new: Series, saved: Sequence[Saved]) -> dict[str, tuple[str, bytes]]:
    """Every file of the saved series: mode and bytes by path."""
    files = {series.INDEX: ("100644", series.render(new).encode())}
    for entry, item in zip(new.entries, saved, strict=True):
        files[entry.path] = ("100644", item.patch.render())
        files |= item.overlay
    return files


def write_file(root: Path, name: str, mode: str, content: bytes) -> None:
    """One file, all of it or nothing; a file that is so already is not touched."""
    path = root / name
    if series.file_mode(path) == mode and path.read_bytes() == content:
        return
    with whole(path) as part:
        part.write_bytes(content)
        part.chmod(0o755 if mode == "100755" else 0o644)


def _digest(mode: str, content: bytes) -> str:
    return f"{mode} {hashlib.sha256(content).hexdigest()}"


def hand_edits(root: Path, state: State, files: dict[str, tuple[str, bytes]]) -> list[str]:
    """Files that save would overwrite or remove although somebody changed them since the last tree or save."""
    found = []
    for name in sorted({*files, *state.inputs}):
        path = root / name
        mode = series.file_mode(path)
        if mode is None:
            if name in files and name in state.inputs:
                found.append(f"{name} (removed)")
            continue
        now = _digest(mode, path.read_bytes())
        wanted = _digest(*files[name]) if name in files else None
        if now not in (wanted, state.inputs.get(name)):
            found.append(name)
    return found


def _validate(
    layout: Layout, git: Git, state: State, files: dict[str, tuple[str, bytes]], saved: Sequence[Saved]
) -> list[str]:
    """Compose the files from a folder of their own: each commit must come out with the tree it was saved from."""
    part = layout.build / "save.part"
    shutil.rmtree(part, ignore_errors=True)
    try:
        for name, (mode, content) in files.items():
            write_file(part, name, mode, content)
        commits = compose.Composer(git).compose(state.base.commit, compose.load_items(part, series.load(part)))
    finally:
        shutil.rmtree(part, ignore_errors=True)
    for item, commit in zip(saved, commits, strict=True):
        if git.tree_of(item.commit) != git.tree_of(commit):
            raise Fail(f"{item.label}: does not compose to the same files; nothing was saved (please report this)")
    return commits


def save(layout: Layout, force: bool = False) -> tuple[int, list[str]]:
    """Save build/linux; returns the number of commits and the files that changed."""
    with states.locked(layout):
        return _save(layout, force)


def _save(layout: Layout, force: bool) -> tuple[int, list[str]]:
    state = states.load(layout.linux)
    if state is None:
        raise Fail("there is no build/linux to save; run `make tree` first")
    if state.moving:
        raise Fail("an interrupted `make tree` left build/linux between two states; run `make tree` again")
    git = Git.of(layout.linux)
    work = [item.text for item in compose.unsaved(git, state) if not item.committed]
    if work:
        raise Fail(f"build/linux holds {'; '.join(work)}; finish and commit it (git -C build/linux commit), then save")
    head = git.resolve("HEAD")
    assert head is not None
    branch = git.resolve("refs/heads/series")
    if branch not in (None, head, state.composed):
        inside = git.run("merge-base", "--is-ancestor", "refs/heads/series", head, check=False).returncode == 0
        if not inside:
            raise Fail(
                "HEAD of build/linux is elsewhere, and the branch series holds commits that HEAD does not: `git -C "
                "build/linux switch series` to save those, `branch -f series HEAD` there if they are not wanted"
            )
    commits = linear(git, state.base.commit, head)
    saved = read_commits(git, state.base.commit, commits)
    old, old_items = _old_series(layout)
    new = arrange(old, old_items, saved)
    files = contents(new, saved)
    with Progress(f"check that {len(saved)} commits compose from what is to be saved"):
        composed = _validate(layout, git, state, files, saved)
    edited = hand_edits(layout.root, state, files)
    if edited and not force:
        shown = ", ".join(edited[:4]) + (f" and {len(edited) - 4} more" if len(edited) > 4 else "")
        raise Fail(
            f"edited since the last tree or save, and save would undo that: {shown}; "
            "move the change into build/linux, or FORCE=1 overwrites it and keeps a copy in build/kept"
        )
    if edited:
        _keep_copies(layout, edited)
    gone = sorted(set(state.inputs) - set(files))
    changed = [name for name, (mode, content) in files.items() if _now(layout.root, name) != _digest(mode, content)]
    # The index comes last of what is written, removals after it: interrupted at any point, a second save completes it.
    for name in sorted(changed, key=lambda name: name == series.INDEX):
        write_file(layout.root, name, *files[name])
    for name in gone:
        (layout.root / name).unlink(missing_ok=True)
        _remove_empty(layout.root, (layout.root / name).parent)
    _adopt(layout, git, state, head, composed[-1] if composed else state.base.commit, files)
    return len(saved), changed + gone


def _now(root: Path, name: str) -> str | None:
    mode = series.file_mode(root / name)
    return None if mode is None else _digest(mode, (root / name).read_bytes())


def _old_series(layout: Layout) -> tuple[Series, list[compose.Item]]:
    """The series on disk, for names, sections and comments; entries whose patch cannot be read are left out."""
    old = series.load(layout.root) if layout.index.exists() else Series()
    items = []
    for entry in old.entries:
        try:
            path = layout.root / entry.path
            parsed = patches.parse(path.read_bytes(), entry.name)
        except (Fail, OSError):
            continue
        items.append(compose.Item(entry, parsed, dict.fromkeys(entry.paths, ("", b""))))
    return old, items


def _keep_copies(layout: Layout, names: Sequence[str]) -> None:
    folder = layout.build / "kept" / time.strftime("%Y%m%d-%H%M%S")
    there = [name for name in names if not name.endswith(" (removed)")]
    for name in there:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(layout.root / name, folder / name)
    if there:
        notice(f"copies of {len(there)} overwritten files are in {folder.relative_to(layout.root)}")


def _remove_empty(root: Path, folder: Path) -> None:
    while folder != root and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _adopt(
    layout: Layout, git: Git, state: State, head: str, composed: str, files: dict[str, tuple[str, bytes]]
) -> None:
    """Let build/linux stand on the commits as `tree` makes them; the files are the same, the old commits are kept."""
    if head not in (composed, state.composed):
        compose.keep(git, head)
    try:
        git.run("update-ref", "-m", "lr: save", "refs/heads/series", composed)
        git.run("symbolic-ref", "-m", "lr: save", "HEAD", "refs/heads/series")
    except GitError as exc:
        raise Fail(f"saved, but build/linux could not be moved to the saved commits: {exc.stderr.strip()}") from exc
    state.composed = composed
    state.inputs = {name: _digest(mode, content) for name, (mode, content) in files.items()}
    states.store(layout.linux, state)


def main(argv: list[str]) -> int:
    """The verb."""
    words = argparse.ArgumentParser(prog="save", description=__doc__)
    words.add_argument(
        "--force", default=env("FORCE", "0"), help="1: overwrite newer edits, keeping copies in build/kept"
    )
    options = words.parse_args(argv)
    number, changed = save(here(), flag("FORCE", options.force))
    say(f"saved {number} commits; " + (f"{len(changed)} files changed" if changed else "nothing changed"))
    for name in changed:
        say(f"  {name}")
    return 0
