"""Every example is loaded or run, so that none of them goes stale."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from pool.testing import pretend_vllm
from swarm.cli.request import merge, ready
from swarm.cli.task_file import TaskFile, parse
from swarm.config import missing_keys
from swarm.config_file import load

pytestmark = pytest.mark.slow


EXAMPLES = Path(__file__).parents[2] / "examples"


async def ran(script: str, *arguments: str) -> tuple[int, str, str]:
    """An example's exit code, standard output and standard error."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        EXAMPLES / script,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=EXAMPLES.parent,
        env={"PYTHONPATH": str(EXAMPLES.parent), "PATH": "/usr/bin:/bin"},
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, out.decode(), err.decode()


def test_two_tiers_serve_every_tier_that_is_named() -> None:
    settings = load(EXAMPLES / "two-tiers.toml", {"STRONG_MODEL_KEY": "x"}).settings
    assert settings.pool.tiers == ("quick", "strong")
    assert not missing_keys(settings)


def test_virtual_models_stand_on_tiers_that_are_served() -> None:
    pool = load(EXAMPLES / "virtual-models.toml", {}).settings.pool
    assert pool.ladder == ("quick", "strong")
    assert pool.askable == ("quick", "strong", "sure", "majority", "merged", "checked", "auto")
    assert {model.kind for model in pool.virtual.values()} == {"confidence", "vote", "fuse", "draft-verify"}


def test_embedded_needs_no_server() -> None:
    settings = load(EXAMPLES / "embedded.toml", {}).settings
    assert settings.pool.tiers == ("embedded",)
    assert not settings.pool.endpoints


def test_the_task_file_suits_the_embedded_settings() -> None:
    wanted = parse("task.md", (EXAMPLES / "task.md").read_text())
    request = ready(merge(wanted, {}, {}), load(EXAMPLES / "embedded.toml", {}).settings, None)
    assert request.repository == "sample"
    assert request.strategy == "sampled_repair"
    assert request.budget is not None
    assert request.budget.attempts == 1
    assert wanted != TaskFile()


async def test_chatting_keeps_its_place_in_the_cache() -> None:
    async with pretend_vllm(["Merge sort.", "n log n."]) as server:
        code, out, err = await ran("chat_with_the_pool.py", server.url)
    assert code == 0, err
    assert "Merge sort." in out
    assert "n log n." in out


async def test_chatting_without_a_server_says_so() -> None:
    code, _, err = await ran("chat_with_the_pool.py", "http://127.0.0.1:9")
    assert code == 1
    assert "no answer" in err
    assert "Traceback" not in err


async def test_several_models_make_one_answer() -> None:
    async with (
        pretend_vllm(lambda _: "It is 391.") as small,
        pretend_vllm(lambda seen: '{"ruling": "accept"}' if "ruling" in seen.prompt else "391") as large,
    ):
        code, out, err = await ran("ask_several_models.py", small.url, large.url)
    assert code == 0, err
    assert out.count("391") >= 5
    assert "3 of 3 samples agree" in out
    assert "large accepts" in out
    assert "auto: a session begins on the weakest tier" in out


@pytest.mark.parametrize("script", ["ask_several_models.py", "chat_with_the_pool.py", "submit_and_wait.py"])
async def test_a_script_without_arguments_explains_itself(script: str) -> None:
    code, out, _ = await ran(script)
    assert code == 2
    assert f"python examples/{script}" in out
