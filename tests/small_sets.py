"""The sets that everyone knows in small: files of their form, so that tests need no download."""

import struct
from pathlib import Path

import numpy as np

from headwork.data import cifar
from headwork.data.idx_images import FILES

WORDS = [
    "a",
    "dog",
    "runs",
    "over",
    "the",
    "green",
    "field",
    "while",
    "two",
    "men",
    "watch",
    "it",
    "from",
    "far",
    "away",
]


def write_small_sets(root: Path) -> None:
    """CIFAR-10, Fashion-MNIST, SST-2, Multi30k and tiny Shakespeare, a few examples of each."""
    generator = np.random.default_rng(0)
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name in (*cifar.BATCHES, "test_batch"):
        table = generator.integers(0, 256, (1100, 3073), dtype=np.uint8)
        table[:, 0] = np.arange(1100) % 10
        table.tofile(folder / f"{name}.bin")
    folder = root / "fashion-mnist"
    folder.mkdir()
    for name, n in zip(FILES, (5500, 5500, 100, 100), strict=True):
        shape = (n, 28, 28) if "images" in name else (n,)
        values = (
            generator.integers(0, 256, shape, dtype=np.uint8) if len(shape) > 1 else np.arange(n, dtype=np.uint32) % 10
        )
        (folder / name).write_bytes(
            struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + values.astype(np.uint8).tobytes()
        )

    def sentence() -> str:
        return " ".join(generator.choice(WORDS, generator.integers(3, 12)))

    (root / "sst2").mkdir()
    for name, n in (("train", 300), ("dev", 30), ("test", 30)):
        lines = [f"{i % 2}\t{sentence()} {i}" for i in range(n)]
        (root / "sst2" / f"{name}.tsv").write_text("\n".join(["label\tsentence", *lines]) + "\n")
    (root / "multi30k").mkdir()
    for name, n in (("train", 300), ("val", 30), ("test_2016_flickr", 30)):
        for language in ("en", "de"):
            text = "".join(f"{language} {sentence()} {i}\n" for i in range(n))
            (root / "multi30k" / f"{name}.{language}").write_text(text)
    (root / "tinyshakespeare").mkdir()
    (root / "tinyshakespeare" / "input.txt").write_text("".join(f"{sentence()}.\n" for _ in range(1000)))
