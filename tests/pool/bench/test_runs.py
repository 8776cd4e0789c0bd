"""Sweeps and replays against a pretend vLLM, straight and through the pool: what is measured is what happened."""

from __future__ import annotations

from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from pool.bench import png
from pool.bench.drawing import terminal
from pool.bench.figures import Outcome
from pool.bench.replay import Context, replay
from pool.bench.sweep import Shape, levels_to, sweep
from pool.bench.target import Exactness, Target, Turn, run_id, straight, through
from pool.bench.verdict import Level, flat_because
from pool.bench.workload import Round, Session
from pool.config import EndpointConfig
from pool.errors import PoolConfigError
from pool.pretend.engine import EngineSettings
from pool.pretend.script import closed_early, commented, overload, server_error, unfinished
from pool.testing import PretendServer, pretend_vllm
from pool.types import ServerKind

pytestmark = pytest.mark.slow


EXACT = Exactness()
SHAPE = Shape(prompt=40, output=6, each=2, deadline=20)


def config(server: PretendServer) -> EndpointConfig:
    return EndpointConfig(name="a", url=server.url)


def turn(output: int = 6) -> Turn:
    return Turn("s", [{"role": "user", "content": "one two three"}], output, 20)


async def levels(target: Target, most: int, shape: Shape = SHAPE) -> list[Level]:
    return [level async for level in sweep(target, levels_to(most), shape, run_id())]


def test_levels_double_and_end_with_the_asked_one() -> None:
    assert levels_to(1) == (1,)
    assert levels_to(2) == (1, 2)
    assert levels_to(6) == (1, 2, 4, 6)


async def test_an_engine_with_few_seats_is_seen_to_have_a_queue() -> None:
    engine = EngineSettings(max_num_seqs=2, step_base=0.02, step_per_sequence=0)
    async with pretend_vllm(engine=engine) as server, straight(config(server), EXACT) as target:
        found = await levels(target, 6, Shape(prompt=32, output=30, each=1, deadline=20))
    assert [level.summary.lost for level in found] == [0, 0, 0, 0]
    top = found[-1].strain
    assert top.most_running == 2
    assert (top.waiting or 0) > 0.5
    # the machine that runs this may be busy itself, which is not what is asked here
    calm = [level.model_copy(update={"strain": level.strain.model_copy(update={"lag": 0.0})}) for level in found]
    assert flat_because(calm[-2:]).flat == "server"


async def test_answers_have_exactly_the_wanted_length() -> None:
    async with pretend_vllm(engine=EngineSettings()) as server, straight(config(server), EXACT) as target:
        outcome = await target.ask(turn(output=9))
    assert (outcome.fate, outcome.output, len(outcome.gaps)) == ("ok", 9, 8)
    assert 0 < outcome.ttft < outcome.e2e


async def test_servers_that_take_no_foreign_field_are_sent_none() -> None:
    async with pretend_vllm() as server, straight(config(server), Exactness(on=False)) as target:
        await target.ask(turn())
    assert not {"ignore_eos", "min_tokens"} & set(server.requests[-1].body)


@pytest.mark.parametrize(
    ("fault", "fate"), [(overload(), "rejected"), (server_error(), "failed"), (closed_early(), "failed")]
)
async def test_what_goes_wrong_is_an_outcome_with_its_reason(fault: object, fate: str) -> None:
    async with pretend_vllm([fault]) as server, straight(config(server), EXACT) as target:
        outcome = await target.ask(turn())
    assert (outcome.fate, outcome.ttft) == (fate, float("inf"))
    assert outcome.why


async def test_a_stream_without_a_finish_reason_is_no_answer() -> None:
    """Portkey-AI/gateway#1797: an upstream that was cut looks like a clean 200."""
    async with pretend_vllm([unfinished()]) as server, straight(config(server), EXACT) as target:
        assert (await target.ask(turn())).fate == "failed"


async def test_comments_in_a_stream_are_no_tokens() -> None:
    async with pretend_vllm([commented("one two")]) as server, straight(config(server), EXACT) as target:
        outcome = await target.ask(turn())
    assert (outcome.fate, outcome.text.split()) == ("ok", ["one", "two"])


