# SPDX-License-Identifier: GPL-2.0-only
"""The verb `stable`: the fix meant for stable kernels, on one: its stock loses the data, with the fix nothing is lost.

The kernel is Debian's newest linux-source-BASE, unpacked into build/stable/BASE/linux. Where the series' own patch does
not apply there, the newest one of backports/ that is not newer than the kernel takes its place.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lr import apt, base, build, compose, patch, selftest
from lr import series as listing
from lr import state as states
from lr.build import Target
from lr.git import Git, Identity
from lr.layout import Layout, here
from lr.options import env, number
from lr.patch import Patch
from lr.results import Case, conclude, write_junit
from lr.ui import Fail, Progress, grid, notice, say

# Those of Debian that carry older kernels, too; a package that lies in several is the same one.
SUITES = ("trixie", "trixie-backports", "bookworm-backports", "forky", "sid", "experimental")
EXAMPLE = "make stable BASE=6.12"
CC = re.compile(r"^Cc: stable@vger\.kernel\.org\b", re.MULTILINE)
PROGRAM = "reclaim_dontcache"
# What tests that fix on XFS; the first must lose data without it.
CASES = ("memory_reclaim", "freed_when_clean")
CELLS = (selftest.Cell(True, 1), selftest.Cell(False, 1))
# What the program cannot do without; whatever else of our fragments an older kernel lacks is no matter here.
NEEDS = tuple(
    f"CONFIG_{name}" for name in "XFS_FS EXT4_FS MEMCG LRU_GEN NUMA SWAP FTRACE DEBUG_FS VIRTIO_BLK 9P_FS".split()
)
_VERSION = re.compile(r"[1-9][0-9]{0,2}\.[0-9]{1,3}")
_LOST = re.compile(r"\blost=(\d+) files=(\d+)")


@dataclass(frozen=True)
class Fix:
    """The patch of the series that is meant for stable kernels, and where it was read."""

    name: str
    patch: Patch
    path: Path


def parts(version: str) -> tuple[int, ...]:
    """A version to compare with others: 6.12 is newer than 6.6."""
    return tuple(int(part) for part in version.split("."))


def parse_base(text: str) -> str:
    """BASE=, the version of a stable kernel older than what the series is made for."""
    if not text:
        raise Fail(f"BASE= is missing, the stable kernel to try; write {EXAMPLE}")
    if not _VERSION.fullmatch(text):
        raise Fail(f"BASE={text}: not a kernel's version; write two numbers, as in {EXAMPLE}")
    if parts(text) >= parts(base.SERIES):
        raise Fail(f"BASE={text}: the series is made for {base.SERIES}, there `make test` shows it; give an older one")
    return text


def find_fix(layout: Layout) -> Fix:
    """The one patch of the series that carries the Cc: of stable kernels."""
    found = []
    for entry in listing.load(layout.root).entries:
        path = layout.root / entry.path
        if not path.is_file():
            raise Fail(f"{entry.path}: not there; {listing.INDEX} lists it")
        read = patch.parse(path.read_bytes(), entry.path)
        if CC.search(read.body):
            found.append(Fix(entry.name, read, path))
    if len(found) != 1:
        names = ", ".join(fix.name for fix in found) or "none"
        raise Fail(f"one patch of the series must carry `Cc: stable@vger.kernel.org`, there is {names}")
    return found[0]


def backport(fix: Fix, version: str) -> Path:
    """Where the fix's hand-made backport to a version lies: beside the fix."""
    return fix.path.parent / "backports" / version / fix.name


def backports(fix: Fix, version: str) -> list[Path]:
    """The backports for this version or older ones, the newest first."""
    folders = [path.name for path in (fix.path.parent / "backports").glob("*") if _VERSION.fullmatch(path.name)]
    fitting = [name for name in folders if parts(name) <= parts(version) and backport(fix, name).is_file()]
    return [backport(fix, name) for name in sorted(fitting, key=parts, reverse=True)]


def check_backport(layout: Layout, fix: Fix, path: Path) -> Patch:
    """A backport, which must say what the series' patch says; only its hunks are its own."""
    where = layout.told(path)
    if path != backport(fix, path.parent.name) or not _VERSION.fullmatch(path.parent.name):
        wanted = layout.told(backport(fix, "VERSION"))
        raise Fail(f"{where}: a backport is called {wanted}, after the patch with Cc: stable")
    read = patch.parse(path.read_bytes(), where)
    if read.message != fix.patch.message:
        raise Fail(f"{where}: its message is not that of {fix.name}; copy all above the line --- from there")
    return read


