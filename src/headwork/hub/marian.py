"""Marian: the translators of OPUS-MT, each the original Transformer with a bias on its output."""

from headwork import choices
from headwork.hub.family import Family
from headwork.hub.names import Alternative, Alternatives, Names, Same, Table, Zeros
from headwork.hub.settings import Settings, write_activation
from headwork.models import EncoderDecoderConfig


def _attention(theirs: str, ours: str) -> Table:
    return {
        f"{theirs}.q_proj": f"{ours}.query",
        f"{theirs}.k_proj": f"{ours}.key",
        f"{theirs}.v_proj": f"{ours}.value",
        f"{theirs}.out_proj": f"{ours}.out",
        f"{theirs}_layer_norm": f"{ours}_norm",
    }


def _stack(side: str) -> Table:
    theirs, ours = f"model.{side}.layers.{{i}}", f"{side}_layers.{{i}}"
    return {
        **_attention(f"{theirs}.self_attn", f"{ours}.attention"),
        f"{theirs}.fc1": f"{ours}.feed_forward.up",
        f"{theirs}.fc2": f"{ours}.feed_forward.down",
        f"{theirs}.final_layer_norm": f"{ours}.feed_forward_norm",
    }


TABLE: Table = {
    "model.shared.weight": "embedding.table",
    **_stack("encoder"),
    **_stack("decoder"),
    **_attention("model.decoder.layers.{i}.encoder_attn", "decoder_layers.{i}.cross_attention"),
    "final_logits_bias": Same("lm_head.bias", n_ones=1),
}
WITHOUT_BIAS: Alternatives = {"final_logits_bias": Alternative((), Zeros("lm_head.bias"))}
"""As files of a body alone are: Hugging Face starts the bias of the output at 0."""
EMBEDDINGS = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")


def names(config: EncoderDecoderConfig) -> Names:
    """The sinusoids are a table in old files, and a formula here."""
    return Names(
        TABLE,
        prefix="model.",
        copies=dict.fromkeys(EMBEDDINGS, "model.shared.weight"),
        ignored=("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"),
        instead=WITHOUT_BIAS,
    )


def config_from(settings: Settings) -> EncoderDecoderConfig:
    settings.only(
        is_encoder_decoder=True,
        tie_word_embeddings=True,
        share_encoder_decoder_embeddings=True,
        static_position_embeddings=True,
        normalize_before=False,
        normalize_embedding=False,
        add_final_layer_norm=False,
        add_bias_logits=False,
        do_blenderbot_90_layernorm=False,
    )
    settings.harmless("max_position_embeddings", "activation_dropout", "encoder_layerdrop", "decoder_layerdrop")
    settings.harmless("classif_dropout", "classifier_dropout", "force_bos_token_to_be_generated")
    settings.harmless("extra_pos_embeddings")  # of learned positions, which are not there
    vocab = settings.count("vocab_size", 58_101)
    n_layers = settings.layers("encoder_layers", 12, alias="num_hidden_layers")
    n_heads = settings.count("encoder_attention_heads", 16, alias="num_attention_heads")
    d_ff = settings.count("encoder_ffn_dim", 4096)
    if settings.value("decoder_vocab_size") is not None:
        settings.only(decoder_vocab_size=vocab)
    for name, default, wanted in (("decoder_attention_heads", 16, n_heads), ("decoder_ffn_dim", 4096, d_ff)):
        if settings.count(name, default) != wanted:
            raise ValueError(f"{name} must be that of the encoder, {wanted}, got {settings.count(name, default)}")
    return EncoderDecoderConfig(
        vocab=vocab,
        d_model=settings.count("d_model", 1024, alias="hidden_size"),
        n_encoder_layers=n_layers,
        n_decoder_layers=settings.layers("decoder_layers", 12),
        heads=choices.Heads(n_heads=n_heads),
        feed_forward=choices.FeedForward(d_ff=d_ff, activation=settings.activation("activation_function", "gelu")),
        norm=choices.LayerNorm(),
        norm_order="post",
        position=choices.SinusoidalPositions(layout="halves"),
        scaled_embedding=settings.flag("scale_embedding", False),
        lm_head=choices.TiedLMHead(bias=True),
        dropout=settings.number("dropout", 0.1),
        attention_dropout=settings.number("attention_dropout", 0.0),
    )


def config_to(config: EncoderDecoderConfig) -> dict[str, object]:
    """The last id is the padding and begins a translation, the first ends it, as in every published one."""
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "is_encoder_decoder": True,
        "vocab_size": config.vocab,
        "d_model": config.d_model,
        **{f"{side}_attention_heads": config.heads.n_heads for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": config.feed_forward.d_ff for side in ("encoder", "decoder")},
        "encoder_layers": config.n_encoder_layers,
        "decoder_layers": config.n_decoder_layers,
        "activation_function": write_activation(config.feed_forward.activation),
        "scale_embedding": config.scaled_embedding,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "pad_token_id": config.vocab - 1,
        "decoder_start_token_id": config.vocab - 1,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
    }


MARIAN = Family(
    name="Marian",
    model_types=("marian",),
    config_class=EncoderDecoderConfig,
    config_from=config_from,
    config_to=config_to,
    names=names,
)
