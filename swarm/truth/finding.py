"""How a finding is put into data: words of a change, which may hold what no JSON can, cut and made plain. Pure."""

from __future__ import annotations

from swarm.types import Weakened, WeakenedKind


def finding(kind: WeakenedKind, path: str, text: str, test: str = "") -> Weakened:
    """A finding; halves of characters, as a settings file may spell them, become question marks."""
    return Weakened(kind=kind, path=_plain(path, 4096), test=_plain(test, 500), text=_plain(text, 300))


def _plain(words: str, most: int) -> str:
    return words[:most].encode("utf-8", "replace").decode()
