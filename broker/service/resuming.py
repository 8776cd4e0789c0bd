"""A thread that goes on with what had to wait: what a kill interrupted, a stop that ended, a forge that answers again.

The first round comes at once, beside the sockets: a forge that is silent must not keep a person from the stop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from broker.errors import FencedError
from broker.service.proposals import Proposals

SECONDS = 30.0


class Resumer:
    """Looks every so often, and at once when told to. ``fenced`` is called when another broker has taken over."""

    def __init__(self, proposals: Proposals, fenced: Callable[[FencedError], None], seconds: float = SECONDS) -> None:
        self._proposals = proposals
        self._fenced = fenced
        self._seconds = seconds
        self._told = threading.Event()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins; once."""
        self._thread = threading.Thread(target=self._run, name="resumer", daemon=True)
        self._thread.start()

    def hint(self) -> None:
        """Something may go on now."""
        self._told.set()

    def close(self, seconds: float = 10.0) -> None:
        """Ends it after the proposal at hand; waits no longer than that many seconds."""
        self._ending.set()
        self._told.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        go_on: Callable[..., object] = self._proposals.reconcile
        while not self._ending.is_set():
            try:
                go_on(ending=self._ending.is_set)
            except FencedError as error:
                self._fenced(error)
                return
            except Exception:  # noqa: BLE001, S110 - the outbox or the log cannot be used just now; whoever calls is told
                pass  # and without this thread nothing would go on when they can
            go_on = self._proposals.resume
            self._told.wait(self._seconds)
            self._told.clear()
