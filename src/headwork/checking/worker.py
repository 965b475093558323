"""What runs beside somebody's program: loads it, makes its modules, calls it, and hands back tensors, never pickles.

This file is started on its own (`python -I worker.py FD`) and imports nothing of headwork: what is expected, and what
is known to go wrong, stays in the process that judges. A message is two lengths, a JSON header and safetensors.
"""

import ast
import contextlib
import importlib
import importlib.metadata
import inspect
import io
import json
import linecache
import os
import re
import signal
import socket
import struct
import sys
import traceback
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors
from torch import Tensor, nn

MODULE = "submission"
LARGEST_ANSWER = 64 * 1024**2
SECONDS_FOR_A_STATEMENT = 5.0
USUAL_VOCABULARY = 23
Header = dict[str, Any]
SIMPLE = (int, float, str, bool, type(None))


installed_version = importlib.metadata.version


def version_of(distribution_name: str) -> str:
    """A package asks for its own version as it is imported, and is a folder here that was never installed."""
    try:
        return installed_version(distribution_name)
    except importlib.metadata.PackageNotFoundError:
        return "0"


class TooSlowError(BaseException):
    """Raised inside of somebody's code by the alarm, so that the line is known where it was."""


def send(connection: socket.socket, header: Header, tensors: Mapping[str, Tensor] | None = None) -> None:
    # A tensor that shares memory with another is written on its own.
    block = write_tensors({name: t.detach().clone().contiguous() for name, t in tensors.items()}) if tensors else b""
    text = json.dumps(header).encode()
    connection.sendall(struct.pack("<QQ", len(text), len(block)) + text + block)


def receive(connection: socket.socket, largest: int = 2**40) -> tuple[Header, dict[str, Tensor]]:
    """Raises EOFError when the other side is gone, ValueError when it sends what is no message."""
    n_text, n_block = struct.unpack("<QQ", _exactly(connection, 16))
    if n_text + n_block > largest:
        raise ValueError(f"an answer of {n_text + n_block} bytes")
    header = json.loads(_exactly(connection, n_text))
    if not isinstance(header, dict):
        raise ValueError("an answer that is no object")
    block = _exactly(connection, n_block)
    return header, read_tensors(block) if block else {}


def _exactly(connection: socket.socket, n: int) -> bytes:
    data = io.BytesIO()
    while data.tell() < n:
        part = connection.recv(min(n - data.tell(), 2**20))
        if not part:
            raise EOFError
        data.write(part)
    return data.getvalue()


