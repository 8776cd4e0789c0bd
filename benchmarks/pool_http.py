"""Lean ends for the pool's HTTP benchmarks, each in a process of its own: a model server that waits, and a load.

    python -m benchmarks.pool_http upstream SECONDS          serves until its input ends; prints its port
    python -m benchmarks.pool_http load                      reads one JSON order a line, answers with one JSON line

Neither parses more than it must, so that what is measured is what stands between them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httptools
import uvloop

MODEL = "pretend"
ANSWER = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "The parser drops the last line; read it first."},
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
        "usage": {"prompt_tokens": 250, "completion_tokens": 11, "total_tokens": 261, "prompt_tokens_details": None},
    }
).encode()
CARD = {"id": MODEL, "object": "model", "owned_by": "vllm", "root": MODEL, "parent": None, "max_model_len": 32768}
MODELS = json.dumps({"object": "list", "data": [CARD]}).encode()
now = time.perf_counter  # the loop's own clock counts whole milliseconds
PATIENCE = 10.0  # seconds for answers that are still out when a load ends


class Upstream(asyncio.Protocol):
    """One connection of a model server that answers every chat after the same wait."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._parser = httptools.HttpRequestParser(self)
        self._path = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path = url

    def on_message_complete(self) -> None:
        if self._path == b"/v1/chat/completions":
            asyncio.get_running_loop().call_later(self._seconds, self._say, ANSWER)
        elif self._path == b"/v1/models":
            self._say(MODELS)
        elif self._path == b"/version":
            self._say(b'{"version":"0.33.0"}')
        else:
            self._say(b"", "200 OK" if self._path in (b"/health", b"/metrics") else "404 Not Found")

    def _say(self, body: bytes, status: str = "200 OK") -> None:
        if not self._transport.is_closing():
            head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            self._transport.write(head.encode() + body)


class Connection(asyncio.Protocol):
    """One connection of the load: one request at a time."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[int] | None = None
        self.open = True
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def send(self, data: bytes) -> asyncio.Future[int]:
        self.answer = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        return self.answer

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        status, keeps = self._parser.get_status_code(), self._parser.should_keep_alive()
        self._parser = httptools.HttpResponseParser(self)
        self.open = self.open and keeps
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(status)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's form
        self.open = False
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(0)


@dataclass
class Load:
    """Requests to one address. Latencies are in seconds from when a request was due, so a late start counts too."""

    url: str
    key: str = ""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        self._where = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._idle: deque[Connection] = deque()
        self._numbers = itertools.count(int(time.time() * 1000) % 10**9 * 1000)
        self.latencies: list[float] = []
        self.failed = 0

    async def steadily(self, rate: float, seconds: float) -> None:
        """So many requests a second, whatever becomes of the ones before."""
        began = now()
        tasks = []
        for number in range(int(rate * seconds)):
            due = began + number / rate
            if (wait := due - now()) > 0:
                await asyncio.sleep(wait)
            tasks.append(asyncio.create_task(self._one(due)))
        _, late = await asyncio.wait(tasks, timeout=PATIENCE)
        self.failed += len(late)
        for task in late:
            task.cancel()

    async def closed(self, clients: int, seconds: float) -> None:
        """So many clients, each sending its next request when its last one was answered."""
        until = now() + seconds

        async def client() -> None:
            while (due := now()) < until:
                await self._one(due)

        tasks = [asyncio.create_task(client()) for _ in range(clients)]
        _, late = await asyncio.wait(tasks, timeout=seconds + PATIENCE)
        for task in late:
            task.cancel()

    async def _one(self, due: float) -> None:
        connection = await self._connection()
        status = await connection.send(self._request())
        if connection.open:
            self._idle.append(connection)
        if status == 200:
            self.latencies.append(now() - due)
        else:
            self.failed += 1

    async def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
        _, connection = await asyncio.get_running_loop().create_connection(Connection, *self._where)
        return connection

    def _request(self) -> bytes:
        number = next(self._numbers)
        text = f"Task {number}: the test of the parser fails on the last line of a file. " * 12
        messages = [{"role": "system", "content": "You repair programs."}, {"role": "user", "content": text}]
        body = json.dumps({"model": MODEL, "messages": messages, "max_tokens": 64}).encode()
        key = f"authorization: Bearer {self.key}\r\n" if self.key else ""
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: {self._where[0]}\r\n{key}"
            f"content-type: application/json\r\nx-session-id: s{number}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


async def serve(seconds: float) -> None:
    """Be the model server until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Upstream(seconds), "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    over = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), lambda: None if os.read(0, 100) else over.set())
    await over.wait()
    os._exit(0)


async def load() -> None:
    """Carry out the orders on standard input."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        one = Load(order["url"], order.get("key", ""))
        began = now()
        if "rate" in order:
            await one.steadily(order["rate"], order["seconds"])
        else:
            await one.closed(order["clients"], order["seconds"])
        told = {"latencies": one.latencies, "failed": one.failed, "seconds": now() - began}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    uvloop.run(serve(float(sys.argv[2])) if sys.argv[1] == "upstream" else load())
