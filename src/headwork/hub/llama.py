"""Llama (1 to 3.2, TinyLlama, SmolLM2) and the models of its shape: Mistral, Qwen2, Qwen3.

They differ in where a bias stands, in windows and norms, and in what else their settings allow.
"""

from collections.abc import Callable
from dataclasses import replace

from headwork import choices
from headwork.hub.family import Family
from headwork.hub.names import Names, Table
from headwork.hub.rotary import read_rotary, write_rotary
from headwork.hub.settings import Settings, write_activation
from headwork.hub.windows import FULL, read_window, write_window
from headwork.models import DecoderConfig

LAYER = "model.layers.{i}"
TABLE: Table = {
    "model.embed_tokens.weight": "embedding.table",
    f"{LAYER}.input_layernorm": "layers.{i}.attention_norm",
    f"{LAYER}.self_attn.q_proj": "layers.{i}.attention.query",
    f"{LAYER}.self_attn.k_proj": "layers.{i}.attention.key",
    f"{LAYER}.self_attn.v_proj": "layers.{i}.attention.value",
    f"{LAYER}.self_attn.o_proj": "layers.{i}.attention.out",
    f"{LAYER}.self_attn.q_norm": "layers.{i}.attention.query_norm",
    f"{LAYER}.self_attn.k_norm": "layers.{i}.attention.key_norm",
    f"{LAYER}.post_attention_layernorm": "layers.{i}.feed_forward_norm",
    f"{LAYER}.mlp.gate_proj": "layers.{i}.feed_forward.gate",
    f"{LAYER}.mlp.up_proj": "layers.{i}.feed_forward.up",
    f"{LAYER}.mlp.down_proj": "layers.{i}.feed_forward.down",
    "model.norm": "layers.final_norm",
    "lm_head": "lm_head",
}


def names(config: DecoderConfig, table: Table = TABLE) -> Names:
    tied = isinstance(config.lm_head, choices.TiedLMHead)
    return Names(
        table,
        prefix="model.",
        copies={"lm_head.weight": "model.embed_tokens.weight"} if tied else {},
        ignored=(f"{LAYER}.self_attn.rotary_emb.inv_freq",),
    )


def read_decoder(
    settings: Settings,
    *,
    n_kv_heads: int | None,
    bias: bool = False,
    out_bias: bool = False,
    ff_bias: bool = False,
    d_head: int | None = None,
    eps: float = 1e-6,
    activation: str = "hidden_act",
    default_activation: str = "silu",
    tied: bool = False,
    fraction: float | None = None,
) -> DecoderConfig:
    """A decoder of this shape: rotary positions, grouped queries, RMS norm, SwiGLU.

    The arguments are what the family has of itself, and the defaults of its settings.
    """
    d_model = settings.count("hidden_size", 4096)
    n_heads = settings.count("num_attention_heads", 32)
    d_head = settings.count_or("head_dim", d_model // n_heads, d_head)
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
            activation=settings.activation(activation, default_activation),
            bias=ff_bias,
        ),
        norm=choices.RMSNorm(eps=settings.number("rms_norm_eps", eps)),
        position=read_rotary(settings, fraction=fraction),
        lm_head=choices.TiedLMHead() if settings.flag("tie_word_embeddings", tied) else choices.UntiedLMHead(),
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
    """Every layer has a window of 4096 tokens, unless the settings say another or null."""
    config = read_decoder(settings, n_kv_heads=8)
    return replace(config, window=read_window(settings, config.n_layers, default=4096, layers=range(config.n_layers)))


def mistral_to(config: DecoderConfig) -> dict[str, object]:
    own = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
    window = None if config.window is None else config.window.n_tokens
    return {**own, **write_decoder(config), "sliding_window": window}


# --- Qwen2 -----------------------------------------------------------------------------------------------------------


def qwen2_from(settings: Settings) -> DecoderConfig:
    """Queries, keys and values have a bias, the output has none."""
    config = read_decoder(settings, n_kv_heads=32, bias=True)
    return replace(config, window=read_window_of_qwen(settings, config.n_layers))


def read_window_of_qwen(settings: Settings, n_layers: int) -> choices.SlidingWindow | None:
    """Only if it is switched on, and from layer `max_window_layers` on."""
    settings.only(use_mrope=False)
    first = settings.value("max_window_layers", 28)
    if not settings.flag("use_sliding_window", False):
        settings.harmless("sliding_window")
        kinds = settings.value("layer_types")
        if kinds is not None and (not isinstance(kinds, list) or any(kind != FULL for kind in kinds)):
            raise ValueError(f"layer_types must be {FULL} only without use_sliding_window, got {kinds!r}")
        return None
    if not isinstance(first, int):
        raise ValueError(f"max_window_layers must be a whole number, got {first!r}")
    return read_window(settings, n_layers, default=4096, layers=range(max(first, 0), n_layers))


def write_window_of_qwen(config: DecoderConfig) -> dict[str, object]:
    return {"use_sliding_window": config.window is not None, **write_window(config.window, config.n_layers)}


def qwen2_to(config: DecoderConfig) -> dict[str, object]:
    own = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
    return {**own, **write_decoder(config), **write_window_of_qwen(config)}


# --- Qwen3 -----------------------------------------------------------------------------------------------------------


def qwen3_from(settings: Settings) -> DecoderConfig:
    """Queries and keys are normalised, each head by itself."""
    bias = settings.flag("attention_bias", False)
    config = read_decoder(settings, n_kv_heads=32, bias=bias, out_bias=bias, d_head=128)
    return replace(with_qk_norm(config), window=read_window_of_qwen(settings, config.n_layers))


def with_qk_norm(config: DecoderConfig, *, per_head: bool = True) -> DecoderConfig:
    """The same with norms of queries and keys that are as all its norms."""
    assert isinstance(config.heads, choices.Heads)
    return replace(config, heads=replace(config.heads, qk_norm=choices.QKNorm(norm=config.norm, per_head=per_head)))


def qwen3_to(config: DecoderConfig) -> dict[str, object]:
    own = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "attention_bias": config.heads.bias}
    return {**own, **write_decoder(config), **write_window_of_qwen(config)}


def family_of(
    name: str,
    model_type: str,
    config_from: Callable[[Settings], DecoderConfig],
    config_to: Callable[[DecoderConfig], dict[str, object]],
    names: Callable[[DecoderConfig], Names] = names,
) -> Family:
    return Family(
        name=name,
        model_types=(model_type,),
        config_class=DecoderConfig,
        config_from=config_from,
        config_to=config_to,
        names=names,
    )


LLAMA = family_of("Llama", "llama", llama_from, llama_to)
MISTRAL = family_of("Mistral", "mistral", mistral_from, mistral_to)
QWEN2 = family_of("Qwen2", "qwen2", qwen2_from, qwen2_to)
QWEN3 = family_of("Qwen3", "qwen3", qwen3_from, qwen3_to)
