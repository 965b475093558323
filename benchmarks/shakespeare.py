"""Tiny Shakespeare beside nanoGPT's recipe for a processor, in equal processor seconds: who is where, and when?

    git clone https://github.com/karpathy/nanoGPT
    OMP_NUM_THREADS=1 python -m benchmarks.shakespeare --nanogpt nanoGPT --data-dir DATA --out runs/shakespeare

nanoGPT's model and optimiser are its own `model.py`; its loop is that of its `train.py` with the settings of its README
(batch 12, block 64, 4 layers, width 128, 2,000 steps), written out below. `--times 5` makes all runs five times as
long, with their schedules; `--lr-factor 0.5` halves headwork's learning rates, which are meant for short runs. Each
contestant has a process of its own; they take turns, and the one that has used the fewest processor seconds goes next.
Seconds are those of training; evaluations are not counted. Both are measured in the same way: the mean loss over
windows of 64 characters, end to end, of the last tenth of the text, which neither has seen; for the curves over every
sixth of them, for the table over all.
"""

import argparse
import importlib.util
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from headwork.data.known_texts import SHAKESPEARE

BLOCK, BATCH, STEPS = 64, 12, 2000
EVERY = 6
"""A point of the curves has one window of so many; the table has all."""
OURS = {"headwork": 1.0, "headwork, a quarter": 0.25}
"""What share of nanoGPT's seconds each is planned for."""


class Contestant(Protocol):
    """What takes turns."""

    n_steps: int
    step: int
    seconds: float

    def go_on(self, seconds: float) -> None: ...
    def logits(self, text: list[str]) -> Tensor: ...
    def targets(self, text: list[str]) -> Tensor: ...


