"""Whether there are numbers to look at."""

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor


def has_numbers(t: Tensor) -> bool:
    """False while a call is only being traced (meta, fake and compiled tensors), when no number can be looked at.

    >>> has_numbers(torch.zeros(2)), has_numbers(torch.zeros(2, device="meta"))
    (True, False)
    """
    return not (t.is_meta or torch.compiler.is_compiling() or isinstance(t.view(t.shape), FakeTensor))
