"""Weights in 8 or 4 bits: less memory, and less of the time that reading it takes for each token of a text."""

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwork.checks import check_positive
from headwork.functional.int4 import Int4Matrix
from headwork.functional.int8 import Int8Matrix, check_int8
from headwork.generation import generate
from headwork.layers.attention import MultiHeadAttention
from headwork.layers.embeddings import LMHead, TokenEmbedding
from headwork.layers.feed_forward import FeedForward
from headwork.layers.int8 import Int4Linear, Int8Embedding, Int8Linear, Int8LMHead, precision_of
from headwork.layers.mixture_of_experts import MixtureOfExperts
from headwork.models import describe
from headwork.models.model import evaluation_mode
from headwork.public import PublicNames

__dir__ = PublicNames(__name__)

MEGABYTE = 1e6


def quantize(model: nn.Module, *, bits: int = 8) -> nn.Module:
    """The model with the weights of its linear maps, token embeddings and language-model head in int8; for the CPU.

    With `bits=4` the linear maps are in 4 bits, a scale and a middle for 32 neighbours, and multiply in bfloat16.

    The model itself stays as it is. Rows of weights have a scale each, and so has each token at every product. In a
    model of text, attention and activations are computed in float64 (see `_before_sums`): neither batch, padding, cache
    nor prompt lookup change a text. Norms, positions, biases and convolutions stay in float32. The result neither
    learns nor can be saved: save the model, and quantise it after loading.

    >>> config = hw.models.DecoderConfig(vocab=100, d_model=8, n_layers=2, heads=hw.choices.Heads(n_heads=2),
    ...     feed_forward=hw.choices.FeedForward(d_ff=32))
    >>> hw.quantize(hw.models.Decoder(config))(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3, 100])
    """
    check_bits(bits)
    check_int8()
    kind = Int8Linear if bits == 8 else Int4Linear
    rounded: dict[int, nn.Module] = {}
    precise = _before_sums(model)
    tied = {head.vocab for head in model.modules() if type(head) is LMHead and head.weight is None}
    for module in model.modules():
        if type(module) is nn.Linear:
            rounded[id(module)] = kind(module, torch.float64 if id(module) in precise else torch.float32)
        elif type(module) is LMHead:
            rounded[id(module)] = Int8LMHead(module)
        elif type(module) is TokenEmbedding and module.name == "token ids":
            rounded[id(module)] = Int8Embedding(module, tied=len(module.table) in tied)
    if not rounded:
        what = "without any" if precision_of(model) == "float32" else f"in {precision_of(model)} already"
        raise ValueError(f"model must have linear maps to quantise, got {type(model).__name__} {what}")
    quantised = copy.deepcopy(model, {**rounded}).eval().requires_grad_(False)  # what is in the memo is not copied
    if precise:
        for attention in _parts(quantised, MultiHeadAttention):
            for child in attention.children():
                if not isinstance(child, Int8Linear):  # norms and codes of positions meet queries and keys
                    child.double()
    return quantised


def _before_sums(model: nn.Module) -> set[int]:
    """Which maps of a model of text have results that go into attention, an activation or a choice of experts.

    A kernel adds in another order for one token than for many, and computes an exponential at the end of its table by
    another formula. In float32 the last digit then differs, which now and then moves a number across a half where it
    is rounded to 8 bits: a hundredth of it instead of a ten-millionth. What differs in float64 is lost when it is
    rounded to float32. All else is the same for a token wherever it stands: whole numbers, norms of a row, sums of two.

    Images have no padding, and always as many tokens. What predicts no text has the activations in float32: PyTorch's
    error function takes thirty times as long in float64, and no number of an encoder is used twice.
    """
    description = describe(model)
    if description is not None and description.input == "image":
        return set()
    predicts_text = description is None or description.output == "next token"
    kinds = (MultiHeadAttention, FeedForward, MixtureOfExperts) if predicts_text else (MultiHeadAttention,)
    return {
        id(module)
        for part in _parts(model, *kinds)
        for name, module in part.named_modules()
        if name.split(".")[-1] not in ("out", "down")
    }


