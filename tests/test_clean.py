# SPDX-License-Identifier: GPL-2.0-only
"""The verb clean: everything goes but work that is not saved."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from lr import build, guest
from lr import state as states
from lr.clean import clean
from lr.ui import Fail
from toy import Toy


def left(toy: Toy) -> list[str]:
    """What lies in build/ but for locks."""
    return sorted(path.name for path in toy.layout.build.iterdir() if not path.name.endswith("-lock"))


def test_all_goes_when_all_is_saved(made: Toy) -> None:
    (made.layout.build / "obj").mkdir()
    assert clean(made.layout) == []
    assert left(made) == [] and made.layout.series.exists()
    # Another verb may wait with the file open: it must not hold a lock that the next one does not see.
    assert (made.layout.build / ".linux-lock").exists()
    assert clean(made.layout) == []


def test_what_is_edited_while_clean_waits_stays(made: Toy) -> None:
    with ThreadPoolExecutor(1) as pool:
        with states.locked(made.layout, "bisect/obj"):
            end = pool.submit(clean, made.layout)
            time.sleep(0.3)
            made.edit("fs/inode.c", "int a", "int z")
        assert end.result() == ["build/linux: 1 edited file: fs/inode.c"]


def test_what_a_guest_runs_on_stays(made: Toy) -> None:
    with guest.folder_of(made.layout) as folder, guest.folder_of(made.layout):
        for force in (False, True):
            with pytest.raises(Fail, match="guests are running on what lies in build/; wait for them or end them"):
                clean(made.layout, force)
        assert folder.is_dir() and made.linux.exists()
    assert clean(made.layout) == []
    assert left(made) == []


def test_unsaved_work_stays_and_is_named(made: Toy) -> None:
    (made.layout.build / "obj").mkdir()
    made.edit("fs/inode.c", "int a", "int z")
    assert clean(made.layout) == ["build/linux: 1 edited file: fs/inode.c"]
    assert (made.linux / "fs/inode.c").read_text().startswith("int z")
    assert not (made.layout.build / "obj").exists()
    assert clean(made.layout, force=True) == []
    assert left(made) == []


def test_commits_stashes_branches_and_copies_stay(made: Toy) -> None:
    made.git("checkout", "-q", "-b", "idea")
    made.add("lib/idea.c", "")
    made.commit("lib: idea")
    made.git("checkout", "-q", "series")
    made.edit("fs/inode.c", "int a", "int z")
    made.git("stash")
    (made.layout.build / "kept").mkdir()
    assert clean(made.layout) == [
        "build/linux: other branches or stashes: idea, stash",
        "build/kept: copies of what save and mbox overwrote",
    ]
    made.tree()


def test_samples_and_edits_of_stock_stay(made: Toy) -> None:
    for name in ("bench/a/1.json", "bench-kernels/bzImage"):
        (made.layout.build / name).parent.mkdir(parents=True)
        (made.layout.build / name).write_text("")
    made.git("worktree", "add", "-q", "--detach", "../stock/linux", "base")
    stock = made.layout.build / "stock/linux"
    (stock / "fs/inode.c").write_text("int mine;")
    with pytest.raises(Fail, match="build/stock/linux has changes, which would be lost: fs/inode.c"):
        build.ensure(made.layout, "stock")
    assert clean(made.layout) == [
        "build/stock: edited in linux: fs/inode.c",
        "build/linux: build/stock/linux is a work tree of it",
        "build/bench: samples, which take hours",
    ]
    assert (stock / "fs/inode.c").read_text() == "int mine;"
    made.git("-C", str(stock), "commit", "-qam", "mine")
    assert build.changes(stock)[0].startswith("commit ")
    assert not (made.layout.build / "bench-kernels").exists()


def test_a_commit_made_in_a_work_tree_stays(made: Toy) -> None:
    for name in ("stock", "ablate", "bisect"):
        linux = made.layout.build / name / "linux"
        build.worktree(made.layout, linux, "base")
        (linux / "fs/inode.c").write_text("int mine;")
        made.git("-C", str(linux), "commit", "-qam", "mine")
        with pytest.raises(Fail, match=f"build/{name}/linux has changes, which would be lost: commit [0-9a-f]+; keep"):
            build.worktree(made.layout, linux, "series")
        assert made.git("-C", str(linux), "log", "-1", "--format=%s") == "mine"
    assert [line.split()[0] for line in clean(made.layout)] == [
        f"build/{name}:" for name in ("stock", "linux", "ablate", "bisect")
    ]


def test_a_commit_that_a_work_tree_was_at_is_no_work_of_it(made: Toy) -> None:
    made.edit("fs/inode.c", "int a", "int z")
    made.commit("fs: mine")
    build.worktree(made.layout, made.layout.build / "ablate/linux", "series")
    # Amended and saved, as after a fixup: the commit that was ablated is in no branch any more.
    made.edit("fs/inode.c", "int z", "int y")
    made.commit("fs: mine", "Why.", "--amend")
    made.save()
    assert clean(made.layout) == []


def test_foreign_build_linux_stays(toy: Toy) -> None:
    toy.add("precious", "x")
    assert clean(toy.layout) == ["build/linux: it was not made by `make tree`"]
    assert (toy.linux / "precious").exists()


def test_an_interrupted_clean_leaves_nothing_that_looks_like_work(made: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("lr.clean.shutil.rmtree", interrupt)
        with pytest.raises(KeyboardInterrupt):
            clean(made.layout)
    assert not made.linux.exists() and (made.layout.build / "linux.gone").exists()
    made.tree()
    assert clean(made.layout) == []
    assert left(made) == []


def test_files_that_git_ignores_are_work_too(made: Toy) -> None:
    (made.linux / ".git" / "info" / "exclude").write_text("*.patch\n*.o\n")
    (made.linux / "try.patch").write_text("mine")
    (made.linux / "a.o").write_text("a compiler's")
    assert clean(made.layout) == ["build/linux: 1 files that git ignores: try.patch"]
    assert (made.linux / "try.patch").exists()
