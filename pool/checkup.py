"""Looks at model servers for the doctor: finds out who they are, asks each canary, and waits on an idle connection."""

from __future__ import annotations

import asyncio
import contextlib
import math
import ssl
import time
from urllib.parse import urlsplit

from pool.config import EndpointConfig, PoolConfig
from pool.doctor import Finding, Patient, diagnose
from pool.member import Member
from pool.plain_client import trouble
from pool.roster import JOIN_INTERVAL, Roster

LOOK = 4.0  # seconds for a server to show that it lives
EXAM = 300.0  # seconds for all canaries of one server
WATCH = 7.0  # seconds to wait for a server to close an idle connection: uvicorn closes after 5
LARGEST = 8 * 1024 * 1024  # bytes of a list of models
ANSWER = 10.0  # seconds for the answer after which a connection is idle


async def check_up(settings: PoolConfig, *, idle: bool = True) -> tuple[Finding, ...]:
    """Examine every endpoint of a configuration from here. ``idle`` also measures its keep-alive, which takes 7 s."""
    roster = Roster(settings.model_copy(update={"canaries": False}), clock=time.monotonic, changed=lambda: None)
    async with roster.running():
        patients = await asyncio.gather(*(_patient(member, idle=idle) for member in roster.members.values()))
    return diagnose(patients)


async def meet(member: Member, within: float = LOOK) -> bool:
    """Probe until the server is up, at most ``within`` seconds; whether it is."""
    until = time.monotonic() + within
    while True:
        await member.probe()
        if member.state == "up" or time.monotonic() >= until:
            return member.state == "up"
        await asyncio.sleep(JOIN_INTERVAL)


async def closes_after(config: EndpointConfig, within: float = WATCH) -> float | None:
    """Seconds after which a server closes an idle connection; infinite when not ``within`` this time.

    None where nothing was measured: no connection, no good answer, or one that says that it keeps no connection.
    """
    parts = urlsplit(config.url)
    secure = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or (443 if secure else 80)
    try:
        async with asyncio.timeout(ANSWER):
            reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=secure)
    except (OSError, TimeoutError):
        return None
    try:
        async with asyncio.timeout(ANSWER):
            writer.write(_question(config))
            await _answered(reader)
        return await _end_of(reader, within)
    except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _end_of(reader: asyncio.StreamReader, within: float) -> float:
    began = time.monotonic()
    try:
        async with asyncio.timeout(within):
            while await reader.read(65536):
                pass
    except TimeoutError:
        return math.inf
    except OSError:
        pass  # reset, which is an end as well
    return time.monotonic() - began


def _question(config: EndpointConfig) -> bytes:
    parts = urlsplit(config.url)
    lines = [f"GET {parts.path}/v1/models HTTP/1.1", f"Host: {parts.netloc.rpartition('@')[2]}"]
    if config.api_key is not None:
        lines.append(f"Authorization: Bearer {config.api_key.get_secret_value()}")
    return "\r\n".join([*lines, "", ""]).encode("ascii")


async def _answered(reader: asyncio.StreamReader) -> None:
    """Read one whole answer: the connection is idle afterwards. Raises ValueError for one that proves nothing."""
    first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in rest)}
    if " 200 " not in f"{first} " or fields.get("connection") == "close":
        raise ValueError(first)
    if int(fields.get("content-length", 0)) > LARGEST:
        raise ValueError("an answer beyond all bounds")
    if "content-length" in fields:
        await reader.readexactly(int(fields["content-length"]))
    elif "chunked" in fields.get("transfer-encoding", ""):
        await reader.readuntil(b"0\r\n\r\n")
    else:
        raise ValueError("an answer without a length")


async def _patient(member: Member, *, idle: bool) -> Patient:
    up = await meet(member)
    measured = plain = None
    if up:
        watching = asyncio.ensure_future(closes_after(member.config)) if idle else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EXAM):
                await member.examine()
        measured = await watching if watching else None
        await member.probe()
        if member.record is not None:
            plain = await trouble(member.config, member.record.model)
    return Patient(member.config, member.status(), member.record, member.snapshot, measured, plain)
