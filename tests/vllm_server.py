"""Real vLLM servers for the tests marked `vllm`: started by scripts/vllm-server, each ended by its group.

A start is mostly imports, a minute on one core: tests share servers where they can.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "vllm-server"
TEMPLATE = Path(__file__).parent / "chat_template.jinja"
BLOCKED = 69
STARTING = 1500.0  # seconds; the first run installs about a gigabyte
THINK = {"<repo_name>": "<think>", "<reponame>": "</think>"}  # special tokens of the small model that stand for nothing


@dataclass(frozen=True)
class Server:
    """One that was started, whether up or not yet."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def up(self) -> str:
        """Its address, once it answers. Skips where its installation is blocked, fails where it does not come up."""
        until = time.monotonic() + STARTING
        while time.monotonic() < until:
            if (code := self.process.poll()) is not None:
                words = self.log.read_text(errors="replace")[-3000:]
                if code == BLOCKED:
                    pytest.skip(words.strip().splitlines()[-1])
                pytest.fail(f"scripts/vllm-server ended with {code}:\n{words}")
            try:
                if httpx.get(f"{self.url}/health", timeout=5).status_code == 200:
                    return self.url
            except httpx.HTTPError:
                time.sleep(0.5)
        pytest.fail(f"vLLM was not up within {STARTING:g} s:\n{self.log.read_text(errors='replace')[-3000:]}")


@pytest.fixture(scope="session")
def vllm_started() -> Iterator[Server]:
    """The plain server with the project's small model, as soon as it is started: two that start together take no longer
    than one does."""
    with started() as server:
        yield server


@pytest.fixture(scope="session")
def vllm_url(request: pytest.FixtureRequest) -> str:
    """Base address of a vLLM server with the project's small model; AGENT_SWARM_VLLM_URL names one that runs already.

    Skips when the installation is blocked on this machine. Tests that use it need a timeout mark of their own.
    """
    told = os.environ.get("AGENT_SWARM_VLLM_URL")
    return told or str(request.getfixturevalue("vllm_started").up())


@pytest.fixture(scope="session")
def vllm_home() -> Path:
    """The folder with vLLM (``venv``) and the small model (``smollm2``). Skips where they cannot be had."""
    ran = subprocess.run([SCRIPT, "prepare"], capture_output=True, text=True, check=False)
    if ran.returncode == BLOCKED:
        pytest.skip(ran.stderr.strip().splitlines()[-1])
    assert ran.returncode == 0, ran.stderr
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    default = Path("/var/cache" if os.geteuid() == 0 else home) / "agent-swarm"
    return Path(os.environ.get("AGENT_SWARM_CACHE") or default) / "vllm"


@pytest.fixture(scope="session")
def agent_model(vllm_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small model as a folder whose chat template knows tools and thinking, and whose tokens can say so."""
    folder = tmp_path_factory.mktemp("model") / "agent"
    folder.mkdir()
    for name in ("config.json", "generation_config.json", "tokenizer_config.json", "model.safetensors"):
        (folder / name).symlink_to(vllm_home / "smollm2" / name)
    tokenizer = json.loads((vllm_home / "smollm2" / "tokenizer.json").read_text("utf-8"))
    for token in tokenizer["added_tokens"]:
        token["content"] = THINK.get(token["content"], token["content"])
    words = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = {THINK.get(word, word): number for word, number in words.items()}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    (folder / "chat_template.jinja").write_text(TEMPLATE.read_text("utf-8"), "utf-8")
    return folder


@contextmanager
def started(*flags: str) -> Iterator[Server]:
    """A server with further flags for vLLM, ended with the block. It is not up yet."""
    port = free_port()
    with tempfile.NamedTemporaryFile(prefix="vllm-log-") as log:
        words = [SCRIPT, "serve", str(port), *flags]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        try:
            yield Server(f"http://127.0.0.1:{port}", process, Path(log.name))
        finally:
            _end(process)


def free_port() -> int:
    """A port that nobody holds now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def _end(server: subprocess.Popen[bytes]) -> None:
    """vLLM is three processes: end the whole group, and wait for it."""
    for what, patience in ((signal.SIGTERM, 15), (signal.SIGKILL, 15)):
        try:
            os.killpg(server.pid, what)
            server.wait(patience)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
