# SPDX-License-Identifier: GPL-2.0-only
"""The Makefile's options: those that the verbs read, each named in the help of its verb, and no other."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from lr.__main__ import VERBS

ROOT = Path(__file__).resolve().parents[1]


def _read(module: str) -> set[str]:
    """The options that a verb's module reads by itself."""
    source = ROOT / "scripts" / f"{module.replace('.', '/')}.py"
    return set(re.findall(r'env\("([A-Z_]+)"', source.read_text()))


def test_the_help_names_what_each_verb_reads() -> None:
    lines = dict(re.findall(r"^([a-z]+): .*?## (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for verb, module in VERBS.items():
        # Those of tree go with every verb.
        assert _read(module) <= set(re.findall(r"([A-Z_]+)=", lines["tree"] + lines[verb])), verb


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["help", "ABLATION=one"], "help has no option ABLATION"),
        (["-n", "bench", "KERNEL=stock"], "bench has no option KERNEL"),
        (["-n", "ablate", "MECHANISM=one"], "ablate has no option MECHANISM"),
        (["-n", "ablate", "ABLATION=one two", "BASE=6.12"], ""),
        (["-n", "test", "bisect", "ablate", "BUDGET=50"], ""),
        (["-n", "ablate", "test", "BUDGET=5"], ""),
        (["-n", "kunit", "selftest", "FILTER=x"], ""),
        (["-n", "test", "TEST=x", "DEBUG=1"], ""),
        (["KERNEL=stock"], "help has no option KERNEL"),
    ],
)
def test_an_option_that_the_verb_does_not_have_is_refused(words: list[str], told: str) -> None:
    done = subprocess.run(["make", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    assert (done.returncode, told in done.stderr) == (2 if told else 0, True), done.stderr


@pytest.mark.parametrize(
    "value",
    [
        "echo $HOME",
        "$(shell touch ran)",
        "$$ ${X} `touch ran`",
        "a 'b' \"c\" # d",
        "one\n  two\t$x\n",
        "\\ \\# %",
        "a=$(RUN)",
    ],
)
def test_a_value_comes_to_its_verb_as_it_was_given(tmp_path: Path, value: str) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name, body in (("scripts/setup", "exit 0"), ("build/venv/bin/python", 'printf %s "$RUN" >told')):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
    subprocess.run(["make", "-C", str(tmp_path), "boot", f"RUN={value}", "CPUS=2"], capture_output=True, check=True)
    assert (tmp_path / "told").read_text() == value and not (tmp_path / "ran").exists()
