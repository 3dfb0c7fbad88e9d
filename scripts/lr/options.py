# SPDX-License-Identifier: GPL-2.0-only
"""Options of the verbs: their defaults come from the environment (make exports its variables), checked in one place."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from lr.ui import Fail

KERNELS = ("series", "stock")
_UNITS = {"": 1, "M": 1, "G": 1024}


def env(name: str, default: str) -> str:
    """The make variable of that name; one that is set but empty counts as unset."""
    return os.environ.get(name) or default


def choice(name: str, value: str, allowed: Sequence[str]) -> str:
    """One of a few words."""
    if value not in allowed:
        raise Fail(f"{name}={value}: not known; use one of {', '.join(allowed)}")
    return value


def number(name: str, value: str, low: int, high: int) -> int:
    """A whole number in a range."""
    if not re.fullmatch(r"[0-9]{1,9}", value) or not low <= int(value) <= high:
        raise Fail(f"{name}={value}: give a whole number from {low} to {high}")
    return int(value)


def flag(name: str, value: str) -> bool:
    """A switch: 1 or 0."""
    return choice(name, value, ("0", "1")) == "1"


def checks(value: str) -> str:
    """DEBUG as the name of a fragment reclaim-NAME.config; empty: the plain build."""
    return {"0": "", "1": "debug"}.get(choice("DEBUG", value, ("0", "1", "races")), value)


def size_mib(name: str, value: str, low: int, high: int = 1 << 20) -> int:
    """A size such as 512M or 2G, in MiB; a bare number means MiB."""
    match = re.fullmatch(r"([0-9]{1,9})([MG]?)", value.upper())
    mib = int(match[1]) * _UNITS[match[2]] if match else -1
    if not low <= mib <= high:
        raise Fail(f"{name}={value}: give a size from {low}M to {high >> 10}G, such as 512M or 2G")
    return mib
