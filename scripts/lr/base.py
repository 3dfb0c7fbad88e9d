# SPDX-License-Identifier: GPL-2.0-only
"""The base kernel: chosen (locked Debian package, tarball, git clone), fetched, checked, imported as a root commit."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lr import apt, stop
from lr import state as states
from lr.files import whole
from lr.git import Git, GitError, Identity, environment, theirs, user_environment
from lr.layout import Layout, here
from lr.options import env
from lr.state import Base, State
from lr.ui import Fail, Progress, notice, say

SERIES = "7.3"
SUITES = ("trixie-backports", "forky", "sid", "experimental")
WAY_OUT = "give the base yourself: make tree BASE_TARBALL=linux-7.3.4.tar.xz, or BASE_GIT=path/to/linux REV=v7.3.4"
# What Debian appends to the kernel's .gitignore: with it every new file in build/linux would be ignored, and work that
# is not saved invisible.
_DEBIAN_IGNORES = (b"/*\n", b"!/debian/\n")
# One pack written in a stream instead of 100000 loose objects; light compression, because git's default takes thrice
# as long for a tenth less.
_FAST_ADD = ("-c", "core.bigFileThreshold=1", "-c", "core.compression=1")


@dataclass(frozen=True)
class Lock:
    """The base that the series is made for."""

    package: str
    version: str
    suite: str
    deb_sha256: str
    tarball_sha256: str
    tree: str

    @property
    def wish(self) -> str:
        """What identifies this lock in a state."""
        return f"debian {self.version} {self.deb_sha256}"


@dataclass(frozen=True)
class Wish:
    """What the caller asks for: kind is "" (what there is, else the lock), locked, tarball or git."""

    kind: str = ""
    path: Path = Path()
    rev: str = ""


def read_lock(path: Path) -> Lock:
    """The lock file: lines `key = value`."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError as exc:
        raise Fail(f"{path.name}: not there; restore it with git checkout -- bases") from exc
    found = {}
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            key, equals, value = line.partition("=")
            if not equals:
                raise Fail(f"bases/{path.name}:{number}: not a line `key = value`")
            found[key.strip()] = value.strip()
    try:
        lock = Lock(**found)
    except TypeError as exc:
        names = ", ".join(Lock.__dataclass_fields__)
        raise Fail(f"bases/{path.name}: needs exactly these keys: {names}") from exc
    for name in ("deb_sha256", "tarball_sha256"):
        if not re.fullmatch(r"[0-9a-f]{64}", getattr(lock, name)):
            raise Fail(f"bases/{path.name}: {name} is not a SHA-256")
    return lock


def write_lock(path: Path, lock: Lock) -> None:
    """The lock file, made anew."""
    lines = [
        "# SPDX-License-Identifier: GPL-2.0-only",
        "# The base kernel the series is made for; written by `python -m lr.base relock`, checked by `make tree`.",
        *(f"{name} = {getattr(lock, name)}" for name in Lock.__dataclass_fields__),
    ]
    with whole(path) as part:
        part.write_text("\n".join(lines) + "\n")


def wish_from_environment() -> Wish:
    """BASE_TARBALL=, BASE_GIT= with REV=, BASE=locked, or none of them."""
    tarball, clone, rev, base = env("BASE_TARBALL", ""), env("BASE_GIT", ""), env("REV", ""), env("BASE", "")
    if base not in ("", "locked"):
        raise Fail(f"BASE={base}: not known; BASE=locked goes back to the base in bases/7.3.lock")
    if sum(map(bool, (tarball, clone, base))) > 1:
        raise Fail("give only one of BASE=locked, BASE_TARBALL= and BASE_GIT=")
    if clone:
        if not rev:
            raise Fail(f"BASE_GIT={clone} needs REV= too, the release to take from it, such as REV=v7.3.4")
        return Wish("git", Path(clone).expanduser().absolute(), rev)
    return Wish("tarball", Path(tarball).expanduser().absolute()) if tarball else Wish("locked" if base else "")


