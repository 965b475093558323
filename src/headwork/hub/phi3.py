"""Phi-3 and Phi-4-mini: the shape of Llama, with fused projections; without LongRoPE."""

from dataclasses import replace

from headwork.hub.llama import LAYER, TABLE, family_of, names, read_decoder, write_decoder
from headwork.hub.names import Names, SideBySide, Table
from headwork.hub.settings import Settings
from headwork.hub.windows import read_window
from headwork.models import DecoderConfig

FUSED: Table = {
    **{
        theirs: ours
        for theirs, ours in TABLE.items()
        if not any(f".{name}_proj" in str(theirs) for name in ("q", "k", "v", "gate", "up"))
    },
    f"{LAYER}.self_attn.qkv_proj": SideBySide(
        ("layers.{i}.attention.query", "layers.{i}.attention.key", "layers.{i}.attention.value")
    ),
    f"{LAYER}.mlp.gate_up_proj": SideBySide(("layers.{i}.feed_forward.gate", "layers.{i}.feed_forward.up")),
}


def phi3_names(config: DecoderConfig) -> Names:
    return names(config, FUSED)


def config_from(settings: Settings) -> DecoderConfig:
    settings.harmless("embd_pdrop", "original_max_position_embeddings")
    config = read_decoder(settings, n_kv_heads=None, eps=1e-5, fraction=1.0)
    window = read_window(settings, config.n_layers, default=None, layers=range(config.n_layers))
    return replace(config, window=window, dropout=settings.number("resid_pdrop", 0.0))


def config_to(config: DecoderConfig) -> dict[str, object]:
    theirs = {name: value for name, value in write_decoder(config).items() if name != "head_dim"}
    return {
        "model_type": "phi3",
        "architectures": ["Phi3ForCausalLM"],
        **theirs,
        "sliding_window": None if config.window is None else config.window.n_tokens,
        "resid_pdrop": config.dropout,
        "pad_token_id": 0,
    }


PHI3 = family_of("Phi-3", "phi3", config_from, config_to, phi3_names)
