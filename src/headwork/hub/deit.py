"""DeiT: a class token and a distillation token, and a head for each; with the class token alone it is a ViT."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headwork import choices
from headwork.hub.family import Family
from headwork.hub.names import Alternative, Names, Table, joined
from headwork.hub.settings import Settings
from headwork.hub.vit import TABLE, read_vit, write_vit
from headwork.models import VisionTransformerConfig


@dataclass(frozen=True)
class TokensAndPositions:
    """Theirs has positions for the two tokens too: constants that are added to constants, and two tokens here."""

    ours: tuple[str, ...] = ("pooling.class_token", "pooling.distillation_token", "positions.table")

    def read(self, theirs: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
        first, second, table = (tensor.to(torch.promote_types(tensor.dtype, torch.float32))[0] for tensor in theirs)
        return [first[0] + table[0], second[0] + table[1], table[2:].reshape(like[2].shape)]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        first, second, table = ours
        flat = table.flatten(0, 1)
        return [first[None, None], second[None, None], joined([torch.zeros_like(flat[:2]), flat])[None]]


@dataclass(frozen=True)
class MeanOfTwoHeads:
    """The mean of two linear maps of two vectors is one of both: half of each matrix, side by side."""

    ours: tuple[str, ...] = ("classifier.weight", "classifier.bias")

    def read(self, theirs: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
        one, other, one_bias, other_bias = (t.to(torch.promote_types(t.dtype, torch.float32)) / 2 for t in theirs)
        return [torch.cat([one, other], dim=1), one_bias + other_bias]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        weight, bias = ours
        one, other = weight.chunk(2, dim=1)
        if weight.is_meta:  # only names and shapes are asked for; to multiply, PyTorch would load its compiler
            return [one, other, bias, bias]
        return [2 * one, 2 * other, bias, bias]


@dataclass(frozen=True)
class OneHead:
    """A linear map of the class token alone: beside its matrix stand zeros, for the distillation token."""

    ours: tuple[str, ...] = ("classifier.weight", "classifier.bias")

    def read(self, theirs: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
        weight, bias = theirs
        return [torch.cat([weight, torch.zeros_like(weight)], dim=1), bias]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        weight, bias = ours
        return [weight.chunk(2, dim=1)[0], bias]


EMBEDDINGS = tuple(f"deit.embeddings.{name}" for name in ("cls_token", "distillation_token", "position_embeddings"))
HEADS = (
    "cls_classifier.weight",
    "distillation_classifier.weight",
    "cls_classifier.bias",
    "distillation_classifier.bias",
)
OWN: Table = {
    EMBEDDINGS: TokensAndPositions(),
    **{
        theirs.replace("vit.", "deit."): ours
        for theirs, ours in TABLE.items()
        if isinstance(theirs, str) and theirs != "classifier"
    },
    HEADS: MeanOfTwoHeads(),
}


def names(config: VisionTransformerConfig) -> Names:
    return Names(OWN, prefix="deit.", instead={HEADS: Alternative(("classifier.weight", "classifier.bias"), OneHead())})


def config_from(settings: Settings) -> VisionTransformerConfig:
    return replace(read_vit(settings), pooling=choices.DistillationToken())


def config_to(config: VisionTransformerConfig) -> dict[str, object]:
    own = {"model_type": "deit", "architectures": ["DeiTForImageClassificationWithTeacher"]}
    return {**write_vit(config), **own}


DEIT = Family(
    name="DeiT",
    model_types=("deit",),
    config_class=VisionTransformerConfig,
    config_from=config_from,
    config_to=config_to,
    names=names,
)
