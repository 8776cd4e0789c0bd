"""Settings of sandboxes, set-ups and agents that are well formed and cannot work: found at load, not in a task."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from sandbox.config import SandboxConfig
from sandbox.egress.hosts import Allowlist
from sandbox.errors import ImageError
from sandbox.images.sources import reference
from swarm.agents import PLACEHOLDERS, AgentConfig
from swarm.config_text import Problem, dotted, nearest

_BRACED = re.compile(r"(?<!\$)\{([A-Za-z_]+)\}")


def sandbox_misfits(config: SandboxConfig) -> Iterator[Problem]:
    """What is wrong in [sandbox]."""
    packages, model = config.egress.packages, config.egress.model
    for name in ("hosts", "mirrors"):
        for number, entry in enumerate(getattr(packages, name)):
            try:
                Allowlist((entry,), {})
            except ValueError as error:
                yield _problem(("sandbox", "egress", "packages", name, number), str(error))
    if model.port == packages.port:
        words = f"{model.port} is the port of sandbox.egress.packages as well; give each its own"
        yield _problem(("sandbox", "egress", "model", "port"), words)
    try:
        reference(config.image)
    except ImageError as error:
        yield _problem(("sandbox", "image"), str(error))


def setup_misfits(place: tuple[str, ...], commands: Sequence[str], inputs: Sequence[str] = ()) -> Iterator[Problem]:
    """What is wrong in a set-up: ``place`` has its ``setup`` and ``setup_inputs``."""
    for number, command in enumerate(commands):
        if not command.strip() or "\0" in command:
            yield _problem((*place, "setup", number), "is no command: it is empty, or holds a NUL byte")
    for number, pattern in enumerate(inputs):
        if not pattern.strip("/") or pattern.startswith("/") or {".", ".."} & set(pattern.split("/")):
            words = f'"{pattern}" fits no tracked file; write it from the repository\'s top, such as requirements*.txt'
            yield _problem((*place, "setup_inputs", number), words)


def agent_misfits(agents: Mapping[str, AgentConfig]) -> Iterator[Problem]:
    """What is wrong in [agents]."""
    for name, agent in agents.items():
        yield from setup_misfits(("agents", name), agent.setup)
        for word, like in strange_placeholders(agent):
            if like:
                words = f"nothing is put in for {{{word}}}; did you mean {{{like}}}?"
                yield _problem(("agents", name, "command"), words)


def strange_placeholders(agent: AgentConfig) -> Iterator[tuple[str, str | None]]:
    """Words in braces of a command that nothing is put in for, and the placeholder that was meant, where one is like
    it. A shell's command has none."""
    for word in () if isinstance(agent.command, str) else agent.command:
        for found in _BRACED.findall(word):
            if found not in PLACEHOLDERS:
                yield found, nearest(found, PLACEHOLDERS)


def _problem(path: tuple[str | int, ...], message: str) -> Problem:
    return Problem(key=dotted(path), line=None, message=message)
