"""Ways out of a sandbox: connections made inside end in the host's own code, and nowhere else, on every backend."""

from __future__ import annotations

import asyncio
import socket
import textwrap
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from sandbox.base import Exits, Sandbox, SandboxBackend
from sandbox.errors import SandboxUnavailableError
from sandbox.types import MIB, Command, Limits, Outcome, SandboxSpec

SPEC = SandboxSpec(
    limits=Limits(memory=192 * MIB, processes=96, disk=16 * MIB, output=64 * 1024, wall=60),
    network="packages",
    env={"OWN": "spec"},
    labels={"task": "t1"},
)
CLIENT = """
import hashlib, os, socket, sys, threading, time
def connect(**more):
    return socket.create_connection(("127.0.0.1", int(os.environ["ECHO_PORT"])), timeout=20, **more)
def everything(s):
    data = bytearray()
    while piece := s.recv(65536):
        data += piece
    return bytes(data)
"""

Making = Callable[[Exits], SandboxBackend]


class Echo:
    """Gives back what it is sent, to the end, unless a first line asks for something else."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.labels: list[Mapping[str, str]] = []
        self.open = self.most = 0
        self.ends: list[str] = []
        self.busy = asyncio.Event()

    @property
    def port(self) -> int:
        return self._port

    def environment(self) -> Mapping[str, str]:
        return {"ECHO_PORT": str(self._port), "OWN": "exit"}

    def files(self) -> Mapping[str, bytes]:
        return {}

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, labels: Mapping[str, str]
    ) -> None:
        self.labels.append(labels)
        self.open += 1
        self.busy.set()
        self.most = max(self.most, self.open)
        try:
            await self._serve(reader, writer)
            self.ends.append("fine")
        except BaseException as error:
            self.ends.append(type(error).__name__)
            raise
        finally:
            self.open -= 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(65536)
        if first.startswith(b"fail"):
            raise ValueError(first)
        if first.startswith(b"flood"):
            for _ in range(300):
                writer.write(bytes(65536))
                await writer.drain()
        if first.startswith(b"late"):  # as one that says its last words to a caller who is gone
            await asyncio.sleep(0.5)
            return
        if first.startswith(b"refuse"):
            writer.write(b"no")
            writer.close()
            return
        while first:
            writer.write(first)
            await writer.drain()
            first = await reader.read(65536)
        writer.close()


async def client(box: Sandbox, program: str) -> Outcome:
    return await box.run(Command(argv=("/usr/bin/python3", "-c", CLIENT + textwrap.dedent(program))))


@pytest.fixture
async def echo() -> Echo:
    return Echo()


@pytest.fixture
async def box(making: Making, echo: Echo) -> AsyncIterator[Sandbox]:
    async with making({"packages": echo}).open(SPEC) as box:
        yield box


async def test_connections_broken_off_in_a_loop_pile_up_nowhere(box: Sandbox, echo: Echo) -> None:
    """What is broken off inside at once may take the host long to end: until then it has its place."""
    before, most = len(asyncio.all_tasks()), 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, len(asyncio.all_tasks()) - before)
            await asyncio.sleep(0.01)

    watching = asyncio.create_task(watch())
    outcome = await client(
        box,
        """
        import struct
        until, made = time.time() + 1, [0] * 8
        def go(n):
            while time.time() < until:
                with connect() as s:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    s.sendall(b"late")
                    time.sleep(0.005)
                    made[n] += 1
        threads = [threading.Thread(target=go, args=(n,)) for n in range(8)]
        [each.start() for each in threads], [each.join() for each in threads]
        print("made", sum(made) > 64)
        """,
    )
    watching.cancel()
    assert outcome.text == "made True\n"
    assert 1 < echo.most <= 64
    assert most < 64 * 4 + 20
    async with asyncio.timeout(10):
        while echo.open:  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.05)
    again = await client(box, "s = connect(); s.sendall(b'x'); s.shutdown(1); print(everything(s))")
    assert again.text == "b'x'\n"


async def test_both_directions_carry_all_bytes_and_end_by_themselves(box: Sandbox, echo: Echo) -> None:
    outcome = await client(
        box,
        """
        sent = os.urandom(6 << 20)
        with connect() as s:
            thread = threading.Thread(target=lambda: (s.sendall(sent), s.shutdown(socket.SHUT_WR)))
            thread.start()
            got = everything(s)
        print(got == sent, len(got))
        """,
    )
    assert outcome.text == f"True {6 << 20}\n"
    assert echo.labels == [{"task": "t1", "sandbox": box.name}]
    assert echo.ends == ["fine"]


async def test_variables_of_a_way_out_are_set_but_the_specs_own_come_first(box: Sandbox, echo: Echo) -> None:
    outcome = await box.run(Command(argv=("sh", "-c", "echo $ECHO_PORT $OWN")))
    assert outcome.text == f"{echo.port} spec\n"


async def test_many_connections_at_once_are_all_served_and_only_so_many_at_a_time(box: Sandbox, echo: Echo) -> None:
    outcome = await client(
        box,
        """
        good = []
        def one(n):
            with connect() as s:
                s.sendall(b"%d" % n)
                time.sleep(0.05)
                s.shutdown(socket.SHUT_WR)
                good.append(everything(s) == b"%d" % n)
        threads = [threading.Thread(target=one, args=(n,)) for n in range(80)]
        for t in threads: t.start()
        for t in threads: t.join()
        print(sum(good))
        """,
    )
    assert outcome.text == "80\n"
    assert len(echo.ends) == 80
    assert echo.most <= 64


async def test_a_slow_reader_holds_up_nobody_else(box: Sandbox, echo: Echo) -> None:
    outcome = await client(
        box,
        """
        slow = connect()
        slow.sendall(b"flood")
        began = time.monotonic()
        for _ in range(20):
            with connect() as s:
                s.sendall(b"quick")
                s.shutdown(socket.SHUT_WR)
                assert everything(s) == b"quick"
        print(time.monotonic() - began < 10)
        print("x" * 30000)
        slow.shutdown(socket.SHUT_WR)
        print(len(everything(slow)))
        """,
    )
    assert outcome.text.splitlines()[0] == "True"
    assert outcome.text.splitlines()[-1] == str(300 * 65536 + len("flood"))


async def test_a_failing_way_out_ends_that_connection_alone(box: Sandbox, echo: Echo) -> None:
    outcome = await client(
        box,
        """
        with connect() as other, connect() as s:
            other.sendall(b"first")
            s.sendall(b"fail")
            print(everything(s))
            other.sendall(b"second")
            other.shutdown(socket.SHUT_WR)
            print(everything(other))
        """,
    )
    assert outcome.text == "b''\nb'firstsecond'\n"
    assert sorted(echo.ends) == ["ValueError", "fine"]


async def test_an_early_answer_is_read_whole_although_more_was_being_sent(box: Sandbox) -> None:
    outcome = await client(
        box,
        """
        with connect() as s:
            s.sendall(b"refuse")
            time.sleep(0.2)
            s.sendall(bytes(100_000))
            print(everything(s))
        """,
    )
    assert outcome.text == "b'no'\n"


async def test_what_a_command_leaves_open_ends_with_it(box: Sandbox, echo: Echo) -> None:
    outcome = await client(box, "s = connect(); s.sendall(b'flood'); s.recv(1); os.kill(os.getpid(), 9)")
    assert outcome.exit_code == 137
    for _ in range(600):
        if echo.ends:
            break
        await asyncio.sleep(0.05)
    assert len(echo.ends) == 1
    assert echo.ends != ["fine"]
    assert (await client(box, "s = connect(); s.sendall(b'a'); print(s.recv(1))")).text == "b'a'\n"


async def test_closing_the_sandbox_ends_what_is_being_served(making: Making, echo: Echo) -> None:
    async with making({"packages": echo}).open(SPEC) as box:
        running = asyncio.create_task(client(box, "s = connect(); s.sendall(b'x'); s.recv(1); time.sleep(30)"))
        await asyncio.wait_for(echo.busy.wait(), 20)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert echo.open == 0


async def test_a_sandbox_that_did_not_ask_has_no_way_out(making: Making, echo: Echo) -> None:
    backend = making({"packages": echo})
    async with backend.open(SPEC.model_copy(update={"network": "none"})) as box:
        outcome = await client(box, f"os.environ['ECHO_PORT'] = '{echo.port}'\nconnect()")
        assert "Connection refused" in outcome.text
        assert (await box.run(Command(argv=("sh", "-c", "echo ${ECHO_PORT-none} $OWN")))).text == "none spec\n"
    assert echo.labels == []


async def test_a_way_out_that_nobody_keeps_is_refused_with_the_mend(making: Making) -> None:
    with pytest.raises(SandboxUnavailableError, match="mend"):
        async with making({}).open(SPEC):
            pass
