"""Hugging Face's weights in our models, for these tests only: each tensor of theirs is used, each of ours filled."""

import re
from typing import Any

import torch
from torch import Tensor, nn

from headwork import choices
from headwork.models import (
    Decoder,
    DecoderConfig,
    Encoder,
    EncoderConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
    VisionTransformer,
    VisionTransformerConfig,
)

Weights = dict[str, Tensor]


def weights_of(model: nn.Module, prefix: str = "") -> Weights:
    """Tied weights come once."""
    return {name.removeprefix(prefix): p.detach() for name, p in model.named_parameters()}


def fill(model: nn.Module, weights: Weights, names: dict[str, str]) -> None:
    """`{i}` in a name stands for the number of a layer; a name without `.weight` or `.bias` stands for both."""
    model.load_state_dict({_our_name(name, names): value for name, value in weights.items()}, strict=True)
    model.eval()


def _our_name(name: str, names: dict[str, str]) -> str:
    for theirs, ours in names.items():
        pattern = re.escape(theirs).replace(r"\{i\}", r"(?P<i>\d+)")
        if match := re.fullmatch(pattern + r"(?P<tail>(\.weight|\.bias)?)", name):
            return ours.format(**match.groupdict()) + match["tail"]
    raise KeyError(name)


# --- encoders --------------------------------------------------------------------------------------------------------

_BERT = {
    "embeddings.word_embeddings.weight": "embedding.table",
    "embeddings.position_embeddings.weight": "layers.positions.table",
    "embeddings.token_type_embeddings.weight": "segments.table",
    "embeddings.LayerNorm": "layers.embedding_norm",
    "encoder.layer.{i}.attention.self.query": "layers.{i}.attention.query",
    "encoder.layer.{i}.attention.self.key": "layers.{i}.attention.key",
    "encoder.layer.{i}.attention.self.value": "layers.{i}.attention.value",
    "encoder.layer.{i}.attention.output.dense": "layers.{i}.attention.out",
    "encoder.layer.{i}.attention.output.LayerNorm": "layers.{i}.attention_norm",
    "encoder.layer.{i}.intermediate.dense": "layers.{i}.feed_forward.up",
    "encoder.layer.{i}.output.dense": "layers.{i}.feed_forward.down",
    "encoder.layer.{i}.output.LayerNorm": "layers.{i}.feed_forward_norm",
    # masked language model
    "cls.predictions.transform.dense": "head.dense",
    "cls.predictions.transform.LayerNorm": "head.norm",
    "cls.predictions.bias": "head.lm_head.bias",
    # sequence classification
    "pooler.dense": "head.dense",
    "classifier": "head.classifier",
}

_ROBERTA = _BERT | {
    "lm_head.dense": "head.dense",
    "lm_head.layer_norm": "head.norm",
    "lm_head.bias": "head.lm_head.bias",
    "classifier.dense": "head.dense",
    "classifier.out_proj": "head.classifier",
}

_DISTILBERT = {
    "embeddings.word_embeddings.weight": "embedding.table",
    "embeddings.position_embeddings.weight": "layers.positions.table",
    "embeddings.LayerNorm": "layers.embedding_norm",
    "transformer.layer.{i}.attention.q_lin": "layers.{i}.attention.query",
    "transformer.layer.{i}.attention.k_lin": "layers.{i}.attention.key",
    "transformer.layer.{i}.attention.v_lin": "layers.{i}.attention.value",
    "transformer.layer.{i}.attention.out_lin": "layers.{i}.attention.out",
    "transformer.layer.{i}.sa_layer_norm": "layers.{i}.attention_norm",
    "transformer.layer.{i}.ffn.lin1": "layers.{i}.feed_forward.up",
    "transformer.layer.{i}.ffn.lin2": "layers.{i}.feed_forward.down",
    "transformer.layer.{i}.output_layer_norm": "layers.{i}.feed_forward_norm",
    "vocab_transform": "head.dense",
    "vocab_layer_norm": "head.norm",
    "vocab_projector.bias": "head.lm_head.bias",
    "pre_classifier": "head.dense",
    "classifier": "head.classifier",
}


def encoder_from_bert(theirs: Any, head: choices.EncoderHead) -> Encoder:
    c = theirs.config
    ours = Encoder(
        EncoderConfig(
            vocab=c.vocab_size,
            head=head,
            d_model=c.hidden_size,
            n_layers=c.num_hidden_layers,
            heads=choices.Heads(n_heads=c.num_attention_heads),
            feed_forward=choices.FeedForward(d_ff=c.intermediate_size, activation="gelu"),
            norm=choices.LayerNorm(eps=c.layer_norm_eps),
            position=choices.LearnedPositions(max_tokens=c.max_position_embeddings),
            n_segments=c.type_vocab_size,
        )
    )
    fill(ours, weights_of(theirs, "bert."), _BERT)
    return ours


