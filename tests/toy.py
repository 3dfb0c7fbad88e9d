# SPDX-License-Identifier: GPL-2.0-only
"""A toy kernel, a toy checkout over it, and a developer who works in its build/linux."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from lr import base, compose, save
from lr.git import user_environment
from lr.layout import Layout

VMSCAN = "".join(f"line {number}\n" for number in range(1, 61))
KERNEL = {
    "Makefile": "# SPDX\nVERSION = 7\nPATCHLEVEL = 3\nSUBLEVEL = 4\nEXTRAVERSION =\nNAME = Toy\n",
    ".gitignore": ".*\n*.o\n*.patch\n#\n# Debian\n/*\n!/debian/\n",
    "mm/vmscan.c": VMSCAN,
    "fs/inode.c": "int a;\nint b;\nint c;\n",
    "fs/odd name.c": "int odd;\n",
    "MAINTAINERS": "MEMORY\nF:\tmm/\nF:\tfs/\n",
}
NOBODY_THERE = "Types: deb\nURIs: http://127.0.0.1:9/debian\nSuites: bookworm\nComponents: main\n"


def tarball(path: Path, files: dict[str, str] | None = None, top: str = "linux-source-7.3/") -> Path:
    """A kernel's tarball."""
    with tarfile.open(path, "w:xz") as archive:
        for name, content in sorted((KERNEL if files is None else files).items()):
            member = tarfile.TarInfo(top + name)
            member.size = len(content.encode())
            member.mode = 0o644
            archive.addfile(member, io.BytesIO(content.encode()))
    return path


class Toy:
    """A checkout with an empty series and a toy base."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout(root / "checkout")
        self.root = self.layout.root
        self.tarball = root / "linux.tar.xz"
        if not self.root.exists():
            (self.root / "bases").mkdir(parents=True)
            tarball(self.tarball)
            digest = base.sha256(self.tarball)
            base.write_lock(self.layout.lock, base.Lock("linux-source-7.3", "7.3.4-1", "sid", "0" * 64, digest, ""))
            self.write("series/index", "")
        self.lock = base.read_lock(self.layout.lock)
        self.wish = base.Wish("tarball", self.tarball)

    def write(self, name: str, content: str) -> None:
        """A file of the checkout."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def relist(self, old: str, new: str) -> None:
        """Change the index."""
        self.write("series/index", self.layout.index.read_text().replace(old, new))

    def tree(self, strict: bool = True, wish: base.Wish | None = None) -> None:
        """The verb tree."""
        compose.ensure_tree(self.layout, strict, wish or self.wish)

    def save(self, force: bool = False) -> list[str]:
        """The verb save; what it changed."""
        return save.save(self.layout, force)[1]

    @property
    def linux(self) -> Path:
        """Where the developer works."""
        return self.layout.linux

    def git(self, *words: str, env: dict[str, str] | None = None) -> str:
        """Ordinary git, as the developer uses it in build/linux."""
        who = ["-c", "user.name=Dev", "-c", "user.email=dev@example.org", "-c", "core.fsync=none"]
        done = subprocess.run(
            ["git", *who, *words],
            cwd=self.linux,
            env={**user_environment(), **(env or {})},
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def edit(self, name: str, old: str, new: str) -> None:
        """Change a file of build/linux."""
        path = self.linux / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, 1))

    def add(self, name: str, content: str) -> None:
        """A new file in build/linux."""
        path = self.linux / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def commit(self, subject: str, body: str = "Why.", *words: str) -> str:
        """Commit everything."""
        self.git("add", "-A", ".")
        self.git("commit", "-q", "-m", subject, "-m", body, *words)
        return self.git("rev-parse", "HEAD")

    def files(self) -> dict[str, bytes]:
        """All files of the checkout that save may write."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            if path.is_file() and not name.startswith(("build/", "bases/")):
                found[name] = path.read_bytes()
        return found

    def subjects(self) -> list[str]:
        """The commits of build/linux, oldest first."""
        return self.git("log", "--reverse", "--format=%s", "base..HEAD").splitlines()

    def trees(self) -> list[str]:
        """Their trees."""
        return self.git("log", "--reverse", "--format=%T", "base..HEAD").splitlines()


def with_series(toy: Toy) -> Toy:
    """Three commits in two sections: hunks alone, hunks with overlay files, overlay files alone."""
    toy.tree()
    toy.edit("mm/vmscan.c", "line 10\n", "line ten\n")
    toy.commit("mm/vmscan: say ten")
    toy.edit("mm/vmscan.c", "line 30\n", "line thirty\n")
    toy.add("mm/ours.c", "int ours;\n")
    toy.add("tools/testing/selftests/mm/ours.sh", "#!/bin/sh\n")
    (toy.linux / "tools/testing/selftests/mm/ours.sh").chmod(0o755)
    toy.commit("mm: add ours (v2) for the 2nd time")
    toy.add("Documentation/admin-guide/mm/reclaim.rst", "Reclaim\n=======\n")
    toy.commit("Documentation/mm: describe it")
    toy.save()
    text = (toy.root / "series/index").read_text()
    first, second, *rest = text.splitlines()
    comment = "# SPDX-License-Identifier: GPL-2.0-only\n# What this is.\n\n"
    toy.write(
        "series/index",
        f"{comment}[first]\n{first}\n\n# about it\n[second]\n# the core\n{second}\n" + "\n".join(rest) + "\n",
    )
    patches = [line for line in text.splitlines() if not line.startswith(" ")]
    for name, section in zip(patches, ("first", "second", "second"), strict=True):
        (toy.root / "series" / section).mkdir(exist_ok=True)
        (toy.root / "series" / name).rename(toy.root / "series" / section / name)
    toy.tree()
    return toy
