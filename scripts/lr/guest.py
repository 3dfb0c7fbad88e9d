# SPDX-License-Identifier: GPL-2.0-only
"""One guest: a kernel image under virtme-ng with CPUs, memory, NUMA nodes and scratch disks, one command, its outcome.

The guest sees the host's files read-only, the checkout at GUEST_ROOT wherever it lies on the host (the guest has a
/tmp and /run of its own), and each scratch disk by its name (see scripts/guest/lib.sh).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from lr import proc, stop
from lr import state as states
from lr.layout import Layout
from lr.options import size_mib
from lr.ui import Fail, notice

GUEST_ROOT = "/run/reclaim"

# The smallest disk each filesystem's mkfs accepts, in MiB, and how it is called; "blank" leaves the disk unformatted.
FILESYSTEMS: dict[str, tuple[int, tuple[str, ...]]] = {
    "ext4": (8, ("mkfs.ext4", "-q", "-F")),
    "xfs": (300, ("mkfs.xfs", "-q", "-f")),
    "btrfs": (128, ("mkfs.btrfs", "-q", "-f")),
    "f2fs": (64, ("mkfs.f2fs", "-q", "-f")),
    "blank": (1, ()),
}
_PANIC = re.compile(r"Kernel panic - not syncing")
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[()][A-Z0-9]|c)")
# Said before the command. Its own last word: virtme-run's status cannot tell a command that exits with 255 from a guest
# that died.
_BEGUN = "@reclaim-begun"
_MARK = "@reclaim-exit:"
_MARKED = re.compile(_MARK + r"([0-9]+)\s*$")
# Two cores run two guests: one alone leaves a core idle most of the time, as it boots on one CPU.
AT_ONCE = 2
# The guests that run; and whether they are being ended, so that none is booted once more.
_running: set[subprocess.Popen[bytes]] = set()
_ending = threading.Event()
# Seconds of silence after which a guest that boots has stopped for ever, as emulated CPUs sometimes, but rarely, do.
_SILENT = 480


@dataclass(frozen=True)
class Disk:
    """A scratch disk: its name in the guest (at most 20 letters), filesystem, size, and bytes a second (0: any)."""

    name: str
    fs: str
    mib: int
    bps: int = 0


@dataclass(frozen=True)
class Spec:
    """What to boot."""

    kernel: Path
    cpus: int = 4
    mib: int = 2048
    nodes: int = 2
    disks: tuple[Disk, ...] = ()
    append: tuple[str, ...] = ()
    timeout: int = 600
    # What the console says when tests begin that run at boot, before the command.
    begins: str = ""
    # More for QEMU.
    qemu: tuple[str, ...] = ()
    # Another QEMU than the system's, and what its environment has beside ours.
    emulator: Path | None = None
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a command in a guest ended: exited (with a status), panic, timeout, died (it went away), or unbooted."""

    ended: str
    status: int
    output: str
    console: str
    seconds: float

    @property
    def ok(self) -> bool:
        """The command ran to its end with status 0."""
        return self.ended == "exited" and self.status == 0

    def story(self, lines: int = 20) -> str:
        """Why it is not a plain exit, with the console's last lines."""
        head = {
            "panic": "the kernel panicked",
            "timeout": f"no end after {self.seconds:.0f} s (TIMEOUT)",
            "died": "the guest ended before the command did",
            "unbooted": f"the guest said nothing for {_SILENT} s before its command began, twice",
            "exited": f"the command ended with status {self.status}",
        }[self.ended]
        return "\n".join([f"{head}; the console's last lines:", *self.console.strip().splitlines()[-lines:]])


def parse_disk(text: str) -> Disk:
    """A DISK=fs:size option."""
    fs, colon, size = text.partition(":")
    if fs not in FILESYSTEMS or not colon:
        raise Fail(f"DISK={text}: write fs:size, such as xfs:1G; fs is one of {', '.join(FILESYSTEMS)}")
    return Disk(fs, fs, size_mib(f"DISK={fs}, size", size, FILESYSTEMS[fs][0]))


