"""Somebody's program in a process of its own: load, make, set, call. Every way to end has its words."""

import contextlib
import json
import math
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from headwork.checking import worker
from headwork.checking.walls import WALLS as WALLS
from headwork.checking.walls import descendants

MOST_PROCESSES = 64
LARGEST_MESSAGE = 128 * 1024**2
MOST_NUMBERS, LARGEST_SIZE = 45_000_000, 2**20
"""Of the parameters of a module: the table of GPT-2's vocabulary has 39 million."""
SECONDS = 20.0
CALLS_OF_A_FILE = 15


class ProgramError(Exception):
    """An exception of the program: its kind, message and line."""

    def __init__(self, kind: str, message: str, line: int | None, missing: str | None = None) -> None:
        super().__init__(": ".join(filter(None, (kind, message))))
        self.kind, self.message, self.line, self.missing = kind, message, line, missing

    @property
    def is_final(self) -> bool:
        """Whether another way to call it would end alike."""
        return self.kind in ("TooSlowError", "MemoryError", "SystemExit") or "can't allocate memory" in self.message


class ProgramDiedError(RuntimeError):
    """The process is gone; the message says how, in words."""


class MissingWallError(RuntimeError):
    """A wall that was asked for cannot be built on this machine."""


@dataclass(frozen=True)
class Walls:
    """Limits of a program: one's own (the default) or somebody else's."""

    untrusted: bool = False
    without: tuple[str, ...] = ()
    memory: int = 4 * 1024**3
    seconds: float = SECONDS
    """How long one call may take; all of a file may take `CALLS_OF_A_FILE` times as long."""


@dataclass(frozen=True)
class Result:
    """What a call returned, with tensors in their places."""

    value: Any
    attributes: dict[str, Tensor] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    grads: dict[str, float | None] = field(default_factory=dict)


