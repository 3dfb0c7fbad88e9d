# SPDX-License-Identifier: GPL-2.0-only
"""The base: from a tarball, a clone or the Debian package; missing, truncated, altered, and without a network."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from lr import apt, base
from lr import state as states
from lr.base import Wish
from lr.git import user_environment
from lr.ui import Fail
from toy import KERNEL, NOBODY_THERE, Toy, tarball


def clone(path: Path, files: dict[str, str], tag: str) -> Path:
    """A user's kernel clone."""
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(content)
    git = ["git", "-C", str(path), "-c", "user.name=U", "-c", "user.email=u@u", "-c", "core.fsync=none"]
    if not (path / ".git").exists():
        subprocess.run([*git, "init", "-q"], check=True, env=user_environment())
    subprocess.run([*git, "add", "-A", "-f"], check=True, env=user_environment())
    subprocess.run([*git, "commit", "-q", "-m", tag], check=True, env=user_environment())
    subprocess.run([*git, "tag", tag], check=True, env=user_environment())
    return path


def test_tarball_is_imported_without_debians_ignores(toy: Toy) -> None:
    toy.tree()
    assert (toy.linux / ".gitignore").read_text() == ".*\n*.o\n*.patch\n#\n# Debian\n"
    assert toy.git("log", "--format=%s|%an|%at", "base") == "Linux 7.3.4|linux-reclaim|1767225600"
    assert toy.git("rev-parse", "base") == toy.git("rev-parse", "HEAD")
    toy.add("mm/new.c", "")
    assert toy.git("status", "--porcelain") == "?? mm/new.c"


def test_clone_gives_the_same_commit_as_the_tarball(toy: Toy, tmp_path: Path) -> None:
    toy.tree()
    commit = toy.git("rev-parse", "base")
    shutil.rmtree(toy.linux)
    path = clone(tmp_path / "linux", KERNEL, "v7.3.4")
    toy.tree(wish=Wish("git", path, "v7.3.4"))
    assert toy.git("rev-parse", "base") == commit
    assert toy.git("status", "--porcelain") == ""
    state = states.load(toy.linux)
    assert state is not None and len(state.base.upstream_commit) == 40


def test_chosen_base_is_remembered_and_can_be_changed(made: Toy, tmp_path: Path) -> None:
    older = {**KERNEL, "Makefile": KERNEL["Makefile"].replace("SUBLEVEL = 4", "SUBLEVEL = 3"), "lib/old.c": "int o;\n"}
    path = clone(tmp_path / "linux", older, "v7.3.3")
    first = made.git("rev-parse", "HEAD")
    made.git("worktree", "add", "-q", "--detach", str(made.layout.build / "stock"), "base")
    made.tree(wish=Wish("git", path, "v7.3.3"))
    assert (made.linux / "lib/old.c").exists() and made.git("log", "-1", "--format=%s", "base") == "Linux 7.3.3"
    assert len(made.subjects()) == 3
    made.tree(wish=Wish())
    assert made.git("log", "-1", "--format=%s", "base") == "Linux 7.3.3"
    made.tree()
    assert made.git("rev-parse", "HEAD") == first and not (made.linux / "lib/old.c").exists()
    assert "stock" in made.git("worktree", "list")


def test_base_is_not_changed_under_unsaved_work(made: Toy, tmp_path: Path) -> None:
    path = clone(tmp_path / "linux", {**KERNEL, "lib/old.c": ""}, "v7.3.4")
    made.edit("fs/inode.c", "int a", "int z")
    with pytest.raises(Fail, match="not saved: 1 edited file: fs/inode.c"):
        made.tree(wish=Wish("git", path, "v7.3.4"))


def test_base_the_series_does_not_fit_leaves_everything(made: Toy, tmp_path: Path) -> None:
    files = {**KERNEL, "mm/vmscan.c": KERNEL["mm/vmscan.c"].replace("line 9\n", "line nine\n")}
    path = clone(tmp_path / "linux", files, "v7.3.9")
    head = made.git("rev-parse", "HEAD")
    with pytest.raises(Fail, match="series/first/mm-vmscan-say-ten.patch does not apply: mm/vmscan.c, hunk 1"):
        made.tree(wish=Wish("git", path, "v7.3.9"))
    assert made.git("rev-parse", "HEAD", "base").split()[0] == head
    made.tree(wish=Wish())


def test_missing_tarball(toy: Toy) -> None:
    with pytest.raises(Fail, match=r"BASE_TARBALL=/nowhere/x.tar.xz: no such file"):
        toy.tree(wish=Wish("tarball", Path("/nowhere/x.tar.xz")))
    assert not toy.linux.exists()


