"""What a model is called with for an input of the page, its tokens as they are shown, and what the page shows first."""

from dataclasses import dataclass, field
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from headwork.data import Digits, Tokenizer, read_image, sample_photo
from headwork.explorer.questions import Input, RefusedError
from headwork.explorer.subject import MOST_TOKENS, Subject
from headwork.generation.reading import TargetReader
from headwork.hub import MarianTokenizer, PretrainedTokenizer

SENTENCE = "The cat sat on the mat because it was"


@dataclass(frozen=True)
class TokenRow:
    """Tokens along one side of a map."""

    name: str
    strings: list[str]
    ids: list[int] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Encoded:
    """What the model is called with, and how it is shown."""

    inputs: tuple[Tensor, ...]
    sequences: tuple[TokenRow, ...]
    pixels: Float[Tensor, "channel row column"] | None = None
    n_unknown: int = 0


def encode_input(subject: Subject, given: Input) -> Encoded:
    """The tensors of an input, and its tokens as they are shown; a sentence if it cannot be read.

    A translation that is not given is written by the model.
    """
    if given.example is not None:
        return _encode_example(subject, given.example)
    if subject.description.input == "image":
        return _encode_image(subject, given.pixels)
    source, n_unknown = _ids(subject, given.text, given.ids, "source" if subject.is_pair else "text")
    if not subject.is_pair:
        return Encoded((torch.tensor([source]),), (_row(subject, "tokens", source),), n_unknown=n_unknown)
    target, more = list[int](), 0
    if given.target is None and given.target_ids is None:
        target = translate(subject, source)
    elif given.target != "":
        target, more = _ids(subject, given.target, given.target_ids, "target")
    begun = target if given.target_ids is not None else [_begin(subject), *target]
    return Encoded(
        (torch.tensor([source]), torch.tensor([begun])),
        (_row(subject, "source", source), _row(subject, "target", begun)),
        n_unknown=n_unknown + more,
    )


def translate(subject: Subject, source: list[int], begun: list[int] | None = None) -> list[int]:
    """What the model says of a source after what is begun, always the likeliest token, without its end."""
    said, new = list[int](), [_begin(subject), *(begun or [])]
    limit = min(subject.description.max_tokens or MOST_TOKENS, 2 * len(source) + 20, subject.most_tokens)
    read = TargetReader(subject.model, torch.tensor([source]))  # type: ignore[arg-type]  # it translates
    for _ in range(limit - len(new)):
        try:
            token = int(read(torch.tensor([new])).argmax())
        except ValueError:  # scores that are not finite, as the answer says
            break
        if token in subject.end:
            break
        said.append(token)
        new = [token]
    return said


def encode_pixels(subject: Subject, pixels: Float[Tensor, "channel row column"]) -> Encoded:
    """An image from 0 to 1, as the model was trained to read it."""
    read = pixels[None]
    if (how := subject.preprocessing) is not None:
        mean, deviation = (torch.tensor(each).reshape(1, -1, 1, 1) for each in (how.mean, how.deviation))
        read = (255 * how.scale * read - mean) / deviation
    grid = subject.grid
    patches = [f"row {r + 1}, column {c + 1}" for r in range(grid[0]) for c in range(grid[1])]
    extra = ["class token", "distillation token"][: subject.n_extra]
    return Encoded((read,), (TokenRow("patches", [*extra, *patches]),), pixels=pixels)


def start_input(subject: Subject, text: str | None = None, image: Path | None = None) -> Input:
    """What the page shows first."""
    if subject.description.input == "image":
        return Input(pixels=tuple(_first_image(subject, image).flatten().tolist()))
    if text is not None:
        return _typed(subject, text)
    tokenizer = subject.tokenizer
    if tokenizer is None:
        vocab, n_outputs = subject.description.vocab or 10, subject.description.n_outputs
        target = tuple(i % n_outputs for i in (0, 2, 7, 1)) if subject.is_pair else None
        return Input(ids=tuple(i % vocab for i in (3, 1, 4, 1, 5, 9, 2, 6)), target_ids=target)
    mask = getattr(tokenizer, "mask", None)
    if subject.description.output == "masked token" and mask is not None:
        return Input(text=f"The capital of France is {subject.strings([mask])[0]}.")
    goes_on = subject.description.output == "next token" and not subject.is_pair
    if subject.data is not None and (not goes_on or tokenizer.unknown in tokenizer.encode(SENTENCE)):
        read = encode_input(subject, Input(example=0)).sequences[0].ids
        return Input(text=subject.decode(read[:24] if goes_on else read))
    return Input(text=SENTENCE)


