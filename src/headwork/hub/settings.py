"""The keys of a `config.json` from elsewhere: each is read, known to change no number, or refused by name."""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from headwork.checks import nearest
from headwork.choices import Activation

Choice = TypeVar("Choice")

LARGEST_COUNT = 2**31 - 1

ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "relu2": "relu2",
}
"""Their names of the activations, with ours. The first of ours is the one that is written."""

ONLY: dict[str, object] = {
    "add_cross_attention": False,
    "cross_attention_hidden_size": None,
    "is_decoder": False,
    "pruned_heads": {},
    "tie_encoder_decoder": False,
}
"""What every family can do in one way only."""

HARMLESS = {
    word
    for line in (
        # where the folder comes from, and how it was trained
        "_commit_hash _name_or_path name_or_path transformers_version torch_dtype dtype finetuning_task",
        "gradient_checkpointing init_std initializer_factor initializer_range problem_type task_specific_params",
        # how Hugging Face runs the model
        "_attn_implementation _attn_implementation_autoset attn_implementation chunk_size_feed_forward",
        "is_encoder_decoder output_attentions output_hidden_states output_past return_dict sentence_transformers",
        "tf_legacy_loss torchscript use_bfloat16 use_cache xla_device",
        # labels are counted, see `Settings.n_labels`
        "id2label label2id num_labels _num_labels",
        # the tokenizer, and the ids that it gives to special tokens
        "bos_token_id cls_token_id decoder_start_token_id eos_token_id forced_bos_token_id forced_eos_token_id",
        "eos_token_ids model_max_length pad_token_id prefix sep_token_id tokenizer_class unk_token_id",
        # how text is generated
        "bad_words_ids begin_suppress_tokens diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size",
        "exponential_decay_length_penalty length_penalty max_length max_new_tokens min_length no_repeat_ngram_size",
        "num_beam_groups num_beams num_return_sequences output_scores remove_invalid_values repetition_penalty",
        "return_dict_in_generate suppress_tokens temperature top_k top_p transformers.js_config typical_p",
        "_from_model_config assistant_confidence_threshold assistant_early_exit assistant_ensemble_weight",
        "assistant_lookbehind cache_config cache_implementation compile_config constraints continuous_batching_config",
        "disable_compile dola_layers encoder_repetition_penalty epsilon_cutoff eta_cutoff force_words_ids",
        "forced_decoder_ids generation_config guidance_scale is_assistant low_memory max_cache_len",
        "max_matching_ngram_size max_time min_new_tokens min_p num_assistant_tokens num_assistant_tokens_schedule",
        "output_logits penalty_alpha prefill_chunk_size prompt_lookup_num_tokens renormalize_logits sequence_bias",
        "speculation_type stop_strings target_lookbehind token_healing top_h use_mtp watermarking_config",
    )
    for word in line.split()
}
"""Keys that change no number that a model computes."""


