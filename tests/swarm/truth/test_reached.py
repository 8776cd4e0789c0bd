"""What a test command leads to is followed through the base's files, and nothing else is taken for it."""

from __future__ import annotations

import pytest

from swarm.truth.reached import Walk


def led_to(base: dict[str, str], command: str, *changed: str) -> set[str]:
    walk = Walk(command, changed or tuple(base))
    while (place := walk.next()) is not None:
        walk.take(place, base.get(place))
    return set(walk.found)


SCRIPTS = {
    "plain": ("sh run.sh", {"run.sh": "sh scripts/inner.sh\n"}),
    "beside it": ("sh scripts/run.sh", {"scripts/run.sh": "./inner.sh --all\n"}),
    "by a variable": ("bash ci/run.sh", {"ci/run.sh": 'HERE=$(dirname "$0")\n"$HERE/../scripts/inner.sh" || exit 1\n'}),
    "by dirname": ("bash scripts/run.sh", {"scripts/run.sh": 'exec "$(dirname "$0")/inner.sh"\n'}),
    "sourced": ("sh run.sh", {"run.sh": ". scripts/inner.sh\nrun_all\n"}),
    "by make": ("make -s test", {"Makefile": "test: build\n\t@scripts/inner.sh $(ARGS)\n"}),
    "by npm": ("npm test", {"package.json": '{"scripts": {"test": "bash ./scripts/inner.sh"}}'}),
    "by nox": ("nox -s tests", {"noxfile.py": "def tests(session):\n    session.run('sh', 'scripts/inner.sh')\n"}),
    "by just": ("just test", {"justfile": "test:\n  scripts/inner.sh\n"}),
    "two away": ("make test", {"Makefile": "test:\n\tsh a.sh\n", "a.sh": "sh b.sh\n", "b.sh": "scripts/inner.sh\n"}),
    "by a pattern": ("sh run.sh", {"run.sh": "for each in scripts/*.sh; do sh $each; done\n"}),
    "in quotes": ("sh -c 'cd . && ./run.sh'", {"run.sh": "bash -e 'scripts/inner.sh'\n"}),
}


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("there", [True, False])
def test_script_is_followed_however_it_is_started(name: str, there: bool) -> None:
    command, base = SCRIPTS[name]
    inner = {"scripts/inner.sh": "grep -q 1 m\n"} if there else {}
    assert led_to({**base, **inner}, command, "scripts/inner.sh", "m", "README.md") == {"scripts/inner.sh"}


