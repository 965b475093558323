"""The keys of a `config.json` from elsewhere: each is read, known to change no number, or refused by name."""

import math
from collections.abc import Collection, Mapping
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
        "output_attentions output_hidden_states output_past return_dict tf_legacy_loss torchscript use_bfloat16",
        "use_cache",
        # labels are counted, see `Settings.n_labels`
        "id2label label2id num_labels _num_labels",
        # the tokenizer, and the ids that it gives to special tokens
        "bos_token_id cls_token_id decoder_start_token_id eos_token_id forced_bos_token_id forced_eos_token_id",
        "pad_token_id prefix sep_token_id tokenizer_class unk_token_id",
        # how text is generated
        "bad_words_ids begin_suppress_tokens diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size",
        "exponential_decay_length_penalty length_penalty max_length max_new_tokens min_length no_repeat_ngram_size",
        "num_beam_groups num_beams num_return_sequences output_scores remove_invalid_values repetition_penalty",
        "return_dict_in_generate suppress_tokens temperature top_k top_p transformers.js_config typical_p",
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

    def architecture(self, options: Mapping[str, Choice]) -> Choice:
        """What the class stands for that the folder was saved from; the first option if it does not say."""
        value = self.values.get("architectures")
        if value is None:
            return next(iter(options.values()))
        if not isinstance(value, list) or len(value) != 1 or value[0] not in options:
            raise ValueError(f"architectures must be one of {', '.join(options)}, got {value!r}")
        return options[value[0]]

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


def write_activation(activation: Activation) -> str:
    """Their name of one of our activations.

    >>> write_activation("gelu_tanh")
    'gelu_new'
    """
    return next(theirs for theirs, ours in ACTIVATIONS.items() if ours == activation)
