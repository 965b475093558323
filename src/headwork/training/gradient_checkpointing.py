"""Memory for time: of each layer only its input is kept, and the rest is computed again for the backward pass.

Chen et al., "Training deep nets with sublinear memory cost", 2016.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint

from headwork.models import describe


@contextmanager
def checkpointed_layers(model: nn.Module) -> Iterator[None]:
    """Inside the block the layers that the model's description names keep their inputs only.

    The random numbers of dropout are drawn again, so values and gradients are the same.
    """
    description = describe(model)
    if description is None or not description.layers:
        raise ValueError(
            f"gradient_checkpointing is for a model whose description names its layers, got {type(model).__name__}"
        )
    layers = [model.get_submodule(name) for name in description.layers]
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward
