"""The project's own layout."""

import pytest

from swarm.errors import EvaluationError
from swarm.evaluation.sets.folders import Folders
from swarm.evaluation.sets.given import Given

TOML = """
statement = "Make f return 2."
test_command = "python3 -m unittest"
image = "python:3.12"
licence = "MIT"
look_first = ["f.py"]

[hidden]
command = "python3 check.py"
seconds = 5
paths = ["f.py"]

[allowance]
tokens = 1000
"""


def one(top, toml=TOML, **files):
    content = {"repository/f.py": "1", "hidden/check.py": "c", "solution/f.py": "2"} | files
    for path, text in {"case.toml": toml, **content}.items():
        (top / "one" / path).parent.mkdir(parents=True, exist_ok=True)
        (top / "one" / path).write_text(text)
    return Folders(top, Given())


def test_a_case_is_read_whole(tmp_path):
    set_ = one(tmp_path)
    (case,) = set_.cases()
    assert (case.id, case.image, case.allowance.tokens, set_.licence) == ("one", "python:3.12", 1000, "MIT")
    assert [file.path for file in (*case.files, *case.hidden.files)] == ["f.py", "check.py"]
    assert [(file.path, file.content) for file in case.solution.files] == [("f.py", b"2")]


def test_a_folder_that_is_one_case_is_a_set_of_one(tmp_path):
    one(tmp_path)
    assert len(list(Folders(tmp_path / "one", Given()).cases())) == 1


def test_a_patch_is_a_solution_too(tmp_path):
    (case,) = one(tmp_path, **{"solution.patch": "diff"}).cases()
    assert case.solution.patch == "diff"


@pytest.mark.parametrize(
    ("toml", "word"),
    [
        (TOML + "[other]\n", "unknown field 'other'"),
        (TOML.replace("[hidden]", "[hidde]"), "unknown field 'hidde'"),
        (TOML.replace('command = "python3 check.py"', ""), "hidden.command"),
        (TOML.replace("seconds = 5", "files = []"), "no table"),
        (TOML.replace("seconds = 5", "second = 5"), "hidden.second"),
        (
            TOML.replace('"f.py"]\n\n[hidden]', '"../f.py"]\n\n[hidden]').replace(
                '["f.py"]\n\n[all', '["../f"]\n\n[all'
            ),
            "paths",
        ),
        (TOML.replace("statement =", "statement_file ="), "Make f return 2"),
        (TOML.replace('statement = "Make f return 2."', 'statement_file = "../../x.md"'), "leads out"),
        (TOML.replace('statement = "Make f return 2."', ""), "needs either statement"),
        (TOML + "tokens = 2\n", "is no TOML"),
    ],
)
def test_a_bad_case_is_refused_with_its_file(tmp_path, toml, word):
    with pytest.raises(EvaluationError, match=word) as caught:
        list(one(tmp_path, toml).cases())
    assert "one" in str(caught.value)


def test_a_link_in_the_repository_is_refused(tmp_path):
    set_ = one(tmp_path)
    (tmp_path / "one/repository/secret").symlink_to("/etc/passwd")
    with pytest.raises(EvaluationError, match="is a link"):
        list(set_.cases())
