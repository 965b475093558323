"""Folders as transformers writes them: small models of every family, every axis another size, no weight left at 0."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from ..models.parity.comparing import NothingBelowFloat64
from ..models.small_models import ready

transformers = pytest.importorskip("transformers")

REAL = Path(__file__).parents[2] / ".checkpoints"

PAD = 1
N_LABELS = 3
ENCODER = {
    "vocab_size": 37,
    "hidden_size": 21,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 17,
    "max_position_embeddings": 13,
    "pad_token_id": PAD,
}
DISTILBERT = {
    "vocab_size": 37,
    "dim": 21,
    "n_layers": 2,
    "n_heads": 3,
    "hidden_dim": 17,
    "max_position_embeddings": 13,
}
GPT2 = {"vocab_size": 37, "n_embd": 21, "n_layer": 2, "n_head": 3, "n_inner": 17, "n_positions": 23}
LLAMA = {
    "vocab_size": 37,
    "hidden_size": 30,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 17,
    "max_position_embeddings": 23,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
}
QWEN2 = LLAMA | {"hidden_size": 24}
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 6}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "original_max_position_embeddings": 16,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
T5 = {
    "vocab_size": 37,
    "d_model": 23,
    "d_kv": 5,
    "d_ff": 17,
    "num_layers": 2,
    "num_heads": 3,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 16,
}
MARIAN = {
    "vocab_size": 37,
    "d_model": 12,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 17,
    "decoder_ffn_dim": 17,
    "max_position_embeddings": 29,
    "activation_function": "swish",
    "scale_embedding": True,
    "pad_token_id": 36,
    "eos_token_id": 0,
    "decoder_start_token_id": 36,
}
GROUPED = LLAMA | {"hidden_size": 24, "head_dim": 6}
WINDOW = {"sliding_window": 3, "num_hidden_layers": 3}
GEMMA2 = GROUPED | WINDOW | {"query_pre_attn_scalar": 11, "attn_logit_softcapping": 0.7, "final_logit_softcapping": 1.3}
GEMMA3 = {
    key: value for key, value in (GROUPED | WINDOW | {"query_pre_attn_scalar": 11}).items() if key != "rope_parameters"
}
SIDE_BY_SIDE = {
    "vocab_size": 37,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 17,
    "max_position_embeddings": 23,
}
EXPERTS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 7}
FALCON = {key: value for key, value in SIDE_BY_SIDE.items() if key != "intermediate_size"} | {
    "num_attention_heads": 6,
    "ffn_hidden_size": 17,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
BART = {
    "vocab_size": 37,
    "d_model": 12,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 17,
    "decoder_ffn_dim": 17,
    "max_position_embeddings": 29,
    "pad_token_id": 36,
    "eos_token_id": 0,
    "decoder_start_token_id": 36,
    "forced_eos_token_id": None,
}
VIT = {
    "hidden_size": 21,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 17,
    "image_size": 12,
    "patch_size": 4,
    "num_channels": 2,
}
LABELS = {"num_labels": N_LABELS}


@dataclass(frozen=True)
class Checkpoint:
    """A class of transformers, its settings, and what its inputs are."""

    kind: Literal["encoder", "decoder", "pair", "image"]
    model: str
    config: str
    settings: dict[str, Any]
    prepare: Callable[[Any], None] = lambda model: None
    options: tuple[tuple[str, Any], ...] = ()
    slow: bool = False
    """An odd one: its tests are slow ones."""

    def make(self, **changed: Any) -> Any:
        """The model with random weights, in float64."""
        config = getattr(transformers, self.config)(
            **{**self.settings, **changed}, attn_implementation="eager", experts_implementation="eager"
        )
        with NothingBelowFloat64():
            model = getattr(transformers, self.model)(config, **dict(self.options))
            self.prepare(model)
            return ready(model)

    def save(self, folder: Path, *, shard: str = "5GB", **changed: Any) -> Any:
        """The model, and the folder it is saved in."""
        model = self.make(**changed)
        model.save_pretrained(folder, max_shard_size=shard)
        return model


def untie(model: Any) -> None:
    model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))


def random_bias(model: Any) -> None:
    """The output bias starts at 0."""
    generator = torch.Generator().manual_seed(1)
    shape = (1, model.config.vocab_size)
    model.final_logits_bias = torch.randn(shape, dtype=torch.float64, generator=generator)


def exact_sinusoids(model: Any) -> None:
    """Marian's table is rounded to float32 there."""
    random_bias(model)
    for stack in (model.model.encoder, model.model.decoder):
        n_positions, d_model = stack.embed_positions.weight.shape
        channel = torch.arange(d_model, dtype=torch.float64)
        angle = torch.arange(n_positions, dtype=torch.float64)[:, None] / 10_000 ** (2 * (channel // 2) / d_model)
        table = torch.cat([angle[:, 0::2].sin(), angle[:, 1::2].cos()], dim=1)
        stack.embed_positions.weight = _Frozen(table)


class _Frozen(torch.nn.Parameter):
    """A parameter that `ready` cannot change."""

    def __new__(cls, data: torch.Tensor) -> "_Frozen":
        return super().__new__(cls, data, requires_grad=False)

    def copy_(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self


WITHOUT_POOLER = (("add_pooling_layer", False),)

CHECKPOINTS: dict[str, Checkpoint] = {
    "bert": Checkpoint("encoder", "BertModel", "BertConfig", ENCODER, options=WITHOUT_POOLER),
    "bert-lm": Checkpoint("encoder", "BertForMaskedLM", "BertConfig", ENCODER),
    "bert-lm-tanh": Checkpoint("encoder", "BertForMaskedLM", "BertConfig", ENCODER | {"hidden_act": "gelu_new"}),
    "bert-classes": Checkpoint("encoder", "BertForSequenceClassification", "BertConfig", ENCODER | LABELS),
    "bert-tokens": Checkpoint("encoder", "BertForTokenClassification", "BertConfig", ENCODER | LABELS),
    "bert-one-layer": Checkpoint("encoder", "BertForMaskedLM", "BertConfig", ENCODER | {"num_hidden_layers": 1}),
    "roberta": Checkpoint("encoder", "RobertaModel", "RobertaConfig", ENCODER, options=WITHOUT_POOLER),
    "roberta-lm": Checkpoint("encoder", "RobertaForMaskedLM", "RobertaConfig", ENCODER | {"hidden_act": "relu"}),
    "roberta-classes": Checkpoint("encoder", "RobertaForSequenceClassification", "RobertaConfig", ENCODER | LABELS),
    "roberta-tokens": Checkpoint("encoder", "RobertaForTokenClassification", "RobertaConfig", ENCODER | LABELS),
    "xlm-roberta-lm": Checkpoint("encoder", "XLMRobertaForMaskedLM", "XLMRobertaConfig", ENCODER),
    "camembert-lm": Checkpoint("encoder", "CamembertForMaskedLM", "CamembertConfig", ENCODER),
    "distilbert": Checkpoint("encoder", "DistilBertModel", "DistilBertConfig", DISTILBERT),
    "distilbert-lm": Checkpoint("encoder", "DistilBertForMaskedLM", "DistilBertConfig", DISTILBERT),
    "distilbert-classes": Checkpoint(
        "encoder", "DistilBertForSequenceClassification", "DistilBertConfig", DISTILBERT | LABELS
    ),
    "distilbert-tokens": Checkpoint(
        "encoder", "DistilBertForTokenClassification", "DistilBertConfig", DISTILBERT | LABELS
    ),
    "gpt2": Checkpoint("decoder", "GPT2LMHeadModel", "GPT2Config", GPT2),
    "gpt2-untied": Checkpoint("decoder", "GPT2LMHeadModel", "GPT2Config", GPT2 | {"tie_word_embeddings": False}),
    "gpt2-one-layer": Checkpoint(
        "decoder",
        "GPT2LMHeadModel",
        "GPT2Config",
        GPT2 | {"n_layer": 1, "n_inner": None, "activation_function": "relu"},
    ),
    "llama": Checkpoint("decoder", "LlamaForCausalLM", "LlamaConfig", LLAMA | {"head_dim": 4}),
    "llama-tied": Checkpoint(
        "decoder", "LlamaForCausalLM", "LlamaConfig", LLAMA | {"tie_word_embeddings": True, "head_dim": 10}
    ),
    "llama-biases": Checkpoint(
        "decoder",
        "LlamaForCausalLM",
        "LlamaConfig",
        LLAMA | {"head_dim": 4, "attention_bias": True, "mlp_bias": True, "num_key_value_heads": None},
    ),
    "llama-3.1": Checkpoint(
        "decoder", "LlamaForCausalLM", "LlamaConfig", LLAMA | {"head_dim": 10, "rope_parameters": LLAMA3}
    ),
    **{
        f"llama-{name}": Checkpoint(
            "decoder", "LlamaForCausalLM", "LlamaConfig", LLAMA | {"head_dim": 10, "rope_parameters": rope}, slow=True
        )
        for name, rope in {
            "linear": {"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0},
            "dynamic": {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 3.0},
            "yarn": YARN,
            "yarn-scales": YARN | {"beta_fast": 4, "mscale": 1.0, "mscale_all_dim": 0.5},
        }.items()
    },
    "mistral-window": Checkpoint(
        "decoder", "MistralForCausalLM", "MistralConfig", GROUPED | {"sliding_window": 3, "head_dim": 10}
    ),
    "qwen2-window": Checkpoint(
        "decoder",
        "Qwen2ForCausalLM",
        "Qwen2Config",
        QWEN2 | WINDOW | {"use_sliding_window": True, "max_window_layers": 1},
        slow=True,
    ),
    "qwen3": Checkpoint("decoder", "Qwen3ForCausalLM", "Qwen3Config", GROUPED),
    "qwen3-odd": Checkpoint(
        "decoder",
        "Qwen3ForCausalLM",
        "Qwen3Config",
        GROUPED
        | {"num_hidden_layers": 1, "tie_word_embeddings": True, "attention_bias": True, "rope_parameters": YARN},
        slow=True,
    ),
    "gemma": Checkpoint("decoder", "GemmaForCausalLM", "GemmaConfig", GROUPED),
    "gemma-odd": Checkpoint(
        "decoder",
        "GemmaForCausalLM",
        "GemmaConfig",
        GROUPED | {"num_hidden_layers": 1, "tie_word_embeddings": False, "num_key_value_heads": 1, "head_dim": 10},
        slow=True,
    ),
    "gemma2": Checkpoint("decoder", "Gemma2ForCausalLM", "Gemma2Config", GEMMA2),
    "gemma2-odd": Checkpoint(
        "decoder",
        "Gemma2ForCausalLM",
        "Gemma2Config",
        GEMMA2 | {"attn_logit_softcapping": None, "final_logit_softcapping": None, "attention_bias": True},
        slow=True,
    ),
    "gemma3": Checkpoint(
        "decoder",
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        GEMMA3
        | {
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            },
        },
    ),
    "gemma3-pattern": Checkpoint(
        "decoder",
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        GEMMA3 | {"num_hidden_layers": 7, "final_logit_softcapping": 1.3},
        slow=True,
    ),
    "olmo2": Checkpoint("decoder", "Olmo2ForCausalLM", "Olmo2Config", QWEN2 | {"pad_token_id": 0, "eos_token_id": 1}),
    "gpt-neox": Checkpoint(
        "decoder", "GPTNeoXForCausalLM", "GPTNeoXConfig", SIDE_BY_SIDE | {"rotary_pct": 0.5, "rotary_emb_base": 500}
    ),
    "gpt-neox-odd": Checkpoint(
        "decoder",
        "GPTNeoXForCausalLM",
        "GPTNeoXConfig",
        SIDE_BY_SIDE | {"use_parallel_residual": False, "attention_bias": False, "tie_word_embeddings": True},
        slow=True,
    ),
    "phi": Checkpoint("decoder", "PhiForCausalLM", "PhiConfig", SIDE_BY_SIDE),
    "phi-grouped": Checkpoint(
        "decoder",
        "PhiForCausalLM",
        "PhiConfig",
        SIDE_BY_SIDE | {"num_attention_heads": 6, "num_key_value_heads": 2, "num_hidden_layers": 1},
        slow=True,
    ),
    "phi3": Checkpoint(
        "decoder",
        "Phi3ForCausalLM",
        "Phi3Config",
        QWEN2 | {"pad_token_id": 0, "eos_token_id": 1, "sliding_window": 3},
    ),
    "phi4": Checkpoint(
        "decoder",
        "Phi3ForCausalLM",
        "Phi3Config",
        QWEN2
        | {"pad_token_id": 0, "eos_token_id": 1, "hidden_size": 48, "partial_rotary_factor": 0.75}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.75}},
        slow=True,
    ),
    "falcon": Checkpoint("decoder", "FalconForCausalLM", "FalconConfig", FALCON),
    "falcon-40b": Checkpoint(
        "decoder", "FalconForCausalLM", "FalconConfig", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2}
    ),
    "falcon-rw": Checkpoint(
        "decoder",
        "FalconForCausalLM",
        "FalconConfig",
        FALCON | {"parallel_attn": False, "multi_query": False, "bias": True, "tie_word_embeddings": False},
        slow=True,
    ),
    "mixtral": Checkpoint("decoder", "MixtralForCausalLM", "MixtralConfig", QWEN2 | {"num_local_experts": 5}),
    "qwen2-moe": Checkpoint(
        "decoder",
        "Qwen2MoeForCausalLM",
        "Qwen2MoeConfig",
        QWEN2 | EXPERTS | {"shared_expert_intermediate_size": 11},
        slow=True,
    ),
    "qwen3-moe": Checkpoint("decoder", "Qwen3MoeForCausalLM", "Qwen3MoeConfig", GROUPED | EXPERTS, slow=True),
    "mistral": Checkpoint("decoder", "MistralForCausalLM", "MistralConfig", QWEN2 | {"sliding_window": None}),
    "qwen2": Checkpoint("decoder", "Qwen2ForCausalLM", "Qwen2Config", QWEN2),
    "qwen2-tied": Checkpoint("decoder", "Qwen2ForCausalLM", "Qwen2Config", QWEN2 | {"tie_word_embeddings": True}),
    "t5": Checkpoint("pair", "T5ForConditionalGeneration", "T5Config", T5),
    "t5-v1.1": Checkpoint(
        "pair",
        "T5ForConditionalGeneration",
        "T5Config",
        T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        prepare=untie,
    ),
    "t5-tied-unscaled": Checkpoint(
        "pair",
        "T5ForConditionalGeneration",
        "T5Config",
        T5 | {"feed_forward_proj": "gated-silu", "tie_word_embeddings": False, "num_layers": 1},
    ),
    "marian": Checkpoint("pair", "MarianMTModel", "MarianConfig", MARIAN, prepare=exact_sinusoids),
    "marian-unscaled": Checkpoint(
        "pair",
        "MarianMTModel",
        "MarianConfig",
        MARIAN | {"scale_embedding": False, "activation_function": "relu", "decoder_layers": 1},
        prepare=exact_sinusoids,
    ),
    "bart": Checkpoint("pair", "BartForConditionalGeneration", "BartConfig", BART, prepare=random_bias),
    "mbart": Checkpoint(
        "pair",
        "MBartForConditionalGeneration",
        "MBartConfig",
        BART | {"scale_embedding": True},
        prepare=random_bias,
        slow=True,
    ),
    "deit": Checkpoint("image", "DeiTForImageClassificationWithTeacher", "DeiTConfig", VIT | LABELS),
    "vit": Checkpoint("image", "ViTForImageClassification", "ViTConfig", VIT | LABELS),
    "vit-no-bias": Checkpoint(
        "image",
        "ViTForImageClassification",
        "ViTConfig",
        VIT | LABELS | {"qkv_bias": False, "num_hidden_layers": 1, "image_size": [12, 8], "patch_size": [4, 2]},
    ),
}


def real_checkpoint(name: str) -> Path:
    """A model that somebody trained, out of a package that `make checkpoints` fetches."""
    path = REAL / name
    assert path.exists(), f"{path} is missing: `make checkpoints` fetches it from the package index"
    return path
