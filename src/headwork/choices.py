"""The choices an architecture makes, each a small frozen dataclass; a config holds one of every union.

>>> FeedForward(d_ff=3072, activation="gelu")
FeedForward(d_ff=3072, activation='gelu', bias=True)
"""

from dataclasses import dataclass
from typing import Literal

from headwork.checks import Count, PositiveNumber, check_divides
from headwork.public import PublicNames
from headwork.serialise import Checked

__dir__ = PublicNames(__name__)

Activation = Literal["relu", "relu2", "gelu", "gelu_tanh", "silu"]
Layout = Literal["interleaved", "halves"]
NormOrder = Literal["pre", "post"]
"""Where the norm stands: `pre` is x + f(norm(x)), `post` is norm(x + f(x))."""


# --- heads ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Heads(Checked):
    """Heads that each project the whole token. `None` widths mean d_model / n_heads; `beta=None` means 1/sqrt(d_head).

    Fewer `n_kv_heads` than `n_heads` is grouped-query attention: several queries share a key and a value.
    """

    n_heads: Count
    d_head: Count | None = None
    d_value: Count | None = None
    n_kv_heads: Count | None = None
    bias: bool = True
    out_bias: bool | None = None
    beta: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_kv_heads is not None:
            check_divides(n_kv_heads=self.n_kv_heads, n_heads=self.n_heads)
        if self.beta is not None and not self.beta >= 0:
            raise ValueError(f"beta must lie in 0 .. inf, got {self.beta}")


@dataclass(frozen=True, kw_only=True)
class SplitHeads(Checked):
    """Heads that each see only their own slice of the token, as the C182 sheet writes them."""

    n_heads: Count
    bias: bool = True


@dataclass(frozen=True, kw_only=True)
class GaussianHeads(Checked):
    """Image heads that look at a learned offset (row, column) from the query, whatever is there: position only.

    `d_value=None` is the paper's width: each head passes on the whole token, and the output projection does the rest.
    `isotropic` has one alpha for both directions, `diagonal` one for each, `full` a matrix (and the slow path).
    """

    n_heads: Count
    d_value: Count | None = None
    precision: Literal["isotropic", "diagonal", "full"] = "isotropic"


@dataclass(frozen=True, kw_only=True)
class ShiftHeads(Checked):
    """Image heads with a learned score for each row shift and each column shift: position only, learned freely."""

    n_heads: Count
    d_value: Count | None = None


@dataclass(frozen=True, kw_only=True)
class QueryShiftHeads(Checked):
    """Image heads whose score is the product of the query with a learned code of the shift: query and position."""

    n_heads: Count


@dataclass(frozen=True, kw_only=True)
class ContentShiftHeads(Checked):
    """The same plus the product of query and key: position and content."""

    n_heads: Count


# --- feed-forward --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FeedForward(Checked):
    """W2 activation(W1 x)."""

    d_ff: Count
    activation: Activation = "gelu"
    bias: bool = True


@dataclass(frozen=True, kw_only=True)
class GatedFeedForward(Checked):
    """W2 (activation(W_gate x) * W1 x); with silu this is SwiGLU."""

    d_ff: Count
    activation: Activation = "silu"
    bias: bool = False


# --- norm ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LayerNorm(Checked):
    eps: PositiveNumber = 1e-5
    bias: bool = True


@dataclass(frozen=True, kw_only=True)
class RMSNorm(Checked):
    eps: PositiveNumber = 1e-6


# --- positions of a sequence ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NoPositions(Checked):
    """Order is invisible."""


@dataclass(frozen=True, kw_only=True)
class LearnedPositions(Checked):
    """A learned vector for each of `max_tokens` positions, added to the token."""

    max_tokens: Count = 512


@dataclass(frozen=True, kw_only=True)
class SinusoidalPositions(Checked):
    """The fixed sines and cosines of the original Transformer, added to the token; any length."""

    base: PositiveNumber = 10_000.0
    layout: Layout = "interleaved"


