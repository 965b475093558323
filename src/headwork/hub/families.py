"""The families of checkpoints that can be loaded, and why some well-known others cannot."""

from collections.abc import Collection, Mapping, Sequence

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
from headwork.hub.settings import class_name, split_class
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


MARKS = {
    "bert.encoder.layer.0.attention.self.query.weight": "bert",
    "encoder.layer.0.attention.self.query.weight": "bert",
    "roberta.encoder.layer.0.attention.self.query.weight": "roberta",
    "distilbert.transformer.layer.0.attention.q_lin.weight": "distilbert",
    "transformer.layer.0.attention.q_lin.weight": "distilbert",
    "transformer.h.0.attn.c_attn.weight": "gpt2",
    "h.0.attn.c_attn.weight": "gpt2",
    "gpt_neox.layers.0.attention.query_key_value.weight": "gpt_neox",
    "encoder.block.0.layer.0.SelfAttention.q.weight": "t5",
    "vit.encoder.layer.0.attention.attention.query.weight": "vit",
    "deit.encoder.layer.0.attention.attention.query.weight": "deit",
}
"""Tensors whose names say the family, for the folders of years in which no config.json named a model_type."""


def with_model_type(
    theirs: Mapping[str, object], tensors: Collection[str], families: Sequence[Family]
) -> dict[str, object]:
    """The settings with the model_type that the names of the tensors say, or else the class of the model."""
    marked = next((model_type for name, model_type in MARKS.items() if name in tensors), None)
    has_prefix = any(name.startswith("bert.") for name in tensors)
    if marked == "bert" and not has_prefix and theirs.get("type_vocab_size") == 1:
        marked = None  # RoBERTa has no segments, and without its prefix the same names
    kind = split_class(class_name(theirs) or "")[0].lower()
    known = [model_type for family in families for model_type in family.model_types]
    named = [model_type for model_type in known if model_type.replace("_", "").replace("-", "") == kind]
    found = [marked] if marked is not None else named
    if not found:
        got = f"no model_type, tensors of several families, and architectures {theirs.get('architectures')!r}"
        raise ValueError(f'config.json must say "model_type", one of {", ".join(known)}, got {got}')
    return {**theirs, "model_type": found[0]}


def find_family(theirs: Mapping[str, object], families: Sequence[Family]) -> Family:
    """The family that reads folders with these settings."""
    kind = theirs.get("model_type")
    for family in families:
        if kind in family.model_types:
            return family
    known = ", ".join(model_type for family in families for model_type in family.model_types)
    reason = f"; {kind} cannot be loaded: {NOT_YET[kind]}" if isinstance(kind, str) and kind in NOT_YET else ""
    raise ValueError(f"model_type must be one of {known}, got {kind!r}{reason}")
