"""What is explored: a model with what it takes to read a text or an image for it and to name its answers."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwork.checks import nearest
from headwork.data import Dataset, Tokenizer, image_size
from headwork.explorer.questions import Input, RefusedError
from headwork.hub import (
    ImagePreprocessing,
    MarianTokenizer,
    PretrainedTokenizer,
    find_folder,
    is_pretrained,
    labels_of,
    load,
)
from headwork.hub.weights import read_json
from headwork.inspection.heads import attention_layers
from headwork.inspection.logit_lens import last_stack
from headwork.layers.gaussian import GaussianAttention
from headwork.models import Description, describe, published
from headwork.storage.models import CONFIG
from headwork.tasks import LabelTask
from headwork.training import Run, open_run
from headwork.training.run import is_run

SENTENCE = "The cat sat on the mat because it was"
MOST_TOKENS = 4096
MOST_WEIGHTS = 2**28
"""Attention weights of one layer, all heads together: a gigabyte."""
MOST_PARAMETERS = 10**9
AnyTokenizer = Tokenizer | PretrainedTokenizer | MarianTokenizer


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


@dataclass(frozen=True)
class Attention:
    """One attention module, and between which sequences its maps go."""

    name: str
    short: str
    kind: str
    stack: str
    layer: int
    n_heads: int
    query: int
    key: int


@dataclass(frozen=True, eq=False)
class Subject:
    """A model that can be asked about: text, images or translation, with or without a tokenizer.

    >>> subject = Subject.of(hw.models.published("digits-vit").build())
    >>> subject.attention[0].short, subject.image_size
    ('layer 0', (8, 8))
    """

    name: str
    model: nn.Module
    description: Description
    tokenizer: AnyTokenizer | None = None
    labels: tuple[str, ...] | None = None
    folder: Path | None = None
    run: Run | None = None
    preprocessing: ImagePreprocessing | None = None
    begin: int | None = None
    """The id before the first token of a translation."""
    end: tuple[int, ...] = ()
    classes: tuple[type, ...] = ()
    """Of the user's own, which the files may name."""

    @classmethod
    def of(
        cls,
        model: nn.Module,
        *,
        tokenizer: AnyTokenizer | None = None,
        labels: Sequence[str] | None = None,
        name: str | None = None,
    ) -> "Subject":
        """A model that is in memory."""
        description = describe(model)
        if description is None:
            raise ValueError(
                "model must say what it reads and where its layers are, in `description` (hw.models.Description), "
                f"got {type(model).__name__}, which has none"
            )
        return cls(
            name=name or type(model).__name__,
            model=model.eval(),
            description=description,
            tokenizer=tokenizer,
            labels=None if labels is None else tuple(labels),
            begin=tokenizer.begin if isinstance(tokenizer, Tokenizer | MarianTokenizer) else None,
            end=_ends(tokenizer, description),
        )

    @classmethod
    def open(cls, where: Path | str, classes: Iterable[type] = ()) -> "Subject":
        """A run, a folder of a model (ours or Hugging Face's), a GGUF file, or a published size with random weights."""
        classes = tuple(classes)
        if not Path(where).exists() and len(Path(where).parts) == 1 and "/" not in str(where):
            return cls._published(str(where))
        folder = find_folder(where)
        if is_pretrained(folder):
            return cls._pretrained(folder)
        if not folder.is_dir():
            raise ValueError(
                f"model must be a folder, a GGUF file or a published name (`headwork models`), got {where}"
            )
        run = open_run(folder, classes) if is_run(folder) else None
        model = load(folder, classes=classes)
        made = cls.of(model, tokenizer=None if run is None else run.tokenizer, name=folder.resolve().name)
        labels = run.task.labels if run is not None and isinstance(run.task, LabelTask) else None
        return replace(made, folder=folder, run=run, labels=labels, classes=classes)

    @classmethod
    def _published(cls, name: str) -> "Subject":
        from headwork.models import PUBLISHED

        if name not in PUBLISHED:
            raise ValueError(
                f"model must be a folder that exists or a published name, got {name!r}{nearest(name, PUBLISHED)}"
            )
        config = published(name)
        check_memory(name, sum(p.numel() for p in config.build(device="meta").parameters()))
        torch.manual_seed(0)
        return cls.of(config.build(), name=f"{name}, random weights")

    @classmethod
    def _pretrained(cls, folder: Path) -> "Subject":
        """A folder of Hugging Face's or a GGUF file."""
        check_memory(str(folder), _stored_bytes(folder) // 2)
        with warnings.catch_warnings(action="ignore"):
            model = load(folder)
        description, settings = describe(model), {} if folder.is_file() else read_json(folder / CONFIG)
        assert description is not None
        marian = settings.get("model_type") == "marian"
        tokenizer: AnyTokenizer | None = None
        if description.input != "image":
            try:
                tokenizer = MarianTokenizer.load(folder) if marian else PretrainedTokenizer.load(folder)
            except (ValueError, OSError):
                tokenizer = None  # ids work
        made = cls.of(model, tokenizer=tokenizer, name=folder.name)
        begin = settings.get("decoder_start_token_id")
        return replace(
            made,
            folder=folder,
            labels=labels_of(folder, description.n_outputs) if description.output in ("class", "token class") else None,
            begin=begin if made.begin is None and isinstance(begin, int) else made.begin,
            preprocessing=ImagePreprocessing.load(folder) if description.input == "image" else None,
        )

    # --- what the model is -------------------------------------------------------------------------------------------

    @cached_property
    def attention(self) -> tuple[Attention, ...]:
        """All attention modules that can be shown, in the order in which they run."""
        own, cross = attention_layers(self.model), attention_layers(self.model, cross=True)
        order = {name: number for number, (name, _) in enumerate(self.model.named_modules())}
        stacks = [self.description.layers[0].rpartition(".")[0]] if self.description.layers else []
        found, is_pair = [], self.description.input == "text pair"
        for name in sorted([*own, *cross], key=order.__getitem__):
            layer_name = name.rpartition(".")[0]
            stack, _, number = layer_name.rpartition(".")
            is_first = not is_pair or stack == stacks[0]
            kind = "cross" if name in cross else "self"
            side = "" if not is_pair else "encoder " if is_first else "decoder "
            module = self.model.get_submodule(name)
            found.append(
                Attention(
                    name=name,
                    short=f"{side}layer {int(number)}" + (" to source" if kind == "cross" else ""),
                    kind=kind,
                    stack=stack,
                    layer=int(number),
                    n_heads=int(module.n_heads),  # type: ignore[arg-type]
                    query=0 if is_first else 1,
                    key=0 if is_first or kind == "cross" else 1,
                )
            )
        return tuple(found)

    @cached_property
    def lens_layers(self) -> tuple[str, ...]:
        return last_stack(self.model) if self.description.layers else ()

    @property
    def gaussian(self) -> dict[int, GaussianAttention]:
        """The Gaussian layers, by the number of their attention."""
        modules = {i: self.model.get_submodule(a.name) for i, a in enumerate(self.attention)}
        return {i: module for i, module in modules.items() if isinstance(module, GaussianAttention)}

    @cached_property
    def most_tokens(self) -> int:
        """The longest input: the positions of the model, and what fits into memory and into a picture."""
        n_heads = max((a.n_heads for a in self.attention), default=1)
        at_most = min(MOST_TOKENS, int((MOST_WEIGHTS / n_heads) ** 0.5))
        return min(at_most, self.description.max_tokens or at_most)

    @cached_property
    def image_size(self) -> tuple[int, int]:
        if self.description.image is not None:
            return self.description.image
        return (self.data is not None and image_size(self.data.test)) or (32, 32)

    @cached_property
    def data(self) -> Dataset | None:
        """The data of the run; None if there is none, or if it cannot be read any more."""
        if self.run is None or self.run.config.data is None:
            return None
        try:
            return self.run.load_data()
        except (ValueError, OSError, ModuleNotFoundError):
            return None

    def checkpoints(self) -> dict[str, Path]:
        """The checkpoints of a run by name, the oldest first."""
        folder = None if self.run is None else self.run.folder / "checkpoints"
        if folder is None or not folder.is_dir():
            return {}
        return {path.name: path for path in sorted(folder.iterdir()) if (path / CONFIG).is_file()}

    # --- reading -----------------------------------------------------------------------------------------------------

    def encode(self, given: Input) -> Encoded:
        """The tensors of an input, and its tokens as they are shown; a sentence if it cannot be read."""
        if given.example is not None:
            return self._encode_example(given.example)
        if self.description.input == "image":
            return self._encode_image(given.pixels)
        source, n_unknown = self._ids(given.text, given.ids, "source" if self.is_pair else "text")
        if not self.is_pair:
            return Encoded((torch.tensor([source]),), (self.sequence("tokens", source),), n_unknown=n_unknown)
        if given.target is None and given.target_ids is None:
            target = self.translate(source)
        else:
            target, more = self._ids(given.target, given.target_ids, "target") if given.target != "" else ([], 0)
            n_unknown += more
        begun = target if given.target_ids is not None else [self._begin(), *target]
        return Encoded(
            (torch.tensor([source]), torch.tensor([begun])),
            (self.sequence("source", source), self.sequence("target", begun)),
            n_unknown=n_unknown,
        )

    @property
    def is_pair(self) -> bool:
        return self.description.input == "text pair"

    def sequence(self, name: str, ids: Sequence[int]) -> TokenRow:
        return TokenRow(name, self.strings(ids), list(ids))

    def strings(self, ids: Sequence[int]) -> list[str]:
        """Each token as it is shown."""
        if self.tokenizer is None:
            return [str(i) for i in ids]
        if isinstance(self.tokenizer, Tokenizer):
            return self.tokenizer.strings(ids)
        if isinstance(self.tokenizer, MarianTokenizer):
            return [self.tokenizer._pieces.get(i, "�").replace("▁", "␣") for i in ids]
        raw = self.tokenizer.strings(ids)
        return [
            _readable(token, self.tokenizer.decode([i]) if token else f"<{i}>")
            for token, i in zip(raw, ids, strict=True)
        ]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids)) if self.tokenizer is None else self.tokenizer.decode(list(ids))

    def name_of(self, output: int) -> str:
        """An output of the model in words."""
        if self.description.output in ("next token", "masked token"):
            return self.strings([output])[0]
        return self.labels[output] if self.labels is not None and output < len(self.labels) else str(output)

    def translate(self, source: list[int]) -> list[int]:
        """What the model says of a source, greedily, without its beginning and its end."""
        from headwork.generation import translate

        limit = min(self.description.max_tokens or MOST_TOKENS, 2 * len(source) + 20, self.most_tokens) - 1
        said = translate(
            self.model,  # type: ignore[arg-type]  # its description says that it translates
            torch.tensor([source]),
            max_new_tokens=max(limit, 1),
            begin=self._begin(),
            end=self.end or None,
        )[0].tolist()
        return said[:-1] if said and said[-1] in self.end else said

    def _begin(self) -> int:
        return 0 if self.begin is None else self.begin

    def _ids(self, text: str | None, ids: tuple[int, ...] | None, what: str) -> tuple[list[int], int]:
        """The ids of a text (or those that were typed), and how many of them the tokenizer does not know."""
        vocab = self.description.vocab if what != "target" else self.description.n_outputs
        if ids is not None:
            found, n_unknown = list(ids), 0
        elif text is None:
            raise RefusedError(f"{what} must be given, as a text or as ids")
        elif self.tokenizer is None:
            raise RefusedError(f"This model has no tokenizer: type the ids of its tokens, 0 .. {(vocab or 1) - 1}.")
        else:
            found = self._encode_text(text, what)
            n_unknown = found.count(self.tokenizer.unknown)
        if not found:
            raise RefusedError("Type something: there is no token to read yet.")
        if wrong := [i for i in found if not 0 <= i < (vocab or i + 1)]:
            raise RefusedError(f"Ids must lie in 0 .. {(vocab or 1) - 1}, got {wrong[0]}.")
        if len(found) > self.most_tokens:
            raise RefusedError(
                f"This is {len(found):,} tokens. The model is shown up to {self.most_tokens:,}: "
                f"take {len(found) - self.most_tokens:,} away. Nothing was cut."
            )
        return found, n_unknown

    def _encode_text(self, text: str, what: str) -> list[int]:
        tokenizer = self.tokenizer
        try:
            if isinstance(tokenizer, MarianTokenizer):
                return tokenizer.encode_target(text)[:-1] if what == "target" else tokenizer.encode(text)
            if isinstance(tokenizer, PretrainedTokenizer) and what == "target":
                return tokenizer.encode(text, special=False)
            if isinstance(tokenizer, Tokenizer) and self.description.output == "class":
                return [tokenizer.begin, *tokenizer.encode(text)] if text else []
            assert tokenizer is not None
            return tokenizer.encode(text)
        except ValueError as error:
            raise RefusedError(f"The text cannot be read: {error}.") from None

    def _encode_image(self, pixels: tuple[float, ...] | None) -> Encoded:
        channels, (rows, columns) = self.description.n_channels or 1, self.image_size
        if pixels is None or len(pixels) != channels * rows * columns:
            got = "none" if pixels is None else f"{len(pixels):,} numbers"
            raise RefusedError(f"The image must have {channels} x {rows} x {columns} numbers, got {got}.")
        return self.encode_pixels(torch.tensor(pixels).reshape(channels, rows, columns))

    def encode_pixels(self, pixels: Float[Tensor, "channel row column"]) -> Encoded:
        """An image from 0 to 1, as the model was trained to read it."""
        read = pixels[None]
        if (how := self.preprocessing) is not None:
            mean, deviation = (torch.tensor(each).reshape(1, -1, 1, 1) for each in (how.mean, how.deviation))
            read = (255 * how.scale * read - mean) / deviation
        grid = self.grid
        patches = [f"row {r + 1}, column {c + 1}" for r in range(grid[0]) for c in range(grid[1])]
        extra = ["class token", "distillation token"][: self.n_extra]
        return Encoded((read,), (TokenRow("patches", [*extra, *patches]),), pixels=pixels)

    @property
    def grid(self) -> tuple[int, int]:
        return self.description.grid or (1, 1)

    @cached_property
    def n_extra(self) -> int:
        """Tokens in front of the patches."""
        pooling = getattr(self.model, "pooling", None)
        if self.description.input != "image" or not hasattr(pooling, "join"):
            return 0
        width: Any = getattr(self.model, "config").d_model  # noqa: B009  # nn.Module says it may be a tensor
        return int(pooling.join(torch.zeros(1, 1, width)).shape[1]) - 1  # type: ignore[union-attr]

    def _encode_example(self, number: int) -> Encoded:
        data = self.data
        if data is None:
            raise RefusedError("The test data of this model cannot be read here.")
        if not 0 <= number < len(data.test):
            raise RefusedError(f"example must lie in 0 .. {len(data.test) - 1}, got {number}")
        batch = data.test.batch([number])
        if self.description.input == "image":
            return self.encode_pixels(batch[0][0])
        ids = batch[0][0].tolist()[: self.most_tokens]
        if not self.is_pair:
            return self.encode(Input(ids=tuple(ids)))
        return self.encode(Input(ids=tuple(ids), target_ids=tuple(batch[2][0].tolist())))

    def start(self, text: str | None = None, image: Path | None = None) -> Input:
        """What the page shows first."""
        if self.description.input == "image":
            return Input(pixels=tuple(self._first_image(image).flatten().tolist()))
        if text is not None:
            return self._typed(text)
        if self.tokenizer is None:
            vocab, n_outputs = self.description.vocab or 10, self.description.n_outputs
            target = tuple(i % n_outputs for i in (0, 2, 7, 1)) if self.is_pair else None
            return Input(ids=tuple(i % vocab for i in (3, 1, 4, 1, 5, 9, 2, 6)), target_ids=target)
        mask = getattr(self.tokenizer, "mask", None)
        if self.description.output == "masked token" and mask is not None:
            return Input(text=f"The capital of France is {self.strings([mask])[0]}.")
        goes_on = self.description.output == "next token" and not self.is_pair
        if self.data is not None and (not goes_on or self.tokenizer.unknown in self.tokenizer.encode(SENTENCE)):
            read = self.encode(Input(example=0)).sequences[0].ids
            return Input(text=self.decode(read[:24] if goes_on else read))
        return Input(text=SENTENCE)

    def _typed(self, text: str) -> Input:
        if self.tokenizer is not None:
            return Input(text=text)
        try:
            return Input(ids=tuple(int(each) for each in text.replace(",", " ").split()))
        except ValueError:
            raise ValueError(
                f"text must be ids for a model without a tokenizer, such as '3 1 4', got {text!r}"
            ) from None

    def _first_image(self, image: Path | None) -> Float[Tensor, "channel row column"]:
        from headwork.data import Digits, read_image, sample_photo

        channels, size = self.description.n_channels or 1, self.image_size
        if image is not None:
            return read_image(image, size, channels)[0]
        if self.data is not None:
            return self.data.test.batch([0])[0][0]
        if (size, channels) == ((8, 8), 1):
            return Digits().load().test.batch([0])[0][0]
        return sample_photo(size, channels)[0]


