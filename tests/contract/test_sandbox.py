"""What every sandbox backend does alike, the pretend one included."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
import time
from collections.abc import AsyncIterator

import pytest

from sandbox.base import SandboxBackend
from sandbox.errors import SandboxError, SandboxLostError, SandboxPathError
from sandbox.types import MIB, Command, Limits, SandboxSpec

SPEC = SandboxSpec(limits=Limits(memory=128 * MIB, processes=48, disk=16 * MIB, output=8192, wall=30))


def sh(script: str, **fields: object) -> Command:
    return Command(argv=("sh", "-c", script), **fields)


async def whole(stream: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in stream])


async def once(data: bytes) -> AsyncIterator[bytes]:
    yield data


def members(data: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8", errors="surrogateescape") as tar:
        return {info.name.removeprefix("./"): info for info in tar}


async def test_files_come_back_byte_for_byte(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        for data in (b"", bytes(range(256)) * 3, b"\r\n\xef\xbb\xbf\x00", os.urandom(5 * MIB)):
            await box.write("deep/er/file", data)
            assert await box.read("deep/er/file", 6 * MIB) == data
        assert await box.read("deep/er/file", 10) == data[:10]
        assert await box.read("./deep//er/./file", 3) == data[:3]


async def test_odd_names_work_everywhere(backend: SandboxBackend) -> None:
    names = [
        "-rf",
        "a b",
        "new\nline\n",
        "q'uote\"$x`",
        "ünï",
        "*",
        "--checkpoint-action=exec=touch x",
        ".hidden",
        "\\",
    ]
    async with backend.open(SPEC) as box:
        for name in names:
            await box.write(f"d/{name}", name.encode())
            assert await box.read(f"d/{name}") == name.encode()
        async with box.fork() as other:
            for name in names:
                assert await other.read(f"d/{name}") == name.encode()
        assert {f"d/{name}" for name in names} <= set(members(await whole(box.export())))


async def test_paths_outside_and_missing_ones_are_refused(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        await box.run(sh("ln -s /etc/passwd link; ln -s / root; ln -s loop loop; mkdir dir; mkfifo pipe; ln -s ok in"))
        await box.run(sh("ln -s /no-such-folder/x out"))
        await box.write("ok", b"1")
        for path in ("/etc/passwd", "../x", "a/../../x", "link", "root/etc/passwd"):
            with pytest.raises(SandboxPathError, match="outside"):
                await box.read(path)
        for path in ("/no-such-folder/x", "../x", "a/../../x", "out", "root/no-such-folder/x"):
            with pytest.raises(SandboxPathError, match="outside"):
                await box.write(path, b"evil")
        for path in ("missing", "dir/missing", "ok/below"):
            with pytest.raises(SandboxPathError, match="does not exist"):
                await box.read(path)
        for path in ("dir", "pipe"):
            with pytest.raises(SandboxPathError, match="not a file"):
                await box.read(path)
            with pytest.raises(SandboxPathError, match="not a file"):
                await box.write(path, b"x")
        for path in ("", ".", "loop", "nul\0"):
            with pytest.raises(SandboxPathError):
                await box.read(path)
        with pytest.raises(SandboxPathError):
            await box.write("ok/below", b"x")
        assert await box.read("in") == b"1"
        assert (await box.run(sh("cat link | head -c 4"))).exit_code == 0


async def test_writing_keeps_the_mode_of_a_file_and_sets_it_when_asked(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        await box.write("new", b"#!/bin/sh\necho one\n")
        await box.write("run", b"#!/bin/sh\necho one\n", executable=True)
        await box.write("run", b"#!/bin/sh\necho two\n")
        assert (await box.run(Command(argv=("./run",)))).text == "two\n"
        assert (await box.run(Command(argv=("./new",)))).exit_code == 126
        assert (await box.run(sh("stat -c %a new run"))).text == "644\n755\n"


async def test_exit_codes_are_a_shells(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        for command, code in (
            (sh("exit 0"), 0),
            (sh("exit 77"), 77),
            (Command(argv=("no-such-program",)), 127),
            (Command(argv=("./none",)), 127),
            (Command(argv=("/usr",)), 126),
            (sh("kill -TERM $$"), 143),
            (sh("kill -KILL $$"), 137),
            (sh("true", cwd="no/folder"), 126),
        ):
            outcome = await box.run(command)
            assert (outcome.exit_code, outcome.timed_out, outcome.out_of_memory) == (code, False, False), command


async def test_arguments_arrive_untouched(backend: SandboxBackend) -> None:
    words = ("", " ", "a b", "$HOME", "`x`", "*", "-n", "'", '"', "new\nline", "ü", "\\", "A=b", ";", "&&")
    async with backend.open(SPEC) as box:
        outcome = await box.run(Command(argv=("printf", "%s\\0", *words)))
        assert outcome.output == b"".join(word.encode() + b"\0" for word in words)


async def test_output_is_interleaved_and_may_be_any_bytes(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        outcome = await box.run(sh("echo one; echo two >&2; echo three; printf '\\377\\000\\200'"))
        assert outcome.output == b"one\ntwo\nthree\n\xff\x00\x80"
        assert outcome.text.startswith("one\ntwo\nthree\n\ufffd")
        assert outcome.seconds > 0


async def test_standard_input_arrives_whole_and_ends(backend: SandboxBackend) -> None:
    data = os.urandom(2 * MIB)
    async with backend.open(SPEC) as box:
        await box.run(sh("cat > got", stdin=data))
        assert await box.read("got", 3 * MIB) == data
        assert (await box.run(sh("cat; echo end"))).text == "end\n"
        assert (await box.run(sh("head -c 3", stdin=data))).output == data[:3]
        assert (await box.run(sh("exit 5", stdin=data))).exit_code == 5


async def test_folder_and_environment_are_as_asked_and_nothing_else_gets_in(backend: SandboxBackend) -> None:
    os.environ["SWARM_CANARY"] = "ca" + "nary"
    try:
        async with backend.open(SPEC.model_copy(update={"env": {"ONE": "1", "TWO": "2"}})) as box:
            await box.write("sub/x", b"")
            outcome = await box.run(sh('pwd; echo "$ONE$TWO$THREE"; env', cwd="sub", env={"TWO": "b\n", "THREE": "ü"}))
            lines = outcome.text.splitlines()
            assert lines[0].endswith("/sub")
            assert lines[1:3] == ["1b", "ü"]
            assert "SWARM_CANARY" not in outcome.text
            assert (await box.run(sh('echo x >"$HOME/y" && cat "$HOME/y" && echo >"$TMPDIR/z"'))).text == "x\n"
    finally:
        del os.environ["SWARM_CANARY"]
    async with backend.open(SPEC) as box:
        for command in (sh("true", cwd="/etc"), sh("true", cwd="../"), sh("true", env={"A=B": "x"})):
            with pytest.raises(SandboxPathError):
                await box.run(command)


async def test_a_time_out_kills_the_whole_group(backend: SandboxBackend, processes_with) -> None:
    mark = f"7{os.getpid()}{time.time_ns() % 10**6}"
    async with backend.open(SPEC) as box:
        began = time.monotonic()
        outcome = await box.run(sh(f"echo start; sleep {mark} & sleep {mark}", timeout=1.0))
        assert outcome.timed_out
        assert outcome.exit_code == 137
        assert outcome.text == "start\n"
        assert time.monotonic() - began < 8
        assert processes_with(mark) == []
        assert (await box.run(sh("echo alive"))).text == "alive\n"


@pytest.mark.slow
async def test_a_command_without_a_limit_of_its_own_gets_the_sandboxs(backend: SandboxBackend) -> None:
    limits = SPEC.limits.model_copy(update={"wall": 1.0})
    async with backend.open(SandboxSpec(limits=limits)) as box:
        assert (await box.run(sh("sleep 60"))).timed_out
        assert (await box.run(sh("sleep 60", timeout=500))).timed_out


async def test_long_output_keeps_head_and_tail(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        outcome = await box.run(sh("echo head; yes x | head -c 3000000; echo; echo tail"))
        assert outcome.exit_code == 0
        assert len(outcome.output) == 8192
        assert outcome.output.startswith(b"head\n")
        assert outcome.output.endswith(b"tail\n")
        assert outcome.cut == len("head\n") + 3000000 + len("\ntail\n") - 8192


async def test_a_whole_output_is_passed_on_uncut_and_not_kept(backend: SandboxBackend) -> None:
    seen: list[bytes] = []
    async with backend.open(SPEC) as box:
        outcome = await box.run(sh("seq 300000; exit 5", whole=True), seen.append)
        assert b"".join(seen) == b"".join(b"%d\n" % number for number in range(1, 300_001))
        assert (outcome.exit_code, outcome.output, outcome.cut) == (5, b"", 0)
        assert max(map(len, seen)) <= MIB
        seen.clear()
        await box.run(sh("cd /; export A=b", session=True, whole=True), seen.append)
        await box.run(sh('pwd; echo "$A"', session=True, whole=True), seen.append)
        assert b"".join(seen) == b"/\nb\n"
        assert (await box.run(sh("seq 300000"))).cut > 0


async def test_a_whole_output_comes_no_faster_than_it_is_taken_and_ends_with_its_time(backend: SandboxBackend) -> None:
    seen = []

    def slowly(data: bytes) -> None:
        seen.append(len(data))
        time.sleep(0.05)

    async with backend.open(SPEC) as box:
        outcome = await box.run(sh("yes", whole=True, timeout=1), slowly)
        assert (outcome.exit_code, outcome.timed_out) == (137, True)
        assert MIB // 4 < sum(seen) < 40 * MIB
        assert (await box.run(sh("echo on"))).output == b"on\n"


async def test_a_reader_that_stops_a_whole_output_leaves_the_sandbox_usable(backend: SandboxBackend) -> None:
    def refuses(_: bytes) -> None:
        raise BrokenPipeError

    async with backend.open(SPEC) as box:
        with pytest.raises(BrokenPipeError):
            await box.run(sh("yes", whole=True), refuses)
        assert (await box.run(sh("echo on"))).output == b"on\n"


async def test_endless_output_is_drained_until_the_time_is_over(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        outcome = await box.run(sh("yes", timeout=1.0))
        assert outcome.timed_out
        assert len(outcome.output) == 8192
        assert outcome.cut > 100_000


@pytest.mark.slow
async def test_a_command_whose_output_is_cut_goes_on_being_heard_while_it_prints(backend: SandboxBackend) -> None:
    """What watches for a standstill has nothing else to go by: past its head, output comes at the end."""
    heard: list[tuple[float, bytes]] = []
    async with backend.open(SPEC) as box:
        noisy = sh("head -c 9000 /dev/zero; for i in 1 2 3 4 5 6 7; do sleep 0.5; echo more; done; sleep 2.5")
        outcome = await box.run(noisy, lambda data: heard.append((time.monotonic(), data)))
        ended = time.monotonic()
    signs = [at for at, data in heard if not data]
    assert 2 <= len(signs) <= 5
    assert ended - signs[-1] > 1.5, "it printed nothing then"
    assert b"".join(data for _, data in heard) == outcome.output


async def test_commands_at_the_same_time_do_not_mix(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        outcomes = await asyncio.gather(*(box.run(sh(f"sleep 0.2; echo {n}; exit {n}")) for n in range(5)))
        assert [(o.text, o.exit_code) for o in outcomes] == [(f"{n}\n", n) for n in range(5)]


async def test_a_fork_is_a_copy_and_neither_sees_the_others_changes(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        await box.run(
            sh("mkdir -p a/empty; echo 1 >a/f; chmod 750 a/f; ln -s a/f link; ln a/f hard; truncate -s 3M hole")
        )
        async with box.fork() as one, box.fork() as two:
            await one.write("a/f", b"one")
            await two.run(sh("rm -r a"))
            assert await box.read("a/f") == b"1\n"
            assert await one.read("a/f") == b"one"
            outcome = await one.run(sh("stat -c '%a %F' a/f a/empty link; stat -c %s hole"))
            assert outcome.text == "750 regular file\n755 directory\n777 symbolic link\n3145728\n"
            async with one.fork() as three:
                assert await three.read("a/f") == b"one"
        assert await box.read("a/f") == b"1\n"


async def test_export_holds_everything_and_opens_again(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        await box.run(
            sh("mkdir d; echo x >d/secret; chmod 000 d/secret d; echo y >'new\nline'; mkfifo p; ln -s /etc l")
        )
        data = await whole(box.export())
        held = members(data)
        assert held["d/secret"].size == 2
        assert held["l"].linkname == "/etc"
        assert held["p"].isfifo()
        async with backend.open(SPEC, once(data)) as again:
            assert await again.read("d/secret") == b"x\n"


async def test_a_workspace_that_is_no_tar_is_refused(backend: SandboxBackend) -> None:
    with pytest.raises(SandboxError, match="filled"):
        async with backend.open(SPEC, once(b"not a tar" * 1000)):
            pass


async def test_a_failing_workspace_stream_is_not_hidden(backend: SandboxBackend) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield bytes(10240)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with backend.open(SPEC, broken()):
            pass


async def test_a_closed_sandbox_is_lost(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        pass
    with pytest.raises(SandboxLostError):
        await box.run(sh("true"))


async def test_a_cancelled_command_leaves_nothing_running(backend: SandboxBackend, processes_with) -> None:
    mark = f"8{os.getpid()}{time.time_ns() % 10**6}"
    async with backend.open(SPEC) as box:
        task = asyncio.create_task(box.run(sh(f"sleep {mark}; true")))
        for _ in range(100):
            await asyncio.sleep(0.05)
            if processes_with(mark):
                break
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(100):
            if not processes_with(mark):
                break
            await asyncio.sleep(0.05)
        assert processes_with(mark) == []
        assert (await box.run(sh("echo alive"))).text == "alive\n"


async def test_pytest_runs_inside(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        await box.write("test_x.py", b"def test_good():\n    pass\n\ndef test_bad():\n    assert 1 == 2\n")
        outcome = await box.run(Command(argv=("/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider")))
        assert outcome.exit_code == 1, outcome.text
        assert "1 failed, 1 passed" in outcome.text
        assert not any("__pycache__" in name for name in members(await whole(box.export())))


async def test_sweep_leaves_living_sandboxes_alone(backend: SandboxBackend) -> None:
    async with backend.open(SPEC) as box:
        assert await backend.sweep() == 0
        assert (await box.run(sh("echo alive"))).text == "alive\n"
