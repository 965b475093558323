"""Whether this processor can multiply in half precision: some announce a unit for it that then kills the process.

So another process tries first, once, and only when half precision is asked for.
"""

import platform
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

CPU_INFO = Path("/proc/cpuinfo")
HALF = (torch.bfloat16, torch.float16)
ANSWERS: dict[torch.dtype, str] = {}
"""What the trials in this process have said: what went wrong, or nothing if all is well."""

_TRIAL = """
import sys, torch
from torch.nn import functional as F

torch.set_num_threads(1)  # nothing here is large
dtype = getattr(torch, sys.argv[1])
def some(*shape):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)
def go_back(*results):
    for result in results:
        assert result.isfinite().all()
        result.float().square().mean().backward()

for n, d in ((3, 8), (5, 33), (64, 64), (200, 128)):
    go_back(F.linear(some(2, n, d), some(2 * d, d), some(2 * d)), F.linear(some(n, d), some(7, d)))
    go_back(some(n, d) @ some(d, n), some(2, 3, n, d) @ some(2, 3, d, n), some(3, n, d) @ some(3, d, 5))
    q, k, v, bias = some(2, 4, n, d), some(2, 4, n, d), some(2, 4, n, d), torch.zeros(n, n, dtype=dtype)
    attend = F.scaled_dot_product_attention
    go_back(attend(q, k, v), attend(q, k, v, is_causal=True), attend(q, k, v, attn_mask=bias))
    go_back(attend(q, k, some(2, 4, n, 5)), attend(q[:, :, :1], k, v))
for d, width in ((1, 4), (3, 16), (16, 32)):
    images = some(2, d, 16, 16)
    go_back(F.conv2d(images, some(width, d, 4, 4), some(width), stride=4))
    go_back(*(F.conv2d(images, some(width, d, 3, 3), stride=stride, padding=1) for stride in (1, 2)))
with torch.autocast("cpu", dtype):
    x = torch.randn(64, 64, requires_grad=True)
    go_back(F.linear(x, torch.randn(64, 64), torch.randn(64)).relu())
"""


def has_numbers(t: Tensor) -> bool:
    """False while a call is only being traced or transformed (meta, fake, compiled tensors; torch.func).

    Then no number can be looked at, or what is done must not depend on it.

    >>> has_numbers(torch.zeros(2)), has_numbers(torch.zeros(2, device="meta"))
    (True, False)
    """
    return not (t.is_meta or is_transformed() or isinstance(t.view(t.shape), FakeTensor))


def is_transformed() -> bool:
    """Whether torch.compile, torch.jit.trace or a transform of torch.func (vmap, grad) is at work.

    >>> torch.vmap(lambda x: x + is_transformed())(torch.zeros(2))
    tensor([1., 1.])
    """
    return torch.compiler.is_compiling() or torch._C._is_tracing() or is_under_func()


def is_under_func() -> bool:
    """Whether a transform of torch.func (vmap, grad) is at work, which sees through no kernel of ours."""
    return torch._C._are_functorch_transforms_active()


def check_products(x: Tensor) -> None:
    """Raise if products of such numbers are known to fail on this processor: a sentence instead of a dead process.

    Whatever is not in half precision on a CPU passes at once; nothing is tried for it.
    """
    if x.dtype in HALF or torch.is_autocast_enabled("cpu"):
        _check_half(x)


def _check_half(x: Tensor) -> None:
    if x.device.type != "cpu" or x.dtype == torch.float64:  # which autocast leaves alone
        return
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
    if torch.compiler.is_compiling():
        problem = _try_while_compiling(dtype)
    elif ANSWERS.get(dtype) == "" or isinstance(x.view(x.shape), FakeTensor):  # which is never multiplied
        return
    else:
        problem = try_half(dtype)
    if problem:
        raise ValueError(say_problem("dtype", dtype, problem))


def processor_name(info: Path = CPU_INFO) -> str:
    """What the processor calls itself; where the system does not say, its kind."""
    try:
        lines = info.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):  # not Linux
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def say_problem(argument: str, dtype: torch.dtype, problem: str) -> str:
    """The sentence for whoever asks for what cannot be done here.

    >>> say_problem("dtype", torch.bfloat16, "died of SIGILL").split(".")[0]
    'dtype must be float32 on this machine, got bfloat16: a trial of it in another process died of SIGILL'
    """
    return (
        f"{argument} must be float32 on this machine, got {name_of(dtype)}: "
        f"a trial of it in another process {problem}. On processors that announce AMX and cannot do it, "
        "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 may help"
    )


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def try_half(dtype: torch.dtype) -> str:
    """What went wrong when another process computed as the models do; nothing if all is well. Tried once."""
    if dtype not in ANSWERS:
        ANSWERS[dtype] = run_trial(_TRIAL, name_of(dtype))
    return ANSWERS[dtype]


def _try_while_compiling(dtype: torch.dtype) -> str:
    return try_half(dtype)


# What torch.compiler.assume_constant_result does; calling it would import the whole compiler, a second for everybody.
_try_while_compiling._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def is_amd() -> bool:
    """Whether the processor is one of AMD's, for which MKL has no kernels of its own."""
    names = CPU_INFO.read_text(errors="replace") if CPU_INFO.is_file() else platform.processor()
    return "AuthenticAMD" in names and torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]


def run_trial(code: str, *arguments: str) -> str:
    """What went wrong when another process ran this; nothing if all is well."""
    child = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    if child.returncode == 0:
        return ""
    if child.returncode < 0:
        return f"died of {signal.Signals(-child.returncode).name}"
    said = child.stderr.strip().splitlines() or [f"exit code {child.returncode}"]
    return f"failed ({said[-1]})"
