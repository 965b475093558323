"""What a run must survive: SIGKILL at any moment, stops and fresh starts, damaged checkpoints. `make torture` runs all.

This process imports everything and trains nothing: each child is forked from it, as fresh as a new process.
"""

import argparse
import contextlib
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import sklearn.datasets
import sklearn.model_selection
import torch.utils.tensorboard  # imported here so that no child has to
from rich.console import Console
from rich.progress import Progress
from tests.forks import start, wait
from tests.training.small_runs import KINDS, Kind, StopAfter, checkpoint_differences, differences, small_run

from headwork.storage import DamagedError, load, verify
from headwork.training import SGD, AdamW, Run, StoppedError, StopRequest, loop, open_run, session
from headwork.training.checkpoints import checkpoints, find_whole
from headwork.training.display import Lines

Track = Callable[[int, str], Iterator[int]]


def train_run(run: Run, stop: StopRequest | None = None, *, keep_all: bool = False) -> int:
    """In a child: train to the end or to the stop."""
    if keep_all:
        session.prune = lambda *_: None
    try:
        loop.train_run(open_run(run.folder), Lines(), stop)
    except StoppedError as error:
        return error.exit_code
    return 0


def begin(run: Run, *arguments: object, **options: bool) -> int:
    """Start a child that goes on with a run; its process id."""
    if not run.folder.exists():
        run.folder.mkdir(parents=True)
        run.write()
    return start(lambda: train_run(run, *arguments, **options), run.folder / "output.txt")


def expect(process: int, code: int, run: Run) -> None:
    if (got := wait(process)) != code:
        said = (run.folder / "output.txt").read_text()
        raise SystemExit(f"a child ended with {got} instead of {code}, in {run.folder}:\n{said}")


# --- Stops and fresh starts -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Combination:
    """One way to train, and one place to stop."""

    kind: Kind
    dropout: float
    augment: bool
    accumulate: int
    ema: float | None
    workers: int
    optimiser: AdamW | SGD
    step: int
    seed: int

    @property
    def looks(self) -> int:
        """How often the loop has looked when it stops: in the middle of the next step, if that has parts."""
        return self.step * self.accumulate + (2 if self.accumulate > 1 else 0)

    def new_run(self, folder: Path) -> Run:
        settings = {name: value for name, value in vars(self).items() if name not in ("kind", "step")}
        return small_run(folder, self.kind, **settings)


