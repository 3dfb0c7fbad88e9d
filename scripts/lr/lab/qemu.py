# SPDX-License-Identifier: GPL-2.0-only
"""The lab's QEMU: the system's where it fits the plugin, else Debian's backport, unpacked under build/."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

from lr import apt, proc
from lr.layout import Layout
from lr.ui import Fail, Progress, notice

# The plugin interface of bench/lockstep/qemu-api.h is that of QEMU 10.
_NEEDED = "10"
_PROGRAM = "qemu-system-x86_64"
_VERSION = re.compile(r"version (\d+)\.")
_WAY_OUT = "install QEMU 10, or run without lockstep: LOCKSTEP=0"


@dataclass(frozen=True)
class Emulator:
    """A QEMU: its program, folders of its data beside the system's, and what it says of its version."""

    program: Path
    data: tuple[Path, ...]
    version: str

    @property
    def environment(self) -> tuple[tuple[str, str], ...]:
        """What QEMU needs in its environment: the system's modules are made for the system's QEMU."""
        return (("QEMU_MODULE_DIR", str(self.data[0])),) if self.data else ()

    @property
    def options(self) -> tuple[str, ...]:
        """What QEMU has to be told to find its data, and to have nothing that it was not told of.

        By itself QEMU 10 adds an empty CD drive, and Debian 12's SeaBIOS waits 32 seconds for a medium in it.
        """
        return (*(word for folder in self.data for word in ("-L", str(folder))), "-nodefaults")


@dataclass(frozen=True)
class Lock:
    """bases/qemu.toml: the packages to take where the system's QEMU does not fit, with their checksums."""

    suite: str
    version: str
    packages: dict[str, str]


def read_lock(path: Path) -> Lock:
    """The file with the pinned packages."""
    try:
        table = tomllib.loads(path.read_text())
        return Lock(str(table["suite"]), str(table["version"]), {str(k): str(v) for k, v in table["packages"].items()})
    except (OSError, tomllib.TOMLDecodeError, KeyError, AttributeError) as exc:
        raise Fail(f"{path.name}: {exc}; restore it with git checkout -- bases") from exc


def fits(said: str) -> bool:
    """Whether `qemu-system-x86_64 --version` names one that has the plugin interface."""
    found = _VERSION.search(said)
    return found is not None and found[1] == _NEEDED


def _asked(program: Path) -> str:
    done = proc.run([program, "--version"], check=False)
    lines = done.stdout.decode(errors="replace").splitlines()
    return lines[0] if done.returncode == 0 and lines else ""


def system() -> Emulator | None:
    """The system's, whatever its version."""
    found = shutil.which(_PROGRAM)
    return Emulator(Path(found), (), _asked(Path(found))) if found else None


def obtain(layout: Layout) -> Emulator:
    """The system's, or the pinned one, fetched and unpacked when it is first needed."""
    ours = system()
    if ours and fits(ours.version):
        return ours
    lock = read_lock(layout.root / "bases" / "qemu.toml")
    home = layout.build / "qemu"
    # Another version than the one pinned is unpacked beside it.
    place = home / hashlib.sha256(repr(lock).encode()).hexdigest()[:12]
    if not place.is_dir():
        _unpack(layout, lock, place)
    program = place / "usr" / "bin" / _PROGRAM
    _install_libraries(layout, place)
    said = _asked(program)
    if not fits(said):
        raise Fail(f"{program} does not run ({said or 'no version'}): {_missing(program)}; {_WAY_OUT}")
    return Emulator(program, (place / "usr" / "share" / "qemu",), said)


def _unpack(layout: Layout, lock: Lock, place: Path) -> None:
    root = apt.AptRoot(layout.build / "apt", apt.mirror(way_out=_WAY_OUT))
    root.prepare()
    if error := root.update(lock.suite):
        raise Fail(f"the lab's QEMU cannot be fetched ({error}); check the network, or {_WAY_OUT}")
    part = place.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    needs: list[str] = []
    for name, digest in lock.packages.items():
        offered = root.versions(lock.suite, name)
        chosen = next((one for one in offered if one.version == lock.version), None)
        if chosen is None:
            chosen = apt.newest(offered, "")
            if chosen is None:
                raise Fail(f"{lock.suite} has no {name} any more; {_WAY_OUT}")
            notice(f"{name} {lock.version} (bases/qemu.toml) is not to be had; using {chosen.version}")
        elif chosen.sha256 != digest:
            raise Fail(f"the mirror's {name} {chosen.version} is not what bases/qemu.toml says; one was altered")
        into = part / "packages" / name
        into.mkdir(parents=True)
        deb = root.download(name, chosen, into, _WAY_OUT)
        proc.run(["dpkg-deb", "-x", str(deb), str(part)])
        needs += libraries(proc.text(["dpkg-deb", "-f", str(deb), "Depends"]))
    shutil.rmtree(part / "packages")
    (part / "needs").write_text("\n".join(sorted(set(needs))) + "\n")
    os.replace(part, place)


def libraries(depends: str) -> list[str]:
    """The packages of a Depends field that are not QEMU's own or its firmware: the system's QEMU brings those."""
    names = (re.split(r"[ (|:]", word.strip(), maxsplit=1)[0] for word in depends.split(","))
    return [name for name in names if name and not name.startswith(("qemu", "seabios", "ipxe"))]


def _missing(program: Path) -> str:
    done = proc.run(["ldd", program], check=False)
    gone = [line.split()[0] for line in done.stdout.decode(errors="replace").splitlines() if "not found" in line]
    return f"it lacks {', '.join(gone)}" if gone else "it may be damaged; remove build/qemu"


def _install_libraries(layout: Layout, place: Path) -> None:
    """QEMU's libraries come from the system's packages; they are not the ones that an older QEMU needs."""
    if "not found" not in proc.run(["ldd", place / "usr" / "bin" / _PROGRAM], check=False).stdout.decode():
        return
    with Progress("libraries of the lab's QEMU"):
        proc.setup(layout.root, *(place / "needs").read_text().split())