def encoder_from_roberta(theirs: Any, head: choices.EncoderHead) -> Encoder:
    """RoBERTa counts its positions from padding_idx + 1; the rows before it are never used."""
    c = theirs.config
    n_unused = c.pad_token_id + 1
    ours = Encoder(
        EncoderConfig(
            vocab=c.vocab_size,
            head=head,
            d_model=c.hidden_size,
            n_layers=c.num_hidden_layers,
            heads=choices.Heads(n_heads=c.num_attention_heads),
            feed_forward=choices.FeedForward(d_ff=c.intermediate_size, activation="gelu"),
            norm=choices.LayerNorm(eps=c.layer_norm_eps),
            position=choices.LearnedPositions(max_tokens=c.max_position_embeddings - n_unused),
            n_segments=c.type_vocab_size,
        )
    )
    weights = weights_of(theirs, "roberta.")
    table = "embeddings.position_embeddings.weight"
    weights[table] = weights[table][n_unused:]
    fill(ours, weights, _ROBERTA)
    return ours


def encoder_from_distilbert(theirs: Any, head: choices.EncoderHead) -> Encoder:
    c = theirs.config
    ours = Encoder(
        EncoderConfig(
            vocab=c.vocab_size,
            head=head,
            d_model=c.dim,
            n_layers=c.n_layers,
            heads=choices.Heads(n_heads=c.n_heads),
            feed_forward=choices.FeedForward(d_ff=c.hidden_dim, activation="gelu"),
            position=choices.LearnedPositions(max_tokens=c.max_position_embeddings),
            n_segments=0,
        )
    )
    fill(ours, weights_of(theirs, "distilbert."), _DISTILBERT)
    return ours


# --- decoders --------------------------------------------------------------------------------------------------------

_GPT2 = {
    "wte.weight": "embedding.table",
    "wpe.weight": "layers.positions.table",
    "h.{i}.ln_1": "layers.{i}.attention_norm",
    "h.{i}.attn.query": "layers.{i}.attention.query",
    "h.{i}.attn.key": "layers.{i}.attention.key",
    "h.{i}.attn.value": "layers.{i}.attention.value",
    "h.{i}.attn.c_proj": "layers.{i}.attention.out",
    "h.{i}.ln_2": "layers.{i}.feed_forward_norm",
    "h.{i}.mlp.c_fc": "layers.{i}.feed_forward.up",
    "h.{i}.mlp.c_proj": "layers.{i}.feed_forward.down",
    "ln_f": "layers.final_norm",
}

_LLAMA = {
    "model.embed_tokens.weight": "embedding.table",
    "model.layers.{i}.input_layernorm": "layers.{i}.attention_norm",
    "model.layers.{i}.self_attn.q_proj": "layers.{i}.attention.query",
    "model.layers.{i}.self_attn.k_proj": "layers.{i}.attention.key",
    "model.layers.{i}.self_attn.v_proj": "layers.{i}.attention.value",
    "model.layers.{i}.self_attn.o_proj": "layers.{i}.attention.out",
    "model.layers.{i}.post_attention_layernorm": "layers.{i}.feed_forward_norm",
    "model.layers.{i}.mlp.gate_proj": "layers.{i}.feed_forward.gate",
    "model.layers.{i}.mlp.up_proj": "layers.{i}.feed_forward.up",
    "model.layers.{i}.mlp.down_proj": "layers.{i}.feed_forward.down",
    "model.norm": "layers.final_norm",
    "lm_head": "lm_head",
}


def decoder_from_gpt2(theirs: Any) -> Decoder:
    """GPT-2 stores its matrices transposed, and those of query, key and value as one."""
    c = theirs.config
    ours = Decoder(
        DecoderConfig(
            vocab=c.vocab_size,
            d_model=c.n_embd,
            n_layers=c.n_layer,
            heads=choices.Heads(n_heads=c.n_head),
            feed_forward=choices.FeedForward(d_ff=c.n_inner, activation="gelu_tanh"),
            norm=choices.LayerNorm(eps=c.layer_norm_epsilon),
            position=choices.LearnedPositions(max_tokens=c.n_positions),
        )
    )
    weights: Weights = {}
    for name, stored in weights_of(theirs, "transformer.").items():
        value = stored.T if name.endswith("weight") and ".c_" in name else stored
        if ".c_attn" in name:
            for part, rows in zip(("query", "key", "value"), value.chunk(3), strict=True):
                weights[name.replace("c_attn", part)] = rows
        else:
            weights[name] = value
    fill(ours, weights, _GPT2)
    return ours


