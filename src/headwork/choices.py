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

    Fewer `n_kv_heads` than `n_heads` is grouped-query attention: several queries share a key and a value. `softcap`
    keeps the scaled scores between -softcap and softcap, by softcap * tanh(score / softcap), as in Gemma 2.
    """

    n_heads: Count
    d_head: Count | None = None
    d_value: Count | None = None
    n_kv_heads: Count | None = None
    bias: bool = True
    out_bias: bool | None = None
    beta: float | None = None
    qk_norm: "QKNorm | None" = None
    softcap: PositiveNumber | None = None

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


@dataclass(frozen=True, kw_only=True)
class MixtureOfExperts(Checked):
    """A router sends each token to `n_active` of `n_experts` gated networks of width `d_ff`, and adds what they answer.

    They count as the softmax of the router says, with `normalised` so that the chosen ones sum to 1. `d_shared` is the
    width of one more network that sees every token, through a gate. Jiang et al., "Mixtral of experts", 2024.
    """

    n_experts: Count
    n_active: Count
    d_ff: Count
    activation: Activation = "silu"
    bias: bool = False
    normalised: bool = True
    d_shared: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_active > self.n_experts:
            raise ValueError(f"n_active must be at most n_experts={self.n_experts}, got {self.n_active}")


# --- norm ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LayerNorm(Checked):
    eps: PositiveNumber = 1e-5
    bias: bool = True


@dataclass(frozen=True, kw_only=True)
class RMSNorm(Checked):
    eps: PositiveNumber = 1e-6


@dataclass(frozen=True, kw_only=True)
class UnbiasedLayerNorm(Checked):
    """(x - mean) / (deviation + eps) with the unbiased deviation: the norm of "The annotated Transformer", 2018.

    PyTorch's has the biased variance, and eps inside the root.
    """

    eps: PositiveNumber = 1e-6


@dataclass(frozen=True, kw_only=True)
class QKNorm(Checked):
    """Queries and keys are normalised before they are rotated and compared: each head by itself, or all together.

    Dehghani et al., "Scaling vision transformers to 22 billion parameters", 2023. Qwen3 and Gemma 3 normalise each head
    with the same weights, OLMo 2 all heads together.
    """

    norm: "AnyNorm" = RMSNorm()
    per_head: bool = True


# --- residual connections ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SequentialLayer(Checked):
    """Attention, then the feed-forward network, each with a residual connection and a norm as `norm_order` says."""


@dataclass(frozen=True, kw_only=True)
class ParallelLayer(Checked):
    """x + attention(norm(x)) + feed_forward(norm(x)), with two norms or one. Wang and Komatsuzaki, "GPT-J-6B", 2021."""

    shared_norm: bool = False


@dataclass(frozen=True, kw_only=True)
class SandwichLayer(Checked):
    """x + norm(f(norm(x))): a norm on both sides, as in Gemma 2. Ding et al., "CogView", 2021."""


@dataclass(frozen=True, kw_only=True)
class BranchNormLayer(Checked):
    """x + norm(f(x)): a norm behind the branch only, as in OLMo 2. Liu et al., "Swin Transformer V2", 2022."""


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
class LinearScaling(Checked):
    """Every position is divided by `factor`. Chen et al., "Extending context window ...", 2023."""

    factor: PositiveNumber


@dataclass(frozen=True, kw_only=True)
class NTKScaling(Checked):
    """The base grows, so that the slowest pair turns `factor` times slower and the fastest as before.

    "NTK-aware" scaling with a fixed factor (u/bloc97, 2023); see Peng et al., "YaRN", 2023, section 3.1.
    """

    factor: PositiveNumber


@dataclass(frozen=True, kw_only=True)
class Llama3Scaling(Checked):
    """Pairs that turn slowly over `original_max_tokens` are slowed down by `factor`, fast ones are not.

    Less than `low` turns is slow, more than `high` is fast, and in between it is a mean. Llama team, "The Llama 3 herd
    of models", 2024.
    """

    factor: PositiveNumber
    original_max_tokens: Count
    low: PositiveNumber = 1.0
    high: PositiveNumber = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low >= self.high:
            raise ValueError(f"low must be less than high, got low={self.low} and high={self.high}")


@dataclass(frozen=True, kw_only=True)
class YarnScaling(Checked):
    """Pairs with less than `slow` turns over `original_max_tokens` are slowed down by `factor`, those above `fast` not.

    In between the share falls from pair to pair. Queries and keys are multiplied by `attention_factor`, which is
    0.1 ln(factor) + 1 unless given. Peng et al., "YaRN: efficient context window extension", 2023.
    """

    factor: PositiveNumber
    original_max_tokens: Count
    fast: PositiveNumber = 32.0
    slow: PositiveNumber = 1.0
    attention_factor: PositiveNumber | None = None
    whole_pairs: bool = True
    """Whether the pairs at which the share begins and ends to fall are rounded to whole ones."""


RotaryScaling = LinearScaling | NTKScaling | Llama3Scaling | YarnScaling


@dataclass(frozen=True, kw_only=True)
class RotaryPositions(Checked):
    """Queries and keys are rotated by an angle that grows with the position. Su et al., "RoFormer", 2021.

    Only the first `fraction` of the features of each head is rotated; `scaling` slows the rotation down for longer
    texts than the model was trained on; sequences of more than `max_tokens` are refused (None: any length).
    """

    base: PositiveNumber = 10_000.0
    layout: Layout = "halves"
    fraction: PositiveNumber = 1.0
    scaling: RotaryScaling | None = None
    max_tokens: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fraction > 1:
            raise ValueError(f"fraction must lie in (0, 1], got {self.fraction}")


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


@dataclass(frozen=True, kw_only=True)
class LearnedRelativePositions(Checked):
    """A learned code for each shift up to `max_distance`, and beyond it that of the last: q k + q r. Any length.

    With `biases` also a learned score for each shift, and a vector that is added to every query that meets a key.
    Shaw et al., "Self-attention with relative position representations", 2018.
    """

    max_distance: Count
    biases: bool = False


@dataclass(frozen=True, kw_only=True)
class SlidingWindow(Checked):
    """A query sees the newest `n_tokens` keys only, itself included: in these `layers` (counted from 0), or in all.

    `position` are rotary positions of their own for these layers, as in Gemma 3. Child et al., "Sparse Transformers",
    2019; Beltagy et al., "Longformer", 2020; Jiang et al., "Mistral 7B", 2023.
    """

    n_tokens: Count
    layers: tuple[int, ...] | None = None
    position: RotaryPositions | None = None


# --- from an image to tokens ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LinearPatches(Checked):
    """One linear map for every patch. Dosovitskiy et al. (ViT), 2021.

    `norm` normalises the pixels of a patch before the map and its features behind it. Kumar, Dehghani and Houlsby,
    "Dual PatchNorm", 2023.
    """

    norm: bool = False


@dataclass(frozen=True, kw_only=True)
class ConvolutionalStem(Checked):
    """Convolutions of 3 x 3 pixels, with so many channels and d_model at last; the last ones halve the image.

    Tokens are those of a patch of 2, 4, 8, ... pixels, but each sees beyond its patch. Xiao et al., "Early convolutions
    help Transformers see better", 2021.
    """

    widths: tuple[Count, ...]


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
class DistillationToken(Checked):
    """DeiT: a class token and a distillation token join the sequence, both outputs are read. Touvron et al., 2021."""


@dataclass(frozen=True, kw_only=True)
class MeanPooling(Checked):
    """GAP: the mean over all tokens."""


@dataclass(frozen=True, kw_only=True)
class MaxPooling(Checked):
    """The largest value of each feature over all tokens."""


@dataclass(frozen=True, kw_only=True)
class AttentionPooling(Checked):
    """MAP: a learned query attends to all tokens."""

    n_heads: Count


# --- what comes out ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ClassificationHead(Checked):
    """One score for each class: pool the tokens, then dense, activation, linear; without an activation linear alone."""

    n_classes: Count
    pooling: "TextPooling"
    activation: Literal["tanh", "relu"] | None = "tanh"


@dataclass(frozen=True, kw_only=True)
class TokenClassificationHead(Checked):
    """One score for each class at every token: linear or, if `hidden`, linear, norm, ReLU, linear."""

    n_classes: Count
    hidden: bool = False


@dataclass(frozen=True, kw_only=True)
class LinearHead(Checked):
    """A linear map from the pooled vector of an image to its classes."""


@dataclass(frozen=True, kw_only=True)
class MLPHead(Checked):
    """A hidden layer before the classes of an image, as ViT has it before fine-tuning. Dosovitskiy et al., 2021."""

    d_hidden: Count
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
    """Tokens are scored by the transposed embedding table; `scaled` divides by sqrt(d_model) first, as T5 does.

    `softcap` keeps the logits between -softcap and softcap, by softcap * tanh(logit / softcap), as in Gemma 2.
    """

    scaled: bool = False
    bias: bool = False
    softcap: PositiveNumber | None = None


@dataclass(frozen=True, kw_only=True)
class UntiedLMHead(Checked):
    """Tokens are scored by a linear map of its own; `softcap` as in the tied head."""

    bias: bool = False
    softcap: PositiveNumber | None = None


AnyHeads = Heads | SplitHeads
ImageHeads = GaussianHeads | ShiftHeads | QueryShiftHeads | ContentShiftHeads
AnyFeedForward = FeedForward | GatedFeedForward | MixtureOfExperts
AnyLayer = SequentialLayer | ParallelLayer | SandwichLayer | BranchNormLayer
AnyNorm = LayerNorm | RMSNorm | UnbiasedLayerNorm
TextPositions = (
    NoPositions
    | LearnedPositions
    | SinusoidalPositions
    | RotaryPositions
    | AlibiPositions
    | BucketPositions
    | RelativePositions
    | LearnedRelativePositions
)
PatchEmbedding = LinearPatches | ConvolutionalStem
GridPositions = NoPositions | LearnedGrid | SinusoidalGrid
ImagePooling = ClassToken | DistillationToken | MeanPooling | MaxPooling | AttentionPooling
TextPooling = FirstToken | MeanPooling | MaxPooling | AttentionPooling
LMHead = TiedLMHead | UntiedLMHead
ImageHead = LinearHead | MLPHead
EncoderHead = ClassificationHead | TokenClassificationHead | MaskedLMHead | EmbeddingHead | NoHead
