"""From the tokens of a sequence to one vector: by a class token, by the mean, by attention, or by your own."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwork import choices, masks
from headwork.layers.attention import MultiHeadAttention
from headwork.layers.feed_forward import FeedForward
from headwork.layers.linear import normal
from headwork.layers.norm import LayerNorm
from headwork.masks import check_padding


class Pooling(nn.Module):
    """What a pooling of your own has: `forward`, and `join` if it adds a token to those of an image.

    To be saved and loaded, it keeps each argument of its constructor as an attribute of the same name.
    """

    axes = "batch d_model"
    n_vectors = 1
    """So many vectors of the width d_model, side by side, come out for each image or text."""

    def join(self, tokens: Float[Tensor, "batch token d_model"]) -> Float[Tensor, "batch longer d_model"]:
        """The tokens of an image before the layers, with those of the pooling; the same ones unless it has any."""
        return tokens

    def forward(
        self, tokens: Float[Tensor, "batch token d_model"], visible: Bool[Tensor, "batch token"] | None = None
    ) -> Float[Tensor, "batch d_model"]:
        """One vector from the hidden states, of which `visible` marks the real ones (all of them for an image)."""
        raise NotImplementedError


class ClassTokenPooling(Pooling):
    """CLS: a learned token joins the sequence in front, and only its output is read. Devlin et al. (BERT), 2019.

    >>> pooling = ClassTokenPooling(8)
    >>> tokens = pooling.join(torch.randn(2, 4, 8))
    >>> tokens.shape, pooling(tokens).shape
    (torch.Size([2, 5, 8]), torch.Size([2, 8]))
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.class_token = normal(d_model, spread=0.02)

    def join(self, tokens: Float[Tensor, "batch token d_model"]) -> Float[Tensor, "batch longer d_model"]:
        return torch.cat([self.class_token.expand(tokens.shape[0], 1, -1), tokens], dim=1)

    def forward(
        self, tokens: Float[Tensor, "batch token d_model"], visible: Bool[Tensor, "batch token"] | None = None
    ) -> Float[Tensor, "batch d_model"]:
        return tokens[:, 0]


class DistillationTokenPooling(ClassTokenPooling):
    """DeiT: a class token and a distillation token join in front, and their outputs are read side by side.

    One head for each, averaged, is one linear map of both. Touvron et al., "Training data-efficient image
    transformers", 2021.

    >>> pooling = DistillationTokenPooling(8)
    >>> tokens = pooling.join(torch.randn(2, 4, 8))
    >>> tokens.shape, pooling(tokens).shape
    (torch.Size([2, 6, 8]), torch.Size([2, 16]))
    """

    axes = "batch d_both"
    n_vectors = 2

    def __init__(self, d_model: int) -> None:
        super().__init__(d_model)
        self.distillation_token = normal(d_model, spread=0.02)

    def join(self, tokens: Float[Tensor, "batch token d_model"]) -> Float[Tensor, "batch longer d_model"]:
        both = torch.stack([self.class_token, self.distillation_token])
        return torch.cat([both.expand(len(tokens), 2, -1), tokens], dim=1)

    def forward(
        self, tokens: Float[Tensor, "batch token d_model"], visible: Bool[Tensor, "batch token"] | None = None
    ) -> Float[Tensor, "batch d_both"]:
        return tokens[:, :2].flatten(1)


class FirstTokenPooling(Pooling):
    """The output of the first visible token is read; the tokenizer has put a [CLS] there.

    >>> FirstTokenPooling()(torch.randn(2, 4, 8)).shape
    torch.Size([2, 8])
    """

    def forward(
        self, tokens: Float[Tensor, "batch token d_model"], visible: Bool[Tensor, "batch token"] | None = None
    ) -> Float[Tensor, "batch d_model"]:
        check_padding(visible, (tokens.shape[0], tokens.shape[1]))
        if visible is None:
            return tokens[:, 0]
        first = visible.int().argmax(1)
        return tokens[torch.arange(tokens.shape[0], device=tokens.device), first]


