# SPDX-License-Identifier: GPL-2.0-only
"""What a person sees: errors of one or two lines, notices, and progress with elapsed time and what is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType


class Fail(Exception):
    """A mistake or a missing thing, in one or two lines that say what was wrong and what to do."""


def say(text: str = "") -> None:
    """Print a line at once, also into a pipe."""
    print(text, flush=True)


def notice(text: str) -> None:
    """Something that a person should know but that stops nothing."""
    print(f"note: {text}", file=sys.stderr, flush=True)


def clock(seconds: float) -> str:
    """A duration as m:ss, from an hour on as h:mm:ss."""
    whole = int(seconds + 0.5)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def grid(rows: Sequence[Sequence[str]], left: int) -> str:
    """Cells in columns: the first ones aligned to the left, the others to the right; short rows are filled up."""
    count = max(map(len, rows))
    full = [[*row, *[""] * (count - len(row))] for row in rows]
    widths = [max(map(len, column)) for column in zip(*full, strict=True)]
    lines = []
    for row in full:
        sized = list(zip(row, widths, strict=True))
        cells = [*(f"{c:<{w}}" for c, w in sized[:left]), *(f"{c:>{w}}" for c, w in sized[left:])]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


class Progress:
    """One step of long work: a line that is rewritten on a terminal, and a line now and then in a log.

    Use as a context manager; call update() as often as you like. On leaving, one closing line is printed.
    """

    def __init__(self, what: str, total: int = 0, every: float = 20.0) -> None:
        self.what, self.total, self.every = what, total, every
        self.done, self.note = 0, ""
        self.start = time.monotonic()
        self._last = self.start
        self._tty = sys.stderr.isatty()

    def elapsed(self) -> float:
        """Seconds since the step began."""
        return time.monotonic() - self.start

    def update(self, done: int | None = None, note: str = "") -> None:
        """Tell how far the step is; prints only when due."""
        if done is not None:
            self.done = done
        self.note = note
        now = time.monotonic()
        if now - self._last < (0.2 if self._tty else self.every):
            return
        self._last = now
        line = self._line()
        if self._tty:
            print("\r\033[K" + line, end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def _line(self) -> str:
        parts = [f"{self.what}: {clock(self.elapsed())}"]
        if self.total > 0 and self.done > 0:
            share = min(self.done / self.total, 0.99)
            parts.append(f"{share * 100:.0f}%, about {clock(self.elapsed() * (1 - share) / share)} left")
        if self.note:
            parts.append(self.note)
        return ", ".join(parts)

    def __enter__(self) -> Progress:
        if not self._tty:
            print(f"{self.what} ...", file=sys.stderr, flush=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        end = "done" if kind is None else "FAILED"
        lead = "\r\033[K" if self._tty else ""
        print(f"{lead}{self.what}: {end} in {clock(self.elapsed())}", file=sys.stderr, flush=True)
