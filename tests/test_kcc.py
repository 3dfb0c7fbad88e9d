# SPDX-License-Identifier: GPL-2.0-only
"""scripts/kcc: what takes in another file's bytes must not come out of ccache."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

KCC = Path(__file__).resolve().parents[1] / "scripts" / "kcc"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("arch/x86/boot/compressed/piggy.S", "gcc -c"),
        ("../linux/kernel/configs.c", "gcc -c"),
        ("../linux/mm/vmscan.c", "ccache gcc -c"),
    ],
)
def test_incbin_bypasses_ccache(tmp_path: Path, source: str, said: str) -> None:
    for name in ("gcc", "ccache"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run([KCC, "-c", source], env={"PATH": path}, capture_output=True, text=True, check=True)
    assert done.stdout == f"{said} {source}\n"
