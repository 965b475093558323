"""Texts in, texts out: prompts of different lengths, the text as it comes, and where it stops."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

import torch

from headwork.generation.decoding import End, check_prompt_length, end_ids, stream, stream_long
from headwork.generation.options import refuse_options
from headwork.generation.sampling import Greedy, Sampling
from headwork.models import Decoder

BYTES_OF_CHARACTER = 4
"""In UTF-8, each a token of its own at worst."""
WINDOW = 4 * BYTES_OF_CHARACTER


@runtime_checkable
class TextTokenizer(Protocol):
    """Ids of a text and back."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


def stream_text(
    model: Decoder,
    tokenizer: TextTokenizer,
    prompt: str | Sequence[int],
    *,
    max_new_tokens: int,
    sampling: Sampling = Greedy(),
    end: End = None,
    stop: Sequence[str] = (),
    generator: torch.Generator | None = None,
    prompt_lookup: int | None = None,
    **others: object,
) -> Iterator[str]:
    """The text after the prompt (or after its ids), piece by piece as it comes, however long.

    It ends before the first of the ids `end`, or where one of the strings `stop` begins, which are not shown.
    """
    refuse_options(others)
    check_stop(stop)
    ids = encode_prompt(tokenizer, prompt)
    check_prompt_length(model, len(ids))
    ends = end_ids(end, model.config.vocab)
    steps = stream_long(
        model,
        torch.tensor([ids]),
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        generator=generator,
        prompt_lookup=prompt_lookup,
    )
    return until_stop(decode_stream(tokenizer, until_end(map(int, steps), ends), before=ids), stop)


def generate_text(
    model: Decoder,
    tokenizer: TextTokenizer,
    prompts: Sequence[str | Sequence[int]],
    *,
    max_new_tokens: int,
    sampling: Sampling = Greedy(),
    end: End = None,
    stop: Sequence[str] = (),
    generator: torch.Generator | None = None,
    **others: object,
) -> list[str]:
    """The texts after several prompts of any lengths, computed together, each as it would be alone (see `stream_text`).

    >>> class Letters:
    ...     def encode(self, text): return [ord(letter) - ord("a") for letter in text]
    ...     def decode(self, ids): return "".join(chr(i + ord("a")) for i in ids)
    >>> config = hw.models.DecoderConfig(vocab=26, d_model=8, n_layers=1, heads=choices.Heads(n_heads=2),
    ...     feed_forward=choices.FeedForward(d_ff=32))
    >>> [len(text) for text in generate_text(hw.models.Decoder(config), Letters(), ["abc", "x"], max_new_tokens=7)]
    [7, 7]
    """
    refuse_options(others)
    check_stop(stop)
    if isinstance(prompts, str):
        raise TypeError(f"prompts must be a list of texts, got a single one: write [{prompts[:20]!r}]")
    ids = [encode_prompt(tokenizer, prompt) for prompt in prompts]
    for row in ids:
        check_prompt_length(model, len(row))
    ends = end_ids(end, model.config.vocab)
    rows: list[list[int]] = [[] for _ in ids]
    live = set(range(len(ids)))
    n_last = max((len(text.encode()) for text in stop), default=0) + BYTES_OF_CHARACTER
    steps = stream(model, ids, max_new_tokens=max_new_tokens, sampling=sampling, end=ends, generator=generator)
    for tokens in steps:
        for i in tuple(live):
            rows[i].append(token := int(tokens[i]))
            said = tokenizer.decode(rows[i][-n_last:]) if stop else ""
            if token in ends or any(text in said for text in stop):
                live.remove(i)
        if not live:
            break
    return [
        "".join(until_stop(decode_stream(tokenizer, until_end(row, ends), before=prompt), stop))
        for prompt, row in zip(ids, rows, strict=True)
    ]


def encode_prompt(tokenizer: TextTokenizer, prompt: str | Sequence[int]) -> list[int]:
    return tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)


def until_end(tokens: Iterable[int], ends: tuple[int, ...]) -> Iterator[int]:
    """The tokens before the first that ends a text; nothing after it is computed."""
    for token in tokens:
        if token in ends:
            return
        yield token


def decode_stream(tokenizer: TextTokenizer, tokens: Iterable[int], before: Sequence[int] = ()) -> Iterator[str]:
    """The text of each new token in constant time: it depends on a few tokens `before` it only.

    Half of a character is held back until the rest of it has come.
    """
    window = list(before[-BYTES_OF_CHARACTER:])
    shown, n_held = tokenizer.decode(window) if window else "", 0
    for token in tokens:
        window.append(token)
        text = tokenizer.decode(window)
        n_held += 1
        if text.endswith("\N{REPLACEMENT CHARACTER}") and n_held < BYTES_OF_CHARACTER:
            continue
        yield text[len(shown) :]
        shown, n_held = text, 0
        if len(window) > WINDOW:
            window = window[-BYTES_OF_CHARACTER:]
            shown = tokenizer.decode(window)
    if n_held:
        yield tokenizer.decode(window)[len(shown) :]


def until_stop(pieces: Iterable[str], stop: Sequence[str]) -> Iterator[str]:
    """The text until one of these strings begins; what may be the beginning of one is held back.

    >>> list(until_stop(["one, t", "wo, th", "ree"], [" three"]))
    ['one,', ' two,']
    """
    held = ""
    for piece in pieces:
        held += piece
        found = [held.index(text) for text in stop if text in held]
        if found:
            held = held[: min(found)]
            break
        n_held = max((n for text in stop for n in range(1, len(text)) if held.endswith(text[:n])), default=0)
        if n_held < len(held):
            yield held[: len(held) - n_held]
        held = held[len(held) - n_held :]
    if held:
        yield held


def check_stop(stop: Sequence[str]) -> None:
    if isinstance(stop, str) or not all(stop):
        raise ValueError(f"stop must be a list of texts that are not empty, got {stop!r}")
