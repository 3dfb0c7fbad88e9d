# SPDX-License-Identifier: GPL-2.0-only
"""Fixtures that the tests of the series tools share."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from toy import Toy, with_series


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options of a make that runs the tests are no options of the code under test."""
    for name in re.findall(r"\b([A-Z_]+)=", (Path(__file__).parents[1] / "Makefile").read_text()):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    """A checkout with an empty series, not composed yet."""
    return Toy(tmp_path)


@pytest.fixture(scope="session")
def _made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Composing takes a second: done once, copied for each test."""
    home = tmp_path_factory.mktemp("made")
    with_series(Toy(home))
    return home


@pytest.fixture
def made(_made_once: Path, tmp_path: Path) -> Toy:
    """A checkout with three commits, composed."""
    shutil.copytree(_made_once, tmp_path, symlinks=True, dirs_exist_ok=True)
    return Toy(tmp_path)
