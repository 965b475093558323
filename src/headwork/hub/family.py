"""A family of checkpoints: whose folders it reads, and how their settings and tensors are called here."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from headwork import choices
from headwork.hub.names import Names
from headwork.hub.settings import HARMLESS, Settings

LABELS = ("id2label", "label2id", "num_labels", "_num_labels")
OF_THE_FILE = ("_name_or_path", "dtype", "torch_dtype", "transformers_version")
"""What is no longer true of a model that is written anew."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """The settings of a folder as one of our configs and back, and the table of names that goes with a config.

    One of your own is as good as ours: `load_pretrained(folder, families=[MINE])`.
    """

    name: str
    model_types: tuple[str, ...]
    """What `model_type` in their config.json says."""
    config_class: type
    config_from: Callable[[Settings], Any]
    """The settings it does not ask for are refused."""
    config_to: Callable[[Any], dict[str, object]]
    """As far as they can say it: what is lost is found by reading it back."""
    names: Callable[[Any], Names]

    def read(self, theirs: Mapping[str, object], tensors: Collection[str]) -> Any:
        """Our config; every setting is understood, or a ValueError names it."""
        settings = Settings(theirs, tensors)
        config = self.config_from(settings)
        settings.close()
        return config

    def write(self, config: Any, tensors: Collection[str], also: Mapping[str, object]) -> dict[str, object]:
        """Their settings, which mean this config and nothing else; `also` are more of theirs, without a name here.

        >>> config = hw.models.EncoderConfig(vocab=100, head=choices.NoHead(), position=choices.AlibiPositions())
        >>> hw.hub.BERT.write(config, ["embeddings"] * 12, {})
        Traceback (most recent call last):
        ValueError: BERT has no place for position=AlibiPositions()
        """
        own = self.config_to(config)
        others = {name: value for name, value in also.items() if name not in HARMLESS}
        theirs = {**others, **own, **_kept(also, own)}
        lost = _differences(_explicit(config), _explicit(self.read(theirs, tensors)))
        if lost:
            raise ValueError(f"{self.name} {NO_PLACE} {', '.join(lost)}")
        return theirs


NO_PLACE = "has no place for"
IN_WORDS = {"pre": " (norms before each part, and one after the last layer)", "post": " (a norm after each part)"}
"""What an order of norms is."""


def _kept(also: Mapping[str, object], own: Mapping[str, object]) -> dict[str, object]:
    """The settings of others that change no number, as token ids; labels only if there are as many."""
    gone = {*OF_THE_FILE, *(() if _n_labels(also) == _n_labels(own) else LABELS)}
    return {name: value for name, value in also.items() if name in HARMLESS - gone}


def _n_labels(settings: Mapping[str, object]) -> int:
    labels = settings.get("id2label")
    return len(labels) if isinstance(labels, dict) else 0


def _differences(config: Any, other: Any) -> list[str]:
    names = [field.name for field in fields(config) if getattr(config, field.name) != getattr(other, field.name)]
    of_order = {"norm_order", "final_norm"} <= {*names}  # the second follows from the first
    return [
        f"{name}={getattr(config, name)!r}{IN_WORDS.get(getattr(config, name), '') if name == 'norm_order' else ''}"
        for name in names
        if not (of_order and name == "final_norm")
    ]


def _explicit(config: Any) -> Any:
    """The config with the values that None stands for; dropout, which is for training only, does not count."""
    heads = config.heads
    if isinstance(heads, choices.Heads):
        d_head = heads.d_head or config.d_model // heads.n_heads
        heads = replace(
            heads,
            d_head=d_head,
            d_value=heads.d_value or config.d_model // heads.n_heads,
            n_kv_heads=heads.n_kv_heads or heads.n_heads,
            out_bias=heads.bias if heads.out_bias is None else heads.out_bias,
            beta=d_head**-0.5 if heads.beta is None else heads.beta,
        )
    config = replace(config, embedding_norm=config.has_embedding_norm, final_norm=config.has_final_norm)
    window = getattr(config, "window", None)
    if window is not None and window.layers is None:
        config = replace(config, window=replace(window, layers=tuple(range(config.n_layers))))
    assert is_dataclass(config)
    return replace(config, heads=heads, dropout=0.0, attention_dropout=0.0)  # type: ignore[type-var]
