"""What is taken of a repository's devcontainer.json: image, variables, set-up commands. The rest is named, not obeyed.

After the Development Container Specification (containers.dev, devcontainer.json reference). Pure.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from sandbox.errors import ImageError
from sandbox.images import jsonc
from sandbox.images.sources import Dockerfile, Reference, reference
from sandbox.rules.profile import ENVIRONMENT, WORK
from sandbox.types import Frozen

PLACES = (".devcontainer/devcontainer.json", ".devcontainer.json")
_COMMANDS = ("onCreateCommand", "updateContentCommand", "postCreateCommand")
_USED = {"image", "build", "dockerFile", "context", "containerEnv", "remoteEnv", *_COMMANDS}
# These change nothing about what runs, so nobody needs to hear that they were not obeyed.
_HARMLESS = {"$schema", "name", "customizations", "extensions", "settings", "shutdownAction", "overrideCommand"}
_HARMLESS |= {"updateRemoteUserUID", "userEnvProbe", "waitFor", "portsAttributes", "otherPortsAttributes"}
_VARIABLE = re.compile(r"\$\{(?P<kind>[A-Za-z]+)(?::(?P<name>[^:}$]*))?(?::(?P<default>[^}$]*))?\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
# A repository chooses no endpoint and no loader: what programs take addresses, keys or code to load from.
_ENDPOINT = re.compile(
    r"(?i)(proxy|url|uri|host|endpoint|api_?base|base_?path|registry|index|mirror|token|key|secret|passw|cert|ca_?bundle)"
)
_OURS = frozenset(ENVIRONMENT) - {"PATH", "LANG"}
_MOST = 100
_LONGEST = 256 * 1024


class DevContainer(Frozen):
    """What a devcontainer.json asks for and gets. ``told`` are lines about what it does not get."""

    source: Reference | Dockerfile | None = None
    variables: dict[str, str] = Field(default_factory=dict)
    commands: tuple[str, ...] = ()
    told: tuple[str, ...] = ()

    def environment(self, inside: Mapping[str, str]) -> dict[str, str]:
        """Its variables, with ``${containerEnv:NAME}`` taken from what the image sets. Raises ImageError where
        that would be too long: each may hold the one before it many times."""
        made, left = dict(inside), _LONGEST

        def put(match: re.Match[str]) -> str:
            nonlocal left
            value = made.get(match["name"] or "", "") or match["default"] or ""
            left -= len(value)
            if left < 0:
                raise ImageError(f"the variables of devcontainer.json come to more than {_LONGEST} characters")
            return value

        for name, value in self.variables.items():
            made[name] = _VARIABLE.sub(put, value)
        return {name: made[name] for name in self.variables}


def read_devcontainer(text: str, place: str = PLACES[0]) -> DevContainer:
    """Take what is taken. Raises ImageError with the place and the reason for what cannot be read."""
    try:
        data = jsonc.loads(text)
        json.dumps(data, ensure_ascii=False).encode()  # half of a pair of surrogates could be handed to nobody
    except (ValueError, RecursionError) as error:
        raise ImageError(f"{place} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise ImageError(f"{place} cannot be read: it holds no object")
    told = [f"{place}: {key!r} is not obeyed" for key in sorted(data.keys() - _USED - _HARMLESS)]
    variables, refused = _variables(data, place)
    return DevContainer(
        source=_source(data, place),
        variables=variables,
        commands=tuple(line for key in _COMMANDS for line in _commands(data.get(key), f"{place}: {key}")),
        told=tuple((told + refused)[:_MOST]),
    )


def _source(data: dict[str, Any], place: str) -> Reference | Dockerfile | None:
    build = data.get("build", {})
    if not isinstance(build, dict):
        raise ImageError(f"{place}: 'build' holds no object")
    file = build.get("dockerfile", data.get("dockerFile"))
    if file is not None:
        context = build.get("context", data.get("context", "."))
        return Dockerfile(
            context=_below(posixpath.dirname(place), context, place),
            file=_inside(posixpath.dirname(place), context, file, place),
            args=_texts(build.get("args", {}), f"{place}: build.args"),
        )
    if "dockerComposeFile" in data and "image" not in data:
        raise ImageError(f"{place} wants several containers (dockerComposeFile); mend: set the repository's own image")
    if "image" not in data:
        return None
    if not isinstance(data["image"], str):
        raise ImageError(f"{place}: 'image' is no text")
    return reference(_host_free(data["image"]))


def _below(folder: str, path: Any, place: str) -> str:
    """A folder of the checkout, named relative to another. Raises ImageError for one outside."""
    text = path if isinstance(path, str) else ""
    joined = posixpath.normpath(posixpath.join(folder, text))
    if not text or text.startswith("/") or joined == ".." or joined.startswith("../") or "\0" in text:
        raise ImageError(f"{place}: {path!r} lies outside the repository")
    return joined


def _inside(folder: str, context: Any, file: Any, place: str) -> str:
    """The Dockerfile relative to its context. Raises ImageError where it is not in there."""
    whole, within = _below(folder, file, place), _below(folder, context, place)
    if within != "." and not whole.startswith(within + "/"):
        raise ImageError(f"{place}: the Dockerfile {file!r} lies outside its context {context!r}")
    return whole if within == "." else whole.removeprefix(within + "/")


def _variables(data: dict[str, Any], place: str) -> tuple[dict[str, str], list[str]]:
    kept: dict[str, str] = {}
    refused = []
    for section in ("containerEnv", "remoteEnv"):
        for name, value in _texts(data.get(section, {}), f"{place}: {section}").items():
            if _bad_name(name):
                refused.append(f"{place}: the variable {name!r} is not for a repository to set")
            else:
                kept[name] = _host_free(value)
    return kept, refused


def _bad_name(name: str) -> bool:
    loads = name.startswith(("LD_", "GIT_", "DYLD_", "SSL_")) or name in {
        "BASH_ENV",
        "ENV",
        "PYTHONSTARTUP",
        "NODE_OPTIONS",
    }
    return not _NAME.match(name) or loads or name in _OURS or bool(_ENDPOINT.search(name))


def _texts(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ImageError(f"{where} holds no object")
    if len(value) > _MOST:
        raise ImageError(f"{where} holds more than {_MOST} entries")
    texts = {name: each for name, each in value.items() if each is not None}  # null takes a variable away
    wrong = [name for name, each in texts.items() if not isinstance(each, str) or "\0" in each]
    if wrong:
        raise ImageError(f"{where}: {wrong[0]!r} is no text")
    return texts


def _commands(value: Any, where: str) -> list[str]:
    """Text is for a shell, a list is one program with its words, an object holds several of either."""
    if isinstance(value, str | list) and any("\0" in word for word in value if isinstance(word, str)):
        raise ImageError(f"{where} holds a character that no command line can")
    match value:
        case None | "" | []:
            return []
        case str():
            return [_host_free(value)]
        case list() if all(isinstance(word, str) for word in value):
            return [shlex.join(_host_free(word) for word in value)]
        case dict() if len(value) <= _MOST and not any(isinstance(each, dict) for each in value.values()):
            return [line for each in value.values() for line in _commands(each, where)]
        case _:
            raise ImageError(f"{where} is neither text, nor a list of texts, nor an object of those")


def _host_free(text: str) -> str:
    """The text with its variables put in; nothing of the host is known, so its own get their defaults or nothing."""

    def put(match: re.Match[str]) -> str:
        match match["kind"]:
            case "localWorkspaceFolder" | "containerWorkspaceFolder":
                return WORK
            case "localWorkspaceFolderBasename" | "containerWorkspaceFolderBasename":
                return posixpath.basename(WORK)
            case "devcontainerId":
                return "agent-swarm"
            case "localEnv" | "env":
                return match["default"] or ""
            case _:
                return match[0]  # containerEnv, which is known later, and what is a shell's own

    return _VARIABLE.sub(put, text)
