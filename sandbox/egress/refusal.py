"""What a way out answers instead of passing on: a status and a reason that a person inside can act on. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass

PLAIN, JSON = "text/plain; charset=utf-8", "application/json"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not passed on. ``denied``: a rule forbade it; else something did not work."""

    status: int
    reason: str
    denied: bool = True

    @property
    def phrase(self) -> bytes:
        """The reason as a status line can tell it: all that many clients show of a refused CONNECT."""
        return "".join(c for c in self.reason if " " <= c <= "~").encode()[:200]

    def body(self, kind: str) -> bytes:
        """The reason as a text, or as the APIs of models word an error."""
        if kind == JSON:
            error = {"message": self.reason, "type": "refused_by_sandbox", "code": self.status}
            return json.dumps({"type": "error", "error": error}).encode()
        return f"{self.reason}\n".encode()


class RefusedError(Exception):
    """Carries a refusal out of the middle of reading or dialling."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


class CutError(Exception):
    """The connection cannot go on: the other side went away, or an answer broke off after its head was sent."""
