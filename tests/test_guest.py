# SPDX-License-Identifier: GPL-2.0-only
"""Guests: options, disks, node and CPU split, KVM, and how a run is judged (a shell script plays virtme-run)."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from lr import boot, guest, kunit, options
from lr.guest import Disk, Spec
from lr.layout import Layout
from lr.ui import Fail


def test_nodes_share_memory_and_cpus() -> None:
    assert guest.node_arguments(2048, 4, 1) == []
    assert guest.node_arguments(2048, 4, 2) == ["--numa", "1024M,cpus=0-1", "--numa", "1024M,cpus=2-3"]
    assert guest.node_arguments(1000, 2, 3) == ["--numa", "334M,cpus=0", "--numa", "333M,cpus=1", "--numa", "333M"]


def test_cpu_sockets_follow_nodes() -> None:
    assert guest.smp_argument(4, 2) == "4,sockets=2,cores=2,threads=1"
    assert guest.smp_argument(3, 2) == "3,sockets=3,cores=1,threads=1"


@pytest.mark.parametrize("text", ["zfs:1G", "xfs", "xfs:", "xfs:1", "xfs:10M", "ext4:-5M", "ext4:1T"])
def test_wrong_disks(text: str) -> None:
    with pytest.raises(Fail, match="DISK"):
        guest.parse_disk(text)


def test_disks(tmp_path: Path) -> None:
    assert guest.parse_disk("xfs:1G") == Disk("xfs", "xfs", 1024)
    guest.make_disk(Disk("blank", "blank", 16), tmp_path / "a.img")
    made = (tmp_path / "a.img").stat()
    assert made.st_size == 16 << 20
    assert made.st_blocks == 0


def test_kvm_needs_the_cpu_and_the_device(tmp_path: Path) -> None:
    device = tmp_path / "kvm"
    device.touch()
    assert guest.kvm_usable("flags\t\t: fpu vmx sse\n", device)
    assert not guest.kvm_usable("flags\t\t: fpu sse\n", device)
    assert not guest.kvm_usable("flags\t\t: fpu svm\n", tmp_path / "none")


def test_serial_text_is_plain() -> None:
    assert guest.clean("a\r\nb\x1b[0mc\x1bc\r\n") == "a\nbc\n"


def toy(tmp_path: Path, body: str) -> tuple[Layout, Spec]:
    layout = Layout(tmp_path)
    starter = layout.build / "venv" / "bin" / "virtme-run"
    starter.parent.mkdir(parents=True)
    # The script's path is the one word that ends in /command; on the host it lies below the checkout.
    find = 'for w in "$@"; do case $w in *"/command") inside=${w##* };; esac; done\n'
    find += f"script={tmp_path}${{inside#/run/reclaim}}\n"
    starter.write_text(f"#!/bin/bash\n{find}{body}\n")
    starter.chmod(0o755)
    kernel = tmp_path / "bzImage"
    kernel.touch()
    return layout, Spec(kernel, timeout=20)


def test_status_output_and_console_are_kept_apart(tmp_path: Path) -> None:
    layout, spec = toy(tmp_path, 'printf "[ 1.0] booting\\r\\n" >&2; bash $script')
    seen: list[str] = []
    outcome = guest.run(layout, spec, "echo one; echo two >&2; printf end; exit 3", seen.append)
    assert (outcome.ended, outcome.status) == ("exited", 3)
    assert outcome.output.strip() == "one\ntwo\nend"
    assert outcome.console == "[ 1.0] booting\n"
    assert seen == ["one", "two", "end"]
    assert not list((layout.build / "tmp").iterdir())


def test_status_255_is_the_commands_own(tmp_path: Path) -> None:
    layout, spec = toy(tmp_path, "bash $script; exit 255")
    assert guest.run(layout, spec, "exit 255").status == 255


def test_panic(tmp_path: Path) -> None:
    layout, spec = toy(tmp_path, 'echo "[ 2.0] Kernel panic - not syncing: Oops" >&2; exit 255')
    outcome = guest.run(layout, spec, "true")
    assert outcome.ended == "panic"
    assert "Kernel panic" in outcome.story()


@pytest.mark.parametrize(("says", "boots"), [("true", 2), ("echo half", 1)])
def test_a_guest_that_goes_away_is_no_success(tmp_path: Path, says: str, boots: int) -> None:
    """One that goes away before it said anything is booted once more, but not for ever."""
    layout, spec = toy(tmp_path, f"echo boot >>{tmp_path}/boots; {says}; exit 0")
    outcome = guest.run(layout, spec, "true")
    assert outcome.ended == "died"
    assert not outcome.ok
    assert len((tmp_path / "boots").read_text().splitlines()) == boots


def test_timeout_ends_everything_started(tmp_path: Path) -> None:
    layout, spec = toy(tmp_path, f"sleep 60 & echo $! > {tmp_path}/pid; echo hanging >&2; wait")
    outcome = guest.run(layout, Spec(spec.kernel, timeout=1), "true")
    assert outcome.ended == "timeout"
    assert "hanging" in outcome.story()
    pid = int((tmp_path / "pid").read_text())
    status = Path(f"/proc/{pid}/status")
    until = time.monotonic() + 10
    # On a busy machine a process that was killed takes a moment to go.
    while status.exists() and "zombie" not in status.read_text() and time.monotonic() < until:
        time.sleep(0.05)
    assert not status.exists() or "zombie" in status.read_text()


def test_being_told_to_stop_ends_the_guests_that_run(tmp_path: Path) -> None:
    layout, spec = toy(tmp_path, "sleep 60")
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt), guest.several() as pool:
        ends = [pool.submit(guest.run, layout, spec, "true") for _ in range(3)]
        while len(guest._running) < 2:
            time.sleep(0.01)
        raise KeyboardInterrupt
    assert time.monotonic() - begun < 20 and not guest._running
    # None is booted once more, and the third one never.
    assert [end.cancelled() for end in ends] == [False, False, True]


def test_a_guest_that_stops_while_booting_gets_a_second_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flag = tmp_path / "second"
    layout, spec = toy(tmp_path, f"echo vgaarb >&2; [ -e {flag} ] || {{ touch {flag}; exec sleep 60; }}; bash $script")
    # Less than twice the silence: a hang leaves time for a second try all the same.
    spec = replace(spec, timeout=5)
    monkeypatch.setattr(guest, "_SILENT", 3)
    outcome = guest.run(layout, spec, "echo here; sleep 2; exit 3")
    assert (outcome.ended, outcome.status, outcome.output.strip()) == ("exited", 3, "here")
    said = capsys.readouterr()
    assert "vgaarb; once more" in said.out + said.err


def test_a_guest_that_boots_slowly_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest, "_SILENT", 1)
    layout, spec = toy(
        tmp_path, f"echo >>{tmp_path}/boots; for i in 1 2 3 4 5; do echo $i >&2; sleep 0.5; done; bash $script"
    )
    assert guest.run(layout, spec, "true").ok
    assert (tmp_path / "boots").read_text() == "\n"


@pytest.mark.parametrize(
    ("does", "told"), [("exit 0", "the guest ended before"), ("exec sleep 60", "no end after 2 s")]
)
def test_a_guest_whose_tests_run_at_boot_has_one_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, told: str
) -> None:
    monkeypatch.setattr(guest, "_SILENT", 1)
    layout, spec = toy(tmp_path, f"echo boot >>{tmp_path}/boots; echo KTAP version 1 >&2; {does}")
    cases = kunit.run_qemu(layout, spec.kernel, "", 2)
    assert (tmp_path / "boots").read_text() == "boot\n"
    assert next(case.message for case in cases if case.name == "guest").startswith(told)


def test_a_guest_that_never_boots_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest, "_SILENT", 1)
    layout, spec = toy(tmp_path, "echo vgaarb >&2; exec sleep 60")
    outcome = guest.run(layout, spec, "true")
    assert outcome.ended == "unbooted"
    assert "twice" in outcome.story() and "vgaarb" in outcome.story()


def test_a_shell_whose_guest_could_not_be_started_is_no_success(tmp_path: Path) -> None:
    layout, spec = toy(tmp_path, "echo no such QEMU >&2; exit 1")
    outcome = guest.interact(layout, spec)
    assert (outcome.ended, outcome.status, outcome.console) == ("exited", 1, "no such QEMU\n")
    (layout.build / "venv/bin/virtme-run").unlink()
    with pytest.raises(Fail, match="virtme-run: not found; run `make setup`"):
        guest.interact(layout, spec)


def test_a_blank_disk_is_not_mounted() -> None:
    spec = Spec(Path("bzImage"), disks=(Disk("xfs", "xfs", 300),))
    assert boot.command_of(spec, "ls") == ". scripts/guest/lib.sh && mount_scratch xfs /mnt && { ls\n}"
    spec = Spec(Path("bzImage"), disks=(Disk("blank", "blank", 64),))
    assert boot.command_of(spec, "ls") == ". scripts/guest/lib.sh && { ls\n}"
    assert boot.command_of(Spec(Path("bzImage")), "ls") == "{ ls\n}"


def test_missing_kernel(tmp_path: Path) -> None:
    layout, spec = toy(tmp_path, "true")
    with pytest.raises(Fail, match="make build"):
        guest.run(layout, Spec(tmp_path / "none"), "true")


@pytest.mark.parametrize(
    "words",
    [
        ["--kernel", "mine"],
        ["--cpus", "0"],
        ["--cpus", "x"],
        ["--nodes", "9"],
        ["--mem", "12Q"],
        ["--mem", "256M", "--nodes", "4"],
        ["--timeout", "0"],
        ["--disk", "xfs"],
        ["--debug", "2"],
    ],
)
def test_wrong_boot_options(tmp_path: Path, words: list[str]) -> None:
    with pytest.raises(Fail):
        boot.spec_of(boot.parser().parse_args(words), Layout(tmp_path))


def test_boot_options_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"KERNEL": "stock", "CPUS": "2", "MEM": "1G", "NODES": "1", "DISK": "btrfs:256M"}.items():
        monkeypatch.setenv(name, value)
    spec = boot.spec_of(boot.parser().parse_args([]), Layout(tmp_path))
    assert (spec.cpus, spec.mib, spec.nodes, spec.disks[0].fs) == (2, 1024, 1, "btrfs")
    assert spec.kernel == tmp_path / "build/stock/bzImage"


def test_sizes() -> None:
    assert options.size_mib("MEM", "2g", 1) == 2048
    assert options.size_mib("MEM", "512", 1) == 512