def choose(layout: Layout, fix: Fix, git: Git, version: str) -> Fix:
    """The patch to apply: the series' own where it applies, else the newest backport that is not too new."""
    if _applies(git, fix.path):
        say(f"{fix.name} applies to {version} as it is")
        return fix
    found = backports(fix, version)
    if not found:
        raise Fail(
            f"{fix.name} does not apply to {version}, and there is no backport for it; "
            f"write {layout.told(backport(fix, version))}: the same message, hunks for {version}"
        )
    where = layout.told(found[0])
    read = check_backport(layout, fix, found[0])
    if not _applies(git, found[0]):
        wanted = layout.told(backport(fix, version))
        raise Fail(f"neither {fix.name} nor {where} applies to {version}; write {wanted}")
    say(f"{fix.name} does not apply to {version}; {where} does")
    return Fix(fix.name, read, found[0])


def _applies(git: Git, path: Path) -> bool:
    return git.run("apply", "--index", "--check", str(path), check=False).returncode == 0


def target(layout: Layout, version: str) -> Target:
    """That kernel, stock or with the fix: the second build only compiles what differs."""
    home = folder(layout, version)
    return Target(f"stable-{version}", home / "linux", home / "obj", home / "bzImage", needs=NEEDS)


def folder(layout: Layout, version: str) -> Path:
    """Where all of that kernel lies."""
    return layout.build / "stable" / version


def obtain(layout: Layout, version: str, etc: Path = apt.ETC_APT) -> str:
    """Debian's newest package of that kernel in build/stable/BASE/linux, with a branch `base`; returns its version.

    What is there stays where it is that version, or where no suite can be asked.
    """
    home = layout.build / "apt"
    package = f"linux-source-{version}"
    stamp = folder(layout, version) / "package"
    there = stamp.read_text().strip() if stamp.is_file() and (folder(layout, version) / "linux").is_dir() else ""
    root = apt.AptRoot(home, apt.mirror(etc, "add one"))
    root.prepare()
    seen, errors = base.search(root, package, SUITES)
    chosen = apt.newest(seen, f"{version}.")
    if chosen is None and there and errors:
        notice(f"{errors[0]}; using {package} {there}, which is there")
        return there
    if chosen is None:
        raise Fail(_not_there(root, package, errors))
    if chosen.version != there:
        linux = folder(layout, version) / "linux"
        build.refuse_changes(layout, linux, own_work(linux, "--all"))
        deb = base.take(root, home, package, chosen, "look for what is wrong with the network")
        stamp.unlink(missing_ok=True)
        _import(layout, version, deb, chosen)
        stamp.write_text(f"{chosen.version}\n")
    return chosen.version


def _not_there(root: apt.AptRoot, package: str, errors: Sequence[str]) -> str:
    if len(errors) == len(SUITES):
        return f"{package} cannot be fetched ({errors[0]}); check the network"
    names = {name for suite in SUITES for name in root.names(suite, "linux-source-")}
    known = {name.removeprefix("linux-source-") for name in names}
    older = sorted((each for each in known if _VERSION.fullmatch(each) and parts(each) < parts(base.SERIES)), key=parts)
    unread = f" (not read: {errors[0]})" if errors else ""
    return f"no suite of {root.uri} has {package}{unread}; take BASE= from what there is: {', '.join(older) or 'none'}"


def _import(layout: Layout, version: str, deb: Path, package: apt.Package) -> None:
    """Unpack the package into a repository of its own; what an interrupt leaves behind is not used."""
    place = folder(layout, version)
    place.mkdir(parents=True, exist_ok=True)
    part = place / "linux.part"
    git = base.new_repository(part, "stable")
    _, tarball = base.tarball_of(layout, deb, package)
    try:
        found = base.unpack(tarball, part, deb.name, version)
    finally:
        tarball.unlink(missing_ok=True)
    tree = base.add_all(git, part, deb.name, {})
    commit = git.commit_tree(tree, [], f"Linux {found}\n\nDebian's {deb.name}, as imported.\n", Identity())
    git.run("update-ref", "refs/heads/base", commit)
    git.run("update-ref", "refs/heads/stable", commit)
    shutil.rmtree(place / "linux", ignore_errors=True)
    os.rename(part, place / "linux")


def own_work(linux: Path, where: str = "HEAD") -> list[str]:
    """What somebody has changed in that kernel, where a backport is best made; where: HEAD, or --all its branches."""
    return build.changes(linux, where, ("refs/heads/base",))


def put(layout: Layout, git: Git, fix: Fix | None) -> None:
    """The source as it was imported, with the fix as a commit on top if there is one."""
    assert git.worktree is not None
    build.refuse_changes(layout, git.worktree, own_work(git.worktree))
    git.run("reset", "-q", "--hard", "base")
    if fix:
        git.run("apply", "--index", str(fix.path))
        commit = git.commit_tree(git.text("write-tree"), ["base"], fix.patch.message, Identity())
        git.run("update-ref", "HEAD", commit)


def lost(case: Case) -> str:
    """How many files a case on XFS has lost, for the table."""
    if found := _LOST.search(case.message):
        return f"{found[1]} of {found[2]}"
    return {"passed": "0", "skipped": "skipped"}.get(case.status, "failed")


