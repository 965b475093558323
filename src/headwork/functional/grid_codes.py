"""Position codes of a (row, column) grid as the ETH sheet has them: absolute P, relative r, and the Gaussian v."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwork.checks import check_positive
from headwork.functional.gaussian import check_gaussian


def grid_shifts(n_rows: int, n_columns: int) -> Int[Tensor, "row column key_row key_column 2"]:
    r"""The shift $\delta = q - k$ of each pair of pixels, as the sheet writes it (query minus key).

    >>> grid_shifts(2, 3)[1, 2, 0, 0]
    tensor([1, 2])
    """
    check_positive(n_rows=n_rows, n_columns=n_columns)
    pixel = torch.stack(torch.meshgrid(torch.arange(n_rows), torch.arange(n_columns), indexing="ij"), -1)
    return pixel[:, :, None, None] - pixel[None, None, :, :]


def quadratic_codes(shifts: Int[Tensor, "*pair 2"]) -> Float[Tensor, "*pair 3"]:
    r"""$r_\delta = (|\delta|^2,\ \delta_1,\ \delta_2)$ of equation (7): three numbers are enough for a Gaussian head.

    >>> quadratic_codes(torch.tensor([1, 2]))
    tensor([5., 1., 2.])
    """
    delta = shifts.to(torch.get_default_dtype())
    return torch.cat([delta.square().sum(-1, keepdim=True), delta], dim=-1)


def gaussian_vectors(centre: Float[Tensor, "head 2"], alpha: Float[Tensor, "head"]) -> Float[Tensor, "head 3"]:
    r"""$v = -\alpha\,(1,\ -2\Delta_1,\ -2\Delta_2)$ of equation (7), with the sheet's $\Delta = -centre$.

    Then $v \cdot r_\delta = -\alpha\,(|\delta - \Delta|^2 - |\Delta|^2)$: the constant of equation (12) is
    $c = -|\Delta|^2$, and the softmax over the keys does not feel it.

    >>> gaussian_vectors(torch.tensor([[1.0, 0.0]]), torch.tensor([2.0]))
    tensor([[-2., -4., -0.]])
    """
    check_gaussian(centre, alpha)
    return -alpha[:, None] * torch.cat([torch.ones_like(alpha)[:, None], 2 * centre], dim=-1)
