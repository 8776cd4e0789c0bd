"""The embedded model: where its weights are found, what is said when something is missing, and how its process ends."""

from __future__ import annotations

import asyncio
import json
import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pool import embedded, llama_child
from pool.config import EmbeddedConfig, PoolConfig
from pool.embedded import SHA256, WEIGHTS, find_weights, serve_embedded
from pool.errors import EmbeddedError, NoEndpointError
from pool.router import Pool
from pool.types import CompletionRequest

ROOT = Path(embedded.__file__).parent.parent


def fake(path: Path, content: bytes = b"GGUF and nothing else") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_configured_weights_win_over_the_environment(tmp_path: Path) -> None:
    mine, other = fake(tmp_path / "mine.gguf"), fake(tmp_path / "other.gguf")
    environ = {"AGENT_SWARM_WEIGHTS": str(other)}
    assert find_weights(EmbeddedConfig(weights=str(mine)), environ) == mine
    assert find_weights(EmbeddedConfig(), environ) == other


def test_wrong_sum_of_our_own_file_is_refused(tmp_path: Path) -> None:
    fake(tmp_path / "weights" / WEIGHTS)
    with pytest.raises(EmbeddedError, match=f"not {SHA256}.*fetch-weights"):
        find_weights(EmbeddedConfig(), {"AGENT_SWARM_CACHE": str(tmp_path)})


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 a zip file"])
def test_file_that_is_no_gguf_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(EmbeddedError, match=r"not a GGUF file.*fetch-weights"):
        find_weights(EmbeddedConfig(weights=str(fake(tmp_path / "w.gguf", content))))


@pytest.mark.parametrize("name", ["absent.gguf", "."])
def test_unreadable_weights_are_named_with_the_mend(tmp_path: Path, name: str) -> None:
    with pytest.raises(EmbeddedError, match=rf"{re.escape(str(tmp_path))}.*fetch-weights"):
        find_weights(EmbeddedConfig(weights=str(tmp_path / name)))


def test_script_and_program_agree_on_the_weights() -> None:
    script = runpy.run_path(str(ROOT / "scripts/fetch-weights"), run_name="looked_at")
    assert (script["NAME"], script["SHA256"]) == (WEIGHTS, SHA256)


async def test_broken_weights_end_in_one_line_that_names_the_log(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    log = tmp_path / "deep" / "llama.log"
    config = EmbeddedConfig(weights=str(fake(tmp_path / "w.gguf")))
    with pytest.raises(EmbeddedError, match=re.escape(str(log))) as caught:
        async with serve_embedded(config, log=log):
            pass
    assert "\n" not in str(caught.value)
    assert str(caught.value).partition("could not be served: ")[2].partition(";")[0] in log.read_text(
        "utf-8", "replace"
    )


def test_missing_xllamacpp_is_told_by_the_child_as_a_line() -> None:
    told = json.dumps(
        {"weights": "w", "model": "m", "parallel": 1, "window": 256, "threads": 1, "key": "k", "parent": os.getpid()}
    )
    bare = subprocess.run(
        [sys.executable, "-I", "-S", llama_child.__file__], input=told, capture_output=True, text=True, check=False
    )
    assert bare.stdout.startswith('{"missing": "No module named')
    assert "Traceback" not in bare.stderr


async def test_unwritable_log_is_named(tmp_path: Path) -> None:
    config = EmbeddedConfig(weights=str(fake(tmp_path / "w.gguf")))
    fake(tmp_path / "file")
    with pytest.raises(EmbeddedError, match=r"log .*llama.log cannot be written"):
        async with serve_embedded(config, log=tmp_path / "file" / "llama.log"):
            pass


@pytest.fixture
def real(tmp_path: Path) -> EmbeddedConfig:
    """The real model; where its weights lie is told by the error when they are missing."""
    find_weights(EmbeddedConfig(), os.environ)
    return EmbeddedConfig(enabled=True, parallel=4)


@pytest.mark.model
async def test_embedded_model_is_served_joined_and_gone_afterwards(real: EmbeddedConfig, tmp_path: Path) -> None:
    log = tmp_path / "llama.log"
    async with (
        serve_embedded(real, log=log, environ=os.environ) as endpoint,
        Pool(PoolConfig(endpoints=(endpoint,))) as pool,
    ):
        await pool.ready("embedded", 60)
        asked = CompletionRequest(tier="embedded", session="s", prompt="1, 2, 3, 4,", n=6, max_tokens=6)
        reply = await pool.complete(asked)
        (seen,) = pool.status()
        assert len(reply.choices) == 6
        assert reply.usage.completion_tokens >= 6 * 3
        assert (seen.kind, seen.window, seen.native_tools) == ("llamacpp", 2048, False)
        assert await pool.native_tools("embedded") is False
        pid = _child_of(os.getpid())
    await _until(lambda: not _alive(pid))


@pytest.mark.model
async def test_nobody_without_the_key_may_use_it(real: EmbeddedConfig, tmp_path: Path) -> None:
    async with serve_embedded(real, log=tmp_path / "log", environ=os.environ) as endpoint:
        pid = _child_of(os.getpid())
        assert endpoint.api_key is not None
        key = endpoint.api_key.get_secret_value()
        assert key.encode() not in _shown(pid)
        assert "127.0.0.1" in endpoint.url
        keyless = PoolConfig(endpoints=(endpoint.model_copy(update={"api_key": None}),), retries=0)
        async with Pool(keyless) as pool:
            with pytest.raises(NoEndpointError, match=r"401.*api_key"):
                await pool.complete(CompletionRequest(tier="embedded", session="s", prompt="1, 2"))


@pytest.mark.model
async def test_embedded_model_that_is_killed_is_told_once_with_the_log(real: EmbeddedConfig, tmp_path: Path) -> None:
    told: list[EmbeddedError] = []
    log = tmp_path / "log"
    async with serve_embedded(real, log=log, environ=os.environ, ended=told.append):
        os.kill(_child_of(os.getpid()), signal.SIGKILL)
        await _until(lambda: bool(told))
    assert len(told) == 1
    assert "was killed by SIGKILL" in str(told[0])
    assert str(log) in str(told[0])


@pytest.mark.model
async def test_embedded_model_that_is_stopped_by_us_did_not_end_by_itself(real: EmbeddedConfig, tmp_path: Path) -> None:
    told: list[EmbeddedError] = []
    async with serve_embedded(real, log=tmp_path / "log", environ=os.environ, ended=told.append):
        pass
    assert told == []


@pytest.mark.model
async def test_embedded_model_dies_with_a_parent_that_was_killed(real: EmbeddedConfig, tmp_path: Path) -> None:
    program = f"""
import asyncio, os, sys
from pathlib import Path
from pool.config import EmbeddedConfig
from pool.embedded import serve_embedded

async def main():
    async with serve_embedded(EmbeddedConfig(parallel=1), log=Path({str(tmp_path / "log")!r}), environ=os.environ):
        print("up", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert parent.stdout is not None
    assert await parent.stdout.readline() == b"up\n"
    child = _child_of(parent.pid)
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    await _until(lambda: not _alive(child))


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110  another process has no event for us
            await asyncio.sleep(0.05)


def _child_of(pid: int) -> int:
    """The embedded server among the children of a process."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (found,) = (int(c) for c in children if b"llama_child" in Path(f"/proc/{c}/cmdline").read_bytes())
    return found


def _shown(pid: int) -> bytes:
    """What other users of the machine may see of a process."""
    return Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()


def _alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