def node_arguments(mib: int, cpus: int, nodes: int) -> list[str]:
    """virtme-ng's --numa options that split memory and CPUs evenly; the first nodes get what is over."""
    if nodes < 2:
        return []
    words: list[str] = []
    first = 0
    for node in range(nodes):
        memory = mib // nodes + (mib % nodes if node == 0 else 0)
        count = cpus // nodes + (1 if node < cpus % nodes else 0)
        span = f",cpus={first}-{first + count - 1}" if count > 1 else f",cpus={first}" if count else ""
        words += ["--numa", f"{memory}M{span}"]
        first += count
    return words


def smp_argument(cpus: int, nodes: int) -> str:
    """QEMU's CPU topology: CPUs of different nodes must not share a socket, or the kernel warns at boot."""
    sockets = nodes if cpus % nodes == 0 else cpus
    return f"{cpus},sockets={sockets},cores={cpus // sockets},threads=1"


def kvm_usable(cpuinfo: str, device: Path = Path("/dev/kvm")) -> bool:
    """KVM works only where the CPU has it; the device alone may be there and hang (a nested hypervisor)."""
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    if flags is None or not {"vmx", "svm"} & set(flags[1].split()):
        return False
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True


_told = False


def _use_kvm() -> bool:
    """Whether to use KVM; says once why not."""
    global _told
    usable = kvm_usable(Path("/proc/cpuinfo").read_text())
    if not usable and not _told:
        notice("no usable KVM (no vmx or svm, or /dev/kvm does not open): guests run in QEMU's TCG, much slower")
        _told = True
    return usable


def clean(text: str) -> str:
    """Serial output as plain lines: no carriage returns, no terminal escapes."""
    return _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def make_disk(disk: Disk, path: Path) -> None:
    """A sparse raw image, formatted unless blank."""
    with path.open("wb") as image:
        image.truncate(disk.mib << 20)
    command = FILESYSTEMS[disk.fs][1]
    if command:
        # Debian keeps mkfs out of an ordinary user's PATH.
        proc.run([*command, path], env={"PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"})


@contextmanager
def folder_of(layout: Layout) -> Iterator[Path]:
    """A place for what guests need while they run: one guest, or all of a verb."""
    with states.guests(layout):
        parent = layout.build / "tmp"
        parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="guest-", dir=parent))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _disks(folder: Path, disks: tuple[Disk, ...]) -> list[str]:
    """Make the disks' images; returns QEMU's arguments for them."""
    words: list[str] = []
    for index, disk in enumerate(disks):
        image = folder / f"{disk.name}.img"
        make_disk(disk, image)
        quoted = str(image).replace(",", ",,")
        # What is on a scratch disk need not survive the host: no flushes there.
        limit = f",throttling.bps-total={disk.bps}" if disk.bps else ""
        words += ["-drive", f"if=none,id=scratch{index},file={quoted},format=raw,cache=unsafe,discard=unmap{limit}"]
        words += ["-device", f"virtio-blk-pci,drive=scratch{index},serial={disk.name}"]
    return words


