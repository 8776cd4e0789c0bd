"""The client tells in words what a broker, or the server under it, answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.cli.screen import code_of
from broker.client import Client, TurnedDownError

Answering = Callable[[str, bytes], Client]


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[Answering]:
    """A client of a socket that gives one caller this answer."""
    threads = []

    def make(status: str, body: bytes) -> Client:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "broker.sock"))
        listener.listen()

        def serve() -> None:
            with listener, listener.accept()[0] as caller:
                caller.recv(65536)
                caller.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return Client(tmp_path / "broker.sock")

    yield make
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    ("status", "body", "code", "said", "leaves"),
    [
        ("503 Service Unavailable", b"Service Unavailable", "busy", "connections", 9),
        ("500 Internal Server Error", b"<html>", "500", "<html>", 7),
        ("423 Locked", b'{"code":"stopped","message":"it is stopped","mend":"go on"}', "stopped", "it is stopped", 9),
    ],
)
def test_what_is_turned_down_has_a_code_and_words(answering, status, body, code, said, leaves):
    with answering(status, body) as client, pytest.raises(TurnedDownError, match=said) as caught:
        client.health()
    assert (caught.value.code, code_of(caught.value)) == (code, leaves)
