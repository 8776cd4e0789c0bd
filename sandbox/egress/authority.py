"""A certificate authority that lives as long as the process and in its memory alone; TLS towards the inside.

Its public certificate is all that programs inside trust, so each of their https connections ends here, where it can be
judged. No key is ever written to a file: OpenSSL, which loads keys by path alone, reads them from a pipe.
"""

from __future__ import annotations

import os
import ssl
from collections import OrderedDict
from collections.abc import Callable

import trustme

_KEPT = 256  # hosts whose certificate is kept


class Authority:
    """Mints a certificate for each host that is asked for, once."""

    def __init__(self) -> None:
        self._ca = trustme.CA(path_length=0, organization_name="agent-swarm sandbox egress")
        self._leaves: OrderedDict[str, trustme.LeafCert] = OrderedDict()

    @property
    def certificate(self) -> bytes:
        """The public certificate, as PEM."""
        return self._ca.cert_pem.bytes()

    def can_be(self, host: str) -> bool:
        """Whether a certificate can name that host. The certificate is made, and kept."""
        try:
            self._leaf(host)
        except ValueError:  # a name that IDNA forbids
            return False
        return True

    def context(self, host: str, named: Callable[[str | None], None]) -> ssl.SSLContext:
        """The server's side of TLS as ``host``, for one connection; ``named`` is told the name in SNI."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.sni_callback = lambda _, name, __: named(name)
        leaf = self._leaf(host)
        chain = b"".join(pem.bytes() for pem in leaf.cert_chain_pems)
        with _Pipe(chain) as certificate, _Pipe(leaf.private_key_pem.bytes()) as key:
            context.load_cert_chain(certificate, key)
        return context

    def _leaf(self, host: str) -> trustme.LeafCert:
        leaf = self._leaves.pop(host, None) or self._ca.issue_cert(host)
        self._leaves[host] = leaf
        if len(self._leaves) > _KEPT:
            self._leaves.popitem(last=False)
        return leaf


class _Pipe:
    """Bytes under a path that is no file: the reading end of a pipe that already holds them."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __enter__(self) -> str:
        self._end, write = os.pipe()
        try:
            os.write(write, self._data)  # a few KiB: a pipe takes 64 without anybody reading
        finally:
            os.close(write)
        return f"/dev/fd/{self._end}"

    def __exit__(self, *_: object) -> None:
        os.close(self._end)
