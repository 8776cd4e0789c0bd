"""How a person is told what a repository's tests need, with sandboxes whose commands end as a test says."""

from __future__ import annotations

from contextlib import asynccontextmanager

from sandbox.errors import SetUpError
from sandbox.testing import ScriptedBackend
from sandbox.types import Outcome, SandboxSpec
from swarm.knowledge.ecosystems import Environment, Files, environment
from swarm.knowledge.examining import examine

PASS = Outcome(exit_code=0, output=b"test_a (test_m.T.test_a) ... ok\n", seconds=1.0)
FAIL = Outcome(exit_code=2, output=b"no module", seconds=1.0)
PYTHON = environment(Files({"requirements.txt": "pytest\n"}, {"requirements.txt", "test_m.py"}))
BOTH = environment(Files({"package.json": '{"scripts": {"test": "x"}}', "go.mod": ""}, {"package.json", "go.mod"}))


def world(good: set[tuple[bool, str]], broken: tuple[str, ...] = ()):
    """Sandboxes in which ``good`` commands pass, by whether a set-up was done; set-ups with ``broken`` words fail."""
    asked: list[tuple[str, ...]] = []

    def opened(setup):
        asked.append(setup)

        def script(command, _folder):
            if command.argv[0] != "/bin/sh":
                return None
            return PASS if (bool(setup), command.argv[4]) in good else FAIL

        backend = ScriptedBackend(script)

        @asynccontextmanager
        async def fresh():
            if any(word in " ".join(setup) for word in broken):
                raise SetUpError("pip ended with status 1")
            async with backend.open(SandboxSpec()) as sandbox:
                yield sandbox

        return fresh

    return opened, asked


async def test_set_up_is_not_asked_for_where_tests_run_without() -> None:
    opened, asked = world({(False, "python3 -m pytest -q")})
    found = await examine(PYTHON, opened, network=True)
    assert (found.proved.command, found.setup, asked) == ("python3 -m pytest -q", (), [()])


async def test_nothing_is_installed_without_the_network() -> None:
    opened, asked = world({(True, '"$HOME/venv/bin/python" -m pytest -q')})
    found = await examine(PYTHON, opened, network=False)
    assert (found.proved, asked) == (None, [()])


async def test_set_up_that_makes_tests_run_is_told_with_the_command() -> None:
    opened, _ = world({(True, '"$HOME/venv/bin/python" -m pytest -q')})
    found = await examine(PYTHON, opened, network=True)
    assert found.proved.command == '"$HOME/venv/bin/python" -m pytest -q'
    assert found.setup[0] == 'python3 -m venv "$HOME/venv"'


async def test_set_up_that_fails_is_told_and_the_next_kind_is_tried() -> None:
    opened, _ = world({(True, "go test ./...")}, broken=("npm",))
    found = await examine(BOTH, opened, network=True)
    assert (found.proved.command, found.setup) == ("go test ./...", ("go mod download",))
    assert any("the set-up failed: pip ended" in each.went for each in found.tried)


async def test_repository_that_suggests_nothing_has_nothing_tried() -> None:
    opened, _ = world(set())
    found = await examine(Environment(), opened, network=True)
    assert (found.proved, found.tried) == (None, ())