def sha256(path: Path) -> str:
    """A file's digest."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find(wish: Wish, lock: Lock, current: Base | None, known: list[Base]) -> Base | None:
    """The imported base that answers a wish, if there is one; a wrong wish is a Fail."""
    if wish.kind == "" and current is not None and current.kind != "debian":
        return current
    if wish.kind == "tarball":
        if not wish.path.is_file():
            raise Fail(f"BASE_TARBALL={wish.path}: no such file")
        digest = sha256(wish.path)
        return next((base for base in known if base.tarball_sha256 == digest), None)
    if wish.kind == "git":
        commit = _clone_commit(wish)
        return next((base for base in known if base.upstream_commit == commit), None)
    return next((base for base in known if base.kind == "debian" and base.wish == lock.wish), None)


def obtain(layout: Layout, wish: Wish, lock: Lock, git: Git | None) -> Base:
    """Import the base a wish asks for.

    Into the repository `git`, whose work tree stays as it is; without one, into a new repository at build/linux whose
    branch `series` and work tree are the base. What an interrupt leaves behind lies in build/*.part and is not used.
    """
    if wish.kind == "git":
        return _import_clone(layout, wish, lock, git)
    if wish.kind == "tarball":
        digest = sha256(wish.path)
        if digest != lock.tarball_sha256:
            notice(f"{wish.path.name} is not the tarball of bases/7.3.lock; the series may not apply to it")
        asked = Base("tarball", f"tarball {digest}", "", "", "", digest)
        return _import_tarball(layout, wish.path, f"BASE_TARBALL={wish.path}", asked, git)
    package, deb = fetch(layout, lock)
    digest, tarball = tarball_of(layout, deb, package)
    try:
        asked = Base("debian", lock.wish, "", "", "", digest)
        base = _import_tarball(layout, tarball, deb.name, asked, git)
    finally:
        tarball.unlink(missing_ok=True)
    if package.version == lock.version and lock.tree and base.tree != lock.tree:
        raise Fail(
            f"{deb.name} unpacked to tree {base.tree[:12]}, bases/7.3.lock says {lock.tree[:12]}; "
            "free some disk space and run `make clean tree`, or correct the lock"
        )
    return base


def fetch(layout: Layout, lock: Lock, etc: Path = apt.ETC_APT) -> tuple[apt.Package, Path]:
    """The Debian package: the locked version from the cache or any suite, else the newest there is, with a notice."""
    home = layout.build / "apt"
    archives = home / "archives"
    cached = archives / f"{lock.package}_{lock.version}_all.deb"
    if cached.is_file():
        if sha256(cached) == lock.deb_sha256:
            return apt.Package(lock.version, lock.deb_sha256, lock.suite), cached
        notice(f"{cached.name} in build/apt is not what bases/7.3.lock says (damaged?); fetching it again")
        cached.unlink()
    root = apt.AptRoot(home, apt.mirror(etc))
    root.prepare()
    seen, errors = search(root, lock.package, (lock.suite, *SUITES), lock.version)
    chosen = next((item for item in seen if item.version == lock.version), None)
    if chosen and chosen.sha256 != lock.deb_sha256:
        raise Fail(
            f"the mirror's {lock.package} {lock.version} has SHA-256 {chosen.sha256[:16]}..., bases/7.3.lock says "
            f"{lock.deb_sha256[:16]}...; one of them was altered: {WAY_OUT}"
        )
    if not chosen:
        chosen = apt.newest(seen, SERIES + ".")
        if not chosen and errors:
            raise Fail(f"the base kernel cannot be fetched ({errors[0]}); check the network, or {WAY_OUT}")
        if not chosen:
            raise Fail(f"no suite of {root.uri} has {lock.package} any more; {WAY_OUT}")
        notice(
            f"{lock.package} {lock.version} (bases/7.3.lock) is not to be had; using {chosen.version}, {chosen.suite}"
        )
    return chosen, take(root, home, lock.package, chosen)


def search(
    root: apt.AptRoot, package: str, suites: Sequence[str], wanted: str = ""
) -> tuple[list[apt.Package], list[str]]:
    """A package's versions in the suites, down to the one that has the wanted version; and what could not be read."""
    seen: list[apt.Package] = []
    errors: list[str] = []
    with Progress(f"look for {package} {wanted}".rstrip()) as shown:
        for suite in dict.fromkeys(suites):
            shown.update(note=suite)
            error = root.update(suite)
            if error:
                errors.append(f"{suite}: {error}")
                continue
            found = root.versions(suite, package)
            seen += found
            if wanted and any(item.version == wanted for item in found):
                break
    return seen, errors


def take(root: apt.AptRoot, home: Path, package: str, chosen: apt.Package, way_out: str = apt.BASE_WAY_OUT) -> Path:
    """One version's file, kept in the archives of build/apt, with the digest that the signed index says."""
    archives = home / "archives"
    archives.mkdir(exist_ok=True)
    deb = archives / f"{package}_{chosen.version}_all.deb"
    if not (deb.is_file() and sha256(deb) == chosen.sha256):
        part = home / "download.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        fresh = root.download(package, chosen, part, way_out)
        if sha256(fresh) != chosen.sha256:
            raise Fail(f"{fresh.name} was damaged on its way; run the same again")
        os.replace(fresh, deb)
        shutil.rmtree(part)
    return deb


def tarball_of(layout: Layout, deb: Path, package: apt.Package) -> tuple[str, Path]:
    """Take the kernel's tarball out of the package."""
    out = layout.build / "base-tarball.part"
    with out.open("wb") as file:
        left = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE)
        words = ["tar", "-xO", "--wildcards", "./usr/src/linux-source-*.tar.*"]
        right = subprocess.run(words, stdin=left.stdout, stdout=file, stderr=subprocess.PIPE, check=False)
        assert left.stdout is not None
        left.stdout.close()
        if left.wait() != 0 or right.returncode != 0:
            out.unlink()
            raise Fail(
                f"{deb.name} ({package.version}) holds no kernel tarball; remove build/apt and run the same again"
            )
    return sha256(out), out


def kernel_version(makefile: str) -> str | None:
    """VERSION.PATCHLEVEL.SUBLEVEL of a kernel's top Makefile."""
    found: dict[str, str] = dict(
        re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL|EXTRAVERSION)\s*=[ \t]*(\S*)", makefile, re.MULTILINE)
    )
    if not found.get("VERSION") or not found.get("PATCHLEVEL"):
        return None
    sub = found.get("SUBLEVEL", "")
    # A first release is called 7.3, not 7.3.0.
    dotted = f"{found['VERSION']}.{found['PATCHLEVEL']}" + (f".{sub}" if sub not in ("", "0") else "")
    return dotted + found.get("EXTRAVERSION", "")


def _checked_version(makefile: str, what: str, series: str = SERIES) -> str:
    version = kernel_version(makefile)
    if version is None:
        raise Fail(f"{what}: not a kernel: its top Makefile says no VERSION and PATCHLEVEL")
    if not re.match(rf"{re.escape(series)}(?![0-9])", version):
        wanted = "the series is for" if series == SERIES else "wanted was"
        raise Fail(f"{what}: is Linux {version}; {wanted} {series}")
    return version


def without_debian_ignores(content: bytes) -> bytes:
    """The top .gitignore without the lines that would hide every new file."""
    lines = content.splitlines(keepends=True)
    return b"".join(line for line in lines if line not in _DEBIAN_IGNORES)


def new_repository(part: Path, branch: str = "series") -> Git:
    """The repository that takes its place, build/linux for one, once it is complete."""
    shutil.rmtree(part, ignore_errors=True)
    git = Git.init(part, branch)
    for name, value in (
        ("gc.auto", "0"),  # a collection in the midst of a build would cost more than the disk it frees
        ("core.untrackedCache", "true"),
        ("index.version", "4"),
        ("core.compression", "1"),
        ("user.useConfigOnly", "true"),
    ):
        git.run("config", name, value)
    return git


def _root_commit(git: Git, tree: str, version: str) -> str:
    # Named by the content alone, so that the same kernel from a package and from a tarball is the same commit.
    message = f"Linux {version}\n\nThe base of the series, as imported.\n"
    return git.commit_tree(tree, [], message, Identity())


def _finish(layout: Layout, git: Git, base: Base) -> None:
    """A new repository is complete: put it in its place."""
    git.run("update-ref", "refs/heads/series", base.commit)
    git.run("update-ref", "refs/tags/base", base.commit)
    states.store(layout.build / "linux.part", State(base, [], base.commit))
    if layout.linux.exists():
        raise Fail("build/linux exists and is not ours; move it away")
    os.rename(layout.build / "linux.part", layout.linux)


def unpack(tarball: Path, folder: Path, what: str, series: str = SERIES) -> str:
    """A kernel's tarball without what hides new files, and its version; a folder that is none of that series goes."""
    with Progress("unpack the base kernel") as shown:
        words = ["tar", "-x", "-f", str(tarball), "--strip-components=1", "--no-same-owner"]
        # tar starts xz by itself; this lets it use all cores.
        error = apt.wait_for(words, folder, {"LC_ALL": "C", "XZ_DEFAULTS": "-T0"}, shown.update)
        if error:
            shutil.rmtree(folder)
            raise Fail(f"{what}: cannot be unpacked ({error.strip().splitlines()[0]}); truncated, or the disk is full?")
    makefile = folder / "Makefile"
    try:
        version = _checked_version(makefile.read_text() if makefile.is_file() else "", what, series)
    except Fail:
        shutil.rmtree(folder)
        raise
    ignore = folder / ".gitignore"
    if ignore.is_file():
        content = ignore.read_bytes()
        if (kept := without_debian_ignores(content)) != content:
            ignore.write_bytes(kept)
    return version


def add_all(git: Git, folder: Path, what: str, env: Mapping[str, str]) -> str:
    """The tree of all files in a folder, through the index that the environment names."""
    with Progress("import the base kernel into git") as shown:
        # -f: what the kernel ships, it ships, though its own .gitignore may name it.
        words = git.words([*_FAST_ADD, "add", "-A", "-f", "."])
        error = apt.wait_for(words, folder, environment(env), shown.update)
        if error:
            shutil.rmtree(folder)
            raise Fail(f"{what}: git could not import it ({error.strip().splitlines()[-1]})")
        return git.text("write-tree", env=env)


def _import_tarball(layout: Layout, tarball: Path, what: str, asked: Base, into: Git | None) -> Base:
    if into is None:
        git = new_repository(layout.build / "linux.part")
        folder = layout.build / "linux.part"
    else:
        folder = layout.build / "base.part"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        git = Git(into.directory, folder)
    version = unpack(tarball, folder, what)
    index = git.directory / "lr-import-index"
    index.unlink(missing_ok=True)
    tree = add_all(git, folder, what, {} if into is None else {"GIT_INDEX_FILE": str(index)})
    index.unlink(missing_ok=True)
    base = replace(asked, version=version, tree=tree, commit=_root_commit(git, tree, version))
    if into is None:
        _finish(layout, git, base)
    else:
        shutil.rmtree(folder)
    return base


def _clone_commit(wish: Wish) -> str:
    if not wish.path.is_dir():
        raise Fail(f"BASE_GIT={wish.path}: no such folder")
    done = theirs(wish.path, "rev-parse", "-q", "--verify", "--end-of-options", f"{wish.rev}^{{commit}}")
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        why = said[0] if said else f"it has no commit {wish.rev}; git -C {wish.path} fetch --tags may bring it"
        raise Fail(f"BASE_GIT={wish.path} REV={wish.rev}: {why}")
    return done.stdout.decode().strip()


def _import_clone(layout: Layout, wish: Wish, lock: Lock, into: Git | None) -> Base:
    commit = _clone_commit(wish)
    what = f"BASE_GIT={wish.path} REV={wish.rev}"
    makefile = theirs(wish.path, "cat-file", "blob", f"{commit}:Makefile").stdout.decode(errors="replace")
    version = _checked_version(makefile, what)
    git = into or new_repository(layout.build / "linux.part")
    with Progress("import the base kernel from the clone"):
        tree = theirs(wish.path, "rev-parse", f"{commit}^{{tree}}").stdout.strip()
        with subprocess.Popen(
            ["git", "-C", str(wish.path), "pack-objects", "--revs", "--stdout", "-q", "--window=0"],
            env=user_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as packer:
            assert packer.stdin is not None and packer.stdout is not None and packer.stderr is not None
            packer.stdin.write(tree + b"\n")
            packer.stdin.close()
            words = git.words(["index-pack", "--stdin"])
            taken = subprocess.run(words, stdin=packer.stdout, env=environment(), capture_output=True, check=False)
            packer.stdout.close()
            said = packer.stderr.read().decode(errors="replace").strip().splitlines()
        if packer.returncode != 0 or taken.returncode != 0:
            raise Fail(
                f"{what}: cannot be read ({said[0] if said else 'git pack-objects failed'}); is the clone complete?"
            )
        ours = _tree_with_ignores(git, tree.decode())
        base = Base("git", f"git {commit}", version, ours, _root_commit(git, ours, version), upstream_commit=commit)
        if into is None:
            git.run("read-tree", "-m", "-u", ours)
            _finish(layout, git, base)
    if ours != lock.tree:
        notice(f"{wish.rev} of {wish.path.name} is not the base of bases/7.3.lock; the series may apply with an offset")
    return base


def _tree_with_ignores(git: Git, tree: str) -> str:
    """The tree with a top .gitignore that hides nothing of ours."""
    try:
        content = git.blob(f"{tree}:.gitignore")
    except GitError:
        return tree
    kept = without_debian_ignores(content)
    if kept == content:
        return tree
    index = git.directory / "lr-import-index"
    private = {"GIT_INDEX_FILE": str(index)}
    try:
        git.run("read-tree", tree, env=private)
        git.run("update-index", "--cacheinfo", f"100644,{git.write_blob(kept)},.gitignore", env=private)
        return git.text("write-tree", env=private)
    finally:
        index.unlink(missing_ok=True)


def relock(layout: Layout) -> Lock:
    """Find the newest package there is, import it aside, and write the lock for it."""
    old = read_lock(layout.lock)
    root = apt.AptRoot(layout.build / "apt", apt.mirror())
    root.prepare()
    seen, _ = search(root, old.package, SUITES)
    chosen = apt.newest(seen, SERIES + ".")
    if chosen is None:
        raise Fail(f"no suite has {old.package}; bases/7.3.lock stays as it is")
    wanted = replace(old, version=chosen.version, suite=chosen.suite, deb_sha256=chosen.sha256, tree="")
    aside = Layout(layout.build / "relock")
    aside.build.mkdir(parents=True, exist_ok=True)
    try:
        _, deb = fetch(layout, wanted)
        digest, tarball = tarball_of(aside, deb, chosen)
        base = _import_tarball(aside, tarball, deb.name, Base("debian", "", "", "", "", digest), None)
    finally:
        shutil.rmtree(aside.root, ignore_errors=True)
    lock = replace(wanted, tarball_sha256=digest, tree=base.tree)
    write_lock(layout.lock, lock)
    return lock


def main(argv: list[str]) -> int:
    """`python -m lr.base relock`: make bases/7.3.lock anew from the newest package."""
    words = argparse.ArgumentParser(prog="lr.base", description=__doc__)
    words.add_argument("action", choices=["relock"])
    words.parse_args(argv)
    layout = here()
    with states.locked(layout):
        lock = relock(layout)
    say(f"bases/7.3.lock: {lock.package} {lock.version} ({lock.suite})")
    return 0


if __name__ == "__main__":
    stop.catch()
    try:
        sys.exit(main(sys.argv[1:]))
    except Fail as exc:
        print(f"error: {exc}", file=sys.stderr)
        sys.exit(1)
