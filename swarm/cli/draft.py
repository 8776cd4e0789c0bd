"""Writes a commented swarm.toml from what was found: pure, every comment taken from the settings' own descriptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from swarm.cli.clean import one_line
from swarm.cli.probe import NEEDS_KEY, Server
from swarm.config import Settings
from swarm.config_docs import FieldDoc, explain, toml_value

_HEAD = """\
# Settings of Agent Swarm. A line that begins with # is a default or an example: take the # away to change it.
# Check the file with: swarm config check     Every setting explained: swarm config explain"""
_SECTIONS = {
    "daemon": "The daemon.",
    "broker": "The broker, another process under another user; its own settings are in broker.toml.",
    "pool": "How patient the pool of model servers is.",
    "pool.embedded": "The small model that ships with the project. It proves the plumbing, not skill.",
    "sandbox": "Where agents edit and test: no network, no secrets.",
    "sandbox.limits": "Bounds of every sandbox.",
    "limits": "What a task may spend when it names nothing else.",
}


class Places(NamedTuple):
    """Where the parts of the installation are to live and meet."""

    state: Path
    socket: Path
    broker: Path


def draft(servers: Sequence[Server], places: Places) -> str:
    """The text of a swarm.toml for these servers, or for the embedded model when there is none."""
    given = {
        "daemon.state": str(places.state),
        "daemon.socket": str(places.socket),
        "broker.socket": str(places.broker),
    } | ({} if servers else {"pool.embedded.enabled": True})
    docs = explain(Settings)
    parts = [_HEAD]
    for section, words in _SECTIONS.items():
        parts.append("\n".join(_section(section, words, docs, given)))
        if section == "pool":
            parts += ["\n".join(_endpoint(server, servers)) for server in servers] or ["\n".join(_example(docs))]
    parts.append("\n".join(_repository(docs)))
    return "\n\n".join(parts) + "\n"


def _section(section: str, words: str, docs: Sequence[FieldDoc], given: Mapping[str, object]) -> Iterator[str]:
    yield f"# {words}"
    yield f"[{section}]"
    for doc in docs:
        parent, _, name = doc.key.rpartition(".")
        if parent == section:
            yield _line(doc, name, given.get(doc.key))


def _line(doc: FieldDoc, name: str, value: object) -> str:
    if value is not None:
        return f"{name} = {toml_value(value)}  # {doc.description}"
    return f"# {name} = {doc.default if doc.default is not None else '...'}  # {doc.description}"


def _endpoint(server: Server, servers: Sequence[Server]) -> Iterator[str]:
    """One server as an entry. Different models are no substitute for one another, so each gets a tier of its own."""
    models, first = server.answer.models, servers[0].answer.models
    tier = "default" if models[:1] == first[:1] else server.name
    yield f"# Found at {server.answer.url}" + (f", lists: {one_line(', '.join(models), 200)}" if models else "")
    yield "[[pool.endpoints]]"
    yield f"name = {toml_value(server.name)}"
    yield f"url = {toml_value(server.answer.url + '/v1')}"
    yield f"tier = {toml_value(tier)}"
    if models:
        yield f"model = {toml_value(models[0])}"
    if server.answer.trouble == NEEDS_KEY:
        yield 'api_key_env = "SWARM_MODEL_KEY"  # it wants a key: set this variable where the daemon is started'


def _example(docs: Sequence[FieldDoc]) -> Iterator[str]:
    yield "# One entry a model server; several of one tier share the work."
    yield "# [[pool.endpoints]]"
    examples = {"name": '"box-1"', "url": '"http://127.0.0.1:8000/v1"'}
    for doc in docs:
        parent, _, name = doc.key.rpartition(".")
        if parent == "pool.endpoints[]":
            yield _line(doc.model_copy(update={"default": examples.get(name, doc.default)}), name, None)


def _repository(docs: Sequence[FieldDoc]) -> Iterator[str]:
    yield "# What is known of a repository, by the broker's name for it."
    yield "# [repositories.sample]"
    examples = {"test_command": '"python3 -m pytest -q"', "base": '"main"'}
    for doc in docs:
        parent, _, name = doc.key.rpartition(".")
        if parent == "repositories.NAME":
            yield _line(doc.model_copy(update={"default": examples.get(name, doc.default)}), name, None)
