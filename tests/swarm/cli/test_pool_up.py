"""`swarm pool up --join`: a launched server is a member of the running pool for as long as it runs."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


FLAGS = Path(__file__).parents[3] / "pool" / "profiles" / "flags.json"
PRETEND = f"""
import http.server, json, sys
if sys.argv[1].endswith("inside.py"):
    told = {{kind: list(names) for kind, names in json.load(open({str(FLAGS)!r})).items()}}
    print(json.dumps(told | {{"version": "0.33.0", "module": []}}), flush=True)
    for line in sys.stdin:
        print(json.dumps({{"ok": True}}), flush=True)
    sys.exit()
port = int(sys.argv[sys.argv.index("--port") + 1])
class Door(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        said = {{"data": [{{"id": "m", "max_model_len": 4096}}]}} if self.path == "/v1/models" else {{}}
        self.send_response(200 if said or self.path == "/health" else 404)
        self.send_header("content-type", "application/json"); self.end_headers()
        self.wfile.write(json.dumps(said).encode())
http.server.ThreadingHTTPServer(("127.0.0.1", port), Door).serve_forever()
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextmanager
def running(words: list[str], env: dict[str, str], cwd: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command that serves, ended as a person does it."""
    with log.open("wb") as into:
        process = subprocess.Popen(words, env=env, cwd=cwd, stdout=into, stderr=into)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, log.read_text()


def until(path: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    late = time.monotonic() + 60
    while text not in path.read_text():
        assert process.poll() is None, path.read_text()
        assert time.monotonic() < late, path.read_text()
        time.sleep(0.1)


@pytest.mark.timeout(180)
def test_a_launched_server_joins_the_running_gateway_and_leaves_it_again(
    installation, swarm, tmp_path: Path, short: Path
) -> None:
    home = tmp_path / "at"
    home.mkdir()
    (home / "pretend.py").write_text(PRETEND)
    program = home / "python"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{home}/pretend.py" "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (home / "swarm.toml").write_text(
        '[daemon]\nstate = "s"\nsocket = "d.sock"\n[broker]\nsocket = "b.sock"\n'
        f'[pool.gateway]\nsocket = "{home}/g.sock"\nport = {free_port()}\n'
        '[[pool.endpoints]]\nname = "nobody"\nurl = "http://127.0.0.1:9"\n'
    )
    env = installation.env | {"XDG_STATE_HOME": str(short), "PATH": os.environ["PATH"]}

    def members() -> set[str]:
        ran = swarm("pool", "status", "--json", cwd=home)
        return {one["name"] for one in json.loads(ran.out)["endpoints"]}

    swarmed = [sys.executable, "-m", "swarm", "--config", str(home / "swarm.toml"), "pool"]
    with running([*swarmed, "serve"], env, home, home / "serve.log") as gateway:
        until(home / "serve.log", "g.sock", gateway)
        words = [
            *swarmed, "up", "agents", "--model", "qwen3-8b", "--python", str(program), "--port", str(free_port()),
            "--log", str(home / "logs"), "--join",
        ]  # fmt: skip
        with running(words, env, home, home / "up.log") as up:
            until(home / "up.log", "serving and joined: qwen3-8b", up)
            assert members() == {"nobody", "qwen3-8b"}
        assert members() == {"nobody"}
