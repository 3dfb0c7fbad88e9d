# SPDX-License-Identifier: GPL-2.0-only
"""The verb tree: unsaved work is kept, what cannot be composed is named and changes nothing, interrupts do no harm."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lr import compose
from lr import state as states
from lr.clean import clean
from lr.ui import Fail
from toy import Toy


def change_series(toy: Toy) -> None:
    """Something for tree to do."""
    toy.write("mm/ours.c", "int ours = 2;\n")


def assert_refused(toy: Toy, message: str) -> None:
    """tree stops with this message and leaves build/linux alone."""
    head, status = toy.git("rev-parse", "HEAD"), toy.git("status", "--porcelain")
    with pytest.raises(Fail, match=message) as caught:
        toy.tree()
    assert len(str(caught.value)) < 400 and "\n" not in str(caught.value)
    assert (toy.git("rev-parse", "HEAD"), toy.git("status", "--porcelain")) == (head, status)


def test_edited_file_is_kept(made: Toy) -> None:
    change_series(made)
    made.edit("fs/inode.c", "int a", "int z")
    assert_refused(made, "not saved: 1 edited file: fs/inode.c; commit it, then `make save` keeps it")
    assert (made.linux / "fs/inode.c").read_text().startswith("int z")


def test_many_and_new_files_are_summed_up(made: Toy) -> None:
    change_series(made)
    for name in "abcde":
        made.add(f"mm/{name}.c", "")
    assert_refused(made, r"5 edited files: mm/a.c \(new\), mm/b.c \(new\), mm/c.c \(new\) and 2 more")


def test_new_file_hidden_by_the_kernels_gitignore_is_kept(made: Toy) -> None:
    change_series(made)
    made.add("mm/tests/.kunitconfig", "CONFIG_KUNIT=y\n")
    assert_refused(made, r"mm/tests/.kunitconfig \(new\)")


def test_staged_work_and_a_rebase_are_kept(made: Toy) -> None:
    change_series(made)
    made.edit("fs/inode.c", "int a", "int z")
    made.git("add", "-A")
    assert_refused(made, "1 edited file: fs/inode.c")
    made.git("reset", "-q", "--hard")
    (made.linux / ".git/rebase-merge").mkdir()
    assert_refused(made, "a rebase in progress; finish or abort what is in progress")


def test_commits_are_kept(made: Toy) -> None:
    change_series(made)
    made.add("lib/new.c", "")
    made.commit("lib: new")
    assert_refused(made, r"not saved: 1 commit: \w+ lib: new; `make save` keeps it")


def test_dropped_commits_are_kept_dropped(made: Toy) -> None:
    change_series(made)
    made.git("reset", "-q", "--hard", "HEAD~1")
    assert_refused(made, r"1 dropped commit: \w+ Documentation/mm: describe it; `make save` keeps it")


def test_commits_on_the_branch_while_head_is_elsewhere_are_kept(made: Toy) -> None:
    change_series(made)
    composed = made.git("rev-parse", "HEAD")
    made.add("lib/new.c", "")
    made.commit("lib: new")
    made.git("checkout", "-q", "--detach", composed)
    assert_refused(made, r"1 commit: \w+ lib: new")


def test_looking_at_an_older_commit_is_no_work(made: Toy) -> None:
    made.git("checkout", "-q", "--detach", "HEAD~1")
    change_series(made)
    made.tree()
    assert made.git("symbolic-ref", "HEAD") == "refs/heads/series"
    assert (made.linux / "mm/ours.c").read_text() == "int ours = 2;\n"


def test_nothing_to_do_lets_others_build_unsaved_work(made: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    made.edit("fs/inode.c", "int a", "int z")
    made.tree(strict=False)
    assert "not saved: 1 edited file: fs/inode.c" in capsys.readouterr().err
    assert_refused(made, "not saved")
    change_series(made)
    with pytest.raises(Fail, match="not saved"):
        made.tree(strict=False)


def test_ignored_file_in_the_way_is_kept(made: Toy) -> None:
    made.add("mm/.ours.c", "mine\n")
    made.write("mm/.ours.c", "theirs\n")
    made.relist("    mm/ours.c", "    mm/.ours.c\n    mm/ours.c")
    assert_refused(made, r"build/linux/mm/.ours.c is in the way of the series' file of that name; move it away")
    assert (made.linux / "mm/.ours.c").read_text() == "mine\n"
    (made.linux / "mm/.ours.c").unlink()
    made.tree()
    assert (made.linux / "mm/.ours.c").read_text() == "theirs\n"


def test_saved_commits_are_kept_under_a_reference(made: Toy) -> None:
    made.add("lib/new.c", "")
    mine = made.commit("lib: new")
    made.save()
    assert made.git("rev-parse", "HEAD") != mine
    assert mine in made.git("for-each-ref", "--format=%(objectname)", "refs/lr/kept").splitlines()
    made.tree()


def test_hunk_that_does_not_apply(made: Toy) -> None:
    path = made.root / "series/second/mm-add-ours-v2-for-the-2nd-time.patch"
    path.write_text(path.read_text().replace(" line 29\n", " line twenty-nine\n"))
    assert_refused(
        made,
        r"^series/second/mm-add-ours-v2-for-the-2nd-time.patch does not apply: "
        r"mm/vmscan.c, hunk 1 \(@@ -27,7 \+27,7 @@.*\) does not match; correct it, build/linux is as it was$",
    )


def patch_of_two_files(made: Toy) -> Path:
    """A saved patch with one hunk in a first file and two in a second."""
    made.edit("fs/inode.c", "int a", "int z")
    made.edit("mm/vmscan.c", "line 1\n", "line one\n")
    made.edit("mm/vmscan.c", "line 50\n", "line fifty\n")
    made.commit("mm: two files")
    made.save()
    return made.root / "series/second/mm-two-files.patch"


def test_second_hunk_of_a_second_file_is_named(made: Toy) -> None:
    path = patch_of_two_files(made)
    path.write_text(path.read_text().replace(" line 49\n", " line forty-nine\n"))
    assert_refused(made, r"^series/second/mm-two-files.patch does not apply: mm/vmscan.c, hunk 2 \(@@ -47,7 \+47,7 @@")


def test_a_hunk_that_is_cut_short_is_named(made: Toy) -> None:
    path = patch_of_two_files(made)
    good = path.read_text()
    # In the middle, and at the end: git notices the one where the next hunk begins, the other at the end of all.
    path.write_text(good.replace(" line 2\n", ""))
    assert_refused(made, r"^series/second/mm-two-files.patch is malformed: mm/vmscan.c, hunk 1 \(@@ -1,4 \+1,4 @@\)")
    path.write_text(good.replace(" line 49\n", ""))
    assert_refused(made, r"^series/second/mm-two-files.patch is malformed: mm/vmscan.c, hunk 2 \(@@ -47,7 \+47,7 @@\)")


def test_no_fuzz(made: Toy) -> None:
    # Fuzz would ignore this: only the outermost line of the context differs.
    path = made.root / "series/first/mm-vmscan-say-ten.patch"
    path.write_text(path.read_text().replace(" line 7\n", " line seven\n"))
    assert_refused(made, "mm-vmscan-say-ten.patch does not apply: mm/vmscan.c, hunk 1")


def test_offset_is_told_and_refreshed_by_save(made: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    path = made.root / "series/first/mm-vmscan-say-ten.patch"
    good = path.read_text()
    path.write_text(good.replace("@@ -7,7 +7,7 @@", "@@ -9,7 +9,7 @@"))
    made.tree()
    said = capsys.readouterr().err
    assert "series/first/mm-vmscan-say-ten.patch: mm/vmscan.c hunk 1 applies -2 lines from where it says" in said
    assert made.save() == ["series/first/mm-vmscan-say-ten.patch"]
    assert path.read_text() == good


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Subject: mm", "From: a\nSubject: mm", "the first line is not `Subject: ...`; .* no author"),
        ("say ten\n\n", "say ten\nDate: now\n\n", "the line after the subject is not blank"),
        ("---\n", "---\n fs/inode.c | 2 +-\n\n", "text between `---` and the first `diff --git`"),
        ("\n---\n", "\n", "no line `---` after the message"),
        ("mm/vmscan.c", "mm/gone.c", "mm/gone.c is not in the base; a new file lies in the repository"),
        ("mm/vmscan.c", "mm/ours.c", "changes mm/ours.c, an overlay file of mm-add-ours"),
    ],
)
def test_malformed_patch(made: Toy, old: str, new: str, message: str) -> None:
    path = made.root / "series/first/mm-vmscan-say-ten.patch"
    path.write_text(path.read_text().replace(old, new))
    assert_refused(made, f"^series/first/mm-vmscan-say-ten.patch: {message}")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    mm/ours.c", "    arch/x86/a.c", r"series/index:11: arch/x86/a.c lies outside the overlay's folders"),
        ("    mm/ours.c", "    mm/../a.c", r"series/index:11: mm/../a.c: not a plain path"),
        (
            "    mm/ours.c",
            "    mm/none.c",
            r"mm/none.c: not there or not a plain file, but series/index lists it under mm-add",
        ),
        ("    mm/ours.c", "    fs/inode.c", r"fs/inode.c: overlay file of mm-add.*, but the base has it"),
        ("mm-vmscan-say-ten", "gone", r"series/first/gone.patch: not there, but series/index lists it"),
        ("documentation-mm-describe-it", "mm-vmscan-say-ten", r"series/index:13: mm-vmscan-say-ten.* is listed twice"),
        ("    Documentation/admin-guide/mm/reclaim.rst", "    mm/ours.c", r"mm/ours.c belongs to mm-add.* already"),
        ("[first]", "[First One]", r"series/index:4: '\[First One\]' is neither a \[section\]"),
    ],
)
def test_malformed_series(made: Toy, old: str, new: str, message: str) -> None:
    made.write("fs/inode.c", "int a;\n")
    made.relist(old, new)
    assert_refused(made, message)


def test_newer_edits_are_not_overwritten_by_save(made: Toy) -> None:
    made.edit("mm/ours.c", "ours", "theirs")
    made.git("commit", "-q", "-a", "--fixup=HEAD~1")
    made.git("rebase", "-q", "-i", "--autosquash", "base", env={"GIT_SEQUENCE_EDITOR": "true"})
    made.write("mm/ours.c", "int mine;\n")
    files = made.files()
    with pytest.raises(
        Fail, match=r"edited since the last tree or save, and save would undo that: mm/ours.c; .*FORCE=1"
    ):
        made.save()
    assert made.files() == files
    assert made.save(force=True)
    assert (made.root / "mm/ours.c").read_text() == "int theirs;\n"
    copies = list((made.layout.build / "kept").rglob("ours.c"))
    assert [copy.read_text() for copy in copies] == ["int mine;\n"]


def test_edits_that_save_leaves_alone_do_not_stop_it(made: Toy) -> None:
    made.write("README.md", "text\n")
    made.add("lib/new.c", "")
    made.commit("lib: new")
    assert made.save() == ["series/index", "series/second/lib-new.patch", "lib/new.c"]


def test_uncommitted_work_stops_save(made: Toy) -> None:
    made.edit("fs/inode.c", "int a", "int z")
    files = made.files()
    with pytest.raises(Fail, match="build/linux holds 1 edited file: fs/inode.c; finish and commit it"):
        made.save()
    assert made.files() == files


def test_commits_on_the_branch_that_head_lacks_stop_save(made: Toy) -> None:
    composed = made.git("rev-parse", "HEAD")
    made.add("lib/mine.c", "")
    mine = made.commit("lib: mine")
    made.git("checkout", "-q", "--detach", composed)
    made.add("lib/other.c", "")
    made.commit("lib: other")
    with pytest.raises(Fail, match="the branch series holds commits that HEAD does not"):
        made.save()
    assert made.git("rev-parse", "series") == mine
    made.git("branch", "-q", "-f", "series", "HEAD")
    assert "lib/other.c" in made.save()


def test_save_needs_a_tree(toy: Toy) -> None:
    with pytest.raises(Fail, match="no build/linux to save; run `make tree` first"):
        toy.save()


def test_interrupted_move_is_finished(made: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    change_series(made)
    made.write("mm/new.c", "int something;\n")
    made.relist("    mm/ours.c", "    mm/new.c\n    mm/ours.c")
    point = compose._point

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(compose, "_point", killed)
    with pytest.raises(KeyboardInterrupt):
        made.tree()
    monkeypatch.setattr(compose, "_point", point)
    # As if git had been killed too: one file half written, the index still the old one.
    made.git("read-tree", "HEAD")
    made.add("mm/new.c", "int some")
    with pytest.raises(Fail, match="interrupted `make tree`"):
        made.save()
    made.tree()
    assert (made.linux / "mm/new.c").read_text() == "int something;\n"
    assert made.git("status", "--porcelain") == ""


def test_commits_after_an_interrupted_move_are_kept(made: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    change_series(made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compose, "_point", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            made.tree()
    made.add("lib/mine.c", "")
    mine = made.commit("lib: mine")
    # A work tree of ours may have been at it.
    made.git("update-ref", "refs/lr/at/ablate", mine)
    made.tree()
    assert made.git("rev-parse", f"kept-{mine[:12]}") == mine and "not saved" in capsys.readouterr().err
    assert clean(made.layout) == [f"build/linux: other branches or stashes: kept-{mine[:12]}"]


def test_edit_after_an_interrupted_move_is_kept(made: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    change_series(made)
    monkeypatch.setattr(compose, "_point", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        made.tree()
    made.add("fs/inode.c", "mine\n")
    with pytest.raises(Fail, match="fs/inode.c was edited since: copy it away"):
        made.tree()
    assert (made.linux / "fs/inode.c").read_text() == "mine\n"


def test_foreign_or_damaged_build_linux(toy: Toy) -> None:
    toy.add("precious", "x")
    with pytest.raises(Fail, match="build/linux exists, but was not made by `make tree`; move it away"):
        toy.tree()
    (toy.linux / "precious").unlink()
    toy.linux.rmdir()
    toy.tree()
    states._path(toy.linux).write_text("{")
    with pytest.raises(Fail, match="state.json is damaged; move"):
        toy.tree()


def test_rerun_takes_nothing_apart(made: Toy) -> None:
    index = Path(made.linux / ".git/index").stat().st_mtime_ns
    made.tree()
    made.tree()
    assert Path(made.linux / ".git/index").stat().st_mtime_ns >= index
    assert not list(made.layout.build.glob("*.part")) and not list((made.linux / ".git").glob("lr-*"))


def test_messages_are_short(made: Toy) -> None:
    made.write("series/index", "nonsense\n")
    with pytest.raises(Fail) as caught:
        made.tree()
    assert re.fullmatch(r"series/index:1: 'nonsense' is neither a \[section\], a name.patch .*", str(caught.value))
