"""Capabilities: a person's grant as a chain of HMACs (macaroons). A holder can append a caveat, never take one away.

Birgisson et al., "Macaroons: Cookies with Contextual Caveats for Decentralized Authorization in the Cloud", NDSS 2014.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SecretBytes, ValidationError

from broker.errors import CapabilityError
from broker.wire import Name, ObjectId

Verb = Literal["mirror", "propose", "explain", "read", "comment", "update", "draw"]
VERBS: tuple[Verb, ...] = ("mirror", "propose", "explain", "read", "comment", "update")
STANDING: tuple[Verb, ...] = ("draw",)  # all that a standing right is good for
_T = TypeVar("_T")
_PREFIX = "swc2"
_FORMER = ("swc1",)
_MAX_CAVEATS = 16
_MAX_TOKEN = 8192


class Rights(BaseModel):
    """What a capability is good for; the first block of the chain, written by the broker alone.

    ``branch`` is the one that is pushed, ``issue`` the task's own; ``reads`` are other repositories to be mirrored.
    ``each`` is how many uses every right has that is drawn from a standing one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    grant: str = Field(pattern=r"^[0-9a-f]{32}$")
    repository: Name
    base: str
    base_commit: ObjectId
    branch: str
    task: Name
    uses: int = Field(ge=1)
    expires: float
    verbs: tuple[Verb, ...] = VERBS
    issue: int | None = Field(default=None, ge=1)
    reads: tuple[Name, ...] = Field(default=(), max_length=8)
    tree: ObjectId | None = None
    proposal: Name | None = None
    each: int = Field(default=1, ge=1)


class Caveat(BaseModel):
    """A further restriction. Whatever it names can only shrink; a field that is not known is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    expires: float | None = None
    uses: int | None = Field(default=None, ge=0)
    verbs: tuple[Verb, ...] | None = None
    reads: tuple[Name, ...] | None = Field(default=None, max_length=8)
    tree: ObjectId | None = None
    proposal: Name | None = None


class Mint:
    """Makes and checks capabilities with the broker's key."""

    def __init__(self, key: SecretBytes) -> None:
        self._key = key

    def make(self, rights: Rights) -> str:
        """The capability for these rights."""
        block = _canonical(rights)
        return _join([block], _link(self._key.get_secret_value(), block))

    def check(self, capability: str, *, verb: Verb, now: float) -> Rights:
        """The rights left after all caveats. Raises CapabilityError: malformed, forged, expired, wrong verb."""
        blocks, tail = _split(capability)
        link = self._key.get_secret_value()
        for block in blocks:
            link = _link(link, block)
        if not hmac.compare_digest(link, tail):
            raise CapabilityError("the capability was not made by this broker, or was altered", _ASK)
        rights = _narrowed(blocks)
        if now >= rights.expires:
            raise CapabilityError("the capability has expired", _ASK)
        if verb not in rights.verbs:
            raise CapabilityError(f"the capability is not good for {verb}", _ASK)
        return rights


_ASK = "a person asks for a new one: swarm-broker grant"


def narrow(capability: str, caveat: Caveat) -> str:
    """The same capability with one more restriction; needs no key. Raises CapabilityError for a malformed one."""
    blocks, tail = _split(capability)
    block = json.dumps(caveat.model_dump(mode="json", exclude_none=True), sort_keys=True).encode()
    return _join([*blocks, block], _link(tail, block))


def _narrowed(blocks: list[bytes]) -> Rights:
    try:
        rights = Rights.model_validate_json(blocks[0])
        for block in blocks[1:]:
            rights = _meet(rights, Caveat.model_validate_json(block))
    except ValidationError:
        raise CapabilityError("the capability holds a caveat that this broker does not know", _ASK) from None
    return rights


def _meet(rights: Rights, caveat: Caveat) -> Rights:
    for name in ("tree", "proposal"):
        held, asked = getattr(rights, name), getattr(caveat, name)
        if held is not None and asked is not None and held != asked:
            raise CapabilityError(f"the capability was narrowed to two different values of {name}", _ASK)
    return rights.model_copy(
        update={
            "expires": rights.expires if caveat.expires is None else min(rights.expires, caveat.expires),
            "uses": rights.uses if caveat.uses is None else min(rights.uses, caveat.uses),
            "verbs": _both(rights.verbs, caveat.verbs),
            "reads": _both(rights.reads, caveat.reads),
            "tree": caveat.tree or rights.tree,
            "proposal": caveat.proposal or rights.proposal,
        }
    )


def _both(held: tuple[_T, ...], asked: tuple[_T, ...] | None) -> tuple[_T, ...]:
    return held if asked is None else tuple(one for one in held if one in asked)


def _canonical(rights: Rights) -> bytes:
    return json.dumps(rights.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode()


def _link(key: bytes, block: bytes) -> bytes:
    return hmac.new(key, block, hashlib.sha256).digest()


def _join(blocks: list[bytes], tail: bytes) -> str:
    return ".".join([_PREFIX, *(_encode(part) for part in (*blocks, tail))])


def _split(capability: str) -> tuple[list[bytes], bytes]:
    parts = capability.split(".") if len(capability) <= _MAX_TOKEN and capability.isascii() else []
    if parts and parts[0] in _FORMER:
        raise CapabilityError(
            "the capability was made by an earlier version of the broker, which knew fewer rights", _ASK
        )
    if len(parts) < 3 or len(parts) > _MAX_CAVEATS + 3 or parts[0] != _PREFIX:
        raise CapabilityError("this is not a capability", _ASK)
    try:
        *blocks, tail = (_decode(part) for part in parts[1:])
    except (binascii.Error, ValueError):
        raise CapabilityError("this is not a capability", _ASK) from None
    return blocks, tail


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
