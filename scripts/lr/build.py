# SPDX-License-Identifier: GPL-2.0-only
"""The verb `build`: configure and compile a kernel (series, stock, ablate; DEBUG=) and our selftests' programs.

Source and objects lie side by side (X/linux, X/obj) and ccache rewrites paths below build/ to relative ones, so that
an object compiled for one kernel is a hit for every other one whose source is the same.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from lr import compose, proc
from lr import state as states
from lr.files import whole
from lr.git import NEUTRAL_EMAIL, Git
from lr.layout import OVERLAY_DIRS, Layout, here
from lr.options import KERNELS, checks, choice, env
from lr.ui import Fail, Progress, clock, notice, say

# Lines that make prints for a whole build of our configuration; only for the first build's estimate.
_LINES_AT_FIRST = 2650
_STEP = re.compile(r"^  [A-Z0-9]+ +\S")
_WARNING = re.compile(r"\bwarning: ")
_ERROR = re.compile(r"(?:\berror: |\*\*\* |undefined reference|fatal error:|No rule to make target|^FAILED|^ld: )")
# All that a kernel's make gets: an option of ours, such as KERNEL or V, would mean something else there.
_FOR_KERNEL = ("PATH", "HOME", "TMPDIR")
# Why not plain `ccache gcc` is said there.
COMPILER = Path(__file__).resolve().parents[1] / "kcc"
# Fixed, so that the same source gives the same kernel, and nothing is linked again for a new date.
_BANNER = {
    "KBUILD_BUILD_TIMESTAMP": "Thu Jan  1 00:00:00 UTC 2026",
    "KBUILD_BUILD_USER": "reclaim",
    "KBUILD_BUILD_HOST": "build",
    "KBUILD_BUILD_VERSION": "1",
}


@dataclass(frozen=True)
class Target:
    """One kernel: where its source, objects and image are, and its name in `uname -r`."""

    name: str
    source: Path
    objects: Path
    image: Path
    # Which slow checks it is built with: debug, races; empty: none.
    debug: str = ""
    # An older kernel than our fragments are for: those of their symbols that it must have all the same.
    needs: tuple[str, ...] = ()

    @property
    def ours(self) -> bool:
        """It holds the series, hence our KUnit suites."""
        return self.name != "stock" and not self.needs


def target(layout: Layout, kernel: str, debug: str = "") -> Target:
    """The kernel of that name."""
    home = layout.build if kernel == "series" else layout.build / kernel
    if debug:
        return Target(f"{kernel}-{debug}", home / "linux", home / debug / "obj", home / debug / "bzImage", debug)
    return Target(kernel, home / "linux", home / "obj", home / "bzImage")


def make_env(layout: Layout) -> dict[str, str]:
    """The environment of every kernel make: ccache set up, our own make's variables left out."""
    return {
        **{name: os.environ[name] for name in _FOR_KERNEL if name in os.environ},
        **_BANNER,
        "LC_ALL": "C",
        "CCACHE_DIR": str(layout.build / "ccache"),
        "CCACHE_BASEDIR": str(layout.build),
        "CCACHE_MAXSIZE": "3G",
        # Holds the source's absolute path, which differs between kernels while what it makes of __FILE__ does not.
        "CCACHE_IGNOREOPTIONS": "-fmacro-prefix-map=*",
        "CCACHE_SLOPPINESS": "time_macros",
        # The kernel's own -MMD tells the headers, so a miss is preprocessed once and not twice: a first build is what
        # newcomers and CI wait for. The price: a changed configuration compiles everything again.
        "CCACHE_DEPEND": "1",
    }


def jobs() -> int:
    """All cores this process may use."""
    return len(os.sched_getaffinity(0))


def make_words(spec: Target, *goals: str) -> list[str]:
    """A make call in a kernel's source for its objects."""
    words = ["make", "-C", str(spec.source), f"O={spec.objects}", f"-j{jobs()}", f"LOCALVERSION=-{spec.name}"]
    return [*words, f"CC={COMPILER}", "HOSTCC=ccache gcc", *goals]


def worktree(layout: Layout, path: Path, commit: str) -> None:
    """A work tree of build/linux at a commit; one that is there is moved, so that only files that differ change."""
    if foreign(layout, path):
        told = layout.told(path)
        raise Fail(
            f"{told} is a work tree of another repository than build/linux is now; "
            f"copy away what is yours in it, then `rm -r {told}`"
        )
    if _is_worktree(path):
        refuse_changes(layout, path, changes(path))
        git = Git.of(path)
        git.run("reset", "-q", "--hard")
        git.run("checkout", "-q", "--detach", commit)
    else:
        shutil.rmtree(path, ignore_errors=True)
        git = Git.of(layout.linux)
        git.run("worktree", "prune")
        with Progress(f"unpack a copy of the kernel into {layout.told(path)}"):
            git.run("worktree", "add", "--force", "--detach", str(path), commit)
    # It was in build/linux: once it is amended there, this is no reason to take it for work that is only here.
    Git.of(path).run("update-ref", f"refs/lr/at/{path.parent.name}", "HEAD")


