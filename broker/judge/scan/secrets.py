"""Secrets in added lines, by detect-secrets; nothing is verified over the network and nothing found is repeated."""

from __future__ import annotations

from collections.abc import Iterable

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

from broker.judge.scan.content import pieces

# Guesses by entropy alone call every digest a secret; they count only where a keyword detector would agree anyway.
_NOT_USED: tuple[type[BasePlugin], ...] = (IPPublicDetector, HexHighEntropyString, KeywordDetector)
_GUESSES: tuple[type[BasePlugin], ...] = (Base64HighEntropyString,)


def _detectors() -> tuple[BasePlugin, ...]:
    classes: Iterable[type[BasePlugin]] = get_mapping_from_secret_type_to_class().values()
    sure = [kind for kind in classes if kind not in _NOT_USED and kind not in _GUESSES]
    return tuple(kind() for kind in sorted(sure, key=lambda kind: kind.__name__))


class Secrets:
    """Compiled detectors: make one and keep it."""

    def __init__(self) -> None:
        self._sure = _detectors()
        self._keyword = KeywordDetector()
        self._entropy: HighEntropyStringsPlugin = Base64HighEntropyString(limit=4.5)

    def kind_in(self, path: str, line: str) -> str | None:
        """What kind of secret a line seems to hold; the secret itself is never told."""
        # Detectors are asked for strings only: their analyze_line may verify a find over the network.
        # An "allowlist" pragma on the line is not honoured, since the author of the line is who is judged.
        for piece in pieces(line):
            for detector in self._sure:
                if any(found and not _is_placeholder(found) for found in detector.analyze_string(piece)):
                    return str(detector.secret_type)
            for guess in (self._keyword, self._entropy):
                secrets = guess.analyze_line(filename=path, line=piece)
                if any(_is_likely(str(secret.secret_value), piece, guess) for secret in secrets):
                    return str(guess.secret_type)
        return None


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
