"""Commands that follow one another in a session, and output as it comes, on every backend."""

from __future__ import annotations

import asyncio
import time

import pytest

from sandbox.base import Sandbox, SandboxBackend
from sandbox.line.resident import ResidentSandbox
from sandbox.types import MIB, Command, Limits, Outcome, SandboxSpec

SPEC = SandboxSpec(limits=Limits(memory=128 * MIB, processes=48, disk=16 * MIB, output=8192, wall=30))
SHELLS = [pytest.param("sh", id="sh"), pytest.param("bash", id="bash")]


async def said(box: Sandbox, script: str, shell: str = "sh", **fields: object) -> str:
    outcome = await box.run(Command(argv=(shell, "-c", script), session=True, **fields))
    return outcome.text


async def sh(box: Sandbox, script: str, **fields: object) -> Outcome:
    return await box.run(Command(argv=("sh", "-c", script), **fields))


@pytest.mark.parametrize("shell", SHELLS)
async def test_folder_and_exported_variables_go_on_and_nothing_else_does(backend: SandboxBackend, shell: str) -> None:
    async with backend.open(SPEC) as box:
        await said(box, "mkdir -p a/b; cd a; export ONE='x\ny' TWO=2; unset TMPDIR; three=3; f() { echo f; }", shell)
        assert await said(
            box, 'pwd; echo "$ONE$TWO${TMPDIR-none}${three-none}"; f 2>/dev/null || echo no f', shell
        ) == (f"{await said(box, 'pwd')}x\ny2nonenone\nno f\n")
        assert (await said(box, "cd b; pwd", shell)).endswith("/a/b\n")
        assert (await said(box, "pwd", shell)).endswith("/a/b\n")
        assert (await sh(box, "pwd; echo ${ONE-none}")).text.endswith("/work\nnone\n")


