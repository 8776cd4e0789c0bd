"""Sockets that are served side by side: whoever floods one, or holds its loop, shuts nobody out of another."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from broker.door.bodies import PackResponse
from broker.door.listening import CONNECTIONS, STRANGERS, listening
from broker.door.serving import Place, serve

ASK = b"GET / HTTP/1.1\r\nHost: b\r\n\r\n"


def answering(act=lambda: None):
    async def handler(_request):
        act()
        return PlainTextResponse("here")

    return Starlette(routes=[Route("/", handler)])


@pytest.fixture
async def served(tmp_path):
    """Serves applications until the test ends; the paths of their sockets."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(*apps, **more):
            paths = [tmp_path / f"{number}.sock" for number, _ in enumerate(apps)]
            listeners = [stack.enter_context(listening(path, None, "socket_group")) for path in paths]
            places = tuple(Place(app, listener, **more) for app, listener in zip(apps, listeners, strict=True))
            running = asyncio.create_task(serve(places, 1.0, threading.Event(), lambda: None))
            stack.push_async_callback(ended, running)
            return paths

        yield start


async def ended(running):
    signal.raise_signal(signal.SIGTERM)
    await running


async def ask(path):
    async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=str(path)), base_url="http://b") as http:
        return await http.get("/")


@contextlib.asynccontextmanager
async def silent(path, number):
    """That many connections over which nothing is said."""
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(number)]
        for one in made:
            await asyncio.to_thread(one.connect, str(path))
            one.setblocking(False)
        yield made


async def left(connections, most):
    """How many of them are still open, once no more than ``most`` are or five seconds are over."""
    open_ = list(connections)
    for _ in range(250):
        open_ = [one for one in open_ if not is_cut(one)]
        if len(open_) <= most:
            break
        await asyncio.sleep(0.02)
    return len(open_)


def is_cut(connection):
    try:
        return not connection.recv(4096)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


async def test_all_strangers_together_hold_a_few_places_and_the_rest_is_there_for_those_it_is_for(served):
    known = threading.Event()
    (path,) = await served(answering(), known=lambda _uid: known.is_set())
    async with silent(path, 3 * CONNECTIONS) as strangers:
        assert await left(strangers, STRANGERS) == STRANGERS
        known.set()
        assert (await ask(path)).text == "here"


async def test_silent_connections_beyond_the_places_are_cut_and_use_up_no_descriptors(served):
    (path,) = await served(answering(), known=lambda _uid: True)
    async with silent(path, 3 * CONNECTIONS) as silent_ones:
        assert await left(silent_ones, 2 * CONNECTIONS) == 2 * CONNECTIONS
        assert (await ask_or_cut(path)) in {503, None}
    assert (await ask(path)).text == "here"


async def ask_or_cut(path):
    try:
        return (await ask(path)).status_code
    except httpx.TransportError:
        return None


async def test_a_second_request_that_never_ends_gives_its_place_back(served):
    (path,) = await served(answering(), known=lambda _uid: True, head_seconds=0.05)
    async with silent(path, 1) as (one,):
        one.sendall(ASK)
        await asyncio.get_running_loop().sock_recv(one, 4000)
        one.sendall(ASK[:-10])
        assert await left([one], 0) == 0


async def test_a_reader_who_takes_nothing_is_cut_and_the_file_is_closed_at_once(served, tmp_path):
    done = asyncio.Event()
    pack = (tmp_path / "pack").open("w+b")
    pack.truncate(8 << 20)
    loop = asyncio.get_running_loop()

    async def handler(_request):
        return PackResponse(pack, {}, lambda: loop.call_soon_threadsafe(done.set))

    (path,) = await served(Starlette(routes=[Route("/", handler)]), known=lambda _uid: True, take_seconds=0.05)
    async with silent(path, 1) as (one,):
        one.sendall(ASK)
        await asyncio.wait_for(done.wait(), 10)
        assert pack.closed


async def test_a_socket_whose_loop_is_held_holds_up_no_other(served):
    release, held = threading.Event(), threading.Event()

    def hold():
        held.set()
        assert release.wait(10)

    busy, free = await served(answering(hold), answering(), known=lambda _uid: True)
    waiting = asyncio.create_task(ask(busy))
    assert await asyncio.to_thread(held.wait, 10)
    assert (await ask(free)).text == "here"
    release.set()
    assert (await waiting).text == "here"
