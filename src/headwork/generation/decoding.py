"""One token after the other: a text from a `Decoder`, a translation from an `EncoderDecoder`.

How many tokens fit into a model, and which ids it knows, is decided here for all that generate.
"""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwork import masks
from headwork.checks import check_positive, with_article
from headwork.generation.lookup import continue_by_lookup
from headwork.generation.options import refuse_options
from headwork.generation.reading import TargetReader, TextReader
from headwork.generation.sampling import Greedy, Sampling, pick_checked
from headwork.models import Decoder, EncoderDecoder
from headwork.models.model import InputKind, describe

Ids = Int[Tensor, "batch token"] | Sequence[Sequence[int]]
"""A tensor, or a list of ids for each row, which may have different lengths."""
End = int | Sequence[int] | None
"""The id, or one of the ids, after which a row has nothing more to say."""


def stream(
    model: Decoder,
    ids: Ids,
    *,
    max_new_tokens: int,
    sampling: Sampling = Greedy(),
    end: End = None,
    generator: torch.Generator | None = None,
    visible: Bool[Tensor, "batch token"] | None = None,
    prompt_lookup: int | None = None,
    **others: object,
) -> Iterator[Int[Tensor, "batch"]]:
    """The next token of each row, one step at a time, at most `max_new_tokens` times.

    The prompt is read at once, each token is computed when it is asked for. A row that has come to `end` repeats it
    until all rows have. Prompts of different lengths are lists of ids, or a tensor padded on the left whose real tokens
    `visible` marks: each row goes on as it would alone.

    With `prompt_lookup` so many tokens at a time are guessed from what follows the same words earlier in the text, and
    read at once; those that greedy search would have taken are kept, so the text is the same. It pays where a text
    repeats itself: summaries, corrections, code. For a single row and `Greedy()`.
    """
    refuse_options(others)
    check_kind(model, "text")
    ids, visible = as_rows(ids, visible)
    check_prompt(ids, visible)
    check_length(model, ids.shape[1] if visible is None else int(visible.sum(1).amax()), max_new_tokens)
    ends = end_ids(end, model.config.vocab)
    if prompt_lookup is not None:
        check_lookup(prompt_lookup, len(ids), visible, sampling)
    read = TextReader(model)
    logits = read(ids, visible)
    if prompt_lookup is not None:
        return continue_by_lookup(read, ids, logits, max_new_tokens=max_new_tokens, ends=ends, n_guessed=prompt_lookup)
    return _steps(
        read,
        logits,
        past=(ids, visible),
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        ends=ends,
        generator=generator,
    )


def generate(
    model: Decoder,
    ids: Ids,
    *,
    max_new_tokens: int,
    sampling: Sampling = Greedy(),
    end: End = None,
    generator: torch.Generator | None = None,
    visible: Bool[Tensor, "batch token"] | None = None,
    prompt_lookup: int | None = None,
    **others: object,
) -> Int[Tensor, "batch new"]:
    """All tokens of `stream`, without the prompt: `max_new_tokens` of them, or fewer if every row came to `end` before.

    >>> config = hw.models.DecoderConfig(vocab=100, d_model=8, n_layers=2, heads=choices.Heads(n_heads=2),
    ...     feed_forward=choices.FeedForward(d_ff=32))
    >>> generate(hw.models.Decoder(config), torch.tensor([[3, 1, 4], [1, 5, 9]]), max_new_tokens=7).shape
    torch.Size([2, 7])
    """
    steps = stream(
        model,
        ids,
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        end=end,
        generator=generator,
        visible=visible,
        prompt_lookup=prompt_lookup,
        **others,
    )
    return _all(steps)


def stream_long(
    model: Decoder,
    ids: Int[Tensor, "batch token"],
    *,
    max_new_tokens: int,
    sampling: Sampling = Greedy(),
    generator: torch.Generator | None = None,
    prompt_lookup: int | None = None,
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
        for token in stream(
            model,
            ids,
            max_new_tokens=n_now,
            sampling=sampling,
            generator=generator,
            prompt_lookup=prompt_lookup,
        ):
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
    end: End,
    sampling: Sampling = Greedy(),
    generator: torch.Generator | None = None,
    source_visible: Bool[Tensor, "batch source_token"] | None = None,
) -> Iterator[Int[Tensor, "batch"]]:
    """The next target token of each row after `begin`, one step at a time; the rest is as in `stream`."""
    read = read_target(model, source, max_new_tokens=max_new_tokens, begin=begin, source_visible=source_visible)
    ends = end_ids(end, model.config.target_vocab or model.config.vocab)
    first = torch.full((len(source), 1), begin, device=source.device)
    return _steps(
        read,
        read(first),
        past=(first, None),
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        ends=ends,
        generator=generator,
    )


