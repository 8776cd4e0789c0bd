"""Keeps the traceback of an error that nobody thought of, away from the person's screen."""

from __future__ import annotations

import os
import tempfile
import time
import traceback
from pathlib import Path

from platformdirs import user_log_path


def keep(error: BaseException) -> Path | None:
    """Write an error's traceback into a new file that only this user can read; None where no place takes it."""
    text = "".join(traceback.format_exception(error))
    for folder in (user_log_path("agent-swarm"), Path(tempfile.gettempdir())):
        path = folder / f"swarm-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
        except OSError:
            continue
        return path
    return None
