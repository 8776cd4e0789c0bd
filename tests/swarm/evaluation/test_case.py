"""A case is refused where it could reach outside its workspace, and is known by all that it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden": {"command": "a\0b"}}, "NUL"),
        ({"hidden": {"env": {"A": "a\0b"}}}, "NUL"),
        ({"hidden": {"env": {"A\0": "b"}}}, "NUL"),
        ({"hidden": {"env": {"A=B": "c"}}}, "no name of an environment variable"),
        ({"hidden": {"env": {"": "c"}}}, "no name of an environment variable"),
        ({"setup": ("true", "a\0")}, "NUL"),
        ({"test_command": "a\0"}, "NUL"),
        ({"test_command": "\ud800"}, "half of a character"),
        ({"statement": "a\0"}, "NUL"),
        ({"labels": {"a": "\ud800"}}, "half of a character"),
        ({"image": ""}, "at least 1 character"),
        ({"files": {"q": b"", "q/r": b""}}, "'q/r' cannot lie below 'q', which is a file"),
        ({"files": {"x" * 256: b""}}, "over 255 bytes"),
    ],
    ids=range(13),
)
def test_what_no_program_or_no_folder_takes_is_refused_in_words(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        case(**change)


def test_a_solutions_script_holds_no_nul() -> None:
    with pytest.raises(ValidationError, match="NUL"):
        Solution(script="a\0")


def test_a_file_is_in_a_list_once_and_hidden_ones_may_lie_where_the_repository_has_others() -> None:
    twice = (File(path="a", content=b""), File(path="a", content=b"b"))
    with pytest.raises(ValidationError, match="'a' is there twice"):
        Hidden(command="true", files=twice)
    with pytest.raises(ValidationError, match="'a' is there twice"):
        Solution(files=twice)
    assert case(files={"clamp.py": BUG, "q": b""}, hidden={"files": (File(path="q/r", content=b""),)})


def test_a_name_of_a_file_that_is_not_utf8_has_a_digest_of_its_own() -> None:
    assert case(files={"caf\udce9": b""}).digest != case(files={"caf\udcea": b""}).digest


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
