"""Who may come in: probes by raw sockets, as a page on the internet, another user or a rebound name would send them."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from headwork.explorer import questions as q
from headwork.explorer.answers import Part, decode
from headwork.explorer.guard import HEADERS, Guard
from headwork.explorer.questions import Progress, Question
from headwork.explorer.server import Handler, Server, page_files
from headwork.explorer.worker import Worker

SECRET = "what the model says"


def answer(question: Question, progress: Progress) -> Iterator[Part]:
    yield Part({"kind": "part", "secret": SECRET, "question": type(question).__name__})


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    worker = Worker(answer)
    with Server(worker) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield made
        made.shutdown()
    worker.close()


BODY = json.dumps({"visitor": "v", "place": "p", "number": 1, "question": {"question": "Describe"}})


def request(
    server: Server, *, method: str = "POST", path: str = "/ask", body: str = BODY, **headers: str | None
) -> bytes:
    """The bytes of a request as the page sends it, with some headers changed or (None) left out."""
    usual = {
        "Host": f"127.0.0.1:{server.guard.port}",
        "Origin": f"http://127.0.0.1:{server.guard.port}",
        "Sec-Fetch-Site": "same-origin",
        "Authorization": f"Bearer {server.guard.token}",
        "Content-Type": "application/json",
        "Content-Length": str(len(body.encode())),
    }
    sent = usual | {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items() if value is not None)]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode("utf-8", "surrogateescape")


def is_closed(connection: socket.socket) -> bool:
    """After one byte more, and a moment."""
    time.sleep(0.05)
    try:
        connection.sendall(b"X")
    except OSError:
        return True
    return False


def exchange(server: Server, data: bytes, seconds: float = 60.0) -> bytes:
    with socket.create_connection(("127.0.0.1", server.guard.port), timeout=seconds) as connection:
        connection.sendall(data)
        found = b""
        try:
            while more := connection.recv(65536):
                found += more
        except ConnectionResetError:
            pass
        return found


@pytest.mark.parametrize("path", ["/engine/ask.js", "/living.js", "/recorded.js", "/widget.js", "/index.html"])
def test_what_the_page_does_not_load_is_not_served(server: Server, path: str) -> None:
    nothing = {"Authorization": None, "Content_Type": None, "Content_Length": None, "Origin": None}
    assert b" 404 " in exchange(server, request(server, method="GET", path=path, body="", **nothing)).splitlines()[0]


def test_the_page_gets_its_answer(server: Server) -> None:
    head, _, body = exchange(server, request(server)).partition(b"\r\n\r\n")
    assert b" 200 " in head
    parts = list(decode(body))
    assert [part.header["kind"] for part in parts] == ["part", "done"]
    assert parts[0].header["secret"] == SECRET
    for name, value in HEADERS.items():
        assert f"{name}: {value}".encode() in head
    assert b"access-control" not in head.lower()


FOREIGN: dict[str, dict[str, str | None]] = {
    "a host of somebody else": {"Host": "evil.example"},
    "a name that was bound anew": {"Host": "evil.example:{port}"},
    "a name that ends like ours": {"Host": "127.0.0.1.evil.example:{port}"},
    "our name at another port": {"Host": "127.0.0.1:1"},
    "our name without a port": {"Host": "127.0.0.1"},
    "no host": {"Host": None},
    "an empty host": {"Host": ""},
    "two names in one": {"Host": "127.0.0.1:{port}, evil.example"},
    "a user before the host": {"Host": "evil@127.0.0.1:{port}"},
    "another address of this machine": {"Host": "127.0.0.2:{port}"},
    "the address that means all": {"Host": "0.0.0.0:{port}"},
    "a decimal address": {"Host": "2130706433:{port}"},
    "a page of somebody else": {"Origin": "https://evil.example"},
    "a page without an origin": {"Origin": "null"},
    "an empty origin": {"Origin": ""},
    "a page of another port": {"Origin": "http://127.0.0.1:1"},
    "an origin that begins like ours": {"Origin": "http://127.0.0.1:{port}.evil.example"},
    "an origin with a user": {"Origin": "http://127.0.0.1:{port}@evil.example"},
    "a file": {"Origin": "file://"},
    "sent by another site": {"Sec_Fetch_Site": "cross-site"},
    "sent by a sibling": {"Sec_Fetch_Site": "same-site"},
    "sent by nobody knows whom": {"Sec_Fetch_Site": "elsewhere"},
    "without the token": {"Authorization": None},
    "an empty token": {"Authorization": "Bearer "},
    "a wrong token": {"Authorization": "Bearer " + "A" * 43},
    "the beginning of the token": {"Authorization": "Bearer {half}"},
    "another way to say the token": {"Authorization": "Basic {token}"},
    "the token alone": {"Authorization": "{token}"},
    "the token twice": {"Authorization": "Bearer {token}\r\nAuthorization: Bearer {token}"},
    "a token that is no ASCII": {"Authorization": "Bearer é"},
    "a form": {"Content_Type": "application/x-www-form-urlencoded"},
    "plain text, which needs no leave": {"Content_Type": "text/plain"},
    "no type": {"Content_Type": None},
    "no length": {"Content_Length": None},
    "a length that is none": {"Content_Length": "ten"},
    "a negative length": {"Content_Length": "-1"},
    "a large body": {"Content_Length": "3000000"},
    "a huge body": {"Content_Length": "99999999999999999999"},
    "chunks": {"Transfer_Encoding": "chunked"},
    "two lengths": {"Content_Length": "10\r\nContent-Length: 11"},
    "two hosts": {"Host": "127.0.0.1:{port}\r\nHost: evil.example"},
    "a web socket": {"Upgrade": "websocket"},
}
ODD: dict[str, tuple[str, str]] = {
    "GET of the question": ("GET", "/ask"),
    "PUT": ("PUT", "/ask"),
    "DELETE": ("DELETE", "/ask"),
    "OPTIONS, which asks for leave": ("OPTIONS", "/ask"),
    "HEAD": ("HEAD", "/ask"),
    "TRACE": ("TRACE", "/ask"),
    "a method of its own": ("EXPLORE", "/ask"),
    "a file above": ("GET", "/../server.py"),
    "a file above, hidden": ("GET", "/%2e%2e/server.py"),
    "a file above, twice hidden": ("GET", "/%252e%252e/server.py"),
    "a file above, with backslashes": ("GET", "/..\\server.py"),
    "two slashes": ("GET", "//evil.example/"),
    "a whole address": ("GET", "http://evil.example/"),
    "a file of the machine": ("GET", "/etc/passwd"),
    "the folder of the page": ("GET", "/panes/"),
    "a name with a question": ("GET", "/main.js?x=../"),
    "a name with a zero": ("GET", "/main.js%00"),
    "another place to ask": ("POST", "/ask/"),
    "the page, posted": ("POST", "/"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_stranger_gets_nothing(server: Server, name: str) -> None:
    said = {"port": server.guard.port, "token": server.guard.token, "half": server.guard.token[:20]}
    changed = {key: value and value.format(**said) for key, value in FOREIGN[name].items()}
    ways = [changed]
    if host := changed.get("Host"):  # a page of that name, and a program that says nothing of a page
        ways = [changed | {"Origin": f"http://{host}"}, changed | {"Origin": None, "Sec_Fetch_Site": None}]
    for way in ways:
        found = exchange(server, request(server, **way))
        assert SECRET.encode() not in found
        assert not found or b" 200 " not in found.splitlines()[0]
        assert found.partition(b"\r\n\r\n")[2] == b""


@pytest.mark.parametrize(
    ("name", "status"),
    [("a large body", 413), ("no length", 411), ("without the token", 401), ("plain text, which needs no leave", 415)],
)
def test_a_refusal_comes_before_the_body_is_read(server: Server, name: str, status: int) -> None:
    found = exchange(server, request(server, **FOREIGN[name]))
    assert f" {status} ".encode() in found.splitlines()[0]


@pytest.mark.parametrize("name", ODD)
def test_an_odd_request_gets_nothing(server: Server, name: str) -> None:
    method, path = ODD[name]
    found = exchange(server, request(server, method=method, path=path))
    assert SECRET.encode() not in found
    assert not found or b" 200 " not in found.splitlines()[0]
    assert found.partition(b"\r\n\r\n")[2] == b""


@pytest.mark.slow
@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01\x02\x00\x01", b"hello\r\n\r\n", b"GET\r\n\r\n", b"\r\n\r\n", b"\0" * 99]
)
def test_what_is_no_http_gets_nothing(server: Server, data: bytes) -> None:
    assert SECRET.encode() not in exchange(server, data)


def test_a_header_without_end_is_cut_off(server: Server) -> None:
    try:
        found = exchange(server, b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000)
    except OSError:
        found = b""
    assert b" 200 " not in found[:20]


@pytest.mark.parametrize(
    "body",
    ["", "{", "[]", "null", '{"question": 3}', '{"visitor": "v", "place": 3, "number": 1, "question": {"question": "Describe"}}', "[" * 9000, '{"question": {"question": "Read", "about": {"input": {"pixels": [NaN]}}}}', '{"question": {"question": []}}', '{"question": {"question": {}}}'],
)  # fmt: skip
def test_with_the_token_nonsense_gets_a_sentence(server: Server, body: str) -> None:
    found = exchange(server, request(server, body=body)).partition(b"\r\n\r\n")[2]
    [part] = decode(found)
    assert part.header["kind"] == "refused"
    assert part.header["sentence"]


def test_the_page_itself_can_be_followed_from_anywhere_but_not_used_elsewhere(server: Server) -> None:
    nothing = {"Authorization": None, "Content_Type": None, "Content_Length": None, "Origin": None}
    followed = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    page = exchange(server, request(server, method="GET", path="/", body="", **nothing, **followed))
    assert b" 200 " in page.splitlines()[0]
    script = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "script"}
    assert b" 403 " in exchange(server, request(server, method="GET", path="/main.js", body="", **nothing, **script))
    framed = followed | {"Sec_Fetch_Dest": "iframe"}
    assert b" 403 " in exchange(server, request(server, method="GET", path="/", body="", **nothing, **framed))


def test_all_files_of_the_page_are_served_and_nothing_is_in_the_address_that_is_sent(server: Server) -> None:
    assert server.url.partition("#")[2] == f"token={server.guard.token}"
    assert len(server.guard.token) >= 43
    for path, (kind, data) in page_files().items():
        found = exchange(server, request(server, method="GET", path=path, body="", Content_Length=None))
        assert found.partition(b"\r\n\r\n")[2] == data
        assert kind.encode() in found


def test_whoever_has_the_token_is_answered_beside_255_connections_that_drip(server: Server) -> None:
    """A limit on their number would refuse the page as well: nobody can be told apart before asking."""
    dripping = [socket.create_connection(("127.0.0.1", server.guard.port), timeout=60) for _ in range(255)]
    try:
        for _ in range(3):
            for connection in dripping:
                connection.sendall(b"X")
            assert SECRET.encode() in exchange(server, request(server))
    finally:
        for connection in dripping:
            connection.close()


@pytest.mark.slow
def test_half_open_connections_are_closed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handler, "timeout", 0.4)
    opened = [socket.create_connection(("127.0.0.1", server.guard.port), timeout=60) for _ in range(200)]
    for connection in opened[:30]:
        connection.sendall(b"POST /ask HTTP/1.1\r\nHost: 127")
    for connection in opened:
        with contextlib.suppress(ConnectionError):
            assert connection.recv(1) == b""
        connection.close()
    assert b" 200 " in exchange(server, request(server))


def test_it_listens_on_this_machine_only(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_said(server: Server) -> None:
    with pytest.raises(ValueError, match=f"port must be free, got {server.guard.port}"):
        Server(server.worker, server.guard.port)


def test_a_proxy_that_was_allowed_may_ask_by_its_name() -> None:
    headers = {
        "host": ["hub.example.org"], "origin": ["https://hub.example.org"], "authorization": ["Bearer t"],
        "content-type": ["application/json"], "content-length": ["2"],
    }  # fmt: skip
    assert Guard(80, "t", ("hub.example.org",)).refusal("POST", "/ask", headers, {}) == 0
    assert Guard(80, "t").refusal("POST", "/ask", headers, {}) == 403
    with pytest.raises(ValueError, match="allow_host must be a name"):
        Guard(80, "t", ("http://hub.example.org/",))


def test_two_browsers_at_once(server: Server) -> None:
    bodies = [
        json.dumps({"visitor": v, "place": "p", "number": 1, "question": q.question_to_json(q.Describe())})
        for v in "ab"
    ]
    found = [exchange(server, request(server, body=body)) for body in bodies]
    assert all(SECRET.encode() in each for each in found)
