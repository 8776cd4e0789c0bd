"""`swarm pool up`: serves a profile on a vLLM of this machine, or the embedded model, and says how to join it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from platformdirs import user_log_path

from pool.config import AUTO, EmbeddedConfig, EndpointConfig
from pool.embedded import serve_embedded
from pool.errors import PoolConfigError, PoolError
from pool.launch import Running, ended, gone, refusals, run
from pool.profiles.checking import installed
from pool.profiles.recipes import Recipe
from pool.profiles.recipes import recipe as made_recipe
from pool.profiles.shapes import PROFILES, profile
from swarm.cli import door, screen
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.pool.live import SocketOption, reach, running
from swarm.cli.pool.wishes import (
    Asked,
    ConnectorOption,
    CountOption,
    DraftOption,
    GpuOption,
    HostMemoryOption,
    KvBitsOption,
    PortOption,
    PythonOption,
    ReasoningOption,
    SessionsOption,
    TemplateOption,
    ToolParserOption,
    WindowOption,
    found_python,
    mended,
    wish,
)
from swarm.config import Settings
from swarm.config_docs import toml_value
from swarm.errors import ConfigError, DaemonError

OWN = EmbeddedConfig()
OF_THE_EMBEDDED = {"parallel", "threads", "weights"}
OF_BOTH = {"embedded", "tier", "join", "socket", "config", "log", "json"}
TOLD_EVERY = 10.0  # seconds between words about a server that starts


def up(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="PROFILE", help=f"One of: {', '.join(PROFILES)}.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="A Hugging Face folder, or a known name.")] = None,
    gpu: GpuOption = None,
    count: CountOption = None,
    window: WindowOption = None,
    sessions: SessionsOption = None,
    kv_bits: KvBitsOption = 16,
    host_memory: HostMemoryOption = None,
    port: PortOption = 8000,
    connector: ConnectorOption = None,
    draft: DraftOption = None,
    tool_parser: ToolParserOption = None,
    reasoning_parser: ReasoningOption = None,
    chat_template: TemplateOption = None,
    python: PythonOption = None,
    devices: Annotated[
        list[str] | None, typer.Option(help="GPUs of a server, as 0,1; once for each server.", show_default="all")
    ] = None,
    tier: Annotated[
        str | None, typer.Option("--tier", "-t", help="The tier that it serves.", show_default="default, or embedded")
    ] = None,
    join: Annotated[bool, typer.Option("--join", help="Join it to the running gateway or daemon.")] = False,
    socket: SocketOption = None,
    config: ConfigOption = None,
    embedded: Annotated[bool, typer.Option("--embedded", help="Serve the model that ships with the project.")] = False,
    parallel: Annotated[
        int | None, typer.Option(min=1, max=64, help="Embedded: sequences at once.", show_default=str(OWN.parallel))
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Embedded: processor threads.", show_default=str(OWN.threads))
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Embedded: a GGUF file.", show_default="the project's own")
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(help="The folder of the logs; embedded: the log file.", show_default="the user's logs"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Serve a profile (or the embedded model) in the foreground and say how to join it; Ctrl-C stops it."""
    logs = log or user_log_path("agent-swarm") / ("embedded.log" if embedded else "pool")
    _refuse_mixed(ctx, embedded=embedded)
    if tier == AUTO:
        raise ConfigError(f'the tier "{AUTO}" is the one that a policy chooses', "give --tier another name")
    if embedded:
        told = {"parallel": parallel, "threads": threads, "weights": str(weights) if weights else None, "tier": tier}
        joining = running(ctx, config, socket) if join else None
        door.run(_serve(_chosen(told), logs, joining, json=json))
        return
    if name is None or model is None:
        ctx.fail("say what to serve: swarm pool up PROFILE --model MODEL, or swarm pool up --embedded")
    asked = Asked(
        model, gpu, count, window, sessions, kv_bits, host_memory, port, connector, draft,
        tool_parser, reasoning_parser, chat_template,
    )  # fmt: skip
    which = _python_for(name, python)
    settings = running(ctx, config, socket) if join else None
    door.run(_up(asked, name, which, Launching(logs, tuple(devices or ()), tier or "default", json, settings)))


