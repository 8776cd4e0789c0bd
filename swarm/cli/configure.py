"""`swarm config`: the settings in force, where each comes from, and what each means."""

from __future__ import annotations

from typing import Annotated

import typer

from swarm.cli import door, screen
from swarm.cli.advice import cautions
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.exits import Code
from swarm.config import Settings
from swarm.config_docs import FieldDoc, effective, explain, toml_value
from swarm.config_text import nearest
from swarm.errors import ConfigError

app = typer.Typer(no_args_is_help=True)


@app.callback()
def config() -> None:
    """Check and explain the settings."""


@app.command()
def check(
    ctx: typer.Context,
    strict: Annotated[bool, typer.Option("--strict", help="Take warnings for faults.")] = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Read the settings, show every one in force with its origin, and warn of what may not work."""
    loaded = door.loaded(ctx, config)
    rows = tuple(effective(loaded.settings, loaded.raw))
    odd = cautions(loaded)
    if json:
        screen.document(
            {
                "path": str(loaded.path),
                "settings": [row.model_dump(mode="json") for row in rows],
                "warnings": [warning._asdict() for warning in odd],
            }
        )
    else:
        screen.table(("setting", "value", "from"), [(row.key, toml_value(row.value), row.origin) for row in rows])
        for warning in odd:
            screen.say(f"warning: {warning.key}: {warning.text}\n  mend: {warning.mend}", screen.STYLES["warn"])
        screen.say(
            f"{loaded.path} is usable" + (f", with {len(odd)} warning{'s' if len(odd) > 1 else ''}" if odd else "")
        )
    raise typer.Exit(Code.FAULT if strict and odd else Code.OK)


@app.command("explain")
def explain_settings(
    key: Annotated[
        str | None, typer.Argument(help="A setting, or the beginning of several.", show_default=False)
    ] = None,
    json: JsonOption = False,
) -> None:
    """Explain every setting: type, default, meaning. NAME stands for a name of yours, [] for each of a list."""
    docs = _chosen(key)
    if json:
        screen.document([doc.model_dump(mode="json") for doc in docs])
    elif len(docs) == 1:
        doc = docs[0]
        screen.say(f"{doc.key}\n  {doc.description}\n  type     {doc.type}\n  default  {_default(doc)}")
    else:
        rows = [(doc.key, doc.type, _default(doc), doc.description) for doc in docs]
        screen.table(("setting", "type", "default", "meaning"), rows)


def _chosen(key: str | None) -> tuple[FieldDoc, ...]:
    docs = explain(Settings)
    if key is None:
        return docs
    plain = key.rstrip(".")
    found = tuple(doc for doc in docs if doc.key == plain or doc.key.startswith((f"{plain}.", f"{plain}[")))
    found = found or tuple(doc for doc in docs if doc.key.rpartition(".")[2] == plain)
    if not found:
        like = nearest(plain, [doc.key for doc in docs])
        raise ConfigError(
            f'there is no setting "{key}"', f"did you mean {like}?" if like else "see: swarm config explain"
        )
    return found


def _default(doc: FieldDoc) -> str:
    return "none: it must be given" if doc.required else doc.default if doc.default is not None else "not set"
