# SPDX-License-Identifier: GPL-2.0-only
"""An apt root of our own: fetches one Debian package, signature checked, without touching the system's sources."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lr import proc
from lr.ui import Fail, Progress

ETC_APT = Path("/etc/apt")
# What else one can do where the base kernel cannot be fetched.
BASE_WAY_OUT = "give it: make tree BASE_TARBALL=linux-7.3.4.tar.xz, or BASE_GIT=path/to/linux REV=v7.3.4"
_KEYRINGS = tuple(Path("/usr/share/keyrings") / f"debian-archive-keyring.{end}" for end in ("gpg", "pgp"))
# Suites of Debian's own archive; anything else in the machine's sources is somebody else's.
_SUITE = re.compile(
    r"^(?:(?:old)*stable|testing|unstable|sid|experimental|buster|bullseye|bookworm|trixie|forky|duke)"
    r"(?:-updates|-backports|-proposed-updates|/updates)?/?$"
)


@dataclass(frozen=True)
class Package:
    """One version of a package as a suite's signed index describes it."""

    version: str
    sha256: str
    suite: str


def _one_line_entries(text: str) -> list[tuple[str, list[str]]]:
    found = []
    for line in text.splitlines():
        match = re.match(r"^\s*deb\s+(?:\[[^]]*\]\s*)?(\S+)\s+(\S+)\s+\S", line)
        if match:
            found.append((match[1], [match[2]]))
    return found


def _deb822_entries(text: str) -> list[tuple[str, list[str]]]:
    found = []
    for stanza in re.split(r"\n\s*\n", "\n".join(line for line in text.splitlines() if not line.startswith("#"))):
        fields: dict[str, str] = {}
        name = ""
        for line in stanza.splitlines():
            if line[:1] in (" ", "\t"):
                fields[name] = fields.get(name, "") + " " + line.strip()
            elif ":" in line:
                name, _, value = line.partition(":")
                name = name.strip().lower()
                fields[name] = value.strip()
        if "deb" in fields.get("types", "").split() and fields.get("enabled", "yes").lower() not in ("no", "false"):
            found += [(uri, fields.get("suites", "").split()) for uri in fields.get("uris", "").split()]
    return found


def mirror(etc: Path = ETC_APT, way_out: str = BASE_WAY_OUT) -> str:
    """The Debian mirror that this machine is configured for."""
    entries: list[tuple[str, list[str]]] = []
    parts = etc / "sources.list.d"
    for path in [etc / "sources.list", *(sorted(parts.iterdir()) if parts.is_dir() else [])]:
        if path.is_file() and path.suffix in (".list", ".sources"):
            text = path.read_text(errors="replace")
            entries += _deb822_entries(text) if path.suffix == ".sources" else _one_line_entries(text)
    for uri, suites in entries:
        if not uri.startswith("cdrom:") and "security" not in uri and any(_SUITE.match(suite) for suite in suites):
            return uri
    raise Fail(f"{etc} names no Debian mirror to fetch from; {way_out}")


