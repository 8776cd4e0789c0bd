"""Asks an installed vLLM, in a child process of its own Python, what it knows and which commands it would refuse."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pool.errors import PoolConfigError
from pool.profiles import inside
from pool.profiles.versions import Kind, Release

PATIENCE = 180.0  # seconds; importing vLLM takes ten on an idle machine
PASSED_ON = (
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "HF_HOME", "HF_HUB_OFFLINE", "XDG_CACHE_HOME",
)  # fmt: skip
"""What a vLLM that we start sees of our environment; keys and tokens stay here."""
LIMIT = 1 << 20  # bytes of one line


def environment(environ: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child: what may pass, and what the recipe adds. What the caller set already wins."""
    passed = {name: environ[name] for name in PASSED_ON if name in environ}
    chosen = {name: environ.get(name, value) for name, value in more.items() if name != "LD_PRELOAD"}
    return passed | chosen | ({"LD_PRELOAD": more["LD_PRELOAD"]} if "LD_PRELOAD" in more else {})


class Installed:
    """A vLLM that is installed, open for questions."""

    def __init__(self, child: asyncio.subprocess.Process, told: Mapping[str, Any], python: str) -> None:
        self._child = child
        self.release = _release(told)
        self.modules = frozenset(told["module"])
        self.python = python

    async def refuses(self, words: Sequence[str]) -> str | None:
        """Why vLLM's own parser refuses the words of a `vllm serve`; None where it takes them."""
        answer = await _line(self._child, self.python, json.dumps(list(words)))
        return None if answer.get("ok") else str(answer.get("why", "it did not say"))


@asynccontextmanager
async def installed(python: str, environ: Mapping[str, str]) -> AsyncIterator[Installed]:
    """Open the vLLM of a Python for questions. Raises PoolConfigError where there is none that answers."""
    try:
        child = await asyncio.create_subprocess_exec(
            python,
            inside.__file__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment(environ, preload(python)) | {"VLLM_NO_USAGE_STATS": "1"},
            start_new_session=True,
            limit=LIMIT,
        )
    except OSError as error:
        told = f"{python} cannot be run ({error.strerror}); --python names the Python that vLLM is installed for"
        raise PoolConfigError(told) from None
    try:
        facts = await _line(child, python, None)
        if "error" in facts:
            why = str(facts["error"]).removeprefix("ImportError: ").removeprefix("ModuleNotFoundError: ")
            raise PoolConfigError(
                f"{python} has no usable vLLM ({why}); --python names the one that it is installed for"
            )
        yield Installed(child, facts, python)
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


def _release(told: Mapping[str, Any]) -> Release:
    kinds: tuple[Kind, ...] = ("flag", "tool_parser", "reasoning_parser", "connector")
    return Release(version=str(told["version"]), told={kind: frozenset(told[kind]) for kind in kinds})


async def _line(child: asyncio.subprocess.Process, python: str, question: str | None) -> dict[str, Any]:
    """One answer, after one question where there is one."""
    stdin, stdout = child.stdin, child.stdout
    if stdin is None or stdout is None:
        raise PoolConfigError(f"{python}: its vLLM cannot be asked")
    try:
        async with asyncio.timeout(PATIENCE):
            if question is not None:
                stdin.write(question.encode() + b"\n")
                await stdin.drain()
            answer = json.loads(await stdout.readline())
    except TimeoutError:
        raise PoolConfigError(f"{python}: its vLLM did not answer within {PATIENCE:g} s") from None
    except (OSError, ValueError):
        raise PoolConfigError(
            f"{python} has no usable vLLM (it ended without an answer); --python names the one that it is installed for"
        ) from None
    if not isinstance(answer, dict):
        raise PoolConfigError(f"{python}: its vLLM answered oddly")
    return answer


def preload(python: str) -> dict[str, str]:
    """The libraries that vLLM's CPU build should load first, found beside its Python."""
    found = libraries(python)
    return {"LD_PRELOAD": ":".join(found)} if found else {}


def libraries(python: str) -> tuple[str, ...]:
    """Intel's OpenMP in the installation of a Python, which the CPU build brings along; none elsewhere."""
    library = Path(os.path.abspath(python)).parent.parent / "lib" / "libiomp5.so"  # noqa: PTH100  it may be a link
    return (str(library),) if library.is_file() else ()
