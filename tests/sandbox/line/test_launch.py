"""What a supervisor is sent first."""

from __future__ import annotations

import importlib.util
import marshal

from sandbox.line.launch import Start, as_bytes, bootstrap_argv, encoded, first_bytes
from sandbox.rules.profile import profile_of
from sandbox.types import SandboxSpec


def test_any_python_can_be_named_and_nothing_of_the_machine_is_read_by_it() -> None:
    argv = bootstrap_argv(("/loader", "--library-path", "/lib", "/python"))
    assert argv[:4] == ["/loader", "--library-path", "/lib", "/python"]
    assert argv[4:7] == ["-I", "-S", "-c"]
    assert len(argv[7]) < 1000, "it is seen in lists of processes"


def test_the_start_message_says_what_was_asked() -> None:
    landlock = profile_of(SandboxSpec()).landlock.model_dump()
    start = Start(work="/w", home="/h", landlock=landlock, tar=("/t", "-x"))
    data = first_bytes(start, ports=(80, 81), files={"/tmp/ca": b"pem"}, environment={"A": "ü"})
    code, source, size = (int.from_bytes(data[at : at + 4], "big") for at in (0, 4, 8))
    assert data[12:16] == importlib.util.MAGIC_NUMBER
    asked = marshal.loads(data[16 + code + source :])  # noqa: S302 - we made it
    assert len(data) == 16 + code + source + size
    assert (asked["work"], asked["home"], asked["sweep"], asked["tar"]) == (b"/w", b"/h", True, (b"/t", b"-x"))
    assert (asked["ports"], asked["files"]) == ((80, 81), ((b"/tmp/ca", b"pem"),))
    assert asked["env"] == {b"A": "ü".encode()}
    assert asked["landlock"] == {k: v if isinstance(v, bool) else tuple(v) for k, v in landlock.items()}


def test_bytes_that_are_no_text_arrive_as_they_were() -> None:
    assert encoded(b"\xff\x80x".decode("utf-8", "surrogateescape")) == b"\xff\x80x"
    assert as_bytes({"A": "\udcff"}) == {b"A": b"\xff"}
