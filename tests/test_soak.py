# SPDX-License-Identifier: GPL-2.0-only
"""The soak: which guests it runs, what counts as a finding, what is stock's, and the files that the guest keeps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from lr import soak
from lr.guest import Outcome
from lr.ui import Fail

SOAK = Path(__file__).resolve().parents[1] / "soak"


def test_hours_are_guests_of_ten_minutes_in_turn() -> None:
    wanted = soak.jobs(["storm"], ["stock", "series"], [""], 0.5, 7)
    assert [(job.kernel, job.seed) for job in wanted] == [
        ("stock", 7), ("series", 7), ("stock", 8), ("series", 8), ("stock", 9), ("series", 9),
    ]  # fmt: skip
    assert {job.seconds for job in wanted} == {600}
    (short,) = soak.jobs(["storm"], ["series"], [""], 0.08, 7)
    assert short.seconds == 288


def test_a_seed_says_which_machine() -> None:
    machines = {soak.Job("storm", "series", "", seed, 60).cell.name for seed in range(4)}
    assert machines == {
        "lru_gen=off,nodes=1",
        "lru_gen=on,nodes=1",
        "lru_gen=off,nodes=2,module=1",
        "lru_gen=on,nodes=2,module=1",
    }
    job = soak.Job("faults", "series", "debug", 3, 600)
    assert job.again == "make soak PART=faults KERNELS=series DEBUG=1 SEED=3 HOURS=0.167"


def test_faults_need_a_kernel_that_has_them() -> None:
    assert [job.debug for job in soak.jobs(["storm", "faults"], ["series"], ["", "debug"], 0.1, 1)] == [
        "", "debug", "debug",
    ]  # fmt: skip
    for parts in (["faults"], ["storm", "faults"]):
        with pytest.raises(Fail, match="DEBUG=1"):
            soak.jobs(parts, ["series"], ["", "races"], 1, 1)


@pytest.mark.parametrize("words", [["--part", "storm"], ["--kernels", "stock"], ["--debug", "1"]])
def test_bugs_are_looked_for_by_the_storm_alone(words: list[str]) -> None:
    with pytest.raises(Fail, match="leave out KERNELS=, PART= and DEBUG="):
        soak.main(["--bugs", "1", *words])


@pytest.mark.parametrize("text", ["", "0", "-1", "1h", "101", "0.001"])
def test_wrong_hours(text: str) -> None:
    with pytest.raises(Fail, match="HOURS"):
        soak.hours(text)


def test_what_is_a_finding() -> None:
    good = Outcome("exited", 0, "[ 1] 0 hog\n@result actions=5 compared=7 oom_kill=1\n", "", 600)
    assert soak.judge(good) == []
    assert soak.figures(good.output) == {"actions": 5, "compared": 7, "oom_kill": 1}
    assert soak.judge(replace(good, output="@finding lost: a\n" + good.output)) == ["lost: a"]
    assert "without a result" in soak.judge(replace(good, output=""))[0]
    assert "TIMEOUT" in soak.judge(replace(good, ended="timeout"))[0]
    console = "[ 1.0] WARNING: CPU: 0 PID: 1 at mm/vmscan.c:1\n"
    assert "console: warning" in soak.judge(replace(good, console=console))[0]
    line = "vmstat_refresh: nr_isolated_file -5"
    assert soak.judge(replace(good, console=f"[ 1.0] {line}\n")) == [f"console: [ 1.0] {line}"]
    for line in ("EXT4-fs error (device vda): x", "BTRFS error (device vdc): x"):
        assert soak.judge(replace(good, console=f"[ 1.0] {line}\n")) == [f"console: damage: [ 1.0] {line}"]
    assert soak.judge(replace(good, console=console, ended="timeout"))[0] == "the guest: timeout"
    assert soak.judge(replace(good, output="@result actions=0 compared=0\n")) == ["the storm did nothing"]
    assert soak.judge(replace(good, console="[ 1.0] EXT4-fs error (device dm-4): x\n")) == []


def test_what_stock_has_too_is_no_failure() -> None:
    ours = soak.Kept("storm", "series", 1, 600, {}, ["72 MiB of memory are missing"], "make soak SEED=1")
    stock = replace(ours, kernel="stock", findings=["80 MiB of memory are missing"])
    assert [case.status for case in soak.judged([ours])] == ["failed"]
    assert [case.status for case in soak.judged([stock, ours])] == ["passed", "passed"]
    more = replace(ours, findings=["400 MiB of memory are missing"])
    assert soak.judged([stock, more])[1].status == "failed"
    late, early = "console: warning: [  195.61] WARNING: at x.c:1", "console: warning: [   95.60] WARNING: at x.c:1"
    assert soak.shape(late) == soak.shape(early)
    hung = "console: hung task: INFO: task kswapd0:44 blocked for more than 120 seconds.\n[ 1.0]  {}+0x12/0x34"
    assert soak.shape(hung.format("schedule")) != soak.shape(hung.format("io_schedule"))
    assert soak.shape(hung.format("schedule")) == soak.shape(hung.format("schedule").replace(":44", ":45"))
    assert soak.shape("lost: /mnt/xfs/f1") != soak.shape("lost: /mnt/xfs/f2")
    other = replace(ours, findings=["lost: /mnt/xfs/f1"])
    (_, case) = soak.judged([stock, other])
    assert case.status == "failed"
    assert "make soak SEED=1" in case.message


def test_kept_files_are_compared(tmp_path: Path) -> None:
    folder, into = tmp_path / "kept", tmp_path / "ledger"
    folder.mkdir()
    call = "import files, sys; from pathlib import Path; files.keep(Path(sys.argv[1]), 1, 'xfs', Path(sys.argv[2]))"
    child = subprocess.Popen([sys.executable, "-B", "-c", call, folder, into], cwd=SOAK)
    until = time.monotonic() + 20
    while len(list(folder.glob("*/*"))) < 50 and time.monotonic() < until:
        time.sleep(0.05)
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == 0
    told = json.loads(into.read_text())
    assert told["wrong"] == []
    sys.path.insert(0, str(SOAK))
    try:
        import files
    finally:
        sys.path.remove(str(SOAK))
    ledger = {int(number): (int(kept[0]), int(kept[1])) for number, kept in told["ledger"]}
    assert files.compare(folder, 1, "xfs", ledger) == (len(ledger), [])
    # One byte, one length, one file that is not there, one that is there again.
    present = [number for number, (_, size) in ledger.items() if size > 1]
    wrong, short, gone = (files.path_of(folder, number) for number in present[:3])
    wrong.write_bytes(bytes([wrong.read_bytes()[0] ^ 1]) + wrong.read_bytes()[1:])
    os.truncate(short, 1)
    gone.unlink()
    ledger[present[3]] = (1, -1)
    found = files.compare(folder, 1, "xfs", ledger)[1]
    assert len(found) == 4
    assert any("the first wrong one at 0" in text for text in found)


def test_stressors_are_those_of_the_classes_that_there_are(tmp_path: Path) -> None:
    tool = tmp_path / "stress-ng"
    tool.write_text(
        "#!/bin/sh\n"
        "case $2 in memory*) echo \"class 'memory' stressors: numa swap\";;\n"
        "*) echo \"Unknown class: '${2%?}', available classes: vm\" >&2; exit 1;; esac\n"
    )
    tool.chmod(0o755)
    call = "import others; print(others.stressors())"
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, "-B", "-c", call], cwd=SOAK, env=env, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "['numa']"
    assert done.stdout.count("has no class") == 3
