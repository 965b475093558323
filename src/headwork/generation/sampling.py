"""From the scores of all tokens to one of them: the best, or one by chance, with fewer repetitions if asked."""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headwork.checks import Count, PositiveNumber, check_positive
from headwork.serialise import Checked


def check_top_p(top_p: float) -> None:
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p must lie in (0, 1], got {top_p}")


def check_min_p(min_p: float) -> None:
    if not 0 <= min_p <= 1:
        raise ValueError(f"min_p must lie in [0, 1], got {min_p}")


@dataclass(frozen=True, kw_only=True)
class Greedy(Checked):
    """Always the token with the largest score; a `repetition_penalty` above 1 makes tokens of the past less likely."""

    repetition_penalty: PositiveNumber = 1.0


@dataclass(frozen=True, kw_only=True)
class Sample(Checked):
    """A token by chance: scores are divided by the temperature, then cut to the best `top_k`, to `top_p`, to `min_p`.

    A temperature below 1 favours the likely tokens, above 1 the others; towards 0 it becomes `Greedy`. Before all that,
    a `repetition_penalty` above 1 makes tokens of the past less likely. The order is that of Hugging Face.
    """

    temperature: PositiveNumber = 1.0
    top_k: Count | None = None
    top_p: Annotated[float, check_top_p] | None = None
    min_p: Annotated[float, check_min_p] | None = None
    repetition_penalty: PositiveNumber = 1.0


Sampling = Greedy | Sample


def pick(
    logits: Float[Tensor, "batch vocab"],
    sampling: Sampling = Greedy(),
    generator: torch.Generator | None = None,
    seen: Bool[Tensor, "batch vocab"] | None = None,
) -> Int[Tensor, "batch"]:
    """One token for each row; the same generator in the same state picks the same tokens.

    `seen` marks the tokens of the past, for a repetition penalty.

    >>> pick(torch.tensor([[0.0, 2.0, 1.0]]))
    tensor([1])
    >>> pick(torch.zeros(4, 3), Sample(top_k=1), torch.Generator().manual_seed(0)).shape
    torch.Size([4])
    """
    check_scores(logits)
    return pick_checked(logits, sampling, generator, seen)


def pick_checked(
    logits: Float[Tensor, "batch vocab"],
    sampling: Sampling,
    generator: torch.Generator | None,
    seen: Bool[Tensor, "batch vocab"] | None,
) -> Int[Tensor, "batch"]:
    """As `pick`, of scores that a reader has checked."""
    match sampling:
        case Greedy():
            return _with_penalty(logits, sampling, seen).argmax(-1)
        case Sample():
            return draw(probabilities(_with_penalty(logits, sampling, seen), sampling), generator)
    raise TypeError(f"sampling must be Greedy() or Sample(...), got {sampling!r}")


def draw(p: Float[Tensor, "batch vocab"], generator: torch.Generator | None = None) -> Int[Tensor, "batch"]:
    r"""One token of each row by its probabilities: the first to ring, if each waits $e_i / p_i$ with exponential $e_i$.

    These are the tokens of `torch.multinomial`, in half the time.

    >>> draw(torch.tensor([[0.0, 1.0, 0.0]]))
    tensor([1])
    """
    return (p / torch.empty_like(p).exponential_(generator=generator)).argmax(-1)


def _with_penalty(logits: Tensor, sampling: Sampling, seen: Tensor | None) -> Float[Tensor, "batch vocab"]:
    if sampling.repetition_penalty == 1:
        return logits
    if seen is None:
        raise ValueError("seen must mark the tokens of the past for a repetition_penalty, got None")
    return penalise(logits, seen, sampling.repetition_penalty)


def probabilities(logits: Float[Tensor, "batch vocab"], sampling: Sample) -> Float[Tensor, "batch vocab"]:
    """With which probability `pick` takes each token.

    >>> probabilities(torch.tensor([[0.0, 1.0, 1.0]]), Sample(top_k=2))
    tensor([[0.0000, 0.5000, 0.5000]])
    """
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    temperature = max(sampling.temperature, torch.finfo(logits.dtype).tiny)
    logits = (logits - logits.amax(-1, keepdim=True)) / temperature  # measured from the best score, nothing overflows
    if sampling.top_k is not None:
        logits = keep_top_k(logits, sampling.top_k)
    if sampling.top_p is not None:
        logits = keep_top_p(logits, sampling.top_p)
    if sampling.min_p is not None:
        logits = keep_min_p(logits, sampling.min_p)
    return logits.softmax(-1)


def penalise(
    logits: Float[Tensor, "batch vocab"], seen: Bool[Tensor, "batch vocab"], penalty: float
) -> Float[Tensor, "batch vocab"]:
    """Scores of tokens that were seen are divided by the penalty if they are positive, else multiplied with it.

    Keskar et al., "CTRL", 2019.

    >>> penalise(torch.tensor([[2.0, -2.0, 2.0]]), torch.tensor([[True, True, False]]), 2.0)
    tensor([[ 1., -4.,  2.]])
    """
    return torch.where(seen, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def keep_top_k(logits: Float[Tensor, "*batch vocab"], k: int) -> Float[Tensor, "*batch vocab"]:
    """The k largest scores stay (all of them if there are fewer, and those equal to the last); the others become -inf.

    >>> keep_top_k(torch.tensor([3.0, 1.0, 2.0]), 2)
    tensor([3., -inf, 2.])
    """
    check_positive(k=k)
    least = logits.topk(min(k, logits.shape[-1])).values[..., -1:]
    return logits.masked_fill(logits < least, -math.inf)


def keep_top_p(logits: Float[Tensor, "*batch vocab"], p: float) -> Float[Tensor, "*batch vocab"]:
    """The fewest tokens whose probability together reaches p stay, always at least one; the others become -inf.

    Holtzman et al., "The curious case of neural text degeneration", 2020.

    >>> keep_top_p(torch.tensor([0.5, 0.3, 0.2]).log(), 0.6).exp()
    tensor([0.5000, 0.3000, 0.0000])
    """
    check_top_p(p)
    if p == 1:  # rounding must not cost a token
        return logits
    best_first, order = logits.sort(dim=-1, descending=True)
    probability = best_first.softmax(-1)
    reached_before = probability.cumsum(-1) - probability >= p
    reached_before[..., 0] = False
    return logits.masked_fill(reached_before.scatter(-1, order, reached_before), -math.inf)


def keep_min_p(logits: Float[Tensor, "*batch vocab"], p: float) -> Float[Tensor, "*batch vocab"]:
    """Tokens stay whose probability is at least p times that of the likeliest; the others become -inf.

    Nguyen et al., "Turning up the heat: min-p sampling", 2024.

    >>> keep_min_p(torch.tensor([0.5, 0.3, 0.2]).log(), 0.5).exp()
    tensor([0.5000, 0.3000, 0.0000])
    """
    check_min_p(p)
    probability = logits.softmax(-1)
    return logits.masked_fill(probability < p * probability.amax(-1, keepdim=True), -math.inf)


def check_scores(logits: Float[Tensor, "batch vocab"], n_read: int | None = None) -> None:
    """Raise unless the best score of every row is a finite number; a score of -inf beside it rules a token out."""
    best = logits.amax(-1).tolist()
    if not all(map(math.isfinite, best)):
        row = next(i for i, score in enumerate(best) if not math.isfinite(score))
        when = "" if n_read is None else f" after {n_read} tokens: are all weights of the model finite?"
        raise ValueError(f"the best score of each row must be finite, got {best[row]} in row {row}{when}")
