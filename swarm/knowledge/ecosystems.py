"""How a repository looks to be installed and tested, told by its files alone: a closed set of commands of our own, none
of them a text out of the repository. Pure. A suggestion proves nothing; `proving` runs it."""

from __future__ import annotations

import json
import posixpath
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from swarm.types import Frozen

LIMIT = 64 * 1024  # bytes of a deciding file that are looked at
VENV = '"$HOME/venv/bin/python"'

_DECIDING = frozenset(
    {
        "pyproject.toml", "setup.py", "setup.cfg", "tox.ini", "noxfile.py", "pytest.ini", "Pipfile", "uv.lock",
        "poetry.lock", "Makefile", "makefile", "GNUmakefile", "justfile", "package.json", "package-lock.json",
        "yarn.lock", "pnpm-lock.yaml", "bun.lock", "bun.lockb", "Cargo.toml", "go.mod", "pom.xml", "mvnw",
        "build.gradle", "build.gradle.kts", "gradlew", "composer.json", "Gemfile", "Rakefile", ".rspec",
        "CMakeLists.txt", "mix.exs", "deno.json", "deno.jsonc",
    }
)  # fmt: skip
_REQUIREMENTS = re.compile(r"^(requirements[\w.-]*\.txt|(\w[\w-]*)?requirements\.txt|requirements/\w[\w.-]*\.txt)$")
_FOR_TESTS = re.compile(r"dev|test|ci|all")
_WORKFLOW = re.compile(r"^\.github/workflows/[^/]+\.ya?ml$|^\.gitlab-ci\.yml$")
_PY_TEST = re.compile(r"(^|/)(test_[^/]+|[^/]+_test|tests?)\.py$")
_EXTRAS = ("test", "tests", "testing", "dev")
_MOST_WORKFLOWS = 8


class Suggestion(Frozen):
    """A command, the file that suggests it, the ``kind`` of tools that it belongs to, and whether it wants what that
    kind's set-up installs."""

    command: str
    why: str
    kind: str = ""
    installed: bool = False


class Environment(Frozen):
    """``setup`` in its order; ``tests`` with the likeliest first."""

    setup: tuple[Suggestion, ...] = ()
    tests: tuple[Suggestion, ...] = ()


class Files:
    """The deciding files of a tree, and the names of all of them."""

    def __init__(self, texts: Mapping[str, str], paths: Collection[str]) -> None:
        self.texts = texts
        self.paths = paths

    def has(self, *names: str) -> bool:
        """Whether any of these is there."""
        return any(name in self.paths for name in names)

    def says(self, pattern: str, *names: str) -> bool:
        """Whether any of these files holds the pattern."""
        return any(re.search(pattern, self.texts.get(name, ""), re.MULTILINE) for name in names)


def deciding(paths: Collection[str]) -> tuple[str, ...]:
    """Of a tree's paths, those that decide how it is installed and tested, in a fixed order."""
    found = sorted(path for path in paths if path in _DECIDING or _REQUIREMENTS.match(path))
    return (*found, *sorted(path for path in paths if _WORKFLOW.match(path))[:_MOST_WORKFLOWS])


def environment(files: Files) -> Environment:
    """What the files suggest, the repository's own entry point (make, just) last: it may do more than test."""
    setup: list[Suggestion] = []
    tests: list[Suggestion] = []
    for detect in _DETECTORS:
        for step, suggestion in detect(files):
            (setup if step == "setup" else tests).append(suggestion)
    return Environment(setup=tuple(dict.fromkeys(setup)), tests=tuple(dict.fromkeys(tests)))


Found = Iterator[tuple[str, Suggestion]]


def _setup(command: str, why: str, kind: str) -> tuple[str, Suggestion]:
    return "setup", Suggestion(command=command, why=why, kind=kind)


def _test(command: str, why: str, kind: str = "", *, installed: bool = False) -> tuple[str, Suggestion]:
    return "test", Suggestion(command=command, why=why, kind=kind, installed=installed)


def _python(files: Files) -> Found:
    told = [name for name in ("pyproject.toml", "setup.cfg", "tox.ini", "setup.py", "Pipfile") if files.has(name)]
    required = [path for path in sorted(files.paths) if _REQUIREMENTS.match(path)]
    tests = next((path for path in sorted(files.paths) if _PY_TEST.search(path)), "")
    if not told and not required and not tests:
        return
    why = told[0] if told else required[0] if required else tests
    by_pytest = (
        files.has("pytest.ini")
        or files.says(r"\bpytest\b", *told, *required)
        or any(posixpath.basename(path) == "conftest.py" for path in files.paths)
    )
    install = list(_python_install(files, required))
    if by_pytest or tests:
        yield _test("python3 -m pytest -q", why if by_pytest else tests, "python")
    if not by_pytest and tests:
        folder = posixpath.dirname(tests).partition("/")[0]
        inside = f" -s {folder}" if folder in {"test", "tests"} and not files.has(f"{folder}/__init__.py") else ""
        yield _test(f"python3 -m unittest discover -v{inside}", tests, "python")
    if install:
        yield _setup('python3 -m venv "$HOME/venv"', why, "python")
        yield from install
        if by_pytest or tests:
            yield _setup(f"{VENV} -m pip install -q pytest", why, "python")
            yield _test(f"{VENV} -m pytest -q", why, "python", installed=True)
    if files.has("noxfile.py"):
        yield _test("nox", "noxfile.py", "python")
    if files.has("tox.ini") or files.says(r"^\[tool\.tox", "pyproject.toml"):
        yield _test("tox -q", "tox.ini" if files.has("tox.ini") else "pyproject.toml", "python")