def _refuse_mixed(ctx: typer.Context, *, embedded: bool) -> None:
    """Ends with a usage error where options of a profile and of the embedded model stand together."""
    told = {one.name: ctx.get_parameter_source(one.name or "") for one in ctx.command.params}
    given = [one for one in ctx.command.params if (how := told[one.name]) and how.name == "COMMANDLINE"]
    names = {one.name: "PROFILE" if one.name == "name" else one.opts[0] for one in given}
    own = names.keys() & OF_THE_EMBEDDED
    if embedded and (wrong := names.keys() - own - OF_BOTH):
        listed = ", ".join(names[one] for one in names if one in wrong)
        ctx.fail(f"the embedded model is the one that ships with the project: leave out {listed}, or --embedded")
    if "socket" in names and "join" not in names:
        ctx.fail("--socket says which gateway to join: add --join")
    if own and not embedded:
        ctx.fail(f"{', '.join(sorted(names[one] for one in own))} is for the embedded model: add --embedded")


def _chosen(told: Mapping[str, object]) -> EmbeddedConfig:
    """The embedded model as asked, and by default where nothing was said."""
    return EmbeddedConfig.model_validate({"enabled": True} | {k: v for k, v in told.items() if v is not None})


def _python_for(name: str, given: str | None) -> str:
    """The Python whose vLLM serves a profile. Raises ConfigError for no such profile, and where there is no vLLM."""
    with mended():
        profile(name)
    found = found_python(given)
    if found is None:
        raise ConfigError("no vLLM is installed here: there is no `vllm` on PATH", "name its Python with --python")
    return found


def joined(endpoint: EndpointConfig) -> dict[str, object]:
    """What a swarm.toml says to join an endpoint, its key included: whoever starts a server may know it."""
    told: dict[str, object] = {"name": endpoint.name, "url": f"{endpoint.url}/v1", "tier": endpoint.tier}
    told |= {"tools": endpoint.tools, "max_in_flight": endpoint.max_in_flight}
    further = endpoint.model_dump(
        include={"model", "scheduling", "share_group", "role", "kv_events", "kv_replay", "gpus"},
        exclude_none=True,
        exclude_defaults=True,
    )
    key = {"api_key": endpoint.api_key.get_secret_value()} if endpoint.api_key else {}
    return told | further | key


@dataclass
class Launching:
    """How servers are started and spoken of; with ``settings`` they join the pool that these reach."""

    logs: Path
    devices: tuple[str, ...]
    tier: str
    json: bool
    settings: Settings | None = None
    _told: float = 0.0

    def progress(self, name: str, seconds: float, line: str) -> None:
        """Say every few seconds where a server that starts stands."""
        if seconds - self._told >= TOLD_EVERY:
            self._told = seconds
            screen.hint(f"{name} is starting, {seconds:.0f} s" + (f": {line[:150]}" if line else ""))


async def _up(asked: Asked, name: str, python: str, how: Launching) -> None:
    with mended():
        made = await _checked(asked, name, python)
    for module, mend in made.modules:
        screen.hint(f"it needs the module {module} in vLLM's Python: {mend}")
    for step in made.first:
        screen.hint(f"it needs, running before: {step}")
    for doubt in made.dropped:
        screen.hint(f"left out: {' '.join(doubt.words)} ({doubt.why})")
    for note in made.notes:
        screen.hint(f"note: {note}")
    for server in made.servers:
        screen.hint(f"starting {server.name}; its log is {how.logs / (server.name + '.log')}")
    await _while_wanted(_serving(made, python, how))


