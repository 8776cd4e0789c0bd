"""What a user's folder may not do: lead out of itself, be endless, or end in a traceback."""

import os

import pytest

from swarm.errors import EvaluationError
from swarm.evaluation.sets import reading


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../a", "a/../../b", ".git/hooks/post-checkout", "a/.GIT/x", "..\\a", "", "a\0b", "git~1/x"]
)
def test_a_path_that_leads_out_or_into_git_is_refused(tmp_path, name):
    with pytest.raises(EvaluationError, match="leads out"):
        reading.within(tmp_path, name, "case.toml")


def test_a_path_over_a_link_is_refused_wherever_it_leads(tmp_path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "link").symlink_to("inside")
    with pytest.raises(EvaluationError, match="goes over a link"):
        reading.within(tmp_path, "link/file", "case.toml")


def test_a_link_is_never_read_even_to_a_file_of_the_same_folder(tmp_path):
    (tmp_path / "a").write_text("x")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(EvaluationError, match="b: is a link"):
        reading.data(tmp_path / "b")
    with pytest.raises(EvaluationError, match="is a link"):
        reading.tree(tmp_path)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(EvaluationError, match="no plain file"):
        reading.data(tmp_path / "pipe")


def test_a_file_over_the_bound_is_refused_with_the_bound(tmp_path):
    (tmp_path / "big").write_bytes(b"x" * 11)
    with pytest.raises(EvaluationError, match="larger than 10 bytes"):
        reading.data(tmp_path / "big", 10)


def test_text_that_is_not_utf8_names_its_line(tmp_path):
    (tmp_path / "text").write_bytes(b"one\ntwo\nthr\xffee\n")
    with pytest.raises(EvaluationError, match="line 3: is not UTF-8"):
        reading.text(tmp_path / "text")


def test_a_bad_row_names_its_line_and_the_good_ones_before_it_are_given(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n\n[1]\n')
    found = reading.rows(path)
    assert next(found) == (f"{path}, line 1", {"a": 1})
    with pytest.raises(EvaluationError, match="line 3: is no JSON object"):
        next(found)


def test_nesting_without_end_is_an_error_in_words(tmp_path):
    (tmp_path / "deep.json").write_text("[" * 200_000)
    with pytest.raises(EvaluationError, match="is no JSON"):
        reading.json_object(tmp_path / "deep.json")


def test_toml_errors_name_the_file_and_the_line(tmp_path):
    (tmp_path / "case.toml").write_text("a = 1\nb = \n")
    with pytest.raises(EvaluationError, match=r"case.toml: is no TOML: .*line 2"):
        reading.toml(tmp_path / "case.toml")


def test_git_of_a_repository_stays_out_at_any_depth_and_bits_come_along(tmp_path):
    for path in (".git/config", "sub/.git/config", "sub/run.sh"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    (tmp_path / "sub/run.sh").chmod(0o755)
    (file,) = reading.tree(tmp_path, under="top/")
    assert (file.path, file.executable) == ("top/sub/run.sh", True)


def test_a_missing_folder_is_told_with_what_was_wanted(tmp_path):
    with pytest.raises(EvaluationError, match="is not there") as caught:
        reading.folder(tmp_path / "no", "a clone of QuixBugs")
    assert "a clone of QuixBugs" in caught.value.mend


def test_what_cannot_be_a_case_names_the_field(tmp_path):
    with pytest.raises(EvaluationError, match=r"row 7: hidden\.seconds"):
        reading.made("row 7", id="a", statement="b", hidden={"command": "c", "seconds": -1})


def test_folders_without_end_are_refused_and_no_recursion(tmp_path):
    deep = tmp_path.joinpath(*["d"] * 200)
    deep.mkdir(parents=True)
    with pytest.raises(EvaluationError, match="too deep"):
        reading.tree(tmp_path)


def test_the_folder_that_is_read_may_not_be_a_link_itself(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(EvaluationError, match="is a link"):
        reading.tree(tmp_path / "link")


@pytest.mark.parametrize(
    ("name", "words"),
    [("x" * 256 + ".py", "longer than 255 bytes"), ("\ud800.py", "half of a character")],
    ids=range(2),
)
def test_a_name_that_no_folder_can_have_is_refused_with_the_file_that_gives_it(tmp_path, name, words):
    with pytest.raises(EvaluationError, match=words) as caught:
        reading.within(tmp_path, name, "case.toml")
    assert str(caught.value).startswith("case.toml: ")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("content", [f"a = {'{a=' * 3000}1{'}' * 3000}", f"a = {'9' * 5000}"], ids=["deep", "long"])
def test_toml_that_no_parser_takes_is_an_error_in_words(tmp_path, content):
    (tmp_path / "case.toml").write_text(content)
    with pytest.raises(EvaluationError, match=r"case\.toml: (nests too deep|is no TOML)"):
        reading.toml(tmp_path / "case.toml")


def test_words_of_a_command_are_no_options_and_stay_whole():
    assert reading.words(["-c evil.py", "my test.rb", "a.py"]) == "'./-c evil.py' 'my test.rb' a.py"
