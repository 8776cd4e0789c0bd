"""Runs the tests under a probe in a fork of the sandbox and names the lines to suspect."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files

from sandbox.base import Sandbox
from sandbox.errors import SandboxPathError
from sandbox.types import Command
from swarm.checks import run_tests
from swarm.evidence import is_test_file
from swarm.strategies import spectrum
from swarm.strategies.spectrum import Suspect
from swarm.types import TestRun

_SOURCE_LIMIT = 1_000_000
_TRACE_LIMIT = 64_000_000
_MENTIONED = re.compile(r"[\w][\w./-]*\.\w{1,4}")
_SITE = "import swarm_probe\nswarm_probe.watch_unittest()\n"


@dataclass(frozen=True)
class Diagnosis:
    """How the tests stand, which lines to suspect, and the sources that hold them."""

    base: TestRun
    suspects: tuple[Suspect, ...]
    sources: dict[str, str]
    traced: bool


async def by_coverage(sandbox: Sandbox, command: str, *, limit: int, seconds: float) -> Diagnosis:
    """Rank lines by which tests executed them. Where tests cannot be traced, take the files that their output names;
    where it names none, every Python source. Raises SandboxError."""
    async with sandbox.fork() as fork:
        folder = f".probe-{secrets.token_hex(8)}"
        root = (await fork.run(Command(argv=("pwd",)))).text.strip()
        probe = files("swarm.strategies").joinpath("probe.py").read_bytes()
        await fork.write(f"{folder}/swarm_probe.py", probe)
        await fork.write(f"{folder}/sitecustomize.py", _SITE.encode())
        env = {
            "PYTHONPATH": f"{root}/{folder}",
            "PYTEST_ADDOPTS": "-p swarm_probe",
            "SWARM_PROBE": f"{root}/{folder}/lines",
        }
        base = await run_tests(fork, command, seconds=seconds, env=env)
        try:
            traces = spectrum.read_traces(await fork.read(f"{folder}/lines", limit=_TRACE_LIMIT))
        except SandboxPathError:
            traces = ()
    scores = spectrum.ochiai(traces)
    if scores:
        order = sorted({file for file, _ in scores})
        sources = await _sources(sandbox, order, command)
        return Diagnosis(base, spectrum.suspects(scores, sources, limit), sources, traced=True)
    sources = await _sources(sandbox, dict.fromkeys(_MENTIONED.findall(base.tail)), command)
    sources = sources or await _sources(sandbox, await _python_files(sandbox), command)
    return Diagnosis(base, spectrum.everywhere(sources, limit), sources, traced=False)


async def everywhere(sandbox: Sandbox, command: str, *, limit: int, seconds: float) -> Diagnosis:
    """No localisation: every statement of every Python source alike. A baseline to measure the other against."""
    async with sandbox.fork() as fork:
        base = await run_tests(fork, command, seconds=seconds)
    sources = await _sources(sandbox, await _python_files(sandbox), command)
    return Diagnosis(base, spectrum.everywhere(sources, limit), sources, traced=False)


async def _python_files(sandbox: Sandbox) -> list[str]:
    argv = ("find", ".", "-name", "*.py", "-type", "f", "-not", "-path", "*/.*/*")
    outcome = await sandbox.run(Command(argv=argv))
    return sorted(line.removeprefix("./") for line in outcome.text.splitlines())


async def sources_of(sandbox: Sandbox, paths: Iterable[str], command: str) -> dict[str, str]:
    """Those of the files that are sources: no tests, text, not too long. Raises SandboxError."""
    return await _sources(sandbox, paths, command)


async def _sources(sandbox: Sandbox, paths: Iterable[str], command: str) -> dict[str, str]:
    """Those of the files that can be read whole, are text, and are no tests."""
    found = {}
    for path in paths:
        if is_test_file(path, command):
            continue
        try:
            data = await sandbox.read(path, limit=_SOURCE_LIMIT + 1)
        except SandboxPathError:
            continue
        if len(data) <= _SOURCE_LIMIT and b"\0" not in data:
            found[path] = data.decode("utf-8", "surrogateescape")
    return found
