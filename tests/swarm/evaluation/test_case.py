"""A case is refused where it could reach outside its workspace, and is known by all that it holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from swarm.evaluation.case import Case, File, FolderSource, Hidden, Solution
from tests.swarm.evaluation.conftest import BUG, case


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../up", "a/../../b", "a//b", "./a", "", "a/", ".git/config", "x/.GIT/hooks/a", "a\0b"]
)
def test_a_path_that_is_not_plain_and_inside_is_refused(path: str) -> None:
    with pytest.raises(ValidationError):
        File(path=path, content=b"")
    if path != "a/":  # there it is a folder
        with pytest.raises(ValidationError):
            Hidden(command="true", removed=(path,))


@pytest.mark.parametrize("name", ["", " a", "a\n", "a\tb", "\x1b[31m", "a\u202eb", "x" * 201])
def test_an_id_that_could_steer_a_screen_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        case(name)


def test_an_id_may_hold_anything_that_can_be_printed() -> None:
    for name in ("Python/0", "<script>alert(1)</script>", "../../etc/passwd", "ünï", "django__django-11099"):
        assert case(name).id == name


def test_a_case_has_exactly_one_repository() -> None:
    hidden = Hidden(command="true")
    with pytest.raises(ValidationError, match="either files or a source"):
        Case(id="a", statement="b", hidden=hidden)
    files = (File(path="a", content=BUG),)
    with pytest.raises(ValidationError, match="either files or a source"):
        Case(id="a", statement="b", files=files, source=FolderSource(folder=Path("/x")), hidden=hidden)


def test_a_solution_is_of_one_kind() -> None:
    with pytest.raises(ValidationError, match="one of"):
        Solution(patch="x", script="y")
    with pytest.raises(ValidationError, match="one of"):
        Solution()


def test_a_digest_changes_with_every_part_of_a_case() -> None:
    whole = case()
    others = [
        whole.model_copy(update={"statement": "other"}),
        whole.model_copy(update={"hidden": whole.hidden.model_copy(update={"seconds": 1.0})}),
        whole.model_copy(update={"solution": None}),
        whole.model_copy(update={"files": (File(path="clamp.py", content=BUG, executable=True),)}),
    ]
    assert len({one.digest for one in (whole, *others)}) == 5
    assert case().digest == whole.digest


def test_a_case_survives_json() -> None:
    whole = case(files={"a.bin": b"\x00\xff\r\n"})
    assert Case.model_validate_json(whole.model_dump_json()) == whole
