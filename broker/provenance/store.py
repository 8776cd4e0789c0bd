"""The signed statements of delivered proposals, one file per commit, each written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path

from broker.errors import AbsentError
from broker.provenance.signing import Signer
from broker.provenance.statement import PAYLOAD_TYPE, Attested, payload
from broker.wire import PublicKey

HEAD_TYPE = "application/vnd.agent-swarm.log-head+json"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class Provenance:
    """Signs and keeps. Safe to use from several threads: files are replaced, never changed."""

    def __init__(self, state: Path, signer: Signer) -> None:
        self._folder = state / "provenance"
        self._signer = signer

    def attest(self, facts: Attested) -> str:
        """Signs and keeps the statement of a delivery; returns the envelope's SHA-256. To be repeated without harm."""
        envelope = self._signer.sign(payload(facts), PAYLOAD_TYPE)
        folder = self._of(facts.repository, facts.number)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(folder / f"{facts.commit}.json", envelope)
        _write(folder / "newest", facts.commit.encode())
        return hashlib.sha256(envelope).hexdigest()

    def get(self, repository: str, number: int, commit: str | None = None) -> bytes:
        """The envelope of a pull request's newest commit of the broker's, or of the one named. Raises AbsentError."""
        absent = AbsentError(f"there is no statement about {repository}#{number}", "the broker opened no such one")
        if not _NAME.fullmatch(repository) or (commit is not None and not _COMMIT.fullmatch(commit)):
            raise absent
        folder = self._of(repository, number)
        try:
            return (folder / f"{commit or (folder / 'newest').read_text()}.json").read_bytes()
        except OSError:
            raise absent from None

    def sign_head(self, number: int, line_hash: str, at: float) -> bytes:
        """An envelope that says which hash a line of the log has."""
        head = {"number": number, "hash": line_hash, "at": at}
        return self._signer.sign(json.dumps(head, sort_keys=True, separators=(",", ":")).encode(), HEAD_TYPE)

    def key(self) -> PublicKey:
        """The public key that all this is checked with."""
        return self._signer.key()

    def _of(self, repository: str, number: int) -> Path:
        return self._folder / repository / str(number)


def _write(path: Path, data: bytes) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(handle)
    draft.replace(path)
