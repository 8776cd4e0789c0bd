"""The questions put to a real vLLM: its own parser takes our commands and names what it does not know."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pool.launch import refusals
from pool.profiles.catalogue import find
from pool.profiles.checking import Installed, installed, libraries
from pool.profiles.gpus import gpu
from pool.profiles.pieces import Wish
from pool.profiles.recipes import recipe
from pool.profiles.shapes import PROFILES
from pool.profiles.versions import Release, releases

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def found(vllm_home: Path) -> AsyncIterator[Installed]:
    """The prepared vLLM, open for questions: once for all, since it takes long to import."""
    async with installed(str(vllm_home / "venv/bin/python"), os.environ) as opened:
        yield opened


def wish(profile: str, python: str) -> Wish:
    model = find("deepseek-v3.2" if profile == "hisparse" else "qwen3-coder-30b-a3b-instruct")
    return Wish(
        profile=profile, model=model, path=model.name, name=model.name, run=Path("/run/x"), window=32768, sessions=4,
        tensor_parallel=8, gpu=gpu("cpu" if profile == "cpu" else "h100"), libraries=libraries(python),
    )  # fmt: skip


async def _problems(found: Installed) -> dict[str, list[str]]:
    told = {}
    for name in set(PROFILES) - {"afd"}:
        said = await refusals(recipe(wish(name, found.python), found.release), found)
        told[name] = [problem for problem in said if "has no module" not in problem]
    return told


async def test_the_real_parser_takes_every_profile_and_the_table_agrees_with_it(found: Installed) -> None:
    assert not any((await _problems(found)).values())
    if found.release.version in releases():
        shipped = Release(found.release.version)
        assert found.release.told is not None
        for kind, names in found.release.told.items():
            assert [name for name in names if not shipped.knows(kind, name)] == []


async def test_the_real_parser_names_what_it_does_not_take(found: Installed) -> None:
    assert "--nonsense" in (await found.refuses(["--model", "/x", "--nonsense", "1"]) or "")
    assert "priority" in (await found.refuses(["--model", "/x", "--scheduling-policy", "bogus"]) or "")
    assert "tool-call-parser" in (await found.refuses(["--model", "/x", "--enable-auto-tool-choice"]) or "")
    role = '{"kv_connector":"HiSparseConnector","kv_role":"kv_nobody"}'
    assert await found.refuses(["--model", "/x", "--kv-transfer-config", role]) is not None
