"""GPT-NeoX and Pythia: attention and feed-forward network side by side, a part of each head rotated."""

from headwork import choices
from headwork.hub.family import Family
from headwork.hub.names import GroupedHeads, Names
from headwork.hub.rotary import read_rotary, write_rotary
from headwork.hub.settings import Settings, write_activation
from headwork.models import DecoderConfig

LAYER = "gpt_neox.layers.{i}"
QKV = ("layers.{i}.attention.query", "layers.{i}.attention.key", "layers.{i}.attention.value")


def names(config: DecoderConfig) -> Names:
    """The masks and frequencies that old files have are no weights."""
    tied = isinstance(config.lm_head, choices.TiedLMHead)
    return Names(
        {
            "gpt_neox.embed_in.weight": "embedding.table",
            f"{LAYER}.input_layernorm": "layers.{i}.attention_norm",
            f"{LAYER}.post_attention_layernorm": "layers.{i}.feed_forward_norm",
            f"{LAYER}.attention.query_key_value": GroupedHeads(QKV, config.heads.n_heads),
            f"{LAYER}.attention.dense": "layers.{i}.attention.out",
            f"{LAYER}.mlp.dense_h_to_4h": "layers.{i}.feed_forward.up",
            f"{LAYER}.mlp.dense_4h_to_h": "layers.{i}.feed_forward.down",
            "gpt_neox.final_layer_norm": "layers.final_norm",
            "embed_out": "lm_head",
        },
        prefix="gpt_neox.",
        copies={"embed_out.weight": "gpt_neox.embed_in.weight"} if tied else {},
        ignored=tuple(f"{LAYER}.attention.{name}" for name in ("bias", "masked_bias", "rotary_emb.inv_freq")),
    )


def config_from(settings: Settings) -> DecoderConfig:
    settings.harmless("classifier_dropout")
    bias = settings.flag("attention_bias", True)
    base, fraction = settings.number("rotary_emb_base", 10_000.0), settings.number("rotary_pct", 0.25)
    settings.only(partial_rotary_factor=fraction)  # which transformers reads under the other name
    layer = choices.ParallelLayer() if settings.flag("use_parallel_residual", True) else choices.SequentialLayer()
    return DecoderConfig(
        vocab=settings.count("vocab_size", 50_432),
        d_model=settings.count("hidden_size", 6144),
        n_layers=settings.layers("num_hidden_layers", 44),
        heads=choices.Heads(n_heads=settings.count("num_attention_heads", 64), bias=bias),
        feed_forward=choices.FeedForward(
            d_ff=settings.count("intermediate_size", 24_576), activation=settings.activation("hidden_act", "gelu")
        ),
        norm=choices.LayerNorm(eps=settings.number("layer_norm_eps", 1e-5)),
        layer=layer,
        position=read_rotary(settings, base=base, fraction=fraction),
        lm_head=choices.TiedLMHead() if settings.flag("tie_word_embeddings", False) else choices.UntiedLMHead(),
        dropout=settings.number("hidden_dropout", 0.0),
        attention_dropout=settings.number("attention_dropout", 0.0),
    )


def config_to(config: DecoderConfig) -> dict[str, object]:
    rotary = write_rotary(config.position)
    fraction = getattr(config.position, "fraction", 1.0)
    return {
        "model_type": "gpt_neox",
        "architectures": ["GPTNeoXForCausalLM"],
        "vocab_size": config.vocab,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.heads.n_heads,
        "intermediate_size": config.feed_forward.d_ff,
        "hidden_act": write_activation(config.feed_forward.activation),
        "layer_norm_eps": config.norm.eps,
        "use_parallel_residual": isinstance(config.layer, choices.ParallelLayer),
        "attention_bias": config.heads.bias,
        **rotary,
        "rotary_pct": fraction,
        "tie_word_embeddings": isinstance(config.lm_head, choices.TiedLMHead),
        "hidden_dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
    }


GPT_NEOX = Family(
    name="GPT-NeoX",
    model_types=("gpt_neox",),
    config_class=DecoderConfig,
    config_from=config_from,
    config_to=config_to,
    names=names,
)
