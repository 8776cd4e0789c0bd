"""`swarm init`: looks for model servers on this machine and writes a swarm.toml to start from."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from platformdirs import user_state_path

from swarm.cli import door, screen
from swarm.cli.door import JsonOption
from swarm.cli.draft import Places, draft
from swarm.cli.probe import USUAL, Server, find
from swarm.config import BrokerAddress, DaemonConfig
from swarm.config_file import NAME
from swarm.errors import ConfigError

app = typer.Typer()
ROOT = Places(DaemonConfig().state, DaemonConfig().socket, BrokerAddress().socket)


@app.command()
def init(
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path(NAME),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    port: Annotated[
        list[int] | None,
        typer.Option(min=1, max=65535, help="Look at this loopback port instead; repeatable.", show_default=False),
    ] = None,
    state: Annotated[Path | None, typer.Option(help="The daemon's folder.", show_default=False)] = None,
    socket: Annotated[Path | None, typer.Option(help="The daemon's socket.", show_default=False)] = None,
    broker: Annotated[Path | None, typer.Option(help="The broker's socket.", show_default=False)] = None,
    json: JsonOption = False,
) -> None:
    """Find model servers on this machine and write a commented swarm.toml.

    Looks at loopback ports of vLLM, llama.cpp, Ollama, LM Studio and SGLang.
    Where none of them answers, the file joins the embedded model.
    """
    if output.exists() and not force:
        raise ConfigError(
            f"{output}: is there already", "look at it with: swarm config check, or replace it with --force"
        )
    servers = door.run(find(port or USUAL))
    usual = places(os.geteuid())
    chosen = Places(state or usual.state, socket or usual.socket, broker or usual.broker)
    write(output, draft(servers, Places(*(path.absolute() for path in chosen))), force=force)
    if json:
        screen.document({"path": str(output), "embedded": not servers, "endpoints": [_found(one) for one in servers]})
        return
    for server in servers:
        models = ", ".join(server.answer.models) or server.answer.trouble
        screen.say(f"found {server.name} at {server.answer.url}: {models}")
    if not servers:
        screen.say("found no model server; the embedded model will serve, which proves the plumbing, not skill")
    screen.say(f"wrote {output}")
    screen.hint("next: swarm config check, then swarm doctor")


def places(uid: int) -> Places:
    """Where things live when nothing else is said: the system's folders for root, else the user's own."""
    if uid == 0:
        return ROOT
    own = user_state_path("agent-swarm")  # not the runtime folder: without a login session that lies in /tmp
    return Places(own, own / "swarm.sock", ROOT.broker)  # where swarm-broker init puts it, whoever calls


def write(path: Path, text: str, *, force: bool) -> None:
    """Write a whole file or none of it. Raises ConfigError where that cannot be, or would replace one unasked."""
    try:
        if not force:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
            return
        with tempfile.NamedTemporaryFile("w", dir=path.parent, encoding="utf-8", delete=False) as whole:
            whole.write(text)
        Path(whole.name).chmod(0o644)
        Path(whole.name).replace(path)
    except FileExistsError:
        raise ConfigError(f"{path}: is there already", "replace it with --force") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", "name a file in a folder of yours with --output PATH") from None


def _found(server: Server) -> dict[str, object]:
    answer = server.answer
    return {"name": server.name, "url": answer.url, "models": list(answer.models), "trouble": answer.trouble}