def _row(subject: Subject, name: str, ids: list[int]) -> TokenRow:
    return TokenRow(name, subject.strings(ids), list(ids))


def _begin(subject: Subject) -> int:
    return 0 if subject.begin is None else subject.begin


def _ids(subject: Subject, text: str | None, ids: tuple[int, ...] | None, what: str) -> tuple[list[int], int]:
    """The ids of a text (or those that were typed), and how many of them the tokenizer does not know."""
    vocab = subject.description.vocab if what != "target" else subject.description.n_outputs
    most, n_unknown = subject.most_tokens, 0
    if ids is not None:
        found = list(ids)
    elif text is None:
        raise RefusedError(f"{what} must be given, as a text or as ids")
    elif subject.tokenizer is None:
        raise RefusedError(f"This model has no tokenizer: type the ids of its tokens, 0 .. {(vocab or 1) - 1}.")
    else:
        found = _encode_text(subject, text, what)
        n_unknown = found.count(subject.tokenizer.unknown)
    if not found:
        raise RefusedError(f"The {what} is empty: type something for the model to read.")
    if wrong := [i for i in found if not 0 <= i < (vocab or i + 1)]:
        raise RefusedError(f"Ids must lie in 0 .. {(vocab or 1) - 1}, got {wrong[0]}.")
    if len(found) > most:
        raise RefusedError(
            f"The {what} is too long: it has {len(found):,} tokens, and this model can read {most:,} at most. "
            f"Take {len(found) - most:,} away; nothing was cut off."
        )
    return found, n_unknown


def _encode_text(subject: Subject, text: str, what: str) -> list[int]:
    tokenizer = subject.tokenizer
    try:
        if isinstance(tokenizer, MarianTokenizer):
            return tokenizer.encode_target(text)[:-1] if what == "target" else tokenizer.encode(text)
        if isinstance(tokenizer, PretrainedTokenizer) and what == "target":
            return tokenizer.encode(text, special=False)
        if isinstance(tokenizer, Tokenizer) and subject.description.output == "class":
            return [tokenizer.begin, *tokenizer.encode(text)] if text else []
        assert tokenizer is not None
        return tokenizer.encode(text)
    except ValueError as error:
        raise RefusedError(f"The text cannot be read: {error}.") from None


def _encode_image(subject: Subject, pixels: tuple[float, ...] | None) -> Encoded:
    channels, (rows, columns) = subject.description.n_channels or 1, subject.image_size
    if pixels is None or len(pixels) != channels * rows * columns:
        got = "none" if pixels is None else f"{len(pixels):,} numbers"
        raise RefusedError(f"The image must have {channels} x {rows} x {columns} numbers, got {got}.")
    return encode_pixels(subject, torch.tensor(pixels).reshape(channels, rows, columns))


def _encode_example(subject: Subject, number: int) -> Encoded:
    data = subject.data
    if data is None:
        raise RefusedError("The test data of this model cannot be read here.")
    if not 0 <= number < len(data.test):
        raise RefusedError(f"example must lie in 0 .. {len(data.test) - 1}, got {number}")
    batch = data.test.batch([number])
    if subject.description.input == "image":
        return encode_pixels(subject, batch[0][0])
    ids = batch[0][0].tolist()[: subject.most_tokens]
    target = tuple(batch[2][0].tolist()) if subject.is_pair else None
    return encode_input(subject, Input(ids=tuple(ids), target_ids=target))


def _typed(subject: Subject, text: str) -> Input:
    if subject.tokenizer is not None:
        return Input(text=text)
    try:
        return Input(ids=tuple(int(each) for each in text.replace(",", " ").split()))
    except ValueError:
        raise ValueError(f"text must be ids for a model without a tokenizer, such as '3 1 4', got {text!r}") from None


def _first_image(subject: Subject, image: Path | None) -> Float[Tensor, "channel row column"]:
    channels, size = subject.description.n_channels or 1, subject.image_size
    if image is not None:
        return read_image(image, size, channels)[0]
    if subject.data is not None:
        return subject.data.test.batch([0])[0][0]
    if (size, channels) == ((8, 8), 1):
        return Digits().load().test.batch([0])[0][0]
    return sample_photo(size, channels)[0]
