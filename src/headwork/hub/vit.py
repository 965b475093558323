"""ViT as a classifier of images; DeiT without distillation is stored as one."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headwork import choices
from headwork.hub.bert import labels
from headwork.hub.family import Family
from headwork.hub.names import Names, Table, joined
from headwork.hub.settings import Settings, write_activation
from headwork.models import VisionTransformerConfig


@dataclass(frozen=True)
class ClassTokenAndPositions:
    """Theirs has a position for the class token too: a constant that is added to a constant, and one token here."""

    ours: tuple[str, ...] = ("pooling.class_token", "positions.table")

    def read(self, theirs: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
        class_token, positions = (tensor.to(torch.promote_types(tensor.dtype, torch.float32)) for tensor in theirs)
        return [class_token[0, 0] + positions[0, 0], positions[0, 1:].reshape(like[1].shape)]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        class_token, positions = ours
        flat = positions.flatten(0, 1)
        return [class_token[None, None], joined([torch.zeros_like(flat[:1]), flat])[None]]


LAYER = "vit.encoder.layer.{i}"
TABLE: Table = {
    ("vit.embeddings.cls_token", "vit.embeddings.position_embeddings"): ClassTokenAndPositions(),
    "vit.embeddings.patch_embeddings.projection": "patches",
    f"{LAYER}.layernorm_before": "layers.{i}.attention_norm",
    f"{LAYER}.attention.attention.query": "layers.{i}.attention.query",
    f"{LAYER}.attention.attention.key": "layers.{i}.attention.key",
    f"{LAYER}.attention.attention.value": "layers.{i}.attention.value",
    f"{LAYER}.attention.output.dense": "layers.{i}.attention.out",
    f"{LAYER}.layernorm_after": "layers.{i}.feed_forward_norm",
    f"{LAYER}.intermediate.dense": "layers.{i}.feed_forward.up",
    f"{LAYER}.output.dense": "layers.{i}.feed_forward.down",
    "vit.layernorm": "layers.final_norm",
    "classifier": "classifier",
}


def names(config: VisionTransformerConfig) -> Names:
    return Names(TABLE, prefix="vit.")


def config_from(settings: Settings) -> VisionTransformerConfig:
    return read_vit(settings)


def read_vit(settings: Settings) -> VisionTransformerConfig:
    """What DeiT has as well."""
    settings.harmless("encoder_stride", "pooler_act", "pooler_output_size")
    bias = settings.flag("qkv_bias", True)
    return VisionTransformerConfig(
        n_classes=settings.n_labels,
        image=read_size(settings, "image_size", 224),
        n_channels=settings.count("num_channels", 3),
        patch=read_size(settings, "patch_size", 16),
        d_model=settings.count("hidden_size", 768),
        n_layers=settings.layers("num_hidden_layers", 12),
        heads=choices.Heads(n_heads=settings.count("num_attention_heads", 12), bias=bias, out_bias=True),
        feed_forward=choices.FeedForward(
            d_ff=settings.count("intermediate_size", 3072), activation=settings.activation("hidden_act", "gelu")
        ),
        norm=choices.LayerNorm(eps=settings.number("layer_norm_eps", 1e-12)),
        dropout=settings.number("hidden_dropout_prob", 0.0),
        attention_dropout=settings.number("attention_probs_dropout_prob", 0.0),
    )


def read_size(settings: Settings, name: str, default: int) -> tuple[int, int]:
    """One number, or (rows, columns)."""
    size = settings.value(name, default)
    if not isinstance(size, list):
        side = settings.count(name, default)
        return side, side
    rows, columns = (Settings({name: side}).count(name, default) for side in (size if len(size) == 2 else [size] * 2))
    return rows, columns


def config_to(config: VisionTransformerConfig) -> dict[str, object]:
    return {"model_type": "vit", "architectures": ["ViTForImageClassification"], **write_vit(config)}


def write_vit(config: VisionTransformerConfig) -> dict[str, object]:
    return {
        "image_size": list(config.image) if config.image[0] != config.image[1] else config.image[0],
        "patch_size": list(config.patch) if config.patch[0] != config.patch[1] else config.patch[0],
        "num_channels": config.n_channels,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.heads.n_heads,
        "intermediate_size": config.feed_forward.d_ff,
        "hidden_act": write_activation(config.feed_forward.activation),
        "layer_norm_eps": config.norm.eps,
        "qkv_bias": config.heads.bias,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        **labels(config.n_classes),
    }


VIT = Family(
    name="ViT",
    model_types=("vit",),
    config_class=VisionTransformerConfig,
    config_from=config_from,
    config_to=config_to,
    names=names,
)