class MeanPooling(Pooling):
    """GAP: the mean over all visible tokens.

    >>> MeanPooling()(torch.randn(2, 4, 8)).shape
    torch.Size([2, 8])
    """

    def forward(
        self, tokens: Float[Tensor, "batch token d_model"], visible: Bool[Tensor, "batch token"] | None = None
    ) -> Float[Tensor, "batch d_model"]:
        check_padding(visible, (tokens.shape[0], tokens.shape[1]))
        if visible is None:
            return tokens.mean(1)
        n_visible = visible.sum(1, keepdim=True).clamp(min=1)
        return tokens.masked_fill(~visible[:, :, None], 0.0).sum(1) / n_visible


class MaxPooling(Pooling):
    """The largest value of each feature over all visible tokens.

    >>> MaxPooling()(torch.randn(2, 4, 8)).shape
    torch.Size([2, 8])
    """

    def forward(
        self, tokens: Float[Tensor, "batch token d_model"], visible: Bool[Tensor, "batch token"] | None = None
    ) -> Float[Tensor, "batch d_model"]:
        check_padding(visible, (tokens.shape[0], tokens.shape[1]))
        if visible is None:
            return tokens.amax(1)
        seen = visible[:, :, None]
        largest = tokens.masked_fill(~seen, -torch.inf).amax(1)
        return largest.masked_fill(~seen.any(1), 0.0)  # where nothing is visible


class AttentionPooling(Pooling):
    """MAP: a learned query attends to all tokens, then a feed-forward network. Zhai et al., "Scaling ViT", 2022.

    >>> AttentionPooling(8, n_heads=2)(torch.randn(2, 4, 8)).shape
    torch.Size([2, 8])
    """

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.d_model, self.n_heads = d_model, n_heads
        self.probe = nn.Parameter(torch.empty(d_model))
        nn.init.xavier_uniform_(self.probe[None])
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.norm = LayerNorm(d_model)
        self.feed_forward = FeedForward(d_model, 4 * d_model)

    def forward(
        self, tokens: Float[Tensor, "batch token d_model"], visible: Bool[Tensor, "batch token"] | None = None
    ) -> Float[Tensor, "batch d_model"]:
        check_padding(visible, (tokens.shape[0], tokens.shape[1]))
        of_keys = None if visible is None else masks.key_padding(visible)
        pooled = self.attention(self.probe.expand(tokens.shape[0], 1, -1), tokens, of_keys)
        return (pooled + self.feed_forward(self.norm(pooled))).squeeze(1)


class FullyConnectedPooling(Pooling):
    """A linear map of all tokens at once: it fixes their number, and with it the size of the image.

    >>> FullyConnectedPooling(n_tokens=4, d_model=8)(torch.randn(2, 4, 8)).shape
    torch.Size([2, 8])
    """

    def __init__(self, n_tokens: int, d_model: int) -> None:
        super().__init__()
        self.n_tokens, self.d_model = n_tokens, d_model
        self.linear = nn.Linear(n_tokens * d_model, d_model)

    def forward(
        self, tokens: Float[Tensor, "batch token d_model"], visible: Bool[Tensor, "batch token"] | None = None
    ) -> Float[Tensor, "batch d_model"]:
        if tokens.shape[1] != self.n_tokens:
            raise ValueError(f"tokens must be {self.n_tokens}, as many as when it was built, got {tokens.shape[1]}")
        return self.linear(tokens.flatten(1))


def make_pooling(choice: choices.ImagePooling | choices.TextPooling, d_model: int) -> Pooling:
    match choice:
        case choices.ClassToken():
            return ClassTokenPooling(d_model)
        case choices.DistillationToken():
            return DistillationTokenPooling(d_model)
        case choices.FirstToken():
            return FirstTokenPooling()
        case choices.MeanPooling():
            return MeanPooling()
        case choices.MaxPooling():
            return MaxPooling()
        case choices.AttentionPooling():
            return AttentionPooling(d_model, choice.n_heads)
