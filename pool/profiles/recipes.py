"""Puts a profile, a model and a vLLM release together into commands, and judges each flag for that release. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from pool.config import EndpointConfig
from pool.errors import PoolConfigError
from pool.profiles.parts import Made, Part, Role
from pool.profiles.pieces import Piece, Variable, Wish, agents, always, flag, socket, window
from pool.profiles.shapes import PROFILES, profile
from pool.profiles.versions import Release, order
from pool.types import Frozen

CONNECTED = ("offload", "shared-cache", "prefill-decode", "layerwise")  # profiles that a connector is named for
DRAFTED = ("speculative",)


class Doubt(Frozen):
    """A flag that was left out, or that stands in the command unconfirmed, and why."""

    words: tuple[str, ...]
    why: str


class Server(Frozen):
    """One command. ``pieces`` make its words; ``endpoint`` is what joins it to a pool, None for one nobody asks."""

    name: str
    role: Role
    model: str
    pieces: tuple[Piece, ...]
    env: tuple[Variable, ...]
    endpoint: EndpointConfig | None

    @property
    def words(self) -> tuple[str, ...]:
        """The words after `vllm serve`: the model, then the flags."""
        return (self.model, *(word for piece in self.pieces for word in piece.words))

    @property
    def options(self) -> tuple[str, ...]:
        """The same for the older door, whose model is a flag."""
        return ("--model", *self.words)

    def shell(self) -> str:
        """The command for a person's shell, a flag on each line."""
        env = [f"{shlex.quote(v.name)}={shlex.quote(v.value)}" for v in self.env]
        lines = [" ".join([*env, "vllm serve", shlex.quote(self.model)])]
        lines += [shlex.join(piece.words) for piece in self.pieces]
        return " \\\n    ".join(lines)


class Recipe(Frozen):
    """What to start. ``dropped`` flags are not in the commands; ``unconfirmed`` ones are, and `up` refuses them."""

    profile: str
    version: str
    servers: tuple[Server, ...]
    first: tuple[str, ...] = ()
    modules: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    dropped: tuple[Doubt, ...] = ()
    unconfirmed: tuple[Doubt, ...] = ()


def recipe(wish: Wish, release: Release) -> Recipe:
    """The commands of a profile for one vLLM release.

    Raises PoolConfigError where the profile does not go with the model or the GPU, or the release lacks what makes it.
    """
    _wanted(wish)
    made = profile(wish.profile).make(wish)
    if made.only and order(made.only) != order(release.version):
        raise PoolConfigError(
            f"profile {wish.profile} runs on vLLM {made.only} alone (its plugin says so), not on {release.version}"
        )
    dropped: list[Doubt] = []
    unconfirmed: list[Doubt] = []
    servers = []
    for part in made.parts:
        kept = []
        for piece in _pieces(wish, part):
            doubts = list(_doubts(piece, release))
            lack = next((why for known, why in doubts if known is False), None)
            if lack is None:
                kept.append(piece)
                unconfirmed += [Doubt(words=piece.words, why=why) for _, why in doubts[:1]]
            elif piece.must:
                raise PoolConfigError(f"profile {wish.profile} needs {piece.words[0]}: {lack}")
            else:
                dropped.append(Doubt(words=piece.words, why=lack))
        servers.append(_server(wish, made, part, _paired(kept)))
    return Recipe(
        profile=wish.profile,
        version=release.version,
        servers=tuple(servers),
        first=made.first,
        modules=made.modules,
        notes=(*wish.notes, *made.notes, *wish.model.notes, *_said(wish)),
        dropped=_once(dropped),
        unconfirmed=_once(unconfirmed),
    )


def _wanted(wish: Wish) -> None:
    """Raises PoolConfigError for a part that the profile has no use for: it would be left out without a word."""
    for given, option, users in ((wish.connector, "--connector", CONNECTED), (wish.draft, "--draft-model", DRAFTED)):
        if given and wish.profile in PROFILES and wish.profile not in users:
            raise PoolConfigError(f"profile {wish.profile} has no use for {option}; it is for {' and '.join(users)}")


def _pieces(wish: Wish, part: Part) -> Iterable[Piece]:
    yield flag("--served-model-name", wish.name, why="what requests call it, rather than a path")
    yield flag("--host", wish.host, why="its key would guard /v1 alone: metrics and more stay open, so this host only")
    yield flag("--port", wish.port + part.port, why="where it listens")
    yield from (flag(name, value, why=why) for name, value, why in wish.model.flags)
    yield from window(wish)
    yield from agents(wish.model_copy(update={"port": wish.port + part.port}))
    yield from part.pieces


def _doubts(piece: Piece, release: Release) -> Iterable[tuple[bool | None, str]]:
    for kind, name in (("flag", piece.words[0]), *piece.needs):
        if (known := release.knows(kind, name)) is not True:
            yield known, release.why(kind, name) if kind == "flag" else f"{name}: {release.why(kind, name)}"


def _paired(kept: list[Piece]) -> tuple[Piece, ...]:
    """Without its parser, automatic tool choice would keep vLLM from starting."""
    names = {piece.words[0] for piece in kept}
    if "--tool-call-parser" not in names:
        kept = [piece for piece in kept if piece.words[0] != "--enable-auto-tool-choice"]
    return tuple(kept)


def _server(wish: Wish, made: Made, part: Part, pieces: tuple[Piece, ...]) -> Server:
    name = wish.name.split("/")[-1].lower()
    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in name).strip("._-")[:48] or "vllm"
    label = name if part.role == "both" else f"{name}-{part.role}"
    events = next((p.words[1] for p in pieces if p.words[0] == "--kv-events-config"), None)
    port = wish.port + part.port
    at = wish.model_copy(update={"port": port})
    endpoint = None
    if part.role != "ffn":
        endpoint = EndpointConfig(
            name=label,
            url=f"http://{'127.0.0.1' if wish.host == '0.0.0.0' else wish.host}:{port}",  # noqa: S104  compared, not bound
            model=wish.name,
            max_in_flight=2 * wish.seats,
            scheduling="priority" if any(p.words[0] == "--scheduling-policy" for p in pieces) else None,
            share_group=made.share_group,
            role=part.role,
            kv_events=socket(at, "events") if events else None,
            kv_replay=socket(at, "replay") if events else None,
        )
    env = (*always(), *part.env)
    return Server(name=label, role=part.role, model=wish.path, pieces=pieces, env=env, endpoint=endpoint)


def _said(wish: Wish) -> Iterable[str]:
    if not (wish.tool_parser or wish.model.tool_parser):
        yield f"no tool parser: {wish.model.parsers_from}; the pool speaks tools with it as text"
    if wish.replicas > 1:
        yield f"the plan has {wish.replicas} of these: start each with a --port and GPUs of its own"
    if wish.window is None:
        yield "no window was told or known: vLLM takes the model's own, which may not fit"


def _once(doubts: list[Doubt]) -> tuple[Doubt, ...]:
    return tuple(dict.fromkeys(doubts))
