"""Labels that were given after a sandbox was made, as a later process finds them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.errors import SandboxError
from sandbox.owner import Owner, owner_of
from sandbox.register import Register
from sandbox.types import LeftBehind

LABELS = {"task": "t", "attempt": "t-1", "kind": "work"}


def left(name: str, **labels: str) -> LeftBehind:
    return LeftBehind(name=name, labels=labels, created=0.0, living=True, ours=True)


def test_a_later_process_finds_whose_it_is(tmp_path: Path) -> None:
    Register(tmp_path / "sandboxes").note("swarm-a-1", LABELS)
    later = Register(tmp_path / "sandboxes")
    assert later.labels("swarm-a-1") == LABELS
    assert later.told(left("swarm-a-1", kind="warm")).labels == LABELS
    assert later.told(left("swarm-a-2", kind="warm")).labels == {"kind": "unused"}
    assert later.told(left("swarm-a-2")).labels == {"kind": "unused"}
    assert later.told(left("swarm-a-2", kind="work")).labels == {"kind": "work", "unsure": "yes"}
    anothers = left("swarm-b-1", kind="warm").model_copy(update={"ours": False})
    assert later.told(anothers) == anothers
    assert later.names() == ("swarm-a-1",)
    later.forget("swarm-a-1")
    assert later.labels("swarm-a-1") is None
    assert later.names() == ()
    later.forget("swarm-a-1")


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    Register(tmp_path / "sandboxes").note("swarm-a-1", LABELS)
    assert (tmp_path / "sandboxes").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/abs", "-x", "a\n", "x" * 200])
def test_a_name_cannot_lead_elsewhere(tmp_path: Path, name: str) -> None:
    register = Register(tmp_path / "deep" / "sandboxes")
    with pytest.raises(SandboxError):
        register.note(name, LABELS)
    assert register.labels(name) is None
    assert not (tmp_path / "deep").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', '"x"', "\xff"])
def test_a_broken_file_tells_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "swarm-a-1.json").write_text(text, encoding="latin-1")
    assert Register(tmp_path).labels("swarm-a-1") is None


def test_labels_without_end_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="at most"):
        Register(tmp_path).note("swarm-a-1", {"task": "x" * 20_000})


def test_no_room_is_told_with_a_mend(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SandboxError, match="mend"):
        Register(tmp_path / "file").note("swarm-a-1", LABELS)


def test_a_half_written_file_is_no_entry(tmp_path: Path) -> None:
    (tmp_path / "swarm-a-1.new").write_text('{"ta')
    assert Register(tmp_path).names() == ()
    assert Register(tmp_path).labels("swarm-a-1") is None


def test_only_what_is_gone_or_long_forgotten_is_tidied_away(tmp_path: Path) -> None:
    register = Register(tmp_path)
    mine = owner_of(tmp_path)
    dead = Owner(mine.tag, 2**22 + 1, 5)
    gone, elsewhere, old, living = dead.new_name(), dead.new_name(), dead.new_name(), mine.new_name()
    for name in (gone, elsewhere, old, living):
        register.note(name, LABELS)
    for name in (old, living):
        os.utime(tmp_path / f"{name}.json", (1.0, 1.0))
    register.tidy({gone})
    assert set(register.names()) == {elsewhere, living}