def decoder_from_llama(theirs: Any) -> Decoder:
    c = theirs.config
    ours = Decoder(
        DecoderConfig(
            vocab=c.vocab_size,
            d_model=c.hidden_size,
            n_layers=c.num_hidden_layers,
            heads=choices.Heads(
                n_heads=c.num_attention_heads,
                n_kv_heads=c.num_key_value_heads,
                d_head=c.head_dim,
                d_value=c.head_dim,
                bias=False,
            ),
            feed_forward=choices.GatedFeedForward(d_ff=c.intermediate_size, activation="silu"),
            norm=choices.RMSNorm(eps=c.rms_norm_eps),
            position=choices.RotaryPositions(base=c.rope_parameters["rope_theta"], layout="halves"),
            lm_head=choices.UntiedLMHead(),
        )
    )
    fill(ours, weights_of(theirs), _LLAMA)
    return ours


# --- encoder-decoders ------------------------------------------------------------------------------------------------


def _t5_block(side: str, feed_forward_at: int) -> dict[str, str]:
    theirs, ours = f"{side}.block.{{i}}.layer", f"{side}_layers.{{i}}"
    return {
        f"{theirs}.0.SelfAttention.q": f"{ours}.attention.query",
        f"{theirs}.0.SelfAttention.k": f"{ours}.attention.key",
        f"{theirs}.0.SelfAttention.v": f"{ours}.attention.value",
        f"{theirs}.0.SelfAttention.o": f"{ours}.attention.out",
        f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight": f"{side}_layers.positions.table",
        f"{theirs}.0.layer_norm": f"{ours}.attention_norm",
        f"{theirs}.{feed_forward_at}.DenseReluDense.wi": f"{ours}.feed_forward.up",
        f"{theirs}.{feed_forward_at}.DenseReluDense.wi_0": f"{ours}.feed_forward.gate",
        f"{theirs}.{feed_forward_at}.DenseReluDense.wi_1": f"{ours}.feed_forward.up",
        f"{theirs}.{feed_forward_at}.DenseReluDense.wo": f"{ours}.feed_forward.down",
        f"{theirs}.{feed_forward_at}.layer_norm": f"{ours}.feed_forward_norm",
        f"{side}.final_layer_norm": f"{side}_layers.final_norm",
    }


_T5 = {
    "shared.weight": "embedding.table",
    **_t5_block("encoder", feed_forward_at=1),
    **_t5_block("decoder", feed_forward_at=2),
    "decoder.block.{i}.layer.1.EncDecAttention.q": "decoder_layers.{i}.cross_attention.query",
    "decoder.block.{i}.layer.1.EncDecAttention.k": "decoder_layers.{i}.cross_attention.key",
    "decoder.block.{i}.layer.1.EncDecAttention.v": "decoder_layers.{i}.cross_attention.value",
    "decoder.block.{i}.layer.1.EncDecAttention.o": "decoder_layers.{i}.cross_attention.out",
    "decoder.block.{i}.layer.1.layer_norm": "decoder_layers.{i}.cross_attention_norm",
    "lm_head": "lm_head",
}


def encoder_decoder_from_t5(theirs: Any) -> EncoderDecoder:
    """Tied or not is read off the tensors: T5Config drops `tie_word_embeddings=False`."""
    c = theirs.config
    tied = theirs.lm_head.weight is theirs.shared.weight
    feed_forward = (
        choices.GatedFeedForward(d_ff=c.d_ff, activation="gelu_tanh")
        if c.is_gated_act
        else choices.FeedForward(d_ff=c.d_ff, activation="relu", bias=False)
    )
    ours = EncoderDecoder(
        EncoderDecoderConfig(
            vocab=c.vocab_size,
            d_model=c.d_model,
            n_encoder_layers=c.num_layers,
            n_decoder_layers=c.num_decoder_layers,
            heads=choices.Heads(n_heads=c.num_heads, d_head=c.d_kv, d_value=c.d_kv, bias=False, beta=1.0),
            feed_forward=feed_forward,
            norm=choices.RMSNorm(eps=c.layer_norm_epsilon),
            norm_order="pre",
            position=choices.BucketPositions(
                n_buckets=c.relative_attention_num_buckets, max_distance=c.relative_attention_max_distance
            ),
            scaled_embedding=False,
            lm_head=choices.TiedLMHead(scaled=True) if tied else choices.UntiedLMHead(),
        )
    )
    fill(ours, weights_of(theirs), _T5)
    return ours


