"""What a forward pass costs: parameters, floating-point operations by kind, and the memory training would keep."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from headwork.inspection.recording import check_inputs
from headwork.layers.attention import MultiHeadAttention
from headwork.layers.hook_point import HookPoint
from headwork.layers.int8 import precision_of
from headwork.models.model import evaluation_mode
from headwork.tables import Table

Operation = Literal[
    "projections", "scores", "mixing", "attention", "feed-forward", "embedding", "output", "convolution", "other"
]
"""`attention` is scores and mixing together, where a module has no single product for each."""


@dataclass(frozen=True)
class CostRow:
    """The operations of one module itself, not of the modules inside it."""

    name: str
    operation: Operation
    flops: int


@dataclass(frozen=True, repr=False)
class Cost:
    """The price of one forward pass. A multiplication and an addition are 2 FLOPs.

    Matrix products and convolutions are counted; what costs a few operations for each activation (softmax, norms, GELU)
    is not. Causal attention is counted in full, although a kernel may skip the hidden half.
    """

    rows: tuple[CostRow, ...]
    n_parameters: int
    parameter_bytes: int
    activation_bytes: int
    """What autograd keeps for the backward pass, without dropout, beside parameters and inputs."""
    n_tokens: int
    """The longest sequence any attention layer looked at; 0 without attention."""
    n_torch_attention: int = 0
    """How many attention layers are PyTorch's own, inside which nothing has a name."""

    @property
    def flops(self) -> int:
        return sum(row.flops for row in self.rows)

    def by_operation(self) -> dict[Operation, int]:
        """FLOPs of each kind of operation, the largest first."""
        total: defaultdict[Operation, int] = defaultdict(int)
        for row in self.rows:
            total[row.operation] += row.flops
        return dict(sorted(total.items(), key=lambda item: -item[1]))

    @property
    def projections(self) -> int:
        """What attention spends on making queries, keys, values and outputs: it grows with the length n."""
        return self.by_operation().get("projections", 0)

    @property
    def attention(self) -> int:
        """What attention spends on scores and on mixing the values: it grows with n squared (by position: slower)."""
        by_operation = self.by_operation()
        return sum(by_operation.get(operation, 0) for operation in ("scores", "mixing", "attention"))

    @property
    def crossover(self) -> int | None:
        """The number of tokens from which attention products cost as much as projections; None: they never do."""
        return math.ceil(self.n_tokens * self.projections / self.attention) if self.n_tokens else None

    @property
    def whole_crossover(self) -> int | None:
        """The number of tokens from which they cost as much as everything else together."""
        if not self.n_tokens:
            return None
        return math.ceil(self.n_tokens * (self.flops - self.attention) / self.attention)

    def verdict(self) -> str:
        """Which term dominates, and from which length on that changes."""
        if self.n_torch_attention:
            found = f"{self.n_torch_attention} nn.MultiheadAttention"
            return f"The products of {found} are counted, and not told apart: hw.from_torch(model) has names for them."
        if not self.attention:
            return "No attention was seen in this model."
        if self.crossover is None:
            return f"Attention by position costs {self.attention / self.projections:.2g} times the projections."
        larger, smaller = ("attention products", "projections")
        if self.n_tokens < self.crossover:
            larger, smaller = smaller, larger
        ratio = max(self.projections, self.attention) / max(min(self.projections, self.attention), 1)
        return (
            f"At {self.n_tokens:,} tokens the {larger} cost {ratio:.3g} times the {smaller}.\n"
            f"Attention products overtake the projections from {self.crossover:,} tokens on, "
            f"and all else together from {self.whole_crossover:,}."
        )

    def __repr__(self) -> str:
        lines = [
            f"parameters        {self.n_parameters:,} ({_bytes(self.parameter_bytes)})",
            f"activations       {_bytes(self.activation_bytes)} kept for the backward pass",
            f"forward FLOPs     {self.flops:,} ({_short(self.flops)})",
        ]
        for operation, flops in self.by_operation().items():
            lines.append(f"  {operation:<15} {flops:,} ({flops / max(self.flops, 1):.1%})")
        return "\n".join([*lines, self.verdict()])

    def _repr_html_(self) -> str:
        rows = tuple((kind, flops, f"{flops / max(self.flops, 1):.1%}") for kind, flops in self.by_operation().items())
        lines = str(self).splitlines()
        about = "<br>".join(lines[:3] + lines[3 + len(rows) :])
        return f"<p>{about}</p>" + Table(("operation", "FLOPs", "share"), rows).html()


