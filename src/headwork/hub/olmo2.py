"""OLMo 2: a norm behind each branch, and norms of all queries and of all keys together."""

from dataclasses import replace

from headwork import choices
from headwork.hub.llama import LAYER, TABLE, family_of, names, read_decoder, with_qk_norm, write_decoder
from headwork.hub.names import Names, Table
from headwork.hub.settings import Settings
from headwork.models import DecoderConfig

OWN: Table = {
    **{theirs: ours for theirs, ours in TABLE.items() if theirs != f"{LAYER}.input_layernorm"},
    f"{LAYER}.post_attention_layernorm": "layers.{i}.attention_norm",
    f"{LAYER}.post_feedforward_layernorm": "layers.{i}.feed_forward_norm",
}


def olmo2_names(config: DecoderConfig) -> Names:
    return names(config, OWN)


def config_from(settings: Settings) -> DecoderConfig:
    bias = settings.flag("attention_bias", False)
    config = read_decoder(settings, n_kv_heads=None, bias=bias, out_bias=bias, eps=1e-5)
    return replace(with_qk_norm(config, per_head=False), layer=choices.BranchNormLayer())


def config_to(config: DecoderConfig) -> dict[str, object]:
    """The width of a head is d_model / n_heads there."""
    own = {"model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"], "attention_bias": config.heads.bias}
    return {**own, **{name: value for name, value in write_decoder(config).items() if name != "head_dim"}}


OLMO2 = family_of("OLMo 2", "olmo2", config_from, config_to, olmo2_names)
