"""Objects and packs put together by hand, well-formed or not: what the self-test shows to git."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

KINDS = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}


@dataclass(frozen=True)
class Crafted:
    """One object, exactly as given."""

    kind: str
    data: bytes

    @property
    def oid(self) -> str:
        """Its id (SHA-1)."""
        head = f"{self.kind} {len(self.data)}\0".encode()
        return hashlib.sha1(head + self.data, usedforsecurity=False).hexdigest()


def blob(data: bytes) -> Crafted:
    """A file's content."""
    return Crafted("blob", data)


def tree(*entries: tuple[str, bytes, str]) -> Crafted:
    """Mode, name and id of each entry, in the order given: no sense is needed."""
    return Crafted("tree", b"".join(m.encode() + b" " + name + b"\0" + bytes.fromhex(oid) for m, name, oid in entries))


def commit(of: str, *, author: str = "author A <a@b> 1 +0000\n", message: bytes = b"m\n") -> Crafted:
    """A commit without parents."""
    head = f"tree {of}\n{author}committer A <a@b> 1 +0000\n\n"
    return Crafted("commit", head.encode() + message)


def pack(objects: Iterable[Crafted]) -> bytes:
    """A pack of these objects: git-scm.com/docs/pack-format."""
    unique = list({made.oid: made for made in objects}.values())
    body = b"PACK\0\0\0\2" + len(unique).to_bytes(4, "big")
    body += b"".join(entry(KINDS[made.kind], len(made.data)) + zlib.compress(made.data, 1) for made in unique)
    return sealed(body)


def entry(kind: int, size: int) -> bytes:
    """The head of an object in a pack; ``size`` is what it claims to be."""
    first, size = kind << 4 | size & 15, size >> 4
    head = bytearray()
    while size:
        head.append(first | 128)
        first, size = size & 127, size >> 7
    head.append(first)
    return bytes(head)


def sealed(body: bytes) -> bytes:
    """The body with the checksum that ends a pack."""
    return body + hashlib.sha1(body, usedforsecurity=False).digest()
