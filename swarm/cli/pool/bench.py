"""`swarm pool bench`: a concurrency sweep, or a replay of agent sessions, against one server or a tier of the pool."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from pool.bench import drawing, png
from pool.bench.figures import Spread, Summary
from pool.bench.meters import Strain
from pool.bench.replay import Replayed, replay
from pool.bench.sweep import Shape, levels_to, sweep
from pool.bench.target import Exactness, Target, run_id, straight, through
from pool.bench.verdict import Level, Verdict, flat_because
from pool.bench.workload import Session, invented, read, scaled
from pool.config import EndpointConfig, PoolConfig
from pool.errors import PoolConfigError
from swarm.cli import door, screen
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.exits import Code
from swarm.cli.pool.given import KeyOption, configured, no_key_without, server, told_for_urls, with_embedded
from swarm.errors import ConfigError

SWEEP_HEADERS = (
    "at once",
    "tokens/s",
    "req/s",
    "ttft p50",
    "ttft p99",
    "itl p50",
    "itl p99",
    "end p99",
    "lost",
    "inside",
)
SAMPLE = "sample"


class Whom(NamedTuple):
    """Whom to ask: one server, or else a tier of the pool."""

    endpoint: EndpointConfig | None
    pool: PoolConfig | None
    tier: str
    exact: Exactness


class Output(NamedTuple):
    """What becomes of the figures."""

    json: bool
    plot: bool
    png: Path | None


def bench(
    ctx: typer.Context,
    url: Annotated[str | None, typer.Option("--url", help="One server, asked straight.", show_default=False)] = None,
    tier: Annotated[
        str | None, typer.Option("--tier", "-t", help="A tier, asked through the pool.", show_default="the default one")
    ] = None,
    model: Annotated[str | None, typer.Option(help="With --url: the model.", show_default="its first")] = None,
    key_env: KeyOption = None,
    concurrency: Annotated[
        int, typer.Option(min=1, max=4096, help="Sweep: most clients at once, after 1, 2, 4 and so on.")
    ] = 8,
    prompt: Annotated[int, typer.Option(min=1, help="Sweep: tokens of a prompt.")] = 256,
    shared: Annotated[int, typer.Option(min=0, help="Sweep: of these, the same for all.")] = 0,
    output: Annotated[int, typer.Option(min=1, help="Sweep: tokens of an answer.")] = 64,
    each: Annotated[int, typer.Option(min=1, help="Sweep: requests of each client, one after another.")] = 3,
    trace: Annotated[
        str | None,
        typer.Option("--trace", help="Replay a CSV of sessions instead; 'sample' is built in.", show_default="sweep"),
    ] = None,
    scale: Annotated[float, typer.Option(min=0.001, help="Replay: every length times this.")] = 1.0,
    speed: Annotated[float, typer.Option(min=0.001, help="Replay: every wait divided by this.")] = 1.0,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Replay: only the first so many sessions.", show_default="all")
    ] = None,
    deadline: Annotated[float, typer.Option(min=1, help="Seconds for one request.")] = 600.0,
    exact: Annotated[
        bool | None,
        typer.Option("--exact/--no-exact", help="Answers of just the wanted length.", show_default="where known"),
    ] = None,
    plot: Annotated[bool, typer.Option("--plot/--no-plot", help="Draw the sweep in the terminal.")] = True,
    picture: Annotated[
        Path | None, typer.Option("--png", help="Draw into this PNG file as well.", show_default=False)
    ] = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Measure a server, or a tier through the pool; says which side went flat and why. Exit code 1: all was lost."""
    whom = _whom(ctx, config, Asked(url, tier, model, key_env, exact))
    how = Output(json, plot, picture)
    if picture is not None:
        _drawable(picture)
    if trace is not None:
        sessions = scaled(_sessions(trace), scale=scale, speed=speed, limit=limit)
        lost = door.run(_replay(whom, sessions, deadline, how))
    else:
        if shared >= prompt:
            raise ConfigError(f"of {prompt} tokens of a prompt {shared} cannot be shared", "--shared below --prompt")
        shape = Shape(prompt=prompt, shared=shared, output=output, each=each, deadline=deadline)
        lost = door.run(_sweep(whom, levels_to(concurrency), shape, how))
    if lost:
        raise typer.Exit(Code.FAULT)


