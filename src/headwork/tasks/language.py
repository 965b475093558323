"""The next token of a text, its masked tokens, and the tokens of a translation."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwork.batches import IGNORE, Batch, PairBatch, call_model
from headwork.checks import check_probability
from headwork.generation import translate
from headwork.metric import LOSS, Metric, MetricSum
from headwork.models import EncoderDecoder
from headwork.serialise import Checked
from headwork.tasks.task import Evaluation, Scores, sum_scores

TOKEN_ACCURACY = Metric("token_accuracy", percent=True)
EXACT_MATCH = Metric("exact_match", percent=True)


def score_tokens(
    logits: Float[Tensor, "batch token vocab"], target: Int[Tensor, "batch token"], label_smoothing: float = 0.0
) -> Scores:
    """Cross-entropy of the target tokens, and how many are right; IGNORE is not asked for."""
    loss = F.cross_entropy(
        logits.flatten(0, 1), target.flatten(), ignore_index=IGNORE, reduction="sum", label_smoothing=label_smoothing
    )
    right = (logits.detach().argmax(-1) == target).float().sum()
    n_targets = int((target != IGNORE).sum())
    return {"loss": MetricSum(loss, n_targets), "token_accuracy": MetricSum(right, n_targets)}


class TokenTask(Checked):
    """What all tasks whose targets are tokens share: each token is scored, but for IGNORE."""

    label_smoothing: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability(label_smoothing=self.label_smoothing)

    def n_targets(self, batch: Batch) -> int:
        return int((batch[-1] != IGNORE).sum())

    def score(self, model: nn.Module, batch: Batch) -> Scores:
        return score_tokens(call_model(model, batch), batch[-1], self.label_smoothing)


@dataclass(frozen=True)
class NextToken(TokenTask):
    """Which token comes next, after each token of a text."""

    label_smoothing: float = 0.0

    output: ClassVar[str] = "next token"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return LOSS, TOKEN_ACCURACY

    def evaluate(self, model: nn.Module, batches: Iterable[Batch]) -> Evaluation:
        return sum_scores(replace(self, label_smoothing=0.0).score, model, batches)


@dataclass(frozen=True)
class MaskedTokens(NextToken):
    """What the masked tokens of a text were; only these are scored. Devlin et al., "BERT", 2019."""

    output: ClassVar[str] = "masked token"


@dataclass(frozen=True)
class Translation(TokenTask):
    """A text in other words; the best model translates the most texts without a single wrong token.

    Where no translation is the only right one, `exact=False`: nothing is translated, and the best model has the lowest
    loss.
    """

    begin: int
    end: int
    label_smoothing: float = 0.0
    exact: bool = True

    output: ClassVar[str] = "next token"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (EXACT_MATCH if self.exact else LOSS), TOKEN_ACCURACY

    def evaluate(self, model: nn.Module, batches: Iterable[PairBatch]) -> Evaluation:
        plain = replace(self, label_smoothing=0.0)
        return sum_scores(plain.score_translation if self.exact else plain.score, model, batches)

    @torch.no_grad()
    def score_translation(self, model: nn.Module, batch: PairBatch) -> Scores:
        """The scores, and how many greedy translations are right from their first token to their last."""
        if not isinstance(model, EncoderDecoder):
            raise ValueError(f"model must be an EncoderDecoder to translate, got {type(model).__name__}")
        said = translate(
            model,
            batch.source,
            max_new_tokens=batch.next.shape[1],
            begin=self.begin,
            end=self.end,
            source_visible=batch.source_visible,
        )
        said = F.pad(said, (0, batch.next.shape[1] - said.shape[1]), value=self.end)
        right = ((said == batch.next) | (batch.next == IGNORE)).all(1).float().sum()
        return {**self.score(model, batch), "exact_match": MetricSum(right, len(said))}