@contextlib.contextmanager
def alarm(seconds: float) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TooSlowError

    if not hasattr(signal, "setitimer"):
        yield
        return
    try:
        before = signal.signal(signal.SIGALRM, ring)
    except ValueError:  # not the main thread
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Worker:
    """Answers requests about one program."""

    def __init__(self, names: dict[str, Any] | None = None) -> None:
        self.names: dict[str, Any] = {} if names is None else names
        self.filename = ""
        self.names_of_all: dict[str, Any] = {}
        self.made: list[Any] = []
        self.skipped: list[Header] = []
        self.numpy = False

    def serve(self, connection: socket.socket) -> None:
        while True:
            try:
                request, tensors = receive(connection)
            except EOFError:
                return
            answer, results = self.answer(request, tensors)
            try:
                send(connection, answer, results)
            except (ValueError, TypeError, RuntimeError) as error:
                send(connection, {"error": self.explain(error)})

    def answer(self, request: Header, tensors: dict[str, Tensor]) -> tuple[Header, dict[str, Tensor]]:
        operations: dict[str, Callable[..., tuple[Header, dict[str, Tensor]]]] = {
            "load": self.load,
            "make": self.make,
            "part": self.part,
            "set": self.set,
            "call": self.call,
        }
        operation = request.pop("do")
        seconds = request.pop("seconds", 20.0)
        try:
            with alarm(seconds):
                return operations[operation](tensors=tensors, **request)
        except (KeyboardInterrupt, Exception, SystemExit, TooSlowError) as error:
            return {"error": self.explain(error)}, {}

    def explain(self, error: BaseException) -> Header:
        """What went wrong, and the deepest line of the program that was running."""
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == self.filename]
        return {
            "type": type(error).__name__,
            "message": str(error)[:500],
            "line": lines[-1] if lines else None,
            "missing": getattr(error, "name", None) if isinstance(error, ModuleNotFoundError | NameError) else None,
        }

    def load(
        self, source: str, filename: str, paths: list[str], package: str, double: bool, tensors: dict[str, Tensor]
    ) -> tuple[Header, dict[str, Tensor]]:
        """Run the file, statement by statement: one that fails or takes long is left out, and that is said."""
        torch.set_default_dtype(torch.float64 if double else torch.float32)
        self.filename = filename
        sys.path[:0] = paths
        module = types.ModuleType(MODULE)
        module.__file__, module.__package__ = filename, package
        sys.modules[MODULE] = module
        lines = source.splitlines(keepends=True)
        linecache.cache[filename] = (len(source), None, lines, filename)
        flags = 0
        importlib.metadata.version = version_of
        tree = ast.parse(source, filename)
        self.numpy = {"numpy"} == imported(tree) & {"numpy", "torch"}
        for statement in tree.body:
            if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
                flags |= sum(
                    getattr(importlib.import_module("__future__"), n.name).compiler_flag for n in statement.names
                )
                continue
            if is_main(statement):  # programs keep their sizes there
                for inner in filter(is_plain, statement.body):
                    with contextlib.suppress(Exception):
                        exec(compile(ast.Module([inner], []), filename, "exec", dont_inherit=True), module.__dict__)
                continue
            code = compile(ast.Module([statement], []), filename, "exec", flags=flags, dont_inherit=True)
            try:
                with alarm(SECONDS_FOR_A_STATEMENT):
                    exec(code, module.__dict__)
            except (Exception, SystemExit, TooSlowError) as error:
                self.skipped.append({**self.explain(error), "line": statement.lineno})
                if isinstance(statement, ast.Assign):
                    module.__dict__.update(usual_numbers(statement))
        self.names = {
            name: value
            for name, value in vars(module).items()
            if getattr(value, "__module__", None) == MODULE and not name.startswith("__")
        }
        self.names_of_all = vars(module)
        for value in self.names.values():
            if inspect.isclass(value) and issubclass(value, nn.Module):
                add_forward(value)
        return {
            "names": self.describe(),
            "parts": self.describe_parts(),
            "globals": self.describe_globals(),
            "skipped": self.skipped,
        }, {}

    def describe(self) -> Header:
        found: Header = {}
        for name, value in self.names.items():
            if inspect.isclass(value):
                call = next((m for m in ("forward", "__call__") if m in vars(value) or hasattr(value, "forward")), None)
                found[name] = {
                    "kind": "class",
                    "module": issubclass(value, nn.Module),
                    "bases": [base.__name__ for base in value.__mro__[1:-1]],
                    "init": parameters_of(value.__init__, method=True),
                    "forward": parameters_of(getattr(value, call), method=True) if call else None,
                    "fields": list(getattr(value, "__dataclass_fields__", {})),
                    "methods": [m for m, f in vars(value).items() if inspect.isfunction(f) and not m.startswith("_")],
                    "line": first_line(value),
                }
            elif isinstance(value, nn.Module):
                self.made.append(value.eval())
                found[name] = {
                    "kind": "instance",
                    "module": True,
                    "forward": parameters_of(value.forward),
                    "made": self.describe_module(len(self.made) - 1),
                    "line": first_line(type(value)),
                }
            elif callable(value) and not isinstance(value, type):
                found[name] = {"kind": "function", "call": parameters_of(value), "line": first_line(value)}
        return found

    def describe_parts(self) -> Header:
        """Modules of this file or another that constructors may take."""
        return {
            name: {"kind": "class", "init": parameters_of(value.__init__, method=True)}
            for name, value in self.names_of_all.items()
            if inspect.isclass(value) and issubclass(value, nn.Module) and not value.__module__.startswith("torch")
        }

    def describe_globals(self) -> Header:
        """Whole numbers and configurations, which constructors without arguments take from around them."""
        found: Header = {}
        for name, value in self.names_of_all.items():
            if name.startswith("__"):
                continue
            if isinstance(value, bool | int | float):
                found[name] = value
            elif isinstance(value, dict) and value and all(isinstance(k, str) for k in value):
                found[name] = {"dict": {k: v for k, v in value.items() if isinstance(v, SIMPLE)}}
            elif type(value).__module__ == MODULE and not callable(value) and hasattr(value, "__dict__"):
                found[name] = {"object": {k: v for k, v in vars(value).items() if isinstance(v, SIMPLE)}}
        return found

    def describe_module(self, key: int) -> Header:
        made = self.made[key]
        if not isinstance(made, nn.Module):
            return {
                "id": key,
                "type": type(made).__name__,
                "parameters": {n: list(p.shape) for n, p in weights_of(made).items()},
                "buffers": {},
                "modules": {},
                "numbers": numbers_of(made),
                "plain": [],
            }
        return {
            "id": key,
            "type": type(made).__name__,
            "parameters": {n: list(p.shape) for n, p in weights_of(made).items()},
            "plain": list(plain_tensors(made)),
            "buffers": {n: list(b.shape) for n, b in made.named_buffers()},
            "modules": {n: type(m).__name__ for n, m in made.named_modules()},
            "numbers": numbers_of(made),
            "inner": {
                f"{n}.{k}": v
                for n, m in made.named_modules()
                for k, v in vars(m).items()
                if n
                and isinstance(v, int)
                and not isinstance(v, bool)
                and "head" in k.lower() + "head" * (k in ("h", "nhead"))
            },
            "settings": {
                f"{n}.{k}": v
                for n, m in made.named_modules()
                for k, v in vars(m).items()
                if k in ("eps", "p", "approximate", "variance_epsilon") and isinstance(v, int | float | str)
            },
        }

    def decode(self, value: Any, tensors: dict[str, Tensor]) -> Any:
        if isinstance(value, list):
            return [self.decode(v, tensors) for v in value]
        if not isinstance(value, dict):
            return value
        kind, content = next(iter(value.items()))
        if kind == "tensor":
            if value.get("complex"):
                return torch.view_as_complex(tensors[content])
            return tensors[content].numpy() if self.numpy else tensors[content]
        if kind == "tuple":
            return tuple(self.decode(v, tensors) for v in content)
        if kind == "made":
            return self.made[content]
        if kind == "name":
            return self.names_of_all[content]
        if kind == "config":
            return Config({k: self.decode(v, tensors) for k, v in content.items()})
        if kind == "new":
            kwargs = {k: self.decode(v, tensors) for k, v in value["kwargs"].items()}
            return self.names_of_all[content](*self.decode(value.get("args", []), tensors), **kwargs)
        if kind == "modules":
            return nn.ModuleList([self.decode(v, tensors) for v in content])
        if kind == "device":
            return torch.device(content)
        if kind == "dtype":
            return getattr(torch, content)
        if kind == "module":
            return getattr(nn, content)(*self.decode(value.get("args", []), tensors))
        if kind == "function":
            return getattr(torch, content)
        return {k: self.decode(v, tensors) for k, v in content.items()}

    def encode(self, value: Any, tensors: dict[str, Tensor], depth: int = 0) -> Any:
        if isinstance(value, Tensor):
            if value.numel() * value.element_size() > LARGEST_ANSWER:
                raise ValueError(f"a tensor of shape {tuple(value.shape)} is more than 64 MB")
            key = str(len(tensors))
            real = value.detach().to("cpu")
            real = real.to_dense() if real.is_sparse else real
            tensors[key] = torch.view_as_real(real).clone() if real.is_complex() else real
            return {"tensor": key, "complex": value.is_complex()}
        if isinstance(value, SIMPLE):
            return value
        if type(value).__module__ == "numpy":
            return self.encode(torch.as_tensor(value), tensors, depth)
        if isinstance(value, nn.Module):
            self.made.append(value.eval())
            return {"made": self.describe_module(len(self.made) - 1)}
        if depth > 4:
            return {"other": type(value).__name__}
        if isinstance(value, Mapping):
            return {"dict": {str(k): self.encode(v, tensors, depth + 1) for k, v in value.items()}}
        if isinstance(value, tuple | list) or inspect.isgenerator(value):
            return {"list": [self.encode(v, tensors, depth + 1) for v, _ in zip(value, range(100), strict=False)]}
        if hasattr(value, "__dict__") and vars(value):
            return {
                "dict": {k: self.encode(v, tensors, depth + 1) for k, v in vars(value).items() if not k.startswith("_")}
            }
        return {"other": type(value).__name__}

    def make(
        self, name: str, args: list[Any], kwargs: Header, double: bool, tensors: dict[str, Tensor]
    ) -> tuple[Header, dict[str, Tensor]]:
        torch.manual_seed(0)
        made = self.names[name](*self.decode(args, tensors), **{k: self.decode(v, tensors) for k, v in kwargs.items()})
        dtype = torch.float64 if double else torch.float32
        if isinstance(made, nn.Module):
            made = made.to(dtype).eval()
            fill_lazy(made)
        else:
            for value in getattr(made, "__dict__", {}).values():
                if isinstance(value, nn.Module):
                    value.to(dtype).eval()
        self.made.append(made)
        return self.describe_module(len(self.made) - 1), {}

    def part(self, target: int, path: str, tensors: dict[str, Tensor]) -> tuple[Header, dict[str, Tensor]]:
        self.made.append(self.made[target].get_submodule(path))
        return self.describe_module(len(self.made) - 1), {}

    def set(self, target: int, tensors: dict[str, Tensor]) -> tuple[Header, dict[str, Tensor]]:
        parameters = weights_of(self.made[target])
        with torch.no_grad():
            for name, value in tensors.items():
                parameters[name].copy_(value)
        return {"parameters": {}}, {} if tensors else {name: p.detach() for name, p in parameters.items()}

    def call(
        self,
        target: str | int,
        args: list[Any],
        kwargs: Header,
        tensors: dict[str, Tensor],
        method: str | None = None,
        train: bool = False,
        grads: bool = False,
        seed: int = 0,
    ) -> tuple[Header, dict[str, Tensor]]:
        subject = self.names[target] if isinstance(target, str) else self.made[target]
        if isinstance(subject, nn.Module):
            subject.train(train)
        before = {name: t.clone() for name, t in tensors.items()}
        torch.manual_seed(seed)
        values, named = self.decode(args, tensors), {k: self.decode(v, tensors) for k, v in kwargs.items()}
        for t in tensors.values():
            t.requires_grad_(grads and t.is_floating_point() and not self.numpy)
        with contextlib.redirect_stdout(io.StringIO()), torch.set_grad_enabled(grads):
            named_call = method or ("forward" if not callable(subject) and hasattr(subject, "forward") else None)
            result = (getattr(subject, named_call) if named_call else subject)(*values, **named)
        results: dict[str, Tensor] = {}
        answer: Header = {"result": self.encode(result, results)}
        answer["changed"] = [n for n, t in tensors.items() if not torch.equal(t.nan_to_num(), before[n].nan_to_num())]
        if not isinstance(subject, nn.Module) and not isinstance(target, str):
            kept = {k: v for k, v in getattr(subject, "__dict__", {}).items() if isinstance(v, Tensor)}
            answer["attributes"] = {k: self.encode(v, results) for k, v in kept.items() if v.numel() < 10**6}
        if isinstance(subject, nn.Module):
            answer["attributes"] = {
                f"{path}.{k}".lstrip("."): self.encode(v, results)
                for path, m in subject.named_modules()
                for k, v in vars(m).items()
                if isinstance(v, Tensor) and v.numel() < 10**6
            }
            if grads:
                answer["grads"] = self.gradients(subject, result)
        return answer, results

    def gradients(self, subject: nn.Module, result: Any) -> dict[str, float | None]:
        """The largest gradient of each parameter, None where it got none."""
        subject.zero_grad(set_to_none=True)
        total = sum((t * torch.rand_like(t)).sum() for t in tensors_in(result) if t.requires_grad)
        if isinstance(total, Tensor):
            torch.autograd.backward(total)
        return {n: None if p.grad is None else float(p.grad.abs().max()) for n, p in subject.named_parameters()}


