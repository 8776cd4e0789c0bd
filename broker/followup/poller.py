"""One thread that looks at one repository again and again: sooner when told, later when the forge is ill."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from broker.errors import BrokerError, FencedError, ForgeError

GAP = 2.0  # seconds between two looks, however many hints come
LONGEST = 900.0  # seconds to wait after failures, and at most for what a forge asks to be waited for
MAX_WAIT = 3600.0


class Poller:
    """``look`` is called until `stop`, and told whether a hint came; ``pause`` gives the seconds between two looks.

    ``report`` is told why a look failed, once per reason, and with no reason of the first that did not any more.
    ``fenced`` is called when another broker has taken over; then it is over here.
    """

    def __init__(
        self,
        name: str,
        look: Callable[[bool], None],
        pause: Callable[[], float],
        report: Callable[[str], None],
        *,
        fenced: Callable[[FencedError], None] = lambda _error: None,
        gap: float = GAP,
    ) -> None:
        self._look = look
        self._pause = pause
        self._report = report
        self._fenced = fenced
        self._gap = gap
        self._bell = threading.Condition()
        self._hinted = False
        self._closing = False
        self._failures = 0
        self._said = ""
        self._thread = threading.Thread(target=self._run, name=f"follow {name}", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def hint(self) -> None:
        """Something may have changed: look soon."""
        with self._bell:
            self._hinted = True
            self._bell.notify()

    def stop(self) -> None:
        """No further look begins."""
        with self._bell:
            self._closing = True
            self._bell.notify()

    def close(self, patience: float = 10.0) -> None:
        """Ends it: a look under way may finish for ``patience`` seconds; what it leaves undone comes again later."""
        self.stop()
        if self._thread.is_alive():
            self._thread.join(patience)

    def _run(self) -> None:
        while not self._closing:
            began = time.monotonic()
            try:
                wait, firm = self._once()
            except FencedError as error:
                self._fenced(error)
                return
            self._sleep(began + self._gap, firm=True)
            self._sleep(began + wait, firm=firm)

    def _once(self) -> tuple[float, bool]:
        """One look; how long to wait for the next, and whether a hint may not shorten that."""
        try:
            with self._bell:
                hinted, self._hinted = self._hinted, False
            self._look(hinted)
        except FencedError:
            raise
        except ForgeError as error:
            return self._failed(str(error), error.when), True
        except BrokerError as error:
            return self._failed(str(error), None), True
        except Exception as error:  # noqa: BLE001 - a fault of ours in one look does not end the following of a repository
            return self._failed(f"a fault of the broker's own: {type(error).__name__}", None), True
        if self._failures:
            self._failures, self._said = 0, ""
            self._tell("")
        return self._jittered(self._pause()), False

    def _failed(self, reason: str, when: float | None) -> float:
        self._failures += 1
        if reason != self._said:
            self._said = reason
            self._tell(reason)
        wait = min(LONGEST, self._jittered(self._gap * 2.0 ** min(self._failures, 12)))
        return max(wait, min(MAX_WAIT, when - time.time())) if when is not None else wait

    def _tell(self, reason: str) -> None:
        if self._closing:
            return  # the log may be closed by now
        with suppress(OSError):  # the log cannot be written just now, and who calls the broker is told so
            self._report(reason)

    @staticmethod
    def _jittered(seconds: float) -> float:
        return seconds * random.uniform(0.85, 1.15)  # noqa: S311 - so that many repositories do not knock at once

    def _sleep(self, until: float, *, firm: bool) -> None:
        with self._bell:
            while not self._closing and (firm or not self._hinted):
                left = until - time.monotonic()
                if left <= 0:
                    return
                self._bell.wait(left)
