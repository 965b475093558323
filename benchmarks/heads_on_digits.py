"""Question 2(e) of the ETH sheet on digits: where the heads of several runs of `digits-gaussian` go.

    for seed in 0 1 2 3 4 5 6 7 8 9; do headwork train digits-gaussian --seed $seed --out runs/gaussian-$seed; done
    python -m benchmarks.heads_on_digits runs/gaussian-*

One row for each layer, from the first and the last line of each heads.jsonl: the mean over the runs, and in brackets
the smallest and the largest run. Distances are in pixels.
"""

import argparse
from pathlib import Path

import torch

from headwork.inspection.heads import Snapshot
from headwork.training.recorder import read_centres


def layers(history: list[Snapshot]) -> dict[str, dict[str, float]]:
    """For each layer of a run: how far the heads have moved, how far from the query they are, and how sharp."""
    found = {}
    for name, at_end in history[-1].items():
        start, end = (torch.tensor(heads["centre"]) for heads in (history[0][name], at_end))
        alpha = torch.tensor(at_end["alpha"])
        found[name] = {
            "moved by": (end - start).norm(dim=1).mean().item(),
            "distance at the start": start.norm(dim=1).mean().item(),
            "distance at the end": end.norm(dim=1).mean().item(),
            "alpha, median (1 at the start)": alpha.median().item(),
            "sharper heads": (alpha > 1).sum().item(),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="the folders of the runs")
    runs = [layers(read_centres(run)) for run in parser.parse_args().runs]
    names = list(runs[0]["layers.0"])
    print("| layer | " + " | ".join(names) + " |")
    print("|---" * (1 + len(names)) + "|")
    for layer in runs[0]:
        cells = []
        for name in names:
            each = torch.tensor([run[layer][name] for run in runs], dtype=torch.float64)
            cells.append(f"{each.mean():.2f} ({each.min():.2f} to {each.max():.2f})")
        print(f"| {layer.removeprefix('layers.')} | {' | '.join(cells)} |")
    print(f"{len(runs)} runs")


if __name__ == "__main__":
    main()