def combinations() -> list[Combination]:
    """All 64 of six things that are on or off; the model and the place (5 steps are an epoch) vary along with them."""
    switches = itertools.product((False, True), repeat=6)
    return [
        Combination(
            kind=KINDS[number % len(KINDS)],
            dropout=0.1 if dropout else 0.0,
            augment=augment,
            accumulate=3 if accumulate else 1,
            ema=0.9 if ema else None,
            workers=2 if workers else 0,
            optimiser=SGD(lr=0.05) if sgd else AdamW(lr=0.01),
            step=(5, 7, 3, 0 if accumulate else 9)[(number // 3 + number // 16) % 4],
            seed=number,
        )
        for number, (dropout, augment, accumulate, ema, workers, sgd) in enumerate(switches)
    ]


def resume_all(root: Path, chosen: list[Combination], track: Track) -> dict[str, int]:
    """Stop each, go on in another process, and compare with a run that was left alone."""
    count: Counter[str] = Counter(bitwise=0, different=0)
    for number in track(len(chosen), "stops"):
        how = chosen[number]
        alone, stopped = how.new_run(root / f"{number}-alone"), how.new_run(root / f"{number}-stopped")
        processes = begin(alone), begin(stopped, StopAfter(how.looks))
        expect(processes[1], 128 + signal.SIGTERM, stopped)
        expect(begin(stopped), 0, stopped)
        expect(processes[0], 0, alone)
        found = differences(stopped.folder, alone.folder)
        count["different" if found else "bitwise"] += 1
        if found:
            print(how, found, file=sys.stderr)
    return dict(count)


# --- SIGKILL --------------------------------------------------------------------------------------------------------


@dataclass
class Victim:
    """A run that is killed again and again, beside one that was left alone and kept all its checkpoints."""

    run: Run
    alone: Run
    chance: random.Random
    count: Counter[str] = field(default_factory=Counter)

    def kill(self, *, while_saving: bool) -> bool:
        """Go on with the run and kill it; False if it came to its end before."""
        process = begin(self.run)
        newest = next(iter(checkpoints(self.run.folder)), None)
        if while_saving:
            self.wait_for_saves(process, self.chance.randrange(1, 6))
            time.sleep(self.chance.uniform(0, 0.004))
        else:
            time.sleep(self.chance.uniform(0, 0.6))
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        if wait(process) != -signal.SIGKILL:
            return False
        self.count["killed"] += 1
        self.count["inside a save"] += any((self.run.folder / "checkpoints").glob(".step-*.part"))
        self.count["before the first checkpoint"] += newest is None
        self.inspect()
        return True

    def wait_for_saves(self, process: int, n: int) -> None:
        """Until the n-th save from now is under way."""
        folder, seen = self.run.folder / "checkpoints", set[str]()
        while len(seen) < n and os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            with contextlib.suppress(FileNotFoundError):
                seen |= {name for name in os.listdir(folder) if name.endswith(f".{process}.part")}

    def inspect(self) -> None:
        """Everything under a checkpoint's name must be whole, and what the run left alone had at that step."""
        for path in checkpoints(self.run.folder):
            try:
                verify(path)
            except DamagedError as error:
                self.count["unreadable"] += 1
                print(error, file=sys.stderr)
            else:
                found = checkpoint_differences(path, self.alone.folder / "checkpoints" / path.name)
                self.count["mixed"] += bool(found)

    def end(self) -> None:
        """Let it come to its end, and compare."""
        expect(begin(self.run), 0, self.run)
        said = (self.run.folder / "output.txt").read_text()
        self.count["resumed"] += self.count["killed"]
        self.count["gone on from a checkpoint"] = said.count("going on from step")
        found = differences(self.run.folder, self.alone.folder)
        if found:
            print(self.run.folder, found, file=sys.stderr)
        self.count["runs"] += 1
        self.count["runs that ended bitwise as if left alone"] += not found


def kill_all(root: Path, n_kills: int, track: Track, n_each: int = 20) -> dict[str, int]:
    """Kill runs of every kind, `n_each` times each, three times of four while they save."""
    chance, count = random.Random(0), Counter[str]()
    victim: Victim | None = None
    for number in track(n_kills, "kills"):
        if victim is not None and number % n_each == 0:
            victim.end()
            count += victim.count
            victim = None
        killed = victim is not None and victim.kill(while_saving=chance.random() < 0.75)
        while not killed:
            if victim is not None:
                victim.end()
                count += victim.count
            n_runs = number // n_each
            settings = {
                "steps": 150,
                "evaluate_every": 7,
                "save_every": 1,
                "ema": 0.9 if n_runs % 2 else None,
                "dropout": 0.1,
                "augment": True,
                "accumulate": 1 + n_runs % 3,
                "workers": n_runs % 2,
                "seed": number,
            }
            runs = (
                small_run(root / f"{number}-{what}", KINDS[n_runs % len(KINDS)], **settings)
                for what in ("killed", "alone")
            )
            victim = Victim(*runs, chance)
            expect(begin(victim.alone, keep_all=True), 0, victim.alone)
            killed = victim.kill(while_saving=chance.random() < 0.75)
    assert victim is not None
    victim.end()
    return dict.fromkeys(("unreadable", "mixed"), 0) | dict(count + victim.count)


# --- Damage ---------------------------------------------------------------------------------------------------------


def damage_all(root: Path, n_flips: int, n_cuts: int, track: Track) -> dict[str, int]:
    """Flip a bit of the newest checkpoint or cut a file of it short, anywhere, and look whether anybody minds."""
    run = small_run(root / "damaged", "gpt", ema=0.9, accumulate=3)
    expect(begin(run, StopAfter(3 * 7 + 2)), 128 + signal.SIGTERM, run)
    newest, before, *_ = checkpoints(run.folder)
    files, chance = sorted(path for path in newest.iterdir()), random.Random(0)
    count: Counter[str] = Counter(flips=0, cuts=0, refused=0)
    for number in track(n_flips + n_cuts, "damages"):
        path = files[number % len(files)]
        whole = path.read_bytes()
        if number < n_flips:
            bit = chance.randrange(8 * len(whole))
            damaged = whole[: bit // 8] + bytes([whole[bit // 8] ^ 1 << bit % 8]) + whole[bit // 8 + 1 :]
        else:
            damaged = whole[: chance.randrange(len(whole))]
        path.write_bytes(damaged)
        used, problems = find_whole(run.folder)
        try:
            load(newest)
            loads = True
        except DamagedError as error:
            loads = str(newest) not in str(error)
        path.write_bytes(whole)
        count["flips" if number < n_flips else "cuts"] += 1
        count["refused"] += used == before and str(newest) in problems.get(newest, "") and not loads
    count["files"] = len(files)
    assert find_whole(run.folder) == (newest, {})
    return dict(count)


# --- All of it ------------------------------------------------------------------------------------------------------


def show(results: dict[str, dict[str, int]]) -> str:
    """The results as a table in Markdown."""
    rows = [(what, name, count) for what, counts in results.items() for name, count in counts.items()]
    return "\n".join(["| what | | count |", "|---|---|---|", *(f"| {what} | {name} | {n} |" for what, name, n in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--stops", type=int, default=64, help="Combinations, spread over all 64.")
    parser.add_argument("--damages", type=int, default=600, help="Two thirds are flipped bits, the others are cuts.")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sklearn.datasets.load_digits()
    assert sklearn.model_selection
    results: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as folder, Progress(console=Console(stderr=True)) as progress:
        root = Path(folder)

        def track(n: int, what: str) -> Iterator[int]:
            yield from progress.track(range(n), description=what)

        if arguments.stops:
            every = combinations()
            chosen = [every[number * len(every) // arguments.stops] for number in range(arguments.stops)]
            results["stopped and resumed in a fresh process"] = resume_all(root / "stops", chosen, track)
        if arguments.kills:
            results["killed with SIGKILL"] = kill_all(root / "kills", arguments.kills, track)
        if arguments.damages:
            n_cuts = arguments.damages // 3
            results["damaged"] = damage_all(root / "damages", arguments.damages - n_cuts, n_cuts, track)
    print(json.dumps(results, indent=2) if arguments.json else show(results))


if __name__ == "__main__":
    main()
