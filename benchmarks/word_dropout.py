"""SST-2 with words left out at random in every epoch: data of one's own around data of the package.

    headwork train benchmarks.word_dropout:recipe --seed 0 --epochs 3 --set data.share=0.2

`share` of the words of each phrase become the unknown word, other ones in each epoch. Iyyer et al., 2015.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

import headwork as hw
from headwork.batches import TextBatch
from headwork.checks import Probability
from headwork.data.examples import Dataset, random_numbers
from headwork.data.text_examples import TextExamples
from headwork.data.tokenizer import Tokenizer
from headwork.training.config import RunConfig


@dataclass(frozen=True, eq=False)
class WordsLeftOut:
    """Texts of which some words are unknown, by seed, epoch and example; BEGIN is never left out."""

    texts: TextExamples
    share: float
    seed: int

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def lengths(self) -> Int[Tensor, "example"]:
        return self.texts.lengths

    @property
    def max_tokens(self) -> int:
        return self.texts.max_tokens

    def batch(self, indices: Sequence[int], epoch: int | None = None) -> TextBatch:
        whole = self.texts.batch(indices, epoch)
        if epoch is None:
            return whole
        n_token = whole.ids.shape[1]
        draws = random_numbers(self.seed, epoch, len(self), self.max_tokens)[torch.as_tensor(indices), :n_token]
        left_out = (draws < self.share) & whole.visible
        left_out[:, 0] = False
        return whole._replace(ids=whole.ids.masked_fill(left_out, Tokenizer.unknown))


@dataclass(frozen=True, kw_only=True)
class Sst2WordsLeftOut(hw.data.Sst2):
    share: Probability = 0.2

    def load(self, seed: int = 0) -> Dataset:
        data = super().load(seed)
        return replace(data, train=WordsLeftOut(data.train, self.share, seed))


def recipe() -> RunConfig:
    plain = hw.recipes.find_recipe("sst2-encoder")
    data = Sst2WordsLeftOut(tokenizer=plain.data.tokenizer, max_tokens=plain.data.max_tokens)
    return replace(plain, name="sst2-words-left-out", data=data)
