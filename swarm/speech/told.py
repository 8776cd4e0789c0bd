"""What a model is told of how to call tools, and of an answer that called none. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pool.types import ToolSpec
from swarm.speech.calls import Said
from swarm.speech.form import Form

_FENCED = """\
You act by calling tools. Think briefly, then end your answer with a block like this:

```tool
{"name": "view", "arguments": {"path": "README.md"}}
```

The arguments are JSON; a newline in a text is \\n, a quote is \\". The result comes back to you, then you call the next
one. Calls that do not need each other's results may follow one another, each in a block of its own; write nothing after
the last one. The tools:
"""
_OBJECT = """\
You act by calling one tool in each answer. Your whole answer is one JSON object like this, with a brief thought first:

{"thought": "I read the file first.", "name": "view", "arguments": {"path": "README.md"}}

A newline in a text is \\n, a quote is \\". The result comes back to you, then you call the next tool. The tools:
"""
_FINISH = "when the task is done, call finish."
_WORDS = {
    "native": f"That answer called no tool. Call a tool now; {_FINISH}",
    "fenced": "That answer held no tool call. End your answer with one ```tool block that holds one JSON object with "
    f"name and arguments; {_FINISH}",
    "object": "That answer held no tool call. Your whole answer must be one JSON object with thought, name and "
    f"arguments; {_FINISH}",
}
_LEADS: dict[Said, str] = {
    "thought": "You thought, but your answer was empty. Stop thinking and act. ",
    "nothing": "Your answer was empty. ",
    "cut": "Your answer was cut off by its length limit before it called a tool. Say less, and act in smaller steps. ",
}


def protocol(form: Form, tools: Sequence[ToolSpec]) -> str:
    """How calls are written, for the system prompt; empty where the server tells the model by itself."""
    if form.native:
        return ""
    return f"{_OBJECT if form.shape == 'object' else _FENCED}{described(tools)}"


def nudge(said: Said, form: Form) -> str:
    """What is said to an answer that called nothing."""
    return _LEADS.get(said, "") + _WORDS["native" if form.native else form.shape]


def described(tools: Sequence[ToolSpec]) -> str:
    """The tools and their arguments, in words."""
    lines = []
    for tool in tools:
        lines.append(f"\n{tool.name}: {tool.description}")
        required = tool.parameters.get("required", ())
        for name, kind in tool.parameters.get("properties", {}).items():
            need = "" if name in required else ", optional"
            lines.append(f"  {name} ({kind.get('type', 'any')}{need}) {kind.get('description', '')}".rstrip())
    return "\n".join(lines)
