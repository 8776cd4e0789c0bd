"""Servers as child processes: they come up or say why not, see nothing of our secrets, and leave nobody behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool.errors import PoolConfigError
from pool.launch import LaunchError, cause, ended, gone, latest, refusals, run
from pool.profiles.catalogue import find
from pool.profiles.checking import environment, installed
from pool.profiles.pieces import Wish
from pool.profiles.recipes import Recipe, recipe
from pool.profiles.versions import Release

HEALTHY = """
import http.server, os, subprocess, sys
port = int(sys.argv[sys.argv.index("--port") + 1])
helper = subprocess.Popen(["sleep", "300"])
open(os.environ["TMPDIR"] + "/helper", "w").write(str(helper.pid))
open(os.environ["TMPDIR"] + "/env", "w").write(repr(dict(os.environ)))
class Door(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
print("listening", flush=True)
http.server.HTTPServer(("127.0.0.1", port), Door).serve_forever()
"""
OUT_OF_MEMORY = """
import sys
print("loading weights")
print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.", file=sys.stderr)
sys.exit(1)
"""
HANGING = "import time; print('INFO 11-29 22:58:01 [core.py:58] loading', flush=True); time.sleep(300)"
BRIEF = """
import http.server, sys
port = int(sys.argv[sys.argv.index("--port") + 1])
class Door(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
server = http.server.HTTPServer(("127.0.0.1", port), Door)
server.handle_request()
print("RuntimeError: the engine died")
sys.exit(7)
"""
KNOWING = """
import json, sys
names = {"flag": ["--port"], "tool_parser": [], "reasoning_parser": [], "connector": [], "module": []}
print(json.dumps({"version": "0.99.0"} | names), flush=True)
for line in sys.stdin:
    words = json.loads(line)
    bad = [word for word in words if word.startswith("--") and word != "--port"]
    print(json.dumps({"ok": not bad, "why": "unrecognized arguments: " + " ".join(bad)}), flush=True)
"""


def pretend(home: Path, code: str) -> str:
    """An executable that stands where a Python with vLLM would: whatever it is called with, it runs the code."""
    (home / "code.py").write_text(code)
    program = home / "python"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{home}/code.py" "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


SHORT = Path(tempfile.gettempdir()) / f"launch-{os.getpid()}"  # a test's own folder can be too long for a socket


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    shutil.rmtree(SHORT, ignore_errors=True)


def served(port: int, folder: Path = SHORT) -> Recipe:
    model = find("qwen3-8b")
    wish = Wish(profile="agents", model=model, path="/m", name="m", run=folder, window=4096, port=port)
    return recipe(wish, Release("0.33.0"))


async def test_a_socket_that_no_kernel_binds_is_refused_with_the_mend(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 30)
    with pytest.raises(PoolConfigError, match="the kernel takes 107; set XDG_STATE_HOME"):
        async with run(served(free_port(), home), "/no/python", logs=tmp_path, environ={}):
            pass
    assert not home.exists()


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ("(APIServer pid=7) INFO 11-29 22:58:01 [core.py:58] Loading weights\n\n  warnings.warn(\n", "Loading weights"),
        ("WARNING 11-29 22:58:01 [cpu.py:9] slow path \nINFO 11-29 22:58:02 [a.py:1]  \n", "slow path"),
        ("/usr/lib/python3/x.py:3: UserWarning: old\n  warnings.warn(\n", ""),
        ("", ""),
    ],
)
def test_a_start_is_told_of_in_vllms_own_words_or_none(tmp_path: Path, log: str, told: str) -> None:
    (tmp_path / "log").write_text(log)
    assert latest(tmp_path / "log") == told
    assert latest(tmp_path / "none") == ""


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_a_server_comes_up_and_takes_its_helpers_with_it(tmp_path: Path) -> None:
    environ = os.environ | {"TMPDIR": str(tmp_path), "HF_TOKEN": "hf_secret", "OPENAI_API_KEY": "sk-secret"}
    python = pretend(tmp_path, HEALTHY)
    async with run(served(free_port()), python, logs=tmp_path / "logs", environ=environ) as (one,):
        assert one.log.read_text().startswith("listening\n")
        helper = int((tmp_path / "helper").read_text())
        assert alive(helper)
    assert one.process.returncode is not None
    assert not alive(helper)
    assert "secret" not in (tmp_path / "env").read_text()
    assert "VLLM_HTTP_TIMEOUT_KEEP_ALIVE" in (tmp_path / "env").read_text()


async def test_a_start_that_fails_tells_the_cause_and_the_last_words(tmp_path: Path) -> None:
    starting = run(served(free_port()), pretend(tmp_path, OUT_OF_MEMORY), logs=tmp_path / "logs", environ=os.environ)
    with pytest.raises(LaunchError, match=r"ended with 1: the GPU's memory(.|\n)*Tried to allocate") as caught:
        async with starting:
            pytest.fail("it never came up")
    assert str(tmp_path / "logs") in str(caught.value)


async def test_a_port_that_is_taken_is_told_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        starting = run(served(port), "/nowhere/python", logs=tmp_path / "logs", environ={})
        with pytest.raises(PoolConfigError, match=f"port {port}.*--port"):
            async with starting:
                pytest.fail("it had no port")


async def test_stopping_while_it_starts_leaves_nobody(tmp_path: Path) -> None:
    python = pretend(tmp_path, HANGING)
    loading = asyncio.Event()

    def progress(name: str, seconds: float, line: str) -> None:
        if line == "loading":
            loading.set()

    async def start() -> None:
        async with run(
            served(free_port()),
            python,
            logs=tmp_path / "logs",
            environ=os.environ,
            progress=progress,
        ):
            pytest.fail("it never came up")

    task = asyncio.create_task(start())
    await asyncio.wait_for(loading.wait(), 20)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert running_from(tmp_path) == []


def running_from(home: Path) -> list[Path]:
    return [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(home) in _read(path)]


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


async def test_a_server_that_dies_later_is_noticed_with_its_last_words(tmp_path: Path) -> None:
    python = pretend(tmp_path, BRIEF)
    async with run(served(free_port()), python, logs=tmp_path / "logs", environ=os.environ) as servers:
        broken = await asyncio.wait_for(ended(servers), 10)
        error = gone(broken)
    assert "ended with 7" in str(error)
    assert "the engine died" in str(error)


async def test_an_installed_vllm_is_asked_about_every_word(tmp_path: Path) -> None:
    async with installed(pretend(tmp_path, KNOWING), os.environ) as found:
        assert found.release.version == "0.99.0"
        assert found.release.knows("flag", "--port") is True
        assert found.release.knows("flag", "--host") is False
        assert await found.refuses(["m", "--port", "1"]) is None
        refused = await refusals(served(8000), found)
    assert len(refused) == 1
    assert "--scheduling-policy" in refused[0]


@pytest.mark.parametrize("code", ["import sys; sys.exit(3)", "print('not json')", "print('[1]')"])
async def test_a_python_without_vllm_is_told_in_words(tmp_path: Path, code: str) -> None:
    with pytest.raises(PoolConfigError, match="vLLM"):
        async with installed(pretend(tmp_path, code), os.environ):
            pytest.fail("there is no vLLM")


async def test_no_python_at_all_is_told_in_words(tmp_path: Path) -> None:
    with pytest.raises(PoolConfigError, match=r"cannot be run.*--python"):
        async with installed(str(tmp_path / "nothing"), os.environ):
            pytest.fail("there is nothing")


def test_what_the_caller_set_for_vllm_wins_and_what_is_secret_stays() -> None:
    told = environment(
        {"VLLM_CPU_OMP_THREADS_BIND": "0", "AWS_SECRET_ACCESS_KEY": "x", "PATH": "/bin"},
        {"VLLM_CPU_OMP_THREADS_BIND": "auto", "VLLM_NO_USAGE_STATS": "1"},
    )
    assert told == {"PATH": "/bin", "VLLM_CPU_OMP_THREADS_BIND": "0", "VLLM_NO_USAGE_STATS": "1"}


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ("OSError: [Errno 98] Address already in use", "--port"),
        ("ModuleNotFoundError: No module named 'vllm'", "--python"),
        ("24.00 GiB KV cache is needed, which is larger than the available KV cache memory (10.00 GiB)", "--window"),
        ("everything went well", None),
    ],
)  # fmt: skip
def test_known_words_of_a_log_become_a_mend(log: str, told: str | None) -> None:
    found = cause(log)
    assert (found is None) if told is None else (found is not None and told in found)
