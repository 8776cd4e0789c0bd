"""The REST door against a server that misbehaves: bounded, on one host, and nothing sent twice that may be done."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
import trustme
from pydantic import SecretStr

from broker.errors import ConfigError, ForgeError
from broker.forge.rest.address import Address, next_query
from broker.forge.rest.door import Bounds, Dialect, Door
from broker.forge.rest.pace import Pace, Tempo
from broker.scope import Scope

TOKEN = "canary-77aa-token"


class Server(http.server.ThreadingHTTPServer):
    """Answers with what a test wants, and keeps what was asked."""

    daemon_threads = True

    def __init__(self, act: Callable[[http.server.BaseHTTPRequestHandler], None]) -> None:
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.act = act
        super().__init__(("127.0.0.1", 0), Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that was shut is what is tested."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.asked.append((self.command, self.path, dict(self.headers)))  # type: ignore[attr-defined]
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.act(self)  # type: ignore[attr-defined]

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def answer(self, status: int, body: bytes = b"{}", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)


Ask = Callable[..., tuple[Server, Door]]


@pytest.fixture
def ask() -> Iterator[Ask]:
    """Starts a server and a door to it."""
    servers: list[Server] = []

    def start(act: Callable[[Handler], None], **bounds: float) -> tuple[Server, Door]:
        server = Server(act)  # type: ignore[arg-type]
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return server, door_to(f"http://127.0.0.1:{server.server_port}/api", **bounds)

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@contextmanager
def lend(_scope: Scope) -> Iterator[SecretStr]:
    yield SecretStr(TOKEN)


def door_to(base: str, ca_file: Path | None = None, **bounds: float) -> Door:
    dialect = Dialect("test", lambda token: {"Authorization": f"Bearer {token}"})
    limits = Bounds(**{"pause": 0.01, "call": 5.0, **bounds})  # type: ignore[arg-type]
    return Door(Address(base, ca_file), dialect, lend, Pace("test", Tempo(gap=0.0)), bounds=limits)


def test_a_call_bears_the_token_and_wants_nothing_packed(ask):
    server, door = ask(lambda it: it.answer(200, b'{"a": 1}'))
    with door.visit() as visit:
        assert visit.get("/x", {"q": "a b&c"}).mapping() == {"a": 1}
    [(method, path, headers)] = server.asked
    assert (method, path) == ("GET", "/api/x?q=a+b%26c")
    assert headers["Authorization"] == f"Bearer {TOKEN}"
    assert headers["Accept-Encoding"] == "identity"
    assert headers["User-Agent"] == "agent-swarm-broker"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(ask, status):
    other, _ = ask(lambda it: it.answer(200))
    server, door = ask(lambda it: it.answer(status, b"", location=f"http://127.0.0.1:{other.server_port}/"))
    with door.visit() as visit, pytest.raises(ForgeError) as caught:
        visit.get("/x")
    assert caught.value.reason == "moved"
    assert other.asked == []
    assert len(server.asked) == 1


def test_pages_stay_on_their_host_and_path(ask):
    other, _ = ask(lambda it: it.answer(200, b"[]"))
    link = f'<http://127.0.0.1:{other.server_port}/steal?page=2>; rel="next", <x>; rel="last"'
    server, door = ask(lambda it: it.answer(200, b'[{"a": 1}]', link=link))
    with door.visit() as visit:
        assert len(list(visit.pages("/x", most=3))) == 3
    assert other.asked == []
    assert [path for _, path, _ in server.asked] == ["/api/x", "/api/x?page=2", "/api/x?page=2"]


@pytest.mark.slow
@pytest.mark.parametrize("size", ["per_page", "limit"])
@pytest.mark.parametrize("page", [100, 20, 50])
def test_what_anybody_wrote_stops_no_list(ask, size, page):
    """Long words by a stranger once made a page too large, and with it every look at the repository for good."""
    rows = [
        {"id": at, "body": "x" * (60_000 if at in {31, 32, 119} else 9_000 if at == 70 else 10)} for at in range(130)
    ]

    def act(it: Handler) -> None:
        asked = {key: int(value) for key, value in parse_qsl(urlsplit(it.path).query)}
        at, many = asked.get("page", 1), asked[size]
        body = json.dumps(rows[(at - 1) * many : at * many]).encode()
        onward = {"link": f'<?page={at + 1}&{size}={many}>; rel="next"'} if at * many < len(rows) else {}
        it.answer(200, body, **onward)

    _, door = ask(act, answer=10_000)
    with door.visit() as visit:
        found = [one["id"] for page in visit.pages("/x", {size: page}, most=20) for one in page]
    assert found == [at for at in range(130) if at not in {31, 32, 119}]


def test_an_answer_that_has_no_pages_stays_too_large(ask):
    _, door = ask(lambda it: it.answer(200, json.dumps(["x" * 20_000]).encode()), answer=10_000)
    with door.visit() as visit, pytest.raises(ForgeError) as caught:
        list(visit.pages("/x"))
    assert caught.value.reason == "large"


@pytest.mark.parametrize(
    ("link", "query"),
    [
        (None, None),
        ("", None),
        ('<https://a/b?page=2&per_page=9>; rel="next"', (("page", "2"), ("per_page", "9"))),
        ('<https://a/b?page=1>; rel="prev", <https://a/b?after=x%3D>; rel=next', (("after", "x="),)),
        ("<https://a/b?page=2", None),
        ("<https://a/b?" + "&".join(f"a{n}=1" for n in range(50)) + '>; rel="next"', None),
    ],
)
def test_of_a_link_the_query_alone_is_read(link, query):
    assert next_query(link) == query


def test_an_answer_that_does_not_end_is_given_up_at_its_limit(ask):
    def act(it: Handler) -> None:
        it.send_response(200)
        it.end_headers()
        for _ in range(1000):
            it.wfile.write(b"x" * 65_536)

    server, door = ask(act, answer=200_000)
    with door.visit() as visit, pytest.raises(ForgeError) as caught:
        visit.get("/x")
    assert "larger than 200000 bytes" in str(caught.value)
    assert len(server.asked) == 1


def test_a_packed_answer_is_not_unfolded(ask):
    _, door = ask(lambda it: it.answer(200, b"x", content_encoding="gzip"))
    with door.visit() as visit, pytest.raises(ForgeError) as caught:
        visit.get("/x")
    assert caught.value.reason == "broken"


@pytest.mark.parametrize("where", ["body", "head"])
def test_bytes_that_drip_do_not_hold_a_thread(ask, where):
    def act(it: Handler) -> None:
        it.wfile.write(b"HTTP/1.1 200 OK\r\n" + (b"content-length: 99\r\n\r\n" if where == "body" else b"x-a: "))
        for _ in range(200):
            time.sleep(0.05)
            it.wfile.write(b"x")

    _, door = ask(act, call=0.3, tries=1)
    began = time.monotonic()
    with door.visit() as visit, pytest.raises(ForgeError) as caught:
        visit.get("/x")
    assert time.monotonic() - began < 8
    assert caught.value.reason == "unreachable"


def test_a_second_call_on_a_kept_connection_has_its_time_too(ask):
    def act(it: Handler) -> None:
        if it.path.endswith("slow"):
            it.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n")
            for _ in range(200):
                time.sleep(0.05)
                it.wfile.write(b"x")
        it.answer(200)

    _, door = ask(act, call=0.3, tries=1)
    began = time.monotonic()
    with door.visit() as visit:
        visit.get("/quick")
        with pytest.raises(ForgeError):
            visit.get("/slow")
    assert time.monotonic() - began < 8


@pytest.mark.parametrize("lost", [502, 503, 504, 500, None])
def test_a_post_that_may_have_happened_is_sent_once_and_is_uncertain(ask, lost):
    def act(it: Handler) -> None:
        if lost is None:
            it.close_connection = True  # the answer never comes
        else:
            it.answer(lost)

    server, door = ask(act)
    with door.visit() as visit, pytest.raises(ForgeError) as caught:
        visit.post("/x", {}, doing="open")
    assert caught.value.uncertain
    assert len(server.asked) == 1


def test_a_post_that_never_left_is_certain():
    door = door_to("http://127.0.0.1:9/api")
    with door.visit() as visit, pytest.raises(ForgeError) as caught:
        visit.post("/x", {}, doing="open")
    assert (caught.value.reason, caught.value.uncertain) == ("unreachable", False)


def test_a_post_that_was_refused_is_certain(ask):
    server, door = ask(lambda it: it.answer(422, b'{"message": "Validation Failed"}'))
    with door.visit() as visit, pytest.raises(ForgeError) as caught:
        visit.post("/x", {}, doing="open")
    assert not caught.value.uncertain
    assert len(server.asked) == 1


def test_what_does_no_harm_is_tried_three_times(ask):
    server, door = ask(lambda it: it.answer(502))
    with door.visit() as visit:
        for call in (lambda: visit.get("/x"), lambda: visit.post("/x", {}, doing="label", again=True)):
            server.asked.clear()
            with pytest.raises(ForgeError) as caught:
                call()
            assert len(server.asked) == 3
            assert not caught.value.uncertain


def test_no_error_shows_the_token(ask):
    words = f'{{"message": "{TOKEN} is not enough"}}'.encode()
    _, door = ask(lambda it: it.answer(403, words))
    with door.visit() as visit, pytest.raises(ForgeError) as caught:
        visit.get("/x")
    assert TOKEN not in str(caught.value)
    assert "[hidden] is not enough" in str(caught.value)


def test_the_environment_names_no_proxy(ask, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server, door = ask(lambda it: it.answer(200))
    with door.visit() as visit:
        visit.get("/x")
    assert len(server.asked) == 1


def test_a_certificate_is_checked_against_the_file_that_is_named(tmp_path, ask):
    authority, stranger = trustme.CA(), trustme.CA()
    for name, one in (("ca", authority), ("other", stranger)):
        one.cert_pem.write_to_path(str(tmp_path / f"{name}.pem"))
    server, _ = ask(lambda it: it.answer(200))
    server.socket = _tls(authority).wrap_socket(server.socket, server_side=True)
    base = f"https://127.0.0.1:{server.server_port}/api"
    with door_to(base, tmp_path / "ca.pem").visit() as visit:
        assert visit.get("/x").status == 200
    for door in (door_to(base, tmp_path / "other.pem"), door_to(base)):
        with door.visit() as visit, pytest.raises(ForgeError) as caught:
            visit.get("/x")
        assert caught.value.reason == "unreachable"
    with pytest.raises(ConfigError):
        door_to(base, tmp_path / "none.pem")


def _tls(authority: trustme.CA):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.mark.parametrize("path", ["x", "/a/../b", "/a?b", "/a#b", "/a\r\nHost: x", "/a\\b"])
def test_a_path_that_would_leave_the_api_is_refused(path):
    with pytest.raises(ValueError, match="no path"):
        Address("https://api.example").url(path)
