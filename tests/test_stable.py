# SPDX-License-Identifier: GPL-2.0-only
"""The fix on a stable kernel: which kernel, which patch, and what the tests' results say."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from lr import apt, base, build, compose, selftest, stable
from lr.clean import clean
from lr.git import Git, Identity
from lr.layout import Layout
from lr.results import Case
from lr.ui import Fail
from toy import Toy, tarball

NAME = "fs-fix.patch"
MESSAGE = "Subject: fs: fix it\n\nWhy.\n\nCc: stable@vger.kernel.org\n---\n"


def hunk(old: str, new: str) -> str:
    """A change of the toy's fs/inode.c."""
    return f"diff --git a/fs/inode.c b/fs/inode.c\n--- a/fs/inode.c\n+++ b/fs/inode.c\n@@ -1 +1 @@\n-{old}\n+{new}\n"


def with_fix(toy: Toy) -> stable.Fix:
    """A series with a patch for stable kernels, and one that is not for them."""
    toy.write("series/index", f"[one]\n{NAME}\nmm-other.patch\n")
    toy.write(f"series/one/{NAME}", MESSAGE + hunk("int a;", "int z;"))
    toy.write("series/one/mm-other.patch", "Subject: mm: other\n\nNot Cc: stable@vger.kernel.org\n---\n")
    return stable.find_fix(toy.layout)


def repository(toy: Toy, content: str) -> Git:
    """An older kernel."""
    git = Git.init(toy.layout.build / "older", "stable")
    toy.write("build/older/fs/inode.c", content)
    git.run("add", "-A")
    commit = git.commit_tree(git.text("write-tree"), [], "Linux 6.12.9\n", Identity())
    git.run("update-ref", "refs/heads/base", commit)
    git.run("update-ref", "HEAD", commit)
    return git


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "BASE= is missing, the stable kernel to try; write make stable BASE=6.12"),
        ("locked", "BASE=locked: not a kernel's version; write two numbers"),
        ("6.12.117", "BASE=6.12.117: not a kernel's version"),
        ("../6.1", "not a kernel's version"),
        ("7.3", "BASE=7.3: the series is made for 7.3"),
        ("7.12", "give an older one"),
    ],
)
def test_wrong_bases(text: str, message: str) -> None:
    with pytest.raises(Fail, match=message):
        stable.parse_base(text)


def test_versions_are_numbers() -> None:
    assert stable.parse_base("6.12") == "6.12"
    assert stable.parts("6.6") < stable.parts("6.12") < stable.parts("7.2")


def test_the_base_of_the_series_is_not_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASE", "6.12")
    monkeypatch.setattr(stable, "collect", lambda *_: [Case("s", "c", "failed")])
    assert stable.main([]) == 1
    assert "BASE" not in os.environ and base.wish_from_environment().kind == ""


def test_the_patch_with_the_cc_is_the_fix(toy: Toy) -> None:
    assert with_fix(toy).name == NAME
    toy.write(f"series/one/{NAME}", "Subject: fs: fix it\n\nWhy.\n---\n")
    with pytest.raises(Fail, match="one patch of the series must carry `Cc: stable@vger.kernel.org`, there is none"):
        stable.find_fix(toy.layout)


