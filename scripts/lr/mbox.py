# SPDX-License-Identifier: GPL-2.0-only
"""The verb `mbox`: a section as git format-patch mails with its cover, or a branch in a clone. Nothing is ever sent."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from lr import compose
from lr import series as listing
from lr import state as states
from lr.compose import Composer, Item
from lr.git import Git, Identity, environment, theirs
from lr.layout import Layout, here
from lr.options import env
from lr.patch import Patch
from lr.ui import Fail, notice, say

_TRAILER = re.compile(r"^[A-Z][A-Za-z-]*: \S.*$")


def identity(folder: Path) -> Identity:
    """The user's own identity, as git has it in a folder; now is the date."""
    found = {}
    for key in ("name", "email"):
        configured = theirs(folder, "config", "--get", f"user.{key}").stdout.decode(errors="replace").strip()
        found[key] = os.environ.get(f"GIT_AUTHOR_{key.upper()}") or configured
    if not found["name"] or not found["email"]:
        raise Fail(
            "git does not know who you are, and mails need an author: "
            "git config --global user.name 'Your Name'; git config --global user.email you@example.org"
        )
    return Identity(found["name"], found["email"], "")


def read_trailers(path: Path) -> list[str]:
    """The trailers that go under each message."""
    try:
        lines = [line.rstrip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError as exc:
        raise Fail(f"TRAILERS={path}: cannot be read ({exc.strerror})") from exc
    except UnicodeDecodeError as exc:
        raise Fail(f"TRAILERS={path}: not UTF-8; convert it") from exc
    for line in lines:
        if not _TRAILER.match(line):
            raise Fail(f"TRAILERS={path}: {line[:60]!r} is no trailer; a line is like `Signed-off-by: Name <mail>`")
    return lines


def with_trailers(message: str, trailers: Sequence[str]) -> str:
    """A message with trailers under it, joined with those it has (Fixes:, Link:)."""
    if not trailers:
        return message
    words = ["git", "interpret-trailers", "--no-divider", "--if-exists", "addIfDifferent"]
    words += [word for trailer in trailers for word in ("--trailer", trailer)]
    return subprocess.run(
        words, input=message.encode(), env=environment(), capture_output=True, check=True
    ).stdout.decode()


def read_cover(layout: Layout, section: str) -> tuple[str, str]:
    """A section's cover letter: its first line is the subject, the rest the text."""
    path = layout.series / section / "cover.md"
    try:
        lines = path.read_text(encoding="utf-8").strip().split("\n")
    except FileNotFoundError as exc:
        raise Fail(f"{layout.told(path)}: not there; write the section's cover letter, first line its subject") from exc
    # SPDX line of a Markdown file.
    while lines and (lines[0].startswith("<!--") or not lines[0].strip()):
        lines.pop(0)
    subject = lines[0].lstrip("# ").strip() if lines else ""
    if not subject:
        raise Fail(f"{layout.told(path)}: empty; its first line is the subject of the cover letter")
    return subject, "\n".join(lines[1:]).strip()


def applies(git: Git, base: str, items: Sequence[Item], who: Identity | None = None) -> bool:
    """These commits, in this order, apply to a commit."""
    try:
        Composer(git, who).compose(base, items)
    except Fail:
        return False
    return True


def prerequisites(git: Git, base: str, items: Sequence[Item], section: str, who: Identity | None = None) -> list[str]:
    """The earlier sections without which a section's patches do not apply to the base; [] when it stands alone."""
    order = list(dict.fromkeys(item.entry.section for item in items))
    needed = order[: order.index(section)]
    if applies(git, base, [item for item in items if item.entry.section == section], who):
        return []
    for name in list(needed):
        fewer = [other for other in needed if other != name]
        if applies(git, base, [item for item in items if item.entry.section in (*fewer, section)], who):
            needed = fewer
    return needed


def _chosen(layout: Layout, section: str) -> list[Item]:
    """All commits of the series, after a look at the section."""
    series = listing.load(layout.root)
    names = [name for name in series.sections if name]
    if not section:
        raise Fail(f"SECTION= is missing; the sections are {', '.join(names) or 'none yet'}")
    if section not in names:
        raise Fail(f"SECTION={section}: no such section; there are {', '.join(names) or 'none yet'}")
    if section in series.split_sections:
        raise Fail(
            f"section {section} lies in several places of {listing.INDEX}; bring it together (git rebase -i base)"
        )
    return compose.load_items(layout.root, series)


def _message(trailers: Sequence[str], patch: Patch) -> str:
    return with_trailers(patch.message, trailers)


def write_mails(layout: Layout, section: str, trailers: Sequence[str]) -> Path:
    """The section as mails under build/mbox; returns their folder."""
    items = _chosen(layout, section)
    subject, text = read_cover(layout, section)
    who = identity(layout.root)
    state = compose.ensure_tree(layout, strict=True)
    git = Git.of(layout.linux)
    needs = prerequisites(git, state.base.commit, items, section)
    before = [item for item in items if item.entry.section in needs]
    ours = [item for item in items if item.entry.section == section]
    commits = Composer(git, who).compose(state.base.commit, before + ours, lambda patch: _message(trailers, patch))
    start = commits[len(before) - 1] if before else state.base.commit
    part = layout.build / "mbox" / f"{section}.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    words = ["--cover-letter", "--numbered", "--thread=shallow", "--no-signature", "--cover-from-description=none"]
    words += ["--output-directory", str(part), f"{start}..{commits[-1]}"]
    git.run("format-patch", *words, env=who.environment())
    _write_cover(part / "0000-cover-letter.patch", subject, text, _base_lines(state.base, needs))
    folder = part.with_name(section)
    if section in edited(layout):
        kept = layout.build / "kept" / time.strftime("%Y%m%d-%H%M%S") / "mbox"
        kept.mkdir(parents=True, exist_ok=True)
        folder.rename(kept / section)
        notice(f"{layout.told(folder)} was not as we had written it; those mails are in {layout.told(kept / section)}")
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)
    _stamp(folder).write_text(_digest(folder))
    if len(ours) > 15:
        notice(f"section {section} has {len(ours)} patches; upstream takes about 15 at once")
    if needs:
        notice(f"section {section} does not apply to Linux {state.base.version} without {', '.join(needs)}")
    return folder