@dataclass(frozen=True, kw_only=True)
class RotaryPositions(Checked):
    """Queries and keys are rotated by an angle that grows with the position; any length."""

    base: PositiveNumber = 10_000.0
    layout: Layout = "halves"


@dataclass(frozen=True, kw_only=True)
class AlibiPositions(Checked):
    """Scores fade linearly with distance; any length."""


@dataclass(frozen=True, kw_only=True)
class BucketPositions(Checked):
    """T5: a learned bias for each head and bucket of distances, shared by all layers; any length."""

    n_buckets: int = 32
    max_distance: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_buckets < 4 or self.n_buckets % 2:
            raise ValueError(f"n_buckets must be even and 4 or more, got {self.n_buckets}")
        if self.max_distance <= self.n_buckets // 2:
            raise ValueError(f"max_distance must be more than n_buckets / 2, got {self.max_distance}")


@dataclass(frozen=True, kw_only=True)
class RelativePositions(Checked):
    """Transformer-XL: the four-term score of equation (6) of the ETH sheet, with sinusoids of the shift; any length."""


# --- positions of an image -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LearnedGrid(Checked):
    """A learned vector for each patch, interpolated for images of another size."""


@dataclass(frozen=True, kw_only=True)
class SinusoidalGrid(Checked):
    """Fixed sinusoids, half of the width for the row and half for the column; any size."""


# --- pooling -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FirstToken(Checked):
    """The output of the first visible token is read: BERT's [CLS], which the tokenizer puts there."""


@dataclass(frozen=True, kw_only=True)
class ClassToken(Checked):
    """CLS: a learned token joins the sequence and its output is read."""


@dataclass(frozen=True, kw_only=True)
class MeanPooling(Checked):
    """GAP: the mean over all tokens."""


@dataclass(frozen=True, kw_only=True)
class AttentionPooling(Checked):
    """MAP: a learned query attends to all tokens."""

    n_heads: Count


# --- what comes out ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ClassificationHead(Checked):
    """One score for each class: pool the tokens, then dense, activation, linear."""

    n_classes: Count
    pooling: "TextPooling"
    activation: Literal["tanh", "relu"] = "tanh"


@dataclass(frozen=True, kw_only=True)
class MaskedLMHead(Checked):
    """Masked language model: one score for each token of the vocabulary, through the transposed embedding table."""

    activation: Activation = "gelu"


@dataclass(frozen=True, kw_only=True)
class EmbeddingHead(Checked):
    """One vector for a text: its tokens pooled and, if `normalised`, of length 1. Reimers & Gurevych, 2019."""

    pooling: "TextPooling"
    normalised: bool = False


@dataclass(frozen=True, kw_only=True)
class NoHead(Checked):
    """No head: the vector of each token."""


@dataclass(frozen=True, kw_only=True)
class TiedLMHead(Checked):
    """Tokens are scored by the transposed embedding table; `scaled` divides by sqrt(d_model) first, as T5 does."""

    scaled: bool = False
    bias: bool = False


@dataclass(frozen=True, kw_only=True)
class UntiedLMHead(Checked):
    """Tokens are scored by a linear map of its own."""

    bias: bool = False


AnyHeads = Heads | SplitHeads
ImageHeads = GaussianHeads | ShiftHeads | QueryShiftHeads | ContentShiftHeads
AnyFeedForward = FeedForward | GatedFeedForward
AnyNorm = LayerNorm | RMSNorm
TextPositions = (
    NoPositions
    | LearnedPositions
    | SinusoidalPositions
    | RotaryPositions
    | AlibiPositions
    | BucketPositions
    | RelativePositions
)
GridPositions = NoPositions | LearnedGrid | SinusoidalGrid
ImagePooling = ClassToken | MeanPooling | AttentionPooling
TextPooling = FirstToken | MeanPooling | AttentionPooling
LMHead = TiedLMHead | UntiedLMHead
EncoderHead = ClassificationHead | MaskedLMHead | EmbeddingHead | NoHead
