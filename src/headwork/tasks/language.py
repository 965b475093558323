"""The next token of a text, and the words of a translation."""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwork.data import IGNORE, PairBatch, TokenBatch, Tokenizer
from headwork.generation import translate
from headwork.models.encoder_decoder import EncoderDecoder
from headwork.tasks.task import Share, Shares


def score_tokens(
    logits: Float[Tensor, "batch token vocab"], following: Int[Tensor, "batch token"], label_smoothing: float = 0.0
) -> Shares:
    """Cross-entropy of the tokens that follow, and how many are right; IGNORE is not asked for."""
    loss = F.cross_entropy(
        logits.flatten(0, 1),
        following.flatten(),
        ignore_index=IGNORE,
        reduction="sum",
        label_smoothing=label_smoothing,
    )
    right = (logits.detach().argmax(-1) == following).float().sum()
    n_targets = count_targets(following)
    return {"loss": Share(loss, n_targets), "token_accuracy": Share(right, n_targets)}


def count_targets(following: Int[Tensor, "batch token"]) -> int:
    return int((following != IGNORE).sum())


@dataclass(frozen=True)
class LanguageModelling:
    """Which token comes next."""

    tokenizer: Tokenizer
    metric: str = "loss"
    best: Literal["highest", "lowest"] = "lowest"

    def n_targets(self, batch: TokenBatch) -> int:
        return count_targets(batch.next)

    def score(self, model: nn.Module, batch: TokenBatch, label_smoothing: float = 0.0) -> Shares:
        return score_tokens(model(batch.ids), batch.next, label_smoothing)

    def measure(self, model: nn.Module, batch: TokenBatch) -> Shares:
        return self.score(model, batch)


@dataclass(frozen=True)
class Translation:
    """A text in other words; the best is the one that is right from its first token to its last most often."""

    tokenizer: Tokenizer
    metric: str = "exact_match"
    best: Literal["highest", "lowest"] = "highest"

    def n_targets(self, batch: PairBatch) -> int:
        return count_targets(batch.next)

    def score(self, model: nn.Module, batch: PairBatch, label_smoothing: float = 0.0) -> Shares:
        logits = model(batch.source, batch.target, source_visible=batch.source_visible)
        return score_tokens(logits, batch.next, label_smoothing)

    def measure(self, model: nn.Module, batch: PairBatch) -> Shares:
        assert isinstance(model, EncoderDecoder)
        said = translate(
            model,
            batch.source,
            max_new_tokens=batch.next.shape[1],
            begin=self.tokenizer.begin,
            end=self.tokenizer.end,
            source_visible=batch.source_visible,
        )
        said = F.pad(said, (0, batch.next.shape[1] - said.shape[1]), value=self.tokenizer.end)
        right = ((said == batch.next) | (batch.next == IGNORE)).all(1).float().sum()
        return {**self.score(model, batch), "exact_match": Share(right, len(said))}