class Asked(NamedTuple):
    """What the command line said of whom to ask."""

    url: str | None
    tier: str | None
    model: str | None
    key_env: str | None
    exact: bool | None


def _whom(ctx: typer.Context, config: Path | None, asked: Asked) -> Whom:
    exact = Exactness(asked.exact)
    if asked.url is not None:
        if asked.tier is not None:
            raise ConfigError("--url asks one server, --tier the pool", "give one of the two")
        one = server({"name": "bench", "url": asked.url, "model": asked.model}, asked.key_env)
        return Whom(one, None, "", exact)
    no_key_without("--url", asked.key_env)
    settings = configured(door.loaded(ctx, config).settings)
    usual = settings.default_tier if settings.default_tier in settings.tiers else settings.tiers[0]
    tier = asked.tier or usual or ""
    if tier not in settings.tiers:
        raise ConfigError(f'no server serves the tier "{tier}"', f"--tier takes one of: {', '.join(settings.tiers)}")
    return Whom(None, settings, tier, exact)


def _drawable(picture: Path) -> None:
    """Raises ConfigError for a picture that could not be drawn or kept, before minutes of measuring."""
    try:
        png.ready(picture)
    except PoolConfigError as error:
        raise ConfigError(str(error), "mend that, or leave out --png: the figures are printed as well") from None


def _sessions(trace: str) -> tuple[Session, ...]:
    if trace == SAMPLE:
        return invented()
    try:
        return read(Path(trace).expanduser())
    except PoolConfigError as error:
        raise ConfigError(str(error), "see docs/pool-profiles.md for the columns, or take --trace sample") from None


@asynccontextmanager
async def _target(whom: Whom) -> AsyncIterator[Target]:
    if whom.endpoint is not None:
        with told_for_urls():
            async with straight(whom.endpoint, whom.exact) as one:
                yield one
    elif whom.pool is not None:
        async with with_embedded(whom.pool) as config, through(config, whom.tier, whom.exact) as tier:
            yield tier


def _note(target: Target, how: Output) -> None:
    if target.note and not how.json:
        screen.hint(target.note)


async def _sweep(whom: Whom, concurrencies: tuple[int, ...], shape: Shape, how: Output) -> bool:
    """Sweep and tell; True where not one answer came."""
    levels: list[Level] = []
    async with _target(whom) as target:
        _note(target, how)
        async for level in sweep(target, concurrencies, shape, run_id()):
            levels.append(level)
            if not how.json:
                screen.hint(f"{level.concurrency} at once: {level.summary.tokens_per_second:.1f} tokens/s")
        name, exact = target.name, target.exact
    verdict = flat_because(levels)
    if how.json:
        screen.document(
            {
                "target": name,
                "exact": list(exact),
                "shape": shape.model_dump(),
                "levels": [level.model_dump() for level in levels],
                "flat": verdict.flat,
                "flat_since": verdict.since,
                "flat_because": verdict.because,
            }
        )
    else:
        _tell_sweep(name, levels, verdict, how)
    if how.png:
        png.of_sweep(how.png, name, levels, verdict)
        screen.hint(f"drawn into {how.png}")
    return not any(level.summary.ok for level in levels)