def test_own_patch_comes_first(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    fix = with_fix(toy)
    git = repository(toy, "int a;\n")
    toy.write(f"series/one/backports/6.1/{NAME}", MESSAGE + hunk("int a;", "int y;"))
    assert stable.choose(toy.layout, fix, git, "6.12") == fix
    assert f"{NAME} applies to 6.12 as it is" in capsys.readouterr().out
    stable.put(toy.layout, git, fix)
    assert (toy.layout.build / "older/fs/inode.c").read_text() == "int z;\n"
    assert git.message("HEAD").startswith("fs: fix it\n") and git.status() == []
    stable.put(toy.layout, git, None)
    assert (toy.layout.build / "older/fs/inode.c").read_text() == "int a;\n"
    assert git.resolve("HEAD") == git.resolve("base")


def test_a_backport_that_is_being_made_is_not_lost(toy: Toy) -> None:
    fix = with_fix(toy)
    git = repository(toy, "int a;\n")
    toy.write("build/older/fs/inode.c", "int mine;\n")
    with pytest.raises(Fail, match="build/older has changes, which would be lost: fs/inode.c; keep them elsewhere"):
        stable.put(toy.layout, git, fix)
    assert (toy.layout.build / "older/fs/inode.c").read_text() == "int mine;\n"
    git.run("add", "-A")
    mine = git.commit_tree(git.text("write-tree"), ["base"], "mine\n", Identity("Dev", "dev@example.org"))
    git.run("update-ref", "HEAD", mine)
    with pytest.raises(Fail, match="which would be lost: commit "):
        stable.put(toy.layout, git, fix)
    assert git.resolve("HEAD") == mine
    (toy.layout.build / "stable/6.12").mkdir(parents=True)
    (toy.layout.build / "older").rename(toy.layout.build / "stable/6.12/linux")
    assert clean(toy.layout)[0].startswith("build/stable: edited in 6.12/linux: commit ")
    assert (toy.layout.build / "stable/6.12/linux").exists()


def test_newest_backport_that_is_not_too_new(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    fix = with_fix(toy)
    git = repository(toy, "int b;\n")
    with pytest.raises(Fail, match=f"is no backport for it; write series/one/backports/6.12/{NAME}: the same m"):
        stable.choose(toy.layout, fix, git, "6.12")
    for folder in ("5.15", "6.6", "6.18"):
        toy.write(f"series/one/backports/{folder}/{NAME}", MESSAGE + hunk("int b;", "int y;"))
    assert stable.choose(toy.layout, fix, git, "6.12").path == toy.root / f"series/one/backports/6.6/{NAME}"
    assert f"series/one/backports/6.6/{NAME} does" in capsys.readouterr().out
    assert stable.choose(toy.layout, fix, git, "6.18").path == toy.root / f"series/one/backports/6.18/{NAME}"
    toy.write(f"series/one/backports/6.6/{NAME}", MESSAGE + hunk("int c;", "int y;"))
    with pytest.raises(Fail, match=f"neither {NAME} nor series/one/backports/6.6/{NAME} applies to 6.12"):
        stable.choose(toy.layout, fix, git, "6.12")


def test_a_backport_says_what_the_patch_says(toy: Toy) -> None:
    fix = with_fix(toy)
    wrong = MESSAGE.replace("Why.", "Why not.") + hunk("int b;", "int y;")
    toy.write(f"series/one/backports/6.12/{NAME}", wrong)
    with pytest.raises(Fail, match=f"its message is not that of {NAME}; copy all above the line ---"):
        stable.check_backport(toy.layout, fix, toy.root / f"series/one/backports/6.12/{NAME}")
    toy.write("series/one/backports/6.12/fs-old.patch", MESSAGE)
    with pytest.raises(Fail, match=f"a backport is called series/one/backports/VERSION/{NAME}"):
        stable.check_backport(toy.layout, fix, toy.root / "series/one/backports/6.12/fs-old.patch")


class Archive:
    """A Debian mirror for tests, in place of apt."""

    uri = "http://mirror.example/debian"

    def __init__(self, found: list[apt.Package], deb: Path | None = None, up: bool = True) -> None:
        self.found, self.deb, self.up = found, deb, up

    def prepare(self) -> None:
        """Nothing to do."""

    def update(self, _suite: str) -> str | None:
        """The suite's index."""
        return None if self.up else "404 Not Found"

    def versions(self, suite: str, _package: str) -> list[apt.Package]:
        """Its versions."""
        return [package for package in self.found if package.suite == suite]

    def names(self, _suite: str, prefix: str) -> list[str]:
        """Its packages."""
        return [f"{prefix}{end}" for end in ("7.3", "7.2", "6.12", "rt")]

    def download(self, package: str, chosen: apt.Package, into: Path, _way_out: str = "") -> Path:
        """A package."""
        assert self.deb is not None
        return Path(shutil.copy(self.deb, into / f"{package}_{chosen.version}_all.deb"))


def deb_of(folder: Path, sublevel: int) -> Path:
    """A package with a kernel's tarball."""
    tree = folder / f"deb-{sublevel}"
    (tree / "usr/src").mkdir(parents=True)
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN/control").write_text(
        f"Package: linux-source-6.12\nVersion: 6.12.{sublevel}-1\nArchitecture: all\nMaintainer: M <m@m>\n"
        "Description: d\n"
    )
    files = {
        "Makefile": f"VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = {sublevel}\n",
        ".gitignore": "*.o\n/*\n!/debian/\n",
        "fs/inode.c": "int a;\n",
    }
    tarball(tree / "usr/src/linux-source-6.12.tar.xz", files, "linux-source-6.12/")
    path = folder / f"{sublevel}.deb"
    subprocess.run(["dpkg-deb", "-b", "--root-owner-group", str(tree), str(path)], check=True, capture_output=True)
    return path


def ask(toy: Toy, monkeypatch: pytest.MonkeyPatch, archive: Archive, version: str = "6.12") -> str:
    """stable.obtain with that mirror."""
    monkeypatch.setattr(apt, "mirror", lambda *_: archive.uri)
    monkeypatch.setattr(apt, "AptRoot", lambda *_: archive)
    (toy.layout.build / "apt").mkdir(parents=True, exist_ok=True)
    return stable.obtain(toy.layout, version)


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="no dpkg on this machine")
def test_newest_package_is_unpacked_once(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deb = deb_of(tmp_path, 9)
    older = apt.Package("6.12.8-1", "1" * 64, "trixie")
    newest = apt.Package("6.12.9-1", base.sha256(deb), "sid")
    assert ask(toy, monkeypatch, Archive([older, newest], deb)) == "6.12.9-1"
    linux = toy.layout.build / "stable/6.12/linux"
    git = Git.of(linux)
    assert (linux / ".gitignore").read_text() == "*.o\n" and git.status() == []
    assert git.message("base").startswith("Linux 6.12.9\n")
    (linux / "kept").write_text("")
    assert ask(toy, monkeypatch, Archive([newest])) == "6.12.9-1"
    assert ask(toy, monkeypatch, Archive([], up=False)) == "6.12.9-1"
    assert (linux / "kept").exists()
    deb = deb_of(tmp_path, 10)
    newer = apt.Package("6.12.10-1", base.sha256(deb), "trixie")
    with pytest.raises(Fail, match="build/stable/6.12/linux has changes, which would be lost: kept"):
        ask(toy, monkeypatch, Archive([newer, newest], deb))
    (linux / "kept").unlink()
    assert ask(toy, monkeypatch, Archive([newer, newest], deb)) == "6.12.10-1"
    assert git.message("base").startswith("Linux 6.12.10\n") and not list(linux.parent.glob("*.part"))


def test_a_base_that_no_suite_has(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Fail) as caught:
        ask(toy, monkeypatch, Archive([]), "6.18")
    assert str(caught.value) == (
        "no suite of http://mirror.example/debian has linux-source-6.18; take BASE= from what there is: 6.12, 7.2"
    )
    with pytest.raises(Fail, match=r"linux-source-6.18 cannot be fetched \(trixie: 404 Not Found\); check the network"):
        ask(toy, monkeypatch, Archive([], up=False), "6.18")


def test_what_an_older_kernel_may_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = Layout(tmp_path)
    layout.configs.mkdir(parents=True)
    (layout.configs / "reclaim.config").write_text("CONFIG_XFS_FS=y\nCONFIG_NEW=y\nCONFIG_A_KUNIT_TEST=y\n")
    spec = stable.target(layout, "6.12")
    assert not spec.ours and "KUNIT_TEST" not in build.wanted_config(layout, spec)
    assert spec.source.parent == spec.objects.parent == layout.build / "stable/6.12"
    lacks = ["CONFIG_NEW"]

    def quiet(_layout: Layout, _source: Path, words: list[str]) -> str:
        trial = spec.objects / "merge"
        (trial / ".config").write_text("")
        return "".join(f"WARNING: Value requested for {name} not in final .config\n" for name in lacks)

    monkeypatch.setattr(build, "quiet_make", quiet)
    build.configure(layout, spec)
    assert "stable-6.12: symbols of our configuration that are not to be had there: 1" in capsys.readouterr().out
    shutil.rmtree(spec.objects)
    lacks.append("CONFIG_XFS_FS")
    with pytest.raises(Fail, match=r"the configuration lost CONFIG_XFS_FS; correct reclaim.config"):
        build.configure(layout, spec)


def case(cell: str, name: str, status: str = "passed", message: str = "") -> Case:
    """A case of the program on XFS."""
    assert status in ("passed", "failed", "skipped")
    return Case(f"stable-6.12-x {cell}", f"reclaim_dontcache/dontcache.xfs.{name}", status, message)  # type: ignore[arg-type]


def test_stock_must_lose_data() -> None:
    loss = case("c", "memory_reclaim", "failed", "xfs: lost=499 files=500 warnings=1")
    found = stable.judge_stock([loss], "6.12", "c")
    assert (found.status, found.name, found.message) == (
        "passed",
        "6.12 stock loses the data",
        "499 of 500 files lost",
    )
    assert stable.judge_stock([loss], "6.12", "d").status == "failed"
    for other in (
        case("c", "memory_reclaim"),
        case("c", "memory_reclaim", "skipped", "no mkfs"),
        case("c", "memory_reclaim", "failed", "mount: no"),
        case("c", "freed_when_clean", "failed", "lost=499 files=500"),
        Case("s c", "guest", "failed", "the kernel panicked"),
    ):
        assert stable.judge_stock([other], "6.12", "c").status == "failed"


def test_with_the_fix_every_case_runs_and_loses_nothing() -> None:
    good = [case("c", name) for name in stable.CASES]
    assert stable.judge_fixed(good, "6.12", "c").status == "passed"
    assert stable.judge_fixed(good[1:], "6.12", "c").message == "memory_reclaim: did not run"
    bad = [*good[1:], case("c", "memory_reclaim", "failed", "xfs: lost=10 files=500")]
    assert stable.judge_fixed(bad, "6.12", "c").message == "memory_reclaim: 10 of 500"
    skipped = [*good[1:], case("c", "memory_reclaim", "skipped", "no mkfs")]
    assert stable.judge_fixed(skipped, "6.12", "c").message == "memory_reclaim: skipped"
    assert stable.none_skipped(skipped)[-1].message == "skipped: no mkfs"


@pytest.mark.parametrize("stock_loses", [True, False])
def test_the_verb(
    toy: Toy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stock_loses: bool
) -> None:
    with_fix(toy)
    git = repository(toy, "int a;\n")
    (toy.layout.build / "stable/6.12").mkdir(parents=True)
    (toy.layout.build / "older").rename(toy.layout.build / "stable/6.12/linux")
    git = Git.of(toy.layout.build / "stable/6.12/linux")
    monkeypatch.setattr(compose, "ensure_tree", lambda _: None)
    monkeypatch.setattr(stable, "obtain", lambda *_: "6.12.9-1")
    monkeypatch.setattr(stable, "here", lambda: toy.layout)
    monkeypatch.setattr(build, "selftests", lambda _: toy.layout.build)
    monkeypatch.setattr(build, "compile_kernel", lambda _, spec: spec.image)

    def run(_layout: Layout, _image: Path, tests: list[str], cells: object, label: str, timeout: int) -> list[Case]:
        fixed = git.blob("HEAD:fs/inode.c") == b"int z;\n"
        assert fixed == label.endswith("-fixed") == (tests == ["reclaim_dontcache"])
        fails = stock_loses and not fixed
        names = [(cell.name, name) for cell in stable.CELLS for name in stable.CASES]
        return [
            case(cell, name, *(("failed", "x: lost=500 files=500") if fails else ("passed", "")))
            for cell, name in names
        ]

    monkeypatch.setattr(selftest, "run_selftests", run)
    assert stable.main(["--base", "6.12"]) == (0 if stock_loses else 1)
    said = capsys.readouterr().out
    if stock_loses:
        assert "lru_gen=off,nodes=1  freed_when_clean  500 of 500      0\n" in said
    assert f"{8 if stock_loses else 6} passed, {0 if stock_loses else 2} failed" in said
    assert stock_loses != ("FAILED stable-6.12 lru_gen=on,nodes=1: 6.12 stock loses the data" in said)
    assert "6.12 stock loses the data" in (toy.layout.build / "results/stable-6.12.xml").read_text()