def _arguments(layout: Layout, spec: Spec, qemu: list[str], command: str | None) -> list[str]:
    """The whole command line. virtme-run is the part of virtme-ng that starts a guest; unlike vng it needs no shell."""
    if not spec.kernel.exists():
        raise Fail(f"{spec.kernel}: no such kernel; run `make build` first")
    starter = layout.build / "venv" / "bin" / "virtme-run"
    words = [str(starter), "--kimg", str(spec.kernel.resolve()), "--mods", "none", "--force-9p"]
    words += ["--cpus", smp_argument(spec.cpus, spec.nodes), "--memory", f"{spec.mib}M"]
    words += node_arguments(spec.mib, spec.cpus, spec.nodes)
    words += ["--qemu-bin", str(spec.emulator)] if spec.emulator else []
    # Another QEMU is wanted for what its translator can do.
    words += [] if spec.emulator is None and _use_kvm() else ["--disable-kvm"]
    for folder in ("/etc", "/lib", "/home", "/opt", "/srv", "/usr", "/var", "/tmp"):
        words += ["--overlay-rwdir", folder]
    words += ["--rodir", f"{GUEST_ROOT.lstrip('/')}={layout.root}", "--cwd", GUEST_ROOT]
    # With several nodes the kernel does not trust an emulated TSC. It would read the HPET, one CPU at a time.
    for extra in ("printk.time=1", "tsc=reliable", *spec.append):
        words += ["--kopt", extra]
    if command is None:
        # Its own shell, which mounts the scratch disks and says where they are.
        words += ["--kopt", "panic=-1", "--shell", f"{GUEST_ROOT}/scripts/guest/shell"]
        qemu = [*qemu, "-no-reboot"]
    else:
        words += ["--show-boot-console", "--verbose", "--script-sh", command]
    return [*words, *(["--qemu-opts", *qemu] if qemu else [])]


def interact(layout: Layout, spec: Spec) -> Outcome:
    """A shell in the guest, on this terminal, until the guest is switched off; the console is what it told.

    The status is not the shell's, but virtme-run's: whether the guest could be started.
    """
    start = time.monotonic()
    with folder_of(layout) as folder:
        words = _arguments(layout, spec, _disks(folder, spec.disks), None)
        # The kernel's messages come on virtme-run's stderr: shown, and kept to tell a panic from a plain end.
        with _start(words, spec.environment, terminal=True) as child:
            assert child.stderr is not None
            console: list[str] = []
            try:
                for raw in iter(child.stderr.readline, b""):
                    console.append(raw.decode(errors="replace"))
                    sys.stderr.write(console[-1])
            except BaseException:
                # virtme-run would leave QEMU, its child, behind.
                for pid in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split():
                    os.kill(int(pid), signal.SIGTERM)
                raise
    text = clean("".join(console))
    ended = "panic" if _PANIC.search(text) else "exited"
    return Outcome(ended, child.returncode, "", text, time.monotonic() - start)


@contextmanager
def several(at_once: int = AT_ONCE) -> Iterator[ThreadPoolExecutor]:
    """Threads that run guests. Leaving by an exception, as when we are told to stop, ends the guests first."""
    with ThreadPoolExecutor(at_once) as pool:
        try:
            yield pool
        except BaseException:
            _ending.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for child in list(_running):
                end(child)
            pool.shutdown()
            _ending.clear()
            raise


def run(
    layout: Layout,
    spec: Spec,
    command: str,
    on_output: Callable[[str], None] | None = None,
) -> Outcome:
    """Boot, run one bash command with its stderr in its stdout, switch off. Each line goes to on_output at once."""
    with folder_of(layout) as folder:
        # A file, because the kernel's command line holds 2047 characters only.
        script = folder / "command"
        script.write_text(f"echo {_BEGUN}\n({command}\n) 2>&1\necho {_MARK}$?\n")
        inside = Path(GUEST_ROOT) / script.relative_to(layout.root)
        qemu = [*_disks(folder, spec.disks), *spec.qemu]
        words = _arguments(layout, spec, qemu, f"bash {inside}")
        outcome = _watch(words, spec, on_output)
        if _ending.is_set() or (spec.begins and spec.begins in outcome.console):
            return outcome
        if outcome.ended == "unbooted" or (outcome.ended == "died" and not outcome.output):
            # Nothing has been tested: rarely QEMU hangs or goes away in the middle of booting. A kernel that can not
            # boot does not the second time, either.
            last = " / ".join(outcome.console.strip().splitlines()[-2:])
            how = f"said nothing for {_SILENT} s at boot" if outcome.ended == "unbooted" else "went away at boot"
            notice(f"a guest {how}, the console ended with: {last}; once more")
            outcome = _watch(words, spec, on_output)
        return outcome