def _stamp(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}-as-written")


def _digest(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return hashlib.sha256(b"\0".join(path.name.encode() + b"\0" + path.read_bytes() for path in files)).hexdigest()


def edited(layout: Layout) -> list[str]:
    """The sections whose mails are not as we wrote them, or of which that is not known."""
    folders = [path for path in layout.build.glob("mbox/*") if path.is_dir() and path.suffix != ".part"]
    stamps = {path: _stamp(path) for path in sorted(folders)}
    return [path.name for path, stamp in stamps.items() if not stamp.exists() or stamp.read_text() != _digest(path)]


def _base_lines(base: states.Base, needs: Sequence[str]) -> str:
    tag = f"v{base.version}"
    lines = [f"base-commit: {base.upstream_commit}"] if base.upstream_commit else []
    lines.append(f"base-tag: {tag}")
    lines += [f"prerequisite-section: {name}" for name in needs]
    return "\n".join(lines)


def _write_cover(path: Path, subject: str, text: str, base: str) -> None:
    raw = path.read_text(encoding="utf-8")
    for mark in ("*** SUBJECT HERE ***", "*** BLURB HERE ***"):
        if mark not in raw:
            raise Fail(f"git format-patch wrote no {mark} into the cover letter; this git is too new for us")
    if not subject.isascii() and "Content-Type:" not in raw:
        head, _, rest = raw.partition("\n\n")
        mime = "MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: 8bit"
        raw = f"{head}\n{mime}\n\n{rest}"
    raw = raw.replace("*** SUBJECT HERE ***", subject, 1).replace("*** BLURB HERE ***", text, 1)
    path.write_text(raw.rstrip("\n") + f"\n\n{base}\n", encoding="utf-8")


def make_branch(layout: Layout, section: str, trailers: Sequence[str], clone: Path, rev: str) -> tuple[str, int, str]:
    """The section as the new branch lr/SECTION of a clone, whose work tree is not touched.

    Returns its name, the number of the section's commits, and the commit that they stand on: the base, or the last one
    of the sections that must come first.
    """
    if not rev:
        raise Fail(f"BRANCH_IN={clone} needs REV= too, the commit to stand on, such as REV=v7.3.4")
    items = _chosen(layout, section)
    git = _user_repository(clone)
    base = git.resolve(f"{rev}^{{commit}}")
    if base is None:
        raise Fail(f"BRANCH_IN={clone}: it has no commit {rev}; git -C {clone} fetch --tags may bring it")
    branch = f"lr/{section}"
    if git.resolve(f"refs/heads/{branch}") is not None:
        raise Fail(f"BRANCH_IN={clone}: the branch {branch} exists and is left alone; rename or delete it first")
    who = identity(clone)
    state = states.load(layout.linux)
    if state is not None and compose.unsaved(Git.of(layout.linux), state):
        notice("build/linux holds work that is not saved; the branch is made without it")
    needs = prerequisites(git, base, items, section, who)
    chosen = [item for item in items if item.entry.section in (*needs, section)]
    composer = Composer(git, who)
    commits = composer.compose(base, chosen, lambda patch: _message(trailers, patch))
    for line in composer.offsets:
        notice(line)
    if needs:
        notice(f"{section} does not apply to {rev} without {', '.join(needs)}; the branch holds their commits first")
    # The empty old value: git refuses should the branch have come to be meanwhile.
    git.run("update-ref", f"refs/heads/{branch}", commits[-1], "", env=who.environment())
    before = sum(item.entry.section != section for item in chosen)
    return branch, len(commits) - before, commits[before - 1] if before else base


def _user_repository(clone: Path) -> Git:
    done = theirs(clone, "rev-parse", "--absolute-git-dir")
    if done.returncode != 0:
        raise Fail(f"BRANCH_IN={clone}: not a git repository; give the folder of a kernel clone")
    return Git(Path(done.stdout.decode().strip()), durable=True)


def main(argv: list[str]) -> int:
    """The verb."""
    words = argparse.ArgumentParser(prog="mbox", description=__doc__)
    words.add_argument("--section", default=env("SECTION", ""), help="the section of the series")
    words.add_argument("--trailers", default=env("TRAILERS", ""), help="a file of trailers for each message")
    words.add_argument("--branch-in", default=env("BRANCH_IN", ""), help="a clone to make the branch lr/SECTION in")
    words.add_argument("--rev", default=env("REV", ""), help="the commit that branch stands on, e.g. v7.3.4")
    options = words.parse_args(argv)
    layout = here()
    # tree's options go with every verb: with BASE_GIT= it is the release to take from there.
    if options.rev and not options.branch_in and not env("BASE_GIT", ""):
        raise Fail(f"REV={options.rev} needs BRANCH_IN= too, the clone whose commit that is")
    trailers = read_trailers(Path(options.trailers).expanduser()) if options.trailers else []
    if options.branch_in:
        clone = Path(options.branch_in).expanduser().absolute()
        branch, number, start = make_branch(layout, options.section, trailers, clone, options.rev)
        cover = f"series/{options.section}/cover.md"
        say(f"{clone}: branch {branch}, {number} commits on {start[:12]}; the cover is {cover}")
        b4 = shlex.quote(str(layout.build / "venv" / "bin" / "b4"))
        say(f"next: (cd {shlex.quote(str(clone))} && git switch {branch} && {b4} prep --enroll {start})")
        return 0
    folder = write_mails(layout, options.section, trailers)
    say(f"{folder.relative_to(layout.root)}: {len(list(folder.iterdir()))} mails; nothing was sent")
    if not trailers:
        notice("no TRAILERS= given: the mails carry no Signed-off-by yet")
    return 0