async def _serving(made: Recipe, python: str, how: Launching) -> None:
    """Serve until cancelled. Raises LaunchError where a server does not come up, or ends by itself."""
    started = run(made, python, logs=how.logs, environ=os.environ, devices=how.devices, progress=how.progress)
    async with started as servers:
        endpoints = [_placed(one, how.tier) for one in servers if one.server.endpoint]
        async with _member(endpoints, how.settings):
            tell(endpoints, json=how.json, joined_already=how.settings is not None)
            raise gone(await ended(servers))


@asynccontextmanager
async def _member(endpoints: Sequence[EndpointConfig], settings: Settings | None) -> AsyncIterator[None]:
    """Members of the running pool for as long as the block runs, then removed from it. Raises what joining raises."""
    if settings is None:
        yield
        return
    async with AsyncExitStack() as stack:
        for endpoint in endpoints:
            await _join(endpoint, settings)
            stack.push_async_callback(_leave, endpoint.name, settings)
        yield


async def _join(endpoint: EndpointConfig, settings: Settings) -> None:
    """Raises ConfigError for a name that is taken, DaemonError where no pool runs."""
    async with reach(settings) as client:
        try:
            await client.add(endpoint)
        except PoolConfigError as error:
            mend = f"take it out first: swarm pool remove {endpoint.name}"
            raise ConfigError(str(error).partition(";")[0], mend) from None


async def _leave(name: str, settings: Settings) -> None:
    with suppress(DaemonError, PoolError):  # a pool that is gone, or took it out itself, holds it no more
        async with reach(settings) as client:
            await client.remove(name)


async def _checked(asked: Asked, name: str, python: str) -> Recipe:
    """The recipe, once the installed vLLM itself took every word of it. Raises PoolConfigError where it refuses one."""
    async with installed(python, os.environ) as found:
        made = made_recipe(wish(asked, name, python), found.release)
        if problems := await refusals(made, found):
            listed = "\n".join(f"  {problem}" for problem in problems)
            raise PoolConfigError(f"vLLM {found.release.version} would refuse profile {name}:\n{listed}")
        return made


def _placed(one: Running, tier: str) -> EndpointConfig:
    endpoint = one.server.endpoint
    if endpoint is None:
        raise PoolConfigError(f"{one.server.name} is asked by its partner alone")
    return endpoint.model_copy(update={"tier": tier})


async def _serve(config: EmbeddedConfig, log: Path, joining: Settings | None, *, json: bool) -> None:
    async def serving() -> None:
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        child = serve_embedded(config, log=log, environ=os.environ, ended=gone.set_exception)
        async with child as endpoint, _member([endpoint], joining):
            tell([endpoint], json=json, joined_already=joining is not None)
            if not json:
                screen.hint(f"its log is {log}")
            await gone

    await _while_wanted(serving())


def tell(endpoints: Sequence[EndpointConfig], *, json: bool, joined_already: bool = False) -> None:
    """Say how to join what is served: a JSON object on one line for each, or the lines of a swarm.toml."""
    lines = [joined(endpoint) for endpoint in endpoints]
    if json:
        for one in lines:
            screen.json_line(one)
        return
    if joined_already:
        screen.say(f"serving and joined: {', '.join(endpoint.name for endpoint in endpoints)}")
        screen.hint("Ctrl-C takes it out of the pool and stops it")
        return
    screen.say("serving; while this runs, a swarm.toml joins it with:")
    for one in lines:
        screen.say("\n[[pool.endpoints]]\n" + "\n".join(f"{name} = {toml_value(value)}" for name, value in one.items()))
    screen.hint("\nCtrl-C stops it")


async def _while_wanted(work: Coroutine[Any, Any, None]) -> None:
    """Do the work until SIGINT or SIGTERM, also while it still starts; then let it tidy up."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    doing, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({doing, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            doing.result()
    finally:
        for task in (doing, stopped):
            task.cancel()
        await asyncio.gather(doing, stopped, return_exceptions=True)
