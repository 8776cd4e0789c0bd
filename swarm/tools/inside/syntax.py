"""Runs inside a sandbox, standard library alone: whether a file parses, and whether its former content did.

Takes the path; standard input is the former content, empty for none. Prints nothing, or the line, whether it parsed
before (0 or 1), and the reason. It is the project's own interpreter that judges, since only that knows its grammar.
"""

import json
import sys

try:
    import tomllib
except ImportError:  # before Python 3.11
    tomllib = None  # type: ignore[assignment]

LIMIT = 2_000_000
ONLY_AST = 0x400


def fault(path: str, data: bytes) -> "tuple[int, str] | None":
    """The first error's line and reason; None where it parses or nobody can tell."""
    try:
        if path.endswith((".py", ".pyi")):
            compile(data, path, "exec", ONLY_AST, dont_inherit=True)
        elif path.endswith(".json"):
            json.loads(data)
        elif path.endswith(".toml") and tomllib is not None:
            tomllib.loads(data.decode())
    except SyntaxError as error:
        return error.lineno or 1, error.msg
    except json.JSONDecodeError as error:
        return error.lineno, error.msg
    except ValueError as error:  # NUL, no UTF-8, and what tomllib raises
        words = str(error)
        line = words.partition("at line ")[2].partition(",")[0]
        return int(line) if line.isdigit() else 1, words
    except (RecursionError, MemoryError):
        return None
    return None


def main() -> None:
    """Judge the file."""
    path = sys.argv[1]
    with open(path, "rb") as file:
        data = file.read(LIMIT + 1)
    found = fault(path, data) if len(data) <= LIMIT else None
    if found is None:
        return
    former = sys.stdin.buffer.read(LIMIT)
    parsed = int(bool(former) and fault(path, former) is None)
    reason = found[1].replace("\n", " ")[:200]
    sys.stdout.write(f"{found[0]} {parsed} {reason}\n")


if __name__ == "__main__":
    main()
