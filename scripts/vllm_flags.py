"""Makes pool/profiles/flags.json: which vLLM release knows which flag, parser and KV connector.

Two ways in, to the same table. `installed PYTHON` asks a vLLM that runs here: its own argument parser and its own
registries. `source FOLDER VERSION` reads the sources of a release (the `vllm/` folder of an unpacked wheel) without
running them: the words given to `add_argument`, the fields of the `...FrontendArgs` classes (vLLM makes one flag of
each), the keys of the two parser registries, and the names given to `register_connector`. For a release that was had
both ways the two agreed in every flag that the profiles use. Each call adds one release to the table:

    python scripts/vllm_flags.py source /tmp/unpacked/0.30.0 0.30.0
    python scripts/vllm_flags.py installed /path/to/venv/bin/python
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "pool" / "profiles" / "flags.json"
ASK = ROOT / "pool" / "profiles" / "inside.py"
KINDS = ("flag", "tool_parser", "reasoning_parser", "connector")
Facts = dict[str, list[str]]


def from_source(folder: Path) -> Facts:
    """What a release's sources register, by kind."""
    root = folder / "vllm"
    frontend = next(p for p in root.rglob("cli_args.py") if "FrontendArgs" in p.read_text("utf-8"))
    flags = {flag for path in (root / "engine" / "arg_utils.py", frontend) for flag in _flags(_tree(path))}
    return {
        "flag": sorted(flags),
        "tool_parser": sorted(_keys(_tree(root / "tool_parsers" / "__init__.py"), "_TOOL_PARSERS_TO_REGISTER")),
        "reasoning_parser": sorted(_keys(_tree(root / "reasoning" / "__init__.py"), "_REASONING_PARSERS_TO_REGISTER")),
        "connector": sorted(_connectors(_tree(root / "distributed/kv_transfer/kv_connector/factory.py"))),
    }


def from_installed(python: str) -> tuple[str, Facts]:
    """Version and facts as a vLLM that is installed tells them itself."""
    ran = subprocess.run([python, ASK], input="", capture_output=True, text=True, check=True, timeout=300)
    told = json.loads(ran.stdout.splitlines()[0])
    return told["version"], {kind: told[kind] for kind in KINDS}


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def _flags(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            words = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            yield from (word for word in words if word.startswith("--"))
        if isinstance(node, ast.ClassDef) and node.name.endswith("FrontendArgs"):
            fields = [item.target.id for item in node.body if isinstance(item, ast.AnnAssign)]  # type: ignore[union-attr]
            yield from ("--" + field.replace("_", "-") for field in fields)


def _keys(tree: ast.Module, name: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == name for target in node.targets):
            if not isinstance(node.value, ast.Dict):
                raise TypeError(f"{name} is no dict display")
            yield from (key.value for key in node.value.keys if isinstance(key, ast.Constant))


def _connectors(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "register_connector":
            first = node.args[0]
            if isinstance(first, ast.Constant):
                yield first.value


def add(table: dict[str, Facts], version: str, facts: Facts) -> None:
    """Put one release into the table: each name has the list of releases that were seen to know it."""
    for kind in KINDS:
        names = table.setdefault(kind, {})  # type: ignore[arg-type]
        for name in set(names) | set(facts[kind]):
            seen = set(names.get(name, [])) - {version}  # type: ignore[attr-defined]
            names[name] = sorted(seen | ({version} if name in facts[kind] else set()), key=_order)  # type: ignore[call-overload]
        table[kind] = {name: names[name] for name in sorted(names) if names[name]}  # type: ignore[assignment,call-overload]


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def main() -> int:
    """Add one release to the table."""
    match sys.argv[1:]:
        case ["source", folder, version]:
            facts = from_source(Path(folder))
        case ["installed", python]:
            version, facts = from_installed(python)
        case _:
            print(__doc__, file=sys.stderr)
            return 64
    table = json.loads(TABLE.read_text("utf-8")) if TABLE.exists() else {}
    add(table, version, facts)
    lines = ",\n".join(
        f' "{kind}": {{\n' + ",\n".join(f'  "{n}": {json.dumps(v)}' for n, v in table[kind].items()) + "\n }"
        for kind in KINDS
    )
    TABLE.write_text("{\n" + lines + "\n}\n", "utf-8")
    print(f"{version}: " + ", ".join(f"{len(facts[kind])} {kind}s" for kind in KINDS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
