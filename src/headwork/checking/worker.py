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

if typing.TYPE_CHECKING or __package__:
    from headwork.checking import worker_objects as objects
    from headwork.checking import worker_statements as statements
else:  # started on its own, where headwork is not to be imported
    sys.path.insert(0, str(Path(__file__).parent))
    import worker_objects as objects
    import worker_statements as statements

    sys.path.pop(0)

MODULE = "submission"
LARGEST_ANSWER = 64 * 1024**2
LARGEST_HEADER = 4 * 1024**2
SECONDS_FOR_A_STATEMENT = 5.0
Header = dict[str, Any]


class TooSlowError(BaseException):
    """Raised inside of somebody's code by the alarm, so that the line is known where it was."""


def send(connection: socket.socket, header: Header, tensors: Mapping[str, Tensor] | None = None) -> None:
    # A tensor that shares memory with another is written on its own.
    block = write_tensors({name: t.detach().clone().contiguous() for name, t in tensors.items()}) if tensors else b""
    text = json.dumps(header).encode()
    connection.sendall(struct.pack("<QQ", len(text), len(block)) + text + block)


def receive(
    connection: socket.socket, largest: int = 2**40, wait: Callable[[], None] = lambda: None
) -> tuple[Header, dict[str, Tensor]]:
    """Raises EOFError when the other side is gone, ValueError when it sends what is no message.

    `wait` is called before each piece is read, and raises when the message has taken too long.
    """
    n_text, n_block = struct.unpack("<QQ", _exactly(connection, 16, wait))
    if n_text > min(LARGEST_HEADER, largest) or n_block > largest:
        raise ValueError(f"an answer of {n_text + n_block} bytes")
    header = json.loads(_exactly(connection, n_text, wait))
    if not isinstance(header, dict):
        raise ValueError("an answer that is no object")
    block = _exactly(connection, n_block, wait)
    return header, read_tensors(block) if block else {}


def _exactly(connection: socket.socket, n: int, wait: Callable[[], None]) -> bytes:
    data = io.BytesIO()
    while data.tell() < n:
        wait()
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
        importlib.metadata.version = statements.version_of
        tree = ast.parse(source, filename)
        self.numpy = {"numpy"} == statements.imported(tree) & {"numpy", "torch"}
        for statement in tree.body:
            if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
                flags |= sum(
                    getattr(importlib.import_module("__future__"), n.name).compiler_flag for n in statement.names
                )
                continue
            if statements.is_main(statement):  # programs keep their sizes there
                for inner in filter(statements.is_plain, statement.body):
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
                    module.__dict__.update(statements.usual_numbers(statement))
        self.names = {
            name: value
            for name, value in vars(module).items()
            if getattr(value, "__module__", None) == MODULE and not name.startswith("__")
        }
        self.names_of_all = vars(module)
        return {
            "names": self.describe(),
            "parts": self.describe_parts(),
            "globals": self.describe_globals(),
            "skipped": self.skipped,
        }, {}

    def describe(self) -> Header:
        found: Header = {}
        for name, value in self.names.items():
            try:
                facts = self.describe_value(value)
            except Exception as error:  # a class may answer its attributes as it likes, as a ScriptModule does
                self.skipped.append({**self.explain(error), "line": objects.first_line(value)})
            else:
                found |= {} if facts is None else {name: facts}
        return found

    def describe_value(self, value: Any) -> Header | None:
        if inspect.isclass(value):
            if issubclass(value, nn.Module):
                objects.add_forward(value)
            call = next((m for m in ("forward", "__call__") if m in vars(value) or hasattr(value, "forward")), None)
            return {
                "kind": "class",
                "module": issubclass(value, nn.Module),
                "bases": [base.__name__ for base in value.__mro__[1:-1]],
                "init": objects.parameters_of(value.__init__, method=True),
                "forward": objects.parameters_of(getattr(value, call), method=True) if call else None,
                "fields": list(getattr(value, "__dataclass_fields__", {})),
                "methods": [m for m, f in vars(value).items() if inspect.isfunction(f) and not m.startswith("_")],
                "line": objects.first_line(value),
            }
        if isinstance(value, nn.Module):
            self.made.append(value.eval())
            return {
                "kind": "instance",
                "module": True,
                "forward": objects.parameters_of(value.forward),
                "made": self.describe_module(len(self.made) - 1),
                "line": objects.first_line(type(value)),
            }
        if callable(value) and not isinstance(value, type):
            return {"kind": "function", "call": objects.parameters_of(value), "line": objects.first_line(value)}
        return None

    def describe_parts(self) -> Header:
        """Modules of this file or another that constructors may take."""
        return {
            name: {"kind": "class", "init": objects.parameters_of(value.__init__, method=True)}
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
                found[name] = {"dict": {k: v for k, v in value.items() if isinstance(v, objects.SIMPLE)}}
            elif type(value).__module__ == MODULE and not callable(value) and hasattr(value, "__dict__"):
                found[name] = {"object": {k: v for k, v in vars(value).items() if isinstance(v, objects.SIMPLE)}}
        return found

    def describe_module(self, key: int) -> Header:
        made = self.made[key]
        if not isinstance(made, nn.Module):
            return {
                "id": key,
                "type": type(made).__name__,
                "parameters": {n: list(p.shape) for n, p in objects.weights_of(made).items()},
                "buffers": {},
                "modules": {},
                "numbers": objects.numbers_of(made),
                "plain": [],
            }
        return {
            "id": key,
            "type": type(made).__name__,
            "parameters": {n: list(p.shape) for n, p in objects.weights_of(made).items()},
            "plain": list(objects.plain_tensors(made)),
            "buffers": {n: list(b.shape) for n, b in made.named_buffers()},
            "modules": {n: type(m).__name__ for n, m in made.named_modules()},
            "numbers": objects.numbers_of(made),
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
        if isinstance(value, objects.SIMPLE):
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
            objects.fill_lazy(made)
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
        parameters = objects.weights_of(self.made[target])
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
        total = sum((t * torch.rand_like(t)).sum() for t in objects.tensors_in(result) if t.requires_grad)
        if isinstance(total, Tensor):
            torch.autograd.backward(total)
        return {n: None if p.grad is None else float(p.grad.abs().max()) for n, p in subject.named_parameters()}


def serve_names(connection: socket.socket, names: dict[str, Any], known: dict[str, Any]) -> None:
    """Answer about objects that exist already."""
    worker = Worker(names)
    worker.names_of_all = known
    kind = next(iter(names.values()))
    with contextlib.suppress(TypeError, OSError):  # OSError: a class of a notebook
        worker.filename = inspect.getsourcefile(type(kind) if isinstance(kind, nn.Module) else kind) or ""
    description = {"names": worker.describe(), "parts": worker.describe_parts(), "globals": worker.describe_globals()}
    send(connection, {**description, "skipped": worker.skipped})
    worker.serve(connection)


class Config(dict[str, Any]):
    """A configuration that is read as `config.x`, `config["x"]` or `config.get("x")`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self:
            raise AttributeError(f"config has no {name!r}")
        return self[name]


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