def translate(
    model: EncoderDecoder,
    source: Int[Tensor, "batch source_token"],
    *,
    max_new_tokens: int,
    begin: int,
    end: End,
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
    return _all(steps)


def _all(steps: Iterator[Int[Tensor, "batch"]]) -> Int[Tensor, "batch new"]:
    with torch.inference_mode():  # once, not at every token
        tokens = list(steps)
    return torch.stack(tokens, dim=1)  # a tensor that gradients may go through


def _steps(
    read: TextReader | TargetReader,
    logits: Float[Tensor, "batch vocab"],
    *,
    past: tuple[Int[Tensor, "batch token"], Bool[Tensor, "batch token"] | None],
    max_new_tokens: int,
    sampling: Sampling,
    ends: tuple[int, ...],
    generator: torch.Generator | None,
) -> Iterator[Int[Tensor, "batch"]]:
    seen = tokens_of(*past, logits.shape[1]) if sampling.repetition_penalty != 1 else None
    token = ended = None
    of_end = torch.tensor(ends, device=logits.device)
    for step in range(max_new_tokens):
        new = pick_checked(logits, sampling, generator, seen)
        token = new if token is None or ended is None else torch.where(ended, token, new)
        if ends:
            ended = torch.isin(token, of_end)
        if seen is not None:
            seen.scatter_(1, token[:, None], True)
        yield token
        if step + 1 == max_new_tokens or (ended is not None and ended.all()):
            return
        logits = read(token[:, None])


def tokens_of(
    ids: Int[Tensor, "batch token"], visible: Bool[Tensor, "batch token"] | None, vocab: int
) -> Bool[Tensor, "batch vocab"]:
    """Which tokens each row has; padding is none.

    >>> tokens_of(torch.tensor([[2, 0, 2]]), None, 4)
    tensor([[ True, False,  True, False]])
    """
    real = torch.ones_like(ids, dtype=torch.bool) if visible is None else visible
    row, column = real.nonzero(as_tuple=True)
    seen = torch.zeros(len(ids), vocab, dtype=torch.bool, device=ids.device)
    seen[row, ids[row, column]] = True
    return seen


def as_rows(
    ids: Ids, visible: Bool[Tensor, "batch token"] | None = None
) -> tuple[Int[Tensor, "batch token"], Bool[Tensor, "batch token"] | None]:
    """Prompts as a tensor, and which of its tokens are real; shorter ones are padded on the left.

    >>> as_rows([[3, 1, 4], [5]])
    (tensor([[3, 1, 4],
            [0, 0, 5]]), tensor([[ True,  True,  True],
            [False, False,  True]]))
    """
    if isinstance(ids, Tensor):
        return ids, visible
    if any(isinstance(row, int | str) for row in ids):
        raise TypeError(f"ids must be a list of ids for each text, as [[3, 1, 4]], got {ids!r:.40}")
    if visible is not None:
        raise ValueError("visible must be None for lists of ids, which say themselves how long they are, got a mask")
    lengths = [len(row) for row in ids]
    if not lengths or min(lengths) == 0:
        raise ValueError(f"ids must be lists of at least one token each, got the lengths {lengths}")
    rows = torch.tensor([[0] * (max(lengths) - len(row)) + list(row) for row in ids])
    if min(lengths) == max(lengths):
        return rows, None
    return rows, torch.arange(max(lengths)) >= max(lengths) - torch.tensor(lengths)[:, None]


def end_ids(end: End, vocab: int) -> tuple[int, ...]:
    """All ids after which a row ends, which must be of the vocabulary."""
    ends = () if end is None else (end,) if isinstance(end, int) else tuple(end)
    for one in ends:
        check_token_ids(vocab, end=one)
    return ends


def check_lookup(prompt_lookup: int, n_rows: int, visible: Tensor | None, sampling: Sampling) -> None:
    check_positive(prompt_lookup=prompt_lookup)
    if n_rows != 1 or visible is not None:
        raise ValueError(f"prompt_lookup is for a single row without padding, got {n_rows} rows")
    if sampling != Greedy():
        raise ValueError(f"prompt_lookup needs sampling=Greedy(), got {sampling}")


def read_target(
    model: EncoderDecoder,
    source: Int[Tensor, "batch source_token"],
    *,
    max_new_tokens: int,
    begin: int,
    source_visible: Bool[Tensor, "batch source_token"] | None,
) -> TargetReader:
    """A reader that has read the source; `begin` and the length of the target are checked."""
    check_kind(model, "text pair")
    check_length(model, 1, max_new_tokens)
    check_token_ids(model.config.target_vocab or model.config.vocab, begin=begin)
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
