# SPDX-License-Identifier: GPL-2.0-only
"""The verb `deb`: Debian packages of the series kernel, from a machine's own configuration, to install there.

The kernel's own bindeb-pkg makes them, in build/deb/. Nothing is installed by us but what the build needs.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import time
from pathlib import Path

from lr import apt, base, build, compose, proc
from lr.layout import Layout, here
from lr.options import env
from lr.ui import Fail, Progress, clock, say

# What bindeb-pkg asks for beside what every build needs.
PACKAGES = ("cpio", "debhelper", "dpkg-dev", "libdw-dev", "libssl-dev", "rsync")
CONFIG_PACKAGE = f"linux-config-{base.SERIES}"
_CONFIG_FILE = f"./usr/src/{CONFIG_PACKAGE}/config.amd64_none_amd64.xz"
NEEDED = "CONFIG_KSWAPD_HELPERS=y"
# Debian's configurations name Debian's keys; and with debugging information a build takes 20 GiB and hours.
SETTINGS = (
    NEEDED,
    'CONFIG_SYSTEM_TRUSTED_KEYS=""',
    'CONFIG_SYSTEM_REVOCATION_KEYS=""',
    'CONFIG_MODULE_SIG_KEY="certs/signing_key.pem"',
    "CONFIG_DEBUG_INFO_NONE=y",
    'CONFIG_BUILD_SALT=""',
)


def target(layout: Layout) -> build.Target:
    """The kernel to package, 7.3.N-reclaim."""
    home = layout.build / "deb"
    return build.Target("reclaim", layout.linux, home / "obj", home / "obj" / "arch" / "x86" / "boot" / "bzImage")


def read_config(path: Path) -> str:
    """A kernel's configuration; anything else is a Fail."""
    try:
        text = path.read_text(errors="replace")
    except OSError as exc:
        raise Fail(f"CONFIG={path}: {exc.strerror}; name a kernel's configuration, such as /boot/config-...") from exc
    if "CONFIG_64BIT=y" not in text.splitlines():
        raise Fail(f"CONFIG={path}: not the configuration of a 64-bit kernel: it has no line CONFIG_64BIT=y")
    return text


def choose(layout: Layout, wish: str, boot: Path = Path("/boot")) -> tuple[str, str]:
    """The configuration asked for, the running kernel's, or Debian's for this series; with its name."""
    if wish:
        return read_config(Path(wish).expanduser()), wish
    running = boot / f"config-{platform.release()}"
    if running.is_file():
        return read_config(running), str(running)
    return debians(layout), f"Debian's {CONFIG_PACKAGE}"


def debians(layout: Layout, etc: Path = apt.ETC_APT) -> str:
    """Debian's own configuration of this series' kernels, from its package."""
    home, way_out = layout.build / "apt", "name a configuration with CONFIG="
    root = apt.AptRoot(home, apt.mirror(etc, way_out))
    root.prepare()
    seen, errors = base.search(root, CONFIG_PACKAGE, base.SUITES)
    chosen = apt.newest(seen, f"{base.SERIES}.")
    if chosen is None:
        why = errors[0] if errors else f"no suite of {root.uri} has it"
        raise Fail(f"{CONFIG_PACKAGE} cannot be fetched ({why}); {way_out}")
    deb = base.take(root, home, CONFIG_PACKAGE, chosen, way_out)
    files = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], capture_output=True, check=True).stdout
    packed = subprocess.run(["tar", "-xO", _CONFIG_FILE], input=files, capture_output=True, check=False)
    if packed.returncode != 0:
        raise Fail(f"{deb.name} holds no {_CONFIG_FILE}; {way_out}")
    return subprocess.run(["xz", "-dc"], input=packed.stdout, capture_output=True, check=True).stdout.decode()


def configure(layout: Layout, spec: build.Target, text: str, name: str) -> None:
    """The objects' .config: what was chosen, our settings over it, defaults for what is new."""
    spec.objects.mkdir(parents=True, exist_ok=True)
    (spec.objects / "chosen.config").write_text(text)
    (spec.objects / "ours.config").write_text("".join(f"{line}\n" for line in SETTINGS))
    script = spec.source / "scripts" / "kconfig" / "merge_config.sh"
    words = [script, "-m", "-Q", "-O", spec.objects, spec.objects / "chosen.config", spec.objects / "ours.config"]
    build.quiet_make(layout, spec.source, [str(word) for word in words])
    build.quiet_make(layout, spec.source, build.make_words(spec, "olddefconfig"))
    if NEEDED not in (spec.objects / ".config").read_text().splitlines():
        raise Fail(f"{name}: {NEEDED} cannot be set with it; see its `depends on` in build/linux/mm/Kconfig")


def packages(layout: Layout, release: str, version: str) -> list[Path]:
    """What the build of a version has made for a release; earlier ones stay beside it."""
    return sorted((layout.build / "deb").glob(f"linux-*{release}_{version}_*.deb"))


def advice(image: Path, release: str) -> str:
    """How to install, try and leave it."""
    return "\n".join(
        (
            f"install:  sudo apt install {image}",
            f"start:    sudo reboot        (GRUB starts the newest kernel; then: uname -r says {release})",
            f"go back:  sudo apt remove linux-image-{release} && sudo reboot",
            "The kernels you have stay installed, and in GRUB's menu under `Advanced options`.",
        )
    )


def main(argv: list[str]) -> int:
    """Build the packages and say how to use them."""
    words = argparse.ArgumentParser(prog="deb", description=__doc__)
    words.add_argument(
        "--config",
        default=env("CONFIG", ""),
        help="a kernel's configuration; default: the running kernel's, or Debian's",
    )
    options = words.parse_args(argv)
    layout, whole = here(), Progress("deb")
    spec = target(layout)
    if options.config:
        read_config(Path(options.config).expanduser())
    proc.setup(layout.root, *PACKAGES)
    state = compose.ensure_tree(layout)
    # Later ones are newer for apt.
    version = f"{state.base.version}-{time.strftime('%Y%m%d%H%M')}"
    text, name = choose(layout, options.config)
    log, goals = layout.build / "logs" / "deb.log", (f"KDEB_PKGVERSION={version}", "bindeb-pkg")
    with build.locked(layout, spec):
        configure(layout, spec, text, name)
        say(f"configuration: {name}, {NEEDED}, no debugging information")
        build.make(layout, build.make_words(spec, *goals), "build the packages", log, 0)
    release = (spec.objects / "include" / "config" / "kernel.release").read_text().strip()
    made = packages(layout, release, version)
    images = [path for path in made if path.name.startswith("linux-image-") and "-dbg_" not in path.name]
    if len(images) != 1:
        raise Fail(f"bindeb-pkg has made no linux-image-{release}; all of its output is in build/logs/deb.log")
    say("".join(f"{path.relative_to(layout.root)}\n" for path in made) + f"deb: done in {clock(whole.elapsed())}")
    say(advice(images[0], release))
    return 0
