"""The authority of the proxy: believed inside, in memory alone."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys

from sandbox.egress.authority import Authority

# With this limit no file can take a single byte; pipes can.
WITHOUT_FILES = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
from sandbox.egress.authority import Authority
Authority().context("pypi.org", print)
print("made")
"""


def test_no_key_is_written_to_any_file() -> None:
    made = subprocess.run(
        [sys.executable, "-B", "-c", WITHOUT_FILES], capture_output=True, text=True, timeout=60, check=False
    )
    assert (made.stdout, made.returncode) == ("made\n", 0), made.stderr


async def test_a_strict_client_believes_it_and_nobody_else() -> None:
    authority, stranger = Authority(), Authority()
    named: list[str | None] = []

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    async def read(trusted: Authority, host: str) -> bytes:
        trust = ssl.create_default_context(cadata=trusted.certificate.decode())
        trust.verify_flags |= ssl.VERIFY_X509_STRICT
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname=host)
        try:
            return await reader.read()
        finally:
            writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=authority.context("pypi.org", named.append))
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await read(authority, "pypi.org") == b"hello"
        for trusted, host in ((stranger, "pypi.org"), (authority, "evil.example")):
            try:
                await read(trusted, host)
            except ssl.SSLCertVerificationError:
                continue
            raise AssertionError(f"{host} was believed")
    assert named == ["pypi.org", "pypi.org", "evil.example"]


def test_names_that_no_certificate_can_hold_are_known() -> None:
    authority = Authority()
    assert authority.can_be("a.golang.org")
    assert authority.can_be("10.0.0.1")
    assert not authority.can_be("xn--.golang.org")
