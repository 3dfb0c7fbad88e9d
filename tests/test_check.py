# SPDX-License-Identifier: GPL-2.0-only
"""The verb check: each check passes on a sound checkout and names what is wrong on another."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from lr import check
from lr.results import Case
from toy import Toy

SPDX = "SPDX-License-Identifier: GPL-2.0-only"


@pytest.fixture
def sound(made: Toy) -> Toy:
    """A checkout on which all checks that need no kernel scripts pass."""
    made.add("mm/ours.c", f"// {SPDX}\nint ours;\n")
    made.add("mm/tests/ten_kunit.c", f"// {SPDX}\n")
    made.add("tools/testing/selftests/mm/ours.sh", f"#!/bin/sh\n# {SPDX}\n")
    made.git("commit", "-q", "-a", "--fixup=HEAD~1")
    made.add("Documentation/admin-guide/mm/reclaim.rst", f".. {SPDX}\n\nReclaim\n=======\n\nSee :ref:`there`.\n")
    made.git("commit", "-q", "-a", "--fixup=HEAD~1")
    made.edit(
        "MAINTAINERS", "F:\tmm/\n", "F:\tmm/\nF:\ttools/*/selftests/mm/\nF:\tDocumentation/admin-guide/mm/reclaim.rst\n"
    )
    made.commit("MAINTAINERS: ours")
    made.git("rebase", "-q", "-i", "--autosquash", "base", env={"GIT_SEQUENCE_EDITOR": "true"})
    made.save()
    made.write("series/first/cover.md", "mm: first\n\nText.\n")
    made.write("series/second/cover.md", "mm: second\n\nText.\n")
    made.write(
        "series/first/ablations/ten.patch",
        "Ablation: ten is said no more\nCaught-by: kunit ten\n---\ndiff --git a/mm/vmscan.c b/mm/vmscan.c\n"
        "--- a/mm/vmscan.c\n+++ b/mm/vmscan.c\n@@ -9,3 +9,3 @@\n line 9\n-line ten\n+line 10\n line 11\n",
    )
    made.tree()
    return made


def run(toy: Toy) -> dict[str, Case]:
    """The checks by name, without those of the tools."""
    return {case.name: case for case in check.cases(toy.layout, tools=False)}


def one(toy: Toy, name: str) -> Case:
    """One check that needs only the files."""
    function = dict(check.TOOL_CHECKS)[name]
    return check._run(name, function, check.Context(toy.layout, check.repository_files(toy.root)))


def test_sound_checkout(sound: Toy) -> None:
    found = run(sound)
    status = {name: (case.status, case.message) for name, case in found.items() if case.status != "passed"}
    assert status == {"checkpatch": ("skipped", "no perl, or the base has no scripts/checkpatch.pl")}
    assert found["independence"].message == "first applies to the base alone; second applies to the base alone"
    assert found["sections"].message == "first 1, second 3"
    for name in ("files", "spdx", "rst"):
        case = one(sound, name)
        assert case.status in ("passed", "skipped"), case.message


def test_hand_written_patch_is_to_be_refreshed(sound: Toy) -> None:
    path = sound.root / "series/first/mm-vmscan-say-ten.patch"
    path.write_text(path.read_text().replace("@@ -7,7 +7,7 @@", "@@ -8,7 +8,7 @@"))
    case = run(sound)["round-trip"]
    assert case.status == "failed"
    assert case.message == (
        "not as save would write them: series/first/mm-vmscan-say-ten.patch; `make tree save` refreshes them"
    )


def test_tree_that_does_not_compose_is_one_failure(sound: Toy) -> None:
    (sound.root / "series/first/mm-vmscan-say-ten.patch").unlink()
    found = run(sound)
    assert found["tree"].status == "failed"
    assert "series/first/mm-vmscan-say-ten.patch: not there" in found["tree"].message
    assert found["round-trip"].status == "skipped" and found["ownership"].status == "failed"


def test_ownership_and_sections(sound: Toy) -> None:
    sound.write("mm/stray.c", "")
    sound.write("series/first/stray.patch", "")
    sound.write("series/third/cover.md", "mm: third\n")
    (sound.root / "series/second/cover.md").write_text("\n")
    found = run(sound)
    assert "mm/stray.c: no patch owns it" in found["ownership"].message
    assert "series/first/stray.patch: not listed in series/index in this section" in found["ownership"].message
    assert found["sections"].message == (
        "series/second/cover.md: empty; its first line is the subject of the cover letter; "
        "series/third: not a section of series/index"
    )


def test_trailers_maintainers_ablations(sound: Toy) -> None:
    sound.add("lib/new.c", f"// {SPDX}\n")
    sound.commit("lib: new", "Why.\n\nSigned-off-by: Jane <j@j>")
    sound.save()
    sound.write(
        "series/first/ablations/bad.patch",
        "diff --git a/mm/vmscan.c b/mm/vmscan.c\n--- a/mm/vmscan.c\n+++ b/mm/vmscan.c\n"
        "@@ -9,3 +9,3 @@\n line 9\n-line X\n+line 10\n line 11\n",
    )
    (sound.root / "series/second/ablations").mkdir()
    sound.write("series/second/ablations/ten.patch", (sound.root / "series/first/ablations/ten.patch").read_text())
    (sound.root / "soak/bugs").mkdir(parents=True)
    sound.write("soak/bugs/old.patch", (sound.root / "series/first/ablations/bad.patch").read_text())
    found = run(sound)
    assert "ten.patch: the name of two ablations" in found["ablations"].message
    assert found["no-trailers"].message == "carry trailers, which mbox adds from TRAILERS=: series/second/lib-new.patch"
    assert "no F: line of MAINTAINERS covers lib/new.c" in found["maintainers"].message
    assert "bad.patch: the first line must be `Ablation: MECHANISM`" in found["ablations"].message
    assert "bad.patch does not apply: error: patch failed: mm/vmscan.c:9" in found["ablations"].message
    assert "old.patch does not apply: error: patch failed: mm/vmscan.c:9" in found["ablations"].message


def test_checkpatch_is_asked_about_each_commit(sound: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("perl") is None:
        pytest.skip("no perl")
    script = sound.linux / "scripts/checkpatch.pl"
    script.parent.mkdir()
    script.write_text('while (<STDIN>) { if (/int ours/) { print "-:1: ERROR:TOY: no ours\\n"; $bad = 1 } } exit $bad;')
    case = run(sound)["checkpatch"]
    assert (case.status, case.message) == ("failed", "mm-add-ours-v2-for-the-2nd-time.patch: -:1: ERROR:TOY: no ours")
    script.write_text("while (<STDIN>) { } exit 0;")
    assert run(sound)["checkpatch"].status == "passed"
    # What was clean is not asked about again, unless something else is asked.
    script.write_text('while (<STDIN>) { } print "-:1: ERROR:TOY: no\\n"; exit 1;')
    assert run(sound)["checkpatch"].status == "passed"
    monkeypatch.setattr(check, "_EXCUSED", "NOTHING")
    assert run(sound)["checkpatch"].status == "failed"


def test_files(sound: Toy) -> None:
    sound.write("scripts/big", "x" * (1 << 20))
    sound.write("scripts/a.o", "")
    sound.write("scripts/path.sh", "cd /" + "root/x\n")
    (sound.root / "scripts/link").symlink_to("big")
    message = one(sound, "files").message
    assert "scripts/big is 1 MiB or more" in message and "scripts/a.o is generated" in message
    assert "scripts/link is no plain file" in message and "scripts/path.sh names a path of one machine" in message


def test_spdx_and_rst(sound: Toy) -> None:
    sound.write("scripts/x.py", "print()\n")
    assert one(sound, "spdx").message == "no SPDX-License-Identifier in the first lines: scripts/x.py"
    sound.write("Documentation/bad.rst", "Title\n==\n\nA ``broken` word.\n")
    assert "Documentation/bad.rst:4: Inline literal start-string" in one(sound, "rst").message


def test_results_are_written(sound: Toy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(check, "TOOL_CHECKS", ())
    sound.write("mm/stray.c", "")
    counts = check.run_checks(sound.layout)
    assert (counts.failed, counts.skipped) == (1, 1)
    said = capsys.readouterr().out
    assert "\nok round-trip: " in said and "not ok ownership: mm/stray.c: no patch owns it" in said
    assert "ok checkpatch # SKIP: " in said
    assert Path(sound.layout.build / "results/check.xml").read_text().count("<testcase") == counts.total