class Settings:
    """The settings of one folder, each with the default that Hugging Face gives it; `close` refuses what is left over.

    `tensors` are the names in the folder's files: some families say only there what they are.

    >>> settings = Settings({"model_type": "bert", "hidden_size": 8, "hidden_act": "relu6"})
    >>> settings.count("hidden_size", 768)
    8
    >>> settings.activation("hidden_act", "gelu")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: hidden_act must be one of relu, gelu, ..., got 'relu6'
    """

    def __init__(self, values: Mapping[str, object], tensors: Collection[str] = ()) -> None:
        self.values, self.tensors = dict(values), tensors
        self._read = {"model_type", "architectures", *HARMLESS}
        self.only(**ONLY)

    def value(self, name: str, default: object = None, *, alias: str | None = None) -> object:
        """The value as it is; `alias` is another name of the same setting, which must not contradict it."""
        self._read.update({name} if alias is None else {name, alias})
        value = self.values.get(name, default if alias is None else self.values.get(alias, default))
        other = value if alias is None else self.values.get(alias, value)
        if alias is not None and value != other:
            raise ValueError(f"{name} and {alias} must be equal, got {value!r} and {other!r}")
        return value

    def count(self, name: str, default: int, *, alias: str | None = None) -> int:
        """A whole number from 1 on."""
        value = self.value(name, default, alias=alias)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST_COUNT:
            raise ValueError(f"{name} must be a whole number from 1 to {LARGEST_COUNT}, got {value!r}")
        return value

    def count_or(self, name: str, null: int, default: int | None = None) -> int:
        """A whole number from 1 on, or `null`, which says the number `null`, as does its absence without a default."""
        return null if self.value(name, default) is None else self.count(name, default or null)

    def layers(self, name: str, default: int, *, alias: str | None = None) -> int:
        """How many layers there are: each has tensors, so a larger number is wrong before anything is built."""
        n_layers = self.count(name, default, alias=alias)
        if n_layers > len(self.tensors):
            raise ValueError(f"{name} must fit the {len(self.tensors)} tensors of the folder, got {n_layers}")
        return n_layers

    def number(self, name: str, default: float) -> float:
        value = self.value(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError(f"{name} must be a number, got {value!r}")
        if not math.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value!r}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.value(name, default)
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false, got {value!r}")
        return value

    def one_of(self, name: str, options: Mapping[str, Choice], default: str) -> Choice:
        value = self.value(name, default)
        if not isinstance(value, str) or value not in options:
            raise ValueError(f"{name} must be one of {', '.join(options)}, got {value!r}")
        return options[value]

    def activation(self, name: str, default: str) -> Activation:
        return self.one_of(name, ACTIVATIONS, default)

    @property
    def class_name(self) -> str | None:
        """The class that the folder was saved from, as far as it says: a hint, for the tensors say what is there."""
        return class_name(self.values)

    def has_any(self, tensors: Sequence[str]) -> bool:
        """Whether one of these is there; nothing is known of a folder without tensors."""
        return not self.tensors or any(self._has(name) for name in tensors)

    def has_all(self, tensors: Sequence[str]) -> bool:
        return all(self._has(name) for name in tensors)

    def _has(self, name: str) -> bool:
        return name in self.tensors

    def only(self, **implemented: object) -> None:
        """Settings that may be given, but have no other value here."""
        for name, value in implemented.items():
            if self.value(name, value) != value:
                raise ValueError(f"{name} must be {value!r}, the one that Headwork has, got {self.values[name]!r}")

    def harmless(self, *names: str) -> None:
        """Settings that change no number outside training."""
        self._read.update(names)

    @property
    def n_labels(self) -> int:
        labels = self.values.get("id2label")
        if labels is None:
            return self.count("num_labels", 2)
        if not isinstance(labels, dict) or not labels:
            raise ValueError(f"id2label must be an object with a name for each label, got {labels!r}")
        if (n_labels := self.count("num_labels", len(labels))) != len(labels):
            raise ValueError(f"num_labels must be the {len(labels)} of id2label, got {n_labels}")
        return len(labels)

    def close(self) -> None:
        """Raise for the settings that nobody has read: what they mean is not known here."""
        unknown = [name for name in self.values if name not in self._read]
        if unknown:
            hint = nearest(unknown[0], self._read) if len(unknown) == 1 else ""
            told = ", ".join(f"{name} = {self.values[name]!r}" for name in unknown)
            close = hint if hint.startswith("; did") else ""
            raise ValueError(f"config.json must have only settings that Headwork knows, got {told}{close}")


def class_name(values: Mapping[str, object]) -> str | None:
    """The first of the `architectures` in a config.json."""
    named = values.get("architectures")
    return named[0] if isinstance(named, list) and named and isinstance(named[0], str) else None


CLASS = re.compile(r"(?P<family>.*?)(?P<head>For[A-Z].*|(LMHead|WithLMHead|MT|DoubleHeads)?Model)")
"""How Hugging Face names its classes: GPT2 and LMHeadModel, Bert and ForMaskedLM."""


def split_class(name: str) -> tuple[str, str]:
    """The family and the head in the name of a class.

    >>> split_class("GPT2LMHeadModel")
    ('GPT2', 'LMHeadModel')
    """
    found = CLASS.fullmatch(name)
    return (found["family"], found["head"]) if found else (name, "")


def write_activation(activation: Activation) -> str:
    """Their name of one of our activations.

    >>> write_activation("gelu_tanh")
    'gelu_new'
    """
    return next(theirs for theirs, ours in ACTIVATIONS.items() if ours == activation)
