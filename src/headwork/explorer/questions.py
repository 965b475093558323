"""The protocol of the explorer: the questions a page asks about a model, and what each answer holds.

A page knows one function, `ask(question, {signal}) -> async iterator of parts`. There are four of them: over HTTP, in a
notebook, from the answers in a recorded page, and by the engine in a living page. All get the same questions, as JSON,
and give the same parts.

A question is an object with its name and its fields; what is left out has the default:

    {"question": "Map", "about": {"input": {"text": "to be"}, "off": [[0, 3]]}, "attention": 2, "head": 1}

A part has a header, which is JSON, and arrays by name (`headwork.explorer.answers`: in JavaScript
`{header, arrays: {name: {data: Float32Array, shape}}}`). Most answers are one part; `Effects` and `Continue` give one
for each step. An answer that cannot be given is an error with a sentence for the reader: in JavaScript `ask` throws
`Refused` of `page/ask.js`. The newest question of a kind wins: an older one that still runs ends as `superseded`, and
`ask` throws an `AbortError`, as it does when its signal aborts.

A living page: `headwork.explorer.living` has `lacks(model, tokenizer)` (what keeps the engine from computing it, in
words) and `living_data(answering)` (JSON: the answer to `Describe`, tokens, weights in base64), which the page hands to
`livingAsk(data) -> ask` of `page/engine/ask.js`. What it cannot answer is not in its `can`.

`about` says what is computed, and is the same in all questions: an `Input`, the heads that are off, the Gaussian heads
that were moved, and the checkpoint of the run.

What the answers hold (header fields, then arrays with dtype and axes):

Describe      `name`, `input` ("text", "text pair", "image"), `output` ("class", "next token", "masked token",
              "token class", "hidden state"), `labels` (names of the classes, or null), `has_tokenizer` (false: type
              ids), `pools_first` (a text classifier that reads its answer from the first token), `max_tokens` (or
              null), `limits` {tokens, map, new_tokens}, `image` {size: [row, column], channels, grid: [row, column],
              n_extra, low, high} or null (n_extra: class tokens in front of the patches),
              `attention` [{name, short, kind: "self" | "cross", layer, stack, n_heads, query, key}] (`query` and `key`
              are the numbers of the sequences that its map goes between), `layers` (names, those of the lens),
              `gaussian` [{attention, centre: [[row, column]], alpha: [], grid}] (isotropic or not: alpha is the
              geometric mean), `can` (the questions that are answered), `checkpoints` [{name, step}], `n_examples`,
              `start` (an Input), `n_parameters`, `against` (the name of the second model, or null), `n_models`,
              `alike` (whether both have the same attention, so that the page can change over to the second).
Read          `sequences` [{name: "tokens" | "source" | "target" | "patches", strings, ids}], `n_unknown`, `seconds`, of
              a translator `translation` (the target as text) and `continuation` (what the model adds to a target that
              was given; null if it wrote the target itself), of texts `shares` (for each attention {itself, before,
              after, first, strongest}, of cross-attention {first, last, strongest}: what share of a row's weight goes
              there in each head, on average over the rows from the third), `row` (the token that the answer is read
              from; null if that is no single one, or a translation, which is read from one after the other) and `most`
              (if there is a `row`, for each attention {key: [], weight: []}: the largest weight of that row in each
              head), `answer` {kind, position, top: [{id, name, logit, probability}]} (up to 64, best first); arrays
              `logits` float32 [output] of that position, `pixels` float32 [channel row column] (images), and for each
              attention `peaks.0` float32 [head], the largest weight; of texts a `thumbnails.0` uint8 [head row column]
              (the largest weight of each block as a share of that, at most 64 x 64; for n tokens a block is
              ceil(n / 64)); of images a `looks.0` float32 [head key]: where the first token (the class token) looks, or
              the patch in the middle (rows // 2, columns // 2) if there is no class token. Gaussian heads count patches
              row by row. If the question has a `map`, a second part is the answer to `Map`.
Map           `attention`, `head`, `block` (1: every weight; else the largest of each block x block); array `weights`
              float32 [query key], after softmax.
Lens          `names` (layers), `position` (of the logits of `Read`); arrays `ids` int32 [layer token top],
              `probabilities` float32 [layer token top]; `strings` {id: text}. Of an image the tokens are the class
              token and the patches, each read as if it alone were pooled, and `whole` float32 [layer class] is the
              answer of each layer; of a text classifier `whole` too.
Effects       one part for each row: `names` (all of the points), `row`, `sequence` (whose tokens the columns are),
              `axis` ("head" or "token"), `answer` (an output) and its `name`, `own` and `other` (for both inputs:
              {name, probability} of what the model says, and the `logit` and `share` (the probability) of the answer),
              `begun` (of a translator: the target that both are read with, up to where their translations differ; else
              null), `said` (what the model says, for each column); arrays `metric` and `share` float32 [column]: the
              logit and the probability of the answer for `about`, with the value of `other` put in there.
Continue      one part for each token: `id`, `string`, `milliseconds`, `bytes` (of the cache after it; 0 without),
              `n_tokens`, `text` (all that was said so far, decoded), `ended`.
Cost          `rows` [{name, operation, flops}], `by_operation`, `n_parameters`, `parameter_bytes`, `activation_bytes`,
              `flops`, `verdict`, `points` [{name, axes, shape}].
Tensor        `name`, `axes`, `shape`, `mean`, `deviation`, `low`, `high`, `shown` (the axes of the array), array
              `values` float32 [row column]: the last two axes, the first index of all others, at most 256 x 256.
Convolution   `error_bound`, `kernel_size`, array `kernel` float32 [head row column] (weights that the kernel keeps),
              `single_pixel` float32 [head], `probabilities` float32 [class] of the model with convolutions instead.
Examples      `rows` [{index, label, predicted, probability, right, text}], worst first; array `pixels` float32 [example
              channel row column] of images.
Training      `metrics` [{step, epoch, split, loss, ...}], `centres` [{step?, layers: {name: {centre, alpha}}}].
Save          `folder` (where the model with the moved heads was saved).

>>> question_from_json({"question": "Map", "about": {"input": {"text": "to be"}}, "attention": 0, "head": 1}).head
1
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Input:
    """What the model reads, exactly one of: a text, ids, pixels, or an example of the run's test data."""

    text: str | None = None
    """Of a translator the source."""
    target: str | None = None
    """Of a translator the target so far; None: what the model says itself."""
    ids: tuple[int, ...] | None = None
    target_ids: tuple[int, ...] | None = None
    pixels: tuple[float, ...] | None = None
    """channel row column, from 0 (black) to 1, at the size the model is made for."""
    example: int | None = None