def check_memory(name: str, n_parameters: int) -> None:
    """Raise before a model fills the memory of the machine."""
    free = _free_bytes()
    if 4 * n_parameters * 1.2 > free:
        raise ValueError(
            f"model must fit into memory: {name} needs about {4.8 * n_parameters / 1e9:.1f} GB, "
            f"and {free / 1e9:.1f} GB are free"
        )


def _free_bytes() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return 2**62


def _stored_bytes(folder: Path) -> int:
    """Of the weights, which are in 16 bits or fewer in most folders."""
    files = [folder] if folder.is_file() else [*folder.glob("*.safetensors"), *folder.glob("*.bin")]
    return sum(file.stat().st_size for file in files)


def _ends(tokenizer: AnyTokenizer | None, description: Description) -> tuple[int, ...]:
    """The ids after which nothing comes; our own language models are windows of a long text, which has no end."""
    if isinstance(tokenizer, Tokenizer) and description.input == "text":
        return ()
    end: Any = getattr(tokenizer, "end", ())
    return (end,) if isinstance(end, int) else tuple(end)


def _readable(token: str, decoded: str) -> str:
    """A piece of a word as its tokenizer writes it, or as text if that is more readable."""
    if token.startswith("##") or "\N{REPLACEMENT CHARACTER}" in decoded or not decoded:
        return token.replace("Ġ", "␣").replace("▁", "␣").replace("Ċ", "↵")
    starts_word = token.startswith(("▁", "Ġ")) and not decoded.startswith(" ")
    return ("␣" if starts_word else "") + decoded.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥")


Progress = Callable[[], None]
"""Called between layers and steps; raises when the answer is not wanted any more."""