def on_xfs(cases: Sequence[Case], cell: str) -> dict[str, Case]:
    """The cases on XFS in a cell, by their short name."""
    lead = f"{PROGRAM}/dontcache.xfs."
    mine = [case for case in cases if case.suite.endswith(f" {cell}") and case.name.startswith(lead)]
    return {case.name.removeprefix(lead): case for case in mine}


def judge_stock(cases: Sequence[Case], version: str, cell: str) -> Case:
    """Stock must fail, by losing data, where the fix is needed: else nothing is shown by what passes with it."""
    suite, name = f"stable-{version} {cell}", f"{version} stock loses the data"
    case = on_xfs(cases, cell).get(CASES[0])
    if case is None:
        others = "; ".join(f"{each.name}: {each.message}" for each in cases if each.suite.endswith(f" {cell}"))
        return Case(suite, name, "failed", f"{CASES[0]} did not run: {others}")
    if case.status == "failed" and (found := _LOST.search(case.message)) and int(found[1]):
        return Case(suite, name, "passed", f"{found[1]} of {found[2]} files lost")
    return Case(suite, name, "failed", f"{CASES[0]} {case.status} and lost nothing: {case.message}".rstrip(": "))


def judge_fixed(cases: Sequence[Case], version: str, cell: str) -> Case:
    """With the fix every case on XFS has run, and none has lost a file."""
    suite, name = f"stable-{version} {cell}", f"{version} with the fix loses nothing"
    found = on_xfs(cases, cell)
    wrong = [f"{case}: {lost(found[case]) if case in found else 'did not run'}" for case in CASES]
    wrong = [each for each in wrong if not each.endswith(": 0")]
    return Case(suite, name, "failed" if wrong else "passed", ", ".join(wrong))


def none_skipped(cases: Sequence[Case]) -> list[Case]:
    """The cases; one that was skipped has failed: it shows nothing, and the guest has all it needs."""
    return [
        replace(case, status="failed", message=f"skipped: {case.message}") if case.status == "skipped" else case
        for case in cases
    ]


def table(stock: Sequence[Case], fixed: Sequence[Case]) -> str:
    """Files lost on XFS, by cell and case."""
    rows: list[tuple[str, ...]] = [("files lost on XFS", "", "stock", "fixed")]
    for cell in CELLS:
        before, after = on_xfs(stock, cell.name), on_xfs(fixed, cell.name)
        for name in CASES:
            sides = (lost(found[name]) if name in found else "-" for found in (before, after))
            rows.append((cell.name, name, *sides))
    return grid(rows, 2)


def collect(layout: Layout, version: str, timeout: int) -> list[Case]:
    """Fetch, build and boot the kernel without the fix and with it; one case a test and two a cell of our own."""
    fix = find_fix(layout)
    compose.ensure_tree(layout)
    build.selftests(layout)
    with states.locked(layout, f"stable/{version}"):
        return _collect(layout, fix, version, timeout)


def _collect(layout: Layout, fix: Fix, version: str, timeout: int) -> list[Case]:
    debian = obtain(layout, version)
    spec = target(layout, version)
    git = Git.of(spec.source)
    put(layout, git, None)
    chosen = choose(layout, fix, git, version)

    def run(side: str, tests: Sequence[str]) -> list[Case]:
        image = build.compile_kernel(layout, spec)
        label = f"stable-{version}-{side}"
        return selftest.run_selftests(layout, image, tests, CELLS, timeout=timeout, label=label)

    stock = run("stock", [f"{PROGRAM}:dontcache.xfs.{name}" for name in CASES])
    put(layout, git, chosen)
    fixed = none_skipped(run("fixed", [PROGRAM]))
    cases = [judge_stock(stock, version, cell.name) for cell in CELLS]
    cases += [judge_fixed(fixed, version, cell.name) for cell in CELLS]
    cases += fixed
    write_junit(layout.build / "results" / f"stable-{version}.xml", cases)
    say(f"linux-source-{version} {debian}, {chosen.path.relative_to(layout.root)}")
    say(table(stock, fixed))
    return cases


def main(argv: list[str]) -> int:
    """Try the fix on a stable kernel; 1 when stock does not show the loss, or the fix does not end it."""
    # For the base of the series the same variable has another meaning.
    wish = os.environ.pop("BASE", "")
    words = argparse.ArgumentParser(prog="stable", description=__doc__)
    words.add_argument("--base", default=wish, help="the stable kernel, such as 6.12")
    words.add_argument("--timeout", default=env("TIMEOUT", "3600"), help="seconds one guest may take, default 3600")
    options = words.parse_args(argv)
    version = parse_base(options.base)
    timeout = number("TIMEOUT", options.timeout, 1, 86400)
    whole = Progress("stable")
    cases = collect(here(), version, timeout)
    return conclude(cases, whole.elapsed()).status
