"""The pretend sandbox's own part: scripted answers. The rest is in the contract suite."""

from __future__ import annotations

from pathlib import Path

from sandbox.testing import ScriptedBackend
from sandbox.types import Command, Outcome, SandboxSpec


async def test_a_script_answers_what_it_knows_and_the_rest_really_runs() -> None:
    def script(command: Command, work: Path) -> Outcome | None:
        if command.argv[0] == "make":
            (work / "made").write_text("yes")
            return Outcome(exit_code=7, output=b"scripted", seconds=0.5)
        return None

    backend = ScriptedBackend(script)
    async with backend.open(SandboxSpec()) as box, box.fork() as fork:
        assert (await fork.run(Command(argv=("make",)))).exit_code == 7
        assert await fork.read("made") == b"yes"
        assert (await box.run(Command(argv=("ls",)))).output == b""
    assert [command.argv for command in backend.ran] == [("make",), ("ls",)]
    assert len(backend.opened) == 2
    assert not any(sandbox.folder.exists() for sandbox in backend.opened)
