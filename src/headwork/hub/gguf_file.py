"""Files of llama.cpp (GGUF): tensors, settings and tokenizer in one, the tensors most often in a few bits each.

A file is read as a folder of Hugging Face's is: its settings get their names there, its tensors have a table of names.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from headwork import choices
from headwork.extras import need
from headwork.hub import llama
from headwork.hub.family import Family
from headwork.hub.names import Names, Table
from headwork.hub.vocabularies import CONTROL, QWEN2_WORDS, SPACE, UNKNOWN, USER_DEFINED
from headwork.models import DecoderConfig
from headwork.storage import DamagedError

if TYPE_CHECKING:
    import tokenizers

LLAMA3_WORDS = QWEN2_WORDS.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
WORDS: dict[object, str | None] = {
    **dict.fromkeys((None, "gpt-2", "smollm"), None),
    **dict.fromkeys(("llama-bpe", "llama-v3", "llama3"), LLAMA3_WORDS),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), QWEN2_WORDS),
}
"""How a text is split into words, by the name in `tokenizer.ggml.pre`; None is GPT-2's way."""
BEGINS = ("llama-bpe", "llama-v3", "llama3")
"""Where a text has a beginning unless the file says otherwise."""

REQUIRED = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
OPTIONAL = {
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "context_length": "max_position_embeddings",
    "rope.freq_base": "rope_theta",
    "vocab_size": "vocab_size",
}