def tensors_in(value: Any, depth: int = 0) -> Iterator[Tensor]:
    """Every tensor of an answer, whatever it is wrapped in."""
    if isinstance(value, Tensor):
        yield value
    elif depth < 4:
        inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else ()
        for v in inner or getattr(value, "__dict__", {}).values():
            yield from tensors_in(v, depth + 1)


def add_forward(kind: type[nn.Module]) -> None:
    """A model with `encode` and `decode` and no forward of its own is given one: decode(encode(source), target)."""
    if kind.forward is not nn.Module.forward or not (hasattr(kind, "encode") and hasattr(kind, "decode")):
        return
    encode, decode = (parameters_of(getattr(kind, m), method=True) or [] for m in ("encode", "decode"))
    last = next((m for m in ("project", "projection", "generate_logits") if callable(getattr(kind, m, None))), None)

    def role(name: str) -> str:
        if "mask" in name.lower():
            return "src_mask" if re.search(r"src|source|enc|mem", name.lower()) else "tgt_mask"
        return "tgt" if re.search(r"tgt|trg|target|dec", name.lower()) else "memory"

    def wanted(p: Header) -> bool:
        return not p["optional"] or "mask" in p["name"].lower()

    def forward(self: Any, src: Tensor, tgt: Tensor, src_mask: Any = None, tgt_mask: Any = None) -> Any:
        sources = [src_mask if "mask" in p["name"].lower() else src for p in encode if wanted(p)]
        given = {"tgt": tgt, "src_mask": src_mask, "tgt_mask": tgt_mask, "memory": self.encode(*sources)}
        result = self.decode(*(given[role(p["name"])] for p in decode if wanted(p)))
        return result if last is None else getattr(self, last)(result)

    kind.forward = forward


