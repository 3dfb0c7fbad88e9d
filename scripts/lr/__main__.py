# SPDX-License-Identifier: GPL-2.0-only
"""The entry point: `python -m lr VERB [options]` runs the module of that verb and turns an error into a clear line."""

from __future__ import annotations

import errno
import importlib
import sys

from lr import stop
from lr.ui import Fail

# verb: the module that carries it out; each has main(argv) -> exit status
VERBS = {
    "tree": "lr.compose",
    "save": "lr.save",
    "mbox": "lr.mbox",
    "check": "lr.check",
    "clean": "lr.clean",
    "build": "lr.build",
    "boot": "lr.boot",
    "demo": "lr.demo",
    "kunit": "lr.kunit",
    "selftest": "lr.selftest",
    "bisect": "lr.bisect",
    "ablate": "lr.ablate",
    "stable": "lr.stable",
    "deb": "lr.deb",
    "soak": "lr.soak",
    "test": "lr.alltests",
    "bench": "lr.bench",
    "profile": "lr.lab.profile",
    "report": "lr.lab.report",
}

# What the system refuses, and what to do.
_ADVICE = {
    errno.EACCES: "if root made it, as by `sudo make`: sudo chown -R $USER build",
    errno.ENOSPC: "make room; `make clean` empties build/",
}


def main(argv: list[str]) -> int:
    """Run one verb; 0 is success, 1 a failure, 2 a wrong call, 128 and a signal's number if one stopped us."""
    if not argv or argv[0] not in VERBS:
        print(f"usage: python -m lr VERB; the verbs are {', '.join(VERBS)}", file=sys.stderr)
        return 2
    stop.catch()
    try:
        status: int = importlib.import_module(VERBS[argv[0]]).main(argv[1:])
        return status
    except Fail as exc:
        print(f"error: {exc}", file=sys.stderr, flush=True)
        return 1
    except OSError as exc:
        told = [str(exc.filename)] if exc.filename is not None else []
        told.append(exc.strerror or str(exc))
        advice = _ADVICE.get(exc.errno or 0)
        print(f"error: {': '.join(told)}{f'; {advice}' if advice else ''}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except stop.Stopped as exc:
        print(f"stopped by {exc}", file=sys.stderr)
        return 128 + exc.number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
