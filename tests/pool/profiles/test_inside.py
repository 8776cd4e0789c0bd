"""The questions put to a real vLLM: its own parser takes our commands and names what it does not know."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pool.launch import refusals
from pool.profiles.catalogue import find
from pool.profiles.checking import Installed, installed, libraries
from pool.profiles.gpus import gpu
from pool.profiles.pieces import Wish
from pool.profiles.recipes import recipe
from pool.profiles.shapes import PROFILES
from pool.profiles.versions import Release, releases

SCRIPT = Path(__file__).parents[3] / "scripts" / "vllm-server"
BLOCKED = 69

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def python() -> str:
    """The Python of the prepared vLLM."""
    ran = subprocess.run([SCRIPT, "prepare"], capture_output=True, text=True, check=False)
    if ran.returncode == BLOCKED:
        pytest.skip(ran.stderr.strip().splitlines()[-1])
    cache = os.environ.get("AGENT_SWARM_CACHE") or (
        "/var/cache/agent-swarm" if os.geteuid() == 0 else str(Path.home() / ".cache" / "agent-swarm")
    )
    return f"{cache}/vllm/venv/bin/python"


def wish(profile: str, python: str) -> Wish:
    model = find("deepseek-v3.2" if profile == "hisparse" else "qwen3-coder-30b-a3b-instruct")
    return Wish(
        profile=profile, model=model, path=model.name, name=model.name, run=Path("/run/x"), window=32768, sessions=4,
        tensor_parallel=8, gpu=gpu("cpu" if profile == "cpu" else "h100"), libraries=libraries(python),
    )  # fmt: skip


async def _problems(found: Installed, python: str) -> dict[str, list[str]]:
    told = {}
    for name in set(PROFILES) - {"afd"}:
        said = await refusals(recipe(wish(name, python), found.release), found)
        told[name] = [problem for problem in said if "has no module" not in problem]
    return told


async def test_the_real_parser_takes_every_profile_and_the_table_agrees_with_it(python: str) -> None:
    async with installed(python, os.environ) as found:
        assert not any((await _problems(found, python)).values())
        if found.release.version in releases():
            shipped = Release(found.release.version)
            assert found.release.told is not None
            for kind, names in found.release.told.items():
                assert [name for name in names if not shipped.knows(kind, name)] == []


async def test_the_real_parser_names_what_it_does_not_take(python: str) -> None:
    async with installed(python, os.environ) as found:
        assert "--nonsense" in (await found.refuses(["--model", "/x", "--nonsense", "1"]) or "")
        assert "priority" in (await found.refuses(["--model", "/x", "--scheduling-policy", "bogus"]) or "")
        assert "tool-call-parser" in (await found.refuses(["--model", "/x", "--enable-auto-tool-choice"]) or "")
        role = '{"kv_connector":"HiSparseConnector","kv_role":"kv_nobody"}'
        assert await found.refuses(["--model", "/x", "--kv-transfer-config", role]) is not None
