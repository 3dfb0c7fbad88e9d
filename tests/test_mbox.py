# SPDX-License-Identifier: GPL-2.0-only
"""The verb mbox: mails and branches with the user's own identity and trailers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from lr import mbox
from lr.clean import clean
from lr.git import user_environment
from lr.ui import Fail
from test_base import clone
from toy import KERNEL, Toy


@pytest.fixture(autouse=True)
def _me(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user whose configuration also holds what must not change the mails."""
    config = tmp_path / "gitconfig"
    config.write_text(
        "[user]\nname = Jane Döe\nemail = jane@example.org\n[diff]\nnoprefix = true\n[format]\nsignOff = true\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def covered(made: Toy) -> Toy:
    """With cover letters."""
    made.write(
        "series/first/cover.md",
        "<!-- SPDX-License-Identifier: GPL-2.0-only -->\n# mm: say it — well\n\nThe problem.\n\nMore.\n",
    )
    made.write("series/second/cover.md", "mm: ours\n\nText.\n")
    return made


def git_in(path: Path, *words: str) -> str:
    """git in a clone."""
    done = subprocess.run(["git", "-C", str(path), *words], env=user_environment(), capture_output=True, check=True)
    return done.stdout.decode().strip()


def test_mails(covered: Toy) -> None:
    folder = mbox.write_mails(covered.layout, "second", ["Signed-off-by: Jane Döe <jane@example.org>"])
    assert folder == covered.layout.build / "mbox/second"
    names = [path.name for path in sorted(folder.iterdir())]
    assert names == [
        "0000-cover-letter.patch",
        "0001-mm-add-ours-v2-for-the-2nd-time.patch",
        "0002-Documentation-mm-describe-it.patch",
    ]
    cover = (folder / names[0]).read_text()
    assert "Subject: [PATCH 0/2] mm: ours\n" in cover and "\nText.\n" in cover
    assert cover.endswith("\nbase-tag: v7.3.4\n") and "***" not in cover
    mail = (folder / names[1]).read_text()
    assert "jane@example.org>\n" in mail.split("\nSubject:")[0]
    assert "\nWhy.\n\nSigned-off-by: Jane Döe <jane@example.org>\n---\n" in mail
    assert "+int ours;\n" in mail and "new file mode 100755" in mail and "diff --git a/mm/vmscan.c" in mail
    applied = covered.git("log", "-1", "--format=%H")
    covered.git("checkout", "-q", "base")
    covered.git("am", "-q", str(folder / names[1]), str(folder / names[2]))
    assert covered.git("diff", "--stat", applied, "--", "mm/ours.c") == ""


def test_mails_that_were_edited_are_kept(covered: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    folder = mbox.write_mails(covered.layout, "first", [])
    mbox.write_mails(covered.layout, "first", [])
    assert mbox.edited(covered.layout) == [] and not (covered.layout.build / "kept").exists()
    (folder / "0000-cover-letter.patch").write_text("mine\n")
    assert "build/mbox: edited mails: first" in clean(covered.layout)
    covered.tree()
    assert mbox.write_mails(covered.layout, "first", []) == folder
    (kept,) = (covered.layout.build / "kept").rglob("0000-cover-letter.patch")
    assert kept.read_text() == "mine\n" and "build/mbox/first was not as we had" in capsys.readouterr().err
    assert "Subject: [PATCH 0/1]" in (folder / "0000-cover-letter.patch").read_text()


def test_cover_of_a_subject_that_is_not_ascii(covered: Toy) -> None:
    folder = mbox.write_mails(covered.layout, "first", [])
    cover = (folder / "0000-cover-letter.patch").read_text()
    assert (
        "Subject: [PATCH 0/1] mm: say it — well\n" in cover
        and cover.count("Content-Type: text/plain; charset=UTF-8") == 1
    )
    assert "\n\nThe problem.\n\nMore.\n" in cover


def test_trailers_join_those_a_message_has() -> None:
    message = 'mm: x\n\nWhy.\n\nFixes: 123456789012 ("mm: y")\n'
    assert mbox.with_trailers(message, ["Signed-off-by: J <j@j>"]).endswith('("mm: y")\nSigned-off-by: J <j@j>\n')


def test_section_that_needs_another_says_so(covered: Toy) -> None:
    covered.edit("mm/vmscan.c", "line ten\n", "line 10 again\n")
    covered.commit("mm/vmscan: ten once more")
    covered.save()
    folder = mbox.write_mails(covered.layout, "second", [])
    cover = (folder / "0000-cover-letter.patch").read_text()
    assert cover.endswith("base-tag: v7.3.4\nprerequisite-section: first\n")
    assert len(list(folder.iterdir())) == 4


def test_branch_in_a_clone(covered: Toy, tmp_path: Path) -> None:
    path = clone(tmp_path / "linux", {**KERNEL, "lib/more.c": "int more;\n"}, "v7.3.4")
    (path / "fs/inode.c").write_text("edited\n")
    before = git_in(path, "status", "--porcelain"), git_in(path, "rev-parse", "HEAD")
    branch, number, start = mbox.make_branch(covered.layout, "second", ["Signed-off-by: J <j@j>"], path, "v7.3.4")
    assert (branch, number, start) == ("lr/second", 2, git_in(path, "rev-parse", "v7.3.4^{commit}"))
    assert git_in(path, "log", "--reverse", "--format=%an %cn %s", "v7.3.4..lr/second").splitlines() == [
        "Jane Döe Jane Döe mm: add ours (v2) for the 2nd time",
        "Jane Döe Jane Döe Documentation/mm: describe it",
    ]
    assert git_in(path, "log", "-1", "--format=%b", "lr/second") == "Why.\n\nSigned-off-by: J <j@j>"
    assert (git_in(path, "status", "--porcelain"), git_in(path, "rev-parse", "HEAD")) == before
    assert not (path / ".git/lr").exists()
    with pytest.raises(Fail, match="the branch lr/second exists and is left alone"):
        mbox.make_branch(covered.layout, "second", [], path, "v7.3.4")


def test_branch_after_the_sections_it_needs(covered: Toy, tmp_path: Path) -> None:
    covered.edit("mm/vmscan.c", "line ten\n", "line 10 again\n")
    covered.commit("mm/vmscan: ten once more")
    covered.save()
    path = clone(tmp_path / "linux", KERNEL, "v7.3.4")
    branch, number, start = mbox.make_branch(covered.layout, "second", [], path, "v7.3.4")
    ours = git_in(path, "log", "--format=%s", f"{start}..{branch}").splitlines()
    assert len(ours) == number == 3
    assert ours[0] == "mm/vmscan: ten once more"
    assert git_in(path, "rev-parse", f"{branch}~3", start).splitlines() == [start, start]


def test_where_to_go_on(
    covered: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mbox, "here", lambda: covered.layout)
    path = clone(tmp_path / "my linux", KERNEL, "v7.3.4")
    assert mbox.main(["--section", "first", "--branch-in", str(path), "--rev", "v7.3.4"]) == 0
    told = re.search(r"next: (\(cd .* && )(\S+/venv/bin/b4) prep --enroll [0-9a-f]{40}\)\n", capsys.readouterr().out)
    assert told and told[2] == str(covered.layout.build / "venv/bin/b4")
    done = subprocess.run(["sh", "-c", f"{told[1]} pwd)"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(path) and git_in(path, "symbolic-ref", "--short", "HEAD") == "lr/first"


def test_the_options_of_tree_go_with_it(covered: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mbox, "here", lambda: covered.layout)
    monkeypatch.setenv("BASE_GIT", str(clone(tmp_path / "linux", KERNEL, "v7.3.4")))
    monkeypatch.setenv("REV", "v7.3.4")
    assert mbox.main(["--section", "first"]) == 0
    assert "\nbase-commit: " in (covered.layout.build / "mbox/first/0000-cover-letter.patch").read_text()


def test_mistakes(covered: Toy, tmp_path: Path) -> None:
    path = clone(tmp_path / "linux", KERNEL, "v7.3.4")
    layout = covered.layout
    with pytest.raises(Fail, match="SECTION= is missing; the sections are first, second"):
        mbox.write_mails(layout, "", [])
    with pytest.raises(Fail, match="SECTION=third: no such section; there are first, second"):
        mbox.write_mails(layout, "third", [])
    with pytest.raises(Fail, match=r"needs REV= too"):
        mbox.make_branch(layout, "first", [], path, "")
    with pytest.raises(Fail, match=r"REV=v7.3.4 needs BRANCH_IN= too"):
        mbox.main(["--section", "first", "--rev", "v7.3.4"])
    with pytest.raises(Fail, match=r"has no commit v9; git -C .* fetch --tags"):
        mbox.make_branch(layout, "first", [], path, "v9")
    with pytest.raises(Fail, match="not a git repository; give the folder of a kernel clone"):
        mbox.make_branch(layout, "first", [], tmp_path / "nowhere", "v9")
    (covered.root / "series/first/cover.md").unlink()
    with pytest.raises(Fail, match="series/first/cover.md: not there; write the section's cover letter"):
        mbox.write_mails(layout, "first", [])
    with pytest.raises(Fail, match=r"TRAILERS=.*: cannot be read \(No such file"):
        mbox.read_trailers(tmp_path / "none")
    (tmp_path / "trailers").write_text("hello\n")
    with pytest.raises(Fail, match=r"'hello' is no trailer"):
        mbox.read_trailers(tmp_path / "trailers")
    (tmp_path / "trailers").write_bytes(b"Signed-off-by: J\xfcrgen <j@j>\n")
    with pytest.raises(Fail, match=r"TRAILERS=.*: not UTF-8"):
        mbox.read_trailers(tmp_path / "trailers")


def test_no_identity(covered: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    with pytest.raises(Fail, match="git does not know who you are, .* user.name .* user.email"):
        mbox.write_mails(covered.layout, "first", [])
    assert not (covered.layout.build / "mbox").exists()


def test_unsaved_work_is_not_left_out_silently(covered: Toy) -> None:
    covered.add("lib/new.c", "")
    covered.commit("lib: new")
    with pytest.raises(Fail, match="not saved: 1 commit"):
        mbox.write_mails(covered.layout, "first", [])
