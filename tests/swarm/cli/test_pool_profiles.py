"""`swarm pool plan`, `recipe`, `up` and `bench` as a person runs them: what they print, and how they refuse."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pydantic import SecretStr

from pool.config import EndpointConfig, PoolConfig
from pool.pretend.engine import EngineSettings
from pool.testing import pretend_vllm
from swarm.cli.pool.group import COMMANDS
from swarm.cli.pool.up import joined
from swarm.config_docs import toml_value

HEAD = '[daemon]\nstate = "s"\nsocket = "d.sock"\n[broker]\nsocket = "b.sock"\n'


def test_a_plan_says_that_it_fits_and_what_each_figure_rests_on(swarm) -> None:
    ran = swarm("pool", "plan", "gpt-oss-20b", "rtx4090", "--json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert told["fits"]
    assert told["tensor_parallel"] == 1
    assert all(figure["why"] for figure in told["figures"])


def test_a_plan_that_does_not_fit_has_its_own_exit_code_and_says_what_would(swarm) -> None:
    ran = swarm("pool", "plan", "llama-3.3-70b-instruct", "l4", "--count", "1")
    assert ran.code == 1
    assert "does not fit 1 x l4" in ran.out
    assert "16 of them hold it" in ran.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("plan", "nosuch", "h100"), "known are"),
        (("plan", "qwen3-8b", "voodoo"), "no such GPU"),
        (("recipe", "hisparse", "--model", "qwen3-8b", "--no-check"), "sparse attention"),
        (("recipe", "agents", "--model", "llama-3.3-70b-instruct", "--gpu", "l4", "--count", "1"), "does not fit"),
        (("recipe", "agents", "--model", "qwen3-8b", "--python", "/no", "--version", "0.33.0"), "one of the two"),
        (("up", "agents", "--model", "qwen3-8b", "--python", "/nowhere/python"), "cannot be run"),
        (("bench", "--url", "nonsense"), "did you mean http://nonsense?"),
        (("bench", "--url", "http://h", "--trace", "/no/such.csv"), "cannot be read"),
        (("bench", "--url", "http://h", "--key-env", "NO_SUCH_VARIABLE"), "NO_SUCH_VARIABLE"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_with_a_mend(swarm, words: tuple[str, ...], told: str) -> None:
    ran = swarm("pool", *words)
    assert ran.code == 3, (ran.out, ran.err)
    assert told in ran.err
    assert "mend: " in ran.err
    assert "Traceback" not in ran.err


def test_the_embedded_model_takes_no_other_name(swarm) -> None:
    ran = swarm("pool", "up", "agents", "--embedded", "--model", "qwen3-8b", "--tier", "t")
    assert ran.code == 2
    assert "leave out PROFILE, --model, or" in " ".join(ran.err.split())
    ran = swarm("pool", "up", "agents", "--model", "qwen3-8b", "--parallel", "2")
    assert ran.code == 2
    assert "--parallel is for the embedded model: add --embedded" in " ".join(ran.err.split())
    ran = swarm("pool", "up", "--embedded", "--socket", "g.sock")
    assert (ran.code, "add --join" in ran.err) == (2, True)


def test_each_command_shows_an_example_that_it_takes(swarm) -> None:
    for command, examples in COMMANDS:
        shown = " ".join(swarm("pool", command.__name__, "--help").out.split())
        for example in examples:
            assert example in shown
            name, *options = [
                word for word in example.split()[2:] if word == example.split()[2] or word.startswith("--")
            ]
            assert name == command.__name__
            assert all(option in shown for option in options)


@pytest.mark.parametrize(("version", "side", "taken"), [("9.9", "newer", "0.33.0"), ("0.1", "older", "0.20.2")])
def test_a_release_that_the_table_does_not_reach_is_told_of_in_one_line(
    swarm, version: str, side: str, taken: str
) -> None:
    ran = swarm("pool", "recipe", "agents", "--model", "qwen3-8b", "--version", version, "--json")
    assert ran.code == 0, ran.err
    (problem,) = json.loads(ran.out)["problems"]
    assert f"vLLM {version} is {side} than all of the table" in problem
    assert f"it is assumed to take what {taken} takes" in problem


def test_a_window_longer_than_the_models_own_is_cut_aloud(swarm) -> None:
    told = "a window of 99999 tokens was asked for; Qwen/Qwen3-8B has 40960, which is taken"
    ran = swarm("pool", "plan", "qwen3-8b", "h100", "--window", "99999")
    assert (ran.code, told in ran.err) == (0, True)
    assert "--kv-bits 8" not in ran.err  # it fits nine agents; the remark alone is no reason to save memory
    ran = swarm("pool", "recipe", "agents", "--model", "qwen3-8b", "--window", "99999", "--version", "0.33.0")
    assert told in ran.err
    assert "--max-model-len 40960" in ran.out


def test_a_plan_for_a_cpu_speaks_of_no_gpu(swarm) -> None:
    ran = swarm("pool", "plan", "qwen3-8b", "cpu", "--count", "3", "--window", "40960")
    assert ran.code == 1
    assert "GPU" not in ran.out
    assert "Qwen/Qwen3-8B does not fit a CPU" in ran.out
    assert "--window 14336 does, and --host-memory 12 (GiB) holds it" in ran.err
    assert "--count counts GPUs" in ran.err
    assert swarm("pool", "plan", "qwen3-8b", "cpu", "--window", "40960", "--host-memory", "12").code == 0
    assert "cut to what fits; the model's own is 40960" in swarm("pool", "plan", "qwen3-8b", "cpu").out
    told = swarm("pool", "recipe", "cpu", "--model", "qwen3-8b", "--window", "40960", "--version", "0.33.0")
    assert "does not fit a CPU at 40960 tokens" in told.err


def test_a_picture_that_could_not_be_kept_is_told_before_the_bench(swarm, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none" / "a.png"):
        ran = swarm("pool", "bench", "--url", "http://127.0.0.1:9", "--png", str(place))
        assert (ran.code, "name a file in a folder of yours" in ran.err) == (3, True)


def test_a_recipe_prints_a_command_and_the_reason_of_each_flag(swarm) -> None:
    ran = swarm("pool", "recipe", "agents", "--model", "gpt-oss-20b", "--gpu", "h100", "--version", "0.33.0")
    assert ran.code == 0, ran.err
    assert "vllm serve openai/gpt-oss-20b" in ran.out
    assert "--tool-call-parser openai" in ran.out
    assert "else vLLM ignores a request's priority" in ran.out
    assert "every flag is known" in ran.err


def test_an_unconfirmed_flag_is_shown_as_such(swarm) -> None:
    ran = swarm("pool", "recipe", "agents", "--model", "gpt-oss-20b", "--version", "0.28.0", "--json")
    told = json.loads(ran.out)
    assert [one["words"][0] for one in told["unconfirmed"]] == ["--max-num-queued-reqs", "--sse-keep-alive-interval"]
    assert told["problems"]


OLD_VLLM = """
import json, sys
if not sys.argv[1].endswith("inside.py"):
    sys.exit("it was started")
