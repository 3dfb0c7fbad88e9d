# SPDX-License-Identifier: GPL-2.0-only
"""One patch file: a commit's message and its hunks in files that the series does not own."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from lr.ui import Fail

_FILE = re.compile(r"^diff --git a/(?P<old>.+) b/(?P<new>.+)$")
_HUNK = re.compile(r"^@@ -(?P<old>\d+)(?:,(?P<lines>\d+))? \+(?P<new>\d+)(?:,(?P<added>\d+))? @@")
# Lines at which git am ends a message: a body that holds one would come back shortened.
_ENDS_MESSAGE = re.compile(r"^(---$|--- [^ ]|diff -|Index: )")
_SLUG_LENGTH = 64


@dataclass(frozen=True)
class Hunk:
    """Where a hunk says that it applies."""

    header: str
    old_start: int


@dataclass(frozen=True)
class FileDiff:
    """The part of a diff on one file."""

    path: str
    hunks: list[Hunk] = field(default_factory=list)


@dataclass(frozen=True)
class Patch:
    """A commit: subject, body without blank lines around it, and a diff, which may be empty."""

    subject: str
    body: str
    diff: bytes

    @property
    def message(self) -> str:
        """As the commit's message."""
        return f"{self.subject}\n\n{self.body}\n" if self.body else f"{self.subject}\n"

    def render(self) -> bytes:
        """As the patch file."""
        return f"Subject: {self.message}---\n".encode() + self.diff


def slug(subject: str) -> str:
    """A file name for a subject, cut at a word."""
    words = re.sub(r"[^a-z0-9]+", "-", subject.lower()).strip("-")
    if len(words) > _SLUG_LENGTH:
        words = words[: _SLUG_LENGTH + 1].rpartition("-")[0] or words[:_SLUG_LENGTH]
    return words or "patch"


def from_message(message: str, diff: bytes, where: str) -> Patch:
    """A commit's message and diff as a patch; `where` names the commit in a Fail."""
    lines = [line.rstrip() for line in message.strip().split("\n")]
    if not lines[0]:
        raise Fail(f"{where}: the commit has no message; give it one (git commit --amend or git rebase -i)")
    if len(lines) > 1 and lines[1]:
        raise Fail(f"{where}: the message's second line is not blank; put a blank line under the subject")
    body = "\n".join(lines[1:]).strip("\n")
    for line in body.split("\n"):
        if _ENDS_MESSAGE.match(line):
            raise Fail(f"{where}: the message holds the line {line[:40]!r}, at which mail tools end it; reword it")
    return Patch(lines[0], body, diff)


def parse(raw: bytes, name: str) -> Patch:
    """A patch file's content; a form that save could not give back is a Fail."""
    head, mark, diff = raw.partition(b"\n---\n")
    if not mark and raw.endswith(b"\n---"):
        head, mark = raw[:-4], b"---"
    if not mark:
        raise Fail(f"{name}: no line `---` after the message; put one there, also when no diff follows")
    try:
        text = head.decode()
    except UnicodeDecodeError as exc:
        raise Fail(f"{name}: the message is not UTF-8; convert it") from exc
    first, _, rest = text.partition("\n")
    if not first.startswith("Subject: ") or not first[9:].strip():
        raise Fail(f"{name}: the first line is not `Subject: ...`; a patch here has no From:, no Date:, no author")
    if rest and not rest.startswith("\n"):
        raise Fail(f"{name}: the line after the subject is not blank; a patch here has the header Subject: alone")
    if diff and not diff.startswith(b"diff --git "):
        raise Fail(f"{name}: text between `---` and the first `diff --git`; remove it, or move it into the message")
    if b"\nGIT binary patch\n" in diff or b"\nBinary files " in diff:
        raise Fail(f"{name}: holds a binary diff; the series carries text only")
    return from_message(first[9:] + "\n" + rest, diff, name)


def files(patch: Patch) -> list[FileDiff]:
    """The files that the diff touches, with their hunks."""
    found: list[FileDiff] = []
    path = ""
    hunks: list[Hunk] = []
    left = added = 0
    for raw in patch.diff.split(b"\n"):
        line = raw.decode(errors="surrogateescape")
        if left > 0 or added > 0:
            # Inside a hunk, where a line may look like anything; the header said how many lines come.
            left -= line[:1] in (" ", "-", "")
            added -= line[:1] in (" ", "+", "")
            continue
        if match := _FILE.match(line):
            if path:
                found.append(FileDiff(path, hunks))
            path, hunks = match["new"], []
        elif match := _HUNK.match(line):
            hunks.append(Hunk(line, int(match["old"])))
            left, added = int(match["lines"] or 1), int(match["added"] or 1)
    if path:
        found.append(FileDiff(path, hunks))
    return found
