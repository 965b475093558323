"""Layers whose weights are in int8 or 4 bits, in the place of those they were made from. They do not learn."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headwork.functional.embedding import look_up
from headwork.functional.int4 import Int4Matrix
from headwork.functional.int8 import Int8Matrix, round_rows
from headwork.functional.soft_cap import soft_cap
from headwork.layers.embeddings import LMHead, TokenEmbedding
from headwork.layers.linear import OneToken


class Int8Linear(nn.Module):
    """W x + b, where W is rounded to 8 bits row by row, and x token by token; the result has the given precision.

    >>> Int8Linear(nn.Linear(8, 3))(torch.zeros(2, 5, 8)).shape
    torch.Size([2, 5, 3])
    """

    precision = "int8"

    def __init__(self, linear: nn.Linear, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.dtype = dtype
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.matrix = self._round(linear.weight)
        self.bias = _frozen(linear.bias)

    @property
    def weight(self) -> Float[Tensor, "d_out d_in"]:
        """What the rounded weights stand for."""
        return self.matrix.dequantised()

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        check_input(x)
        return self.one_token()(x.reshape(-1, self.in_features)).view(*x.shape[:-1], self.out_features)

    def one_token(self) -> OneToken:
        matrix, bias, dtype = self.matrix, self.bias, self.dtype
        return lambda x: (matrix(x) if bias is None else matrix(x).add_(bias)).to(dtype)

    def extra_repr(self) -> str:
        sizes = f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        return f"{sizes}, {self.precision}"

    def _round(self, weight: Tensor) -> Int8Matrix | Int4Matrix:
        return Int8Matrix(weight)

    def _save_to_state_dict(self, *_: object, **__: object) -> None:
        refuse_to_save(self.precision)


class Int4Linear(Int8Linear):
    """W x + b, where W is rounded to 4 bits by groups of 32, and x to bfloat16.

    >>> Int4Linear(nn.Linear(8, 3))(torch.zeros(2, 5, 8)).shape
    torch.Size([2, 5, 3])
    """

    precision = "int4"

    def one_token(self) -> OneToken:  # defined here too, as `takes_part` asks of each class
        return super().one_token()

    def _round(self, weight: Tensor) -> Int4Matrix:
        return Int4Matrix(weight)


class Int8Embedding(TokenEmbedding):
    """The vectors of tokens in 8 bits, each with its own scale; a head that is `tied` multiplies with the same.

    >>> Int8Embedding(TokenEmbedding(vocab=100, d_model=8), tied=True)(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3, 8])
    """

    def __init__(self, embedding: TokenEmbedding, *, tied: bool) -> None:
        nn.Module.__init__(self)
        self.name, self.scale = embedding.name, embedding.scale
        whole, of_row = round_rows(embedding.table.detach())
        self.whole: Tensor
        self.of_row: Tensor
        self.register_buffer("whole", whole)
        self.register_buffer("of_row", of_row * self.scale)
        self.matrix = Int8Matrix(embedding.table) if tied else None

    def forward(self, ids: Int[Tensor, "batch token"]) -> Float[Tensor, "batch token d_model"]:
        return look_up(ids, self.whole, self.name) * self.of_row[ids][..., None]

    def one_token(self) -> OneToken:
        whole, of_row = self.whole, self.of_row
        return lambda ids: whole[ids[:, 0]] * of_row[ids]

    def extra_repr(self) -> str:
        return f"vocab={self.whole.shape[0]}, d_model={self.whole.shape[1]}, int8"

    def _save_to_state_dict(self, *_: object, **__: object) -> None:
        refuse_to_save()


class Int8LMHead(LMHead):
    """The scores of all tokens, by the table of an `Int8Embedding` or a matrix in int8 of its own.

    >>> embedding = Int8Embedding(TokenEmbedding(vocab=100, d_model=8), tied=True)
    >>> Int8LMHead(LMHead(hw.choices.TiedLMHead(), 100, 8))(torch.zeros(1, 5, 8), embedding).shape
    torch.Size([1, 5, 100])
    """

    def __init__(self, head: LMHead) -> None:
        nn.Module.__init__(self)
        self.vocab, self.d_model, self.scale, self.bias = head.vocab, head.d_model, head.scale, _frozen(head.bias)
        self.matrix = None if head.weight is None else Int8Matrix(head.weight)
        self.softcap = head.softcap

    def forward(
        self, x: Float[Tensor, "batch token d_model"], embedding: TokenEmbedding
    ) -> Float[Tensor, "batch token vocab"]:
        check_input(x)
        return self.one_token(embedding)(x.reshape(-1, self.d_model)).view(*x.shape[:-1], self.vocab)

    def one_token(self, embedding: TokenEmbedding) -> OneToken:
        score, cap = self._score(embedding), self.softcap
        return score if cap is None else lambda x: soft_cap(score(x), cap)

    def _score(self, embedding: TokenEmbedding) -> OneToken:
        matrix, scale, bias = self.matrix, self.scale, self.bias
        if matrix is None:
            assert isinstance(embedding, Int8Embedding)
            matrix = embedding.matrix
        assert matrix is not None
        if scale == 1.0:
            return matrix if bias is None else lambda x: matrix(x).add_(bias)
        return lambda x: matrix(x * scale) if bias is None else matrix(x * scale).add_(bias)

    def extra_repr(self) -> str:
        return f"d_model={self.d_model}, vocab={self.vocab}, tied={self.matrix is None}, int8"

    def _save_to_state_dict(self, *_: object, **__: object) -> None:
        refuse_to_save()


_QUANTISED = (Int8Linear, Int8Embedding, Int8LMHead)


def check_input(x: Tensor) -> None:
    if x.dtype not in (torch.float32, torch.float64) or x.device.type != "cpu":
        raise ValueError(f"x must be in float32 or float64 on the CPU for weights in int8, got {x.dtype} on {x.device}")
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError("x must not require a gradient: none goes through weights in int8; use the float32 model")


def precision_of(model: nn.Module) -> str:
    """int4 or int8 if a part of the model is, else float32: what its matrices are in.

    >>> precision_of(nn.Linear(8, 3)), precision_of(Int8Linear(nn.Linear(8, 3)))
    ('float32', 'int8')
    """
    kinds = {getattr(module, "precision", "int8") for module in model.modules() if isinstance(module, _QUANTISED)}
    return min(kinds, default="float32")


def check_saved(model: nn.Module) -> None:
    if (precision := precision_of(model)) != "float32":
        refuse_to_save(precision)


def refuse_to_save(precision: str = "int8") -> None:
    raise ValueError(
        f"a model in {precision} is not saved: save the one in float32, and quantise it again after loading"
    )


def _frozen(bias: Tensor | None) -> nn.Parameter | None:
    return None if bias is None else nn.Parameter(bias.detach().float().clone(), requires_grad=False)
