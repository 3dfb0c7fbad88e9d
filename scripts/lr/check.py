# SPDX-License-Identifier: GPL-2.0-only
"""The verb `check`: everything that can be known about series, patches and tools without building a kernel."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from lr import ablate, compose, mbox, save, stable
from lr import series as listing
from lr.compose import Composer, Item
from lr.git import Git, GitError, environment, theirs
from lr.layout import Layout, here
from lr.results import Case, Counts, count, summary_line, write_junit
from lr.series import Series
from lr.state import State
from lr.ui import Fail, say

SUITE = "check"
_LIMIT = 1 << 20
_TRAILERS = re.compile(r"^(Signed-off-by|Assisted-by|Co-developed-by): ", re.MULTILINE | re.IGNORECASE)
# Excused: whoever submits signs off; and that a patch adds files is no fault when MAINTAINERS covers them, which the
# check `maintainers` demands of each.
_EXCUSED = "MISSING_SIGN_OFF,NO_AUTHOR_SIGN_OFF,FILE_PATH_CHANGES,UNKNOWN_COMMIT_ID"
_CHECKPATCH = re.compile(r"[^ ]*:\d*: ?(?:ERROR|WARNING|CHECK):")
# How every TRACE_EVENT() in the kernel is laid out; checkpatch takes it for a function.
_TRACE_STYLE = re.compile(r"include/trace/[^ ]*: CHECK:(?:PARENTHESIS_ALIGNMENT|OPEN_ENDED_LINE):")
_MACHINE_PATHS = re.compile(rb"(?<![\w.$}>])/(?:" + b"|".join((b"work", b"root", b"home")) + rb")/\w")
_GENERATED = re.compile(r"(?:^build/|__pycache__/|\.(?:o|ko|pyc|mod|mod\.c|cmd|orig|rej|log|deb)$)")
# Of those that have none a program reads every line: patches, and the kernel's ABI entries.
_NO_SPDX = re.compile(r"^(?:COPYING$|series/.*\.(?:patch|md)$|soak/bugs/.*\.patch$|Documentation/ABI/)")
_RST_MESSAGE = re.compile(r"^(?P<where>[^:]*:\d*): \((?:WARNING/2|ERROR/3|SEVERE/4)\) (?P<what>.*)$")
# What Sphinx and the kernel's extensions add to plain reStructuredText.
_SPHINX = re.compile(r"^(?:Unknown directive type|Unknown interpreted text role|No (?:directive|role) entry)")


class Skip(Exception):
    """The check cannot run here; says why."""


@dataclass
class Context:
    """What the checks share; the tree is None when it could not be composed, and why is said by the check `tree`."""

    layout: Layout
    files: list[str]
    series: Series | None = None
    items: list[Item] = field(default_factory=list)
    state: State | None = None
    commits: list[str] = field(default_factory=list)

    @property
    def git(self) -> Git:
        """build/linux."""
        return Git.of(self.layout.linux)

    def composed(self) -> State:
        """The tree, or Skip."""
        if self.state is None:
            raise Skip("the series does not compose")
        return self.state

    def listed(self) -> Series:
        """The series file, or Skip."""
        if self.series is None:
            raise Skip("series/index cannot be read")
        return self.series


def repository_files(root: Path) -> list[str]:
    """The files that are, or would be, committed."""
    if (root / ".git").exists():
        done = theirs(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        if done.returncode == 0:
            names = done.stdout.decode(errors="surrogateescape").split("\0")
            return sorted(name for name in set(names) if name and os.path.lexists(root / name))
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [
            name for name in folders if name not in ("build", ".git", "__pycache__") and name[-6:] != "_cache"
        ]
        found += [str((Path(folder) / name).relative_to(root)) for name in names]
    return sorted(found)


def _some(things: Sequence[str]) -> str:
    shown = "; ".join(things[:5])
    return shown + (f"; and {len(things) - 5} more" if len(things) > 5 else "")


def _tree(ctx: Context) -> str:
    ctx.series = listing.load(ctx.layout.root)
    ctx.items = compose.load_items(ctx.layout.root, ctx.series)
    state = compose.ensure_tree(ctx.layout)
    ctx.commits = Composer(ctx.git).compose(state.base.commit, ctx.items)
    ctx.state = state
    return f"{len(ctx.commits)} commits on Linux {state.base.version}"


def _round_trip(ctx: Context) -> str:
    # A hunk with an offset would be written back with another line number: the same bytes mean no fuzz, no offset.
    state = ctx.composed()
    saved = save.read_commits(ctx.git, state.base.commit, ctx.commits)
    files = save.contents(save.arrange(ctx.listed(), ctx.items, saved), saved)
    root = ctx.layout.root
    wrong = [name for name, (_, content) in files.items() if (root / name).read_bytes() != content]
    if wrong:
        raise Fail(f"not as save would write them: {_some(wrong)}; `make tree save` refreshes them")
    return "what save would write is what is there; no fuzz, no offset"


def _ownership(ctx: Context) -> str:
    wrong = listing.ownership(ctx.layout.root, ctx.listed())
    if wrong:
        raise Fail(_some(wrong))
    return ""


def _sections(ctx: Context) -> str:
    series = ctx.listed()
    wrong = [f"{entry.name} is in no section" for entry in series.entries if not entry.section]
    wrong += [f"section {name} lies in several places" for name in series.split_sections]
    for name in series.sections:
        if name:
            try:
                mbox.read_cover(ctx.layout, name)
            except Fail as exc:
                wrong.append(str(exc))
    known = {f"series/{name}" for name in series.sections if name} | {listing.INDEX, "series/README.md"}
    found = sorted(ctx.layout.told(path) for path in ctx.layout.series.iterdir())
    wrong += [f"{path}: not a section of {listing.INDEX}" for path in found if path not in known]
    if wrong:
        raise Fail(_some(wrong))
    return ", ".join(f"{name} {len(series.section(name))}" for name in series.sections)


def _independence(ctx: Context) -> str:
    base = ctx.composed().base.commit
    told = []
    for name in ctx.listed().sections:
        needs = mbox.prerequisites(ctx.git, base, ctx.items, name)
        told.append(f"{name} applies after {' and '.join(needs)}" if needs else f"{name} applies to the base alone")
    return "; ".join(told)


def _no_trailers(ctx: Context) -> str:
    ctx.listed()
    wrong = [item.entry.path for item in ctx.items if _TRAILERS.search(item.patch.body)]
    if wrong:
        raise Fail(f"carry trailers, which mbox adds from TRAILERS=: {_some(wrong)}")
    return ""


def _checkpatch(ctx: Context) -> str:
    ctx.composed()
    script = ctx.layout.linux / "scripts" / "checkpatch.pl"
    if not script.is_file() or shutil.which("perl") is None:
        raise Skip("no perl, or the base has no scripts/checkpatch.pl")
    words = ["perl", str(script), "--strict", "--no-summary", "--terse", "--show-types", "--color=never"]
    words += ["--showfile", "--ignore", _EXCUSED, "-"]
    # A commit that was clean stays clean as long as the same is asked.
    asked = hashlib.sha256("\0".join([*words, _TRACE_STYLE.pattern]).encode()).hexdigest()[:12]
    memory = ctx.layout.build / ".checkpatch-clean.json"
    try:
        clean: list[str] = json.loads(memory.read_text())
    except (OSError, ValueError):
        clean = []
    wrong = []
    for item, commit in zip(ctx.items, ctx.commits, strict=True):
        if f"{commit} {asked}" in clean:
            continue
        mail = ctx.git.run("format-patch", "--stdout", "--no-signature", "-1", commit).stdout
        done = subprocess.run(
            words, cwd=ctx.layout.linux, env=environment(), input=mail, capture_output=True, check=False
        )
        told = [line for line in done.stdout.decode(errors="replace").splitlines() if _CHECKPATCH.match(line)]
        lines = [line for line in told if not _TRACE_STYLE.match(line)]
        if not lines and (done.returncode == 0 or told):
            clean.append(f"{commit} {asked}")
            continue
        wrong += [f"{item.entry.name}: {line}" for line in lines] or [
            f"{item.entry.name}: {done.stderr.decode()[-200:]}"
        ]
    memory.write_text(json.dumps(clean[-4000:]))
    if wrong:
        raise Fail("\n".join(wrong))
    return f"{len(ctx.commits)} commits"


def _maintainers(ctx: Context) -> str:
    ctx.composed()
    tip = ctx.commits[-1] if ctx.commits else "base"
    patterns = re.findall(r"^F:\s*(\S+)", ctx.git.blob(f"{tip}:MAINTAINERS").decode(), re.MULTILINE)
    # "*" is THE REST, which would cover anything.
    known = [_maintained(pattern) for pattern in patterns if pattern not in ("*", "*/")]
    wrong = [path for item in ctx.items for path in item.overlay if not any(p.match(path) for p in known)]
    if wrong:
        raise Fail(f"no F: line of MAINTAINERS covers {_some(wrong)}; add one in the patch that brings the file")
    return ""


def _maintained(pattern: str) -> re.Pattern[str]:
    """As get_maintainer.pl reads a pattern: a folder covers all below it, `*` does not cross a slash."""
    body = "".join({"*": "[^/]*", "?": "[^/]"}.get(char, re.escape(char)) for char in pattern)
    if pattern.endswith("/"):
        return re.compile(body)
    return re.compile(body + ("$" if re.search(r"[*?]", pattern) else "(?:/|$)"))


def _ablations(ctx: Context) -> str:
    ctx.composed()
    wrong = []
    found = ctx.layout.ablations
    names = [path.name for path in found]
    wrong += [f"{name}: the name of two ablations" for name in dict.fromkeys(names) if names.count(name) > 1]
    index = {"GIT_INDEX_FILE": str(ctx.git.directory / f"lr-index-ablations-{os.getpid()}")}
    try:
        ctx.git.run("read-tree", ctx.commits[-1] if ctx.commits else "base", env=index)
        for path in found:
            try:
                wrong += ablate.unknown(ctx.layout, ablate.parse(path, path.read_text(errors="replace")))
            except Fail as exc:
                wrong.append(str(exc))
        for path in (*found, *ctx.layout.bugs):
            text = path.read_bytes()
            done = ctx.git.run("apply", "--cached", "--check", "-p1", "-", text_in=text, env=index, check=False)
            if done.returncode != 0:
                wrong.append(f"{path.name} does not apply: {done.stderr.decode(errors='replace').splitlines()[0]}")
    finally:
        Path(index["GIT_INDEX_FILE"]).unlink(missing_ok=True)
    if wrong:
        raise Fail(_some(wrong))
    return f"{len(found)} apply, and {len(ctx.layout.bugs)} bugs for soak"


def _backports(ctx: Context) -> str:
    ctx.listed()
    found = sorted(path for path in ctx.layout.series.glob("*/backports/**/*") if not path.is_dir())
    wrong = []
    for path in found:
        try:
            stable.check_backport(ctx.layout, stable.find_fix(ctx.layout), path)
        except Fail as exc:
            wrong.append(str(exc))
    if wrong:
        raise Fail(_some(wrong))
    return f"{len(found)} with the message of the series' patch"


def _spdx(ctx: Context) -> str:
    wrong = []
    for name in ctx.files:
        if not _NO_SPDX.match(name):
            lines = (ctx.layout.root / name).read_bytes()[:4096].splitlines()[:3]
            if lines and not any(b"SPDX-License-Identifier: GPL-2.0" in line for line in lines):
                wrong.append(name)
    if wrong:
        raise Fail(f"no SPDX-License-Identifier in the first lines: {_some(wrong)}")
    return ""


def _is_shell(path: Path) -> bool:
    if path.suffix == ".sh":
        return True
    with path.open("rb") as file:
        return re.match(rb"#! ?/(?:usr/)?bin/(?:env )?(?:ba|da)?sh\b", file.readline(100)) is not None


def _shellcheck(ctx: Context) -> str:
    if shutil.which("shellcheck") is None:
        raise Skip("shellcheck is not installed; run `make setup`")
    scripts = [name for name in ctx.files if _is_shell(ctx.layout.root / name)]
    if not scripts:
        return "no scripts"
    _tool(ctx, ["shellcheck", "-x", "--format=gcc", *scripts])
    return f"{len(scripts)} scripts"


def _tool(ctx: Context, words: list[str]) -> None:
    """Run a checker on the checkout; what it prints is the reason of a failure."""
    env = {**os.environ, "PYTHONPATH": str(ctx.layout.root / "scripts"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        words, cwd=ctx.layout.root, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines()
        if any("No module named" in line and line.endswith(words[2]) for line in said[-1:]):
            raise Skip(f"{words[2]} is not installed; run `make setup`")
        raise Fail("\n".join(said[-30:]) or f"exit {done.returncode}")


def _ruff(ctx: Context) -> str:
    words = [sys.executable, "-m", "ruff", "check", "--quiet", "--output-format=concise"]
    _tool(ctx, [*words, "scripts", "soak", "tests"])
    return ""


def _mypy(ctx: Context) -> str:
    _tool(ctx, [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "scripts/lr", "soak"])
    return ""


def _pytest(ctx: Context) -> str:
    if not (ctx.layout.root / "tests").is_dir():
        raise Skip("no tests")
    _tool(ctx, [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=short", "tests"])
    return ""


def _rst(ctx: Context) -> str:
    names = [name for name in ctx.files if name.endswith(".rst")]
    wrong = []
    for name in names:
        words = [sys.executable, "-m", "docutils", "--report=2", "--halt=5", "--writer=pseudoxml", name, os.devnull]
        done = subprocess.run(words, cwd=ctx.layout.root, capture_output=True, check=False)
        said = done.stderr.decode(errors="replace").splitlines()
        if any("No module named" in line for line in said):
            raise Skip("docutils is not installed; run `make setup`")
        found = [match for match in map(_RST_MESSAGE.match, said) if match]
        wrong += [f"{match['where']}: {match['what']}" for match in found if not _SPHINX.match(match["what"])]
        if done.returncode != 0 and not found:
            wrong.append(f"{name}: {said[-1] if said else 'docutils failed'}")
    if wrong:
        raise Fail("\n".join(wrong))
    return f"{len(names)} files"


def _files(ctx: Context) -> str:
    root = ctx.layout.root
    wrong = [f"{name} is 1 MiB or more" for name in ctx.files if (root / name).lstat().st_size >= _LIMIT]
    wrong += [f"{name} is generated" for name in ctx.files if _GENERATED.search(name)]
    wrong += [f"{name} is no plain file" for name in ctx.files if listing.file_mode(root / name) is None]
    for name in ctx.files:
        if (root / name).is_file() and (match := _MACHINE_PATHS.search((root / name).read_bytes())):
            wrong.append(f"{name} names a path of one machine ({match[0].decode()}...)")
    if wrong:
        raise Fail(_some(wrong))
    return f"{len(ctx.files)} files"


# In order on the screen. The first makes what the next need; those of the second list need only the files and run
# beside.
CHECKS: tuple[tuple[str, Callable[[Context], str]], ...] = (
    ("tree", _tree),
    ("ownership", _ownership),
    ("sections", _sections),
    ("round-trip", _round_trip),
    ("no-trailers", _no_trailers),
    ("independence", _independence),
    ("ablations", _ablations),
    ("backports", _backports),
    ("maintainers", _maintainers),
    ("checkpatch", _checkpatch),
)
TOOL_CHECKS: tuple[tuple[str, Callable[[Context], str]], ...] = (
    ("files", _files),
    ("spdx", _spdx),
    ("rst", _rst),
    ("shellcheck", _shellcheck),
    ("ruff", _ruff),
    ("mypy", _mypy),
    ("pytest", _pytest),
)


def _run(name: str, check: Callable[[Context], str], ctx: Context) -> Case:
    start = time.monotonic()
    try:
        message, status = check(ctx), "passed"
    except Skip as exc:
        return Case(SUITE, name, "skipped", str(exc), time.monotonic() - start)
    except (Fail, GitError, OSError, UnicodeError) as exc:
        message, status = str(exc), "failed"
    return Case(SUITE, name, "passed" if status == "passed" else "failed", message, time.monotonic() - start)


def cases(layout: Layout, tools: bool = True) -> Iterator[Case]:
    """Run the checks; each case as it is there."""
    ctx = Context(layout, repository_files(layout.root))
    with ThreadPoolExecutor(max_workers=2) as pool:
        beside: list[Future[Case]] = []
        if tools:
            # The longest first.
            beside = [pool.submit(_run, name, check, ctx) for name, check in reversed(TOOL_CHECKS)]
        for name, check in CHECKS:
            yield _run(name, check, ctx)
        for future in reversed(beside):
            yield future.result()


def show(case: Case) -> None:
    """A case on the screen."""
    took = f" ({case.seconds:.0f} s)" if case.seconds >= 1 else ""
    first, *rest = case.message.splitlines() or [""]
    tail = f": {first}" if first else ""
    word = {"passed": f"ok {case.name}", "failed": f"not ok {case.name}", "skipped": f"ok {case.name} # SKIP"}[
        case.status
    ]
    say(f"{word}{tail}{took}")
    for line in rest:
        say(f"    {line}")


def run_checks(layout: Layout) -> Counts:
    """All checks, on the screen and as JUnit; for `check` and `test`."""
    done = []
    for case in cases(layout):
        show(case)
        done.append(case)
    write_junit(layout.build / "results" / "check.xml", done)
    return count(done)


def run(argv: list[str]) -> Counts:
    """The verb; what passed and what did not."""
    argparse.ArgumentParser(prog="check", description=__doc__).parse_args(argv)
    counts = run_checks(here())
    say(summary_line(counts))
    return counts


def main(argv: list[str]) -> int:
    """Check everything; 1 when something failed."""
    return run(argv).status
