"""`swarm sandbox`: told in words, refused in words, and a prompt that behaves."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from sandbox.errors import ImageError, SandboxUnavailableError
from sandbox.images.shelf import Kept
from sandbox.images.sources import Archive, Dockerfile, Folder, Reference
from sandbox.reaping import prune_plan
from sandbox.types import LeftBehind, SelfTest
from swarm.cli.exits import parted
from swarm.cli.sandbox import copies, doctor, explain, given, machine, prune

SESSION = """
import asyncio, sys
from sandbox.testing import ScriptedBackend
from sandbox.types import Limits, SandboxSpec
from swarm.cli.sandbox import session

async def main():
    backend = ScriptedBackend()
    try:
        async with backend.open(SandboxSpec(limits=Limits(output=4096, wall=20))) as box:
            return await (session.command(box, sys.argv[1:]) if sys.argv[1:] else session.lines(box))
    finally:
        await backend.close()

sys.exit(asyncio.run(main()))
"""


SWARM = str(Path(sys.executable).parent / "swarm")
LONG = "seq 400000"  # 2.7 MB, where a task's command keeps 256 KiB


def piped(text: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", SESSION, *words], input=text.encode(), capture_output=True, timeout=60, check=False
    )


def test_lines_share_folder_and_variables_and_the_last_code_is_the_commands() -> None:
    done = piped("mkdir d\ncd d\nexport A='b c'\npwd\n\necho \"$A\"; (exit 5)\n")
    lines = done.stdout.decode().splitlines()
    assert lines[0].endswith("/d")
    assert lines[1:] == ["b c"]
    assert done.returncode == 5
    assert b"sandbox$" not in done.stderr


def test_exit_leaves_with_its_code() -> None:
    left = piped("false\nexit 9\necho never\n")
    assert (left.returncode, left.stdout) == (9, b"")


def test_bytes_come_out_as_they_are_where_no_person_looks() -> None:
    done = piped("", "sh", "-c", "printf '\\377\\000\\033[31m'; exit 127")
    assert (done.stdout, done.returncode) == (b"\xff\x00\x1b[31m", 127)


@pytest.mark.parametrize("text", ["", f"{LONG}; exit 3\n"])
def test_nothing_is_left_out_of_what_is_piped_however_long(text: str) -> None:
    done = piped(text, *(() if text else ("sh", "-c", f"{LONG}; exit 3")))
    assert done.returncode == 3, done.stderr
    assert done.stdout == b"".join(b"%d\n" % number for number in range(1, 400_001))
    assert done.stderr == b""


def test_a_reader_that_goes_away_ends_the_session() -> None:
    words = [sys.executable, "-c", SESSION, "yes"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.read(4) == b"y\ny\n"
        child.stdout.close()
        assert child.wait(timeout=30) != 0
        assert b"yes" not in child.stderr.read().replace(b"typer", b"")


@pytest.mark.root
def test_what_a_full_disk_does_not_take_is_told_and_no_success(tmp_path: Path) -> None:
    words = [str(Path(sys.executable).parent / "swarm"), "sandbox", "shell", "--backend", "bwrap", "--"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*words, "sh", "-c", "echo lost"], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert done.returncode == 3
    assert b"standard output cannot be written: No space left" in done.stderr
    with subprocess.Popen([*words, "yes"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.read(4)
        child.stdout.close()
        assert child.wait(timeout=60) == 141
        assert child.stderr.read() == b""


def until(fd: int, wanted: bytes, patience: float = 30) -> bytes:
    """What a terminal shows until a word appears. Fails when it does not."""
    seen, end = b"", time.monotonic() + patience
    os.set_blocking(fd, False)
    while wanted not in seen:
        assert time.monotonic() < end, seen
        try:
            seen += os.read(fd, 4096)
        except BlockingIOError:
            time.sleep(0.02)
    return seen


def test_on_a_terminal_ctrl_c_ends_the_command_and_not_the_session() -> None:
    lead, follow = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", SESSION], stdin=follow, stdout=follow, stderr=follow, start_new_session=True
    )
    try:
        os.close(follow)
        until(lead, b"sandbox$ ")
        os.write(lead, b"echo begun; sleep 3456\n")
        until(lead, b"\r\nbegun")
        child.send_signal(signal.SIGINT)
        until(lead, b"sandbox$ ")
        os.write(lead, b"printf 'cle\\033[31man\\007'; echo; echo alive-$?\n")
        shown = until(lead, b"alive-0\r\nsandbox$ ")
        assert b"clean\r\n" in shown
        assert b"\x1b[31m" not in shown
        child.send_signal(signal.SIGINT)
        until(lead, b"sandbox$ ")
        os.write(lead, b"exit 4\n")
        assert child.wait(timeout=30) == 4
    finally:
        child.kill()
        child.wait()
        os.close(lead)


def test_explain_tells_each_backend_its_mechanism_without_any_settings(swarm, tmp_path: Path) -> None:
    ran = swarm("sandbox", "explain", "--network", "packages", "--json", cwd=tmp_path)
    assert ran.code == 0, ran.err
    rows = {row["property"]: row for row in json.loads(ran.out)["rows"]}
    assert "packages proxy" in rows["network"]["asked"]
    assert rows["capabilities"]["docker"] == "cap_drop=ALL"
    alone = swarm("sandbox", "explain", "--backend", "bwrap", "--verbose", cwd=tmp_path)
    assert "--unshare-all" in alone.out
    assert "cap_drop=ALL" not in alone.out
    assert "io_uring_setup" in alone.out


def test_a_file_with_sandbox_alone_is_enough_for_these_commands(swarm, tmp_path: Path) -> None:
    (tmp_path / "swarm.toml").write_text("[sandbox.limits]\nprocesses = 77\n")
    ran = swarm("sandbox", "explain", "-c", "swarm.toml", "--json", cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert "77" in ran.out
    assert "not read" not in ran.err


@pytest.mark.parametrize("words", [("explain", "--json"), ("shell", "/nonexistent")])
def test_a_checkouts_own_swarm_toml_opens_nothing_of_this_machine(swarm, tmp_path: Path, words: tuple) -> None:
    """It could show its mounts any folder, and let packages out to any host: what locks it in is not its own to say."""
    (tmp_path / "swarm.toml").write_text('[sandbox]\nbackend = "dokcer"\n[sandbox.mounts]\n"/opt/x" = "/root"\n')
    ran = swarm("sandbox", *words, cwd=tmp_path)
    assert "dokcer" not in ran.err
    assert "/opt/x" not in ran.out
    assert f"{tmp_path / 'swarm.toml'} is not read, since a checkout may bring one" in ran.err


def test_what_is_wrong_elsewhere_in_the_file_is_no_matter_of_sandboxes(swarm, tmp_path: Path) -> None:
    (tmp_path / "swarm.toml").write_text('[pool]\ndefault_tier = 3\n[repositories.x]\nimage = "a b"\nodd = 1\n')
    assert swarm("sandbox", "explain", "-c", "swarm.toml", cwd=tmp_path).code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[sandbox.limits]\nprocesses = 1\n", "line 2: sandbox.limits.processes"),
        ('[sandbox]\nbackend = "dokcer"\n', "line 2: sandbox.backend"),
        ("[sandbx]\nimage = 'x'\n", "sandbox"),
        ("[daemon]\nstate = 3\n", "line 2: daemon.state"),
        ("[sandbox\n", "is not TOML"),
    ],
)
def test_what_is_wrong_in_its_own_part_is_refused(swarm, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "swarm.toml").write_text(text)
    ran = swarm("sandbox", "explain", "-c", "swarm.toml", cwd=tmp_path)
    assert ran.code == 3
    assert said in ran.err
    assert "pool" not in ran.err


def test_a_named_file_that_is_not_there_is_refused(swarm, tmp_path: Path) -> None:
    ran = swarm("sandbox", "explain", "-c", "none.toml", cwd=tmp_path)
    assert ran.code == 3
    assert "there is no such file" in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("shell", "/nonexistent"), "is no folder"),
        (("shell", "--keep", "x.patch"), "--keep needs a DIR"),
        (("shell", ".", "--keep", "x.patch"), "lies inside"),
        (("shell", ".", "--keep", "/nonexistent/x.patch"), "is not there"),
        (("shell", ".", "--keep", "/etc/passwd"), "is there already"),
        (("shell", ".", "--network", "model"), "gateway of [sandbox.egress.model] is not set"),
        (("shell", "--image", "/nope.tar"), "there is no /nope.tar"),
        (("explain", "--image", "/nope.tar"), "there is no /nope.tar"),
        (("shell", ".", "--stdin"), "--stdin is for one command"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(swarm, tmp_path: Path, words, said: str) -> None:
    ran = swarm("sandbox", *words, cwd=tmp_path)
    assert ran.code == 3, ran.err
    assert said in ran.err
    assert "mend: " in ran.err
    assert list(tmp_path.iterdir()) == []


def test_prune_tells_what_stays_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    mine = LeftBehind(name="swarm-a", labels={}, created=time.time() - 7200, living=False, ours=True)
    work = LeftBehind(name="swarm-b", labels={"kind": "work", "attempt": "t/1"}, created=1.0, living=True, ours=True)
    plan = prune.Plan({"bwrap": prune_plan([mine, work])}, {"docker": "no engine answers"})
    prune._print(plan)
    told = capsys.readouterr()
    assert [line.split()[0] for line in told.out.splitlines()[1:]] == ["stays", "would"]
    assert "work of attempt t/1" in told.out
    assert "2.0 h" in told.out
    assert "docker could not be asked: no engine answers" in told.err
    assert "--yes" in told.err
    document = json.loads(json.dumps(prune._document(plan)))
    assert document["dry_run"] is True
    assert {one["name"]: one["removable"] for one in document["sandboxes"]} == {"swarm-a": True, "swarm-b": False}
    assert not any(one["removed"] for one in document["sandboxes"])


def test_prune_says_removed_only_of_what_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    a, b = (LeftBehind(name=f"swarm-{one}", labels={}, created=1.0, living=False, ours=True) for one in "ab")
    kept = (Kept(name="x", size=1 << 20, used=0.0, busy=False),)
    plan = prune.Plan({"bwrap": prune_plan([a, b])}, {}, kept, frozenset({"swarm-a"}), dry=False)
    prune._print(plan)
    told = capsys.readouterr()
    assert [line[:8] for line in told.out.splitlines()[1:]] == ["removed ", "not gone", "removed "]
    assert "as root" in told.err
    document = prune._document(plan)
    assert [one["removed"] for one in (*document["sandboxes"], *document["cache"])] == [True, False, True]
    assert document["removed"] == 1
    assert plan.code == 1
    assert prune.Plan({"bwrap": prune_plan([])}, {"docker": "no engine"}).code == 0
    nobody = prune.Plan({}, {"docker": "no engine"})
    assert nobody.code == 1
    prune._print(nobody)
    told = capsys.readouterr()
    assert "nothing was left" not in told.out
    assert "no backend could be asked" in told.err


@pytest.mark.parametrize(
    "text",
    [
        "no sandbox can be used on this machine:\n  docker: docker: no claim:\n  here; mend: start it",
        "docker: no claim: here; mend: start it",
        "no claim: here; mend: start it",
    ],
)
def test_why_a_backend_could_not_be_asked_is_one_line_that_names_it_once(text: str) -> None:
    assert prune.reason("docker", SandboxUnavailableError(text)) == "no claim: here; mend: start it"


def test_a_copy_that_a_killed_shell_left_is_found_and_a_living_ones_is_not(tmp_path: Path) -> None:
    dead = tmp_path / "shells" / "swarm-0123456789-1-1-0123456789"
    (dead / "git").mkdir(parents=True)
    (tmp_path / "shells" / "something else").mkdir()
    with copies.copy_folder(tmp_path) as living:
        assert living.stat().st_mode & 0o077 == 0
        assert copies.left_copies(tmp_path) == [dead]
        assert copies.removed(dead)
        assert living.exists()
    assert [place.name for place in (tmp_path / "shells").iterdir()] == ["something else"]


@pytest.mark.root
@pytest.mark.parametrize(("number", "line"), [(signal.SIGTERM, "sleep 3457\n"), (signal.SIGHUP, "")])
def test_a_shell_that_is_told_to_go_leaves_neither_sandbox_nor_copy(tmp_path: Path, number: int, line: str) -> None:
    top, state = tmp_path / "top", tmp_path / "state"
    top.mkdir()
    (top / "a").write_text("a")
    words = [SWARM, "sandbox", "shell", str(top), "--backend", "bwrap"]
    child = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"XDG_STATE_HOME": str(state)}
    )
    try:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"echo begun\n" + line.encode())
        child.stdin.flush()
        assert child.stdout.readline() == b"begun\n"
        assert len(list((state / "agent-swarm" / "shells").iterdir())) == 1
        child.send_signal(number)
        assert child.wait(timeout=30) == 128 + number
    finally:
        child.kill()
        child.communicate()
    assert list((state / "agent-swarm" / "shells").iterdir()) == []
    left = subprocess.run(
        [SWARM, "sandbox", "prune", "--json"],
        env=os.environ | {"XDG_STATE_HOME": str(state), "DOCKER_HOST": f"unix://{tmp_path}/no.sock"},
        capture_output=True,
        check=True,
    )
    assert json.loads(left.stdout)["sandboxes"] == json.loads(left.stdout)["copies"] == []


@pytest.mark.root
def test_a_command_gets_what_is_piped_in_where_it_is_asked_for_and_is_told_where_not(tmp_path: Path) -> None:
    def ran(*words: str, given: bytes) -> subprocess.CompletedProcess[bytes]:
        words = (SWARM, "sandbox", "shell", "--backend", "bwrap", *words)
        return subprocess.run(words, input=given, cwd=tmp_path, capture_output=True, timeout=60, check=False)

    data = bytes(range(256)) * 4096
    assert ran("--stdin", "--", "cat", given=data).stdout == data
    without = ran("--", "cat", given=b"hello")
    assert (without.stdout, without.returncode) == (b"", 0)
    assert b"with --stdin it is" in without.stderr
    assert b"piped in" not in ran("--", "true", given=b"").stderr


def test_a_line_given_as_a_programs_name_is_told_what_it_lacks() -> None:
    done = piped("", "ls -la; id")
    assert done.returncode == 127
    assert b"sh -c 'ls -la; id'" in done.stderr
    assert b"sh -c" not in piped("", "nosuchprogram").stderr


def test_cells_are_folded_behind_commas_and_at_blanks_and_lose_nothing() -> None:
    text = "tmpfs nosuid,nodev,exec,size=536870912; and aVeryLongWordThatHasNoEnd"
    lines = explain.folded(text, 16)
    assert lines[:2] == ["tmpfs nosuid,", "nodev,exec,"]
    assert max(map(len, lines)) <= 16
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert explain.folded("", 16) == [""]


@pytest.mark.parametrize(("network", "names"), [("packages", "HTTPS_PROXY PIP_CERT"), ("model", "OPENAI_BASE_URL")])
def test_explain_names_the_variables_of_a_way_out(swarm, tmp_path: Path, network: str, names: str) -> None:
    ran = swarm("sandbox", "explain", "--network", network, "--json", cwd=tmp_path)
    rows = {row["property"]: row for row in json.loads(ran.out)["rows"]}
    assert all(name in rows["environment"]["asked"] for name in names.split())
    short = swarm("sandbox", "explain", "--network", network, cwd=tmp_path)
    assert max(map(len, short.out.splitlines())) <= 140


def test_doctor_tells_each_claim_that_does_not_hold_with_its_mend(capsys: pytest.CaptureFixture[str]) -> None:
    test = SelfTest(backend="bwrap", version="bubblewrap 1", proved=("no ptrace",), failed=("no route out",))
    doctor._print(doctor.Examined("bwrap", test))
    told = capsys.readouterr().out
    assert "fail  bwrap: bubblewrap 1: not all claims hold" in told
    assert "fail    no route out: does not hold" in told
    assert "mend: network namespaces must work here" in told
    doctor._print(doctor.Examined("docker", None, "no engine answers; mend: start it"))
    assert "mend: start it" in capsys.readouterr().out


def test_the_machine_is_told_line_by_line() -> None:
    found = {one.subject: one for one in machine.kernel()}
    assert set(found) == {"Landlock", "user namespaces", "control groups", "overlay"}
    assert all(one.mend for one in found.values() if one.level != "ok")
    assert machine._landlock(0).level == machine._landlock(4).level == "warn"
    assert machine._groups("").level == "fail"
    assert machine._groups("1 2 0:1 / /sys/fs/cgroup rw - cgroup2 none rw").text == "version 2"


def test_an_image_may_be_named_or_be_a_path_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "ctx").mkdir()
    for name in ("ctx/Dockerfile", "ctx/a.tar.gz", "python"):
        (tmp_path / name).touch()
    assert given.image_of("python", tmp_path) == Reference(name="python")
    assert given.image_of("team/python:3", tmp_path) == Reference(name="team/python:3")
    assert given.image_of("ctx/Dockerfile", tmp_path) == Dockerfile(file="Dockerfile", folder=tmp_path / "ctx")
    assert given.image_of("ctx/a.tar.gz", tmp_path) == Archive(path=tmp_path / "ctx/a.tar.gz")
    assert given.image_of("./ctx", tmp_path) == given.image_of(str(tmp_path / "ctx"), Path("/"))
    assert isinstance(given.image_of("./nowhere", tmp_path), Folder)
    with pytest.raises(ImageError):
        given.image_of("not an image", tmp_path)


@pytest.mark.root
def test_the_shell_opens_what_the_image_holds_and_refuses_what_it_cannot_open(swarm, tmp_path: Path) -> None:
    words = ("sandbox", "shell", "--backend", "bwrap", "--image")
    root = tmp_path / "root"
    for program in ("sh", "cat"):
        linked = subprocess.run(["ldd", f"/bin/{program}"], capture_output=True, text=True, check=True).stdout
        for file in (f"/bin/{program}", *(word for word in linked.split() if word.startswith("/"))):
            (root / file[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, root / file[1:])
    (root / "opt").mkdir()
    (root / "opt" / "mark").write_text("of the image")
    shown = swarm(*words, "./root", "--", "/bin/cat", "/opt/mark", cwd=tmp_path)
    assert (shown.code, shown.out) == (0, "of the image"), shown.err
    with tarfile.open(tmp_path / "root.tar.gz", "w:gz") as tar:
        tar.add(root, ".")
    packed = swarm(*words, "root.tar.gz", "--", "/bin/cat", "/opt/mark", cwd=tmp_path)
    assert (packed.code, packed.out) == (0, "of the image"), packed.err
    for absent, code in (("./nowhere", 3), ("agent-swarm/nowhere:1", 9), ("/nowhere.tar", 3)):
        refused = swarm(*words, absent, "--", "/bin/cat", "/etc/hostname", cwd=tmp_path)
        assert (refused.code, refused.out) == (code, ""), refused.err
        assert "mend: " in refused.err


@pytest.mark.root
def test_a_copy_goes_in_and_a_patch_comes_out(swarm, tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "a").write_text("before\n")
    words = ("sandbox", "shell", str(top), "--backend", "bwrap", "--keep", str(tmp_path / "x.patch"), "--")
    ran = swarm(*words, "sh", "-c", "echo after >a; echo --keep; exit 3")
    assert (ran.code, ran.out) == (3, "--keep\n"), ran.err
    assert (top / "a").read_text() == "before\n"
    subprocess.run(["git", "apply", str(tmp_path / "x.patch")], cwd=top, check=True)
    assert (top / "a").read_text() == "after\n"


@pytest.mark.root
def test_doctor_proves_what_this_machine_can_keep(swarm) -> None:
    ran = swarm("sandbox", "doctor", "--backend", "bwrap", "--json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)["backends"][0]
    assert told["usable"] is True
    assert "no route out" in told["test"]["proved"]


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (SandboxUnavailableError("no engine; mend: start one"), ("no engine", "start one")),
        (SandboxUnavailableError("a; b; mend: c"), ("a; b", "c")),
        (SandboxUnavailableError("plain"), ("plain", "see what this machine can keep with: swarm sandbox doctor")),
    ],
)
def test_an_error_of_the_sandbox_is_parted_from_its_mend(error: Exception, parts: tuple[str, str]) -> None:
    assert parted(error) == parts