def _marian_block(side: str) -> dict[str, str]:
    theirs, ours = f"{side}.layers.{{i}}", f"{side}_layers.{{i}}"
    return {
        f"{theirs}.self_attn.q_proj": f"{ours}.attention.query",
        f"{theirs}.self_attn.k_proj": f"{ours}.attention.key",
        f"{theirs}.self_attn.v_proj": f"{ours}.attention.value",
        f"{theirs}.self_attn.out_proj": f"{ours}.attention.out",
        f"{theirs}.self_attn_layer_norm": f"{ours}.attention_norm",
        f"{theirs}.fc1": f"{ours}.feed_forward.up",
        f"{theirs}.fc2": f"{ours}.feed_forward.down",
        f"{theirs}.final_layer_norm": f"{ours}.feed_forward_norm",
    }


_MARIAN = {
    "shared.weight": "embedding.table",
    **_marian_block("encoder"),
    **_marian_block("decoder"),
    "decoder.layers.{i}.encoder_attn.q_proj": "decoder_layers.{i}.cross_attention.query",
    "decoder.layers.{i}.encoder_attn.k_proj": "decoder_layers.{i}.cross_attention.key",
    "decoder.layers.{i}.encoder_attn.v_proj": "decoder_layers.{i}.cross_attention.value",
    "decoder.layers.{i}.encoder_attn.out_proj": "decoder_layers.{i}.cross_attention.out",
    "decoder.layers.{i}.encoder_attn_layer_norm": "decoder_layers.{i}.cross_attention_norm",
    "final_logits_bias": "lm_head.bias",
}


def encoder_decoder_from_marian(theirs: Any) -> EncoderDecoder:
    """Marian's sinusoids are a frozen table there and a formula here."""
    c = theirs.config
    ours = EncoderDecoder(
        EncoderDecoderConfig(
            vocab=c.vocab_size,
            d_model=c.d_model,
            n_encoder_layers=c.encoder_layers,
            n_decoder_layers=c.decoder_layers,
            heads=choices.Heads(n_heads=c.encoder_attention_heads),
            feed_forward=choices.FeedForward(d_ff=c.encoder_ffn_dim, activation="silu"),
            norm=choices.LayerNorm(),
            norm_order="post",
            position=choices.SinusoidalPositions(layout="halves"),
            scaled_embedding=c.scale_embedding,
            lm_head=choices.TiedLMHead(bias=True),
        )
    )
    weights = {name: w for name, w in weights_of(theirs, "model.").items() if "embed_positions" not in name}
    fill(ours, weights | {"final_logits_bias": theirs.final_logits_bias.squeeze(0)}, _MARIAN)
    return ours


# --- images ----------------------------------------------------------------------------------------------------------

_VIT = {
    "embeddings.cls_token": "pooling.class_token",
    "embeddings.position_embeddings": "positions.table",
    "embeddings.patch_embeddings.projection": "patches",
    "layers.{i}.layernorm_before": "layers.{i}.attention_norm",
    "layers.{i}.attention.q_proj": "layers.{i}.attention.query",
    "layers.{i}.attention.k_proj": "layers.{i}.attention.key",
    "layers.{i}.attention.v_proj": "layers.{i}.attention.value",
    "layers.{i}.attention.o_proj": "layers.{i}.attention.out",
    "layers.{i}.layernorm_after": "layers.{i}.feed_forward_norm",
    "layers.{i}.mlp.fc1": "layers.{i}.feed_forward.up",
    "layers.{i}.mlp.fc2": "layers.{i}.feed_forward.down",
    "layernorm": "layers.final_norm",
    "classifier": "classifier",
}


def vision_transformer_from_vit(theirs: Any) -> VisionTransformer:
    """The position of the class token is a constant that is added to a constant: it goes into the class token."""
    c = theirs.config
    ours = VisionTransformer(
        VisionTransformerConfig(
            n_classes=c.num_labels,
            image=(c.image_size, c.image_size),
            n_channels=c.num_channels,
            patch=(c.patch_size, c.patch_size),
            d_model=c.hidden_size,
            n_layers=c.num_hidden_layers,
            heads=choices.Heads(n_heads=c.num_attention_heads),
            feed_forward=choices.FeedForward(d_ff=c.intermediate_size, activation="gelu"),
            norm=choices.LayerNorm(eps=c.layer_norm_eps),
        )
    )
    weights = weights_of(theirs, "vit.")
    positions, class_token = weights["embeddings.position_embeddings"][0], weights["embeddings.cls_token"][0, 0]
    weights["embeddings.cls_token"] = class_token + positions[0]
    weights["embeddings.position_embeddings"] = torch.unflatten(positions[1:], 0, ours.config.grid)
    fill(ours, weights, _VIT)
    return ours
