"""GPT-2, whose matrices are stored as (in, out), and those of query, key and value as one."""

from headwork import choices
from headwork.hub.family import Family
from headwork.hub.names import Names, Table, Transposed
from headwork.hub.settings import Settings, write_activation
from headwork.models import DecoderConfig

LAYER = "transformer.h.{i}"
TABLE: Table = {
    "transformer.wte.weight": "embedding.table",
    "transformer.wpe.weight": "layers.positions.table",
    f"{LAYER}.ln_1": "layers.{i}.attention_norm",
    f"{LAYER}.attn.c_attn": Transposed(
        ("layers.{i}.attention.query", "layers.{i}.attention.key", "layers.{i}.attention.value")
    ),
    f"{LAYER}.attn.c_proj": Transposed("layers.{i}.attention.out"),
    f"{LAYER}.ln_2": "layers.{i}.feed_forward_norm",
    f"{LAYER}.mlp.c_fc": Transposed("layers.{i}.feed_forward.up"),
    f"{LAYER}.mlp.c_proj": Transposed("layers.{i}.feed_forward.down"),
    "transformer.ln_f": "layers.final_norm",
    "lm_head": "lm_head",
}


def names(config: DecoderConfig) -> Names:
    """The masks that old files have are no weights."""
    tied = isinstance(config.lm_head, choices.TiedLMHead)
    return Names(
        TABLE,
        prefix="transformer.",
        copies={"lm_head.weight": "transformer.wte.weight"} if tied else {},
        ignored=(f"{LAYER}.attn.bias", f"{LAYER}.attn.masked_bias"),
    )


def config_from(settings: Settings) -> DecoderConfig:
    settings.only(
        scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, reorder_and_upcast_attn=False, n_special=0
    )
    settings.harmless("n_ctx", "embd_pdrop", "predict_special_tokens", "afn")
    settings.harmless(
        *(f"summary_{name}" for name in ("activation", "first_dropout", "proj_to_labels", "type", "use_proj"))
    )
    d_model = settings.count("n_embd", 768, alias="hidden_size")
    return DecoderConfig(
        vocab=settings.count("vocab_size", 50_257),
        d_model=d_model,
        n_layers=settings.layers("n_layer", 12, alias="num_hidden_layers"),
        heads=choices.Heads(n_heads=settings.count("n_head", 12, alias="num_attention_heads")),
        feed_forward=choices.FeedForward(
            d_ff=settings.count_or("n_inner", 4 * d_model),
            activation=settings.activation("activation_function", "gelu_new"),
        ),
        norm=choices.LayerNorm(eps=settings.number("layer_norm_epsilon", 1e-5)),
        position=choices.LearnedPositions(
            max_tokens=settings.count("n_positions", 1024, alias="max_position_embeddings")
        ),
        lm_head=choices.TiedLMHead() if settings.flag("tie_word_embeddings", True) else choices.UntiedLMHead(),
        dropout=settings.number("resid_pdrop", 0.1),
        attention_dropout=settings.number("attn_pdrop", 0.1),
    )


def config_to(config: DecoderConfig) -> dict[str, object]:
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": config.vocab,
        "n_embd": config.d_model,
        "n_layer": config.n_layers,
        "n_head": config.heads.n_heads,
        "n_inner": config.feed_forward.d_ff,
        "activation_function": write_activation(config.feed_forward.activation),
        "layer_norm_epsilon": config.norm.eps,
        "n_positions": config.max_tokens or 1024,
        "tie_word_embeddings": isinstance(config.lm_head, choices.TiedLMHead),
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
    }


GPT2 = Family(
    name="GPT-2",
    model_types=("gpt2",),
    config_class=DecoderConfig,
    config_from=config_from,
    config_to=config_to,
    names=names,
)