def _python_install(files: Files, required: list[str]) -> Found:
    main = [path for path in required if path == "requirements.txt"]
    for path in main + [path for path in required if path not in main and _FOR_TESTS.search(path)][:3]:
        yield _setup(f"{VENV} -m pip install -q -r {path}", path, "python")
    project = _table(_toml(files.texts.get("pyproject.toml", "")).get("project"))
    if project or files.has("setup.py") or files.says(r"^\[build-system\]", "pyproject.toml"):
        extras = [name for name in _EXTRAS if name in _table(project.get("optional-dependencies"))]
        wanted = f"'.[{','.join(extras)}]'" if extras else "."
        why = "setup.py" if files.has("setup.py") and not files.has("pyproject.toml") else "pyproject.toml"
        yield _setup(f"{VENV} -m pip install -q -e {wanted}", why, "python")


def _node(files: Files) -> Found:
    if not files.has("package.json"):
        return
    scripts = _table(_json(files.texts.get("package.json", "")).get("scripts"))
    locks = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lock": "bun", "bun.lockb": "bun"}
    manager = next((program for lock, program in locks.items() if files.has(lock)), "npm")
    frozen = {"pnpm": "pnpm install --frozen-lockfile", "yarn": "yarn install --frozen-lockfile", "bun": "bun install"}
    own = "npm ci" if files.has("package-lock.json") else "npm install"
    yield _setup(frozen.get(manager, own), "package.json", "node")
    if "test" in scripts and "no test specified" not in str(scripts["test"]):
        yield _test(f"{manager} {'run ' if manager == 'bun' else ''}test", "package.json", "node", installed=True)


def _compiled(files: Files) -> Found:
    if files.has("Cargo.toml"):
        yield _setup("cargo fetch", "Cargo.toml", "rust")
        yield _test("cargo test --offline", "Cargo.toml", "rust")
    if files.has("go.mod"):
        yield _setup("go mod download", "go.mod", "go")
        yield _test("go test ./...", "go.mod", "go")
    if files.has("pom.xml"):
        maven = "./mvnw" if files.has("mvnw") else "mvn"
        yield _setup(f"{maven} -q dependency:go-offline", "pom.xml", "maven")
        yield _test(f"{maven} -q -o test", "pom.xml", "maven", installed=True)
    if files.has("build.gradle", "build.gradle.kts"):
        gradle, why = "./gradlew" if files.has("gradlew") else "gradle", "build.gradle"
        yield _setup(f"{gradle} -q testClasses", why, "gradle")
        yield _test(f"{gradle} -q --offline test", why, "gradle", installed=True)
    if files.has("CMakeLists.txt") and files.says(r"enable_testing|include\(CTest\)", "CMakeLists.txt"):
        build = '-S . -B "$HOME/build" && cmake --build "$HOME/build" && ctest --test-dir "$HOME/build"'
        yield _test(f"cmake {build} --output-on-failure", "CMakeLists.txt", "cmake")


def _scripted(files: Files) -> Found:
    if files.has("composer.json"):
        yield _setup("composer install -q", "composer.json", "php")
        scripts = _table(_json(files.texts.get("composer.json", "")).get("scripts"))
        yield _test(
            "composer test" if "test" in scripts else "vendor/bin/phpunit", "composer.json", "php", installed=True
        )
    if files.has("Gemfile"):
        yield _setup("bundle install", "Gemfile", "ruby")
        rspec = files.has(".rspec") or any(path.startswith("spec/") for path in files.paths)
        yield _test("bundle exec rspec" if rspec else "bundle exec rake test", "Gemfile", "ruby", installed=True)
    if files.has("mix.exs"):
        yield _setup("mix deps.get", "mix.exs", "elixir")
        yield _test("mix test", "mix.exs", "elixir", installed=True)
    if files.has("deno.json", "deno.jsonc"):
        yield _test("deno test -A", "deno.json", "deno")
    if any(path.endswith((".sln", ".csproj", ".fsproj")) for path in files.paths):
        yield _setup("dotnet restore", "a project file", "dotnet")
        yield _test("dotnet test --no-restore", "a project file", "dotnet", installed=True)


def _entry_points(files: Files) -> Found:
    for name in ("GNUmakefile", "makefile", "Makefile"):
        for target in ("test", "check"):
            if files.says(rf"^{target}[ \t]*:(?!=)", name):
                yield _test(f"make {target}", name)
                return
    if files.says(r"^test\b[^\n:=]{0,80}:(?!=)", "justfile"):
        yield _test("just test", "justfile")


_DETECTORS: tuple[Callable[[Files], Found], ...] = (_python, _node, _compiled, _scripted, _entry_points)


def _toml(text: str) -> Mapping[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return {}


def _json(text: str) -> Mapping[str, Any]:
    try:
        return _table(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