class AptRoot:
    """Sources, lists and cache under one folder."""

    def __init__(self, home: Path, uri: str) -> None:
        self.home, self.uri = home, uri
        self.config = home / "apt.conf"

    def prepare(self) -> None:
        """Make the folders and the configuration, anew each time: the machine's may have changed."""
        keyring = next((path for path in _KEYRINGS if path.exists()), None)
        if keyring is None:
            raise Fail("Debian's archive keyring is missing; run `make setup`, or install debian-archive-keyring")
        for name in ("lists/partial", "cache/archives/partial", "none", "suites"):
            (self.home / name).mkdir(parents=True, exist_ok=True)
        status = self.home / "status"
        status.write_text("")
        # The system's way to the network (proxies, certificates), but not its hooks, which clean the system's cache.
        ours = [
            line
            for line in proc.text(["apt-config", "dump", "--no-empty"]).splitlines()
            if line.startswith("Acquire::") and not line.startswith(("Acquire::IndexTargets", "Acquire::Languages"))
        ]
        ours += [
            f'Dir::State "{self.home}";',
            f'Dir::State::lists "{self.home}/lists";',
            f'Dir::State::status "{status}";',
            f'Dir::Cache "{self.home}/cache";',
            'Dir::Cache::pkgcache "";',
            'Dir::Cache::srcpkgcache "";',
            'Dir::Etc::main "/dev/null";',
            f'Dir::Etc::parts "{self.home}/none";',
            'Dir::Etc::preferences "/dev/null";',
            f'Dir::Etc::preferencesparts "{self.home}/none";',
            'Dir::Etc::sourcelist "/dev/null";',
            # Else each suite's update would remove the lists of the one before.
            'APT::Get::List-Cleanup "false";',
            'APT::Update::Error-Mode "any";',
            'Acquire::Languages "none";',
            'Acquire::Retries "1";',
            # The user _apt may be unable to enter our folder; apt would warn on each download.
            'APT::Sandbox::User "root";',
        ]
        self.config.touch(mode=0o600)
        self.config.write_text("\n".join(ours) + "\n")
        self._keyring = keyring

    def _words(self, tool: str, suite: str, *args: str) -> list[str]:
        folder = self.home / "suites" / suite
        folder.mkdir(exist_ok=True)
        (folder / "debian.sources").write_text(
            f"Types: deb\nURIs: {self.uri}\nSuites: {suite}\nComponents: main\nSigned-By: {self._keyring}\n"
        )
        return [tool, "-o", f"Dir::Etc::sourceparts={folder}", *args]

    def _env(self) -> dict[str, str]:
        return {"APT_CONFIG": str(self.config), "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}

    def update(self, suite: str) -> str | None:
        """Fetch a suite's signed index; None, or why that failed."""
        done = proc.run(self._words("apt-get", suite, "-q", "update"), env=self._env(), check=False)
        if done.returncode == 0:
            return None
        lines = (done.stderr + b"\n" + done.stdout).decode(errors="replace").splitlines()
        said = [line for line in lines if line.startswith(("E:", "Err:", "W:"))]
        return re.sub(r"^(?:E|W): ", "", said[0]) if said else f"apt-get update failed (exit {done.returncode})"

    def versions(self, suite: str, package: str) -> list[Package]:
        """The versions of a package in a suite that update() fetched."""
        done = proc.run(self._words("apt-cache", suite, "show", package), env=self._env(), check=False)
        found = []
        for stanza in done.stdout.decode(errors="replace").split("\n\n"):
            fields = dict(line.split(": ", 1) for line in stanza.splitlines() if re.match(r"^[A-Za-z0-9-]+: ", line))
            if fields.get("Package") == package and "SHA256" in fields:
                found.append(Package(fields["Version"], fields["SHA256"], suite))
        return found

    def names(self, suite: str, prefix: str) -> list[str]:
        """The packages in a suite that update() fetched whose names start so."""
        done = proc.run(self._words("apt-cache", suite, "pkgnames", prefix), env=self._env(), check=False)
        return done.stdout.decode(errors="replace").split()

    def download(self, package: str, chosen: Package, into: Path, way_out: str = BASE_WAY_OUT) -> Path:
        """Fetch one version into an empty folder; apt checks it against the signed index."""
        words = self._words("apt-get", chosen.suite, "-q", "download", f"{package}={chosen.version}")
        with Progress(f"download {package} {chosen.version}") as shown:
            error = wait_for(words, into, self._env(), lambda: shown.update(note=f"{_mib(into)} MiB"))
        files = sorted(into.glob(f"{package}_*.deb"))
        if error or len(files) != 1:
            said = [line for line in error.splitlines() if line.startswith("E:")]
            raise Fail(
                f"download of {package} {chosen.version} failed: {said[0][3:] if said else error.strip()[-200:]}; "
                f"try again, or {way_out}"
            )
        return files[0]


def wait_for(words: list[str], cwd: Path, env: dict[str, str], tick: Callable[[], None]) -> str:
    """Run a long command, calling tick() twice a second; "" when it succeeded, else what it printed to stderr."""
    try:
        child = subprocess.Popen(
            words,
            cwd=cwd,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
    except FileNotFoundError as exc:
        raise Fail(f"{words[0]}: not found; run `make setup`") from exc
    try:
        while True:
            try:
                _, err = child.communicate(timeout=0.5)
                break
            except subprocess.TimeoutExpired:
                tick()
    except BaseException:
        child.terminate()
        child.wait()
        raise
    return "" if child.returncode == 0 else err.decode(errors="replace") or f"exit {child.returncode}"


def _mib(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) >> 20


def newest(found: list[Package], prefix: str) -> Package | None:
    """The highest version that starts with a prefix, by dpkg's order."""
    best: Package | None = None
    for item in found:
        if not item.version.startswith(prefix):
            continue
        if best is None or _newer(item.version, best.version):
            best = item
    return best


def _newer(one: str, other: str) -> bool:
    return proc.run(["dpkg", "--compare-versions", one, "gt", other], check=False).returncode == 0
