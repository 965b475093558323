"""Falcon: attention and feed-forward network side by side, one key and value for all or for a group of queries."""

from headwork import choices
from headwork.hub.family import Family
from headwork.hub.names import GroupedHeads, Names
from headwork.hub.rotary import read_rotary, write_rotary
from headwork.hub.settings import Settings, write_activation
from headwork.models import DecoderConfig

LAYER = "transformer.h.{i}"
QKV = ("layers.{i}.attention.query", "layers.{i}.attention.key", "layers.{i}.attention.value")


def names(config: DecoderConfig) -> Names:
    """Two norms side by side have names of their own."""
    two = isinstance(config.layer, choices.ParallelLayer) and not config.layer.shared_norm
    norms = ("ln_attn", "ln_mlp") if two else ("input_layernorm", "post_attention_layernorm")
    tied = isinstance(config.lm_head, choices.TiedLMHead)
    n_groups = getattr(config.heads, "n_kv_heads", None) or config.heads.n_heads
    return Names(
        {
            "transformer.word_embeddings.weight": "embedding.table",
            f"{LAYER}.{norms[0]}": "layers.{i}.attention_norm",
            f"{LAYER}.{norms[1]}": "layers.{i}.feed_forward_norm",
            f"{LAYER}.self_attention.query_key_value": GroupedHeads(QKV, n_groups),
            f"{LAYER}.self_attention.dense": "layers.{i}.attention.out",
            f"{LAYER}.mlp.dense_h_to_4h": "layers.{i}.feed_forward.up",
            f"{LAYER}.mlp.dense_4h_to_h": "layers.{i}.feed_forward.down",
            "transformer.ln_f": "layers.final_norm",
            "lm_head": "lm_head",
        },
        prefix="transformer.",
        copies={"lm_head.weight": "transformer.word_embeddings.weight"} if tied else {},
    )


def config_from(settings: Settings) -> DecoderConfig:
    settings.only(alibi=False)
    settings.harmless("apply_residual_connection_post_layernorm", "n_embed", "n_head", "n_layer")
    d_model = settings.count("hidden_size", 4544)
    n_heads = settings.count("num_attention_heads", 71)
    new, bias = settings.flag("new_decoder_architecture", False), settings.flag("bias", False)
    parallel, multi_query = settings.flag("parallel_attn", True), settings.flag("multi_query", True)
    n_kv_heads = settings.count_or("num_kv_heads", n_heads)
    n_norms = settings.value("num_ln_in_parallel_attn") or (2 if new else 1)
    if new and not parallel:
        raise ValueError("parallel_attn must be true with new_decoder_architecture, got false")
    if n_norms not in (1, 2) or (n_norms == 2 and not new):
        raise ValueError(f"num_ln_in_parallel_attn must be 1, or 2 with new_decoder_architecture, got {n_norms!r}")
    return DecoderConfig(
        vocab=settings.count("vocab_size", 65_024),
        d_model=d_model,
        n_layers=settings.layers("num_hidden_layers", 32),
        heads=choices.Heads(n_heads=n_heads, n_kv_heads=n_kv_heads if new or not multi_query else 1, bias=bias),
        feed_forward=choices.FeedForward(
            d_ff=settings.count_or("ffn_hidden_size", 4 * d_model),
            activation=settings.activation("activation", "gelu"),
            bias=bias,
        ),
        norm=choices.LayerNorm(eps=settings.number("layer_norm_epsilon", 1e-5)),
        layer=choices.ParallelLayer(shared_norm=n_norms == 1) if parallel else choices.SequentialLayer(),
        position=read_rotary(settings),
        lm_head=choices.TiedLMHead() if settings.flag("tie_word_embeddings", True) else choices.UntiedLMHead(),
        dropout=settings.number("hidden_dropout", 0.0),
        attention_dropout=settings.number("attention_dropout", 0.0),
    )


def config_to(config: DecoderConfig) -> dict[str, object]:
    """The new architecture can say all but attention and feed-forward network one after the other."""
    parallel = isinstance(config.layer, choices.ParallelLayer)
    n_kv_heads = getattr(config.heads, "n_kv_heads", None) or config.heads.n_heads
    return {
        "model_type": "falcon",
        "architectures": ["FalconForCausalLM"],
        "vocab_size": config.vocab,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.heads.n_heads,
        "num_kv_heads": n_kv_heads,
        "multi_query": not parallel and n_kv_heads == 1,
        "new_decoder_architecture": parallel,
        "parallel_attn": parallel,
        "num_ln_in_parallel_attn": 1 if getattr(config.layer, "shared_norm", True) else 2,
        "ffn_hidden_size": config.feed_forward.d_ff,
        "activation": write_activation(config.feed_forward.activation),
        "bias": config.heads.bias,
        "layer_norm_epsilon": config.norm.eps,
        **write_rotary(config.position),
        "tie_word_embeddings": isinstance(config.lm_head, choices.TiedLMHead),
        "hidden_dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
    }


FALCON = Family(
    name="Falcon",
    model_types=("falcon",),
    config_class=DecoderConfig,
    config_from=config_from,
    config_to=config_to,
    names=names,
)
