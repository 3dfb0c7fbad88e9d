# SPDX-License-Identifier: GPL-2.0-only
"""The kernels of a comparison: stock, series or ablated:NAME, each with settings, built and their images kept."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lr import ablate, build, compose, proc, state
from lr.files import whole
from lr.layout import Layout
from lr.ui import Fail

_WORD = re.compile(r"(stock|series|ablated:[a-z0-9-]+)(?::([a-z0-9_]+=[0-9]+(?:,[a-z0-9_]+=[0-9]+)*))?$")

# How workloads' programs are compiled.
COMPILE = ("gcc", "-O2", "-Wall", "-Wextra", "-static", "-D_GNU_SOURCE")


@dataclass(frozen=True)
class Kernel:
    """One column of a comparison: its label, what to build, and the sysctls of vm it is measured with."""

    label: str
    what: str
    settings: tuple[str, ...] = ()


def parse(text: str) -> tuple[Kernel, ...]:
    """KERNELS="stock series:kswapd_threads=4"; a kernel named twice becomes a second column, for the null test."""
    found: list[Kernel] = []
    seen: dict[str, int] = {}
    for word in text.split():
        match = _WORD.match(word)
        if match is None:
            raise Fail(
                f"KERNELS: {word}: write stock, series or ablated:NAME, with settings as in series:kswapd_threads=4"
            )
        seen[word] = seen.get(word, 0) + 1
        label = word if seen[word] == 1 else f"{word}~{seen[word]}"
        found.append(Kernel(label, match[1], tuple((match[2] or "").split(",")) if match[2] else ()))
    if not found:
        raise Fail("KERNELS is empty: name kernels, as in KERNELS='stock series'")
    return tuple(found)


def images(layout: Layout, kernels: Sequence[Kernel]) -> dict[str, Path]:
    """Build what is named and keep a copy of each image."""
    known = {f"ablated:{path.stem}": path for path in layout.ablations}
    wanted = list(dict.fromkeys(kernel.what for kernel in kernels))
    ablated = [what for what in wanted if what.startswith("ablated:")]
    for what in ablated:
        if what not in known:
            raise Fail(f"KERNELS: {what}: no such ablation; there are {', '.join(known)}")
    # All of them from the same tree.
    compose.ensure_tree(layout)
    folder = layout.build / "bench-kernels"
    found: dict[str, Path] = {}
    for what in wanted:
        if what in ablated:
            with state.locked(layout, "ablate"):
                image = ablate.image(layout, ablate.parse(known[what], known[what].read_text()))
                found[what] = build.keep(image, folder, what.replace(":", "-"))
        else:
            found[what] = build.keep(build.ensure(layout, what).image, folder, what)
    return found


def system_map(image: Path) -> Path:
    """Where a kept image's functions and their addresses are."""
    return image.with_name(f"{image.name}.map")


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def programs(layout: Layout, names: Sequence[str]) -> None:
    """Compile the workloads' C programs, static, into build/bench/bin."""
    folder = layout.build / "bench" / "bin"
    for name in names:
        source = layout.root / "bench" / "workloads" / f"{name}.c"
        if not source.exists():
            raise Fail(f"bench/workloads/{name}.c: a scenario names this program, and it is not there")
        # A guest may be running the old one.
        with whole(folder / name) as part:
            where = [f"-I{layout.root / 'bench' / 'lockstep'}", "-o", str(part), str(source)]
            proc.run([*COMPILE, *where, "-lpthread"])
