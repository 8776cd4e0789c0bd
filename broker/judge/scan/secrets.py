"""Secrets in added lines, by detect-secrets; nothing is verified over the network and nothing found is repeated."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.filters import heuristic
from detect_secrets.plugins.base import BasePlugin
from detect_secrets.plugins.high_entropy_strings import (
    Base64HighEntropyString,
    HexHighEntropyString,
    HighEntropyStringsPlugin,
)
from detect_secrets.plugins.ip_public import IPPublicDetector
from detect_secrets.plugins.keyword import DENYLIST, KeywordDetector

from broker.judge.scan.content import PIECE, pieces

# Guesses by entropy alone call every digest a secret; they count only where a keyword detector would agree anyway.
_NOT_USED: tuple[type[BasePlugin], ...] = (IPPublicDetector, HexHighEntropyString, KeywordDetector)
_GUESSES: tuple[type[BasePlugin], ...] = (Base64HighEntropyString,)

_KEYWORD = re.compile("|".join(DENYLIST), re.IGNORECASE)
_LONG_STRING = re.compile(r"[A-Za-z0-9+/=\\_-]{23}")  # fewer characters cannot have an entropy of 4.5 bits


# Detectors of quadratic time are only asked where their secret's own sign stands, and pay for it.
SIGNS: Mapping[str, str] = {"NpmDetector": ":_authToken=", "OpenAIDetector": "T3BlbkFJ"}


def detectors() -> tuple[tuple[BasePlugin, str], ...]:
    """Those that are sure of what they find, each with what a text must hold for it to be asked."""
    classes: Iterable[type[BasePlugin]] = get_mapping_from_secret_type_to_class().values()
    sure = [kind for kind in classes if kind not in _NOT_USED and kind not in _GUESSES]
    return tuple((kind(), SIGNS.get(kind.__name__, "")) for kind in sorted(sure, key=lambda kind: kind.__name__))


@dataclass
class Purse:
    """How much one proposal may have looked at, so that no content makes a verdict slow: characters, and guesses."""

    text: int
    guesses: int = 4_000
    spent: bool = False

    def take(self, text: int = 0, guesses: int = 0) -> bool:
        """Whether there is still enough; once there was not, the rest is not looked at, and that is told."""
        self.text -= text
        self.guesses -= guesses
        self.spent = self.spent or self.text < 0 or self.guesses < 0
        return not self.spent


class Secrets:
    """Compiled detectors: make one and keep it."""

    def __init__(self) -> None:
        self._sure = detectors()
        self._keyword = KeywordDetector()
        self._entropy: HighEntropyStringsPlugin = Base64HighEntropyString(limit=4.5)

    def find(self, path: str, lines: Iterable[tuple[int, str]], purse: Purse) -> Iterator[tuple[int, str]]:
        """Number of a line, and what kind of secret it seems to hold; the secret itself is never told."""
        last = 0
        for chunk in _chunks(lines):
            text = "\n".join(piece for _, piece in chunk)
            if not purse.take(text=len(text)):
                return
            # Many lines are held against each detector at once; only where one speaks they are looked at singly.
            asked = [detector for detector, needs in self._sure if needs in text]
            if any(needs for _, needs in self._sure if needs in text) and not purse.take(guesses=20):
                return
            sure = any(True for detector in asked for _ in detector.analyze_string(text))
            for number, piece in chunk:
                kind = (self._sure_of(piece) if sure else None) or self._guess_at(path, piece, purse)
                if kind and number != last:
                    last = number
                    yield number, kind

    def _sure_of(self, piece: str) -> str | None:
        # Detectors are asked for strings only: their analyze_line may verify a find over the network.
        # An "allowlist" pragma on the line is not honoured, since the author of the line is who is judged.
        for detector, needs in self._sure:
            if needs in piece and any(found and not _is_placeholder(found) for found in detector.analyze_string(piece)):
                return str(detector.secret_type)
        return None

    def _guess_at(self, path: str, piece: str, purse: Purse) -> str | None:
        looks: list[tuple[BasePlugin, str]] = [(self._keyword, part) for part in _near_keywords(piece, purse)]
        if _LONG_STRING.search(piece):
            looks.append((self._entropy, piece))
        for guess, part in looks:
            secrets = guess.analyze_line(filename=path, line=part)
            if any(_is_likely(str(secret.secret_value), part, guess) for secret in secrets):
                return str(guess.secret_type)
        return None


def _chunks(lines: Iterable[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    chunk: list[tuple[int, str]] = []
    size = 0
    for number, line in lines:
        for piece in pieces(line):
            if chunk and size + len(piece) > PIECE:
                yield chunk
                chunk, size = [], 0
            chunk.append((number, piece))
            size += len(piece) + 1
    if chunk:
        yield chunk


def _near_keywords(piece: str, purse: Purse) -> Iterator[str]:
    """The piece where a word such as "password" stands in it; a piece full of them in parts, for the detector takes
    half a second for two thousand characters of nothing else."""
    starts = [found.start() for found in itertools.islice(_KEYWORD.finditer(piece), 1_000)]
    if not starts:
        return
    if len(starts) <= 6 and len(piece) <= 400:
        if purse.take(guesses=1):
            yield piece
        return
    seen = -1
    for start in starts:
        if start > seen:
            if not purse.take(guesses=8):
                return
            seen = start + 80
            yield piece[max(0, start - 40) : start + 160]


def _is_placeholder(secret: str) -> bool:
    return bool(heuristic.is_templated_secret(secret) or heuristic.is_prefixed_with_dollar_sign(secret))


def _is_likely(secret: str, line: str, detector: BasePlugin) -> bool:
    return not (
        _is_placeholder(secret)
        or heuristic.is_sequential_string(secret)
        or heuristic.is_potential_uuid(secret)
        or heuristic.is_likely_id_string(secret, line, detector)
        or heuristic.is_not_alphanumeric_string(secret)
        or heuristic.is_indirect_reference(line)
        or len(secret) < 8
        or " " in secret
    )