class Program:
    """One process that answers about one program."""

    def __init__(
        self,
        connection: socket.socket,
        process: int,
        server: "ForkServer | None",
        walls: Walls,
        folder: Path | None = None,
    ) -> None:
        self.connection, self.process, self.server, self.walls, self.folder = connection, process, server, walls, folder
        self.dead: str | None = None
        self.calls = 0
        self.double = True
        self.seed = 0
        self.errors: list[ProgramError] = []
        self.passed: set[str] = set()
        self.constructed: dict[str | int, dict[str, Any]] = {}
        self.target: str | int = ""
        self.first_seed = int.from_bytes(os.urandom(3))
        self.deadline = float("inf")
        self.counted = 0.0

    def ask(
        self, do: str, tensors: Mapping[str, Tensor] | None = None, **request: Any
    ) -> tuple[dict[str, Any], dict[str, Tensor]]:
        if self.dead is not None:
            raise ProgramDiedError(self.dead)
        self.counted = time.monotonic()
        deadline = self.counted + self.walls.seconds * (8 if do == "load" else 1) + 3
        try:
            self._send({"do": do, "seconds": self.walls.seconds, **request}, tensors, deadline)
            answer, results = worker.receive(self.connection, LARGEST_MESSAGE, partial(self.wait, deadline))
            error = _error_of(answer)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise ProgramDiedError(self.die(None)) from None
        except TimeoutError as late:
            raise ProgramDiedError(self.die(str(late))) from None
        except Exception as unreadable:  # safetensors has one of its own
            words = f"it sent an answer that cannot be read ({unreadable})"
            raise ProgramDiedError(self.die(words)) from None
        if error is not None:
            self.errors.append(error)
            raise error
        return answer, results

    def _send(self, request: dict[str, Any], tensors: Mapping[str, Tensor] | None, deadline: float) -> None:
        self.connection.settimeout(deadline - time.monotonic())
        try:
            worker.send(self.connection, request, tensors)
        except TimeoutError:
            raise TimeoutError(self._late()) from None
        finally:
            self.connection.settimeout(None)

    def wait(self, deadline: float) -> None:
        """Until there is something to read, unless that takes longer, or more processes are started, than it may."""
        while True:
            now = time.monotonic()
            if now > self.deadline:
                raise TimeoutError(f"all of it took more than {CALLS_OF_A_FILE * self.walls.seconds:g} seconds")
            if now > deadline:
                raise TimeoutError(self._late())
            if now > self.counted + 0.1:
                self.counted = now
                if len(descendants(self.process)) > MOST_PROCESSES:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(self.process, signal.SIGKILL)  # at once: its namespace dies with it
                    raise TimeoutError(f"it started more than {MOST_PROCESSES} processes")
            if select.select([self.connection], [], [], 0.1)[0]:
                return

    def _late(self) -> str:
        return f"it did not answer within {self.walls.seconds:g} seconds"

    def die(self, words: str | None) -> str:
        status = self.close()
        if words is None:
            if os.WIFSIGNALED(status):
                name = signal.Signals(os.WTERMSIG(status)).name
                reasons = {"SIGKILL": "it needed more memory or time than it may", "SIGXCPU": "it used too much time"}
                words = f"its process was ended by {name}" + (f": {reasons[name]}" if name in reasons else "")
            else:
                words = f"it ended its own process (exit code {os.WEXITSTATUS(status)})"
        self.dead = words
        return words

    def close(self) -> int:
        with contextlib.suppress(OSError):
            self.connection.close()
        if self.process <= 0:
            return 0
        process, self.process = self.process, 0
        try:
            if self.server is not None:
                return self.server.end(process)
            from headwork.checking.walls import end

            return end(process)
        finally:
            if self.folder is not None:
                shutil.rmtree(self.folder, ignore_errors=True)

    def load(self, source: str, filename: str, paths: Sequence[str], package: str = "") -> dict[str, Any]:
        answer, _ = self.ask(
            "load", source=source, filename=filename, paths=list(paths), package=package, double=self.double
        )
        return answer

    def make(self, name: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> "Made":
        tensors: dict[str, Tensor] = {}
        positional = [_encode(a, tensors) for a in args]
        named = {k: _encode(v, tensors) for k, v in (kwargs or {}).items()}
        answer, _ = self.ask("make", tensors, name=name, args=positional, kwargs=named, double=self.double)
        return Made(self, answer)

    def part(self, made: "Made", path: str) -> "Made":
        """A module inside of one that was made."""
        return Made(self, self.ask("part", target=made.id, path=path)[0])

    def call(
        self,
        target: str | int,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        method: str | None = None,
        train: bool = False,
        grads: bool = False,
    ) -> Result:
        self.calls += 1
        tensors: dict[str, Tensor] = {}
        positional = [_encode(a, tensors) for a in args]
        named = {k: _encode(v, tensors) for k, v in (kwargs or {}).items()}
        if not self.double:
            tensors = {k: t.float() if t.dtype == torch.float64 else t for k, t in tensors.items()}
        answer, results = self.ask(
            "call",
            tensors,
            target=target,
            args=positional,
            kwargs=named,
            method=method,
            train=train,
            grads=grads,
            seed=self.seed,
        )
        attributes = {k: _decode(v, results, self) for k, v in answer.get("attributes", {}).items()}
        changed = tuple(answer["changed"])
        return Result(_decode(answer["result"], results, self), attributes, changed, answer.get("grads", {}))


def _error_of(answer: dict[str, Any]) -> ProgramError | None:
    problem = answer.get("error")
    if problem is None:
        return None
    line, missing = problem["line"], problem.get("missing")
    return ProgramError(str(problem["type"]), str(problem["message"]), line and int(line), missing and str(missing))


@dataclass(frozen=True)
class Made:
    """An object that the program made: an nn.Module, with the shapes of its parameters."""

    program: Program
    facts: dict[str, Any]

    @property
    def id(self) -> int:
        return self.facts["id"]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Raises ProgramError where they are too large to be drawn: a tensor may be expanded from one number."""
        shapes = {name: tuple(shape) for name, shape in self.facts["parameters"].items()}
        n = sum(math.prod(shape) for shape in shapes.values())
        if n > MOST_NUMBERS or any(size > LARGEST_SIZE for shape in shapes.values() for size in shape):
            raise ProgramError("", f"its parameters have {n:,} numbers, and at most {MOST_NUMBERS:,} are drawn", None)
        return shapes

    def set(self, tensors: Mapping[str, Tensor]) -> None:
        if tensors:
            self.program.ask("set", tensors, target=self.id)

    def parameters(self) -> dict[str, Tensor]:
        return self.program.ask("set", {}, target=self.id)[1]


@dataclass(frozen=True)
class As:
    """Something that is made in the program's process: a config, an object of one of its classes, a module of PyTorch."""

    kind: str
    content: Any
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    args: tuple[Any, ...] = ()


def _encode(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        key = str(len(tensors))
        tensors[key] = torch.view_as_real(value).contiguous() if value.is_complex() else value
        return {"tensor": key, "complex": value.is_complex()}
    if isinstance(value, As):
        if value.kind == "new":
            kwargs = {k: _encode(v, tensors) for k, v in value.kwargs.items()}
            return {"new": value.content, "kwargs": kwargs, "args": [_encode(a, tensors) for a in value.args]}
        if value.kind == "module":
            return {"module": value.content, "args": [_encode(a, tensors) for a in value.args]}
        if value.kind == "modules":
            return {"modules": [_encode(v, tensors) for v in value.content]}
        if isinstance(value.content, dict):
            return {value.kind: {k: _encode(v, tensors) for k, v in value.content.items()}}
        return {value.kind: value.content}
    if isinstance(value, Made):
        return {"made": value.id}
    if isinstance(value, tuple):
        return {"tuple": [_encode(v, tensors) for v in value]}
    if isinstance(value, list):
        return [_encode(v, tensors) for v in value]
    if isinstance(value, dict):
        return {"dict": {k: _encode(v, tensors) for k, v in value.items()}}
    return value


def _decode(value: Any, tensors: dict[str, Tensor], program: Program) -> Any:
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        t = tensors[value["tensor"]]
        return torch.view_as_complex(t.contiguous()) if value.get("complex") else t
    if "list" in value:
        return [_decode(v, tensors, program) for v in value["list"]]
    if "dict" in value:
        return {k: _decode(v, tensors, program) for k, v in value["dict"].items()}
    if "made" in value:
        return Made(program, value["made"])
    return None


class ForkServer:
    """A process that has imported PyTorch once and forks a worker for each program."""

    def __init__(self) -> None:
        self.folders: list[Path] = []
        self.control, theirs = socket.socketpair()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg", "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, "-I", "-W", "ignore", worker.__file__, str(theirs.fileno())]
        self.process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL, start_new_session=True
        )
        theirs.close()
        self.lines = self.control.makefile("r")

    def start(self, walls: Walls = Walls(), own: Path | None = None) -> Program:
        """A process for a program; an untrusted one may read the folder of its `own` files."""
        unknown = set(walls.without) - set(WALLS)
        if unknown:
            raise ValueError(f"without_wall must be one of {', '.join(WALLS)}, got {', '.join(sorted(unknown))}")
        folder = Path(tempfile.mkdtemp(prefix="headwork-check-"))
        self.folders.append(folder)
        ours, theirs = socket.socketpair()
        request = {
            "untrusted": walls.untrusted,
            "without": list(walls.without),
            "folder": str(folder),
            "memory": walls.memory,
            "own": None if own is None else str(own),
        }
        socket.send_fds(self.control, [json.dumps(request).encode()], [theirs.fileno()])
        theirs.close()
        try:
            process = self._answer()["pid"]
            program = Program(ours, process, self, walls, folder)
            answer, _ = worker.receive(ours, LARGEST_MESSAGE, partial(program.wait, time.monotonic() + 60))
        except (EOFError, TimeoutError):
            ours.close()
            raise ProgramDiedError("the process for it could not be started") from None
        if "missing" in answer:
            program.close()
            raise MissingWallError(
                f"the wall {answer['missing']!r} cannot be built: {answer['why']}; --without-wall {answer['missing']} does"
                " without it, and --trusted without any"
            )
        return program

    def _answer(self) -> dict[str, Any]:
        line = self.lines.readline()
        if not line:
            raise EOFError
        return json.loads(line)

    def end(self, process: int) -> int:
        try:
            self.control.sendall(json.dumps({"reap": process}).encode())
            return self._answer()["status"]
        except (OSError, EOFError):
            return 0

    def __enter__(self) -> "ForkServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)
        self.lines.close()
        self.control.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)


def fork_with(names: dict[str, Any], known: dict[str, Any], double: bool = True, walls: Walls = Walls()) -> Program:
    """A copy of this process that answers about objects which exist here already (in a notebook, say)."""
    ours, theirs = socket.socketpair()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads are not copied, and the copy runs on one
        process = os.fork()
    if process == 0:
        try:
            ours.close()
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            torch.set_num_threads(1)
            torch.set_default_dtype(torch.float64 if double else torch.float32)
            worker.serve_names(theirs, names, known)
        finally:
            os._exit(0)
    theirs.close()
    program = Program(ours, process, None, walls)
    program.double = double
    return program


def receive_description(program: Program) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a program that was forked with its names says of them."""
    try:
        return worker.receive(program.connection, LARGEST_MESSAGE, partial(program.wait, time.monotonic() + 60))
    except (EOFError, TimeoutError):
        raise ProgramDiedError("the process for it could not be started") from None