def test_truncated_tarball(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    short = toy.tarball.with_name("short.tar.xz")
    short.write_bytes(toy.tarball.read_bytes()[:-60])
    with pytest.raises(Fail, match=r"^BASE_TARBALL=.*short.tar.xz: cannot be unpacked \(.*\); truncated, or the disk"):
        toy.tree(wish=Wish("tarball", short))
    assert not toy.linux.exists() and not list(toy.layout.build.glob("linux*"))
    assert "unpack the base kernel: FAILED" in capsys.readouterr().err
    toy.tree()


def test_tarball_of_something_else(toy: Toy, tmp_path: Path) -> None:
    other = tarball(tmp_path / "other.tar.xz", {"Makefile": "all:\n"}, "other/")
    with pytest.raises(Fail, match="other.tar.xz: not a kernel: its top Makefile says no VERSION and PATCHLEVEL"):
        toy.tree(wish=Wish("tarball", other))
    older = tarball(tmp_path / "old.tar.xz", {"Makefile": "VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 1\n"}, "o/")
    with pytest.raises(Fail, match="old.tar.xz: is Linux 6.12.1; the series is for 7.3"):
        toy.tree(wish=Wish("tarball", older))
    plain = tmp_path / "text.tar.xz"
    plain.write_text("no tar")
    with pytest.raises(Fail, match="text.tar.xz: cannot be unpacked"):
        toy.tree(wish=Wish("tarball", plain))


def test_altered_tarball_is_told(toy: Toy, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tarball(tmp_path / "mine.tar.xz", {**KERNEL, "lib/mine.c": ""})
    toy.tree(wish=Wish("tarball", other))
    assert "mine.tar.xz is not the tarball of bases/7.3.lock; the series may not apply to it" in capsys.readouterr().err


def test_import_that_was_interrupted_is_not_trusted(toy: Toy) -> None:
    part = toy.layout.build / "linux.part"
    (part / ".git").mkdir(parents=True)
    (part / "leftover.c").write_text("half")
    toy.tree()
    assert not (toy.linux / "leftover.c").exists() and not part.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"BASE_GIT": "/x"}, "BASE_GIT=/x needs REV= too"),
        ({"BASE": "newest"}, "BASE=newest: not known; BASE=locked"),
        ({"BASE_GIT": "/x", "REV": "v1", "BASE_TARBALL": "/y"}, "give only one of"),
    ],
)
def test_wrong_words(monkeypatch: pytest.MonkeyPatch, words: dict[str, str], message: str) -> None:
    for name, value in words.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Fail, match=message):
        base.wish_from_environment()


def test_wrong_clone(toy: Toy, tmp_path: Path) -> None:
    with pytest.raises(Fail, match=r"BASE_GIT=/nowhere/linux: no such folder"):
        toy.tree(wish=Wish("git", Path("/nowhere/linux"), "v7.3.4"))
    path = clone(tmp_path / "linux", KERNEL, "v7.3.4")
    with pytest.raises(Fail, match=r"REV=v7.3.5: it has no commit v7.3.5; git -C .* fetch --tags"):
        toy.tree(wish=Wish("git", path, "v7.3.5"))
    with pytest.raises(Fail, match="not a git repository"):
        toy.tree(wish=Wish("git", toy.root, "v7.3.4"))


def test_lock_round_trips_and_names_mistakes(toy: Toy) -> None:
    assert base.read_lock(toy.layout.lock) == toy.lock
    toy.layout.lock.write_text("package\n")
    with pytest.raises(Fail, match=r"bases/7.3.lock:1: not a line `key = value`"):
        toy.tree()
    base.write_lock(toy.layout.lock, replace(toy.lock, deb_sha256="12"))
    with pytest.raises(Fail, match="deb_sha256 is not a SHA-256"):
        toy.tree()
    toy.layout.lock.unlink()
    with pytest.raises(Fail, match=r"7.3.lock: not there"):
        toy.tree()


def etc(tmp_path: Path, text: str) -> Path:
    """A machine's apt configuration."""
    (tmp_path / "etc/sources.list.d").mkdir(parents=True)
    (tmp_path / "etc/sources.list.d/debian.sources").write_text(text)
    return tmp_path / "etc"


def test_mirror_from_either_form(tmp_path: Path) -> None:
    folder = etc(
        tmp_path,
        "Types: deb\nURIs: http://other.example/x\nSuites: nodistro\nComponents: main\n\n"
        "Enabled: no\nTypes: deb\nURIs: http://off.example/debian\nSuites: bookworm\n\n"
        "# c\nTypes: deb deb-src\nURIs:\n http://security.example/debian-security\n http://mirror.example/debian\n"
        "Suites: bookworm bookworm-updates\n",
    )
    assert apt.mirror(folder) == "http://mirror.example/debian"
    (folder / "sources.list").write_text(
        "# deb http://c/ stable main\ndeb [arch=amd64] https://one.example/d trixie main\n"
    )
    assert apt.mirror(folder) == "https://one.example/d"


def test_no_mirror(tmp_path: Path) -> None:
    with pytest.raises(Fail, match="names no Debian mirror .* BASE_TARBALL=.* BASE_GIT="):
        apt.mirror(etc(tmp_path, "Types: deb\nURIs: http://x/\nSuites: noble\nComponents: main\n"))