names = {"flag": [], "tool_parser": [], "reasoning_parser": [], "connector": [], "module": []}
names["flag"] = ["--host", "--port", "--served-model-name", "--max-num-seqs", "--max-model-len"]
print(json.dumps({"version": "0.1.0"} | names), flush=True)
for line in sys.stdin:
    print(json.dumps({"ok": False, "why": "error: unrecognized arguments: --port"}), flush=True)
"""


def test_nothing_is_started_that_the_installed_vllm_would_refuse(swarm, tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text(OLD_VLLM)
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path}/old.py" "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    ran = swarm("pool", "up", "agents", "--model", "qwen3-8b", "--python", str(program))
    assert ran.code == 3
    assert "vLLM 0.1.0 would refuse profile agents" in ran.err
    assert "unrecognized arguments: --port" in ran.err
    checked = swarm("pool", "recipe", "agents", "--model", "qwen3-8b", "--python", str(program))
    assert checked.code == 1
    assert "not good" in checked.out


async def test_a_sweep_of_one_server_is_told_with_its_verdict(swarm) -> None:
    async with pretend_vllm(engine=EngineSettings()) as server:
        words = ("--url", server.url, "--concurrency", "2", "--prompt", "16", "--output", "4", "--each", "1", "--json")
        ran = await asyncio.to_thread(swarm, "pool", "bench", *words)
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert [level["concurrency"] for level in told["levels"]] == [1, 2]
    assert told["flat_because"]


async def test_a_replay_goes_through_the_pool_of_the_settings(swarm, tmp_path: Path) -> None:
    async with pretend_vllm(engine=EngineSettings()) as server:
        (tmp_path / "swarm.toml").write_text(f'{HEAD}[[pool.endpoints]]\nname = "box"\nurl = "{server.url}"\n')
        words = ("--trace", "sample", "--limit", "1", "--scale", "0.05", "--speed", "100")
        ran = await asyncio.to_thread(swarm, "pool", "bench", *words, cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert "tier default: 1 sessions" in ran.out
    assert "first token" in ran.out


async def test_a_bench_of_a_tier_names_the_tiers_there_are_and_tells_what_it_asks_for(swarm, tmp_path: Path) -> None:
    async with pretend_vllm(engine=EngineSettings()) as server:
        (tmp_path / "swarm.toml").write_text(f'{HEAD}[[pool.endpoints]]\nname = "box"\nurl = "{server.url}"\n')
        words = ("pool", "bench", "--concurrency", "1", "--each", "1", "--output", "4", "--json")
        ran = await asyncio.to_thread(swarm, *words, cwd=tmp_path)
        wrong = await asyncio.to_thread(swarm, *words, "--tier", "nosuch", cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["exact"] == ["ignore_eos", "min_tokens"]
    assert (wrong.code, "--tier takes one of: default" in wrong.err) == (3, True)


@pytest.mark.model
def test_a_bench_of_the_embedded_models_tier_serves_it_and_gets_exact_lengths(installation, tmp_path: Path) -> None:
    (tmp_path / "swarm.toml").write_text(f"{HEAD}[pool.embedded]\nenabled = true\n")
    words = [sys.executable, "-m", "swarm", "pool", "bench", "--concurrency", "1", "--each", "2", "--output", "24"]
    env = installation.env | {name: os.environ[name] for name in ("HOME", "XDG_CACHE_HOME") if name in os.environ}
    ran = subprocess.run(
        [*words, "--prompt", "32", "--json"], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["exact"] == ["ignore_eos"]
    assert told["levels"][0]["summary"]["lost"] == 0
    assert told["levels"][0]["summary"]["output_tokens"] == 48


async def test_a_bench_of_which_all_was_lost_has_its_own_exit_code(swarm) -> None:
    async with pretend_vllm([]) as server:  # a script that is over at once
        words = ("--url", server.url, "--concurrency", "1", "--each", "1", "--no-plot")
        ran = await asyncio.to_thread(swarm, "pool", "bench", *words)
    assert ran.code == 1
    assert "never" in ran.out
    assert "lost 1 times" in ran.err


def test_the_lines_that_join_a_launched_server_make_the_same_endpoint() -> None:
    one = EndpointConfig(
        name="a-prefill", url="http://127.0.0.1:1", tier="t", model="m", role="prefill", share_group="lmcache",
        scheduling="priority", kv_events="ipc:///run/a", kv_replay="ipc:///run/b", api_key=SecretStr("k"),
    )  # fmt: skip
    text = "\n".join(f"{name} = {toml_value(value)}" for name, value in joined(one).items())
    assert PoolConfig.model_validate({"endpoints": [tomllib.loads(text)]}).endpoints == (one,)
