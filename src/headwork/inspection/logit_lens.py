"""The logit lens: what a model would answer if its stack of layers ended earlier."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwork.checks import check_type, nearest, with_article
from headwork.inspection.recording import check_inputs, check_no_cache, record
from headwork.models.model import describe, evaluation_mode


@dataclass(frozen=True, eq=False)
class Lens:
    """The logits after each layer; the last are the model's own."""

    names: tuple[str, ...]
    logits: Float[Tensor, "layer batch *output"]

    def __getitem__(self, name: str) -> Float[Tensor, "batch *output"]:
        if name not in self.names:
            raise KeyError(f"no layer is called {name!r}{nearest(name, self.names)}")
        return self.logits[self.names.index(name)]

    def __repr__(self) -> str:
        return f"Lens: logits {list(self.logits.shape)} of {', '.join(self.names)}"


def lens(model: nn.Module, *inputs: Tensor, **keywords: object) -> Lens:
    """What the model would answer if it ended after its first, second, ... layer, through its own final norm and head.

    The layers run once; then the rest of the model runs once for each of them. A model of two stacks is seen through
    the second. It runs in evaluation mode; gradients are the caller's choice. The idea: nostalgebraist, "interpreting
    GPT: the logit lens", 2020.

    >>> config = hw.models.DecoderConfig(vocab=100, d_model=8, n_layers=2, heads=choices.Heads(n_heads=2),
    ...     feed_forward=choices.FeedForward(d_ff=32))
    >>> lens(config.build(), torch.tensor([[3, 1, 4, 1, 5]]))
    Lens: logits [2, 1, 5, 100] of layers.0, layers.1
    """
    names = last_stack(model)
    check_inputs("lens", model, inputs, keywords)
    check_no_cache("lens", keywords)
    with evaluation_mode(model):
        with record(model, *names) as seen:
            model(*inputs, **keywords)
        shapes = {name: tuple(seen[name].shape) for name in names}
        if len(set(shapes.values())) > 1:
            raise ValueError(f"lens needs layers that all keep the shape of what they read, got {shapes}")
        logits = []
        for name in names:
            logits.append(answer_after_layers(model, seen[name], *inputs, **keywords))
    return Lens(names, torch.stack(logits))


def answer_after_layers(model: nn.Module, hidden: Tensor, *inputs: Tensor, **keywords: object) -> Tensor:
    """What the model answers if its stack of layers gives these hidden states, whatever it is given to read.

    They may be of some of the tokens only, or of each token as a row of its own.
    """
    with _replaced(model, last_stack(model), _Answer(hidden)):
        return model(*inputs, **keywords)


def last_stack(model: nn.Module) -> tuple[str, ...]:
    """The names of the layers that the lens looks through: all of them, or those of the decoder."""
    check_type(nn.Module, "a module", model=model)
    description = describe(model)
    if description is None or not description.layers:
        raise ValueError(
            "lens needs a model that says where its layers are, in `description.layers` (hw.models.Description), "
            f"got {with_article(type(model).__name__)} that does not"
        )
    stack = description.layers[-1].rpartition(".")[0]
    return tuple(name for name in description.layers if name.rpartition(".")[0] == stack)


class _Answer(nn.Module):
    """A layer that returns the same tensor whatever comes in."""

    def __init__(self, answer: Tensor) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, *inputs: object, **keywords: object) -> Tensor:
        return self.answer


@contextmanager
def _replaced(model: nn.Module, names: tuple[str, ...], new: nn.Module) -> Iterator[None]:
    """Other layers for a while; hooks on the old ones, of patches and recordings, do not fire a second time."""
    old = {name: model.get_submodule(name) for name in names}
    try:
        for name in names:
            model.set_submodule(name, new)
        yield
    finally:
        for name, module in old.items():
            model.set_submodule(name, module)
