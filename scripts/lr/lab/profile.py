# SPDX-License-Identifier: GPL-2.0-only
"""The verb `profile`: instructions by function, thread and vCPU, and waiting by spinlock and caller, counted exactly.

One boot of each kernel, in lockstep, with a counter for each function in the plugin. What was counted is kept in
build/profile.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lr import bench
from lr.files import whole
from lr.lab import kernels, lockstep, runner
from lr.lab.lockstep import Window
from lr.layout import Layout, here
from lr.options import env, flag, number
from lr.ui import Fail, Progress, grid, say

# Threads whose functions get a table of their own; the others are summed up.
_OF_INTEREST = ("readers", "kswapd")
_ROWS, _ROWS_RANGE = 15, (1, 1000)

# The lock that a function waits for, where it takes one only. A mapping's two locks are told apart by their addresses:
# what inserts a folio takes i_pages alone.
_LOCK_OF = {
    "__filemap_add_folio": "i_pages",
    "filemap_add_folio": "i_pages",
    "__remove_mapping": "i_pages or i_lock",
    "workingset_update_node": "list_lru",
    "free_pcppages_bulk": "zone",
    "free_one_page": "zone",
    "__rmqueue_pcplist": "zone",
    "rmqueue_bulk": "zone",
    "get_page_from_freelist": "zone",
    "shrink_active_list": "lruvec",
    "move_folios_to_lru": "lruvec",
    "folio_batch_move_lru": "lruvec",
    "lru_add": "lruvec",
    "__page_cache_release": "lruvec",
    "folios_put_refs": "lruvec",
    "evict_folios": "lruvec",
    "isolate_folios": "lruvec",
    "lru_gen_add_folio": "lruvec",
    "try_to_inc_max_seq": "lruvec",
    "inc_max_seq": "lruvec",
    "raw_spin_rq_lock_nested": "rq",
    "raw_spin_rq_trylock": "rq",
    "try_to_wake_up": "pi_lock",
    "sched_balance_rq": "rq",
    "__schedule": "rq",
    "sched_tick": "rq",
    "inode_sleep_on_writeback": "i_lock",
    "iput": "i_lock",
}
_UNCLEAR = "i_pages or i_lock"


@dataclass(frozen=True)
class Profile:
    """One kernel's measurement: threads by function, the CPUs' sums, and the waiting by (lock, caller).

    started and image, the image's digest, say which state it is of.
    """

    scenario: str
    variant: str
    kernel: str
    point: str
    rounds: int
    threads: dict[str, dict[str, int]]
    vcpus: list[int]
    waiting: dict[str, int]
    started: str = ""
    image: str = ""

    @property
    def instructions(self) -> int:
        """Of all that is not idle."""
        return sum(sum(own.values()) for thread, own in self.threads.items() if thread != "swapper")


def group_of(thread: str) -> str:
    """Which table a thread belongs to."""
    for name in _OF_INTEREST:
        if thread.startswith(name):
            return name
    return "swapper" if thread == "swapper" else "others"


def lock_names(rows: Iterable[tuple[str, str, int, int]]) -> dict[tuple[str, str], str]:
    """The lock's name for each address and caller.

    A caller that may take two locks is told by the address, if somebody else takes that one only.
    """
    rows = list(rows)
    clear = {address: _LOCK_OF[caller] for address, caller, *_ in rows if _LOCK_OF.get(caller, _UNCLEAR) != _UNCLEAR}
    found = {}
    for address, caller, *_ in rows:
        name = _LOCK_OF.get(caller)
        if name is None or name == _UNCLEAR:
            name = clear.get(address, "i_lock" if name == _UNCLEAR else "?")
        found[address, caller] = name
    return found


def summarize(job: runner.Job, point: str, windows: Sequence[Window]) -> Profile:
    """All measurements of a point as one."""
    threads: dict[str, Counter[str]] = {}
    vcpus: Counter[int] = Counter()
    waiting: Counter[str] = Counter()
    for window in windows:
        for vcpu, thread, function, count in window.profile:
            threads.setdefault(group_of(thread), Counter())[function] += count
            if thread != "swapper":
                vcpus[vcpu] += count
        names = lock_names(window.waiting)
        for address, caller, count, _ in window.waiting:
            waiting[f"{names[address, caller]}: {caller}"] += count
    return Profile(
        job.scenario.name,
        job.variant.name,
        job.kernel.label,
        point,
        sum(window.rounds for window in windows),
        {name: dict(own) for name, own in threads.items()},
        [vcpus[number] for number in range(job.variant.machine.cpus)],
        dict(waiting),
    )


def take(layout: Layout, job: runner.Job, image: Path, options: runner.Options) -> list[Profile]:
    """Boot once; the points' main measurements."""
    folder, started = layout.build / "profile", time.strftime("%Y-%m-%dT%H:%M:%S")
    # QEMU takes the file's name without a comma.
    name = "-".join((job.scenario.name, job.variant.name, job.kernel.label.replace(",", "+")))
    out = folder / f"{name}.lockstep"
    outcome, windows = runner.boot(layout, job, image, options, out, profile=True)
    measured = lockstep.by_point(outcome.output, windows)
    found = [summarize(job, point, own) for (point, what), own in measured.items() if not what]
    found = [replace(one, started=started, image=kernels.digest(image)) for one in found]
    for one in found:
        with whole(folder / f"{name}-{one.point}.json") as part:
            part.write_text(json.dumps(asdict(one), indent=1) + "\n")
    out.unlink(missing_ok=True)
    return found


