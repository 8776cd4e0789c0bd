"""What a try leaves on disk: its journal, a line a step as the daemon has them, its change, the judge's word."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from swarm.budgets.parts import whole
from swarm.errors import EvaluationError
from swarm.evaluation.results import Split
from swarm.types import Step

JOURNAL, CHANGE, JUDGE = "journal.jsonl", "change.diff", "judge.txt"
_BROKEN_OFF = "broken-off"
_PLACES = {"prepare": "room", "pool": "waiting"}  # the journal's parts by another name here


class Journal:
    """The journal of one try. Lines are handed to the system at once; a try that is broken off is begun anew."""

    def __init__(self, folder: Path, task: str, attempt: str, clock: Callable[[], float] = time.time) -> None:
        """Makes the folder; a journal that is there already is of a life that was broken off, and is put beside."""
        self._path = folder / JOURNAL
        self._task = task
        self._attempt = attempt
        self._clock = clock
        self.steps: list[Step] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if self._path.exists():
                self._path.rename(folder / f"{_BROKEN_OFF}-{len(list(folder.glob(f'{_BROKEN_OFF}-*'))) + 1}.jsonl")
            self._path.touch()
        except OSError as error:
            raise _unwritable(self._path, error) from None

    async def record(self, kind: str, data: dict[str, Any]) -> None:
        """Append a line. Raises EvaluationError where the disk takes no more."""
        kept = json.loads(json.dumps(data))
        step = Step(
            task=self._task,
            attempt=self._attempt,
            seq=len(self.steps) + 1,
            at=self._clock(),
            kind=kind,
            data=kept,
        )
        try:
            with self._path.open("a", encoding="ascii") as file:
                file.write(json.dumps(step.model_dump(mode="json"), ensure_ascii=True) + "\n")
        except OSError as error:
            raise _unwritable(self._path, error) from None
        self.steps.append(step)


def kept(path: Path, text: str) -> None:
    """Write a text that came out of a sandbox. Raises EvaluationError."""
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise _unwritable(path, error) from None


def lines_of(path: Path) -> Iterator[Step]:
    """The lines of a journal; one that was cut off ends it. Raises EvaluationError where it cannot be read."""
    try:
        with path.open("rb") as file:
            for line in file:
                try:
                    yield Step.model_validate(json.loads(line))
                except (ValueError, RecursionError):
                    return
    except OSError as error:
        raise EvaluationError(
            f"{path} cannot be read: {error.strerror}", "put it aside, or see who may read it"
        ) from None


def wasted(tries: Path, told: Collection[str]) -> int:
    """Tokens of lives of tries that were broken off, whose work is made again: they were spent all the same.

    ``told`` are the folders of tries whose last life is told of elsewhere.
    """
    last = (path for path in tries.glob(f"*/{JOURNAL}") if path.parent.name not in told)
    return sum(
        tokens
        for path in (*tries.glob(f"*/{_BROKEN_OFF}-*.jsonl"), *last)
        for step in lines_of(path)
        if step.kind == "model_call"
        for name in ("prompt_tokens", "completion_tokens")
        if isinstance(tokens := step.data.get(name), int)
    )


def split_of(steps: list[Step]) -> Split:
    """Where the time of a try went, by its journal. Pure."""
    found = dict.fromkeys(Split.model_fields, 0.0)
    for _clock, parts, _line in whole(steps):
        for part in parts:
            place = _PLACES.get(part.name, part.name)
            found[place if place in found else "other"] += part.seconds
    return Split.model_validate({name: round(seconds, 4) for name, seconds in found.items()})


def cached_of(steps: list[Step]) -> int | None:
    """Prompt tokens that a cache held; None where no server told. Pure."""
    told = [step.data["cached_tokens"] for step in steps if step.kind == "model_call" and "cached_tokens" in step.data]
    known = [int(tokens) for tokens in told if tokens is not None]
    return sum(known) if known else None


def _unwritable(path: Path, error: OSError) -> EvaluationError:
    return EvaluationError(f"{path} cannot be written: {error.strerror}", "see to its folder and its disk")
