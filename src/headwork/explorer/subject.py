"""What is explored: a model, what is known of it, and how its tokens and answers are named."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headwork.data import Dataset, Tokenizer, image_size
from headwork.hub import ImagePreprocessing, MarianTokenizer, PretrainedTokenizer
from headwork.inspection.heads import attention_layers
from headwork.inspection.logit_lens import last_stack
from headwork.layers.gaussian import GaussianAttention
from headwork.models import Description, describe
from headwork.storage.models import CONFIG
from headwork.training import Run

MOST_TOKENS = 4096
MOST_WEIGHTS = 2**28
"""Attention weights of one layer, all heads together: a gigabyte."""
AnyTokenizer = Tokenizer | PretrainedTokenizer | MarianTokenizer


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

    @property
    def is_pair(self) -> bool:
        return self.description.input == "text pair"

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
