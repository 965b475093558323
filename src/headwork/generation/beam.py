"""Beam search: several continuations of a text, or translations of a source, grow side by side; the best one wins."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headwork.checks import check_positive
from headwork.generation.decoding import (
    End,
    Ids,
    as_rows,
    check_kind,
    check_length,
    check_prompt,
    check_token_ids,
    end_ids,
    read_target,
)
from headwork.generation.reading import TargetReader, TextReader
from headwork.models import Decoder, EncoderDecoder, describe

LARGEST_EXPONENT = 80.0
"""e to this is a number in float32."""


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """New tokens and their score; `ids` are without `begin` or prompt, and with the end unless they were cut off."""

    ids: Int[Tensor, "token"]
    score: float


def beam_search(
    model: Decoder | EncoderDecoder,
    source: Ids,
    *,
    n_beams: int,
    max_new_tokens: int,
    end: End,
    begin: int | None = None,
    length_penalty: float = 1.0,
    source_visible: Bool[Tensor, "batch source_token"] | None = None,
    forbidden: Sequence[int] = (),
    first: int | None = None,
) -> list[Hypothesis]:
    r"""The best translation that was found for each source, or the best text after each prompt, of a `Decoder`.

    The score of the n <= `max_new_tokens` new tokens, `end` among them, is

    $$\frac{1}{n^{\text{length penalty}}} \sum_{t=1}^{n} \log p(y_t \mid y_{<t}, x)$$

    so a penalty of 0 asks for the most probable translation, 1 for the best mean, and more favours long ones. Of the
    n_beams best continuations of all beams, those that end are finished; the n_beams best that do not end go on. A
    source is done when nothing that its beams may become can be better than the best finished translation (Hugging
    Face: `early_stopping="never"`). One beam is greedy search, and done at the first `end`. A translation starts with
    `begin`; the ids `forbidden` are never chosen; the first new token is `first`, if it is given, and certain.

    >>> config = hw.models.EncoderDecoderConfig(vocab=100, d_model=8, n_encoder_layers=1, n_decoder_layers=1,
    ...     heads=choices.Heads(n_heads=2), feed_forward=choices.FeedForward(d_ff=32))
    >>> model, source = hw.models.EncoderDecoder(config), torch.tensor([[3, 1, 4], [1, 5, 9]])
    >>> best, other = beam_search(model, source, n_beams=4, max_new_tokens=7, begin=0, end=1)
    >>> best.score < 0 and len(best.ids) <= 7
    True
    """
    check_positive(n_beams=n_beams)
    check_length_penalty(length_penalty, max_new_tokens)
    source, source_visible = as_rows(source, source_visible)
    read, logits = start(model, source, source_visible, begin, max_new_tokens)
    ends, never = end_ids(end, logits.shape[1]), list(end_ids(forbidden, logits.shape[1]))
    check_token_ids(logits.shape[1], first=first)
    if first is not None:
        logits = torch.full_like(logits, -math.inf).index_fill(1, source.new_tensor([first]), 0.0)
    of_end = torch.tensor(ends, device=source.device)
    ids = source.new_zeros((len(source), 1, 0))
    sums = torch.zeros(len(source), 1, device=source.device)
    best = [Hypothesis(ids[row, 0], -math.inf) for row in range(len(source))]
    for n in range(1, max_new_tokens + 1):
        ids, sums, rows = continuations(ids, sums, logits, n_beams if n_beams == 1 else 2 * n_beams, never)
        ended = torch.isin(ids[:, :, -1], of_end) | (n == max_new_tokens)
        scores = (sums / n**length_penalty).masked_fill(~ended, -math.inf)
        score, beam = (t.tolist() for t in scores[:, :n_beams].max(1))
        for row, hypothesis in enumerate(best):
            if score[row] > hypothesis.score:
                best[row] = Hypothesis(ids[row, beam[row]], score[row])
        ids, sums, rows = keep_best(ids, sums.masked_fill(ended, -math.inf), rows, n_beams)
        longest = max_new_tokens if length_penalty > 0 else n + 1  # the length at which the sum of today scores best
        bounds = (sums[:, 0] / longest**length_penalty).tolist()
        if all(hypothesis.score >= bound for hypothesis, bound in zip(best, bounds, strict=True)):
            break
        read.reorder(rows.flatten())
        logits = read(ids[:, :, -1].reshape(-1, 1))
    return best


def start(
    model: Decoder | EncoderDecoder,
    source: Int[Tensor, "batch source_token"],
    visible: Bool[Tensor, "batch source_token"] | None,
    begin: int | None,
    max_new_tokens: int,
) -> tuple[TextReader | TargetReader, Float[Tensor, "batch vocab"]]:
    """A reader that has read the source, and the scores of the first new token."""
    described = describe(model)
    if described is not None and described.input == "text":
        check_kind(model, "text")
        check_prompt(source, visible)
        check_length(model, source.shape[1] if visible is None else int(visible.sum(1).amax()), max_new_tokens)
        if begin is not None:
            raise ValueError(f"begin must be None for a model that continues its prompt, got {begin}")
        read = TextReader(model)  # type: ignore[arg-type]  # its description says that it continues texts
        return read, read(source, visible)
    if begin is None:
        raise ValueError("begin must be the id that starts a translation, got None")
    of_target = read_target(
        model,  # type: ignore[arg-type]  # which is checked there
        source,
        max_new_tokens=max_new_tokens,
        begin=begin,
        source_visible=visible,
    )
    return of_target, of_target(source.new_full((len(source), 1), begin))


def continuations(
    ids: Int[Tensor, "batch beam token"],
    sums: Float[Tensor, "batch beam"],
    logits: Float[Tensor, "rows vocab"],
    n_kept: int,
    never: Sequence[int] = (),
) -> tuple[Int[Tensor, "batch kept longer"], Float[Tensor, "batch kept"], Int[Tensor, "batch kept"]]:
    """The best continuations of each source by one token, best first, and the rows of the logits that they continue."""
    batch, n_live = sums.shape
    vocab = logits.shape[1]
    log_p = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    log_p[:, never] = -math.inf
    totals = (sums.reshape(-1, 1) + log_p).reshape(batch, n_live * vocab)
    sums, best = totals.topk(min(n_kept, n_live * vocab))
    rows = best // vocab + n_live * torch.arange(batch, device=best.device)[:, None]
    return torch.cat([ids.flatten(0, 1)[rows], (best % vocab)[..., None]], dim=-1), sums, rows


def keep_best(
    ids: Int[Tensor, "batch beam token"],
    sums: Float[Tensor, "batch beam"],
    rows: Int[Tensor, "batch beam"],
    n_kept: int,
) -> tuple[Int[Tensor, "batch kept token"], Float[Tensor, "batch kept"], Int[Tensor, "batch kept"]]:
    sums, beam = sums.topk(min(n_kept, sums.shape[1]))
    return torch.take_along_dim(ids, beam[..., None], dim=1), sums, rows.gather(1, beam)


def check_length_penalty(length_penalty: float, max_new_tokens: int) -> None:
    """A penalty so large that its power overflows would make all scores equal."""
    if not abs(length_penalty) * math.log(max(max_new_tokens, 2)) < LARGEST_EXPONENT:
        raise ValueError(f"length_penalty must keep max_new_tokens ** length_penalty finite, got {length_penalty}")
