"""Prism as a guard between the broker and a forge: every request is held against the forge's own API description."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.forges.parts import free_port, running, wait_for

_STARTING = 120.0
_VIOLATION = re.compile(r"Violation: (request\S* .*)")
_TRIM = Path(__file__).with_name("trim.py")


@dataclass(frozen=True)
class Prism:
    """One that listens; ``described`` is the API description that it holds requests against."""

    url: str
    log: Path
    described: dict[str, Any]
    began: int = 0

    def said(self) -> str:
        """Its log since it was up."""
        return self.log.read_text(errors="replace")[self.began :]

    def violations(self) -> list[str]:
        """What was wrong with requests so far; a path that the description has not is told too."""
        return _VIOLATION.findall(self.said())

    def unknown(self, method: str, path: str, query: list[str]) -> str:
        """What the description has not of a call, empty if it has it; Prism itself lets unknown parameters pass."""
        paths = sorted(self.described["paths"].items(), key=lambda one: one[0].count("{"))  # the most particular first
        for template, operations in paths:
            if method.lower() in operations and re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", template), path):
                known = {self._parameter(one) for one in operations[method.lower()].get("parameters", [])}
                left = set(query) - known
                return f"{method} {template} has no {', '.join(sorted(left))}" if left else ""
        return f"there is no {method} {path}"

    def _parameter(self, one: dict[str, Any]) -> str:
        if "$ref" in one:
            one = self.described["components"]["parameters"][one["$ref"].rsplit("/", 1)[1]]
        name: str = one["name"]
        return name


@contextmanager
def guarding(parts: Path, folder: Path, description: Path, upstream: str) -> Iterator[Prism]:
    """Starts one in front of ``upstream``, or, where that is empty, one that answers from the description itself."""
    port, log = free_port(), folder / f"prism-{description.stem}-{len(list(folder.iterdir()))}.log"
    program = parts / "prism" / "node_modules" / "@stoplight" / "prism-cli" / "dist" / "index.js"
    mode = ["proxy"] if upstream else ["mock"]
    command = [
        parts / "venv" / "node" / "bin" / "node",
        program,
        *mode,
        "-h",
        "127.0.0.1",
        "-p",
        str(port),
        description,
    ]
    with running(log, *command, *([upstream] if upstream else [])) as process:
        wait_for(f"http://127.0.0.1:{port}/", process, log, _STARTING)
        began = len(log.read_text())  # the look whether it is there was no request of the broker's
        yield Prism(f"http://127.0.0.1:{port}", log, json.loads(description.read_text()), began)


@pytest.fixture(scope="session")
def github_description(forge_parts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """GitHub's own description of the paths that the broker calls."""
    small = tmp_path_factory.mktemp("description") / "github.json"
    full = forge_parts / "prism" / "node_modules" / "@octokit" / "openapi" / "generated" / "api.github.com.json"
    subprocess.run([sys.executable, _TRIM, full, small], check=True)
    return small


@pytest.fixture(scope="session")
def github_guard(
    forge_parts: Path, github_description: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Prism]]:
    """Prism with it in front of an address; one for each address, once a worker."""
    made: dict[str, Prism] = {}
    folder = tmp_path_factory.mktemp("prism")
    with ExitStack() as ends:

        def of(upstream: str) -> Prism:
            if upstream not in made:
                made[upstream] = ends.enter_context(guarding(forge_parts, folder, github_description, upstream))
            return made[upstream]

        yield of