def foreign(layout: Layout, path: Path) -> bool:
    """Whether a repository is there of which build/linux knows nothing: git would work on another one, or on none.

    Each names the other's absolute path. Where a checkout was moved or copied with both, the paths are set right: git
    in a copy would move HEAD and index of the original.
    """
    link = path / ".git"
    if not link.is_file():
        return link.exists()
    entry = layout.linux / ".git" / "worktrees" / Path(link.read_text().strip()).name
    back = entry / "gitdir"
    if not back.is_file() or not back.read_text().strip().endswith(f"/{link.relative_to(layout.build)}"):
        return True
    if link.read_text() != f"gitdir: {entry}\n":
        back.write_text(f"{link}\n")
        link.write_text(f"gitdir: {entry}\n")
    return False


def _is_worktree(path: Path) -> bool:
    return (path / ".git").exists() and Git.of(path).resolve("HEAD") is not None


def changes(source: Path, where: str = "HEAD", known: Sequence[str] = ("--branches", "--glob=refs/lr/*")) -> list[str]:
    """What a work tree holds that is nowhere else: changed and new files, commits that are not known nor made by us.

    Nothing where there is no work tree, or one that was never completed.
    """
    if not _is_worktree(source):
        return []
    git = Git.of(source)
    if not Path(git.text("rev-parse", "--path-format=absolute", "--git-path", "index")).exists():
        return []
    commits = git.text("log", "--format=%ce commit %h", where, "--not", *known).splitlines()
    theirs = [line.partition(" ")[2] for line in commits if not line.startswith(f"{NEUTRAL_EMAIL} ")]
    return [entry[3:] for entry in git.status()] + theirs


def refuse_changes(layout: Layout, path: Path, found: Sequence[str]) -> None:
    """Fail where a work tree of ours that is to be moved or removed holds changes."""
    if found:
        raise Fail(
            f"{layout.told(path)} has changes, which would be lost: {', '.join(found[:3])}; "
            f"keep them elsewhere, then `rm -r {layout.told(path)}`"
        )


def fragments(layout: Layout, spec: Target) -> list[Path]:
    """The configuration fragments of a kernel, in order."""
    files = [layout.configs / "reclaim.config"]
    if spec.debug:
        files.append(layout.configs / f"reclaim-{spec.debug}.config")
    for file in files:
        if not file.exists():
            raise Fail(f"{file}: the configuration fragment is missing; is the checkout complete?")
    return files


def kunit_symbols(layout: Layout, source: Path) -> list[str]:
    """What our .kunitconfig files switch on, suites and what these test, as far as this source has it.

    A commit of the series may have a mechanism whose suite comes later; it is to be compiled all the same.
    """
    kconfigs = [source / folder / "Kconfig" for folder in ("fs", "mm")]
    defined = "\n".join(path.read_text() for path in kconfigs if path.exists())
    found: list[str] = []
    for path in kunit_configs(layout):
        there = (source / path.relative_to(layout.root)).exists()
        for line in (text.strip() for text in path.read_text().splitlines()):
            match = re.fullmatch(r"CONFIG_([A-Z0-9_]+)=y", line)
            if match and (there or re.search(rf"^config {match[1]}$", defined, re.MULTILINE)) and line not in found:
                found.append(line)
    return found


def kunit_configs(layout: Layout) -> list[Path]:
    """Every .kunitconfig of the overlay."""
    return sorted(path for folder in OVERLAY_DIRS for path in (layout.root / folder).rglob("*.kunitconfig"))


def lost_symbols(report: str, wanted: str) -> list[str]:
    """The symbols of our fragments that merge_config.sh says did not make it; it also names those of allnoconfig."""
    ours = set(re.findall(r"\bCONFIG_[A-Z0-9_]+", wanted))
    lost = re.findall(r"^WARNING: Value requested for (\S+) not in final \.config", report, re.MULTILINE)
    return [symbol for symbol in lost if symbol in ours]


def wanted_config(layout: Layout, spec: Target) -> str:
    """All fragments in one: without our KUnit suites for a kernel that does not have them, else with all of them."""
    text = "\n".join(file.read_text() for file in fragments(layout, spec)) + "\n"
    if not spec.ours:
        return re.sub(r"^CONFIG_\w+_KUNIT_TEST=.*\n", "", text, flags=re.MULTILINE)
    return text + "".join(f"{line}\n" for line in kunit_symbols(layout, spec.source) if line not in text)