OTHERS = {
    "included": ("make test", {"Makefile": "include rules.mk\n", "rules.mk": "T=true\n"}, "rules.mk"),
    "included, any name": (
        "make test",
        {"Makefile": "-include build/rules\n", "build/rules": "T=true\n"},
        "build/rules",
    ),
    "sourced, any name": ("sh run.sh", {"run.sh": "source lib/common\n", "lib/common": "f() { :; }\n"}, "lib/common"),
    "no ending": ("make test", {"Makefile": "test:\n\tci/run\n", "ci/run": "#!/bin/sh\npytest\n"}, "ci/run"),
    "a test program": (
        "make t",
        {"Makefile": "t:\n\tpython3 dev/run_checks.py\n", "dev/run_checks.py": ""},
        "dev/run_checks.py",
    ),
    "by its module": ("python3 -m dev.run_tests", {"dev/run_tests.py": ""}, "dev/run_tests.py"),
    "settings by option": ("sh run.sh", {"run.sh": "flake8 --config ci/flake\n", "ci/flake": ""}, "ci/flake"),
    "the justfile itself": ("just test", {"justfile": "test:\n  pytest\n"}, "justfile"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_things_that_a_script_takes_in_are_followed(name: str) -> None:
    command, base, wanted = OTHERS[name]
    assert led_to(base, command, wanted) == {wanted}


PLUGINS = {
    "pytest.ini": ("pytest -q", {"pytest.ini": "[pytest]\naddopts = -q -p dev.plug\n"}),
    "pyproject": ("pytest", {"pyproject.toml": "[tool.pytest.ini_options]\naddopts = ['-p', 'dev.plug']\n"}),
    "setup.cfg": ("pytest", {"setup.cfg": "[tool:pytest]\naddopts =\n    -q\n    -pdev.plug\n"}),
    "conftest": ("pytest", {"conftest.py": "pytest_plugins = ['a', 'dev.plug']\n"}),
    "tests' conftest": ("pytest", {"tests/conftest.py": "pytest_plugins: str = 'dev.plug'\n"}),
    "command": ("python3 -m pytest -q -p dev.plug tests", {}),
    "variable": ("PYTEST_PLUGINS=x,dev.plug pytest", {}),
    "script": ("sh run.sh", {"run.sh": "export PYTEST_PLUGINS='dev.plug'\npytest\n"}),
    "options set": ("tox", {"tox.ini": "[testenv]\nsetenv = PYTEST_ADDOPTS=-p dev.plug\n"}),
    "Makefile": ("make test", {"Makefile": "test:\n\tpython3 -m pytest \\\n\t  -p dev.plug\n"}),
}


@pytest.mark.parametrize("name", PLUGINS)
@pytest.mark.parametrize(
    "path", ["dev/plug.py", "dev/plug/__init__.py", "src/dev/plug.py", "dev/plug.abi3.so", "dev/plug.pyc"]
)
def test_plugin_that_the_base_loads_is_found(name: str, path: str) -> None:
    command, base = PLUGINS[name]
    assert led_to({**base, path: ""}, command, path, "dev/other.py", "src/m.py") == {path}


def test_plugin_that_a_plugin_loads_is_found() -> None:
    base = {"pytest.ini": "[pytest]\naddopts = -p one\n", "one.py": "pytest_plugins = ('two',)\n", "two.py": ""}
    assert led_to(base, "pytest", "one.py", "two.py") == {"one.py", "two.py"}


@pytest.mark.parametrize(
    ("command", "base", "changed"),
    [
        ("make test", {"Makefile": "test:\n\tpython3 src/main.py --selftest\n", "src/main.py": ""}, "src/main.py"),
        ("make test", {"Makefile": "dist: README.md data/a.json\n", "README.md": "", "data/a.json": ""}, "README.md"),
        (
            "make test",
            {"Makefile": "test:\n\tbin/prog data/in\n", "data/in": "1 2\n", "bin/prog": "\x7fELF"},
            "data/in",
        ),
        ("pytest -q", {"Makefile": "test:\n\tsh ci/a.sh\n", "ci/a.sh": ""}, "ci/a.sh"),
        ("make test", {"Makefile": "test:\n\tmkdir -p build\n\tpytest\n", "build.py": ""}, "build.py"),
        ("pytest", {"pytest.ini": "[pytest]\naddopts = -p no:cacheprovider\n", "no.py": ""}, "no.py"),
        ("sh run.sh", {"run.sh": "sh ../../etc/inner.sh /usr/bin/inner.sh\n", "bin/inner.sh": ""}, "bin/inner.sh"),
        ("pytest", {"setup.cfg": "[options]\nscripts = bin/tool.sh\n", "bin/tool.sh": ""}, "bin/tool.sh"),
        ("python3 src/main.py", {"src/main.py": "run('a.sh')\n", "src/a.sh": ""}, "src/a.sh"),
    ],
)
def test_programs_and_data_of_the_project_are_not_taken_for_tests(command: str, base: dict, changed: str) -> None:
    assert led_to(base, command, changed) == set()


def test_only_so_many_files_are_read_and_a_circle_ends() -> None:
    base = {"run.sh": "".join(f"sh s{n}.sh\n" for n in range(500)), "s1.sh": "sh run.sh\n", "s499.sh": ""}
    walk = Walk("sh run.sh", ["s499.sh"])
    asked = []
    while (place := walk.next()) is not None:
        asked.append(place)
        walk.take(place, base.get(place))
    assert len(asked) == len(set(asked)) <= 60
    assert walk.found == {"s499.sh"}


@pytest.mark.parametrize(
    "text", ["(" * 60_000, "-p " * 20_000, "include " * 8000, "$/" * 30_000, "-m a" * 15_000, "pytest -p'\"" * 5000]
)
def test_hostile_text_is_survived(text: str) -> None:
    for name in ("Makefile", "pytest.ini", "conftest.py"):
        assert led_to({name: text}, "make test", "m.py") == set()
