# SPDX-License-Identifier: GPL-2.0-only
"""Being told to stop: SIGTERM and SIGHUP unwind as Ctrl-C does, so that guests and cgroups are gone when we are."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A signal told us to stop; no Exception, so that nobody takes it for a failure and goes on."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


_told = 0
_held = False


def _raise() -> None:
    if _told == signal.SIGINT:
        raise KeyboardInterrupt
    raise Stopped(_told)


def _on_signal(number: int, _: FrameType | None) -> None:
    """The first signal unwinds; later ones must not stop the cleaning up that it began."""
    global _told
    if _told:
        return
    _told = number
    if not _held:
        _raise()


def catch() -> None:
    """From now on these signals raise in the main thread; one that is ignored already (nohup) stays so."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in _SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _on_signal)


@contextmanager
def held() -> Iterator[None]:
    """A signal that comes inside raises at the end: what is begun here can be put under a `finally` before that.

    Write `with held(): child = start()` as the first line of the try that ends the child.
    """
    global _held
    told = _told
    _held = True
    try:
        yield
    finally:
        _held = False
    if _told and not told:
        _raise()
