# SPDX-License-Identifier: GPL-2.0-only
"""A thin wrapper of git's plumbing whose results depend on nothing of the user's, be it configuration or GIT_*."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lr.ui import Fail

# Base and series carry no author: composing must give the same hashes for everybody, today and next year.
NEUTRAL_NAME = "linux-reclaim"
NEUTRAL_EMAIL = "linux-reclaim@localhost"
NEUTRAL_DATE = "1767225600 +0000"

# What the repository's own configuration, which a developer may edit, must not change either.
_FIXED = (
    "core.quotePath=false",
    "core.autocrlf=false",
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "commit.gpgSign=false",
    "advice.detachedHead=false",
)

# Hunk headers name the function by git's own rule for C, which may change with git's version: ours is fixed.
_C_FUNCTION = r"!^[ \t]*[A-Za-z_][A-Za-z_0-9]*:[ \t]*($|/[/*])" + "\n" + r"^[A-Za-z_].*$"

# The one form a patch is written in, whatever git or its configuration would choose.
DIFF_OPTIONS = (
    "--patch",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--unified=3",
    "--inter-hunk-context=0",
    "--diff-algorithm=histogram",
    "--indent-heuristic",
    "--abbrev=12",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--submodule=short",
    "--no-relative",
    "-O/dev/null",
)


@dataclass(frozen=True)
class Identity:
    """Who a commit names, and when; a date is anything git reads, "" means now."""

    name: str = NEUTRAL_NAME
    email: str = NEUTRAL_EMAIL
    date: str = NEUTRAL_DATE

    def environment(self) -> dict[str, str]:
        """As the variables that git reads."""
        words = {}
        for role in ("AUTHOR", "COMMITTER"):
            words[f"GIT_{role}_NAME"] = self.name
            words[f"GIT_{role}_EMAIL"] = self.email
            if self.date:
                words[f"GIT_{role}_DATE"] = self.date
        return words


@dataclass(frozen=True)
class Change:
    """One path that differs between two trees; a mode of 000000 means absent."""

    path: str
    old_mode: str
    new_mode: str
    new: str
    status: str


class GitError(Fail):
    """A git command failed; holds what it printed."""

    def __init__(self, words: Sequence[str], status: int, stderr: str) -> None:
        self.words, self.status, self.stderr = list(words), status, stderr
        super().__init__(
            f"git {' '.join(self.words[:3])} failed (exit {status}): {' | '.join(stderr.strip().splitlines()[-2:])}"
        )


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without anything that changes what git does."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {
        **kept,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
        "TZ": "UTC",
        **(extra or {}),
    }


def user_environment() -> dict[str, str]:
    """This process's environment for git in a repository of the user's: their configuration, but no redirection."""
    kept = ("GIT_CONFIG", "GIT_AUTHOR", "GIT_COMMITTER", "GIT_SSH", "GIT_ASKPASS", "GIT_EXEC_PATH")
    words = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name.startswith(kept)}
    return {**words, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}


def theirs(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """git as the user has it configured, in a folder of theirs; it is the caller who looks at the status."""
    return subprocess.run(["git", "-C", str(folder), *words], env=user_environment(), capture_output=True, check=False)


class Git:
    """One repository: its git folder, and its work tree where it has one.

    What we write into build/linux can be made again, so it need not survive a power cut (durable: it must).
    """

    def __init__(self, directory: Path, worktree: Path | None = None, durable: bool = False) -> None:
        self.directory, self.worktree, self.durable = directory, worktree, durable

    @classmethod
    def of(cls, worktree: Path) -> Git:
        """The repository whose work tree this is; never one further up."""
        return cls(worktree / ".git", worktree)

    @classmethod
    def init(cls, worktree: Path, branch: str) -> Git:
        """A new repository."""
        worktree.mkdir(parents=True, exist_ok=True)
        words = ["git", "init", "-q", "--template=", "-b", branch, str(worktree)]
        subprocess.run(words, check=True, env=environment(), capture_output=True)
        (worktree / ".git" / "info").mkdir(exist_ok=True)
        return cls.of(worktree)

    def words(self, args: Sequence[str], literal: bool = True) -> list[str]:
        """The whole command line of a git command on this repository."""
        where = [f"--git-dir={self.directory}"]
        if self.worktree is not None:
            where.append(f"--work-tree={self.worktree}")
        fixed = (*_FIXED, f"core.fsync={'default' if self.durable else 'none'}")
        settings = [word for item in fixed for word in ("-c", item)]
        pathspecs = ["--literal-pathspecs"] if literal else []
        return ["git", *settings, "-c", f"diff.cpp.xfuncname={_C_FUNCTION}", *pathspecs, *where, *args]

    def run(
        self,
        *args: str,
        text_in: bytes = b"",
        env: Mapping[str, str] | None = None,
        check: bool = True,
        literal: bool = True,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run one command; its paths are no patterns unless literal is false. Fails as GitError when check is set."""
        try:
            done = subprocess.run(
                self.words(args, literal),
                cwd=self.worktree or self.directory,
                env=environment(env),
                input=text_in,
                capture_output=True,
                check=False,
            )
        except FileNotFoundError as exc:
            missing = self.worktree or self.directory
            raise Fail(f"{missing}: not there" if not missing.exists() else "git: not found; run `make setup`") from exc
        if check and done.returncode != 0:
            raise GitError(args, done.returncode, done.stderr.decode(errors="replace"))
        return done

    def text(self, *args: str, env: Mapping[str, str] | None = None) -> str:
        """What a command that must succeed prints, without the last newline."""
        return self.run(*args, env=env).stdout.decode(errors="surrogateescape").rstrip("\n")

    def resolve(self, name: str) -> str | None:
        """The object of that name, or None."""
        done = self.run("rev-parse", "-q", "--verify", "--end-of-options", name, check=False)
        return done.stdout.decode().strip() if done.returncode == 0 else None

    def tree_of(self, name: str) -> str:
        """The tree of a commit."""
        return self.text("rev-parse", "--verify", "--end-of-options", f"{name}^{{tree}}")

    def blob(self, name: str) -> bytes:
        """The bytes of a blob, also as COMMIT:path."""
        return self.run("cat-file", "blob", name).stdout

    def write_blob(self, content: bytes) -> str:
        """Store bytes; returns the blob."""
        return (
            self.run("hash-object", "-w", "-t", "blob", "--stdin", "--no-filters", text_in=content)
            .stdout.decode()
            .strip()
        )

    def commit_tree(self, tree: str, parents: Iterable[str], message: str, who: Identity) -> str:
        """A commit object; no reference moves."""
        words = ["commit-tree", tree]
        for parent in parents:
            words += ["-p", parent]
        # Absent encoding header: UTF-8, whatever i18n.commitEncoding says.
        done = self.run(*words, "-F", "-", text_in=message.encode(), env=who.environment())
        return done.stdout.decode().strip()

    def message(self, commit: str) -> str:
        """A commit's message; the commit tells the encoding if that is not UTF-8."""
        head, _, raw = self.run("cat-file", "commit", commit).stdout.partition(b"\n\n")
        match = re.search(rb"^encoding (.+)$", head, re.MULTILINE)
        encoding = match[1].decode(errors="replace") if match else "UTF-8"
        try:
            return raw.decode(encoding)
        except (LookupError, ValueError) as exc:
            raise Fail(
                f"{commit[:12]}: its message cannot be read as {encoding}; reword it in UTF-8 (git rebase -i base)"
            ) from exc

    def changes(self, old: str, new: str) -> list[Change]:
        """What differs between two trees, renames as deletion and addition."""
        raw = self.run("diff-tree", "-r", "--raw", "-z", "--no-abbrev", "--no-renames", old, new).stdout
        fields = raw.decode(errors="surrogateescape").split("\0")[:-1]
        found = []
        for head, path in zip(fields[::2], fields[1::2], strict=True):
            old_mode, new_mode, _, after, status = head.lstrip(":").split(" ")
            found.append(Change(path, old_mode, new_mode, after, status[0]))
        return found

    def diff(self, old: str, new: str, paths: Sequence[str]) -> bytes:
        """The diff of some paths in the one fixed form; no paths, no diff."""
        if not paths:
            return b""
        return self.run("diff-tree", "-r", *DIFF_OPTIONS, old, new, "--", *paths).stdout

    def present(self, tree: str, paths: Sequence[str]) -> set[str]:
        """Those of the paths that the tree holds."""
        if not paths:
            return set()
        raw = self.run("ls-tree", "-r", "-z", "--name-only", "--full-tree", tree, "--", *paths).stdout
        return set(raw.decode(errors="surrogateescape").split("\0")) & set(paths)

    def status(self) -> list[str]:
        """What is edited, staged or untracked in the work tree, as `XY path`."""
        raw = self.run("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames").stdout
        entries = [entry for entry in raw.decode(errors="surrogateescape").split("\0") if entry]
        # The kernel's .gitignore hides dot files; a new .kunitconfig is work all the same.
        hidden = self.run("ls-files", "-o", "-z", "--", "*/.kunitconfig", literal=False).stdout.decode()
        entries += [f"?? {path}" for path in hidden.split("\0") if path]
        return list(dict.fromkeys(entries))
