# SPDX-License-Identifier: GPL-2.0-only
"""In a guest: a task that keeps files of known contents, and what compares every byte of them afterwards.

A file's bytes follow from the seed, its filesystem, its number and how often it was written, so only these are kept.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

from machine import FULL

# Per filesystem; rewritten, removed, renamed and read in no order.
FILES = 4000
_LARGEST = 40 << 10

# A file's number: how often it has been written, and its size; size -1: it must not be there.
Ledger = dict[int, tuple[int, int]]


def contents(seed: int, fs: str, number: int, version: int, size: int) -> bytes:
    """What that file must hold."""
    return random.Random(f"{seed}/{fs}/{number}/{version}").randbytes(size)


def path_of(folder: Path, number: int) -> Path:
    """Where the file of that number is: a hundred in a directory."""
    return folder / f"d{number // 100:02d}" / f"f{number:04d}"


def differs(folder: Path, seed: int, fs: str, number: int, kept: tuple[int, int]) -> str:
    """Empty when the file is as it was written; otherwise how it differs."""
    version, size = kept
    path = path_of(folder, number)
    if size < 0:
        return f"{path}: removed, and there again" if path.exists() else ""
    try:
        found = path.read_bytes()
    except OSError as exc:
        return f"{path}: {exc.strerror}, {size} bytes written"
    wanted = contents(seed, fs, number, version, size)
    if found == wanted:
        return ""
    if len(found) != size:
        return f"{path}: {len(found)} bytes of {size}"
    first = next(at for at in range(size) if found[at] != wanted[at])
    return f"{path}: version {version}, {size} bytes, the first wrong one at {first}"


def keep(folder: Path, seed: int, fs: str, into: Path) -> None:
    """Write, remove and compare until SIGTERM; then leave the ledger in a file."""
    ending = False

    def end(_number: int, _frame: object) -> None:
        nonlocal ending
        ending = True

    signal.signal(signal.SIGTERM, end)
    ledger: Ledger = {}
    compared, wrong = 0, []
    rng = random.Random(f"{seed}/{fs}")
    while not ending:
        number = rng.randrange(FILES)
        version, size = ledger.get(number, (0, -1))
        what = rng.random()
        if what < 0.5:
            ledger[number] = _write(folder, seed, fs, number, version + 1, rng)
        elif what < 0.6:
            path_of(folder, number).unlink(missing_ok=True)
            ledger[number] = (version, -1)
        elif number in ledger:
            problem = differs(folder, seed, fs, number, (version, size))
            compared += 1
            if problem:
                wrong.append(problem)
    into.write_text(json.dumps({"compared": compared, "wrong": wrong[:20], "ledger": list(ledger.items())}))


def _write(folder: Path, seed: int, fs: str, number: int, version: int, rng: random.Random) -> tuple[int, int]:
    path = path_of(folder, number)
    size = rng.randrange(_LARGEST)
    data = contents(seed, fs, number, version, size)
    try:
        path.parent.mkdir(exist_ok=True)
        with path.open("wb", buffering=0) as file:
            written = 0
            while written < size:
                written += file.write(data[written:])
            if rng.random() < 0.02:
                os.fsync(file.fileno())
    except OSError as exc:
        if exc.errno not in FULL:
            raise
        path.unlink(missing_ok=True)
        return version, -1
    return version, size


def compare(folder: Path, seed: int, fs: str, ledger: Ledger) -> tuple[int, list[str]]:
    """How many files were compared, and which are not as they were written."""
    problems = [differs(folder, seed, fs, number, kept) for number, kept in sorted(ledger.items())]
    return len(problems), [problem for problem in problems if problem]


def stream(path: Path, mib: int) -> None:
    """Write a file once, then read it from end to end until killed: page cache that is used once."""
    block = random.Random(str(path)).randbytes(1 << 20)
    with path.open("wb") as file:
        for _ in range(mib):
            file.write(block)
    while True:
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 20):
                pass
        time.sleep(0.01)