@dataclass(frozen=True)
class Move:
    """Where a Gaussian head looks now: `centre` is (row, column) away from the query."""

    attention: int
    head: int
    centre: tuple[float, float]
    alpha: float


@dataclass(frozen=True)
class About:
    """One situation: the input, and what is changed in the model."""

    input: Input = Input()
    off: tuple[tuple[int, int], ...] = ()
    """(attention, head), as `Describe` numbers them: their outputs are zeros."""
    moved: tuple[Move, ...] = ()
    checkpoint: str | None = None
    """Of a run; None: its best."""
    model: int = 0
    """1: the model of `--against`."""


@dataclass(frozen=True)
class Describe:
    """What the model is; asked once."""


@dataclass(frozen=True)
class Read:
    """One forward pass: the tokens, the answer, and small maps of all heads."""

    about: About = About()
    position: int | None = None
    """After which token of the last sequence; None: the last, or the first masked one."""
    map: tuple[int, int] | None = None
    """(attention, head): then the answer to `Map` is a second part."""


@dataclass(frozen=True)
class Map:
    """All weights of one head."""

    about: About
    attention: int
    head: int


@dataclass(frozen=True)
class Lens:
    """What each layer would answer."""

    about: About


@dataclass(frozen=True)
class Effects:
    """How much an answer moves if one place gets the value that another input gives there."""

    about: About
    other: Input
    axis: str = "head"
    """`head`: each attention (rows) by head; `token`: each layer (rows) by token of the last sequence."""
    answer: int | None = None
    """The output whose logit is measured; None: the best one for `about`."""


@dataclass(frozen=True)
class Continue:
    """Tokens one after the other."""

    about: About
    n_tokens: int = 1
    temperature: float = 1.0
    """0: always the likeliest."""
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    cache: bool = True


