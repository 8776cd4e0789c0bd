"""What form an answer must have, in whichever server's words it is asked, said in the words of the one asked; pure.

vLLM says `structured_outputs` (before 0.12 `guided_*`), llama.cpp `json_schema` and `grammar`, OpenAI
`response_format`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pool.errors import PermanentError
from pool.types import Capability
from pool.wire.capability import Record

JSON = dict[str, Any]
STRUCTURED_SINCE = (0, 12)  # where vLLM dropped the guided_* fields; from then on it ignores them silently
FORMS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
GUIDED = {f"guided_{form}": form for form in ("json", "regex", "choice", "grammar", "json_object")}
OPTIONS = ("disable_any_whitespace", "disable_additional_properties", "whitespace_pattern")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A field that this server would not heed, and what to do about it."""

    field: str
    message: str

    def error(self) -> PermanentError:
        """The refusal as the room's error."""
        return PermanentError(f"{self.field}: {self.message}" if self.field not in self.message else self.message)


@dataclass(slots=True)
class Wanted:
    """The form of an answer. ``named`` are the fields that asked for it."""

    form: str
    value: Any
    named: list[str]
    options: JSON = field(default_factory=dict)


def calls(body: Mapping[str, Any]) -> Capability | None:
    """What a request's tools ask of a server: that calls are read where they come, or that one is made. None: neither.

    The first needs the parser of the model's family and a model that calls by itself, the second only its grammar.
    """
    choice = body.get("tool_choice") or "auto"
    if isinstance(choice, dict) and isinstance(listed := choice.get("allowed_tools"), dict):
        choice = listed.get("mode")  # OpenAI's `allowed_tools`: auto or required, among some
    if not body.get("tools") or choice == "none":
        return None
    return "tools" if choice == "auto" else "forced_tools"


def constrain(out: JSON, record: Record) -> Refusal | None:
    """Say the constraint of ``out`` in this server's words, in place; or why it cannot be said."""
    wanted = _wanted(out)
    if wanted is None and record.kind != "vllm":
        out.pop("structured_outputs", None)  # an empty one
    if isinstance(wanted, Refusal) or wanted is None:
        return wanted
    if wanted.form == "json" and isinstance(wanted.value, str):
        try:
            wanted.value = json.loads(wanted.value)
        except ValueError as error:
            return Refusal(wanted.named[0], f"its JSON schema is no JSON: {error}")
    for name in (*wanted.named, "guided_decoding_backend", "guided_whitespace_pattern"):
        out.pop(name, None)  # which engine constrains is the server's choice by now
    if record.kind == "vllm":
        return _old_vllm(out, wanted) if record.older_than(*STRUCTURED_SINCE) else _vllm(out, wanted)
    return _llamacpp(out, wanted) if record.kind == "llamacpp" else _other(out, wanted)


def _wanted(out: JSON) -> Wanted | Refusal | None:
    """What is asked for, in any server's words. More than one wish is refused: servers differ in which one wins."""
    found: list[Wanted] = []
    for name, form in GUIDED.items():
        if name in out:
            found.append(Wanted(form, out[name], [name], _guided_options(out)))
    if isinstance(told := out.get("structured_outputs"), dict):
        found += [_structured(told, form) for form in FORMS if told.get(form) not in (None, False)]
    if "grammar" in out:
        found.append(Wanted("grammar", out["grammar"], ["grammar"]))
    if isinstance(schema := out.get("json_schema"), dict):
        found.append(
            Wanted("json", {key: value for key, value in schema.items() if key != "x-guidance"}, ["json_schema"])
        )
    if isinstance(told := out.get("response_format"), dict) and (one := _format(told)):
        found.append(one)
    if len(found) > 1:
        names = [name for one in found for name in one.named]
        return Refusal(names[-1], f"{' and '.join(dict.fromkeys(names))} ask for more than one form; send one")
    return found[0] if found else None


def _guided_options(out: JSON) -> JSON:
    options: JSON = {}
    if pattern := out.get("guided_whitespace_pattern"):
        options["whitespace_pattern"] = pattern
    if "disable-any-whitespace" in str(out.get("guided_decoding_backend", "")):
        options["disable_any_whitespace"] = True
    return options


def _structured(told: JSON, form: str) -> Wanted:
    options = {name: told[name] for name in OPTIONS if told.get(name)}
    return Wanted(form, told[form], ["structured_outputs"], options)


def _format(told: JSON) -> Wanted | None:
    kind = told.get("type")
    if kind == "json_object":  # llama.cpp takes a schema here, vLLM would ignore it
        named = ["response_format"]
        return Wanted("json", told["schema"], named) if told.get("schema") else Wanted("json_object", {}, named)
    if kind == "json_schema" and isinstance(told.get("json_schema"), dict):
        return Wanted("json", told["json_schema"].get("schema", {}), ["response_format"], {"whole": told})
    return Wanted("structural_tag", told, ["response_format"]) if kind == "structural_tag" else None


def _vllm(out: JSON, wanted: Wanted) -> Refusal | None:
    if wanted.named == ["response_format"]:
        out["response_format"] = _response_format(wanted)
    else:
        value = True if wanted.form == "json_object" else wanted.value
        out["structured_outputs"] = {wanted.form: value, **wanted.options}
    return None


def _old_vllm(out: JSON, wanted: Wanted) -> Refusal | None:
    if wanted.named == ["response_format"] or wanted.form == "json_object":
        out["response_format"] = _response_format(wanted)
    elif f"guided_{wanted.form}" in GUIDED:
        out[f"guided_{wanted.form}"] = wanted.value
        if pattern := wanted.options.get("whitespace_pattern"):
            out["guided_whitespace_pattern"] = pattern
    else:
        return Refusal(wanted.named[0], f"{wanted.form} needs vLLM 0.12; update this server")
    return None


def _llamacpp(out: JSON, wanted: Wanted) -> Refusal | None:
    chat = "messages" in out
    if wanted.form in ("json", "json_object"):
        schema = wanted.value if wanted.form == "json" else {"type": "object"}
        if chat:
            out["response_format"] = _response_format(Wanted("json", schema, [], wanted.options))
        else:
            # its grammar engine else allows endless white space, on which small models spend all their tokens
            out["json_schema"] = {"x-guidance": {"whitespace_flexible": False}} | schema
    elif wanted.form == "grammar":
        out["grammar"] = wanted.value
    elif wanted.form == "choice":
        out["grammar"] = "root ::= " + " | ".join(json.dumps(str(one)) for one in wanted.value)
    else:
        return Refusal(wanted.named[0], f"llama.cpp has no {wanted.form}; ask for a JSON schema, a choice or a grammar")
    return None


def _other(out: JSON, wanted: Wanted) -> Refusal | None:
    if "messages" in out and wanted.form in ("json", "json_object"):
        out["response_format"] = _response_format(wanted)
        return None
    return Refusal(
        wanted.named[0],
        "this server might ignore it without a word: ask for a JSON schema through chat, or serve the model with vLLM "
        "or llama.cpp",
    )


def _response_format(wanted: Wanted) -> JSON:
    """OpenAI's form, kept as it came where it came as that."""
    if (whole := wanted.options.get("whole")) is not None:
        return dict(whole)
    if wanted.form == "structural_tag":
        return dict(wanted.value)
    if wanted.form == "json_object":
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": wanted.value, "strict": True}}
