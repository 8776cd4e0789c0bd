"""`swarm pool`: servers as the daemon or as we see them, and the embedded model served by hand."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import tomllib
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from pool.config import EndpointConfig, PoolConfig
from pool.testing import pretend_vllm
from swarm.cli.pool.up import joined
from swarm.config_docs import toml_value

HEAD = '[daemon]\nstate = "s"\nsocket = "d.sock"\n[broker]\nsocket = "b.sock"\n'


def test_the_daemon_is_asked_where_it_answers(swarm) -> None:
    ran = swarm("pool", "status", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["seen_from"] == "the daemon"


async def test_without_a_daemon_the_servers_are_looked_at_from_here(swarm, tmp_path: Path) -> None:
    async with pretend_vllm() as server:
        config = tmp_path / "swarm.toml"
        config.write_text(f'{HEAD}[[pool.endpoints]]\nname = "box"\nurl = "{server.url}"\n')
        ran = await asyncio.to_thread(swarm, "pool", "status", cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert "up" in ran.out.splitlines()[1].split()
    assert "as seen from here" in ran.err


@pytest.mark.slow
def test_a_tier_without_a_living_server_is_an_error(swarm, tmp_path: Path) -> None:
    (tmp_path / "swarm.toml").write_text(f'{HEAD}[[pool.endpoints]]\nname = "box"\nurl = "http://127.0.0.1:9"\n')
    ran = swarm("pool", "status", cwd=tmp_path)
    assert ran.code == 8
    assert "no model server is alive in: default" in ran.err
    assert "mend: " in ran.err
    assert "down" in ran.out


def test_the_lines_that_join_an_endpoint_do() -> None:
    one = EndpointConfig(name="a", url="http://127.0.0.1:1/v1", tier="t", api_key=SecretStr("k"), tools="text")
    text = "\n".join(f"{name} = {toml_value(value)}" for name, value in joined(one).items())
    pool = PoolConfig.model_validate({"endpoints": [tomllib.loads(text)]})
    assert pool.endpoints == (one,)


@pytest.mark.model
def test_the_embedded_model_serves_until_ctrl_c(installation) -> None:
    words = installation.words("pool", "up", "--embedded", "--json", "--log", str(installation.folder / "embedded.log"))
    env = installation.env | {name: os.environ.get(name, "") for name in ("HOME", "XDG_CACHE_HOME")}
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        assert serving.stderr is not None
        line = serving.stdout.readline()
        assert line, serving.stderr.read()
        told = json.loads(line)
        headers = {"authorization": f"Bearer {told['api_key']}"}
        assert httpx.get(f"{told['url']}/models", headers=headers, timeout=30).status_code == 200
        serving.send_signal(signal.SIGINT)
        assert serving.wait(30) == 0


@pytest.mark.model
def test_the_end_of_the_embedded_models_process_is_an_error(installation) -> None:
    log = installation.folder / "embedded.log"
    words = installation.words("pool", "up", "--embedded", "--json", "--log", str(log))
    env = installation.env | {name: os.environ.get(name, "") for name in ("HOME", "XDG_CACHE_HOME")}
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        assert serving.stderr is not None
        assert serving.stdout.readline()
        children = Path(f"/proc/{serving.pid}/task/{serving.pid}/children").read_text().split()
        os.kill(int(children[-1]), signal.SIGKILL)
        assert serving.wait(30) == 8
        said = serving.stderr.read()
    assert "killed by SIGKILL" in said
    assert "Traceback" not in said