needs_apt = pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt on this machine")


@needs_apt
def test_no_network(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "SUITES", ())
    with pytest.raises(Fail) as caught:
        base.fetch(toy.layout, toy.lock, etc(tmp_path, NOBODY_THERE))
    text = str(caught.value)
    assert text.startswith("the base kernel cannot be fetched (sid: ")
    assert text.endswith("BASE_TARBALL=linux-7.3.4.tar.xz, or BASE_GIT=path/to/linux REV=v7.3.4") and "\n" not in text


@needs_apt
def test_altered_package_in_the_cache_is_not_used(
    toy: Toy, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "SUITES", ())
    cached = toy.layout.build / "apt/archives/linux-source-7.3_7.3.4-1_all.deb"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"altered")
    with pytest.raises(Fail, match="cannot be fetched"):
        base.fetch(toy.layout, toy.lock, etc(tmp_path, NOBODY_THERE))
    assert "is not what bases/7.3.lock says (damaged?); fetching it again" in capsys.readouterr().err
    assert not cached.exists()


class Archive:
    """A Debian mirror for tests: what each suite holds, in place of apt."""

    def __init__(self, suites: dict[str, list[apt.Package]], deb: bytes) -> None:
        self.suites, self.deb, self.uri = suites, deb, "http://mirror.example/debian"
        self.asked: list[str] = []

    def prepare(self) -> None:
        """Nothing to do."""

    def update(self, suite: str) -> str | None:
        """The suite's index."""
        self.asked.append(suite)
        return None if suite in self.suites else "404 Not Found"

    def versions(self, suite: str, _package: str) -> list[apt.Package]:
        """Its versions."""
        return self.suites[suite]

    def download(self, _package: str, chosen: apt.Package, into: Path, _way_out: str = "") -> Path:
        """A package."""
        path = into / f"x_{chosen.version}.deb"
        path.write_bytes(self.deb)
        return path


def fetch_from(
    toy: Toy, monkeypatch: pytest.MonkeyPatch, archive: Archive, lock: base.Lock
) -> tuple[apt.Package, Path]:
    """base.fetch with that mirror."""
    monkeypatch.setattr(apt, "mirror", lambda _etc: archive.uri)
    monkeypatch.setattr(apt, "AptRoot", lambda *_: archive)
    (toy.layout.build / "apt").mkdir(parents=True, exist_ok=True)
    return base.fetch(toy.layout, lock)


DIGEST = "916f0027a575074ce72a331777c3478d6513f786a591bd892da1a577bf2335f9"  # of b"test data"


def test_locked_version_is_found_in_any_suite(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = replace(toy.lock, suite="trixie-backports", deb_sha256=DIGEST)
    newer, locked = apt.Package("7.3.9-1", "1" * 64, "forky"), apt.Package("7.3.4-1", DIGEST, "sid")
    archive = Archive({"forky": [newer], "sid": [newer, locked]}, b"test data")
    chosen, deb = fetch_from(toy, monkeypatch, archive, lock)
    assert chosen == locked and deb.read_bytes() == b"test data"
    assert archive.asked == ["trixie-backports", "forky", "sid"]
    again = Archive({}, b"")
    assert fetch_from(toy, monkeypatch, again, lock)[1] == deb and again.asked == []


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="no dpkg on this machine")
def test_newest_is_used_with_a_notice(
    toy: Toy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [apt.Package(version, DIGEST, "sid") for version in ("7.3.9-1", "7.3.10-1", "7.30.1-1", "7.3.10~rc1-1")]
    chosen, _ = fetch_from(toy, monkeypatch, Archive({"sid": found}, b"test data"), toy.lock)
    assert chosen.version == "7.3.10-1"
    assert "linux-source-7.3 7.3.4-1 (bases/7.3.lock) is not to be had; using 7.3.10-1, sid" in capsys.readouterr().err


def test_mirror_that_differs_from_the_lock(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive({"sid": [apt.Package("7.3.4-1", "2" * 64, "sid")]}, b"test data")
    with pytest.raises(Fail, match=r"has SHA-256 2222222222222222..., bases/7.3.lock says 0000.*altered"):
        fetch_from(toy, monkeypatch, archive, toy.lock)


def test_damaged_download(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = replace(toy.lock, deb_sha256=DIGEST)
    archive = Archive({"sid": [apt.Package("7.3.4-1", DIGEST, "sid")]}, b"tes")
    with pytest.raises(Fail, match="was damaged on its way; run the same again"):
        fetch_from(toy, monkeypatch, archive, lock)
    assert not list((toy.layout.build / "apt/archives").iterdir())


def test_package_gone_everywhere(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Fail, match=r"no suite of http://mirror.example/debian has linux-source-7.3 any more; give"):
        fetch_from(toy, monkeypatch, Archive({suite: [] for suite in base.SUITES}, b""), toy.lock)
