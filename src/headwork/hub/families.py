"""The families of checkpoints that can be loaded, and why some well-known others cannot."""

from collections.abc import Mapping, Sequence

from headwork.hub.bert import BERT
from headwork.hub.distilbert import DISTILBERT
from headwork.hub.family import Family
from headwork.hub.gpt2 import GPT2
from headwork.hub.llama import LLAMA, MISTRAL, QWEN2
from headwork.hub.marian import MARIAN
from headwork.hub.roberta import ROBERTA
from headwork.hub.t5 import T5
from headwork.hub.vit import VIT

FAMILIES: tuple[Family, ...] = (BERT, ROBERTA, DISTILBERT, GPT2, LLAMA, MISTRAL, QWEN2, T5, MARIAN, VIT)
"""In the order in which a model that is saved tries them."""

NOT_YET = {
    "albert": "its layers share their weights",
    "bart": "its embeddings are normalised in both stacks",
    "deit": "it has a distillation token beside the class token (without one, DeiT is a vit)",
    "electra": "its embedding has a width of its own",
    "gemma": "its embedding is scaled and its norms multiply by 1 + weight",
    "gpt_neox": "its residual branches are parallel and its rotation is partial",
    "mbart": "its embeddings are normalised in both stacks",
    "mixtral": "it is a mixture of experts",
    "mt5": "whether its output is scaled is not settled",
    "phi3": "its projections are fused",
    "qwen3": "its queries and keys are normalised",
}
"""Families that people will try, with what is missing here."""


def find_family(theirs: Mapping[str, object], families: Sequence[Family]) -> Family:
    """The family that reads folders with these settings."""
    kind = theirs.get("model_type")
    for family in families:
        if kind in family.model_types:
            return family
    known = ", ".join(model_type for family in families for model_type in family.model_types)
    reason = f"; {kind} cannot be loaded: {NOT_YET[kind]}" if isinstance(kind, str) and kind in NOT_YET else ""
    raise ValueError(f"model_type must be one of {known}, got {kind!r}{reason}")
