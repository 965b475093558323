"""The families of checkpoints that can be loaded, and why some well-known others cannot."""

from collections.abc import Mapping, Sequence

from headwork.hub.bart import BART, MBART
from headwork.hub.bert import BERT
from headwork.hub.deit import DEIT
from headwork.hub.distilbert import DISTILBERT
from headwork.hub.falcon import FALCON
from headwork.hub.family import Family
from headwork.hub.gemma import GEMMA, GEMMA2, GEMMA3
from headwork.hub.gpt2 import GPT2
from headwork.hub.gpt_neox import GPT_NEOX
from headwork.hub.llama import LLAMA, MISTRAL, QWEN2, QWEN3
from headwork.hub.marian import MARIAN
from headwork.hub.mixtral import MIXTRAL, QWEN2_MOE, QWEN3_MOE
from headwork.hub.olmo2 import OLMO2
from headwork.hub.phi import PHI
from headwork.hub.phi3 import PHI3
from headwork.hub.roberta import ROBERTA
from headwork.hub.t5 import T5
from headwork.hub.vit import VIT

FAMILIES: tuple[Family, ...] = (
    *(BERT, ROBERTA, DISTILBERT),
    *(GPT2, LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA, GEMMA2, GEMMA3, OLMO2, GPT_NEOX, PHI, PHI3, FALCON),
    *(MIXTRAL, QWEN2_MOE, QWEN3_MOE),
    *(T5, MARIAN, BART, MBART),
    *(VIT, DEIT),
)
"""In the order in which a model that is saved tries them."""

NOT_YET = {
    "albert": "its layers share their weights",
    "deepseek_v3": "its keys and values are of low rank (latent attention)",
    "electra": "its embedding has a width of its own",
    "gemma3": "it reads images too (its text model alone, gemma3_text, can be loaded)",
    "gpt_neo": "its scores are not scaled",
    "gpt_oss": "its softmax has sinks",
    "gptj": "its rotation is interleaved",
    "mt5": "whether its output is scaled is not settled",
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