def cost(model: nn.Module, *inputs: Tensor, **keywords: object) -> Cost:
    """Count one forward pass of the model on these inputs, attention products included.

    The run is in evaluation mode; the model is left as it was. Fake tensors cost nothing to count.

    >>> attention = hw.layers.MultiHeadAttention(d_model=64, n_heads=4)
    >>> x = torch.randn(1, 5, 64)
    >>> print(cost(attention, x, x).verdict())
    At 5 tokens the projections cost 25.6 times the attention products.
    Attention products overtake the projections from 128 tokens on, and all else together from 128.
    """
    check_inputs("cost", model, inputs, keywords)
    if (precision := precision_of(model)) != "float32":
        raise ValueError(f"model must be in float32 for its products to be counted, got one in {precision}")
    counter = FlopCounterMode(display=False, custom_mapping=_ALSO_COUNTED)
    calls = _Calls(counter)
    given = [t for t in (*inputs, *keywords.values()) if isinstance(t, Tensor)]
    kept = _KeptForBackward(model, given)
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        evaluation_mode(model),
        calls.watching(model),
        kept.watching(),
        counter,
    ):
        model(*inputs, **keywords)
    return Cost(
        rows=tuple(_rows(model, calls.flops)),
        n_parameters=sum(p.numel() for p in model.parameters()),
        parameter_bytes=sum(p.numel() * p.element_size() for p in model.parameters()),
        activation_bytes=kept.total_bytes,
        n_tokens=calls.n_tokens,
        n_torch_attention=sum(isinstance(module, nn.MultiheadAttention) for module in model.modules()),
    )


class _Calls:
    """FLOPs of each module itself, without those of the modules it calls; and the longest sequence attended to."""

    def __init__(self, counter: FlopCounterMode) -> None:
        self.counter = counter
        self.flops: defaultdict[str, int] = defaultdict(int)
        self.n_tokens = 0
        self.running: list[tuple[str, int]] = []

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        with ExitStack() as hooks:
            for name, module in model.named_modules():
                if not isinstance(module, HookPoint):  # to look at attention weights is to compute them
                    enter = partial(self._enter, name)
                    hooks.callback(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
                    hooks.callback(module.register_forward_hook(self._leave).remove)
            yield

    def _enter(self, name: str, module: nn.Module, inputs: tuple[object, ...], keywords: dict[str, object]) -> None:
        if isinstance(module, MultiHeadAttention):
            attended = [*inputs[:2], keywords.get("x"), keywords.get("memory")]
            self.n_tokens = max(self.n_tokens, *(t.shape[1] for t in attended if isinstance(t, Tensor)))
        self.running.append((name, self.counter.get_total_flops()))

    def _leave(self, module: nn.Module, inputs: object, output: object) -> None:
        name, before = self.running.pop()
        spent = self.counter.get_total_flops() - before
        self.flops[name] += spent
        if self.running:
            self.flops[self.running[-1][0]] -= spent


class _KeptForBackward:
    """Every storage that autograd saves, counted once; parameters, buffers and inputs are there anyway."""

    def __init__(self, model: nn.Module, inputs: list[Tensor]) -> None:
        there_anyway = [*model.parameters(), *model.buffers(), *inputs]
        self.known = {t.untyped_storage()._cdata: t.untyped_storage() for t in there_anyway}
        self.total_bytes = 0

    def watching(self) -> AbstractContextManager[None]:
        return torch.autograd.graph.saved_tensors_hooks(self._count, lambda kept: kept)

    def _count(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self.known:
            self.known[storage._cdata] = storage
            self.total_bytes += storage.nbytes()
        return tensor


def _fused_attention_flops(q: torch.Size, k: torch.Size, v: torch.Size, *_: object, **__: object) -> int:
    batch, head, query, d_head = q
    return 2 * batch * head * query * k[2] * (d_head + v[3])


# torch counts 0 for the kernel that runs on the CPU (pytorch#195460).
_ALSO_COUNTED = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _fused_attention_flops}


def _rows(model: nn.Module, flops_of: Mapping[str, int]) -> Iterator[CostRow]:
    for name, module in model.named_modules():
        flops = flops_of.get(name, 0)
        if flops and isinstance(module, MultiHeadAttention):
            scores = flops * module.d_head // (module.d_head + module.d_value)
            yield CostRow(name, "scores", scores)
            yield CostRow(name, "mixing", flops - scores)
        elif flops:
            yield CostRow(name, _operation(model, name), flops)


def _operation(model: nn.Module, name: str) -> Operation:
    """What a product is for, by the innermost module around it whose class says so.

    A class says it by `operation`, and by `operation_inside` if the modules inside it do something else.
    """
    module = model.get_submodule(name)
    own: Operation | None = getattr(type(module), "operation", None)
    if own is not None:
        return own
    parts = name.split(".") if name else []
    for depth in range(len(parts) - 1, -1, -1):
        around = type(model.get_submodule(".".join(parts[:depth])))
        found = getattr(around, "operation_inside", getattr(around, "operation", None))
        if found is not None:
            return found
    if isinstance(module, nn.Conv2d):
        return "convolution"
    return "output" if parts and parts[-1] == "classifier" else "other"


def _bytes(count: int) -> str:
    value, unit = _scale(count, 1024, ("bytes", "KiB", "MiB", "GiB"))
    return f"{value:,.0f} {unit}" if unit == "bytes" else f"{value:,.1f} {unit}"


def _short(count: int) -> str:
    value, unit = _scale(count, 1000, ("", "K", "M", "G", "T", "P"))
    return f"{value:.3g} {unit}FLOPs"


def _scale(count: float, base: int, units: Sequence[str]) -> tuple[float, str]:
    """The number in the largest of these units that leaves 1 or more of it."""
    power = 0
    while count >= base and power < len(units) - 1:
        count, power = count / base, power + 1
    return count, units[power]
