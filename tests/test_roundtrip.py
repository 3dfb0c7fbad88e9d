# SPDX-License-Identifier: GPL-2.0-only
"""Composing and saving: byte for byte the same, whatever a developer does to the commits between."""

from __future__ import annotations

import pytest
from lr import series
from lr.ui import Fail
from toy import Toy


def rebase(toy: Toy, script: str) -> None:
    """An interactive rebase whose list of commits is edited by a sed script."""
    toy.git("rebase", "-q", "-i", "base", env={"GIT_SEQUENCE_EDITOR": f"sed -i -e '{script}'", "GIT_EDITOR": "true"})


def assert_stable(toy: Toy) -> None:
    """tree after save after tree is the same, in build/linux and in the checkout."""
    files, head = toy.files(), toy.git("rev-parse", "HEAD")
    toy.tree()
    assert toy.git("rev-parse", "HEAD") == head
    assert toy.save() == []
    assert toy.files() == files
    assert toy.git("status", "--porcelain") == ""


def test_files_as_saved(made: Toy) -> None:
    assert (made.root / "series/index").read_text() == (
        "# SPDX-License-Identifier: GPL-2.0-only\n# What this is.\n\n[first]\nmm-vmscan-say-ten.patch\n\n# about it\n"
        "[second]\n# the core\nmm-add-ours-v2-for-the-2nd-time.patch\n    mm/ours.c\n"
        "    tools/testing/selftests/mm/ours.sh\ndocumentation-mm-describe-it.patch\n"
        "    Documentation/admin-guide/mm/reclaim.rst\n"
    )
    assert (made.root / "series/second/documentation-mm-describe-it.patch").read_text() == (
        "Subject: Documentation/mm: describe it\n\nWhy.\n---\n"
    )
    patch = (made.root / "series/first/mm-vmscan-say-ten.patch").read_text()
    assert patch.startswith("Subject: mm/vmscan: say ten\n\nWhy.\n---\ndiff --git a/mm/vmscan.c b/mm/vmscan.c\n")
    assert (made.root / "tools/testing/selftests/mm/ours.sh").stat().st_mode & 0o777 == 0o755
    assert_stable(made)


def test_hashes_are_reproducible(made: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    head = made.git("rev-parse", "HEAD")
    made.layout.linux.rename(made.layout.build / "old")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "somebody")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    made.tree()
    assert made.git("rev-parse", "HEAD") == head
    assert made.git("log", "-1", "--format=%an <%ae> %at") == "linux-reclaim <linux-reclaim@localhost> 1767225600"


def test_reorder_keeps_sections_names_and_comments(made: Toy) -> None:
    rebase(made, "1{h;d};3{G}")
    made.save()
    assert made.subjects() == [
        "mm: add ours (v2) for the 2nd time",
        "Documentation/mm: describe it",
        "mm/vmscan: say ten",
    ]
    loaded = series.load(made.root)
    assert [entry.section for entry in loaded.entries] == ["second", "second", "first"]
    assert "# about it\n[second]\n# the core\nmm-add" in (made.root / "series/index").read_text()
    assert_stable(made)


def test_reorder_that_splits_a_section_round_trips(made: Toy) -> None:
    rebase(made, "1{h;d};2{G}")
    made.save()
    assert series.load(made.root).split_sections == ["second"]
    assert_stable(made)


def test_drop(made: Toy) -> None:
    rebase(made, "2d")
    changed = made.save()
    assert made.subjects() == ["mm/vmscan: say ten", "Documentation/mm: describe it"]
    assert "mm/ours.c" in changed and not (made.root / "mm").exists()
    assert not (made.root / "series/second/mm-add-ours-v2-for-the-2nd-time.patch").exists()
    assert_stable(made)


def test_squash_takes_the_first_place(made: Toy) -> None:
    rebase(made, "3s/^pick/fixup/")
    made.save()
    assert made.subjects() == ["mm/vmscan: say ten", "mm: add ours (v2) for the 2nd time"]
    assert series.load(made.root).entries[1].paths == [
        "Documentation/admin-guide/mm/reclaim.rst",
        "mm/ours.c",
        "tools/testing/selftests/mm/ours.sh",
    ]
    assert_stable(made)


