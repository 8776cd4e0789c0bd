"""The questions put to a vLLM find its argument parser wherever a release keeps it: it moved in 0.30 and in 0.33."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pool.profiles import inside

PARSER = """
def make_arg_parser(parser):
    parser.add_argument("--model")
    return parser

def validate_parsed_serve_args(parsed):
    if parsed.model == "/bad":
        raise ValueError("no such model")
"""
FILES = {
    "__init__.py": "__version__ = '0.33.0'",
    "utils/argparse_utils.py": "from argparse import ArgumentParser as FlexibleArgumentParser",
    "tool_parsers.py": "class ToolParserManager:\n    list_registered = staticmethod(lambda: ['hermes'])",
    "reasoning.py": "class ReasoningParserManager:\n    list_registered = staticmethod(lambda: ['qwen3'])",
    "distributed/kv_transfer/kv_connector/factory.py": "class KVConnectorFactory:\n    _registry = {'Nixl': 1}",
}


@pytest.mark.parametrize("home", ["common", "launchers", "openai"])
def test_parser_is_found_in_each_of_its_homes(tmp_path: Path, home: str) -> None:
    for name, text in (FILES | {f"entrypoints/{home}/cli_args.py": PARSER}).items():
        file = tmp_path / "vllm" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    asked = "".join(json.dumps(words) + "\n" for words in (["--model", "/x"], ["--model", "/bad"], ["--nonsense"]))
    ran = subprocess.run(
        [sys.executable, inside.__file__], input=asked, env={"PYTHONPATH": str(tmp_path)}, capture_output=True,
        text=True, timeout=60, check=True,
    )  # fmt: skip
    facts, right, bad, unknown = map(json.loads, ran.stdout.splitlines())
    assert (facts["version"], facts["flag"], facts["connector"]) == ("0.33.0", ["--model"], ["Nixl"])
    assert right["ok"]
    assert "no such model" in bad["why"]
    assert "--nonsense" in unknown["why"]
