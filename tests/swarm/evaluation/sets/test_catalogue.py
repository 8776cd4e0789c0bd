"""Sets by name, and what is said of one that cannot be had."""

import pytest

from swarm.errors import EvaluationError
from swarm.evaluation.sets.catalogue import CATALOGUE, Guarded, set_named
from swarm.evaluation.sets.given import Given

PATHS = [name for name, entry in CATALOGUE.items() if entry.needs_path]


def test_the_shipped_set_needs_nothing():
    assert len(list(set_named("humanevalfix").cases())) == 82


def test_an_unknown_set_is_told_with_all_that_there_are():
    with pytest.raises(EvaluationError, match="'nosuch'") as caught:
        set_named("nosuch:/tmp")
    assert all(name in caught.value.mend for name in CATALOGUE)


@pytest.mark.parametrize("name", PATHS)
def test_a_set_without_its_path_says_how_to_name_it(name):
    with pytest.raises(EvaluationError) as caught:
        set_named(name)
    assert f"{name}:PATH" in caught.value.mend


@pytest.mark.parametrize("name", PATHS)
def test_a_missing_path_and_an_empty_folder_are_told(name, tmp_path):
    given = Given(repositories=tmp_path)
    for path in (tmp_path / "gone", tmp_path):
        with pytest.raises(EvaluationError) as caught:
            list(set_named(f"{name}:{path}", given).cases())
        assert str(path) in str(caught.value)
        assert caught.value.mend


def test_nothing_may_follow_the_name_of_a_set_that_takes_nothing():
    with pytest.raises(EvaluationError, match="takes nothing"):
        set_named("humanevalfix:5")


def test_a_seed_makes_another_set_of_mutants_by_name():
    assert set_named("mutants:7").name == "mutants:7"


def test_templates_put_in_what_is_known_and_refuse_the_rest():
    given = Given(images={"b": "own:1"}, image="eval/{docker_id}:{version}")
    assert given.image_of("A__x-1", version="2") == "eval/a_1776_x-1:2"
    assert given.image_of("b", version="2") == "own:1"
    assert Given().image_of("a", "theirs") == "theirs"
    assert Given(image="none").image_of("a", "theirs") is None
    with pytest.raises(EvaluationError, match="placeholder"):
        Given(image="{id.__class__}").image_of("a")


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize(
    ("path", "words"),
    [("~nosuchuser/x", "home of a user"), ("/tmp/" + "x" * 5000, "too long"), ("/tmp/\udcff", "is not UTF-8")],
    ids=["a home", "a long name", "no UTF-8"],
)
def test_a_path_that_cannot_be_is_told_in_words(name, path, words):
    with pytest.raises(EvaluationError, match=words) as caught:
        set_named(f"{name}:{path}", Given())
    assert caught.value.mend
    assert len(str(caught.value)) < 500


def test_what_the_system_says_of_a_place_in_a_set_is_told_with_the_place(tmp_path):
    class Forbidden:
        name, origin, licence = "folder:x", "x", "unknown"

        def cases(self):
            raise PermissionError(13, "Permission denied", str(tmp_path / "a"))
            yield

    with pytest.raises(EvaluationError, match=f"{tmp_path}/a: Permission denied"):
        list(Guarded(Forbidden()).cases())
