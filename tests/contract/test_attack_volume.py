"""Too much of everything, and files that are not what they seem: bounded inside, harmless to whoever exports them."""

from __future__ import annotations

import asyncio
import resource
import tarfile
import time
from pathlib import Path

import pytest

from sandbox.base import Sandbox, SandboxBackend
from sandbox.errors import SandboxError, SandboxPathError
from sandbox.trees.folder import folder_stream
from sandbox.trees.workspace import Workspace
from sandbox.types import MIB, Limits, SandboxSpec
from tests.contract.inside import SPEC, answers, python, sh, usable

ROOMY = SandboxSpec(limits=Limits(memory=640 * MIB, processes=40, disk=300 * MIB, output=64 * 1024, wall=100))


async def exported(box: Sandbox, target: Path) -> dict[str, tarfile.TarInfo]:
    """The export's entries by name, read from a file so that it may be large."""
    with target.open("wb") as file:
        async for chunk in box.export():
            file.write(chunk)
    with tarfile.open(target, encoding="utf-8", errors="surrogateescape") as tar:
        return {info.name.removeprefix("./"): info for info in tar}


def peak() -> int:
    """The most memory that this process ever held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.claim("output limited")
async def test_a_gigabyte_of_output_costs_the_daemon_what_is_kept_of_it(jail: SandboxBackend) -> None:
    async with jail.open(SPEC) as box:
        await usable(box)
        before = peak()
        outcome = await sh(box, "echo first; head -c 1000000000 /dev/zero; echo last", timeout=25)
        assert outcome.exit_code == 0, outcome.text[-200:]
        assert len(outcome.output) == SPEC.limits.output
        assert outcome.output.startswith(b"first\n")
        assert outcome.output.endswith(b"last\n")
        assert outcome.cut == 1_000_000_000 + len("first\nlast\n") - SPEC.limits.output
        assert peak() - before < 64 * MIB


@pytest.mark.claim("output limited")
async def test_output_that_is_no_text_and_tries_to_look_like_ours_stays_output(jail: SandboxBackend) -> None:
    async with jail.open(SPEC) as box:
        for data in (
            "\\000\\001\\377\\376",
            "\\033]0;x\\007",
            "\\001\\000\\000\\000\\377\\377\\377\\177",
            "{\\042exit\\042:0}",
        ):
            outcome = await sh(box, f"printf '{data}'; printf '{data}' >&2; exit 3")
            assert outcome.exit_code == 3
            assert outcome.output == 2 * data.encode().decode("unicode_escape").encode("latin-1")
        for number in range(3, 40):  # no descriptor leads to the stream on which the supervisor speaks
            outcome = await sh(box, f"python3 -c \"import os; os.write({number}, b'x' * 70000)\" 2>/dev/null; echo $?")
            assert outcome.text == "1\n"
        await usable(box)


@pytest.mark.claim("files limited")
async def test_a_flood_of_files_folders_and_links_meets_the_limit(jail: SandboxBackend) -> None:
    program = """
    makers = {
        "folders": lambda path: os.mkdir(path), "links": lambda path: os.symlink("x" * 100, path),
        "pipes": lambda path: os.mkfifo(path), "files": lambda path: os.mknod(path, 0o100600),
    }
    for name, make in makers.items():
        for place in ("/work", "/home/agent"):
            top, count = f"{place}/{name}", 0
            os.mkdir(top)
            try:
                while count < 60_000:
                    make(f"{top}/{count}")
                    count += 1
            except OSError as error:
                print(name, place, errno.errorcode[error.errno])
            import shutil
            shutil.rmtree(top)
    """
    async with jail.open(
        SPEC.model_copy(update={"limits": SPEC.limits.model_copy(update={"memory": 192 * MIB})})
    ) as box:
        said = await answers(box, program)
        assert set(said.values()) == {"ENOSPC"}, said
        assert len(said) == 8
        await box.write("fits", b"again")
        await usable(box)


@pytest.mark.slow
@pytest.mark.claim("files limited")
async def test_a_hundred_thousand_files_are_exported_whole(jail: SandboxBackend, tmp_path: Path) -> None:
    program = """
    for folder in range(100):
        os.mkdir(f"d{folder}")
        for number in range(1000):
            with open(f"d{folder}/f{number}", "wb") as file:
                file.write(b"" if number % 100 else b"full")
    """
    async with jail.open(ROOMY) as box:
        outcome = await python(box, program, timeout=90)
        assert outcome.exit_code == 0, outcome.text
        before = peak()
        held = await exported(box, tmp_path / "tar")
        assert sum(1 for info in held.values() if info.isfile()) == 100_000
        assert (held["d99/f900"].size, held["d99/f999"].size) == (4, 0)
        assert peak() - before < 512 * MIB  # the list of entries is the test's own


@pytest.mark.claim("file size limited")
async def test_a_terabyte_of_nothing_is_refused_and_holes_stay_holes(jail: SandboxBackend, tmp_path: Path) -> None:
    """A sparse file of 1 TB costs nothing inside and everything outside."""
    program = """
    for place in ("/work", "/home/agent", "/tmp", "/dev/shm"):
        for size in (1 << 40, 1 << 62, 9 << 20):
            with open(place + "/huge", "wb", buffering=0) as file:
                print(place, size, act(lambda: file.truncate(size)))
                print(place, size, "end", act(lambda: os.pwrite(file.fileno(), b"x", size)))
                print(place, size, "space", act(lambda: os.posix_fallocate(file.fileno(), 0, size)))
            os.unlink(place + "/huge")
    with open("/work/holes", "wb") as file:
        file.truncate(7 << 20)
        os.pwrite(file.fileno(), b"end", (7 << 20) - 3)
    """
    async with jail.open(SPEC) as box:
        said = await answers(box, program)
        assert set(said.values()) <= {"EFBIG", "ENOSPC", "EINVAL"}, said
        held = await exported(box, tmp_path / "tar")
        assert held["holes"].size == 7 << 20
        assert (tmp_path / "tar").stat().st_size < MIB


@pytest.mark.claim("file size limited")
async def test_many_files_of_nothing_neither_fill_the_hosts_disk_nor_stop_the_daemon(
    jail: SandboxBackend, tmp_path: Path
) -> None:
    """Each is within the limit, costs the agent nothing, and would cost whoever seals them all that they pretend."""
    program = """
    for number in range(2000):
        with open(f"f{number}", "wb") as file:
            file.truncate(7 << 20)
    Path("real").write_text("work")
    """
    workspace = Workspace(tmp_path / "git")
    (tmp_path / "empty").mkdir()
    first = await workspace.begin(folder_stream(tmp_path / "empty", limit=MIB), limit=MIB)
    longest, done = 0.0, False

    async def beat() -> None:
        nonlocal longest
        while not done:
            at = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - at)

    async with jail.open(SPEC) as box:
        assert (await python(box, program)).exit_code == 0
        beating = asyncio.create_task(beat())
        sealed = await workspace.seal(first.base, box.export(), limit=20 * MIB)
        done = True
        await beating
    assert "real" in sealed.files
    assert 2 <= len(sealed.files) <= 4
    assert any("holes in files come to more" in note for note in sealed.left_out)
    assert longest < 5


@pytest.mark.claim("a hostile workspace fires nothing on the host")
async def test_names_of_any_bytes_and_any_length_come_out_whole(jail: SandboxBackend, tmp_path: Path) -> None:
    program = """
    names = [b"n" * 255, b"\\xff\\xfe invalid", b"new\\nline", b"tab\\t", b"\\x1b[31mred", b"-rf", b" ",
             b"quote'\\"`$(x)", b"back\\\\slash", "\\u202egnp.exe".encode(), b"a\\r", b"...", b"*", b"~", b"%s%n",
             b"--checkpoint=1"]
    for name in names:
        with open(b"/work/" + name, "wb") as file:
            file.write(name)
    print("made", len(names))
    """
    async with jail.open(SPEC) as box:
        assert (await answers(box, program))["made"] == "16"
        held = await exported(box, tmp_path / "tar")
        flat = [name for name in held if "/" not in name and name not in {"", "."} and held[name].isfile()]
        assert len(flat) == 16
        assert all(held[name].size == len(name.encode("utf-8", "surrogateescape")) for name in flat)
        assert await box.read("n" * 255) == b"n" * 255
        assert await box.read("new\nline") == b"new\nline"
        async with box.fork() as other:
            assert await other.read("n" * 255) == b"n" * 255
            assert (await sh(other, "ls -A | wc -l")).text.split()[-1] >= "17"


@pytest.mark.claim("a hostile workspace fires nothing on the host")
async def test_a_path_longer_than_the_kernel_takes_is_exported_and_hurts_nobody(
    jail: SandboxBackend, tmp_path: Path
) -> None:
    """PATH_MAX bounds one call, not a tree. A copy of such a tree may be refused in words, never half made."""
    program = """
    for _ in range(60):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    Path("bottom").write_text("deep")
    """
    async with jail.open(SPEC) as box:
        assert (await python(box, program)).exit_code == 0
        held = await exported(box, tmp_path / "tar")
        assert sum(1 for name in held if name.endswith("/bottom")) == 1
        try:
            async with box.fork() as other:
                await usable(other)
        except SandboxError as error:
            assert "cannot be filled" in str(error)  # noqa: PT017
        await usable(box)


@pytest.mark.claim("a hostile workspace fires nothing on the host")
async def test_links_pipes_and_odd_modes_neither_hang_nor_lead_out(jail: SandboxBackend, tmp_path: Path) -> None:
    """Symlink escapes: CVE-2026-39861, CVE-2026-25724; swapping a checked file for a link: container-use #365."""
    program = """
    links = dict(out="/etc/shadow", root="/", loop="loop", long="x" * 4000, climbs="../../../../../../etc/passwd",
                 proc="/proc/self/environ", zero="/dev/zero", init="/proc/1/root/etc/passwd", stdin="/dev/stdin")
    for name, target in links.items():
        os.symlink(target, name)
    os.mkfifo("pipe")
    server = socket.socket(socket.AF_UNIX)
    server.bind("socket")
    open("f", "w").write("data")
    for number in range(300):
        os.link("f", f"hard{number}")
    for mode in (0, 0o7777, 0o200, 0o111):
        open(f"m{mode:o}", "w").write("x")
        os.chmod(f"m{mode:o}", mode)
    os.mkdir("closed"); open("closed/in", "w").write("x"); os.chmod("closed", 0)
    for number, when in enumerate((-1, 0, 1 << 33, 253402300800)):
        open(f"t{number}", "w").write("x")
        act(lambda: os.utime(f"t{number}", (when, when)))
    print("made", "it")
    """
    async with jail.open(SPEC) as box:
        assert (await answers(box, program))["made"] == "it"
        held = await exported(box, tmp_path / "tar")
        assert held["out"].issym()
        assert held["pipe"].isfifo()
        assert held["closed/in"].size == 1
        assert {f"hard{number}" for number in range(300)} <= set(held)
        assert b"root:" not in (tmp_path / "tar").read_bytes()
        for path in (
            "out",
            "root/etc/passwd",
            "climbs",
            "proc",
            "zero",
            "init",
            "stdin",
            "pipe",
            "socket",
            "loop",
            "long",
        ):
            with pytest.raises(SandboxPathError):
                await box.read(path)
            with pytest.raises(SandboxPathError):
                await box.write(path, b"x")
        await usable(box)


@pytest.mark.claim("a hostile workspace fires nothing on the host")
async def test_a_file_that_changes_while_it_is_read_leads_nowhere(jail: SandboxBackend) -> None:
    """A file swapped for a link between the look and the read is the oldest way out (CVE-2018-15664)."""
    swap = "mkdir -p d; while :; do ln -sfn /etc d/x; rm -rf d/x; mkdir -p d/x; echo inside >d/x/passwd; "
    swap += "mv d/x d/y; rm -rf d/y; done"
    async with jail.open(SPEC) as box:
        await box.write("d/x/passwd", b"inside\n")
        outcomes = set()
        for _ in range(12):
            await sh(box, swap, timeout=0.2)
            try:
                outcomes.add(await box.read("d/x/passwd"))
            except SandboxError:
                outcomes.add(b"refused")
        assert not any(b"root:" in data for data in outcomes)
        await usable(box)


@pytest.mark.claim("disk limited")
async def test_home_has_a_quota_of_its_own_and_tmp_too(jail: SandboxBackend) -> None:
    async with jail.open(SPEC) as box:
        for place in ("/work", "/home/agent"):
            fill = f"cat /dev/zero >{place}/one; cat /dev/zero >{place}/two; du -sm {place} | cut -f1"
            outcome = await sh(box, fill)
            assert 4 <= int(outcome.text.split()[-1]) <= 9, outcome.text
            await sh(box, f"rm -f {place}/one {place}/two")
        await box.write("fits", bytes(MIB))
        await usable(box)