def fill_lazy(made: nn.Module, width: int = 12) -> None:
    """Layers that learn their width from their first input (nn.LazyLinear) are given one: vectors of the usual width, or ids."""
    if not any(isinstance(p, nn.parameter.UninitializedParameter) for p in made.parameters()):
        return
    n_required = sum(not p["optional"] for p in parameters_of(made.forward) or [])
    for given in (torch.zeros(2, 5, width), torch.zeros(2, 5, dtype=torch.long)):
        for n in range(n_required, 0, -1):
            with contextlib.suppress(Exception), torch.no_grad():
                made(*([given] * n), *([None] * (n_required - n)))
                return


def plain_tensors(made: nn.Module) -> dict[str, Tensor]:
    """Matrices that a module keeps without registering them: no optimizer sees them."""
    return {
        f"{path}.{name}".lstrip("."): value
        for path, module in made.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, Tensor) and value.is_floating_point() and value.ndim > 1 and value.is_leaf
    }


def weights_of(made: Any) -> dict[str, Tensor]:
    """Parameters by name; of an object that is no module, its tensors and the parameters of its modules."""
    if isinstance(made, nn.Module):
        own: dict[str, Tensor] = dict(made.named_parameters())
        return own or plain_tensors(made)
    return dict(_arrays(made, ""))


