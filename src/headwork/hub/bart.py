"""BART, and mBART with its norms in front: an encoder-decoder whose embedded tokens are normalised."""

from collections.abc import Callable
from functools import partial

from headwork import choices
from headwork.hub.family import Family
from headwork.hub.marian import EMBEDDINGS, TABLE, WITHOUT_BIAS
from headwork.hub.names import LaterRows, Names, Table
from headwork.hub.settings import Settings, write_activation
from headwork.models import EncoderDecoderConfig

N_UNUSED = 2
"""Positions are counted from 2 on."""


def _around(side: str) -> Table:
    return {
        f"model.{side}.embed_positions.weight": LaterRows(f"{side}_layers.positions.table", N_UNUSED),
        f"model.{side}.layernorm_embedding": f"{side}_layers.embedding_norm",
        f"model.{side}.layer_norm": f"{side}_layers.final_norm",
    }


def names(config: EncoderDecoderConfig) -> Names:
    """Marian's names are BART's."""
    return Names(
        {**TABLE, **_around("encoder"), **_around("decoder")},
        prefix="model.",
        copies=dict.fromkeys(EMBEDDINGS, "model.shared.weight"),
        instead=WITHOUT_BIAS,
    )


def config_from(norm_order: choices.NormOrder, settings: Settings) -> EncoderDecoderConfig:
    before = norm_order == "pre"
    settings.only(
        is_encoder_decoder=True,
        tie_word_embeddings=True,
        normalize_embedding=True,
        normalize_before=before,
        add_final_layer_norm=before,
        add_bias_logits=False,
        static_position_embeddings=False,
    )
    settings.harmless("activation_dropout", "encoder_layerdrop", "decoder_layerdrop", "extra_pos_embeddings")
    settings.harmless("classif_dropout", "classifier_dropout", "force_bos_token_to_be_generated")
    settings.harmless("gradient_checkpointing", "save_step", "output_past")
    n_layers = settings.layers("encoder_layers", 12, alias="num_hidden_layers")
    n_heads = settings.count("encoder_attention_heads", 16, alias="num_attention_heads")
    d_ff = settings.count("encoder_ffn_dim", 4096)
    for name, default, wanted in (("decoder_attention_heads", 16, n_heads), ("decoder_ffn_dim", 4096, d_ff)):
        if settings.count(name, default) != wanted:
            raise ValueError(f"{name} must be that of the encoder, {wanted}, got {settings.count(name, default)}")
    return EncoderDecoderConfig(
        vocab=settings.count("vocab_size", 50_265),
        d_model=settings.count("d_model", 1024, alias="hidden_size"),
        n_encoder_layers=n_layers,
        n_decoder_layers=settings.layers("decoder_layers", 12),
        heads=choices.Heads(n_heads=n_heads),
        feed_forward=choices.FeedForward(d_ff=d_ff, activation=settings.activation("activation_function", "gelu")),
        norm=choices.LayerNorm(),
        norm_order=norm_order,
        embedding_norm=True,
        position=choices.LearnedPositions(max_tokens=settings.count("max_position_embeddings", 1024)),
        scaled_embedding=settings.flag("scale_embedding", False),
        lm_head=choices.TiedLMHead(bias=True),
        dropout=settings.number("dropout", 0.1),
        attention_dropout=settings.number("attention_dropout", 0.0),
    )


def config_to(model_type: str, architecture: str, config: EncoderDecoderConfig) -> dict[str, object]:
    return {
        "model_type": model_type,
        "architectures": [architecture],
        "is_encoder_decoder": True,
        "vocab_size": config.vocab,
        "d_model": config.d_model,
        **{f"{side}_attention_heads": config.heads.n_heads for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": config.feed_forward.d_ff for side in ("encoder", "decoder")},
        "encoder_layers": config.n_encoder_layers,
        "decoder_layers": config.n_decoder_layers,
        "activation_function": write_activation(config.feed_forward.activation),
        "max_position_embeddings": config.max_tokens or 1024,
        "scale_embedding": config.scaled_embedding,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
    }


def _family(name: str, model_type: str, architecture: str, norm_order: choices.NormOrder) -> Family:
    read: Callable[[Settings], EncoderDecoderConfig] = partial(config_from, norm_order)
    return Family(
        name=name,
        model_types=(model_type,),
        config_class=EncoderDecoderConfig,
        config_from=read,
        config_to=partial(config_to, model_type, architecture),
        names=names,
    )


BART = _family("BART", "bart", "BartForConditionalGeneration", "post")
MBART = _family("mBART", "mbart", "MBartForConditionalGeneration", "pre")