@dataclass(frozen=True)
class Cost:
    """The trace of a forward pass."""

    about: About


@dataclass(frozen=True)
class Tensor:
    """The numbers of one named point."""

    about: About
    name: str


@dataclass(frozen=True)
class Convolution:
    """The convolution nearest to a layer of Gaussian heads, and how near it is."""

    about: About
    attention: int
    kernel_size: int = 3


@dataclass(frozen=True)
class Examples:
    """Some of the run's test data, the worst mistakes first."""

    n: int = 24


@dataclass(frozen=True)
class Training:
    """How the run went."""


@dataclass(frozen=True)
class Save:
    """Write the model with the moved heads into a new folder beside the one that was opened."""

    about: About


Question = Describe | Read | Map | Lens | Effects | Continue | Cost | Tensor | Convolution | Examples | Training | Save
QUESTIONS: dict[str, type] = {kind.__name__: kind for kind in get_args(Question)}


Progress = Callable[[], None]
"""Called between layers and steps; raises when the answer is not wanted any more."""


class RefusedError(Exception):
    """The question cannot be answered; the sentence is for the reader of the page."""


class SupersededError(Exception):
    """A newer question of the same kind has come."""


def question_to_json(question: Question) -> dict[str, Any]:
    """The question as the page sends it, without what is left at its default.

    >>> question_to_json(Read(About(Input(ids=(3, 1)))))
    {'question': 'Read', 'about': {'input': {'ids': [3, 1]}}}
    """
    return {"question": type(question).__name__, **_without_defaults(question)}


def question_from_json(data: object) -> Question:
    """The question that a page sent; what is not one is refused with a sentence.

    >>> question_from_json({"question": "Map"})
    Traceback (most recent call last):
    headwork.explorer.questions.RefusedError: Map needs about
    """
    if not isinstance(data, dict):
        raise RefusedError(f"a question must be an object, got {type(data).__name__}")
    name = data.get("question")
    if not isinstance(name, str) or name not in QUESTIONS:
        raise RefusedError(f"question must be one of {', '.join(QUESTIONS)}, got {str(name)[:40]!r}")
    return _read(QUESTIONS[name], {key: value for key, value in data.items() if key != "question"}, name)


def _without_defaults(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields(value):
        here = getattr(value, field.name)
        if field.default is not MISSING and here == field.default:
            continue
        found[field.name] = _without_defaults(here) if hasattr(here, "__dataclass_fields__") else _as_lists(here)
    return found


def _as_lists(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_as_lists(each) for each in value]
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value


def _read(kind: Any, value: object, where: str) -> Any:
    """The value as this type, or a sentence that says where it is not."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if value is None and NoneType in inside:
            return None
        return _read(next(each for each in inside if each is not NoneType), value, where)
    if hasattr(kind, "__dataclass_fields__"):
        return _read_object(kind, value, where)
    if origin is tuple:
        if not isinstance(value, list) or (inside[-1] is not Ellipsis and len(value) != len(inside)):
            raise RefusedError(f"{where} must be a list{'' if inside[-1] is Ellipsis else f' of {len(inside)}'}")
        kinds = [inside[0]] * len(value) if inside[-1] is Ellipsis else inside
        return tuple(_read(each, item, where) for each, item in zip(kinds, value, strict=True))
    if isinstance(value, bool) is (kind is bool):
        if kind is float and isinstance(value, int | float) and math.isfinite(value):
            return float(value)
        if kind is not float and isinstance(value, kind):
            return value
    raise RefusedError(f"{where} must be a {kind.__name__}, got {str(value)[:40]!r}")


def _read_object(kind: type, value: object, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise RefusedError(f"{where} must be an object")
    hints = get_type_hints(kind)
    if unknown := sorted(set(value) - set(hints)):
        raise RefusedError(f"{where} has no {str(unknown[0])[:40]}")
    needed = [f.name for f in fields(kind) if f.default is MISSING and f.name not in value]
    if needed:
        raise RefusedError(f"{where} needs {needed[0]}")
    return kind(**{name: _read(hints[name], each, f"{where}.{name}") for name, each in value.items()})
