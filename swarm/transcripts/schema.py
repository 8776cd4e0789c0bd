"""The JSON schema of a transcript's lines, shipped as `transcript.schema.json` beside this file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from swarm.transcripts.shape import End, Header, Step

FILE = Path(__file__).with_name("transcript.schema.json")
_Line = Annotated[Header | Step | End, Field(discriminator="type")]


def schema() -> dict[str, Any]:
    """The schema of one line (JSON Schema 2020-12), as the types here have it."""
    made: dict[str, Any] = TypeAdapter(_Line).json_schema(ref_template="#/$defs/{model}")
    title = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "One line of a transcript of Agent Swarm, version 1",
    }
    return title | _typed(made)


def told() -> str:
    """The schema as the file has it."""
    return json.dumps(schema(), indent=1, ensure_ascii=True, sort_keys=True) + "\n"


def _typed(made: dict[str, Any]) -> dict[str, Any]:
    """Every line bears its type, though it is also the default of our own types."""
    for name in ("Header", "Step", "End"):
        shape = made["$defs"][name]
        always = ["type", "format", "version"] if name == "Header" else ["type"]
        shape["required"] = sorted({*shape.get("required", ()), *always})
    return made
