"""From the tokens of a sequence to one vector: by a class token, by the mean, by attention, or by your own."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwork import choices, masks
from headwork.layers.attention import MultiHeadAttention
from headwork.layers.feed_forward import FeedForward
from headwork.layers.norm import LayerNorm
from headwork.masks import check_padding


class Pooling(nn.Module):
    """What a pooling of your own has: `forward`, and `join` if it adds a token to those of an image.

    To be saved and loaded, it keeps each argument of its constructor as an attribute of the same name.
    """

    axes = "batch d_model"

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
        self.class_token = nn.Parameter(torch.randn(d_model) * 0.02)

    def join(self, tokens: Float[Tensor, "batch token d_model"]) -> Float[Tensor, "batch longer d_model"]:
        return torch.cat([self.class_token.expand(tokens.shape[0], 1, -1), tokens], dim=1)

    def forward(
        self, tokens: Float[Tensor, "batch token d_model"], visible: Bool[Tensor, "batch token"] | None = None
    ) -> Float[Tensor, "batch d_model"]:
        return tokens[:, 0]


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


def make_pooling(choice: choices.ImagePooling | choices.TextPooling, d_model: int) -> Pooling:
    match choice:
        case choices.ClassToken():
            return ClassTokenPooling(d_model)
        case choices.FirstToken():
            return FirstTokenPooling()
        case choices.MeanPooling():
            return MeanPooling()
        case choices.AttentionPooling():
            return AttentionPooling(d_model, choice.n_heads)
