"""Llama (1, 2 and 3, TinyLlama, SmolLM2) and the models of its shape: Mistral, Qwen2.

They differ in where a bias stands and in what else their settings allow.
"""

from collections.abc import Callable

from headwork import choices
from headwork.hub.family import Family
from headwork.hub.names import Names, Table
from headwork.hub.rotary import read_rotary, write_rotary
from headwork.hub.settings import Settings, write_activation
from headwork.models import DecoderConfig

LAYER = "model.layers.{i}"
TABLE: Table = {
    "model.embed_tokens.weight": "embedding.table",
    f"{LAYER}.input_layernorm": "layers.{i}.attention_norm",
    f"{LAYER}.self_attn.q_proj": "layers.{i}.attention.query",
    f"{LAYER}.self_attn.k_proj": "layers.{i}.attention.key",
    f"{LAYER}.self_attn.v_proj": "layers.{i}.attention.value",
    f"{LAYER}.self_attn.o_proj": "layers.{i}.attention.out",
    f"{LAYER}.post_attention_layernorm": "layers.{i}.feed_forward_norm",
    f"{LAYER}.mlp.gate_proj": "layers.{i}.feed_forward.gate",
    f"{LAYER}.mlp.up_proj": "layers.{i}.feed_forward.up",
    f"{LAYER}.mlp.down_proj": "layers.{i}.feed_forward.down",
    "model.norm": "layers.final_norm",
    "lm_head": "lm_head",
}


def names(config: DecoderConfig) -> Names:
    tied = isinstance(config.lm_head, choices.TiedLMHead)
    return Names(
        TABLE,
        prefix="model.",
        copies={"lm_head.weight": "model.embed_tokens.weight"} if tied else {},
        ignored=(f"{LAYER}.self_attn.rotary_emb.inv_freq",),
    )


def read_decoder(
    settings: Settings, *, n_kv_heads: int | None, bias: bool, out_bias: bool, ff_bias: bool
) -> DecoderConfig:
    """A decoder of this shape: rotary positions, grouped queries, RMS norm, SwiGLU."""
    d_model = settings.count("hidden_size", 4096)
    n_heads = settings.count("num_attention_heads", 32)
    d_head = settings.count_or("head_dim", d_model // n_heads)
    return DecoderConfig(
        vocab=settings.count("vocab_size", 32_000),
        d_model=d_model,
        n_layers=settings.layers("num_hidden_layers", 32),
        heads=choices.Heads(
            n_heads=n_heads,
            n_kv_heads=settings.count_or("num_key_value_heads", n_heads, n_kv_heads),
            d_head=d_head,
            d_value=d_head,
            bias=bias,
            out_bias=out_bias,
        ),
        feed_forward=choices.GatedFeedForward(
            d_ff=settings.count("intermediate_size", 11_008),
            activation=settings.activation("hidden_act", "silu"),
            bias=ff_bias,
        ),
        norm=choices.RMSNorm(eps=settings.number("rms_norm_eps", 1e-6)),
        position=read_rotary(settings),
        lm_head=choices.TiedLMHead() if settings.flag("tie_word_embeddings", False) else choices.UntiedLMHead(),
        dropout=0.0,
        attention_dropout=settings.number("attention_dropout", 0.0),
    )


def write_decoder(config: DecoderConfig) -> dict[str, object]:
    heads = config.heads if isinstance(config.heads, choices.Heads) else choices.Heads(n_heads=config.heads.n_heads)
    return {
        "vocab_size": config.vocab,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": heads.n_heads,
        "num_key_value_heads": heads.n_kv_heads or heads.n_heads,
        "head_dim": heads.d_head or config.d_model // heads.n_heads,
        "intermediate_size": config.feed_forward.d_ff,
        "hidden_act": write_activation(config.feed_forward.activation),
        "rms_norm_eps": config.norm.eps,
        **write_rotary(config.position),
        "tie_word_embeddings": isinstance(config.lm_head, choices.TiedLMHead),
        "attention_dropout": config.attention_dropout,
    }


# --- Llama -----------------------------------------------------------------------------------------------------------


def llama_from(settings: Settings) -> DecoderConfig:
    settings.architecture({"LlamaForCausalLM": None})
    settings.harmless("pretraining_tp", "is_llama_config")
    bias = settings.flag("attention_bias", False)
    return read_decoder(settings, n_kv_heads=None, bias=bias, out_bias=bias, ff_bias=settings.flag("mlp_bias", False))


def llama_to(config: DecoderConfig) -> dict[str, object]:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        **write_decoder(config),
        "attention_bias": config.heads.bias,
        "mlp_bias": config.feed_forward.bias,
    }


# --- Mistral ---------------------------------------------------------------------------------------------------------


def mistral_from(settings: Settings) -> DecoderConfig:
    """Without a sliding window; a folder that does not speak of it has one."""
    settings.architecture({"MistralForCausalLM": None})
    if settings.value("sliding_window", 4096) is not None:
        window = settings.value("sliding_window", 4096)
        raise ValueError(f"sliding_window must be null, the only one that Headwork has, got {window!r}")
    return read_decoder(settings, n_kv_heads=8, bias=False, out_bias=False, ff_bias=False)


def mistral_to(config: DecoderConfig) -> dict[str, object]:
    own = {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": None}
    return {**own, **write_decoder(config)}


# --- Qwen2 -----------------------------------------------------------------------------------------------------------


def qwen2_from(settings: Settings) -> DecoderConfig:
    """Queries, keys and values have a bias, the output has none; a sliding window must be switched off."""
    settings.architecture({"Qwen2ForCausalLM": None})
    settings.only(use_sliding_window=False, use_mrope=False)
    settings.harmless("sliding_window", "max_window_layers")
    kinds = settings.value("layer_types")
    if kinds is not None and (not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds)):
        raise ValueError(f"layer_types must be full_attention only, got {kinds!r}")
    return read_decoder(settings, n_kv_heads=32, bias=True, out_bias=False, ff_bias=False)


def qwen2_to(config: DecoderConfig) -> dict[str, object]:
    own = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "use_sliding_window": False}
    return {**own, **write_decoder(config)}


def _family(
    name: str,
    model_type: str,
    config_from: Callable[[Settings], DecoderConfig],
    config_to: Callable[[DecoderConfig], dict[str, object]],
) -> Family:
    return Family(
        name=name,
        model_types=(model_type,),
        config_class=DecoderConfig,
        config_from=config_from,
        config_to=config_to,
        names=names,
    )


LLAMA = _family("Llama", "llama", llama_from, llama_to)
MISTRAL = _family("Mistral", "mistral", mistral_from, mistral_to)
QWEN2 = _family("Qwen2", "qwen2", qwen2_from, qwen2_to)
