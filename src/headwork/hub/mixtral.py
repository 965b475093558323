"""Mixtral, Qwen2-MoE and Qwen3-MoE: every feed-forward network is a mixture of experts."""

from dataclasses import replace

from headwork import choices
from headwork.hub.llama import (
    LAYER,
    TABLE,
    family_of,
    names,
    read_decoder,
    read_window_of_qwen,
    with_qk_norm,
    write_decoder,
    write_window_of_qwen,
)
from headwork.hub.names import Names, Table
from headwork.hub.settings import Settings
from headwork.hub.windows import read_window
from headwork.models import DecoderConfig

ATTENTION: Table = {theirs: ours for theirs, ours in TABLE.items() if ".mlp." not in theirs}
OURS = "layers.{i}.feed_forward"


def _experts(config: DecoderConfig, theirs: str, parts: dict[str, str]) -> Table:
    """The parts of each expert, which are numbered beside the layer."""
    n_experts = getattr(config.feed_forward, "n_experts", 0)
    return {
        f"{theirs}.{number}.{name}": f"{OURS}.experts.{number}.{part}"
        for number in range(n_experts)
        for name, part in parts.items()
    }


def mixtral_names(config: DecoderConfig) -> Names:
    moe = f"{LAYER}.block_sparse_moe"
    experts = _experts(config, f"{moe}.experts", {"w1": "gate", "w3": "up", "w2": "down"})
    return names(config, {**ATTENTION, f"{moe}.gate": f"{OURS}.router", **experts})


def qwen_names(config: DecoderConfig) -> Names:
    moe, parts = f"{LAYER}.mlp", {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"}
    shared: Table = {f"{moe}.shared_expert.{name}": f"{OURS}.shared.{part}" for name, part in parts.items()}
    more: Table = {f"{moe}.gate": f"{OURS}.router", f"{moe}.shared_expert_gate": f"{OURS}.shared_gate"}
    return names(config, {**ATTENTION, **shared, **more, **_experts(config, f"{moe}.experts", parts)})


def _read_experts(
    settings: Settings,
    config: DecoderConfig,
    *,
    width: str | None,
    n_experts: tuple[str, str | None, int],
    n_active: int,
    normalised: bool,
    d_shared: int | None = None,
) -> DecoderConfig:
    name, alias, default = n_experts
    settings.harmless("output_router_logits", "router_aux_loss_coef", "router_jitter_noise")
    feed_forward = config.feed_forward
    experts = choices.MixtureOfExperts(
        n_experts=settings.count(name, default, alias=alias),
        n_active=settings.count("num_experts_per_tok", n_active),
        d_ff=feed_forward.d_ff if width is None else settings.count(width, feed_forward.d_ff),
        activation=feed_forward.activation,
        normalised=normalised,
        d_shared=d_shared,
    )
    return replace(config, feed_forward=experts)


def _only_experts(settings: Settings) -> None:
    """Layers without experts between those with them have no place here."""
    settings.only(decoder_sparse_step=1)
    if settings.value("mlp_only_layers"):
        raise ValueError(f"mlp_only_layers must be empty, got {settings.values['mlp_only_layers']!r}")


# --- Mixtral ---------------------------------------------------------------------------------------------------------


def mixtral_from(settings: Settings) -> DecoderConfig:
    settings.values.setdefault("rope_theta", 1_000_000.0)
    config = read_decoder(settings, n_kv_heads=8, eps=1e-5)
    window = read_window(settings, config.n_layers, default=None, layers=range(config.n_layers))
    experts = ("num_local_experts", None, 8)
    config = _read_experts(settings, config, width=None, n_experts=experts, n_active=2, normalised=True)
    return replace(config, window=window)


def mixtral_to(config: DecoderConfig) -> dict[str, object]:
    experts = config.feed_forward
    return {
        "model_type": "mixtral",
        "architectures": ["MixtralForCausalLM"],
        **write_decoder(config),
        "sliding_window": None if config.window is None else config.window.n_tokens,
        "num_local_experts": getattr(experts, "n_experts", 1),
        "num_experts_per_tok": getattr(experts, "n_active", 1),
    }


# --- Qwen2-MoE and Qwen3-MoE -----------------------------------------------------------------------------------------


def qwen2_moe_from(settings: Settings) -> DecoderConfig:
    """One more expert sees every token, through a gate."""
    _only_experts(settings)
    config = read_decoder(settings, n_kv_heads=16, bias=settings.flag("qkv_bias", True))
    config = replace(config, window=read_window_of_qwen(settings, config.n_layers))
    return _read_experts(
        settings,
        config,
        width="moe_intermediate_size",
        n_experts=("num_experts", "num_local_experts", 60),
        n_active=4,
        normalised=settings.flag("norm_topk_prob", False),
        d_shared=settings.count("shared_expert_intermediate_size", 5632),
    )


def qwen3_moe_from(settings: Settings) -> DecoderConfig:
    _only_experts(settings)
    bias = settings.flag("attention_bias", False)
    config = with_qk_norm(read_decoder(settings, n_kv_heads=4, bias=bias, out_bias=bias))
    config = replace(config, window=read_window_of_qwen(settings, config.n_layers))
    return _read_experts(
        settings,
        config,
        width="moe_intermediate_size",
        n_experts=("num_experts", "num_local_experts", 128),
        n_active=8,
        normalised=settings.flag("norm_topk_prob", False),
    )


def _write_qwen(config: DecoderConfig) -> dict[str, object]:
    experts, written = config.feed_forward, write_decoder(config)
    return {
        **written,
        **write_window_of_qwen(config),
        "moe_intermediate_size": experts.d_ff,
        "num_experts": getattr(experts, "n_experts", 1),
        "num_experts_per_tok": getattr(experts, "n_active", 1),
        "norm_topk_prob": getattr(experts, "normalised", True),
    }


def qwen2_moe_to(config: DecoderConfig) -> dict[str, object]:
    return {
        "model_type": "qwen2_moe",
        "architectures": ["Qwen2MoeForCausalLM"],
        **{name: value for name, value in _write_qwen(config).items() if name != "head_dim"},
        "qkv_bias": config.heads.bias,
        "shared_expert_intermediate_size": getattr(config.feed_forward, "d_shared", None) or 1,
    }


def qwen3_moe_to(config: DecoderConfig) -> dict[str, object]:
    own = {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": config.heads.bias}
    theirs = _write_qwen(config)
    return {**own, **{name: value for name, value in theirs.items() if name != "layer_types"}}


MIXTRAL = family_of("Mixtral", "mixtral", mixtral_from, mixtral_to, mixtral_names)
QWEN2_MOE = family_of("Qwen2-MoE", "qwen2_moe", qwen2_moe_from, qwen2_moe_to, qwen_names)
QWEN3_MOE = family_of("Qwen3-MoE", "qwen3_moe", qwen3_moe_from, qwen3_moe_to, qwen_names)
