"""T5: version 1.0, whose two ends are tied and scaled, and 1.1 with flan, whose ends are neither."""

from headwork import choices
from headwork.hub.family import Family
from headwork.hub.names import Names, Table
from headwork.hub.settings import ACTIVATIONS, Settings, write_activation
from headwork.models import EncoderDecoderConfig


def _attention(theirs: str, ours: str) -> Table:
    return {
        f"{theirs}.q": f"{ours}.query",
        f"{theirs}.k": f"{ours}.key",
        f"{theirs}.v": f"{ours}.value",
        f"{theirs}.o": f"{ours}.out",
    }


def _stack(side: str, feed_forward_at: int, up: str) -> Table:
    layer, ours = f"{side}.block.{{i}}.layer", f"{side}_layers.{{i}}"
    dense = f"{layer}.{feed_forward_at}.DenseReluDense"
    return {
        **_attention(f"{layer}.0.SelfAttention", f"{ours}.attention"),
        f"{layer}.0.layer_norm": f"{ours}.attention_norm",
        f"{dense}.wi_0": f"{ours}.feed_forward.gate",
        f"{dense}.{up}": f"{ours}.feed_forward.up",
        f"{dense}.wo": f"{ours}.feed_forward.down",
        f"{layer}.{feed_forward_at}.layer_norm": f"{ours}.feed_forward_norm",
        f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight": f"{side}_layers.positions.table",
        f"{side}.final_layer_norm": f"{side}_layers.final_norm",
    }


def names(config: EncoderDecoderConfig) -> Names:
    up = "wi_1" if isinstance(config.feed_forward, choices.GatedFeedForward) else "wi"
    tied = isinstance(config.lm_head, choices.TiedLMHead)
    embeddings = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", *(("lm_head.weight",) if tied else ()))
    return Names(
        {
            "shared.weight": "embedding.table",
            **_stack("encoder", 1, up),
            **_stack("decoder", 2, up),
            **_attention("decoder.block.{i}.layer.1.EncDecAttention", "decoder_layers.{i}.cross_attention"),
            "decoder.block.{i}.layer.1.layer_norm": "decoder_layers.{i}.cross_attention_norm",
            "lm_head": "lm_head",
        },
        copies=dict.fromkeys(embeddings, "shared.weight"),
        ignored=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias",),
    )


def config_from(settings: Settings) -> EncoderDecoderConfig:
    settings.only(is_encoder_decoder=True)
    settings.harmless("n_positions", "classifier_dropout")
    n_layers = settings.layers("num_layers", 6, alias="num_hidden_layers")
    d_head = settings.count("d_kv", 64, alias="head_dim")
    n_heads = settings.count("num_heads", 8, alias="num_attention_heads")
    return EncoderDecoderConfig(
        vocab=settings.count("vocab_size", 32_128),
        d_model=settings.count("d_model", 512, alias="hidden_size"),
        n_encoder_layers=n_layers,
        n_decoder_layers=n_layers
        if settings.value("num_decoder_layers") is None
        else settings.layers("num_decoder_layers", n_layers),
        heads=choices.Heads(n_heads=n_heads, d_head=d_head, d_value=d_head, bias=False, beta=1.0),
        feed_forward=read_feed_forward(settings),
        norm=choices.RMSNorm(eps=settings.number("layer_norm_epsilon", 1e-6)),
        norm_order="pre",
        position=choices.BucketPositions(
            n_buckets=settings.count("relative_attention_num_buckets", 32),
            max_distance=settings.count("relative_attention_max_distance", 128),
        ),
        scaled_embedding=False,
        lm_head=read_lm_head(settings),
        dropout=settings.number("dropout_rate", 0.1),
        attention_dropout=settings.number("dropout_rate", 0.1),
    )


def read_feed_forward(settings: Settings) -> choices.AnyFeedForward:
    """`relu`, `gated-gelu` (which means the approximation) and the like; what follows from it may be said again."""
    d_ff, said = settings.count("d_ff", 2048), settings.value("feed_forward_proj", "relu")
    gate, _, activation = str(said).rpartition("-")
    name = "gelu_new" if said == "gated-gelu" else activation
    if gate not in ("", "gated") or name not in ACTIVATIONS:
        raise ValueError(f"feed_forward_proj must be one of {', '.join(ACTIVATIONS)}, or gated-..., got {said!r}")
    settings.only(dense_act_fn=name, is_gated_act=bool(gate))
    if gate:
        return choices.GatedFeedForward(d_ff=d_ff, activation=ACTIVATIONS[name])
    return choices.FeedForward(d_ff=d_ff, activation=ACTIVATIONS[name], bias=False)


def read_lm_head(settings: Settings) -> choices.LMHead:
    """`tie_word_embeddings` says whether the output is scaled; whether it is tied is seen from the tensors."""
    scaled = settings.flag("scale_decoder_outputs", settings.flag("tie_word_embeddings", True))
    if not scaled and "lm_head.weight" in settings.tensors:
        return choices.UntiedLMHead()
    return choices.TiedLMHead(scaled=scaled)


def config_to(config: EncoderDecoderConfig) -> dict[str, object]:
    heads = config.heads if isinstance(config.heads, choices.Heads) else choices.Heads(n_heads=config.heads.n_heads)
    position = config.position
    buckets = position if isinstance(position, choices.BucketPositions) else choices.BucketPositions()
    return {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "is_encoder_decoder": True,
        "vocab_size": config.vocab,
        "d_model": config.d_model,
        "d_kv": heads.d_head or config.d_model // heads.n_heads,
        "d_ff": config.feed_forward.d_ff,
        "num_layers": config.n_encoder_layers,
        "num_decoder_layers": config.n_decoder_layers,
        "num_heads": heads.n_heads,
        "relative_attention_num_buckets": buckets.n_buckets,
        "relative_attention_max_distance": buckets.max_distance,
        "feed_forward_proj": write_feed_forward(config.feed_forward),
        "layer_norm_epsilon": config.norm.eps,
        "dropout_rate": config.dropout,
        "tie_word_embeddings": getattr(config.lm_head, "scaled", False),
        "decoder_start_token_id": 0,
        "pad_token_id": 0,
        "eos_token_id": 1,
    }


def write_feed_forward(feed_forward: choices.AnyFeedForward) -> str:
    if isinstance(feed_forward, choices.FeedForward):
        return write_activation(feed_forward.activation)
    return f"gated-{'gelu' if feed_forward.activation == 'gelu_tanh' else write_activation(feed_forward.activation)}"


T5 = Family(
    name="T5",
    model_types=("t5",),
    config_class=EncoderDecoderConfig,
    config_from=config_from,
    config_to=config_to,
    names=names,
)
