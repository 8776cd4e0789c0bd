"""How bubblewrap is started for one spec, as one request to the helper: what a fork shares with its source. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sandbox.bubblewrap.binary import Bwrap
from sandbox.bubblewrap.layers import FILTER, Store, to_json
from sandbox.bubblewrap.root import FILES, Root
from sandbox.line.launch import bootstrap_argv
from sandbox.rules.bwrap import bwrap_arguments
from sandbox.rules.profile import HOME, SHM, TMP, WORK, Profile, rlimits

_NAMES = MappingProxyType({WORK: "work", HOME: "home", TMP: "tmp", SHM: "shm"})
_LASTING, _FRESH = (WORK, HOME), (TMP, SHM)
_SCORE = 500  # what the kernel kills first when the machine runs out of memory; commands inside stand higher


@dataclass(frozen=True)
class Plan:
    """One spec on this machine. ``filter`` is the descriptor of the compiled system call rules."""

    bwrap: Bwrap
    profile: Profile
    root: Root
    masked: tuple[str, ...]
    filter: int

    def stores(self) -> tuple[Store, ...]:
        """Workspace and home of a new sandbox."""
        return self._stores(_LASTING)

    def start(self, stores: tuple[Store, ...], uid: int) -> dict[str, Any]:
        """The request that starts a supervisor over these stores."""
        return {
            "do": "start",
            "uid": uid,
            "rlimits": rlimits(self.profile),
            "score": _SCORE,
            "stores": to_json(stores),
            "fresh": to_json(self._stores(_FRESH)),
            "files": FILES,
            "binds": {**self.bwrap.binds, **self.root.binds},
            "program": self.bwrap.path,
            "arguments": self._arguments(stores),
            "command": bootstrap_argv(python=tuple(self.root.tool("python3"))),
        }

    def _arguments(self, stores: tuple[Store, ...]) -> list[str]:
        shown = {store.name: store.shown for store in (*stores, *self._stores(_FRESH))}
        held = {path: shown[name] for path, name in _NAMES.items()}
        environment = dict(self.profile.environment)
        return [
            *bwrap_arguments(self.profile, self.root.arguments, held=held, environment=environment, masked=self.masked),
            # As process 1 the supervisor is out of reach of every signal from inside, and reaps what is orphaned.
            *("--as-pid-1", "--seccomp", str(FILTER)),
        ]

    def _stores(self, places: Collection[str]) -> tuple[Store, ...]:
        return tuple(
            Store(_NAMES[folder.path], folder.size, folder.inodes, folder.mode, folder.executable)
            for folder in self.profile.folders
            if folder.path in places
        )
