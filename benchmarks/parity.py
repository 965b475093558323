"""How far ours are from transformers, family by family: `python -m benchmarks.parity` prints the table in the docs.

Each small model of tests/hub/checkpoints.py is built by transformers with random weights, saved, loaded here and run by
both on batches without padding, padded on the right and on the left; then saved from here, and run by both again. A row
is the largest difference of all models of a family.
"""

import tempfile
import warnings
from collections import defaultdict
from pathlib import Path

import torch
import transformers
from tests.hub.checkpoints import CHECKPOINTS, Checkpoint
from tests.hub.test_parity import PADDINGS, largest_error, open_theirs

from headwork.hub import load_pretrained, save_pretrained

COLUMNS = (
    *(f"{what}, {precision}" for precision in ("float64", "float32") for what in ("logits", "hidden", "attention")),
    "handed back, float64",
)


def kind_of(point: str) -> str:
    return "logits" if point == "output" else "attention" if point.endswith(".weights") else "hidden"


def by_kind(errors: dict[str, float], precision: str) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for point, error in errors.items():
        column = f"{kind_of(point)}, {precision}"
        found[column] = max(found[column], error)
    return found


def paddings(name: str, checkpoint: Checkpoint) -> list[str]:
    """Marian and BART cannot be told the positions of a source that is padded on the left."""
    if checkpoint.kind == "image":
        return ["none"]
    return ["none", "right"] if name.startswith(("marian", "bart", "mbart")) else list(PADDINGS)


def compare(name: str, folder: Path) -> tuple[str, dict[str, float]]:
    """The family of a model, and its largest differences by column."""
    checkpoint, found = CHECKPOINTS[name], dict.fromkeys(COLUMNS, 0.0)

    def note(errors: dict[str, float]) -> None:
        found.update({column: max(found[column], error) for column, error in errors.items()})

    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    theirs = checkpoint.save(folder / "theirs")
    ours = load_pretrained(folder / "theirs")
    for padding in paddings(name, checkpoint):
        note(by_kind(largest_error(name, ours, theirs, PADDINGS[padding], float64=True), "float64"))
    save_pretrained(ours, folder / "back", like=folder / "theirs")
    back = largest_error(name, ours, open_theirs(name, folder / "back"), PADDINGS["none"], float64=True)
    note({"handed back, float64": max(back.values())})
    torch.set_default_dtype(torch.float32)
    single = checkpoint.make().float()
    single.save_pretrained(folder / "single")
    note(
        by_kind(
            largest_error(name, load_pretrained(folder / "single"), single, PADDINGS["none"], float64=False), "float32"
        )
    )
    return theirs.config.model_type, found


def main() -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    families: dict[str, list[dict[str, float]]] = defaultdict(list)
    for name in CHECKPOINTS:
        with tempfile.TemporaryDirectory() as folder:
            family, found = compare(name, Path(folder))
        families[family].append(found)
    print(f"| family | models | {' | '.join(COLUMNS)} |\n|{'---|' * (2 + len(COLUMNS))}")
    for family, rows in families.items():
        worst = (f"{max(row[column] for row in rows):.0e}" for column in COLUMNS)
        print(f"| `{family}` | {len(rows)} | {' | '.join(worst)} |")


if __name__ == "__main__":
    main()
