"""What tries came to, and the file that keeps it: one line a try, only ever added to, safe to be cut off anywhere."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError

from swarm.errors import EvaluationError
from swarm.evaluation.plan import Plan
from swarm.types import AMOUNT, Frozen

RUN, RESULTS, CASES, TRIES, LOCK = "run.json", "results.jsonl", "cases.jsonl", "tries", "lock"
NAMES = 200  # names of tests that are kept of one run
Row = TypeVar("Row", bound=Frozen)


class Judged(Frozen):
    """What the hidden tests said. ``put_back`` are paths of the work that do not count. ``tail`` is foreign text."""

    solved: bool
    reason: str = ""
    passed: int = 0
    failed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    exit_code: int = 0
    timed_out: bool = False
    out_of_memory: bool = False
    seconds: float = 0.0
    put_back: tuple[str, ...] = ()
    tail: str = ""


class Split(Frozen):
    """Where a try's wall clock went, in seconds: making the sandbox, waiting for a model's place, the model's reading
    and writing, tools, what the harness itself did, and judging."""

    room: float = 0.0
    waiting: float = 0.0
    prefill: float = 0.0
    decode: float = 0.0
    tools: float = 0.0
    other: float = 0.0
    checks: float = 0.0

    @property
    def total(self) -> float:
        """All of it."""
        return float(sum(self.model_dump().values()))


class Try(Frozen):
    """One try, finished. ``cached`` is None where no server told what its cache held. ``money`` is by [prices].

    ``outcome`` is "broken" where the machinery failed: such a try says nothing of the way, is not counted, and is made
    again when the run is gone on with. ``ending`` is as `types.Ending`, ``used`` the strategy that did it in the end,
    ``said`` what that said of it.
    """

    case: str
    strategy: str
    tier: str
    number: int
    key: str
    outcome: Literal["solved", "unsolved", "broken"]
    ending: str
    reason: str = ""
    said: str = ""
    limit: str = ""
    used: str = ""
    model: str = ""
    steps: int = Field(default=0, le=AMOUNT)
    tokens: int = Field(default=0, le=AMOUNT)
    prompt: int = Field(default=0, le=AMOUNT)
    cached: int | None = Field(default=None, le=AMOUNT)
    completion: int = Field(default=0, le=AMOUNT)
    gpu_seconds: float = 0.0
    money: float = 0.0
    split: Split = Split()
    began: float = 0.0
    files: tuple[str, ...] = ()
    judged: Judged | None = None
    folder: str = Field(default="", pattern=r"^[a-z0-9-]*$", description="its name below tries/")


class Standing(Frozen):
    """How a case proved itself before anyone worked on it. ``broken`` says why it cannot judge; empty where it can.

    ``blocked``: it is not the case that is at fault, something is missing here. ``fault``: the machinery failed while
    it was proved. A case of either is proved anew when the run is gone on with. ``required`` are the tests that a
    solution has to pass. ``proved`` tells whether a reference solution was seen to.
    """

    case: str
    digest: str
    broken: str = ""
    blocked: bool = False
    fault: bool = False
    required: tuple[str, ...] = ()
    by_exit: bool = Field(default=True, description="whether the command has to exit with 0 as well")
    proved: bool = False
    seconds: float = 0.0


class Folder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def held(self) -> Iterator[None]:
        """For one process alone. Raises EvaluationError where another has it, or it cannot be written."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / TRIES).mkdir(exist_ok=True)
            lock = (self.path / LOCK).open("w")
        except OSError as error:
            raise EvaluationError(
                f"{self.path} cannot be written: {error.strerror}", "name another with --out"
            ) from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise EvaluationError(
                    f"another process works on the run in {self.path}", "let it end, or name another folder with --out"
                ) from None
            yield

    def plan(self) -> Plan | None:
        """What the run here was begun with; None where none was. Raises EvaluationError where it cannot be read."""
        try:
            return Plan.model_validate_json((self.path / RUN).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is damaged, or of another version"
            raise EvaluationError(
                f"{self.path / RUN} cannot be read: {why}", "name another folder with --out"
            ) from None

    def others(self) -> tuple[str, ...]:
        """What lies here that no run put here."""
        own = {RUN, RESULTS, CASES, TRIES, LOCK}
        return tuple(sorted(path.name for path in self.path.iterdir() if path.name not in own))

    def begin(self, plan: Plan) -> None:
        """Keep what a run is begun with."""
        written(self.path / RUN, plan.model_dump_json(indent=1).encode())

    def tries(self) -> tuple[Try, ...]:
        """What the tries came to by now: the last word on each, in the order of their first."""
        return tuple({row.key: row for row in _rows(self.path / RESULTS, Try)}.values())

    def standings(self) -> dict[str, Standing]:
        """How cases proved themselves, by id."""
        return {row.case: row for row in _rows(self.path / CASES, Standing)}

    def add(self, row: Try | Standing) -> None:
        """Keep one more line, on disk before this returns."""
        path = self.path / (RESULTS if isinstance(row, Try) else CASES)
        line = json.dumps(row.model_dump(mode="json"), ensure_ascii=True) + "\n"
        with path.open("ab+") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                line = line if file.read(1) == b"\n" else "\n" + line  # a line before it was cut off
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())


def written(path: Path, content: bytes) -> None:
    """A whole file, or what was there before. Raises EvaluationError."""
    beside = path.with_name(f".{path.name}.new")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise EvaluationError(f"{path} cannot be written: {error.strerror}", "see to its folder and its disk") from None


def _rows(path: Path, kind: type[Row]) -> Iterator[Row]:
    """All whole lines. One that was cut off is left out: what it told of is done again. Halves of characters, which a
    model's JSON may hold, become question marks. Raises EvaluationError."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    except OSError as error:
        raise EvaluationError(f"{path} cannot be read: {error.strerror}", "see who may read it") from None
    for number, line in enumerate(lines, start=1):
        try:
            value: Any = json.loads(line)
        except (ValueError, RecursionError):
            continue
        try:
            yield kind.model_validate_json(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            raise EvaluationError(
                f"{path}, line {number}: {why}", "it is of another version: begin anew with --out"
            ) from None
