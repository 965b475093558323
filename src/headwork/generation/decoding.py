"""One token after the other: a text from a `Decoder`, a translation from an `EncoderDecoder`.

How many tokens fit into a model, and which ids it knows, is decided here for all that generate.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwork import masks
from headwork.checks import check_positive, with_article
from headwork.generation.reading import TargetReader, TextReader
from headwork.generation.sampling import Greedy, Sampling, pick
from headwork.models import Decoder, EncoderDecoder
from headwork.models.model import InputKind, describe


def stream(
    model: Decoder,
    ids: Int[Tensor, "batch token"],
    *,
    max_new_tokens: int,
    sampling: Sampling = Greedy(),
    end: int | None = None,
    generator: torch.Generator | None = None,
    visible: Bool[Tensor, "batch token"] | None = None,
) -> Iterator[Int[Tensor, "batch"]]:
    """The next token of each row, one step at a time, at most `max_new_tokens` times.

    The prompt is read at once, each token is computed when it is asked for. A row that has come to `end` repeats it
    until all rows have. Prompts of different lengths are padded on the left, and `visible` marks their real tokens:
    each row goes on as it would alone.
    """
    check_kind(model, "text")
    check_prompt(ids, visible)
    check_length(model, ids.shape[1] if visible is None else int(visible.sum(1).amax()), max_new_tokens)
    check_token_ids(model.config.vocab, end=end)
    read = TextReader(model)
    return _steps(
        read, read(ids, visible), max_new_tokens=max_new_tokens, sampling=sampling, end=end, generator=generator
    )


def generate(
    model: Decoder,
    ids: Int[Tensor, "batch token"],
    *,
    max_new_tokens: int,
    sampling: Sampling = Greedy(),
    end: int | None = None,
    generator: torch.Generator | None = None,
    visible: Bool[Tensor, "batch token"] | None = None,
) -> Int[Tensor, "batch new"]:
    """All tokens of `stream`, without the prompt: `max_new_tokens` of them, or fewer if every row came to `end` before.

    >>> config = hw.models.DecoderConfig(vocab=100, d_model=8, n_layers=2, heads=choices.Heads(n_heads=2),
    ...     feed_forward=choices.FeedForward(d_ff=32))
    >>> generate(hw.models.Decoder(config), torch.tensor([[3, 1, 4], [1, 5, 9]]), max_new_tokens=7).shape
    torch.Size([2, 7])
    """
    steps = stream(
        model, ids, max_new_tokens=max_new_tokens, sampling=sampling, end=end, generator=generator, visible=visible
    )
    return torch.stack(list(steps), dim=1)


def stream_long(
    model: Decoder,
    ids: Int[Tensor, "batch token"],
    *,
    max_new_tokens: int,
    sampling: Sampling = Greedy(),
    generator: torch.Generator | None = None,
) -> Iterator[Int[Tensor, "batch"]]:
    """As `stream`, however many tokens are asked for.

    A model with learned positions has only so many. When they are used up, the last half of them is read again as a
    prompt, and the text goes on from there.

    >>> config = hw.models.DecoderConfig(vocab=11, d_model=8, n_layers=1, heads=choices.Heads(n_heads=2),
    ...     feed_forward=choices.FeedForward(d_ff=16), position=choices.LearnedPositions(max_tokens=5))
    >>> len(list(stream_long(hw.models.Decoder(config), torch.tensor([[3, 1]]), max_new_tokens=20)))
    20
    """
    check_positive(max_new_tokens=max_new_tokens)
    check_prompt_length(model, ids.shape[1])
    limit = max_tokens(model) or ids.shape[1] + max_new_tokens
    while max_new_tokens > 0:
        if ids.shape[1] >= limit:
            ids = ids[:, -max(limit // 2, 1) :]
        n_now = min(max_new_tokens, max(limit - ids.shape[1], 1))
        new = []
        for token in stream(model, ids, max_new_tokens=n_now, sampling=sampling, generator=generator):
            new.append(token)
            yield token
        ids = torch.cat([ids, torch.stack(new, dim=1)], dim=1)
        max_new_tokens -= n_now


def stream_translation(
    model: EncoderDecoder,
    source: Int[Tensor, "batch source_token"],
    *,
    max_new_tokens: int,
    begin: int,
    end: int | None,
    sampling: Sampling = Greedy(),
    generator: torch.Generator | None = None,
    source_visible: Bool[Tensor, "batch source_token"] | None = None,
) -> Iterator[Int[Tensor, "batch"]]:
    """The next target token of each row after `begin`, one step at a time; the rest is as in `stream`."""
    read = read_target(
        model, source, max_new_tokens=max_new_tokens, begin=begin, end=end, source_visible=source_visible
    )
    logits = read(torch.full((len(source), 1), begin, device=source.device))
    return _steps(read, logits, max_new_tokens=max_new_tokens, sampling=sampling, end=end, generator=generator)


def translate(
    model: EncoderDecoder,
    source: Int[Tensor, "batch source_token"],
    *,
    max_new_tokens: int,
    begin: int,
    end: int | None,
    sampling: Sampling = Greedy(),
    generator: torch.Generator | None = None,
    source_visible: Bool[Tensor, "batch source_token"] | None = None,
) -> Int[Tensor, "batch new"]:
    """All tokens of `stream_translation`: without `begin`, with `end`. Better ones may come from `beam_search`.

    >>> config = hw.models.EncoderDecoderConfig(vocab=100, d_model=8, n_encoder_layers=1, n_decoder_layers=1,
    ...     heads=choices.Heads(n_heads=2), feed_forward=choices.FeedForward(d_ff=32))
    >>> source = torch.tensor([[3, 1, 4]])
    >>> translate(hw.models.EncoderDecoder(config), source, max_new_tokens=7, begin=0, end=None).shape
    torch.Size([1, 7])
    """
    steps = stream_translation(
        model,
        source,
        max_new_tokens=max_new_tokens,
        begin=begin,
        end=end,
        sampling=sampling,
        generator=generator,
        source_visible=source_visible,
    )
    return torch.stack(list(steps), dim=1)


def _steps(
    read: TextReader | TargetReader,
    logits: Float[Tensor, "batch vocab"],
    *,
    max_new_tokens: int,
    sampling: Sampling,
    end: int | None,
    generator: torch.Generator | None,
) -> Iterator[Int[Tensor, "batch"]]:
    ended = torch.zeros(len(logits), dtype=torch.bool, device=logits.device)
    for step in range(max_new_tokens):
        token = pick(logits, sampling, generator)
        if end is not None:
            token = token.masked_fill(ended, end)
            ended = token == end
        yield token
        if step + 1 == max_new_tokens or (end is not None and ended.all()):
            return
        logits = read(token[:, None])


def read_target(
    model: EncoderDecoder,
    source: Int[Tensor, "batch source_token"],
    *,
    max_new_tokens: int,
    begin: int,
    end: int | None,
    source_visible: Bool[Tensor, "batch source_token"] | None,
) -> TargetReader:
    """A reader that has read the source; `begin`, `end` and the length of the target are checked."""
    check_kind(model, "text pair")
    check_length(model, 1, max_new_tokens)
    check_token_ids(model.config.target_vocab or model.config.vocab, begin=begin, end=end)
    return TargetReader(model, source, source_visible)


def check_prompt(ids: Tensor, visible: Tensor | None) -> None:
    """A prompt has at least one token in each row, and padding only before it."""
    if ids.ndim != 2 or ids.shape[1] == 0:
        raise ValueError(f"ids must have the axes (batch, token) and at least one token, got shape {tuple(ids.shape)}")
    masks.check_padding(visible, (ids.shape[0], ids.shape[1]))
    if visible is not None and not visible[:, -1].all():
        rows = (~visible[:, -1]).nonzero().flatten().tolist()
        raise ValueError(f"visible must be True for the last token of each row (pad on the left), got False in {rows}")


def max_tokens(model: nn.Module) -> int | None:
    """The longest sequence that the model can read; None: any length."""
    description = describe(model)
    return None if description is None else description.max_tokens


def check_kind(model: nn.Module, reads: InputKind) -> None:
    """Raise unless the model predicts the next token of what it reads."""
    description = describe(model)
    if description is not None and (description.input, description.output) != (reads, "next token"):
        who = "generate needs a Decoder" if reads == "text" else "translate needs an EncoderDecoder"
        raise ValueError(
            f"{who}: a model that reads a {reads} and predicts the next token, got "
            f"{with_article(type(model).__name__)}, which reads {with_article(description.input)} "
            f"and gives a {description.output}"
        )


def check_prompt_length(model: nn.Module, n_prompt: int) -> None:
    """Raise unless a prompt of so many tokens can be read."""
    limit = max_tokens(model)
    if n_prompt < 1:
        raise ValueError("prompt must have at least one token, got none")
    if limit is not None and n_prompt > limit:
        raise ValueError(f"prompt must have at most {limit} tokens, the positions of the model, got {n_prompt}")


def check_length(model: nn.Module, n_prompt: int, max_new_tokens: int) -> None:
    """Positions may come to an end: better to say so before the work than in its middle."""
    check_positive(max_new_tokens=max_new_tokens)
    limit = max_tokens(model)
    if limit is not None and n_prompt + max_new_tokens > limit:
        raise ValueError(
            f"prompt and new tokens must fit into the {limit} positions of the model, "
            f"got {n_prompt} + max_new_tokens={max_new_tokens}"
        )


def check_token_ids(vocab: int, **ids: int | None) -> None:
    """Raise unless these ids are of the vocabulary (None: not given)."""
    for name, token in ids.items():
        if token is not None and not 0 <= token < vocab:
            raise ValueError(f"{name} must lie in 0 .. {vocab - 1}, got {token}")