def quiet_make(layout: Layout, source: Path, words: list[str]) -> str:
    """A short configuration step; what it prints."""
    done = subprocess.run(
        words, cwd=source, env=make_env(layout), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    report = (done.stdout + done.stderr).decode(errors="replace")
    if done.returncode != 0:
        raise Fail(f"{Path(words[0]).name} failed: {' | '.join(report.strip().splitlines()[-3:])}")
    return report


def configure(layout: Layout, spec: Target) -> None:
    """Write the objects' .config; it is left alone when it would be the same, so that nothing is compiled again."""
    spec.objects.mkdir(parents=True, exist_ok=True)
    text = wanted_config(layout, spec)
    wanted = hashlib.sha256(text.encode()).hexdigest()
    stamp = spec.objects / ".fragments"
    if stamp.exists() and stamp.read_text() == wanted and (spec.objects / ".config").exists():
        return
    trial = spec.objects / "merge"
    shutil.rmtree(trial, ignore_errors=True)
    trial.mkdir()
    script = spec.source / "scripts" / "kconfig" / "merge_config.sh"
    # Everything off, then the fragments over it: a symbol that they make visible takes its own default.
    quiet_make(layout, spec.source, ["make", f"O={trial}", "allnoconfig"])
    base, ours = trial / ".config", trial / "ours.config"
    ours.write_text(text)
    report = quiet_make(layout, spec.source, [str(script), "-Q", "-O", str(trial), str(base), str(ours)])
    lost = lost_symbols(report, text)
    if lost and spec.needs:
        say(f"{spec.name}: symbols of our configuration that are not to be had there: {len(lost)}")
        lost = [symbol for symbol in lost if symbol in spec.needs]
    if lost:
        names = " and ".join(file.name for file in fragments(layout, spec))
        raise Fail(f"the configuration lost {', '.join(lost)}; correct {names}")
    merged, config = trial / ".config", spec.objects / ".config"
    if not config.exists() or config.read_bytes() != merged.read_bytes():
        merged.replace(config)
    shutil.rmtree(trial, ignore_errors=True)
    stamp.write_text(wanted)


def _state(layout: Layout, spec: Target) -> str | None:
    """What the image depends on, as one word; None when the source has been edited."""
    git = Git.of(spec.source)
    if git.status():
        return None
    parts = [git.tree_of("HEAD").encode(), proc.run(["gcc", "--version"]).stdout]
    parts.append(wanted_config(layout, spec).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def errors_of(lines: list[str], limit: int = 15) -> list[str]:
    """The lines of a failed make that say why."""
    told = [line for line in lines if _ERROR.search(line)]
    # The first error is the cause; make's own closing lines only repeat the way up.
    return (told or lines[-limit:])[:limit]


def make(layout: Layout, words: list[str], what: str, log: Path, total: int) -> list[str]:
    """Run a make with progress, its output into a log; returns its lines, or fails with the compiler's errors."""
    lines: list[str] = []
    log.parent.mkdir(parents=True, exist_ok=True)
    with Progress(what, total) as progress, log.open("w") as kept:
        child = subprocess.Popen(
            words, env=make_env(layout), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace",
        )  # fmt: skip
        assert child.stdout is not None
        steps = 0
        try:
            for line in child.stdout:
                kept.write(line)
                lines.append(line.rstrip("\n"))
                if _STEP.match(line):
                    steps += 1
                    progress.update(steps, line.split()[-1])
            child.wait()
        finally:
            if child.poll() is None:
                child.terminate()
                child.wait()
        if child.returncode != 0:
            shown = "\n  ".join(errors_of(lines))
            raise Fail(f"{what}: make failed; all of its output is in {log.relative_to(layout.root)}\n  {shown}")
    return lines


def locked(layout: Layout, spec: Target) -> AbstractContextManager[None]:
    """While a kernel is built no other make may run in its objects."""
    return states.locked(layout, str(spec.objects.relative_to(layout.build)))


def compile_kernel(layout: Layout, spec: Target) -> Path:
    """Configure and build one kernel whose source is in place; returns the image. Nothing changed: under 3 seconds."""
    with locked(layout, spec):
        return _compile(layout, spec)


def _compile(layout: Layout, spec: Target) -> Path:
    state = _state(layout, spec)
    stamp = spec.objects / ".built"
    if state is not None and stamp.exists() and stamp.read_text() == state and spec.image.exists():
        return spec.image
    configure(layout, spec)
    stamp.unlink(missing_ok=True)
    log = layout.build / "logs" / f"build-{spec.name}.log"
    # How much an incremental build has to do is not known before it is done: no share then.
    total = 0 if (spec.objects / "vmlinux").exists() else _LINES_AT_FIRST
    lines = make(layout, make_words(spec, "bzImage"), f"build the {spec.name} kernel", log, total)
    warnings = [line for line in lines if _WARNING.search(line)]
    for line in warnings[:10]:
        notice(line)
    spec.image.parent.mkdir(parents=True, exist_ok=True)
    spec.image.unlink(missing_ok=True)
    spec.image.symlink_to(os.path.relpath(spec.objects / "arch" / "x86" / "boot" / "bzImage", spec.image.parent))
    _finish(layout, spec, stamp, state)
    return spec.image


def _finish(layout: Layout, spec: Target, stamp: Path, state: str | None) -> None:
    if state is None:
        return
    if _state(layout, spec) != state:
        raise Fail(
            f"{layout.told(spec.source)} changed while it was compiled, so half of that may be in it; run it again"
        )
    stamp.write_text(state)


def keep(image: Path, folder: Path, name: str) -> Path:
    """A copy of an image, named by its digest, so that a later build does not change a run under way.

    Its System.map lies beside it, as NAME.map.
    """
    image = image.resolve()
    content, system_map = image.read_bytes(), (image.parents[3] / "System.map").read_bytes()
    kept = folder / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}"
    for copy, found in ((Path(f"{kept}.map"), system_map), (kept, content)):
        if not copy.exists():
            with whole(copy) as part:
                part.write_bytes(found)
    return kept


def ensure(layout: Layout, kernel: str, debug: str = "") -> Target:
    """The kernel of that name, up to date with the checkout."""
    compose.ensure_tree(layout)
    spec = target(layout, kernel, debug)
    if kernel == "stock":
        with locked(layout, spec):
            worktree(layout, spec.source, "base")
    compile_kernel(layout, spec)
    return spec


def selftests(layout: Layout, copy: Path | None = None) -> Path:
    """Compile our selftests into build/selftests, with the series' own headers, and copy the scripts beside them.

    Only ours: the kernel's makefile for tools/testing/selftests/mm would compile some sixty others.
    copy: where all of it lies besides, so that a later build does not change a run under way.
    """
    spec = target(layout, "series")
    with locked(layout, spec):
        folder = _selftests(layout, spec, layout.build / "selftests")
        return shutil.copytree(folder, copy) if copy else folder


def _selftests(layout: Layout, spec: Target, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    # One program each.
    sources = sorted((layout.linux / "tools/testing/selftests/mm").glob("reclaim_*.c"))
    state = _state(layout, spec)
    stamp = folder / ".built"
    if state is not None and stamp.exists() and stamp.read_text() == state:
        return folder
    stamp.unlink(missing_ok=True)
    log = layout.build / "logs" / "headers.log"
    make(layout, make_words(spec, "headers"), "export the kernel's headers for the selftests", log, 0)
    tree = spec.source / "tools/testing/selftests"
    flags = "-O2 -g -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -static -D_GNU_SOURCE=".split()
    flags += [f"-isystem{spec.objects / 'usr/include'}", f"-I{tree}", f"-I{tree / 'mm'}"]
    for source in sources:
        # A guest may be running the old one.
        with whole(folder / source.stem) as part:
            words = ["ccache", "gcc", *flags, "-o", str(part), str(source), "-lpthread"]
            done = subprocess.run(
                words, env=make_env(layout), stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
            told = done.stderr.decode(errors="replace")
            if done.returncode != 0:
                raise Fail(f"{source.name} does not compile:\n  " + "\n  ".join(errors_of(told.splitlines())))
        if told.strip():
            notice(told.strip())
    for name in {"run_vmtests.sh", *(path.name for path in (layout.root / "tools/testing/selftests/mm").glob("*.sh"))}:
        with whole(folder / name) as part:
            shutil.copy2(tree / "mm" / name, part)
    _finish(layout, spec, stamp, state)
    return folder


def main(argv: list[str]) -> int:
    """Build one kernel."""
    words = argparse.ArgumentParser(prog="build", description="Build a kernel and the programs of our selftests.")
    words.add_argument("--kernel", default=env("KERNEL", "series"), help="series (ours) or stock; default series")
    words.add_argument(
        "--debug", default=env("DEBUG", "0"), help="1: lockdep, KASAN and the like; races: KCSAN; each in its folder"
    )
    options = words.parse_args(argv)
    layout = here()
    kernel = choice("KERNEL", options.kernel, KERNELS)
    debug = checks(options.debug)
    with_clock = Progress("build")
    spec = ensure(layout, kernel, debug)
    if kernel == "series" and not debug:
        selftests(layout)
    say(f"{spec.image.relative_to(layout.root)} is ready ({clock(with_clock.elapsed())})")
    return 0
