# SPDX-License-Identifier: GPL-2.0-only
"""The file `series/index`: sections, patches in order, the overlay files each brings; and who owns which file."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lr.layout import OVERLAY_DIRS
from lr.ui import Fail

INDEX = "series/index"
_SECTION = re.compile(r"^\[(?P<name>[a-z0-9][a-z0-9-]*)\]$")
_PATCH = re.compile(r"^[a-z0-9][a-z0-9._-]*\.patch$")


@dataclass
class Overlay:
    """One overlay file of a patch; lead is the comment above it."""

    path: str
    lead: list[str] = field(default_factory=list)


@dataclass
class Entry:
    """One commit: its patch file's name, its overlay files, its section, and the comment lines above it."""

    name: str
    section: str = ""
    overlay: list[Overlay] = field(default_factory=list)
    lead: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        """Where the patch lies: in its section's folder."""
        return "/".join(part for part in ("series", self.section, self.name) if part)

    @property
    def paths(self) -> list[str]:
        """The overlay files' paths."""
        return [item.path for item in self.overlay]


@dataclass
class Series:
    """All of it; leads holds the comment lines above each section's header, tail those after the last line."""

    entries: list[Entry] = field(default_factory=list)
    leads: dict[str, list[str]] = field(default_factory=dict)
    tail: list[str] = field(default_factory=list)

    @property
    def sections(self) -> list[str]:
        """The sections in order of first appearance."""
        return list(dict.fromkeys(entry.section for entry in self.entries))

    def section(self, name: str) -> list[Entry]:
        """The commits of one section."""
        return [entry for entry in self.entries if entry.section == name]

    @property
    def split_sections(self) -> list[str]:
        """Sections whose commits do not lie together; possible after a reorder, but not meant to stay."""
        runs = [e.section for i, e in enumerate(self.entries) if i == 0 or self.entries[i - 1].section != e.section]
        return sorted({name for name in runs if runs.count(name) > 1})


def parse(text: str) -> Series:
    """The file's content; a mistake is a Fail that names the line."""
    series = Series()
    section = ""
    lead: list[str] = []
    patches: set[str] = set()
    owners: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        if not words or words.startswith("#"):
            lead.append(line.rstrip())
            continue
        if match := _SECTION.match(line.rstrip()):
            section = match["name"]
            # A section met again keeps both comments: nothing a person wrote gets lost.
            if section not in series.leads:
                series.leads[section] = lead
            elif any(lead):
                series.leads[section] += lead
        elif line[0] in " \t":
            if not series.entries:
                raise Fail(f"{INDEX}:{number}: {words}: an overlay file with no patch above it")
            check_overlay_path(words, f"{INDEX}:{number}")
            if words in owners:
                raise Fail(
                    f"{INDEX}:{number}: {words} belongs to {owners[words]} already; an overlay file has one patch"
                )
            owners[words] = series.entries[-1].name
            series.entries[-1].overlay.append(Overlay(words, lead))
        elif _PATCH.match(words):
            if words in patches:
                raise Fail(f"{INDEX}:{number}: {words} is listed twice; remove one")
            patches.add(words)
            series.entries.append(Entry(words, section, [], lead))
        else:
            raise Fail(
                f"{INDEX}:{number}: {words!r} is neither a [section], a name.patch (a-z 0-9 . _ -) nor an indented file"
            )
        lead = []
    series.tail = lead
    return series


def render(series: Series) -> str:
    """The file's content. A section's comment is written above its first header; a section without commits goes."""
    lines: list[str] = []
    section = ""
    opened: set[str] = set()
    for entry in series.entries:
        if entry.section != section:
            section = entry.section
            spaced = [""] if lines else []
            lines += spaced if section in opened else series.leads.get(section, spaced)
            lines.append(f"[{section}]")
            opened.add(section)
        lines += [*entry.lead, entry.name]
        for item in entry.overlay:
            lines += [*item.lead, f"    {item.path}"]
    lines += series.tail
    return "".join(f"{line}\n" for line in lines)


def check_overlay_path(path: str, where: str) -> None:
    """Fail unless the path may be an overlay file's."""
    if path.startswith("/") or "\\" in path or any(part in ("", ".", "..", ".git") for part in path.split("/")):
        raise Fail(f"{where}: {path}: not a plain path inside the kernel")
    if path.split("/")[0] not in OVERLAY_DIRS or "/" not in path:
        raise Fail(
            f"{where}: {path} lies outside the overlay's folders ({', '.join(OVERLAY_DIRS)}); "
            "add its folder to OVERLAY_DIRS in scripts/lr/layout.py"
        )


def load(root: Path) -> Series:
    """The series of a checkout."""
    try:
        return parse((root / INDEX).read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        raise Fail(f"{INDEX}: not there; it lists the patches in order") from exc
    except UnicodeDecodeError as exc:
        raise Fail(f"{INDEX}: not UTF-8; convert it") from exc


def file_mode(path: Path) -> str | None:
    """git's mode of a regular file, None for anything else."""
    try:
        info = path.lstat()
    except OSError:
        return None
    if not stat.S_ISREG(info.st_mode):
        return None
    return "100755" if info.st_mode & 0o100 else "100644"


def on_disk(root: Path) -> Iterator[str]:
    """All patches of series/ and all files under the overlay's folders, as paths from the root, in order."""
    for path in sorted([*(root / "series").glob("*.patch"), *(root / "series").glob("*/*.patch")]):
        yield str(path.relative_to(root))
    for top in OVERLAY_DIRS:
        for folder, folders, names in os.walk(root / top):
            folders.sort()
            for name in sorted(names):
                yield str((Path(folder) / name).relative_to(root))


def ownership(root: Path, series: Series) -> list[str]:
    """What is wrong with who owns what: missing files, files nobody owns, things that are not plain files."""
    wrong = []
    listed = {entry.path: INDEX for entry in series.entries}
    for entry in series.entries:
        listed |= dict.fromkeys(entry.paths, entry.name)
    for path, owner in listed.items():
        if file_mode(root / path) is None:
            what = "is not a plain file" if os.path.lexists(root / path) else "is not there"
            wrong.append(f"{path}: {what}; {owner} lists it")
    for path in on_disk(root):
        if path not in listed and path.startswith("series/"):
            wrong.append(f"{path}: not listed in {INDEX} in this section; list it, move it or remove it")
        elif path not in listed:
            wrong.append(f"{path}: no patch owns it; list it in {INDEX} under the patch that brings it")
    return wrong