GRADIENT = re.compile(r"d_?[WwBb](_?\w{1,3})?|grads?(_.*)?|.*_grads?")


def _arrays(value: Any, path: str, depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    """Tensors and arrays of numbers in an object, in what it is made of, and in lists; gradients are left out."""
    inner = dict(enumerate(value)) if isinstance(value, list | tuple) else getattr(value, "__dict__", {})
    for name, own in inner.items():
        place = f"{path}.{name}".lstrip(".")
        if GRADIENT.fullmatch(str(name)):
            continue
        if isinstance(own, nn.Module):
            yield from ((f"{place}.{n}", p) for n, p in own.named_parameters())
        elif isinstance(own, Tensor):
            if own.is_floating_point() and own.is_leaf:
                yield place, own
        elif type(own).__module__ == "numpy":
            if getattr(own, "ndim", 0) > 0 and own.dtype.kind == "f":
                yield place, torch.from_numpy(own)  # the same memory
        elif depth < 5 and (isinstance(own, list | tuple) or type(own).__module__ not in ("builtins", "numpy.random")):
            yield from _arrays(own, place, depth + 1)


def numbers_of(made: Any) -> dict[str, Any]:
    attributes = getattr(made, "__dict__", {})
    return {n: v for n, v in attributes.items() if isinstance(v, int | float) and not n.startswith("_")}


def serve_names(connection: socket.socket, names: dict[str, Any], known: dict[str, Any]) -> None:
    """Answer about objects that exist already."""
    worker = Worker(names)
    worker.names_of_all = known
    kind = next(iter(names.values()))
    with contextlib.suppress(TypeError):
        worker.filename = inspect.getsourcefile(type(kind) if isinstance(kind, nn.Module) else kind) or ""
    description = {"names": worker.describe(), "parts": worker.describe_parts(), "globals": worker.describe_globals()}
    send(connection, {**description, "skipped": []})
    worker.serve(connection)


def imported(tree: ast.Module) -> set[str]:
    """Packages that a program imports anywhere."""
    found: set[str] = set()
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Import):
            found |= {name.name.split(".")[0] for name in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            found.add((statement.module or "").split(".")[0])
    return found


def usual_numbers(statement: ast.Assign) -> dict[str, int]:
    """A number for what an assignment would have counted in a text that is not there: `vocab_size = len(chars)`."""
    names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return {n: USUAL_VOCABULARY for n in names if re.fullmatch(r"(?i)\w*vocab(ulary)?_?(size|len)|n_?vocab", n)}


def is_main(statement: ast.stmt) -> typing.TypeGuard[ast.If]:
    return isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)