# --- tensors ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairedRows:
    """Rows of queries or keys, in which llama.cpp puts the two that rotate together side by side in each head."""

    ours: str
    n_heads: int

    def read(self, theirs: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
        return [rearrange(theirs[0], "(head d two) ... -> (head two d) ...", head=self.n_heads, two=2)]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        return [rearrange(ours[0], "(head two d) ... -> (head d two) ...", head=self.n_heads, two=2)]


TABLE: Table = {
    "token_embd.weight": "embedding.table",
    "blk.{i}.attn_norm": "layers.{i}.attention_norm",
    "blk.{i}.attn_q": "layers.{i}.attention.query",
    "blk.{i}.attn_k": "layers.{i}.attention.key",
    "blk.{i}.attn_v": "layers.{i}.attention.value",
    "blk.{i}.attn_output": "layers.{i}.attention.out",
    "blk.{i}.ffn_norm": "layers.{i}.feed_forward_norm",
    "blk.{i}.ffn_gate": "layers.{i}.feed_forward.gate",
    "blk.{i}.ffn_up": "layers.{i}.feed_forward.up",
    "blk.{i}.ffn_down": "layers.{i}.feed_forward.down",
    "output_norm": "layers.final_norm",
    "output": "lm_head",
}


def names(config: DecoderConfig) -> Names:
    tied = isinstance(config.lm_head, choices.TiedLMHead)
    return Names(TABLE, copies={"output.weight": "token_embd.weight"} if tied else {})


def names_of_llama(config: DecoderConfig) -> Names:
    n_heads, n_kv_heads = config.heads.n_heads, getattr(config.heads, "n_kv_heads", None)
    paired: Table = {
        "blk.{i}.attn_q": PairedRows("layers.{i}.attention.query", n_heads),
        "blk.{i}.attn_k": PairedRows("layers.{i}.attention.key", n_kv_heads or n_heads),
    }
    return replace(names(config), table={**TABLE, **paired})


FAMILIES: dict[str, Family] = {
    "llama": replace(llama.LLAMA, names=names_of_llama),
    "qwen2": replace(llama.QWEN2, names=names),
}
"""By `general.architecture`, which says llama for Mistral too."""


class _InGguf:
    dtype = torch.float32

    def __init__(self, tensor: Any, path: Path) -> None:
        self.shape = tuple(int(size) for size in reversed(tensor.shape))
        self._tensor, self._path = tensor, path

    def read(self, *, keep: bool = False) -> Tensor:
        """The numbers that the few bits stand for."""
        import gguf

        try:
            numbers = gguf.dequantize(self._tensor.data, self._tensor.tensor_type)
        except NotImplementedError:
            kind = self._tensor.tensor_type.name
            raise ValueError(
                f"{self._path}: {self._tensor.name} must be of a type that gguf reads, got {kind}"
            ) from None
        return torch.from_numpy(np.require(numbers, requirements="W")).reshape(self.shape)  # not the file itself


# --- the file --------------------------------------------------------------------------------------------------------


def is_gguf(path: Path | str) -> bool:
    path = Path(path)
    return path.suffix == ".gguf" and path.is_file()


def _reader(path: Path) -> Any:
    """The library's reader, which goes on for ever where a damaged file promises more than it has."""
    import gguf

    class Reader(gguf.GGUFReader):
        @property
        def data(self) -> Any:
            return self._data

        @data.setter
        def data(self, mapped: Any) -> None:
            self._data = mapped.view(np.ndarray)  # a plain array is read twice as fast

        def _get(self, offset: Any, dtype: Any, count: Any = 1, override_order: Any = None) -> Any:
            found = super()._get(offset, dtype, count, override_order)
            if len(found) != count:
                raise ValueError(f"it ends at byte {len(self.data)}, and says that there is more")
            return found

    return Reader(path)


class GgufFile:
    """The metadata of a file, its settings as Hugging Face names them, and its tensors, which are not read yet."""

    def __init__(self, path: Path | str) -> None:
        need("gguf")
        self.path = Path(path)
        try:
            reader = _reader(self.path)
            self.metadata: dict[str, Any] = {name: field.contents() for name, field in reader.fields.items()}
            self.tensors = {tensor.name: _InGguf(tensor, self.path) for tensor in reader.tensors}
        except Exception as error:  # damage makes the library raise anything
            raise DamagedError(f"{self.path} is damaged: {type(error).__name__}, {error}") from None

    @property
    def family(self) -> Family:
        kind = self.metadata.get("general.architecture")
        if not isinstance(kind, str) or kind not in FAMILIES:
            known = ", ".join(FAMILIES)
            raise ValueError(f"{self.path}: general.architecture must be one of {known}, got {kind!r}")
        return FAMILIES[kind]

    @property
    def settings(self) -> dict[str, object]:
        """All settings of the architecture: those without a name there keep their own, and are refused by it."""
        family = self.family
        start = f"{self.metadata['general.architecture']}."
        stated = {key.removeprefix(start): value for key, value in self.metadata.items() if key.startswith(start)}
        if missing := [start + key for key in REQUIRED if key not in stated]:
            raise ValueError(f"{self.path} must have {', '.join(missing)}, and has not")
        kept = {theirs: stated.pop(key) for key, theirs in (REQUIRED | OPTIONAL).items() if key in stated}
        heads = kept["num_attention_heads"]
        if (
            not isinstance(heads, int)
            or not isinstance(kept["hidden_size"], int)
            or not 0 < heads <= kept["hidden_size"]
        ):
            raise ValueError(f"{self.path}: {start}attention.head_count must be a number of heads, got {heads!r}")
        d_head = kept.get("head_dim", kept["hidden_size"] // heads)
        only = {"attention.value_length": d_head, "rope.dimension_count": d_head, "rope.scaling.type": "none"}
        for key, value in only.items():
            if stated.pop(key, value) != value:
                got = self.metadata[start + key]
                raise ValueError(f"{self.path}: {start}{key} must be {value!r}, the one that Headwork has, got {got!r}")
        biases = {"attention_bias": "blk.0.attn_q.bias", "mlp_bias": "blk.0.ffn_gate.bias"}
        return {
            "model_type": family.model_types[0],
            "vocab_size": len(self.metadata.get("tokenizer.ggml.tokens") or ()),
            "tie_word_embeddings": "output.weight" not in self.tensors,
            **({key: bias in self.tensors for key, bias in biases.items()} if start == "llama." else {}),
            **kept,
            **{start + key: value for key, value in stated.items()},
        }

    # --- tokenizer ---------------------------------------------------------------------------------------------------

    @property
    def chat_template(self) -> str | None:
        found = self.metadata.get("tokenizer.chat_template")
        return found if isinstance(found, str) else None

    @property
    def end(self) -> list[int]:
        """The ids after which the model has nothing more to say: of a text, and of what it says in a chat."""
        found = [self._ggml(f"{name}_token_id") for name in ("eos", "eot")]
        return list(dict.fromkeys(i for i in found if isinstance(i, int)))

    @property
    def special_tokens(self) -> dict[str, str]:
        """The texts of the special tokens that have an id, by the names that a chat template asks for."""
        names = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
        tokens, ids = self._ggml("tokens"), {name: self._ggml(f"{key}_token_id") for key, name in names.items()}
        known = tokens if isinstance(tokens, list) else []
        return {f"{name}_token": known[i] for name, i in ids.items() if isinstance(i, int) and 0 <= i < len(known)}

    def tokenizer(self) -> "tokenizers.Tokenizer":
        """Byte pairs as GPT-2 has them, or the pieces of Llama's SentencePiece model."""
        need("tokenizers")
        import tokenizers
        from tokenizers.processors import TemplateProcessing

        kind, tokens = self._ggml("model"), self._ggml("tokens")
        readers = {"gpt2": self._byte_pairs, "llama": self._pieces}
        if kind not in readers or not isinstance(tokens, list):
            raise ValueError(f"{self.path}: tokenizer.ggml.model must be one of {', '.join(readers)}, got {kind!r}")
        try:
            made = readers[kind]({token: i for i, token in enumerate(tokens)})
            made.add_tokens(
                [
                    tokenizers.AddedToken(token, normalized=False, special=token_kind != USER_DEFINED)
                    for token, token_kind in zip(tokens, self._ggml("token_type") or (), strict=False)
                    if token_kind in (UNKNOWN, CONTROL, USER_DEFINED)
                ]
            )
            around = {
                name: tokens[self._ggml(f"{name}_token_id")]
                for name, default in (("bos", kind == "llama" or self._ggml("pre") in BEGINS), ("eos", False))
                if self._ggml(f"add_{name}_token", default)
            }
            before, after = ([around[name]] if name in around else [] for name in ("bos", "eos"))
            made.post_processor = TemplateProcessing(
                single=[*before, "$A", *after],
                special_tokens=[(token, tokens.index(token)) for token in around.values()],
            )
        except ValueError:
            raise
        except Exception as error:  # the library raises nothing narrower
            raise DamagedError(f"the tokenizer in {self.path} is damaged: {error}") from None
        return made

    def _ggml(self, name: str, default: object = None) -> Any:
        return self.metadata.get(f"tokenizer.ggml.{name}", default)

    def _byte_pairs(self, ids: dict[str, int]) -> "tokenizers.Tokenizer":
        import tokenizers
        from tokenizers import decoders, models, pre_tokenizers

        pre = self._ggml("pre")
        if pre not in WORDS:
            known = ", ".join(str(name) for name in WORDS if name)
            raise ValueError(f"{self.path}: tokenizer.ggml.pre must be one of {known}, got {pre!r}")
        merges = [tuple(pair.split(" ", 1)) for pair in self._ggml("merges")]
        made = tokenizers.Tokenizer(models.BPE(ids, merges, ignore_merges=pre in BEGINS))
        words = WORDS[pre]
        steps: list[Any] = [pre_tokenizers.Split(tokenizers.Regex(words), behavior="isolated")] if words else []
        digits = [pre_tokenizers.Digits(individual_digits=True)] if pre == "smollm" else []
        in_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=words is None)
        made.pre_tokenizer = pre_tokenizers.Sequence([*steps, *digits, in_bytes])
        made.decoder = decoders.ByteLevel()
        return made

    def _pieces(self, ids: dict[str, int]) -> "tokenizers.Tokenizer":
        """Two pieces are joined first that make the one with the best score."""
        import tokenizers
        from tokenizers import decoders, models, pre_tokenizers

        score = dict(zip(ids, self._ggml("scores"), strict=True))
        halves = ((piece, i) for piece in ids for i in range(1, len(piece)) if piece[:i] in ids and piece[i:] in ids)
        ordered = sorted(halves, key=lambda half: (score[half[0]], half[1], len(half[0]) - half[1]), reverse=True)
        merges = [(piece[:i], piece[i:]) for piece, i in ordered]
        made = tokenizers.Tokenizer(models.BPE(ids, merges, fuse_unk=True, byte_fallback=True))
        has_prefix = self._ggml("add_space_prefix", True)
        made.pre_tokenizer = pre_tokenizers.Metaspace(
            replacement=SPACE, prepend_scheme="first" if has_prefix else "never", split=False
        )
        steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
        made.decoder = decoders.Sequence([*steps, *([decoders.Strip(content=" ", left=1)] if has_prefix else [])])
        return made
