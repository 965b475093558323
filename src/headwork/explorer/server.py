"""The page and its questions over HTTP, from the standard library, for this machine only."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headwork.explorer.answers import Part, encode, refused
from headwork.explorer.guard import HEADERS, SECONDS_TO_WAIT, Guard
from headwork.explorer.one_file import PAGE, modules_of
from headwork.explorer.questions import RefusedError, question_from_json
from headwork.explorer.worker import Worker

TYPES = {name: f"text/{kind}; charset=utf-8" for name, kind in (("html", "html"), ("css", "css"), ("js", "javascript"))}


def page_files() -> dict[str, tuple[str, bytes]]:
    """The page, its style and the modules that it imports, by their path: the only files that are served.

    >>> sorted(page_files())[0]
    '/'
    """
    files = {"/": "index.html", **{f"/{name}": name for name in ("style.css", *modules_of("main.js"))}}
    return {path: (TYPES[name.rpartition(".")[2]], (PAGE / name).read_bytes()) for path, name in files.items()}


class Server(ThreadingHTTPServer):
    """Listens on 127.0.0.1; `url` is the address of the page, with the token behind the `#`."""

    daemon_threads = True
    request_queue_size = 128
    allow_reuse_address = True

    def __init__(self, worker: Worker, port: int = 0, allowed_hosts: tuple[str, ...] = ()) -> None:
        self.worker, self.files = worker, page_files()
        self.guard = Guard(port, secrets.token_urlsafe(32), allowed_hosts)
        try:
            super().__init__(("127.0.0.1", port), Handler)
        except OSError as error:
            if port:
                raise ValueError(f"port must be free, got {port} ({error.strerror}); leave it out for any") from None
            raise
        self.guard = replace(self.guard, port=self.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.guard.port}/#token={self.guard.token}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is nobody's fault, and no news for the terminal."""


class Handler(BaseHTTPRequestHandler):
    """One request, one answer, and the connection is closed."""

    server: Server
    timeout = SECONDS_TO_WAIT
    disable_nagle_algorithm = True
    server_version, sys_version = "headwork", ""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._answer
        raise AttributeError(name)

    def _answer(self) -> None:
        status = self.server.guard.refusal(self.command, self.path, self._headers(), self.server.files)
        if status:
            self._refuse(status)
        elif self.command == "GET":
            kind, data = self.server.files[self.path]
            self._begin(200, {"Content-Type": kind, "Content-Length": str(len(data))})
            self.wfile.write(data)
        else:
            self._answer_question()

    def _headers(self) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, value in self.headers.items():
            found.setdefault(name.lower(), []).append(value.strip())
        return found

    def _answer_question(self) -> None:
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) < length:
            return
        self.connection.settimeout(60)
        self._begin(200, {"Content-Type": "application/octet-stream"})
        try:
            asked: Any = json.loads(body)
            question = question_from_json(asked.get("question") if isinstance(asked, dict) else asked)
            visitor, place, number = (asked.get(name) for name in ("visitor", "place", "number"))
            if not (isinstance(visitor, str) and isinstance(place, str) and isinstance(number, int)):
                raise RefusedError("visitor, place and number must be two words and a number")
            parts = self.server.worker.ask(visitor[:80], place[:80], number, question)
        except (ValueError, RecursionError):
            self._send(refused("The question is not JSON."))
            return
        except RefusedError as error:
            self._send(refused(str(error)))
            return
        for part in parts:
            self._send(part)

    def _send(self, part: Part) -> None:
        self.wfile.write(encode(part))
        self.wfile.flush()

    def _refuse(self, status: int) -> None:
        self._begin(status, {"Content-Length": "0"})

    def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, **HEADERS, "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the library refuses itself says no more than what we refuse."""
        self.close_connection = True
        self.wfile.write(f"HTTP/1.0 {int(code)} \r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())

    def log_message(self, format: str, *values: Any) -> None:  # noqa: A002  # the library's name
        """Nothing of what is asked is written down."""