def test_split(made: Toy) -> None:
    made.git("reset", "-q", "HEAD~2")
    made.git("add", "mm/ours.c")
    made.git("commit", "-q", "-m", "mm: add ours (v2) for the 2nd time", "-m", "Why.")
    made.git("add", "mm/vmscan.c", "tools")
    made.git("commit", "-q", "-m", "mm: the other half")
    made.git("add", "-A")
    made.git("commit", "-q", "-m", "Documentation/mm: describe it", "-m", "Why.")
    made.save()
    loaded = series.load(made.root)
    assert [(entry.name, entry.section) for entry in loaded.entries] == [
        ("mm-vmscan-say-ten.patch", "first"),
        ("mm-add-ours-v2-for-the-2nd-time.patch", "second"),
        ("mm-the-other-half.patch", "second"),
        ("documentation-mm-describe-it.patch", "second"),
    ]
    assert_stable(made)


def test_empty_commit(made: Toy) -> None:
    made.git("commit", "-q", "--allow-empty", "-m", "mm: nothing yet", "-m", "A place.\n\n  indented é\n\nend")
    made.save()
    assert (made.root / "series/second/mm-nothing-yet.patch").read_text() == (
        "Subject: mm: nothing yet\n\nA place.\n\n  indented é\n\nend\n---\n"
    )
    assert made.subjects()[-1] == "mm: nothing yet"
    assert_stable(made)


def test_everything_dropped(made: Toy) -> None:
    made.git("reset", "-q", "--hard", "base")
    made.save()
    assert made.subjects() == [] and series.load(made.root).entries == []
    assert_stable(made)


def test_new_first_commit_takes_its_successors_section(made: Toy) -> None:
    made.git("checkout", "-q", "--detach", "base")
    made.add("lib/early.c", "int early;\n")
    new = made.commit("lib: early")
    made.git("rebase", "-q", "--onto", new, "base", "series")
    made.save()
    assert [(entry.name, entry.section) for entry in series.load(made.root).entries[:2]] == [
        ("lib-early.patch", "first"),
        ("mm-vmscan-say-ten.patch", "first"),
    ]
    assert_stable(made)


def test_reworded_commit_keeps_its_section(made: Toy) -> None:
    rebase(made, '1s/$/\\nexec git -c user.name=D -c user.email=d@d commit -q --amend -m "mm\\/vmscan: say 10"/')
    made.save()
    entry = series.load(made.root).entries[0]
    assert (entry.name, entry.section) == ("mm-vmscan-say-10.patch", "first")
    assert not (made.root / "series/first/mm-vmscan-say-ten.patch").exists()
    assert_stable(made)


def test_deleted_renamed_and_odd_files_of_the_base(made: Toy) -> None:
    made.git("mv", "fs/inode.c", "fs/inode2.c")
    made.git("rm", "-q", "fs/odd name.c")
    (made.linux / "MAINTAINERS").chmod(0o755)
    made.commit("fs: move things")
    made.save()
    assert (made.root / "fs/inode2.c").exists()
    assert "deleted file mode" in (made.root / "series/second/fs-move-things.patch").read_text()
    assert_stable(made)


def test_no_newline_at_the_end_and_strange_hunks(made: Toy) -> None:
    made.add("fs/inode.c", "int a;\n--- a/b\n+++ b/c\n@@ -1 +1 @@\ndiff --git a/x b/x\nint c;")
    made.add("mm/raw.c", "no newline")
    made.commit("fs: strange")
    made.save()
    made.git("revert", "--no-edit", "HEAD~0", "--no-commit")
    made.git("checkout", "HEAD", "mm/raw.c")
    made.commit("fs: strange no more")
    made.save()
    assert_stable(made)


