"""The operator's verbs: serve, init, selftest, and the settings."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from broker.cli.screen import DEFAULT_CONFIG, Config, Json, as_json, aside, out, say
from broker.config import loading, showing, template
from broker.config.live import Live
from broker.config.repository import ForgeKind
from broker.config.settings import BrokerConfig
from broker.errors import ConfigError
from broker.judge.selftest import examine
from broker.server import serve as run_server

commands = typer.Typer()
settings = typer.Typer(no_args_is_help=True, help="The broker's settings.")
_OPTIONS = {  # a place in the settings: what it comes from
    r"roles\.person": "--person",
    r"roles\.coordinator": "--coordinator",
    r"repositories\.[^.:]*\.path": "--path",
    r"repositories\.[^.:]*\.url": "--url",
    r"repositories\.[^.:]*\.credential\.token": "--token-file",
    r"repositories\.[^.:]*": "--url or --name",
}
_KINDS: tuple[ForgeKind, ...] = ("local", "github", "gitea", "gitlab")


@commands.command()
def serve(
    config_file: Config = DEFAULT_CONFIG,
    standby: Annotated[
        bool, typer.Option("--standby", help="wait while another broker works on the same state, then take over")
    ] = False,
) -> None:
    """Run the broker until SIGTERM."""
    loaded = loading.load(config_file)
    for warning in showing.warnings(loaded, os.geteuid()):
        aside(f"warning: {warning}")
    run_server(Live(config_file, loaded), standby=standby)


@commands.command()
def init(
    config_file: Config = DEFAULT_CONFIG,
    forge: Annotated[str, typer.Option(help=f"kind of forge: {', '.join(_KINDS)}")] = "local",
    url: Annotated[str, typer.Option(help="the repository's web address, such as https://github.com/o/web")] = "",
    token_file: Annotated[
        Path, typer.Option(help="the file that holds, or will hold, the forge's token; mode 0600, the broker's user's")
    ] = Path("/etc/swarm-broker/token"),
    path: Annotated[Path, typer.Option(help="local: the bare repository")] = Path("/srv/git/demo.git"),
    name: Annotated[str, typer.Option(help="its name in tasks; after the repository's own if left out")] = "",
    person: Annotated[
        list[str] | None, typer.Option(help="user who may grant and approve; repeat it, root if left out")
    ] = None,
    coordinator: Annotated[str, typer.Option(help="user whom the daemon runs as")] = "swarm",
) -> None:
    """Write a commented broker.toml with mode 0600."""
    kind = next((kind for kind in _KINDS if kind == forge), None)
    if kind is None:
        raise ConfigError(f"there is no forge of kind {forge!r}", f"one of {', '.join(_KINDS)}")
    values: dict[str, Any] = {"person": person or ["root"], "coordinator": [coordinator]}
    if kind == "local":
        values["path"] = str(path)
    elif not url:
        raise ConfigError(f"a repository on {kind} has an address", "name it with --url https://HOST/OWNER/NAME")
    else:
        values |= {"url": url, "token": {"file": str(token_file.absolute())}}
    template.write(
        config_file, loading_checked(config_file, template.render(values, name or _name_of(kind, url), kind))
    )
    say(f"wrote {config_file}; next: swarm-broker doctor --config {config_file}")


def loading_checked(path: Path, text: str) -> str:
    """The same text, if it would be loaded. Raises ConfigError: a file that is wrong from the start is not written."""
    wrong = ""
    try:
        loading.parse(path, text.encode())
    except ConfigError as error:
        wrong = str(error).partition("\n")[2]
    if wrong:
        for key, option in _OPTIONS.items():
            wrong = re.sub(rf"^  {key}(?=[.:])", f"  {option}", wrong, flags=re.MULTILINE)
        raise ConfigError(f"nothing was written:\n{wrong}", "swarm-broker init --help")
    return text


def _name_of(kind: ForgeKind, url: str) -> str:
    if kind == "local":
        return "demo"
    last = url.rstrip("/").removesuffix(".git").rpartition("/")[2].lower()
    return "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in last)[:64] or "web"


@commands.command()
def selftest(json: Json = False) -> None:
    """Test on this machine what the broker relies on git for."""
    with tempfile.TemporaryDirectory(prefix="swarm-broker-") as scratch:
        claims = examine(Path(scratch))
    for claim in claims:
        if json:
            as_json(claim)
        else:
            say(f"{'ok  ' if claim.ok else 'FAIL'} {claim.name}" + (f": {claim.message}" if claim.message else ""))
    raise typer.Exit(0 if all(claim.ok for claim in claims) else 1)


@settings.command("check")
def config_check(config_file: Config = DEFAULT_CONFIG, json: Json = False) -> None:
    """Load the settings, say what is wrong or weak, and show what is in effect."""
    loaded = loading.load(config_file)
    if json:
        out.print_json(loaded.model_dump_json())
        return
    _show(loaded)
    if found := showing.obstacles(loaded, os.geteuid()):
        raise ConfigError(f"{config_file} is well-formed, but serve would refuse it: {'; '.join(found)}")
    say(f"{config_file} is good")


def _show(loaded: BrokerConfig) -> None:
    for warning in showing.warnings(loaded, os.geteuid()):
        say(f"warning: {warning}")
    for name, entry in loaded.repositories.items():
        say(f"{name}: {entry.forge} {entry.url or entry.path}, base {entry.default_base}, "
            f"branches {entry.branch_prefix}*")  # fmt: skip


@settings.command("fields")
def config_fields() -> None:
    """Every key of broker.toml, its default and its meaning."""
    for name, default, meaning in showing.fields():
        say(f"{name} = {default}\n    {meaning}")