def read_all(layout: Layout) -> list[Profile]:
    """What earlier runs kept."""
    found = []
    for path in sorted((layout.build / "profile").glob("*.json")):
        try:
            found.append(Profile(**json.loads(path.read_text())))
        except (ValueError, TypeError) as exc:
            raise Fail(f"{path} is no profile ({exc}); remove it") from exc
    return sorted(found, key=lambda one: one.kernel != "stock")


def beside(profiles: Sequence[Profile]) -> list[list[Profile]]:
    """The kernels of each scenario, variant and point."""
    found: dict[tuple[str, str, str], list[Profile]] = {}
    for one in profiles:
        found.setdefault((one.scenario, one.variant, one.point), []).append(one)
    return list(found.values())


def functions(profile: Profile) -> dict[str, int]:
    """Instructions by thread and function, of all that is not idle."""
    busy = {group: own for group, own in profile.threads.items() if group != "swapper"}
    return {f"{group}: {name}": count for group, own in busy.items() for name, count in own.items()}


def shares(own: Mapping[str, int], whole: int) -> dict[str, float]:
    """In percent of the whole."""
    return {name: 100 * count / max(whole, 1) for name, count in own.items()}


def top(columns: Sequence[Mapping[str, float]], rows: int) -> list[str]:
    """The names that weigh most in any column."""
    most: dict[str, float] = {}
    for column in columns:
        for name, share in column.items():
            most[name] = max(most.get(name, 0.0), share)
    shown = [name for name in most if most[name] >= 0.005]
    return sorted(shown, key=lambda name: (-most[name], name))[:rows]


def render(profiles: Sequence[Profile], rows: int = _ROWS) -> str:
    """The kernels of one scenario, variant and point beside each other, in percent of all that is not idle."""
    first = profiles[0]
    heads = [one.kernel for one in profiles]
    parts = [f"{first.scenario} {first.variant}, {first.point}: percent of all instructions (idle CPUs left out)"]
    groups = [group for group in (*_OF_INTEREST, "others") if any(group in one.threads for one in profiles)]
    body = [["thread", *heads]]
    for group in groups:
        cells = (100 * sum(one.threads.get(group, {}).values()) / max(one.instructions, 1) for one in profiles)
        body.append([group, *(f"{cell:.1f}" for cell in cells)])
    body.append(["instructions a round", *(f"{one.instructions / max(one.rounds, 1):.0f}" for one in profiles)])
    parts.append(grid(body, 1))
    for group in groups:
        columns = [shares(one.threads.get(group, {}), one.instructions) for one in profiles]
        body = [[f"{group}: function", *heads]]
        body += [[name, *(f"{column.get(name, 0.0):.2f}" for column in columns)] for name in top(columns, rows)]
        parts.append(grid(body, 1))
    columns = [shares(one.waiting, one.instructions) for one in profiles]
    body = [["waiting for a spinlock: caller", *heads]]
    body.append(["all", *(f"{sum(column.values()):.2f}" for column in columns)])
    body += [[name, *(f"{column.get(name, 0.0):.2f}" for column in columns)] for name in top(columns, rows)]
    parts.append(grid(body, 1))
    body = [["vCPU: instructions a round", *heads]]
    for vcpu in range(max(len(one.vcpus) for one in profiles)):
        cells = (one.vcpus[vcpu] / max(one.rounds, 1) if vcpu < len(one.vcpus) else 0 for one in profiles)
        body.append([str(vcpu), *(f"{cell:.0f}" for cell in cells)])
    parts.append(grid(body, 1))
    return "\n\n".join(parts) + "\n"


def main(argv: list[str]) -> int:
    """Profile and print the tables; 1 when a kernel could not be profiled."""
    words = argparse.ArgumentParser(prog="profile", description=__doc__)
    words.add_argument("--scenario", default=env("SCENARIO", "kswapd-scaling"), help="default: kswapd-scaling")
    words.add_argument("--variant", default=env("VARIANT", ""), help="variants by name; default: the quick ones")
    words.add_argument("--kernels", default=env("KERNELS", "stock series"), help="default: stock series")
    words.add_argument("--quick", default=env("QUICK", "1"), help="0: the points and seconds of a full run")
    words.add_argument("--rows", default=env("ROWS", str(_ROWS)), help="functions in a table")
    words.add_argument("--quantum", default=env("QUANTUM", str(lockstep.QUANTUM)), help="instructions of a round")
    options = words.parse_args(argv)
    rows = number("ROWS", options.rows, *_ROWS_RANGE)
    quantum = number("QUANTUM", options.quantum, *lockstep.QUANTUM_RANGE)
    layout = here()
    chosen = bench.select(layout, options.scenario)
    columns = kernels.parse(options.kernels)
    asked = runner.Options(1, flag("QUICK", options.quick), variants=bench.variants(chosen, options.variant))
    todo = [job for job in runner.jobs(chosen, columns, asked) if not job.variant.machine.icount]
    if not todo:
        raise Fail("nothing to measure: none of the variants runs in lockstep; choose others with VARIANT=")
    images = kernels.images(layout, columns)
    bench.prepare(layout, chosen)
    asked = replace(asked, lockstep=lockstep.prepare(layout, quantum))
    found: list[Profile] = []
    failed = 0
    with Progress("profile", len(todo)) as progress:
        for done, job in enumerate(todo, start=1):
            progress.update(done - 1, job.label)
            try:
                found += take(layout, job, images[job.kernel.what], asked)
            except Fail as exc:
                failed += 1
                say(f"FAILED {exc}")
            progress.update(done)
    for own in beside(found):
        say(render(own, rows))
    say("kept in build/profile; `make report` draws it")
    return 1 if failed else 0