@pytest.mark.parametrize(
    ("asked", "kinds", "fields", "note"),
    [
        (None, ["vllm", "vllm"], ("ignore_eos", "min_tokens"), ""),
        (None, ["llamacpp"], ("ignore_eos",), ""),  # through the pool min_tokens would be refused there
        (None, ["vllm", "llamacpp"], ("ignore_eos",), ""),
        (None, ["vllm", "other"], (), "--exact asks for it"),
        (None, [], (), "--exact asks for it"),
        (True, ["other"], ("ignore_eos", "min_tokens"), "then --no-exact"),
        (True, ["llamacpp"], ("ignore_eos",), ""),
        (False, ["vllm"], (), ""),
    ],
)
def test_exact_lengths_are_asked_for_in_the_fields_that_all_servers_know(
    asked: bool | None, kinds: list[ServerKind], fields: tuple[str, ...], note: str
) -> None:
    exact = Exactness(asked)
    assert exact.names(kinds) == fields
    assert note in exact.note(kinds)
    assert bool(note) == bool(exact.note(kinds))


async def test_a_server_that_is_not_there_is_told_before_the_bench() -> None:
    with pytest.raises(PoolConfigError, match="cannot be benched"):
        async with straight(EndpointConfig(name="a", url="http://127.0.0.1:9"), EXACT):
            pytest.fail("nobody listens there")


async def test_a_tier_is_measured_through_the_pool(settings) -> None:
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(pretend_vllm(engine=EngineSettings())) for _ in range(2)]
        target = await stack.enter_async_context(through(settings(one, two), "small", EXACT))
        found = await levels(target, 4)
    assert [level.summary.lost for level in found] == [0, 0, 0]
    assert one.requests
    assert two.requests


async def test_a_fault_is_hidden_by_the_pool_as_it_would_be_from_an_agent(settings) -> None:
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(pretend_vllm(script)) for script in ([server_error(), *["ok"] * 9], None)
        ]
        target = await stack.enter_async_context(through(settings(*servers), "small", EXACT))
        outcomes = [await target.ask(turn()) for _ in range(3)]
    assert [outcome.fate for outcome in outcomes] == ["ok"] * 3


AGENT = (Round(0, 60, 5, 0.02), Round(65, 20, 5, 0.02), Round(90, 20, 5, 0.0))


async def test_a_replay_sends_a_growing_context_and_finds_it_cached() -> None:
    sessions = [Session("a", 0.0, AGENT), Session("b", 0.05, AGENT)]
    async with pretend_vllm(engine=EngineSettings()) as server, straight(config(server), EXACT) as target:
        made = await replay(target, sessions, run_id(), deadline=20)
    assert (made.rounds, made.broken, made.summary.ok, made.summary.lost) == (6, 0, 6, 0)
    assert made.summary.cached_tokens
    lengths = [len(one.body["messages"]) for one in server.requests]
    assert sorted(lengths) == [1, 1, 3, 3, 5, 5]


async def test_a_tool_is_waited_for_before_the_next_round() -> None:
    sessions = [Session("a", 0.1, (Round(0, 8, 1, 0.2), Round(9, 8, 1, 0.0)))]
    async with pretend_vllm() as server, straight(config(server), EXACT) as target:
        made = await replay(target, sessions, run_id(), deadline=20)
    assert made.summary.seconds > 0.3
    assert made.summary.ok == 2


async def test_a_session_whose_round_is_lost_ends_and_its_rest_counts_as_never_come() -> None:
    async with pretend_vllm(["one", server_error()]) as server, straight(config(server), EXACT) as target:
        made = await replay(target, [Session("a", 0.0, AGENT)], run_id(), deadline=20)
    assert (made.broken, made.summary.fates) == (1, {"ok": 1, "failed": 1, "unsent": 1})
    assert made.summary.ttft.p90 is None


def test_a_planned_compaction_cuts_the_context_from_its_end() -> None:
    context = Context("a")
    context.turn(Round(0, 100, 50, 0))
    context.answered(Outcome(0.0, "ok", output=50, text="x " * 50))
    context.turn(Round(150, 400, 50, 0))
    context.answered(Outcome(0.0, "ok", output=50, text="y " * 50))
    first = context.turn(Round(100, 30, 50, 0))
    assert sum(len(str(message["content"]).split()) for message in first) == pytest.approx(130, abs=20)
    assert all(a["role"] != b["role"] for a, b in pairwise(first))


async def test_figures_are_drawn_for_a_terminal_and_a_file(tmp_path: Path) -> None:
    async with pretend_vllm() as server, straight(config(server), EXACT) as target:
        found = await levels(target, 2)
        replayed = await replay(target, [Session("a", 0.0, AGENT)], run_id(), deadline=20)
    drawn = terminal(found)
    assert "first token" in drawn
    assert "\x1b" not in drawn
    png.of_sweep(tmp_path / "sweep.png", "a", found, flat_because(found))
    png.of_replay(tmp_path / "replay.png", "a", replayed)
    for name in ("sweep.png", "replay.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    with pytest.raises(PoolConfigError, match="cannot be written"):
        png.of_sweep(tmp_path / "no" / "such.png", "a", found, flat_because(found))