async def test_a_state_is_left_however_a_script_ends(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        for script, code in (
            ("cd /tmp; export A=1; exit 5", 5),
            ("cd /usr; export A=2; false", 1),
            ("set -e; cd /tmp; export A=3; false; cd /", 1),
            ("set -u; cd /usr; export A=4; echo $missing; cd /", 2),
            ("cd /tmp; export A=5; PATH=/nowhere; export PATH", 0),
        ):
            outcome = await box.run(Command(argv=("sh", "-c", script), session=True))
            assert (outcome.exit_code != 0) == (code != 0), script
            folder, number = script.split("cd ")[1].split(";")[0], script.split("A=")[1][0]
            shown = (await box.run(Command(argv=("/bin/sh", "-c", "pwd; echo $A"), session=True))).text
            assert shown == f"{folder}\n{number}\n", script


async def test_a_state_stays_where_a_script_leaves_none(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        await said(box, "mkdir d; cd d; export A=kept")
        for script, limit in (
            ("cd /; export A=lost; exec true", None),
            ("cd /; export A=lost; kill -9 $$", None),
            ("cd /; export A=lost; sleep 20", 0.4),
            ("cd /; export A=lost; trap : EXIT", None),
            ("cd /; if", None),
            ("x=$(head -c 40000 /dev/zero | tr '\\0' x); cd /; export A=lost B=$x C=$x", None),
        ):
            await said(box, script, timeout=limit)
            shown = await said(box, "pwd; echo $A")
            assert shown.endswith("/d\nkept\n"), script


async def test_what_a_command_itself_asks_for_comes_before_the_state(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        await said(box, "mkdir d e; cd d; export A=1 B=1")
        assert (await said(box, "pwd; echo $A$B", cwd="e", env={"B": "2"})).endswith("/e\n12\n")
        assert (await said(box, "pwd; echo $A$B")).endswith("/e\n12\n")


async def test_a_folder_that_is_gone_is_told_and_the_session_goes_on(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        await said(box, "mkdir 'odd\nname\n'; cd 'odd\nname\n'")
        assert await said(box, 'basename "$PWD"') == "odd\nname\n\n"
        await sh(box, "rmdir odd*")
        assert "is gone" in await said(box, "pwd")
        assert (await said(box, "pwd")).endswith("/work\n")


async def test_a_folder_with_an_endless_name_is_no_state_and_blocks_nobody(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        where = await said(box, "pwd")
        for size in (3000, 4090, 65_500):
            await said(
                box, f"trap - EXIT; {{ printf /; head -c {size} /dev/zero | tr '\\0' a; printf '\\n.\\0A=b\\0'; }} >&9"
            )
            assert (await said(box, "pwd", timeout=5)).endswith(where)


async def test_state_that_is_made_up_is_no_state(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        where = await said(box, "export A=1; pwd")
        for words in ("rubbish", "relative\\n.\\0A=2\\0", "/x\\n.\\0A=2", "\\0\\0\\0", "/x\\0A=2\\0"):
            await said(box, f"printf '{words}' >&9; exec true")
            assert await said(box, "pwd; echo $A") == f"{where}1\n", words
        # What has the right form is the agent's own word about its own session, but for impossible names.
        await said(box, "printf '/usr\\n.\\0A=2\\0B-C=3\\0=4\\0D\\0' >&9; exec true")
        assert await said(box, "pwd; echo $A; env | grep -c -e '^B-C' -e '^='") == "/usr\n2\n0\n"


async def test_a_fork_takes_home_and_session_along_and_then_goes_its_own_way(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        await said(box, "mkdir d; cd d; export A=1; d=~/.local/bin; mkdir -p $d; echo 'echo tool' >$d/t; chmod +x $d/t")
        async with box.fork() as one:
            assert (await said(one, "pwd; echo $A; ~/.local/bin/t")).endswith("/d\n1\ntool\n")
            await said(one, "cd /usr; export A=2; rm ~/.local/bin/t")
            assert (await said(box, "pwd; echo $A; ~/.local/bin/t")).endswith("/d\n1\ntool\n")
            async with one.fork() as two:
                assert await said(two, "pwd; echo $A; ls ~/.local/bin") == "/usr\n2\n"


async def test_a_session_outlives_its_supervisor(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        assert isinstance(box, ResidentSandbox)
        await said(box, "mkdir d; cd d; export A=1; echo kept >f; echo kept >~/g")
        async with box.quiet():
            pass
        assert (await said(box, "pwd; echo $A; cat f ~/g")).endswith("/d\n1\nkept\nkept\n")


async def test_output_is_shown_while_the_command_runs_and_is_what_is_kept(backend: SandboxBackend) -> None:
    shown: list[tuple[float, bytes]] = []
    async with backend.open(SPEC) as box:
        began = time.monotonic()
        outcome = await box.run(
            Command(argv=("sh", "-c", "echo one; sleep 0.6; echo two; yes x | head -c 60000; echo end")),
            lambda data: shown.append((time.monotonic() - began, data)),
        )
    assert b"".join(data for _, data in shown) == outcome.output
    assert shown[0][1] == b"one\n"
    assert outcome.seconds - shown[0][0] > 0.5
    assert outcome.cut == 60012 - 8192
    assert outcome.cut_at == 4096
    assert outcome.text.endswith("x\nend\n")
    assert f"[{outcome.cut} bytes of output were left out here]" in outcome.text


async def test_whoever_watches_the_output_and_fails_stops_the_command(backend: SandboxBackend, processes_with) -> None:
    def watch(data: bytes) -> None:
        raise ZeroDivisionError

    mark = f"6{time.time_ns() % 10**9}"
    async with backend.open(SPEC) as box:
        with pytest.raises(ZeroDivisionError):
            await box.run(Command(argv=("sh", "-c", f"echo x; sleep {mark}; true")), watch)
        assert processes_with(mark) == []
        assert (await sh(box, "echo alive")).text == "alive\n"


async def test_files_and_export_go_on_while_a_command_runs(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        await box.write("before", b"1")
        running = asyncio.create_task(sh(box, "echo 2 >during; while [ ! -e stop ]; do sleep 0.02; done; echo done"))
        for _ in range(200):
            await asyncio.sleep(0.02)
            if b"during" in b"".join([chunk async for chunk in box.export()]):
                break
        assert await box.read("during") == b"2\n"
        assert not running.done()
        await box.write("stop", b"")
        assert (await running).text == "done\n"


async def test_an_export_that_goes_on_when_a_command_ends_is_whole(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        await sh(box, "head -c 6000000 /dev/urandom >big")
        wanted = (await sh(box, "sha256sum <big")).text
        running = asyncio.create_task(sh(box, "sleep 0.3; echo done"))
        await asyncio.sleep(0.1)
        data = bytearray()
        async for chunk in box.export():
            data += chunk
            await asyncio.sleep(0.01)
        assert (await running).text == "done\n"

        async def again():
            yield bytes(data)

        async with backend.open(SPEC, again()) as other:
            assert (await sh(other, "sha256sum <big")).text == wanted