def _watch(
    words: list[str],
    spec: Spec,
    on_output: Callable[[str], None] | None,
) -> Outcome:
    start, timeout = time.monotonic(), spec.timeout
    child: subprocess.Popen[bytes] | None = None
    readers: list[threading.Thread] = []
    output: list[str] = []
    console: list[str] = []
    late = unbooted = False
    begun = threading.Event()
    try:
        # Nobody else knows of the child and its readers: no signal may come before `finally` can end them.
        with stop.held():
            child = _start(words, spec.environment)
            _running.add(child)
            assert child.stdout is not None and child.stderr is not None
            for stream, into, on_line in ((child.stdout, output, on_output), (child.stderr, console, None)):
                readers.append(
                    threading.Thread(target=_read, args=(stream, into, on_line, begun, spec.begins), daemon=True)
                )
                readers[-1].start()
        if _ending.is_set():
            raise Fail("a guest that had just begun was ended: we were told to stop")
        _wait(child, timeout, console, begun)
    except subprocess.TimeoutExpired:
        late = True
        unbooted = time.monotonic() - start < timeout and not begun.is_set()
    finally:
        if child is not None:
            end(child)
            _running.discard(child)
        # Also when we are being stopped: what a reader does with a line must be over when we go on.
        for reader in readers:
            reader.join(10)
    text, said = clean("".join(console)), clean("".join(output))
    mark = _MARKED.search(said)
    ended, status = "exited", 0
    if _PANIC.search(text):
        ended, status = "panic", 1
    elif mark:
        status = int(mark[1])
    else:
        ended, status = "unbooted" if unbooted else "timeout" if late else "died", 1
    return Outcome(ended, status, _MARKED.sub("", said), text, time.monotonic() - start)


def _wait(child: subprocess.Popen[bytes], timeout: int, console: list[str], begun: threading.Event) -> None:
    """Until it ends; TimeoutExpired after the timeout, or if it stays silent while it boots.

    Not after a time: with KASAN, on a busy host, a guest may take five minutes.
    """
    since = time.monotonic()
    until, said = since + timeout, 0
    while True:
        try:
            child.wait(max(min(_SILENT / 48, until - time.monotonic()), 0))
            return
        except subprocess.TimeoutExpired:
            now = time.monotonic()
            if len(console) != said:
                since, said = now, len(console)
            if now >= until or (now - since >= _SILENT and not begun.is_set()):
                raise


def _start(
    words: list[str], environment: tuple[tuple[str, str], ...], terminal: bool = False
) -> subprocess.Popen[bytes]:
    try:
        # Pipes, not files: QEMU opens /proc/self/fd/1 several times, which would overwrite a file. A session of its
        # own, so that what we end is exactly what we started; but a session is what a terminal belongs to.
        return subprocess.Popen(
            words,
            stdin=None if terminal else subprocess.DEVNULL,
            stdout=None if terminal else subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=not terminal,
            env={**os.environ, **dict(environment)},
        )
    except FileNotFoundError as exc:
        raise Fail(f"{words[0]}: not found; run `make setup`") from exc


def _read(
    stream: IO[bytes], into: list[str], on_line: Callable[[str], None] | None, begun: threading.Event, begins: str
) -> None:
    for raw in iter(stream.readline, b""):
        line = raw.decode(errors="replace")
        if clean(line).strip() == _BEGUN:
            begun.set()
            continue
        if begins and begins in line:
            begun.set()
        into.append(line)
        shown = _MARKED.sub("", clean(line))
        if on_line is not None and (shown or _MARK not in line):
            on_line(shown.rstrip("\n"))


def end(child: subprocess.Popen[Any], politely: signal.Signals = signal.SIGTERM) -> None:
    """End what we started in a session of its own, if it is still there: first politely, so that it removes its files.

    That is a guest: virtme-run and its QEMU.
    """
    for number in (politely, signal.SIGKILL):
        if child.poll() is not None and number == politely:
            return
        try:
            os.killpg(child.pid, number)
            child.wait(5)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