def is_plain(statement: ast.stmt) -> bool:
    """An assignment that calls nothing but len and its like."""
    calls = [ast.unparse(n.func) for n in ast.walk(statement) if isinstance(n, ast.Call)]
    return isinstance(statement, ast.Assign) and set(calls) <= {
        "len",
        "int",
        "float",
        "max",
        "min",
        "sum",
        "range",
        "dict",
        "list",
        "enumerate",
        "torch.device",
    }


class Config(dict[str, Any]):
    """A configuration that is read as `config.x`, `config["x"]` or `config.get("x")`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self:
            raise AttributeError(f"config has no {name!r}")
        return self[name]


def parameters_of(function: Any, method: bool = False) -> list[Header] | None:
    """What a call takes: name, kind, whether there is a default, and the annotation as text."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return None
    found = list(signature.parameters.values())[1 if method else 0 :]
    return [
        {
            "name": p.name,
            "kind": p.kind.name,
            "optional": p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD),
            "default": p.default if isinstance(p.default, SIMPLE) else None,
            "annotation": "" if p.annotation is p.empty else getattr(p.annotation, "__name__", str(p.annotation)),
        }
        for p in found
    ]


def first_line(value: Any) -> int | None:
    try:
        return inspect.getsourcelines(value)[1]
    except (OSError, TypeError):
        return None


def serve_forks(control: socket.socket) -> None:
    """Fork a worker for every request that comes with a connection; a later request ends it and tells how it ended."""
    walls = importlib.import_module("walls")
    walls.adopt_orphans()
    while True:
        text, descriptors, _, _ = socket.recv_fds(control, 65536, 1)
        if not text:
            return
        request = json.loads(text)
        if "reap" in request:
            control.sendall(json.dumps({"status": walls.end(request["reap"])}).encode() + b"\n")
            continue
        child = os.fork()
        if child == 0:
            control.close()
            _become_worker(walls, descriptors[0], request)
        os.close(descriptors[0])
        control.sendall(json.dumps({"pid": child}).encode() + b"\n")


def _become_worker(walls: Any, descriptor: int, request: Header) -> typing.NoReturn:
    connection = socket.socket(fileno=descriptor)
    try:
        try:
            built = walls.build(request, keep=descriptor)
        except walls.MissingWallError as error:
            send(connection, {"missing": error.wall, "why": error.why})
            os._exit(0)
        send(connection, {"built": built})
        Worker().serve(connection)
    except BaseException:
        os._exit(70)
    os._exit(0)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    importlib.import_module("walls")  # before the folder leaves the path again

    sys.path.pop(0)
    torch.set_num_threads(1)
    serve_forks(socket.socket(fileno=int(sys.argv[1])))
