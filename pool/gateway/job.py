"""One request on its way through the gateway: what was asked, by whom, and what is known of the answer so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pool.gateway.identity import NAMING, Identity, identify
from pool.gateway.keys import Caller
from pool.gateway.reading import Asked, check_labels, class_of, deadline_of
from pool.gateway.replies import Refusal
from pool.gateway.service import Service
from pool.gateway.speech import AsItIs, Speech
from pool.gateway.virtual import Frame
from pool.gateway.web import Exchange
from pool.types import Report, RequestClass, Usage
from pool.wire.gate import ordered

GONE = "499"  # the status under which a client that hung up is counted


@dataclass(slots=True)
class Job:
    """``began`` and ``first_at`` are on the service's clock, ``waited`` is in seconds, ``spoken`` tokens heard.

    ``refusal`` is what the client was told instead of an answer, ``report`` what a virtual model did for it.
    ``gpus`` are those of its endpoint.
    """

    asked: Asked
    caller: Caller
    frame: Frame
    number: str
    began: float
    speech: Speech
    endpoint: str = "none"
    model: str = ""
    status: str = "500"
    first_at: float | None = None
    waited: float = 0.0
    attempts: int = 1
    usage: Usage | None = None
    spoken: int = 0
    refusal: Refusal | None = None
    report: Report | None = None
    gpus: float = 0.0

    @property
    def request_class(self) -> RequestClass:
        """Its class."""
        return self.frame.request_class


def job_of(service: Service, exchange: Exchange, caller: Caller, asked: Asked) -> Job:
    """The job that a request makes."""
    check_labels(exchange.headers, NAMING)
    identity = _identity(exchange, caller, asked)
    body, wanted = ordered(asked.body)
    frame = Frame(
        tier=asked.model,
        session=identity.session,
        program=service.trees.root(identity),
        request_class=caller.lowered(class_of(exchange.headers) or wanted),
        deadline=deadline_of(exchange.headers, service.config.deadline, stream=asked.stream),
    )
    named = {**body, "session_id": identity.session}  # left out again for servers that would not know the field
    return Job(asked.with_body(named), caller, frame, exchange.request_id, service.clock(), AsItIs())


def _identity(exchange: Exchange, caller: Caller, asked: Asked) -> Identity:
    if caller.bound is not None:
        return Identity(caller.bound.session, caller.bound.program, "connection")
    return identify(exchange.headers, asked.body, "" if caller.name == "anybody" else caller.name)


def tell(exchange: Exchange, told: Iterable[tuple[str, str]]) -> None:
    """Have the answer's head say who answers. Values become printable ASCII of bounded length."""
    for name, value in told:
        clean = value[:200]
        if not (clean.isascii() and clean.isprintable()):
            clean = "".join(c if " " <= c <= "~" else "?" for c in clean)
        exchange.extra.append((b"x-swarm-" + name.encode(), clean.encode()))
