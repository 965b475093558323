"""UC Berkeley, Data C182, Discussion 06, 3(a): four ways from the tokens of an encoder to one vector.

Each is a pooling for `VisionTransformer`: a layer over all tokens, a class token, the mean, and attention.
"""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwork.layers.pooling import AttentionPooling, ClassTokenPooling, MeanPooling, Pooling
from headwork.public import PublicNames

CLS = ClassTokenPooling
GAP = MeanPooling
MAP = AttentionPooling


class FullyConnected(Pooling):
    """A linear map of all tokens at once: it fixes their number, and with it the size of the image.

    >>> FullyConnected(n_tokens=4, d_model=8)(torch.randn(2, 4, 8)).shape
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


__dir__ = PublicNames(__name__)
