"""What several claims measure: which outputs depend on which inputs, shapes that do not fit, times."""

import math
import time
from collections.abc import Callable

import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from headwork.lab.claim import on_one_core


def influence(function: Callable[[Tensor], Tensor], x: Float[Tensor, "token d"]) -> Float[Tensor, "out_token token"]:
    """How much each output token depends on each input token: the norm of each block of the Jacobian.

    >>> influence(lambda x: x.cumsum(0), torch.randn(3, 1))
    tensor([[1., 0., 0.],
            [1., 1., 0.],
            [1., 1., 1.]])
    """
    jacobian: Tensor = torch.autograd.functional.jacobian(function, x, vectorize=True)  # type: ignore[no-untyped-call]
    return jacobian.square().sum((1, 3)).sqrt()


def shape_of(x: Tensor | ndarray) -> str:
    """The shape of an array in words.

    >>> shape_of(torch.zeros(2, 3))
    '2 x 3'
    """
    return " x ".join(map(str, x.shape))


def exists(formula: Callable[[], object]) -> bool:
    """Whether a formula can be computed as it is printed: not if the shapes do not fit.

    >>> exists(lambda: torch.zeros(2, 3) @ torch.zeros(2, 3))
    False
    """
    try:
        formula()
    except (RuntimeError, ValueError, TypeError):
        return False
    return True


def product_as_printed(a: Tensor, b: Tensor) -> str:
    """Whether the product of two matrices exists, in words.

    >>> product_as_printed(torch.zeros(2, 3), torch.zeros(2, 3))
    '2 x 3 times 2 x 3 does not exist'
    """
    return f"{shape_of(a)} times {shape_of(b)} {'exists' if exists(lambda: a @ b) else 'does not exist'}"


def density_of_ties(n: int) -> float:
    """How dense the gap between the best two of n standard normal numbers is at 0: n (n - 1) times the integral of
    phi^2 Phi^(n - 2), by the rule of trapezoids.

    >>> round(density_of_ties(2), 4), round(1 / math.sqrt(math.pi), 4)
    (0.5642, 0.5642)
    """
    x = torch.linspace(-10, 10, 20_001, dtype=torch.float64)
    density, below = torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi), torch.special.ndtr(x)
    return n * (n - 1) * torch.trapezoid(density.square() * below ** (n - 2), x).item()


def density_of_triple_ties(n: int) -> float:
    """How dense the two gaps between the best three of n standard normal numbers are at 0, 0: n (n - 1) (n - 2) times
    the integral of phi^3 Phi^(n - 3).

    >>> density_of_triple_ties(2)
    0.0
    """
    x = torch.linspace(-10, 10, 20_001, dtype=torch.float64)
    density, below = torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi), torch.special.ndtr(x)
    return n * (n - 1) * (n - 2) * torch.trapezoid(density**3 * below ** max(n - 3, 0), x).item()


def mean_over_ties(function: Callable[[Tensor], Tensor], n: int, spread: float) -> float:
    """The mean of a function of n normal scores with a large standard deviation, to the second order in 1 / spread.

    The function sees the last axis, does not change if all scores move, and is 0 if one score is far above the others.
    Only the best two count to the first order. To the second, a third comes close, and the gap of the best two is not
    quite uniform. For many spreads take `tie_terms` once.

    >>> two_weights = lambda scores: scores.softmax(-1).amin(-1)  # its integral over all gaps is ln 2
    >>> round(mean_over_ties(two_weights, 2, 100.0) * 100 / density_of_ties(2), 3)
    0.693
    """
    first, second = tie_terms(function, n)
    return first / spread + second / spread**2


def tie_terms(function: Callable[[Tensor], Tensor], n: int) -> tuple[float, float]:
    """What `mean_over_ties` divides by the spread, and by its square."""
    g = torch.arange(0, 40, 0.05, dtype=torch.float64)
    two = function(torch.stack([torch.zeros_like(g), -g], -1))
    second = g[:, None].expand(len(g), len(g))
    three = function(torch.stack([torch.zeros_like(second), -second, -second - g], -1))
    first = torch.trapezoid(two, g).item()
    third = torch.trapezoid(torch.trapezoid(three - two[:, None], g), g).item()
    uneven = torch.trapezoid(g * two, g).item() / 2
    return density_of_ties(n) * first, density_of_triple_ties(n) * (third - uneven)


def best_times(functions: list[Callable[[], object]], *, rounds: int) -> list[float]:
    """Seconds that one core works on each function: the best of several rounds, one after the other in each.

    It is the time of this thread alone, so that other programs on the machine do not count.

    >>> seconds = best_times([lambda: sum(range(10)), lambda: sum(range(10_000))], rounds=3)
    >>> len(seconds)
    2
    """
    best = [float("inf")] * len(functions)
    with on_one_core():
        for _ in range(rounds):
            for index, function in enumerate(functions):
                start = time.thread_time()
                function()
                best[index] = min(best[index], time.thread_time() - start)
    return best
