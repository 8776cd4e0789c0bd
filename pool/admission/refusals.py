"""Why a request is turned down, at which stage, and when to come back; pure."""

from __future__ import annotations

from pool.admission.classes import Classes
from pool.admission.line import Line, able, lives
from pool.admission.queue import Ticket
from pool.errors import ContextOverflowError, NoEndpointError, OverloadError, PoolError, Stage
from pool.placement.view import Ask, Decision

WHY_LIVE = "the sessions that are live now fill the KV cache"


def hopeless(line: Line, ticket: Ticket, classes: Classes, now: float) -> PoolError | None:
    """Why waiting is no use, as far as that is seen at once."""
    ask, left = ticket.ask, ticket.ask.deadline - now
    if left <= 0:
        return OverloadError(f"tier {line.tier}: the deadline is over already", None, "deadline")
    if classes.of(ticket.rank).queue == 0:
        return full(line, ticket, classes)
    fitting = [site for site in line.sites() if lives(site) and able(site, ask)]
    if not fitting:
        return nobody(line, ask)
    cooling = min(site.cooling for site in fitting)
    if cooling >= left:
        told = f"every endpoint asks to wait, the first for {cooling:.1f} s, which is past the deadline"
        return OverloadError(f"tier {line.tier}: {told}", cooling, "cooling")
    wait = line.pace.wait(line.queue.ahead(ticket.level))
    if wait is not None and wait > left:
        told = f"a place is expected in {wait:.1f} s, past the deadline in {left:.1f} s"
        return OverloadError(f"tier {line.tier}: {told}", wait, "deadline")
    return None


def full(line: Line, ticket: Ticket, classes: Classes) -> OverloadError:
    """Too many of its class wait already."""
    most, name = classes.of(ticket.rank).queue, ticket.ask.request_class
    told = f"no place is free, and {line.queue.count(ticket.rank)} {name} requests wait already, of at most {most}"
    return OverloadError(f"tier {line.tier}: {told}", retry_after(line, ticket), "queue full")


def expired(line: Line, ticket: Ticket, now: float) -> OverloadError:
    """It waited for as long as it may."""
    why = awaited(line, ticket)
    told = f"no place within {now - ticket.entered:.1f} s ({why})"
    stage: Stage = "deadline" if ticket.late else "live set" if why == WHY_LIVE else "queue timeout"
    return OverloadError(f"tier {line.tier}: {told}", retry_after(line, ticket), stage)


def awaited(line: Line, ticket: Ticket) -> str:
    """What a ticket waits for. One that was not looked at has others before it."""
    if ticket.why:
        return ticket.why
    return WHY_LIVE if line.closed and ticket.lane != "live" else "every endpoint is full, and others go first"


def late(decision: Decision, ask: Ask, now: float) -> OverloadError | None:
    """Even the best place could not begin to answer in time."""
    ttft = decision.expected_ttft
    if ttft is None or now + ttft <= ask.deadline:
        return None
    told = f"the first token of {ask.prompt.tokens} tokens is expected from {decision.endpoint} in {ttft:.1f} s"
    left = max(0.0, ask.deadline - now)
    return OverloadError(f"tier {ask.tier}: {told}, past the deadline in {left:.1f} s", None, "deadline")


def nobody(line: Line, ask: Ask) -> PoolError:
    """No living endpoint can ever take it."""
    sites = line.sites()
    alive = [site for site in sites if lives(site)]
    if not alive:
        told = ", ".join(f"{s.name}: {'draining' if s.draining else s.state}" for s in sites) or "none joined"
        return NoEndpointError(f"no endpoint of the tier {line.tier!r} is up ({told})")
    offering = [site for site in alive if ask.needs <= site.capabilities]
    if not offering:
        lacking = ", ".join(sorted(ask.needs))
        return NoEndpointError(f"no living endpoint of the tier {line.tier!r} offers {lacking}")
    window = max(site.window or 0 for site in offering)
    told = f"a prompt of about {ask.prompt.tokens} tokens does not fit {window}"
    return ContextOverflowError(f"tier {line.tier!r}: {told}, the largest window", window)


def retry_after(line: Line, ticket: Ticket) -> float:
    """Seconds until a place is likely, one at least."""
    wait = line.pace.wait(line.queue.ahead(ticket.level + 1))
    return max(1.0, wait) if wait is not None else 1.0
