"""The tools as data: which there are, in which sets they are offered, and their JSON schemas."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from pool.types import ToolSpec
from swarm.tools import arguments
from swarm.tools.arguments import Arguments
from swarm.tools.arguments import Finish as Finish  # noqa: PLC0414  whoever runs the tools meets it here

Size = Literal["small", "full"]

TOOLS: dict[str, type[Arguments]] = {
    "shell": arguments.Shell,
    "view": arguments.View,
    "edit": arguments.Edit,
    "edit_lines": arguments.EditLines,
    "write": arguments.Write,
    "apply_patch": arguments.ApplyPatch,
    "glob": arguments.Glob,
    "grep": arguments.Grep,
    "repo_map": arguments.RepoMap,
    "run_tests": arguments.RunTests,
    "task_list": arguments.TaskList,
    "ask": arguments.Ask,
    "finish": arguments.Finish,
}
"""All tools by name, in the order in which they are offered."""

SMALL = frozenset({"shell", "view", "edit", "edit_lines", "write", "grep", "run_tests", "finish"})
"""What a small model is offered: each further tool costs prompt, and makes it choose wrong more often."""

UNTOLD: dict[str, frozenset[str]] = {
    "shell": frozenset({"timeout", "restart"}),
    "edit": frozenset({"all"}),
    "edit_lines": frozenset({"expect"}),
    "grep": frozenset({"context", "ignore_case"}),
    "run_tests": frozenset({"only"}),
}
"""Arguments that a small model is not told of. They are taken all the same."""

_JUDGED_HERE = {"title", "default", "anyOf", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum"}


@cache
def specs(*, testable: bool, size: Size = "full") -> tuple[ToolSpec, ...]:
    """What is offered to the model; ``run_tests`` only where a test command is known."""
    return tuple(
        ToolSpec(
            name=name,
            description=" ".join((tool.__doc__ or "").split()),
            parameters=_schema(tool, UNTOLD.get(name, frozenset()) if size == "small" else frozenset()),
        )
        for name, tool in TOOLS.items()
        if (testable or name != "run_tests") and (size == "full" or name in SMALL)
    )


def _schema(tool: type[Arguments], untold: frozenset[str]) -> dict[str, Any]:
    """A plain schema: optional values without null, which some servers' grammars stumble over, and without bounds.

    Bounds cost prompt, and are judged when the call is run.
    """
    schema = tool.model_json_schema()
    properties = {}
    for name, field in schema.get("properties", {}).items():
        if name in untold:
            continue
        kinds = [field, *(option for option in field.get("anyOf", ()) if option.get("type") != "null")]
        properties[name] = {
            key: value for kind in reversed(kinds) for key, value in kind.items() if key not in _JUDGED_HERE
        }
    return {
        "type": "object",
        "properties": properties,
        "required": schema.get("required", []),
        "additionalProperties": False,
    }
