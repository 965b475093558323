"""Texts that everyone knows: SST-2, Multi30k and tiny Shakespeare."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from headwork import serialise
from headwork.checks import check_positive
from headwork.data.bundled_text import TextOfTokens, read_pieces
from headwork.data.download import KnownSet, Remote
from headwork.data.examples import Dataset
from headwork.data.text_pairs import TextPairs
from headwork.data.text_table import TextTable
from headwork.data.tokenizer import BytePairs, Pretrained, Words

GITHUB = "https://raw.githubusercontent.com"
SST2 = KnownSet(
    "SST-2",
    ("sst2", "SST-2"),
    ("train.tsv", "dev.tsv", "test.tsv"),
    tuple(
        Remote(f"{GITHUB}/YJiangcm/SST-2-sentiment-analysis/master/data/{name}.tsv", f"sha256:{sha256}", n_bytes)
        for name, sha256, n_bytes in (
            ("train", "e981ceb4fe6c9acd1c79851d0d091b9e78103f1f2a399ca83dda27915d41c56c", 3_806_081),
            ("dev", "84207e6be5873fb18db798cc6faec86871f5a426554650ff64a1c34e87665f6f", 94_414),
            ("test", "fcd46f967b7b8efd8b5398481dadf873886298d092195167af907fd532e81e1c", 193_576),
        )
    ),
)
MULTI30K_PARTS = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
MULTI30K = KnownSet(
    "Multi30k",
    ("multi30k", "Multi30k"),
    tuple(f"{name}.{language}" for name in MULTI30K_PARTS.values() for language in ("en", "de")),
    tuple(
        Remote(f"{GITHUB}/multi30k/dataset/master/data/task1/raw/{name}.gz", f"sha256:{sha256}", n_bytes, unpacked=True)
        for name, sha256, n_bytes in (
            ("train.en", "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6", 1_801_238),
            ("train.de", "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72", 2_110_398),
            ("val.en", "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227", 63_297),
            ("val.de", "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660", 75_981),
            ("test_2016_flickr.en", "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182", 62_076),
            ("test_2016_flickr.de", "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16", 70_649),
        )
    ),
)
SHAKESPEARE = KnownSet(
    "tiny Shakespeare",
    ("tinyshakespeare",),
    ("input.txt",),
    (
        Remote(
            f"{GITHUB}/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
            "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
            1_115_394,
        ),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Sst2(serialise.Checked):
    """67,349 phrases and sentences of film reviews, for or against; 872 choose, and 1,821 test. Socher et al., 2013."""

    tokenizer: Words | BytePairs | Pretrained = Words(n_tokens=16_000)
    max_tokens: int = 64
    directory: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(max_tokens=self.max_tokens)

    @property
    def table(self) -> TextTable:
        return _Sst2Files(
            path=str(SST2.find(self.directory)), tokenizer=self.tokenizer, max_tokens=self.max_tokens, label="label"
        )

    def load(self, seed: int = 0) -> Dataset:
        """The phrases as ids; nothing varies from epoch to epoch."""
        return _compared(self.table.load(seed), SST2, self.directory)

    def bag_of_words_accuracy(self) -> float:
        """What a model should beat on the test data."""
        return self.table.bag_of_words_accuracy()


class _Sst2Files(TextTable):
    """The three files, whose labels are 0 and 1."""

    def class_names(self, file: Path, column: str) -> tuple[str, ...] | None:
        return ("negative", "positive")


@dataclass(frozen=True, kw_only=True)
class Multi30k(serialise.Checked):
    """29,000 descriptions of photographs in English and German; 1,014 choose, and 1,000 of 2016 test. Elliott, 2016."""

    source: str = "en"
    target: str = "de"
    tokenizer: BytePairs = BytePairs(n_tokens=8000)
    max_tokens: int = 96
    directory: str | None = None

    def load(self, seed: int = 0) -> Dataset:
        """The sentences as ids of one vocabulary; nothing varies from epoch to epoch."""
        files = _Multi30kFiles(
            path=str(MULTI30K.find(self.directory)),
            source=self.source,
            target=self.target,
            tokenizer=self.tokenizer,
            max_tokens=self.max_tokens,
        )
        return _compared(files.load(seed), MULTI30K, self.directory)


class _Multi30kFiles(TextPairs):
    """The three parts that the literature compares, whatever else is in the folder."""

    def files_of_parts(self, path: Path) -> Iterator[tuple[str | None, list[Path]]]:
        for part, name in MULTI30K_PARTS.items():
            yield part, [path / f"{name}.{language}" for language in (self.source, self.target)]


@dataclass(frozen=True, kw_only=True)
class TinyShakespeare(TextOfTokens):
    """A million characters of Shakespeare's plays, in windows of `n_context` tokens. Karpathy, 2015."""

    directory: str | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        return (SHAKESPEARE.find(self.directory) / "input.txt",)

    def pieces(self) -> Iterator[str]:
        return read_pieces(self.files[0])

    def load(self, seed: int = 0) -> Dataset:
        """The windows; nothing varies from epoch to epoch."""
        return _compared(super().load(seed), SHAKESPEARE, self.directory)


def _compared(data: Dataset, known: KnownSet, directory: str | None) -> Dataset:
    """The data set, which says where its files are not those that everyone knows."""
    return replace(data, found=(*data.found, *known.say_differences(known.find(directory))))
