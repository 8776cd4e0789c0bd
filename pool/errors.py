"""Why a request to the pool failed, classed by what a caller can do about it.

PoolError
├── PoolConfigError      the configuration names no such tier or is unusable
├── PermanentError       the request itself is wrong (400, 404, 422): never retried
│   ├── ModelMissingError   the server no longer serves that model: discovered anew, sent once more
│   ├── CapabilityError     no endpoint of the tier can do what ``field`` of the request asks for
│   ├── MisconfiguredError  the endpoint is set up wrongly (3xx, 401, 403, 407): never asked again, others are
│   └── PoisonError         the request breaks servers: it failed on several that others went on using
├── ContextOverflowError prompt and output do not fit the model's ``window``: shorten, or ask a longer-window tier
├── OverloadError        the tier is full (429, 503); ``retry_after`` seconds where told
├── TransientError       a passing fault (5xx, reset, a torn answer): retried within the budget
│   ├── BrokenError         the connection broke, of which the server gave no reason
│   ├── EndpointDeadError   nobody listens, or the engine says that it died
│   ├── StalledError        no sign of life for as long as was to be waited
│   └── TornError           an answer broke off after a part of it was heard; ``partial`` is its text
├── NoEndpointError      no endpoint of the tier is alive
└── EmbeddedError        the embedded model cannot be served; the message says what mends it
"""

from __future__ import annotations

from typing import Literal

Stage = Literal["queue full", "queue timeout", "deadline", "live set", "cooling"]
"""Where a request was turned down before any server saw it."""


class PoolError(Exception):
    """Base of all errors of this room."""


class PoolConfigError(PoolError):
    """The configuration names no such tier or is unusable."""


class PermanentError(PoolError):
    """The request itself is wrong; sending it again cannot help. ``status`` is what the server said, 400 otherwise."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class ModelMissingError(PermanentError):
    """The server does not serve the model that was asked for."""


class CapabilityError(PermanentError):
    """No endpoint that may be asked can do what ``field`` of the request asks for; the message tells the mend."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


class MisconfiguredError(PermanentError):
    """The endpoint is set up wrongly: it sends requests elsewhere or wants another key. Another one may answer."""


class PoisonError(PermanentError):
    """This very request breaks the servers that take it, while they serve others well: sent to no more of them."""


class ContextOverflowError(PoolError):
    """Prompt and output do not fit the model's ``window``; ``prompt`` is the prompt's size. Tokens, where told."""

    def __init__(self, message: str, window: int | None = None, prompt: int | None = None) -> None:
        super().__init__(message)
        self.window = window
        self.prompt = prompt


class OverloadError(PoolError):
    """The tier is full. ``stage`` is where a request of ours was turned down, empty where a server did it."""

    def __init__(self, message: str, retry_after: float | None = None, stage: Stage | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.stage = stage


class TransientError(PoolError):
    """A passing fault. ``reached`` is False where the server never got the request."""

    reached = True


class BrokenError(TransientError):
    """The connection broke without a word, or what came over it was no answer."""


class EndpointDeadError(TransientError):
    """Nobody listens at the endpoint, or its engine says that it died."""

    def __init__(self, message: str, *, reached: bool = True) -> None:
        super().__init__(message)
        self.reached = reached


class StalledError(TransientError):
    """No sign of life for as long as was to be waited. The request was dropped at the server too."""


class TornError(TransientError):
    """An answer broke off after a part of it was heard. ``partial`` is the text so far."""

    def __init__(self, message: str, partial: str = "") -> None:
        super().__init__(message)
        self.partial = partial


class NoEndpointError(PoolError):
    """No endpoint of the tier is alive."""


class EmbeddedError(PoolError):
    """The embedded model cannot be served; the message says what mends it."""
