# SPDX-License-Identifier: GPL-2.0-only
"""The entry point: what a verb raises is a line."""

from __future__ import annotations

import errno
import sys
from types import ModuleType

import pytest
from lr import __main__, stop
from lr.ui import Fail


@pytest.mark.parametrize(
    ("why", "told"),
    [
        (Fail("broken; mend it"), "error: broken; mend it\n"),
        (
            PermissionError(errno.EACCES, "Permission denied", "/x/build/.linux-lock"),
            "error: /x/build/.linux-lock: Permission denied; if root made it, as by `sudo make`: "
            "sudo chown -R $USER build\n",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "error: No space left on device; make room; `make clean` empties build/\n",
        ),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "build"), "error: build: Not a directory\n"),
        (OSError("odd"), "error: odd\n"),
    ],
)
def test_what_a_verb_raises_is_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], why: Exception, told: str
) -> None:
    def main(_: list[str]) -> int:
        raise why

    toy = ModuleType("toy")
    monkeypatch.setattr(toy, "main", main, raising=False)
    monkeypatch.setitem(sys.modules, "toy", toy)
    monkeypatch.setitem(__main__.VERBS, "tree", "toy")
    monkeypatch.setattr(stop, "catch", lambda: None)
    assert __main__.main(["tree"]) == 1 and capsys.readouterr().err == told
