"""Workloads: traces are read as TraceLab writes them, scaled without loss, and the built-in one is nobody's data."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool.bench.words import text
from pool.bench.workload import COLUMNS, Round, Session, invented, parse, read, scaled, written
from pool.errors import PoolConfigError

HEAD = ",".join(COLUMNS)


def test_rounds_are_put_in_order_and_sessions_by_arrival() -> None:
    lines = [HEAD, "b,500,0,0,10,5,0", "a,100,1,15,10,5,2000", "a,100,0,0,10,5,1000"]
    assert parse(lines, "t") == (
        Session("a", 0.1, (Round(0, 10, 5, 1.0), Round(15, 10, 5, 2.0))),
        Session("b", 0.5, (Round(0, 10, 5, 0.0),)),
    )


def test_a_trace_without_arrivals_starts_every_session_at_once() -> None:
    lines = [HEAD.replace("arrival_time,", ""), "0,0,12461,5875,124,182"]
    (one,) = parse(lines, "t")
    assert (one.arrival, one.rounds[0].prefix) == (0.0, 12461)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["session_id,what", "0,1"], "no column"),
        ([HEAD, "0,0,0,0,ten,5,0"], "line 2: input_len is 'ten', which is no number"),
        ([HEAD, "0,0,0,0,1.5,5,0"], "line 2: input_len is 1.5, which is no whole number"),
        ([HEAD, "0,0,0,0,10,5,inf"], "line 2: tool_wait_after_ms is inf; no length and no time"),
        ([HEAD, "0,0,0"], "line 2: it has no prefix_len"),
        ([HEAD, "0,0,0,0,ten,5,0"], "line 2"),
        ([HEAD, "0,0,0,0,10,5,0", "0,0,1,0,-10,5,0"], r"line 3.*below zero"),
        ([HEAD, "0,0"], "line 2"),
        ([HEAD], "no sessions"),
        ([], "no column"),
    ],
)
def test_a_broken_trace_is_refused_with_its_line(lines: list[str], told: str) -> None:
    with pytest.raises(PoolConfigError, match=told):
        parse(lines, "trace.csv")


def test_a_file_that_is_not_there_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(PoolConfigError, match="cannot be read"):
        read(tmp_path / "nothing.csv")


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    made = invented(seed=3, sessions=5)
    path = tmp_path / "trace.csv"
    path.write_text(written(made))
    assert read(path) == made


def test_the_built_in_sessions_are_the_same_every_time_and_grow() -> None:
    assert invented() == invented()
    assert invented(seed=1) != invented(seed=2)
    for session in invented():
        for before, after in zip(session.rounds, session.rounds[1:], strict=False):
            assert after.prefix == before.prefix + before.new + before.output


def test_scaling_shrinks_lengths_and_times_and_keeps_every_round() -> None:
    session = Session("a", 10.0, (Round(0, 100, 50, 4.0), Round(150, 3, 1, 2.0)))
    (made,) = scaled([session, session], scale=0.1, speed=2.0, limit=1)
    assert made == Session("a", 5.0, (Round(0, 10, 5, 2.0), Round(15, 1, 1, 1.0)))


def test_texts_of_one_seed_begin_alike_and_of_two_do_not() -> None:
    """A prefix cache must join what the workload joins, and nothing else."""
    assert text("a", 200).startswith(text("a", 100))
    assert len(text("a", 200).split()) == 200
    assert text("a", 8) != text("b", 8)
