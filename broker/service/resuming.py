"""Goes on with what had to wait: what a kill interrupted, what was stopped, what a forge did not take.

The first round comes at once, beside the sockets, and each repository has a thread while something of its waits: a
forge that is silent keeps no person from the stop, and no other repository from its own.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from broker.errors import FencedError
from broker.service.proposals import Proposals

SECONDS = 30.0
T = TypeVar("T")


class Resumer:
    """Looks every so often, and at once when told to. ``fenced`` is called when another broker has taken over."""

    def __init__(self, proposals: Proposals, fenced: Callable[[FencedError], None], seconds: float = SECONDS) -> None:
        self._proposals = proposals
        self._fenced = fenced
        self._seconds = seconds
        self._told = threading.Event()
        self._ending = threading.Event()
        self._threads: dict[str, threading.Thread] = {}  # "" is the one that starts the others, by repository

    def start(self) -> None:
        """Begins; once."""
        self._threads[""] = threading.Thread(target=self._run, name="resumer", daemon=True)
        self._threads[""].start()

    def hint(self) -> None:
        """Something may go on now."""
        self._told.set()

    def close(self, seconds: float = 10.0) -> None:
        """Ends it after the proposals at hand; waits no longer than that many seconds."""
        self._ending.set()
        self._told.set()
        until = time.monotonic() + seconds
        for thread in list(self._threads.values()):
            thread.join(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        event = "reconciled"
        while not self._ending.is_set():
            for name in self._guarded(self._proposals.unfinished) or ():
                if name not in self._threads or not self._threads[name].is_alive():
                    work = functools.partial(self._proposals.resume, event, self._ending.is_set, name)
                    one = threading.Thread(target=self._guarded, args=(work,), name=f"resumes {name}", daemon=True)
                    self._threads[name] = one
                    one.start()
            event = "resumed"
            self._told.wait(self._seconds)
            self._told.clear()

    def _guarded(self, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except FencedError as error:
            self._ending.set()
            self._told.set()
            self._fenced(error)
        except Exception:  # noqa: BLE001, S110 - the outbox or the log cannot be used just now; whoever calls is told,
            pass  # and without these threads nothing would go on when they can
        return None
