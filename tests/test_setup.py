# SPDX-License-Identifier: GPL-2.0-only
"""scripts/setup on machines that lack something: stand-ins for dpkg, apt, id and sudo, and a PATH with nothing else."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("bash", "dirname", "sed", "grep", "mkdir", "cmp", "cat", "rm", "cp", "tail", "env", "mapfile")


class Machine:
    """A checkout with an environment that is up to date, on a machine whose programs we decide."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        (self.root / "scripts").mkdir(parents=True)
        for name in ("setup", "requirements.txt"):
            shutil.copy(ROOT / "scripts" / name, self.root / "scripts" / name)
        python = self.root / "build" / "venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        shutil.copy(ROOT / "scripts" / "requirements.txt", self.root / "build" / "venv" / ".installed-pins")
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name in TOOLS:
            if found := shutil.which(name):
                (self.bin / name).symlink_to(found)
        self.log = folder / "log"
        self.program("python", "exit 0", python)
        self.program("id", "echo 1000")
        self.program("dpkg-query", "exit 1")
        # Setup keeps services from starting by a file in /usr/sbin, which is not ours to write here.
        self.program("tee", "cat >/dev/null")
        self.program("chmod", "exit 0")

    def program(self, name: str, body: str, path: Path | None = None) -> None:
        """A program that does just this."""
        path = path or self.bin / name
        path.write_text(f'#!{shutil.which("bash")}\necho "{name} $*" >>"{self.log}"\n{body}\n')
        path.chmod(0o755)

    def setup(self, *packages: str) -> subprocess.CompletedProcess[str]:
        """Run it without a terminal."""
        return subprocess.run(
            [str(self.root / "scripts" / "setup"), *packages],
            env={"PATH": str(self.bin)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def called(self) -> str:
        """What was called, a line each."""
        return self.log.read_text() if self.log.exists() else ""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_neither_root_nor_sudo(machine: Machine) -> None:
    done = machine.setup()
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "neither root nor sudo" in done.stderr and "qemu-system-x86" in done.stderr
    assert "apt-get" not in machine.called()


def test_sudo_that_would_ask(machine: Machine) -> None:
    machine.program("sudo", "exit 1")
    machine.program("apt-get", "exit 0")
    done = machine.setup()
    assert done.returncode == 1 and "sudo asks for a password" in done.stderr
    assert "apt-get" not in machine.called()


def test_root_installs_only_what_is_missing(machine: Machine) -> None:
    machine.program("id", "echo 0")
    machine.program("apt-get", "exit 0")
    # Everything is there but ccache.
    held = 'for word in "${@:4}"; do [ "$word" = ccache ] || echo "$word installed"; done; exit 1'
    machine.program("dpkg-query", held)
    done = machine.setup()
    assert done.returncode == 0, done.stderr
    installs = [line for line in machine.called().splitlines() if " install " in line]
    assert len(installs) == 1 and installs[0].endswith(" install ccache")


def test_a_service_that_came_with_what_a_verb_needs_is_not_enabled(machine: Machine) -> None:
    machine.program("id", "echo 0")
    machine.program("apt-get", "exit 0")
    machine.program("systemctl", "exit 1")
    # ccache is one of our own, and nginx was there before.
    held = 'for word in "${@:4}"; do case $word in ccache|memcached) ;; *) echo "$word installed" ;; esac; done; exit 1'
    machine.program("dpkg-query", held)
    done = machine.setup("memcached", "nginx")
    assert done.returncode == 0, done.stderr
    calls = machine.called().splitlines()
    assert [line for line in calls if line.startswith("systemctl")] == ["systemctl disable memcached"]
    assert " install ccache memcached" in calls[calls.index("systemctl disable memcached") - 1]


def test_no_network(machine: Machine) -> None:
    machine.program("id", "echo 0")
    machine.program("apt-get", "exit 100")
    done = machine.setup()
    assert done.returncode == 1
    assert "apt-get update failed; is the network up" in done.stderr


def test_other_pins_leave_an_environment_that_works_in_its_place(machine: Machine) -> None:
    machine.program("dpkg-query", 'for word in "${@:4}"; do echo "$word installed"; done')
    venv = machine.root / "build" / "venv"
    (venv / ".installed-pins").write_text("others\n")
    (venv / "loaded-later.py").write_text("")
    done = machine.setup()
    assert done.returncode == 0, done.stderr
    assert " install --no-deps -r " in machine.called() and (venv / "loaded-later.py").exists()


def test_an_environment_of_an_older_python_is_not_complete(machine: Machine) -> None:
    machine.program("dpkg-query", 'for word in "${@:4}"; do echo "$word installed"; done')
    # It has no module at first; once asked again it has: to make a real one takes seconds and the network.
    told = machine.root / "build" / "told"
    machine.program(
        "python", f'[ -e "{told}" ] || {{ echo >"{told}"; exit 1; }}', machine.root / "build/venv/bin/python"
    )
    done = machine.setup()
    assert done.returncode == 0 and "Python environment ready" in done.stdout, done.stderr
    assert " install --no-deps -r " in machine.called()


def test_nothing_is_missing(machine: Machine) -> None:
    machine.program("dpkg-query", 'for word in "${@:4}"; do echo "$word installed"; done')
    done = machine.setup()
    assert (done.returncode, done.stdout) == (0, "setup: nothing is missing\n"), done.stderr
    assert "apt-get" not in machine.called()
