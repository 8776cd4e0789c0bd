"""`swarm pool explain REQUEST`: why a request went where it went, and what that turned out to cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Annotated

import typer

from pool.errors import PoolConfigError
from pool.placement.view import Decision, Row
from swarm.cli import door, screen
from swarm.cli.clean import one_line
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.pool import live
from swarm.config import Settings

WHERE = "an answer tells its id in the header X-Request-Id"


def explain(
    ctx: typer.Context,
    request: Annotated[str, typer.Argument(help="The request's id, as its answer or log tells it.", metavar="REQUEST")],
    socket: live.SocketOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Show who could have taken a request, what each would have cost in seconds, and what came of it.

    The columns before "total" are the parts of that price, in seconds; docs/gateway.md tells what each is.
    """
    decision = door.run(_decision(live.running(ctx, config, socket), request))
    if json:
        screen.document(dataclasses.asdict(decision))
        return
    screen.say("\n".join(story(decision)))
    parts = sorted({part for one in decision.rows for part in one.seconds})
    if decision.rows:
        screen.table(
            ("endpoint", "hit tokens", *(f"{part} s" for part in parts), "total s", "remark"),
            [row(one, parts, decision) for one in decision.rows],
        )


def story(decision: Decision) -> Iterator[str]:
    """The decision in a few lines."""
    where = f"went to {decision.endpoint}" if decision.endpoint else "has no place yet"
    yield f"request {one_line(decision.request)} of session {one_line(decision.session or 'none')} {where}"
    yield f"  because       {one_line(decision.reason, 600)}"
    if decision.moved_from:
        yield f"  moved from    {decision.moved_from}"
    yield f"  first token   foreseen {_seconds(decision.expected_ttft)}, came after {_seconds(decision.actual_ttft)}"
    yield f"  cached tokens foreseen {decision.expected_hit}, told {_known(decision.actual_hit)}"
    yield f"  regret        {_seconds(decision.regret)}"


def row(one: Row, parts: list[str], decision: Decision) -> tuple[str, ...]:
    """One endpoint: its price in seconds by part, or why it was left out."""
    if one.left_out:
        return (one.endpoint, str(one.hit_tokens), *("" for _ in parts), "", f"left out: {one_line(one.left_out, 120)}")
    seconds = [f"{one.seconds[part]:.3f}" if part in one.seconds else "" for part in parts]
    return (
        one.endpoint,
        str(one.hit_tokens),
        *seconds,
        f"{one.total:.3f}",
        "taken" if one.endpoint == decision.endpoint else "",
    )


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f} s"


def _known(value: int | None) -> str:
    return "unknown" if value is None else str(value)


async def _decision(settings: Settings, request: str) -> Decision:
    """Raises DaemonError where no pool runs, PoolConfigError for a request that it does not remember."""
    if not request.isprintable() or "/" in request or not request:
        raise PoolConfigError(f"{request[:100]!r} is no request's id; {WHERE}")
    async with live.reach(settings) as client:
        try:
            return await client.explain(request)
        except PoolConfigError as error:
            raise PoolConfigError(f"{error}; {WHERE}") from None
