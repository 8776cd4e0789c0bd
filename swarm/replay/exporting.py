"""Makes the one file of an attempt that may leave the house: recorded, with its secrets struck out, packed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from sandbox.errors import WorkspaceError
from swarm.answers import Exported
from swarm.config import Settings, secrets_known, secrets_missing
from swarm.errors import ReplayError
from swarm.replay import bundle
from swarm.replay.making import recording
from swarm.replay.record import Recording
from swarm.salvage.shelf import Shelf
from swarm.store.store import Store
from swarm.telemetry.redaction import Redactor


async def exported(
    store: Store, shelf: Shelf, settings: Settings, environ: Mapping[str, str], wanted: str
) -> tuple[Exported, bytes]:
    """A task's last attempt, or the attempt that is ``wanted``, as a file's content, and what is to be known of it.

    Secrets that the settings name and ``environ`` has not cannot be looked for, and are told. Raises
    TaskNotFoundError, ReplayError and StoreError.
    """
    try:
        recorded, objects = await recording(store, shelf, settings, wanted)
    except WorkspaceError as error:
        raise ReplayError(f"the objects of {wanted} cannot be had: {error}", "see its git folder: git fsck") from error
    capability = (await store.task(recorded.task.id)).request.capability
    redactor = Redactor({*secrets_known(settings, environ), *([capability] if capability else [])})
    struck, content = await asyncio.to_thread(_packed, recorded, objects, redactor)
    unknown = secrets_missing(settings, environ)
    facts = Exported(attempt=recorded.attempt.id, bytes=len(content), struck=struck, unknown_secrets=unknown)
    return facts, content


def _packed(recorded: Recording, objects: bytes, redactor: Redactor) -> tuple[int, bytes]:
    clean = bundle.redacted(recorded, redactor)
    return clean.struck, bundle.packed(clean, objects)
