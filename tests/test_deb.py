# SPDX-License-Identifier: GPL-2.0-only
"""The verb deb: which configuration is taken, what must come of it, and what is said at the end."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from lr import build, deb
from lr.layout import Layout
from lr.ui import Fail

CONFIG = "# Linux/x86 7.3.4\nCONFIG_64BIT=y\n"


def test_the_configuration_asked_for_comes_first(tmp_path: Path) -> None:
    mine, boot = tmp_path / "mine", tmp_path / "boot"
    mine.write_text(CONFIG + "CONFIG_MINE=y\n")
    boot.mkdir()
    running = boot / f"config-{platform.release()}"
    running.write_text(CONFIG)
    layout = Layout(tmp_path)
    assert deb.choose(layout, str(mine), boot) == (mine.read_text(), str(mine))
    assert deb.choose(layout, "", boot) == (CONFIG, str(running))


def test_debians_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deb, "debians", lambda layout: "theirs")
    assert deb.choose(Layout(tmp_path), "", tmp_path) == ("theirs", "Debian's linux-config-7.3")


def test_what_is_no_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Fail, match="No such file or directory; name a kernel's configuration, such as /boot/config-"):
        deb.read_config(tmp_path / "none")
    (tmp_path / "text").write_text("CONFIG_64BIT is not what this is about\n")
    with pytest.raises(Fail, match="text: not the configuration of a 64-bit kernel"):
        deb.read_config(tmp_path / "text")


@pytest.mark.parametrize("final", [f"{deb.NEEDED}\n", "# CONFIG_KSWAPD_HELPERS is not set\n"])
def test_helpers_must_be_in_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, final: str) -> None:
    layout = Layout(tmp_path)
    spec = deb.target(layout)
    monkeypatch.setattr(build, "quiet_make", lambda *words: (spec.objects / ".config").write_text(final))
    if final.startswith(deb.NEEDED):
        deb.configure(layout, spec, CONFIG, "mine")
        assert (spec.objects / "chosen.config").read_text() == CONFIG
        assert "CONFIG_DEBUG_INFO_NONE=y" in (spec.objects / "ours.config").read_text()
    else:
        with pytest.raises(Fail, match="mine: CONFIG_KSWAPD_HELPERS=y cannot be set with it"):
            deb.configure(layout, spec, CONFIG, "mine")


def test_what_to_do_with_the_packages(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    (tmp_path / "build/deb").mkdir(parents=True)
    for name in ("linux-image-7.3.4-reclaim_7.3.4-2_amd64", "linux-image-7.3.4-reclaim_7.3.4-1_amd64"):
        (tmp_path / f"build/deb/{name}.deb").touch()
    (image,) = deb.packages(layout, "7.3.4-reclaim", "7.3.4-2")
    told = deb.advice(image, "7.3.4-reclaim")
    assert f"sudo apt install {image}\n" in told and "sudo apt remove linux-image-7.3.4-reclaim && sudo reboot" in told
