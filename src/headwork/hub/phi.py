"""Phi 1, 1.5 and 2: attention and feed-forward network side by side behind one norm, half of each head rotated."""

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
    f"{LAYER}.self_attn.dense": "layers.{i}.attention.out",
    f"{LAYER}.mlp.fc1": "layers.{i}.feed_forward.up",
    f"{LAYER}.mlp.fc2": "layers.{i}.feed_forward.down",
    "model.final_layernorm": "layers.final_norm",
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


def config_from(settings: Settings) -> DecoderConfig:
    settings.only(qk_layernorm=False)
    settings.harmless("embd_pdrop")
    n_heads = settings.count("num_attention_heads", 32)
    tied = settings.flag("tie_word_embeddings", False)
    return DecoderConfig(
        vocab=settings.count("vocab_size", 51_200),
        d_model=settings.count("hidden_size", 2048),
        n_layers=settings.layers("num_hidden_layers", 24),
        heads=choices.Heads(n_heads=n_heads, n_kv_heads=settings.count_or("num_key_value_heads", n_heads)),
        feed_forward=choices.FeedForward(
            d_ff=settings.count("intermediate_size", 8192), activation=settings.activation("hidden_act", "gelu_new")
        ),
        norm=choices.LayerNorm(eps=settings.number("layer_norm_eps", 1e-5)),
        layer=choices.ParallelLayer(shared_norm=True),
        position=read_rotary(settings, fraction=0.5),
        lm_head=choices.TiedLMHead(bias=True) if tied else choices.UntiedLMHead(bias=True),
        dropout=settings.number("resid_pdrop", 0.0),
        attention_dropout=settings.number("attention_dropout", 0.0),
    )


def config_to(config: DecoderConfig) -> dict[str, object]:
    return {
        "model_type": "phi",
        "architectures": ["PhiForCausalLM"],
        "vocab_size": config.vocab,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.heads.n_heads,
        "num_key_value_heads": getattr(config.heads, "n_kv_heads", None) or config.heads.n_heads,
        "intermediate_size": config.feed_forward.d_ff,
        "hidden_act": write_activation(config.feed_forward.activation),
        "layer_norm_eps": config.norm.eps,
        **write_rotary(config.position),
        "partial_rotary_factor": getattr(config.position, "fraction", 1.0),
        "tie_word_embeddings": isinstance(config.lm_head, choices.TiedLMHead),
        "resid_pdrop": config.dropout,
        "attention_dropout": config.attention_dropout,
    }


PHI = Family(
    name="Phi",
    model_types=("phi",),
    config_class=DecoderConfig,
    config_from=config_from,
    config_to=config_to,
    names=names,
)
