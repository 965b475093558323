"""A pretrained model with a new head: its own weights up to there, and fresh ones for the classes of other data."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from headwork import choices
from headwork.checks import with_article
from headwork.hub.families import FAMILIES, find_family
from headwork.hub.pretrained import read_settings, write_as
from headwork.models import EncoderConfig
from headwork.models.model import describe


def with_classes(
    model: nn.Module,
    n_classes: int,
    *,
    pooling: choices.TextPooling | choices.ImagePooling | None = None,
    like: Path | str | None = None,
) -> nn.Module:
    """The model with a score for each of `n_classes`: itself if it has such a head, or a copy with a fresh last layer.

    `like` is the folder it came from: the new head of a text encoder is then the one that its family has, so that
    Hugging Face can read it; a `pooling` of your own it may not know.

    >>> config = hw.models.EncoderConfig(vocab=100, head=choices.NoHead(), d_model=8, n_layers=1,
    ...     heads=choices.Heads(n_heads=2), feed_forward=choices.FeedForward(d_ff=32))
    >>> with_classes(config.build(), 3)(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3])
    """
    config: Any = getattr(model, "config", None)
    description = describe(model)
    if isinstance(config, EncoderConfig):
        new = replace(config, head=_head_of_classes(config, n_classes, pooling, like))
    elif description is not None and description.output == "class" and hasattr(config, "n_classes"):
        changed = {} if pooling is None else {"pooling": pooling}
        new = replace(config, n_classes=n_classes, **changed)
    else:
        got = with_article(type(model).__name__)
        raise ValueError(f"model must be an encoder of texts or of images to be given classes, got {got}")
    return model if new == config else _rebuilt(model, new)


def with_masked_lm(model: nn.Module) -> nn.Module:
    """A text encoder with a head for its masked tokens, which is fresh unless it had one."""
    config: Any = getattr(model, "config", None)
    if not isinstance(config, EncoderConfig):
        raise ValueError(f"model must be an encoder of texts, got {with_article(type(model).__name__)}")
    if isinstance(config.head, choices.MaskedLMHead):
        return model
    activation = config.feed_forward.activation
    return _rebuilt(model, replace(config, head=choices.MaskedLMHead(activation=activation)))


def _head_of_classes(
    config: EncoderConfig, n_classes: int, pooling: Any, like: Path | str | None
) -> choices.ClassificationHead:
    if isinstance(config.head, choices.ClassificationHead):
        return replace(config.head, n_classes=n_classes, pooling=pooling or config.head.pooling)
    heads = [
        choices.ClassificationHead(n_classes=n_classes, pooling=choices.FirstToken(), activation=activation)
        for activation in ("tanh", "relu")
    ]
    head = heads[0]
    if like is not None:
        settings = read_settings(Path(like))
        head = next((each for each in heads if _is_known(replace(config, head=each), settings)), head)
    return head if pooling is None else replace(head, pooling=pooling)


def _is_known(config: EncoderConfig, settings: dict[str, object]) -> bool:
    """Whether the family of a folder has such a head."""
    family = find_family(settings, FAMILIES)
    try:
        write_as(family, config, config.build(device="meta").state_dict(), {})
    except ValueError:
        return False
    return True


def _rebuilt(model: nn.Module, config: Any) -> nn.Module:
    """A model of the new config, with the old weights where both have the same; not those of another kind of head."""
    new, old = config.build(), model.state_dict()
    of_head = () if type(getattr(model, "head", None)) is type(getattr(new, "head", None)) else ("head.",)
    state = new.state_dict()
    kept = {
        name: tensor
        for name, tensor in old.items()
        if name in state and state[name].shape == tensor.shape and not name.startswith(of_head)
    }
    new.load_state_dict({**state, **kept})
    example = next(model.parameters())
    return new.to(device=example.device, dtype=example.dtype).train(model.training)
