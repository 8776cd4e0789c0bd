"""What an added line may not hold: secrets (detect-secrets), text that a reader cannot see. Base-aware, no network."""

from __future__ import annotations

import itertools
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator

from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.filters import heuristic
from detect_secrets.plugins.base import BasePlugin
from detect_secrets.plugins.high_entropy_strings import (
    Base64HighEntropyString,
    HexHighEntropyString,
    HighEntropyStringsPlugin,
)
from detect_secrets.plugins.ip_public import IPPublicDetector
from detect_secrets.plugins.keyword import KeywordDetector

from broker.config.policy import Policy
from broker.wire import Finding

_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_FILLERS = frozenset("\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u3164\uffa0")
_JOINERS = frozenset("\u200c\u200d")
_FINE_CONTROLS = frozenset("\t\n\r\f")
_PIECE, _OVERLAP = 2_000, 300  # several detectors take quadratic time, so long lines are cut
_BINARY_PROBE = 8000
MAX_PER_FILE = 20

# Guesses by entropy alone call every digest a secret; they count only where a keyword detector would agree anyway.
_NOT_USED: tuple[type[BasePlugin], ...] = (IPPublicDetector, HexHighEntropyString, KeywordDetector)
_GUESSES: tuple[type[BasePlugin], ...] = (Base64HighEntropyString,)


def _detectors() -> tuple[BasePlugin, ...]:
    classes: Iterable[type[BasePlugin]] = get_mapping_from_secret_type_to_class().values()
    sure = [kind for kind in classes if kind not in _NOT_USED and kind not in _GUESSES]
    return tuple(kind() for kind in sorted(sure, key=lambda kind: kind.__name__))


class Scanner:
    """Scans what a proposal adds. Holds compiled detectors, so make one and keep it."""

    def __init__(self) -> None:
        self._sure = _detectors()
        self._keyword = KeywordDetector()
        self._entropy: HighEntropyStringsPlugin = Base64HighEntropyString(limit=4.5)

    def scan(self, path: str, old: bytes, new: bytes, policy: Policy) -> tuple[Finding, ...]:
        """Findings about the lines of ``new`` that ``old`` does not hold. The secret itself is never in a finding."""
        return tuple(itertools.islice(self._findings(path, old, new, policy), MAX_PER_FILE))

    def _findings(self, path: str, old: bytes, new: bytes, policy: Policy) -> Iterator[Finding]:
        for number, line in added_lines(old, new):
            where = f"line {number} of {path} holds"
            if policy.secrets == "block" and (problem := self._secret_in(path, line)):
                mend = "take it from the environment at run time"
                yield Finding(rule="secret", message=f"{where} what looks like: {problem}", path=path, mend=mend)
            if policy.hidden_text == "block" and (problem := _hidden_in(line)):
                mend = "write it as an escape sequence"
                yield Finding(rule="hidden-text", message=f"{where} {problem}", path=path, mend=mend)

    def _secret_in(self, path: str, line: str) -> str | None:
        # Detectors are asked for strings only: their analyze_line may verify a find over the network.
        # An "allowlist" pragma on the line is not honoured, since the author of the line is who is judged.
        for start in range(0, len(line), _PIECE):
            piece = line[max(0, start - _OVERLAP) : start + _PIECE]
            for detector in self._sure:
                if any(found and not _is_placeholder(found) for found in detector.analyze_string(piece)):
                    return str(detector.secret_type)
            for guess in (self._keyword, self._entropy):
                secrets = guess.analyze_line(filename=path, line=piece)
                if any(_is_likely(str(secret.secret_value), piece, guess) for secret in secrets):
                    return str(guess.secret_type)
        return None


def is_binary(data: bytes) -> bool:
    """Whether git would call it binary: a NUL byte near the start."""
    return b"\0" in data[:_BINARY_PROBE]


def added_lines(old: bytes, new: bytes) -> Iterator[tuple[int, str]]:
    """Lines that occur more often in ``new`` than in ``old``, with their number; moving a line adds nothing."""
    left = Counter(old.split(b"\n"))
    for number, line in enumerate(new.split(b"\n"), start=1):
        if left[line] > 0:
            left[line] -= 1
        else:
            yield number, line.decode("utf-8", "replace")


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


def _hidden_in(line: str) -> str | None:
    for at, char in enumerate(line):
        if char.isascii() and (char.isprintable() or char in _FINE_CONTROLS):
            continue
        if char in _BIDI:
            return f"a bidirectional control U+{ord(char):04X}"
        if _is_invisible(line, at, char):
            return f"an invisible character U+{ord(char):04X}"
        if unicodedata.category(char) == "Cc" and char not in _FINE_CONTROLS:
            return f"a control character U+{ord(char):04X}"
    return None


def _is_invisible(line: str, at: int, char: str) -> bool:
    if char in _JOINERS:  # part of emoji and of several scripts, never between ASCII letters
        around = line[max(0, at - 1) : at] + line[at + 1 : at + 2]
        return all(near.isascii() for near in around)
    if "\U000e0100" <= char <= "\U000e01ef":
        return True
    return char in _FILLERS or unicodedata.category(char) in {"Cf", "Zl", "Zp", "Co"}
