"""The config.json of well-known folders, as they are published: every key of them is understood."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from headwork import choices
from headwork.generation import generate
from headwork.hub import FAMILIES
from headwork.hub.families import find_family
from headwork.models import DecoderConfig, published

BERT = {
    "architectures": ["BertForMaskedLM"],
    "attention_probs_dropout_prob": 0.1,
    "gradient_checkpointing": False,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512,
    "model_type": "bert",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "transformers_version": "4.6.0.dev0",
    "type_vocab_size": 2,
    "use_cache": True,
    "vocab_size": 30522,
}
DISTILBERT = {
    "activation": "gelu",
    "architectures": ["DistilBertForMaskedLM"],
    "attention_dropout": 0.1,
    "dim": 768,
    "dropout": 0.1,
    "hidden_dim": 3072,
    "initializer_range": 0.02,
    "max_position_embeddings": 512,
    "model_type": "distilbert",
    "n_heads": 12,
    "n_layers": 6,
    "pad_token_id": 0,
    "qa_dropout": 0.1,
    "seq_classif_dropout": 0.2,
    "sinusoidal_pos_embds": False,
    "tie_weights_": True,
    "transformers_version": "4.10.0.dev0",
    "vocab_size": 30522,
}
GPT2 = {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "bos_token_id": 50256,
    "embd_pdrop": 0.1,
    "eos_token_id": 50256,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "resid_pdrop": 0.1,
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "vocab_size": 50257,
}
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 11008,
    "max_position_embeddings": 4096,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "transformers_version": "4.31.0.dev0",
    "use_cache": True,
    "vocab_size": 32000,
}
LLAMA_3 = LLAMA | {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "num_key_value_heads": 8,
    "rope_theta": 500000.0,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
T5 = {
    "architectures": ["T5ForConditionalGeneration"],
    "d_ff": 2048,
    "d_kv": 64,
    "d_model": 512,
    "decoder_start_token_id": 0,
    "dropout_rate": 0.1,
    "eos_token_id": 1,
    "initializer_factor": 1.0,
    "is_encoder_decoder": True,
    "layer_norm_epsilon": 1e-06,
    "model_type": "t5",
    "n_positions": 512,
    "num_heads": 8,
    "num_layers": 6,
    "output_past": True,
    "pad_token_id": 0,
    "relative_attention_num_buckets": 32,
    "task_specific_params": {"summarization": {"num_beams": 4}},
    "vocab_size": 32128,
}
OTHERS: dict[str, dict[str, Any]] = {
    "bert-base-multilingual-cased": BERT
    | {
        "directionality": "bidi",
        "pooler_fc_size": 768,
        "pooler_num_attention_heads": 12,
        "pooler_num_fc_layers": 3,
        "pooler_size_per_head": 128,
        "pooler_type": "first_token_transform",
        "vocab_size": 119547,
    },
    "roberta-base": {
        "architectures": ["RobertaForMaskedLM"],
        "attention_probs_dropout_prob": 0.1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": 768,
        "initializer_range": 0.02,
        "intermediate_size": 3072,
        "layer_norm_eps": 1e-05,
        "max_position_embeddings": 514,
        "model_type": "roberta",
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "pad_token_id": 1,
        "type_vocab_size": 1,
        "vocab_size": 50265,
    },
    "distilbert-sst-2": DISTILBERT
    | {
        "architectures": ["DistilBertForSequenceClassification"],
        "finetuning_task": "sst-2",
        "id2label": {"0": "NEGATIVE", "1": "POSITIVE"},
        "label2id": {"NEGATIVE": 0, "POSITIVE": 1},
        "output_past": True,
    },
    "distilgpt2": GPT2 | {"_num_labels": 1, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "n_layer": 6},
    "TinyLlama": LLAMA
    | {
        "attention_bias": False,
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 22,
        "num_key_value_heads": 4,
        "rope_theta": 10000.0,
    },
    "SmolLM2": LLAMA
    | {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "is_llama_config": True,
        "num_attention_heads": 9,
        "num_hidden_layers": 30,
        "num_key_value_heads": 3,
        "rope_interleaved": False,
        "rope_theta": 100000,
        "tie_word_embeddings": True,
        "transformers.js_config": {"kv_cache_dtype": {"fp16": "float16"}},
        "vocab_size": 49152,
    },
    "Qwen2.5": {
        "architectures": ["Qwen2ForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": 151643,
        "eos_token_id": 151643,
        "hidden_act": "silu",
        "hidden_size": 896,
        "initializer_range": 0.02,
        "intermediate_size": 4864,
        "max_position_embeddings": 32768,
        "max_window_layers": 24,
        "model_type": "qwen2",
        "num_attention_heads": 14,
        "num_hidden_layers": 24,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "sliding_window": 32768,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.40.1",
        "use_cache": True,
        "use_mrope": False,
        "use_sliding_window": False,
        "vocab_size": 151936,
    },
    "Mistral v0.3": {
        "architectures": ["MistralForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": 4096,
        "initializer_range": 0.02,
        "intermediate_size": 14336,
        "max_position_embeddings": 32768,
        "model_type": "mistral",
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-05,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.42.0.dev0",
        "use_cache": True,
        "vocab_size": 32768,
    },
    "flan-t5": T5
    | {
        "d_ff": 1024,
        "dense_act_fn": "gelu_new",
        "feed_forward_proj": "gated-gelu",
        "is_gated_act": True,
        "num_decoder_layers": 8,
        "num_heads": 6,
        "num_layers": 8,
        "relative_attention_max_distance": 128,
        "tie_word_embeddings": False,
        "use_cache": True,
    },
    "opus-mt-en-de": {
        "_num_labels": 3,
        "activation_dropout": 0.0,
        "activation_function": "swish",
        "add_bias_logits": False,
        "add_final_layer_norm": False,
        "architectures": ["MarianMTModel"],
        "attention_dropout": 0.0,
        "bad_words_ids": [[58100]],
        "bos_token_id": 0,
        "classif_dropout": 0.0,
        "classifier_dropout": 0.0,
        "d_model": 512,
        "decoder_attention_heads": 8,
        "decoder_ffn_dim": 2048,
        "decoder_layerdrop": 0.0,
        "decoder_layers": 6,
        "decoder_start_token_id": 58100,
        "decoder_vocab_size": 58101,
        "dropout": 0.1,
        "encoder_attention_heads": 8,
        "encoder_ffn_dim": 2048,
        "encoder_layerdrop": 0.0,
        "encoder_layers": 6,
        "eos_token_id": 0,
        "extra_pos_embeddings": 58101,
        "force_bos_token_to_be_generated": False,
        "forced_eos_token_id": 0,
        "gradient_checkpointing": False,
        "id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"},
        "init_std": 0.02,
        "is_encoder_decoder": True,
        "label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2},
        "max_length": 512,
        "max_position_embeddings": 512,
        "model_type": "marian",
        "normalize_before": False,
        "normalize_embedding": False,
        "num_beams": 4,
        "num_hidden_layers": 6,
        "pad_token_id": 58100,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": True,
        "static_position_embeddings": True,
        "transformers_version": "4.22.0.dev0",
        "use_cache": True,
        "vocab_size": 58101,
    },
    "vit-base-patch16-224": {
        "architectures": ["ViTForImageClassification"],
        "attention_probs_dropout_prob": 0.0,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "hidden_size": 768,
        "id2label": {str(i): f"class {i}" for i in range(1000)},
        "image_size": 224,
        "initializer_range": 0.02,
        "intermediate_size": 3072,
        "label2id": {f"class {i}": i for i in range(1000)},
        "layer_norm_eps": 1e-12,
        "model_type": "vit",
        "num_attention_heads": 12,
        "num_channels": 3,
        "num_hidden_layers": 12,
        "patch_size": 16,
        "qkv_bias": True,
        "transformers_version": "4.13.0.dev0",
    },
}
ENOUGH = [
    *(f"tensor {i}" for i in range(50)),
    *("cls.predictions.transform.dense.weight", "lm_head.dense.weight", "vocab_transform.weight"),
    *("bert.pooler.dense.weight", "pre_classifier.weight", "classifier.weight", "classifier.out_proj.weight"),
]
"""As many as any folder needs, with those of every head."""


def read(theirs: dict[str, Any]) -> Any:
    return find_family(theirs, FAMILIES).read(theirs, ENOUGH)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (BERT, "bert-base"),
        (DISTILBERT, "distilbert"),
        (GPT2, "gpt2"),
        (LLAMA, "llama-2-7b"),
        (LLAMA_3, "llama-3-8b"),
        (T5, "t5-small"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_it_is_the_config_of_that_name_here(theirs: dict[str, Any], ours: str) -> None:
    family, expected = find_family(theirs, FAMILIES), published(ours)
    written = family.write(expected, ENOUGH, {})
    dropout = {"dropout": 0.0, "attention_dropout": 0.0}
    assert replace(read(written), **dropout) == replace(read(theirs), **dropout)


@pytest.mark.parametrize("name", OTHERS)
def test_every_key_is_understood(name: str) -> None:
    config = read(OTHERS[name])
    assert config.d_model == OTHERS[name].get("hidden_size", config.d_model)


def test_what_stands_in_them_is_read() -> None:
    assert read(OTHERS["roberta-base"]).max_tokens == 512
    assert read(OTHERS["distilbert-sst-2"]).head.activation == "relu"
    assert read(OTHERS["vit-base-patch16-224"]).n_classes == 1000
    qwen = read(OTHERS["Qwen2.5"])
    assert isinstance(qwen, DecoderConfig)
    assert qwen.heads == choices.Heads(n_heads=14, n_kv_heads=2, d_head=64, d_value=64, bias=True, out_bias=False)
    assert qwen.position == choices.RotaryPositions(base=1_000_000.0, max_tokens=32_768)
    assert qwen.lm_head == choices.TiedLMHead()


@pytest.mark.parametrize(
    ("rope", "words"),
    [
        ({"rope_type": "longrope", "factor": 4.0}, "rope_type must be one of default, linear, .*, got 'longrope'"),
        ({"rope_type": "linear"}, "factor must be given with rope_type='linear', got None"),
        ({"rope_type": "linear", "factor": "2"}, "factor must be a number, got '2'"),
        ({"rope_type": "linear", "factor": 2.0, "speed": 3}, "only settings that Headwork knows, got speed = 3"),
        ({"rope_type": "llama3", "factor": 8.0}, "original_max_position_embeddings must be a whole number"),
        ({"rope_type": "linear", "type": "yarn", "factor": 8.0}, "rope_type and type must be equal"),
        ("linear", "rope_parameters must be an object, got 'linear'"),
    ],
)
def test_a_rotation_that_headwork_does_not_have(rope: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read(LLAMA_3 | {"rope_scaling": rope})


def test_longer_texts_than_it_was_trained_on_are_refused() -> None:
    config = replace(read(LLAMA_3), vocab=37, d_model=12, n_layers=1, heads=choices.Heads(n_heads=3))
    model = replace(config, position=replace(config.position, max_tokens=5)).build()
    assert model(torch.ones(1, 5, dtype=torch.long)).shape == (1, 5, 37)
    with pytest.raises(ValueError, match="must not be longer than the 5 positions that the model was made for, got 6"):
        model(torch.ones(1, 6, dtype=torch.long))
    with pytest.raises(ValueError, match="must fit into the 5 positions of the model"):
        generate(model, torch.ones(1, 3, dtype=torch.long), max_new_tokens=3)


def test_a_text_extended_by_yarn_is_as_long_as_its_factor_says() -> None:
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
    assert read(LLAMA_3 | {"rope_scaling": yarn}).max_tokens == 32_768
