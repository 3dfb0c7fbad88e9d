# SPDX-License-Identifier: GPL-2.0-only
"""Where everything lies: the paths of the repository and of build/, from one root."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# The folders that lie at their kernel path; everything under them is an overlay file of the series.
OVERLAY_DIRS = ("Documentation", "fs", "include", "kernel", "lib", "mm", "tools", "block")


@dataclass(frozen=True)
class Layout:
    """The paths of one checkout; tests make one over a toy repository."""

    root: Path

    @property
    def build(self) -> Path:
        """Everything generated."""
        return self.root / "build"

    @property
    def linux(self) -> Path:
        """The composed kernel: a git tree, base plus one commit a patch."""
        return self.build / "linux"

    @property
    def series(self) -> Path:
        """A folder for each section: its cover letter, its patches, its ablations, its backports."""
        return self.root / "series"

    @property
    def index(self) -> Path:
        """The commits in order."""
        return self.series / "index"

    @property
    def ablations(self) -> list[Path]:
        """The patches that each undo one mechanism, of all sections, by name."""
        return sorted(self.series.glob("*/ablations/*.patch"), key=lambda path: path.name)

    @property
    def bugs(self) -> list[Path]:
        """The patches that each put a bug into the series, which soak must find, by name."""
        return sorted((self.root / "soak" / "bugs").glob("*.patch"))

    def told(self, path: Path) -> str:
        """A path of the checkout as messages name it."""
        return str(path.relative_to(self.root))

    @property
    def lock(self) -> Path:
        """The base kernel the series is made for."""
        return self.root / "bases" / "7.3.lock"

    @property
    def configs(self) -> Path:
        """Our configuration fragments."""
        return self.root / "kernel" / "configs"


def here() -> Layout:
    """The checkout that this file is part of."""
    return Layout(Path(__file__).resolve().parents[2])