def test_untouched_files_keep_their_time(made: Toy) -> None:
    before = (made.linux / "fs/inode.c").stat().st_mtime_ns, (made.linux / "mm/ours.c").stat().st_mtime_ns
    made.write("mm/ours.c", "int ours = 2;\n")
    made.tree()
    after = (made.linux / "fs/inode.c").stat().st_mtime_ns, (made.linux / "mm/ours.c").stat().st_mtime_ns
    assert before[0] == after[0] and before[1] != after[1]


@pytest.mark.parametrize("word", ["fixup", "squash", "amend"])
def test_unfinished_commits_are_refused(made: Toy, word: str) -> None:
    made.edit("mm/ours.c", "ours", "mine")
    made.commit(f"{word}! mm: add ours (v2) for the 2nd time")
    with pytest.raises(Fail, match=rf"a {word}! commit; fold it in first: .*--autosquash base"):
        made.save()


def test_overlay_file_of_two_commits_names_both(made: Toy) -> None:
    made.edit("mm/ours.c", "ours", "mine")
    made.commit("mm: again")
    files = made.files()
    with pytest.raises(Fail, match=r"mm/ours.c is changed by \w+ \(mm: add ours .*\) and by \w+ \(mm: again\)"):
        made.save()
    assert made.files() == files


def test_merge_is_refused(made: Toy) -> None:
    made.git("checkout", "-q", "-b", "side", "HEAD~1")
    made.add("lib/side.c", "int side;\n")
    made.commit("lib: side")
    made.git("checkout", "-q", "series")
    made.git("merge", "-q", "--no-edit", "side")
    with pytest.raises(Fail, match="a merge; the series is a line of commits"):
        made.save()


def test_wrong_kinds_of_file_are_refused(made: Toy) -> None:
    (made.linux / "mm/link.c").symlink_to("ours.c")
    made.commit("mm: link")
    with pytest.raises(Fail, match="mm/link.c is a symbolic link"):
        made.save()
    made.git("reset", "-q", "--hard", "HEAD~1")
    made.add("arch/x86/new.c", "int x;\n")
    made.commit("x86: new")
    with pytest.raises(Fail, match=r"arch/x86/new.c lies outside the overlay's folders .*OVERLAY_DIRS"):
        made.save()
    made.git("reset", "-q", "--hard", "HEAD~1")
    (made.linux / "fs/inode.c").write_bytes(b"\0\1\2")
    made.commit("fs: binary")
    with pytest.raises(Fail, match="binary"):
        made.save()


def test_message_that_is_not_utf8(made: Toy) -> None:
    (made.root / "message").write_bytes("mm/vmscan: say twenty\n\nJürgen met it.\n".encode("latin-1"))
    made.edit("mm/vmscan.c", "line 20\n", "line twenty\n")
    made.git("-c", "i18n.commitEncoding=ISO-8859-1", "commit", "-qa", "-F", str(made.root / "message"))
    assert "Jürgen met it." in made.git("log", "-1", "--format=%B")
    made.save()
    assert "\nJürgen met it.\n" in (made.root / "series/second/mm-vmscan-say-twenty.patch").read_text(encoding="utf-8")
    made.git("-c", "i18n.commitEncoding=US-ASCII", "commit", "-q", "--amend", "-F", str(made.root / "message"))
    files = made.files()
    with pytest.raises(Fail, match=r"[0-9a-f]{12}: its message cannot be read as US-ASCII; reword it in UTF-8"):
        made.save()
    assert made.files() == files


def test_commits_of_one_name_are_refused(made: Toy) -> None:
    made.git("commit", "-q", "--allow-empty", "-m", "mm/vmscan: say ten")
    with pytest.raises(Fail, match="two commits are called 'mm/vmscan: say ten'"):
        made.save()


def test_history_off_the_base_is_refused(made: Toy) -> None:
    made.git("checkout", "-q", "--orphan", "other")
    made.commit("all anew")
    with pytest.raises(Fail, match="does not stand on its tag `base`"):
        made.save()
