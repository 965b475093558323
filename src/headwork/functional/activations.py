"""The Gaussian error linear unit, exact and as it is usually approximated; and the squared ReLU."""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def gelu(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    r"""$x\,\Phi(x)$ with the normal distribution function $\Phi(x) = \frac12 (1 + \operatorname{erf}(x/\sqrt2))$.

    Hendrycks and Gimpel, "Gaussian error linear units", 2016. BERT and ViT use this one.

    >>> gelu(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1587,  0.0000,  0.8413])
    """
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def gelu_tanh(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    r"""$\frac12 x\,(1 + \tanh(\sqrt{2/\pi}\,(x + 0.044715\,x^3)))$, the approximation GPT-2 was trained with.

    >>> gelu_tanh(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1588,  0.0000,  0.8412])
    """
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def relu2(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """max(x, 0) squared. So et al., "Primer: searching for efficient Transformers", 2021.

    >>> relu2(torch.tensor([-1.0, 0.5, 3.0]))
    tensor([0.0000, 0.2500, 9.0000])
    """
    return x.relu().square()