def _parts(model: nn.Module, *kinds: type[nn.Module]) -> Iterator[nn.Module]:
    return (module for module in model.modules() if isinstance(module, kinds))


def check_bits(bits: int) -> None:
    if bits not in (4, 8):
        raise ValueError(f"bits must be 4 or 8, got {bits}")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a language model costs and how well it predicts a text."""

    megabytes: float
    tokens_per_second: float
    perplexity: float


@dataclass(frozen=True)
class Comparison:
    """A model before and after; `print` shows a table."""

    before: Measured
    after: Measured
    precision: str = "int8"
    """Of the weights after."""

    def __str__(self) -> str:
        rows = [("", "float32", self.precision)]
        for name in Measured.__dataclass_fields__:
            before, after = (f"{getattr(measured, name):.2f}" for measured in (self.before, self.after))
            rows.append((name.replace("_", " "), before, after))
        return "\n".join(f"{name:<18} {before:>10} {after:>10}" for name, before, after in rows)


def compare(
    model: nn.Module, quantised: nn.Module, ids: Int[Tensor, "token"], *, n_prompt: int = 16, n_new_tokens: int = 32
) -> Comparison:
    """Megabytes of weights, tokens per second after a prompt of `n_prompt` tokens, and the perplexity of the text."""
    check_positive(n_prompt=n_prompt, n_new_tokens=n_new_tokens)
    if ids.ndim != 1 or len(ids) < 2:
        raise ValueError(f"ids must be one text of at least two tokens, got shape {tuple(ids.shape)}")
    speeds = _speeds((model, quantised), ids[None, :n_prompt], n_new_tokens)
    before, after = (
        Measured(megabytes=megabytes(one), tokens_per_second=speed, perplexity=perplexity(one, ids))
        for one, speed in zip((model, quantised), speeds, strict=True)
    )
    return Comparison(before, after, precision_of(quantised))


def megabytes(model: nn.Module) -> float:
    """The weights of a model in memory, in millions of bytes.

    >>> megabytes(nn.Linear(1000, 1000, bias=False))
    4.0
    """
    tensors = {id(t): t.nbytes for t in (*model.parameters(), *model.buffers())}
    packed = (getattr(module, "matrix", None) for module in model.modules())
    return (sum(tensors.values()) + sum(m.nbytes for m in packed if isinstance(m, Int8Matrix | Int4Matrix))) / MEGABYTE


def perplexity(model: nn.Module, ids: Int[Tensor, "token"]) -> float:
    r"""$\exp\big(-\frac{1}{n} \sum_t \log p(x_t \mid x_{<t})\big)$ of a text; a long one is read in pieces that fit."""
    limit = (found.max_tokens if (found := describe(model)) is not None else None) or 1024
    total, n_scored = 0.0, 0
    with torch.inference_mode(), evaluation_mode(model):
        for piece in torch.split(ids, limit):
            if len(piece) > 1:
                logits = model(piece[None, :-1])[0]
                total += F.cross_entropy(logits, piece[1:], reduction="sum").item()
                n_scored += len(piece) - 1
    return float(torch.tensor(total / n_scored).exp())


def _speeds(models: tuple[nn.Module, ...], prompt: Tensor, n_new_tokens: int, n_turns: int = 3) -> list[float]:
    """Tokens per second of each, the best of some turns, which they take one after the other."""
    best = [0.0] * len(models)
    for _ in range(n_turns):
        for i, model in enumerate(models):
            start = time.perf_counter()
            new = generate(model, prompt, max_new_tokens=n_new_tokens)  # type: ignore[arg-type]  # checked there
            best[i] = max(best[i], new.shape[1] / (time.perf_counter() - start))
    return best
