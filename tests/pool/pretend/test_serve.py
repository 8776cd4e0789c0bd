"""The pretend servers' program: what it is told wrongly it says in a line."""

from __future__ import annotations

import socket

import pytest

from pool.pretend.serve import arguments, serve


@pytest.mark.parametrize(
    "words",
    [
        "--port 70000", "--port -1", "--port 65535 --engines 2", "--engines 0", "--engines -1", "--window -5",
        "--max-num-seqs 0", "--stream-interval 0", "--step-base -1", "--block-size 0", "--step-base nan",
    ],
)  # fmt: skip
def test_a_number_that_cannot_be_ends_it_with_the_option(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        arguments(words.split())
    assert ended.value.code == 2
    assert words.split(maxsplit=1)[0] in capsys.readouterr().err


async def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit, match=f"port {port}.*in use; take another --port"):
            await serve(arguments(["--port", str(port)]))


def test_what_may_be_passes() -> None:
    told = arguments(["--port", "65535", "--window", "1", "--step-base", "0"])
    assert (told.port, told.engines, told.max_num_queued_reqs) == (65535, 1, None)
