"""Who may come in: the page in this browser, which has the token, and nobody else.

Other pages in the same browser can send requests to 127.0.0.1, and a name that they own can be made to point there; so
can every process of every user of this machine. A request is answered only if its `Host` is ours (a name that was bound
anew has its own), its `Origin` is ours, the browser does not say that another site sent it, and, for all that is
computed, if it has the token, which travels in the part of the address that no browser sends.
"""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass

LARGEST_BODY = 2_000_000
SECONDS_TO_WAIT = 5.0
"""For the next bytes of a request; a connection that keeps sending some has a thread of its own, and stops no other."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}
"""Of every answer. There is no `Access-Control-` header, ever."""
_HOST = re.compile(r"[a-zA-Z0-9.\-]{1,253}|\[[0-9a-fA-F:]{2,39}\]")


@dataclass(frozen=True)
class Guard:
    """What a request must have."""

    port: int
    token: str
    allowed_hosts: tuple[str, ...] = ()
    """Further names by which a proxy that the user trusts asks."""

    def __post_init__(self) -> None:
        for host in self.allowed_hosts:
            if not re.fullmatch(rf"(?:{_HOST.pattern})(?::\d{{1,5}})?", host):
                raise ValueError(f"allow_host must be a name such as hub.example.org, got {host!r}")

    @property
    def hosts(self) -> set[str]:
        own = {f"{name}:{self.port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        return own | set(self.allowed_hosts)

    def refusal(self, method: str, path: str, headers: Mapping[str, list[str]], files: Mapping[str, object]) -> int:
        """The status to refuse with; 0: it may come in. Names of headers are in lower case."""
        if any(len(headers.get(name, [])) > 1 for name in ("host", "origin", "authorization", "content-length")):
            return 400
        if self._one(headers, "host").lower() not in self.hosts:
            return 403
        if self._is_foreign(headers, is_page=method == "GET"):
            return 403
        if "transfer-encoding" in headers or "upgrade" in headers:
            return 400
        if method == "GET":
            return 0 if path in files else 404
        if method != "POST":
            return 405
        if path != "/ask":
            return 404
        return self._refuse_question(headers)

    def _refuse_question(self, headers: Mapping[str, list[str]]) -> int:
        given = self._one(headers, "authorization")
        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), f"Bearer {self.token}".encode()):
            return 401
        if self._one(headers, "content-type").lower() != "application/json":
            return 415
        length = self._one(headers, "content-length")
        if not re.fullmatch(r"[0-9]{1,9}", length):
            return 411
        return 413 if int(length) > LARGEST_BODY else 0

    def _is_foreign(self, headers: Mapping[str, list[str]], *, is_page: bool) -> bool:
        """Whether another site sent it. A link to the page itself may be followed from anywhere: there is no data."""
        site = self._one(headers, "sec-fetch-site").lower()
        followed = is_page and self._one(headers, "sec-fetch-mode") == "navigate"
        followed = followed and self._one(headers, "sec-fetch-dest") == "document"
        if site not in ("", "same-origin", "none") and not followed:
            return True
        origin = self._one(headers, "origin").lower()
        return "origin" in headers and origin.partition("://")[2] != self._one(headers, "host").lower()

    @staticmethod
    def _one(headers: Mapping[str, list[str]], name: str) -> str:
        return headers.get(name, [""])[0]
