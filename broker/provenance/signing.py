"""Signatures in DSSE envelopes (https://github.com/secure-systems-lab/dsse), by securesystemslib, known here alone."""

from __future__ import annotations

import json
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from pydantic import SecretBytes
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import Error, VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey  # type: ignore[attr-defined]  # exported without __all__

from broker.errors import ConfigError, ProvenanceError
from broker.wire import PublicKey

MAX_ENVELOPE = 1 << 20


class Signer:
    """The broker's Ed25519 key. Its private half is in no message and no repr."""

    def __init__(self, pem: SecretBytes) -> None:
        try:
            private = load_pem_private_key(pem.get_secret_value(), password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise ConfigError("the provenance key is no private key in PEM", "remove it: a new one is made") from None
        if not isinstance(private, Ed25519PrivateKey):
            raise ConfigError("the provenance key is not an Ed25519 key", "remove it: a new one is made")
        self._signer = CryptoSigner(private)
        self._pem = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    def sign(self, payload: bytes, kind: str) -> bytes:
        """An envelope over a payload of a media type, as JSON. The same input gives the same bytes."""
        envelope = Envelope(payload, kind, {})
        envelope.sign(self._signer)
        return json.dumps(envelope.to_dict(), sort_keys=True).encode() + b"\n"

    def key(self) -> PublicKey:
        """The public half."""
        return PublicKey(keyid=self._signer.public_key.keyid, pem=self._pem)


def opened(envelope: bytes, kind: str, pem: str) -> bytes:
    """The payload of an envelope that the key's owner signed. Raises ProvenanceError for every other."""
    key = _public(pem)
    if len(envelope) > MAX_ENVELOPE:
        raise ProvenanceError(f"the envelope is longer than {MAX_ENVELOPE} bytes")
    try:
        read: Any = Envelope.from_dict(json.loads(envelope))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, Error):
        raise ProvenanceError("this is not a DSSE envelope") from None
    if read.payload_type != kind:
        raise ProvenanceError(f"the envelope holds another kind of thing than {kind}")
    try:
        read.verify([key], 1)
    except (VerificationError, ValueError):
        raise ProvenanceError(f"it is not signed by the key {key.keyid}, or was changed afterwards") from None
    return bytes(read.payload)


def keyid_of(pem: str) -> str:
    """How a public key is named. Raises ProvenanceError if it is none."""
    return str(_public(pem).keyid)


def _public(pem: str) -> SSlibKey:
    try:
        public = load_pem_public_key(pem.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ProvenanceError("this is not a public key in PEM", "swarm-broker key show prints the broker's") from None
    if not isinstance(public, Ed25519PublicKey):
        raise ProvenanceError("this is not an Ed25519 key", "swarm-broker key show prints the broker's")
    return SSlibKey.from_crypto(public)