def _tell_sweep(name: str, levels: Sequence[Level], verdict: Verdict, how: Output) -> None:
    screen.table(SWEEP_HEADERS, [_row(level) for level in levels])
    if how.plot and len(levels) > 1:
        try:
            screen.say("\n" + drawing.terminal(levels))
        except PoolConfigError as error:
            screen.hint(str(error))
    sides = {"not flat": "not flat", "unknown": "cannot be told"}
    side = sides.get(verdict.flat, f"the {verdict.flat} goes flat from {verdict.since} at once")
    screen.say(f"\n{name}: {side}: {verdict.because}")
    for reason, times in _reasons(levels).items():
        screen.hint(f"lost {times} times: {reason}")


def _reasons(levels: Sequence[Level]) -> dict[str, int]:
    found: dict[str, int] = {}
    for level in levels:
        for reason, times in level.summary.reasons.items():
            found[reason] = found.get(reason, 0) + times
    return found


def _row(level: Level) -> tuple[str, ...]:
    made = level.summary
    return (
        str(level.concurrency),
        f"{made.tokens_per_second:.1f}",
        f"{made.requests_per_second:.2f}",
        _seconds(made.ttft.p50),
        _seconds(made.ttft.p99),
        _seconds(made.itl.p50),
        _seconds(made.itl.p99),
        _seconds(made.e2e.p99),
        f"{made.lost}/{made.arrivals}",
        _inside(level.strain),
    )


def _inside(strain: Strain) -> str:
    if strain.running is None:
        return "?"
    kv = f", KV {strain.kv_usage:.0%}" if strain.kv_usage is not None else ""
    return f"{strain.running:.1f} run, {strain.waiting or 0:.1f} wait{kv}"


def _seconds(value: float | None) -> str:
    """None is a percentile that never came."""
    return "never" if value is None else f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


async def _replay(whom: Whom, sessions: tuple[Session, ...], deadline: float, how: Output) -> bool:
    """Replay and tell; True where not one answer came."""
    told = [0]

    def done(ended: int, planned: int) -> None:
        if not how.json and ended * 10 // planned > told[0]:
            told[0] = ended * 10 // planned
            screen.hint(f"{ended} of {planned} rounds")

    async with _target(whom) as target:
        _note(target, how)
        name, exact = target.name, target.exact
        made = await replay(target, sessions, run_id(), deadline=deadline, done=done)
    if how.json:
        screen.document({"target": name, "exact": list(exact), **made.model_dump()})
    else:
        _tell_replay(name, made)
    if how.png:
        png.of_replay(how.png, name, made)
        screen.hint(f"drawn into {how.png}")
    return made.summary.ok == 0


def _tell_replay(name: str, made: Replayed) -> None:
    totals = made.summary
    screen.say(f"{name}: {made.sessions} sessions, {made.rounds} rounds in {totals.seconds:.1f} s")
    screen.table(("over all arrivals", "p50", "p90", "p95", "p99"), _spreads(totals))
    screen.say(f"\n{totals.tokens_per_second:.1f} output tokens/s, {totals.requests_per_second:.2f} requests/s")
    if totals.cached_tokens is not None and totals.prompt_tokens:
        share = totals.cached_tokens / totals.prompt_tokens
        screen.say(f"{share:.0%} of {totals.prompt_tokens:,} prompt tokens came from a prefix cache")
    if totals.lost:
        lost = f"{totals.lost} of {totals.arrivals} arrivals were lost, {made.broken} sessions broken"
        screen.say(lost, screen.STYLES["fail"])
        for reason, times in totals.reasons.items():
            screen.hint(f"lost {times} times: {reason}")
    screen.hint(f"the servers: {_inside(made.strain)}; our loop was {made.strain.lag * 1000:.0f} ms late (p99)")


def _spreads(totals: Summary) -> list[tuple[str, ...]]:
    named: tuple[tuple[str, Spread], ...] = (
        ("first token", totals.ttft), ("whole answer", totals.e2e),
        ("between pieces", totals.itl), ("in our queue", totals.queued),
    )  # fmt: skip
    return [(name, *(_seconds(value) for value in (s.p50, s.p90, s.p95, s.p99))) for name, s in named]