class NanoGPT:
    """Its model and optimiser, and its loop: random windows, warm-up and cosine, gradients clipped at 1."""

    learning_rate, min_lr, warmup_iters = 1e-3, 1e-4, 100

    def __init__(self, folder: Path, text: str, seed: int, n_steps: int) -> None:
        model = load_model_file(folder)
        n_train = int(len(text) * 0.9)
        self.ids = {character: i for i, character in enumerate(sorted(set(text)))}
        self.data = np.array([self.ids[character] for character in text[:n_train]], dtype=np.uint16)
        torch.manual_seed(1337 + seed)
        sizes = {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": BLOCK, "bias": False, "dropout": 0.0}
        self.model: nn.Module = model.GPT(model.GPTConfig(vocab_size=len(self.ids), **sizes))
        self.optimizer = self.model.configure_optimizers(0.1, self.learning_rate, (0.9, 0.99), "cpu")  # type: ignore[operator]
        self.n_steps, self.step, self.seconds = n_steps, 0, 0.0

    def draw(self) -> tuple[Tensor, Tensor]:
        data, starts = self.data, torch.randint(len(self.data) - BLOCK, (BATCH,))
        x = torch.stack([torch.from_numpy((data[i : i + BLOCK]).astype(np.int64)) for i in starts])
        y = torch.stack([torch.from_numpy((data[i + 1 : i + 1 + BLOCK]).astype(np.int64)) for i in starts])
        return x, y

    def lr(self) -> float:
        if self.step < self.warmup_iters:
            return self.learning_rate * (self.step + 1) / (self.warmup_iters + 1)
        done = min((self.step - self.warmup_iters) / (self.n_steps - self.warmup_iters), 1.0)
        return self.min_lr + 0.5 * (1.0 + math.cos(math.pi * done)) * (self.learning_rate - self.min_lr)

    def go_on(self, seconds: float) -> None:
        end = self.seconds + seconds
        self.model.train()
        while self.seconds < end and self.step < self.n_steps:
            begun = time.process_time()
            for group in self.optimizer.param_groups:
                group["lr"] = self.lr()
            _, loss = self.model(*self.draw())
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.step += 1
            self.seconds += time.process_time() - begun

    def logits(self, text: list[str]) -> Tensor:
        ids = torch.tensor([[self.ids[character] for character in line[:-1]] for line in text])
        return self.model.eval()(ids, ids)[0]  # with targets, or it scores the last character only

    def targets(self, text: list[str]) -> Tensor:
        return torch.tensor([[self.ids[character] for character in line[1:]] for line in text])


class Headwork:
    """The recipe `shakespeare-gpt` on nanoGPT's batches, with as many steps as take so many processor seconds."""

    def __init__(self, directory: str | None, seed: int, seconds: float, lr_factor: float) -> None:
        from benchmarks.processor_seconds import Training, lasting

        from headwork.recipes import find_recipe
        from headwork.training import Muon

        config = find_recipe("shakespeare-gpt")
        data_config = replace(config.data, directory=directory, n_context=BLOCK)  # type: ignore[type-var]
        muon = config.training.optimiser
        assert isinstance(muon, Muon)
        muon = replace(muon, lr=lr_factor * muon.lr, adamw=replace(muon.adamw, lr=lr_factor * muon.adamw.lr))
        training = replace(config.training, seed=seed, batch_size=BATCH, optimiser=muon)
        config = replace(config, data=data_config, training=training)
        assert config.data is not None
        data = config.data.load(seed)
        self.training = Training(lasting(config, data, seconds), data)
        self.tokenizer: Any = data.tokenizer

    @property
    def n_steps(self) -> int:
        return self.training.plan.n_steps

    @property
    def step(self) -> int:
        return self.training.progress.step

    @property
    def seconds(self) -> float:
        return self.training.seconds

    def go_on(self, seconds: float) -> None:
        self.training.go_on(seconds)

    def logits(self, text: list[str]) -> Tensor:
        with self.training.learner.evaluating():
            return self.training.model(torch.tensor([self.tokenizer.encode(line[:-1]) for line in text]))

    def targets(self, text: list[str]) -> Tensor:
        return torch.tensor([self.tokenizer.encode(line[1:]) for line in text])


def load_model_file(folder: Path) -> Any:
    file = folder / "model.py"
    if not file.is_file():
        raise SystemExit(
            f"nanogpt must be a folder with nanoGPT's model.py, got {folder}, which has none: "
            "`git clone https://github.com/karpathy/nanoGPT` and give its folder, --nanogpt nanoGPT"
        )
    spec = importlib.util.spec_from_file_location("nanogpt_model", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@torch.no_grad()
def measure(contestant: Contestant, windows: list[str]) -> float:
    """The mean loss over all characters of the windows."""
    total, n = 0.0, 0
    for first in range(0, len(windows), BATCH * 8):
        some = windows[first : first + BATCH * 8]
        targets = contestant.targets(some)
        loss = nn.functional.cross_entropy(contestant.logits(some).flatten(0, 1), targets.flatten(), reduction="sum")
        total, n = total + loss.item(), n + targets.numel()
    return total / n


def work(arguments: argparse.Namespace) -> None:
    """In a process of its own: for each line that comes in train for so many seconds, and say where it stands."""
    text = (SHAKESPEARE.find(arguments.data_dir) / "input.txt").read_text(encoding="utf-8")
    held_out = text[len(text) - 2 * int(0.05 * len(text)) :]
    windows = [held_out[i : i + BLOCK + 1] for i in range(0, len(held_out) - BLOCK, BLOCK)]
    answers = sys.stdout
    sys.stdout = sys.stderr  # nanoGPT prints
    contestant: Contestant
    if arguments.worker == "nanoGPT":
        contestant = NanoGPT(arguments.nanogpt, text, arguments.seed, STEPS * arguments.times)
    else:
        seconds = arguments.seconds * OURS[arguments.worker]
        contestant = Headwork(arguments.data_dir, arguments.seed, seconds, arguments.lr_factor)
    say: Callable[..., None] = lambda **what: print(json.dumps(what), file=answers, flush=True)  # noqa: E731
    say(ready=True)
    for line in sys.stdin:
        contestant.go_on(float(line))
        is_over = contestant.step >= contestant.n_steps
        loss, seconds = round(measure(contestant, windows[::EVERY]), 4), round(contestant.seconds, 2)
        of_all = round(measure(contestant, windows), 4) if is_over else None
        say(name=arguments.worker, step=contestant.step, seconds=seconds, loss=loss, of_all=of_all, is_over=is_over)
        if is_over:
            return


def contest(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """First nanoGPT's seconds from a few turns; then all of them, turn by turn."""
    points: list[dict[str, Any]] = []
    nano = Worker("nanoGPT", arguments, 0.0)
    first = nano.take_turn(arguments.turn)
    points.append(first)
    seconds = first["seconds"] / first["step"] * STEPS * arguments.times
    print(f"nanoGPT: {1e3 * first['seconds'] / first['step']:.1f} ms a step, so {seconds:.0f} processor seconds in all")
    workers = [nano, *(Worker(name, arguments, seconds) for name in OURS)]
    while running := [worker for worker in workers if not worker.is_over]:
        point = min(running, key=lambda worker: worker.seconds).take_turn(arguments.turn)
        points.append(point)
        name, step, used, loss = (point[key] for key in ("name", "step", "seconds", "loss"))
        print(f"{name:<22} step {step:>5}  {used:7.1f} s  {loss:.4f}", flush=True)
    return points


class Worker:
    """A contestant in its process."""

    def __init__(self, name: str, arguments: argparse.Namespace, seconds: float) -> None:
        self.seconds, self.is_over = 0.0, False
        command = [sys.executable, "-m", "benchmarks.shakespeare", "--worker", name, "--seconds", str(seconds)]
        command += ["--nanogpt", str(arguments.nanogpt), "--times", str(arguments.times), "--seed", str(arguments.seed)]
        command += ["--out", str(arguments.out), "--lr-factor", str(arguments.lr_factor)]
        command += [] if arguments.data_dir is None else ["--data-dir", arguments.data_dir]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.hear()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a contestant ended with the exit code {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def take_turn(self, seconds: float) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        point = self.hear()
        self.seconds, self.is_over = point["seconds"], point["is_over"]
        return point


def draw(points: list[dict[str, Any]], file: Path) -> None:
    """Loss over processor seconds; a dotted line where nanoGPT ends."""
    from headwork.figures import Figure, plot_style

    with plot_style():
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        ax = figure.subplots()
        styles = {"nanoGPT": ("0.35", "o"), "headwork": ("C0", "s"), "headwork, a quarter": ("C1", "^")}
        for name, (colour, marker) in styles.items():
            own = [point for point in points if point["name"] == name and point["loss"] < 3]
            ax.plot(
                [point["seconds"] for point in own],
                [point["loss"] for point in own],
                color=colour,
                marker=marker,
                markersize=3,
                label=name,
            )
        ax.axhline(last(points, "nanoGPT")["loss"], color="0.35", linestyle=":", linewidth=0.8)
        ax.set(xlabel="processor seconds of training, one thread", ylabel="loss on unseen text, windows of 64")
        ax.set_xlim(0)
        ax.legend(frameon=False)
        figure.savefig(file, dpi=150)


def last(points: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return [point for point in points if point["name"] == name][-1]


def show(points: list[dict[str, Any]]) -> None:
    nano = last(points, "nanoGPT")
    print("| | steps | processor seconds | share of nanoGPT's | loss |\n|---|---|---|---|---|")
    for name in ("nanoGPT", *OURS):
        end = last(points, name)
        share = end["seconds"] / nano["seconds"]
        print(f"| {name} | {end['step']:,} | {end['seconds']:.0f} | {share:.2f} | {end['of_all']:.3f} |")
    for name in OURS:
        below = [point["seconds"] for point in points if point["name"] == name and point["loss"] <= nano["loss"]]
        when = f"{min(below):.0f} s, {min(below) / nano['seconds']:.2f} of its seconds" if below else "never"
        print(f"{name}: at or below nanoGPT's last loss after {when}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanogpt", type=Path, default=Path("nanoGPT"), help="the folder of nanoGPT")
    parser.add_argument("--data-dir", help="where tiny Shakespeare is")
    parser.add_argument("--out", type=Path, required=True, help="a folder for the points and the figure")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--times", type=int, default=1, help="all runs so many times as long")
    parser.add_argument("--lr-factor", type=float, default=1.0, help="of headwork's learning rates")
    parser.add_argument("--turn", type=float, default=8.0, help="processor seconds of a turn")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=0.0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments)
        return
    load_model_file(arguments.nanogpt)
    arguments.out.mkdir(parents=True, exist_ok=True)
    points = contest(arguments)
    (arguments.out / "points.json").write_text(json.dumps(points, indent=1), encoding="utf-8")
    draw(points, arguments.out / "curves.png")
    show(points)


if __name__ == "__main__":
    main()
