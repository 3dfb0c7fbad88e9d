# SPDX-License-Identifier: GPL-2.0-only
"""Running other programs: captured text, and a failure that names the command and shows its last lines."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from lr.ui import Fail


def run(
    cmd: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    check: bool = True,
) -> subprocess.CompletedProcess[bytes]:
    """Run a command and capture what it prints; env is added to ours. Raises Fail when check is set and it fails."""
    words = [str(word) for word in cmd]
    try:
        done = subprocess.run(
            words,
            env={**os.environ, **(env or {})},
            input=b"",
            capture_output=True,
            check=False,
        )
    except FileNotFoundError as exc:
        raise Fail(f"{words[0]}: not found; run `make setup`") from exc
    if check and done.returncode != 0:
        tail = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()[-3:]
        raise Fail(f"{' '.join(words[:4])} failed (exit {done.returncode}): " + " | ".join(tail))
    return done


def setup(root: Path, *packages: str) -> None:
    """Have scripts/setup install what is missing, and these packages."""
    done = run([root / "scripts" / "setup", "-q", *packages], check=False)
    if done.returncode != 0:
        raise Fail((done.stderr + done.stdout).decode(errors="replace").strip().removeprefix("error: "))


def text(cmd: Sequence[str | Path]) -> str:
    """What a command that must succeed prints, without the last newline."""
    return run(cmd).stdout.decode(errors="surrogateescape").rstrip("\n")
