"""Gemma, Gemma 2 and the text model of Gemma 3: scaled embeddings, norms that multiply by 1 + weight."""

from dataclasses import replace
from typing import cast

from headwork import choices
from headwork.hub.llama import LAYER, TABLE, family_of, names, read_decoder, with_qk_norm, write_decoder
from headwork.hub.names import Names, OneLess, Table
from headwork.hub.rotary import read_limit, read_parameters, write_parameters
from headwork.hub.settings import Settings
from headwork.hub.windows import FULL, SLIDING, read_window, write_window
from headwork.models import DecoderConfig

NORMS = ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm")
ONE_LESS: Table = {
    theirs: OneLess(cast(str, ours))
    if theirs == "model.norm" or theirs in {f"{LAYER}.{norm}" for norm in NORMS}
    else ours
    for theirs, ours in TABLE.items()
}
"""Gemma's names are Llama's."""
SANDWICH: Table = {
    **ONE_LESS,
    f"{LAYER}.post_attention_layernorm": OneLess("layers.{i}.attention_out_norm"),
    f"{LAYER}.pre_feedforward_layernorm": OneLess("layers.{i}.feed_forward_norm"),
    f"{LAYER}.post_feedforward_layernorm": OneLess("layers.{i}.feed_forward_out_norm"),
}


def gemma_names(config: DecoderConfig) -> Names:
    return names(config, ONE_LESS)


def sandwich_names(config: DecoderConfig) -> Names:
    return names(config, SANDWICH)


def read_gemma(settings: Settings, *, activation: str, n_kv_heads: int) -> DecoderConfig:
    bias = settings.flag("attention_bias", False)
    config = read_decoder(
        settings,
        n_kv_heads=n_kv_heads,
        bias=bias,
        out_bias=bias,
        d_head=256,
        activation=activation,
        default_activation="gelu_pytorch_tanh",
        tied=True,
    )
    if settings.value("use_bidirectional_attention"):
        raise ValueError("use_bidirectional_attention must be false, the one that Headwork has, got true")
    return replace(config, scaled_embedding=True)


# --- Gemma -----------------------------------------------------------------------------------------------------------


def gemma_from(settings: Settings) -> DecoderConfig:
    """`hidden_act` of old folders says gelu and means its tanh form."""
    old = {"gelu": "gelu_pytorch_tanh"}
    if settings.values.get("hidden_activation") is not None:
        settings.harmless("hidden_act")
        return read_gemma(settings, activation="hidden_activation", n_kv_heads=16)
    settings.harmless("hidden_activation")
    act = settings.values.get("hidden_act")
    settings.values["hidden_act"] = old.get(act, act) if isinstance(act, str) else "gelu_pytorch_tanh"
    return read_gemma(settings, activation="hidden_act", n_kv_heads=16)


def gemma_to(config: DecoderConfig) -> dict[str, object]:
    own = {"model_type": "gemma", "architectures": ["GemmaForCausalLM"], "attention_bias": config.heads.bias}
    return {**own, **_write(config, "hidden_act")}


# --- Gemma 2 ---------------------------------------------------------------------------------------------------------


def gemma2_from(settings: Settings) -> DecoderConfig:
    """A window in every other layer, capped scores and logits, and a norm on both sides of each branch."""
    settings.harmless("hidden_act", "cache_implementation")
    config = read_sandwich(settings, caps=(50.0, 30.0))
    layers = range(0, config.n_layers, 2)
    return replace(config, window=read_window(settings, config.n_layers, default=4096, layers=layers))


def read_sandwich(settings: Settings, *, caps: tuple[float | None, float | None]) -> DecoderConfig:
    config = read_gemma(settings, activation="hidden_activation", n_kv_heads=4)
    heads, lm_head = config.heads, config.lm_head
    assert isinstance(heads, choices.Heads)
    return replace(
        config,
        layer=choices.SandwichLayer(),
        heads=replace(
            heads,
            beta=settings.number("query_pre_attn_scalar", 256.0) ** -0.5,
            softcap=_cap(settings, "attn_logit_softcapping", caps[0]),
        ),
        lm_head=replace(lm_head, softcap=_cap(settings, "final_logit_softcapping", caps[1])),
    )


