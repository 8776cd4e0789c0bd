"""What the embedded forge remembers beside its bare repository: a file per pull request, status list and note list."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from broker.errors import AbsentError, ForgeError
from broker.forge.base import Status
from broker.wire import PullRequest

Record = TypeVar("Record")
_STATUSES = TypeAdapter(dict[str, Status])
_NOTES = TypeAdapter(dict[str, str])


class Records:
    """One folder of the broker's state. A file is replaced whole and is on disk before a call returns."""

    def __init__(self, name: str, folder: Path) -> None:
        self._name = name
        self._folder = folder

    def numbers(self) -> list[int]:
        """Numbers of all pull requests, newest first."""
        return sorted((int(file.stem) for file in self._folder.glob("[0-9]*.json")), reverse=True)

    def pull(self, number: int) -> PullRequest:
        """One pull request as it was written last. Raises AbsentError, ForgeError."""
        file = self._folder / f"{number}.json"
        try:
            return PullRequest.model_validate_json(file.read_text())
        except FileNotFoundError:
            raise AbsentError(f"{self._name} has no pull request {number}", "swarm-broker pr list shows them") from None
        except ValidationError:
            raise ForgeError(f"the record of pull request {number} is damaged", f"repair or remove {file}") from None

    def write(self, pull: PullRequest) -> None:
        """Keeps a pull request."""
        self._replace(f"{pull.number}.json", pull.model_dump_json(indent=1))

    def statuses(self, commit: str) -> dict[str, Status]:
        """A commit's statuses by context."""
        return self._read(f"status-{commit}.json", _STATUSES)

    def report(self, commit: str, status: Status) -> None:
        """Keeps a status in place of the one under the same context."""
        known = {**self.statuses(commit), status.context: status}
        self._replace(f"status-{commit}.json", _STATUSES.dump_json(known, indent=1).decode())

    def notes(self, number: int) -> dict[str, str]:
        """The broker's own comments on a pull request by marker."""
        return self._read(f"notes-{number}.json", _NOTES)

    def note(self, number: int, marker: str, text: str) -> None:
        """Keeps a comment in place of the one under the same marker."""
        self._replace(f"notes-{number}.json", json.dumps({**self.notes(number), marker: text}, indent=1))

    def _read(self, name: str, kind: TypeAdapter[dict[str, Record]]) -> dict[str, Record]:
        try:
            return kind.validate_json((self._folder / name).read_bytes())
        except FileNotFoundError:
            return {}
        except ValidationError:
            raise ForgeError(f"a record of {self._name} is damaged", f"remove {self._folder / name}") from None

    def _replace(self, name: str, text: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # here, so that looking makes nothing
        draft = self._folder / f".{name}.draft"
        with draft.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._folder / name)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
