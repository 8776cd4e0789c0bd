"""The embedded model's own process: llama.cpp's server inside Python. Started by `pool.embedded`, by path.

Imports nothing of the project, so that it starts in a second and runs with an empty environment. Reads one JSON object
from standard input: weights, model, parallel, window, threads, key, parent. Answers on standard output with one JSON
line, {"url": ...} or {"error": ...}; all further output goes to the log. Ends when its parent does.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
import time
from typing import Any

PR_SET_PDEATHSIG = 1  # prctl(2): the kernel sends this signal when the thread that started us ends
WATCH = 1.0  # seconds between looks at the parent, for platforms without prctl


def die_with(parent: int) -> None:
    """End this process when ``parent`` ends, even when that is killed."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH)
    os._exit(1)


def serve(told: dict[str, Any]) -> Any:
    """The running server, listening on a free port of the loopback interface."""
    from xllamacpp import CommonParams, Server  # noqa: PLC0415  its absence is to be told as a line, not a traceback

    params = CommonParams()
    params.model.path = told["weights"]
    params.model_alias = [told["model"]]
    params.n_parallel = told["parallel"]
    params.n_ctx = told["parallel"] * told["window"]
    params.kv_unified = False  # a shared cache fails every request in it once it is full; an own window just overflows
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = told["threads"]
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.api_keys = [told["key"]]
    params.endpoint_metrics, params.endpoint_slots, params.ui = True, False, False
    params.use_jinja = True
    return Server(params)


def say(what: dict[str, str]) -> None:
    """One line for the parent."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Serve until stopped or orphaned."""
    told = json.load(sys.stdin)
    die_with(told["parent"])
    try:
        server = serve(told)
    except ImportError as error:
        say({"missing": str(error)})
        return 3
    except Exception as error:  # noqa: BLE001  whatever the native code objects to is told in one line
        reason = f"{type(error).__name__}: {error}"
        sys.stderr.write(
            reason + "\n"
        )  # the log that the parent names says it too, whatever the native code wrote there
        say({"error": reason})
        return 4
    say({"url": server.listening_address})
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