def _cap(settings: Settings, name: str, default: float | None) -> float | None:
    return None if settings.value(name, default) is None else settings.number(name, default or 0.0)


def gemma2_to(config: DecoderConfig) -> dict[str, object]:
    return {
        "model_type": "gemma2",
        "architectures": ["Gemma2ForCausalLM"],
        **_write_sandwich(config),
        **write_window(config.window, config.n_layers),
    }


# --- Gemma 3 ---------------------------------------------------------------------------------------------------------


def gemma3_from(settings: Settings) -> DecoderConfig:
    """A window in five layers of six, which have rotary positions of their own; normalised queries and keys."""
    settings.harmless("hidden_act", "cache_implementation")
    every = settings.count("sliding_window_pattern", 6, alias="_sliding_window_pattern")
    rope = settings.values.pop("rope_parameters", None)
    rope = rope if isinstance(rope, dict) else {}
    by_kind = {kind: Settings(rope.get(kind) or {}) for kind in (FULL, SLIDING)}
    if left := set(rope) - {FULL, SLIDING}:
        raise ValueError(f"rope_parameters must be given for {FULL} and {SLIDING}, got {', '.join(sorted(left))}")
    settings.values.setdefault("rope_theta", 1_000_000.0)
    local_base = settings.number("rope_local_base_freq", 10_000.0)
    config = with_qk_norm(read_sandwich(settings, caps=(None, None)))
    layers = [i for i in range(config.n_layers) if (i + 1) % every]
    window = read_window(settings, config.n_layers, default=4096, layers=layers)
    limit, position = read_limit(settings), config.position
    assert isinstance(position, choices.RotaryPositions)
    if rope:
        position = read_parameters(by_kind[FULL], base=position.base, limit=limit)
    local = read_parameters(by_kind[SLIDING], base=local_base, limit=limit)
    return replace(config, position=position, window=None if window is None else replace(window, position=local))


def gemma3_to(config: DecoderConfig) -> dict[str, object]:
    position = config.position if isinstance(config.position, choices.RotaryPositions) else choices.RotaryPositions()
    local = None if config.window is None else config.window.position
    return {
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        **_write_sandwich(config),
        **write_window(config.window, config.n_layers),
        "rope_parameters": {FULL: write_parameters(position), SLIDING: write_parameters(local or position)},
    }


def _write_sandwich(config: DecoderConfig) -> dict[str, object]:
    heads = config.heads if isinstance(config.heads, choices.Heads) else choices.Heads(n_heads=config.heads.n_heads)
    d_head = heads.d_head or config.d_model // heads.n_heads
    scalar = float(d_head) if heads.beta is None else heads.beta**-2
    return {
        **_write(config, "hidden_activation"),
        "attention_bias": heads.bias,
        "query_pre_attn_scalar": round(scalar) if abs(scalar - round(scalar)) < 1e-6 * scalar else scalar,
        "attn_logit_softcapping": heads.softcap,
        "final_logit_softcapping": config.lm_head.softcap,
    }


def _write(config: DecoderConfig, activation: str) -> dict[str, object]:
    """The settings of Llama, with another name of the activation, whose tanh form has another name too."""
    theirs = write_decoder(config)
    act = theirs.pop("hidden_act")
    return {**theirs, activation: "gelu_pytorch_tanh" if act == "gelu_new" else act}


GEMMA = family_of("Gemma", "gemma", gemma_from, gemma_to, gemma_names)
GEMMA2 = family_of("Gemma 2", "gemma2", gemma2_from, gemma2_to, sandwich_names)
GEMMA3 = family_of("Gemma 3", "gemma3_text", gemma3_from, gemma3_to, sandwich_names)
