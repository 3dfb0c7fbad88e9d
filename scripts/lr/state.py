# SPDX-License-Identifier: GPL-2.0-only
"""What the tools remember of build/linux between runs, in its .git: its base, what was composed from which files."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lr.files import whole
from lr.layout import Layout
from lr.ui import Fail, notice


@dataclass(frozen=True)
class Base:
    """One imported base. `wish` says what was asked for, so that the same question finds the same answer again."""

    kind: str
    wish: str
    version: str
    tree: str
    commit: str
    tarball_sha256: str = ""
    upstream_commit: str = ""


@dataclass
class State:
    """All of it. `inputs` maps each file of the series to its digest when it was last composed or saved."""

    base: Base
    bases: list[Base] = field(default_factory=list)
    composed: str = ""
    inputs: dict[str, str] = field(default_factory=dict)
    moving: str = ""


def _path(linux: Path) -> Path:
    return linux / ".git" / "lr" / "state.json"


def load(linux: Path) -> State | None:
    """The state of a composed tree, or None where there is none that could be trusted."""
    try:
        raw = json.loads(_path(linux).read_text())
        return State(
            Base(**raw["base"]), [Base(**item) for item in raw["bases"]], raw["composed"], raw["inputs"], raw["moving"]
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as exc:
        raise Fail(
            f"{_path(linux)} is damaged; move {linux} away (it may hold work that is not saved) and run `make tree`"
        ) from exc


def store(linux: Path, state: State) -> None:
    """Write the state, all of it or nothing."""
    path = _path(linux)
    with whole(path) as part:
        part.write_text(json.dumps(asdict(state), indent=1, sort_keys=True))


@contextmanager
def locked(layout: Layout, what: str = "linux") -> Iterator[None]:
    """Only one of our verbs at a time may change a folder of build/: linux (and the series' files), a kernel's objects.

    Who holds one may only ask for another that lies below it (stable/6.12/obj), or two verbs would wait for each other.
    """
    layout.build.mkdir(parents=True, exist_ok=True)
    with (layout.build / f".{what.replace('/', '-')}-lock").open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            notice(f"another verb is at work on build/{what}; waiting for it")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


# Held shared by who runs guests: those read build/ as it is, without any other lock.
GUESTS = "guests"


@contextmanager
def guests(layout: Layout, none: bool = False) -> Iterator[None]:
    """While a guest runs; or none: while none runs and none is begun, a Fail if there is one.

    Who asks for none has all other locks already, so that nobody who waits to begin a guest holds one that it needs.
    """
    layout.build.mkdir(parents=True, exist_ok=True)
    with (layout.build / f".{GUESTS}-lock").open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB if none else fcntl.LOCK_SH)
        except BlockingIOError:
            raise Fail("guests are running on what lies in build/; wait for them or end them, then try again") from None
        yield
