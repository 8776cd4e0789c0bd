"""What a container is made with: the profile's settings, labels, and what a stranger's image needs. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from sandbox.container.engine import Image
from sandbox.errors import SandboxUnavailableError
from sandbox.line.programs import BORROWED
from sandbox.rules.docker import docker_settings
from sandbox.rules.profile import AGENT_UID, AGENT_UIDS, ENVIRONMENT, Profile, rlimits
from sandbox.types import SandboxSpec

OWNER_LABEL = "agent-swarm.owner"
MACHINE_LABEL = "agent-swarm.machine"
SPEC_LABEL = "agent-swarm.spec"
TOOLS_LABEL = "agent-swarm.tools"  # where our own programs are in it
UID_LABEL = "agent-swarm.uid"  # whose its commands are
_VOLUMES = 16
_PRELOAD = "/etc/ld.so.preload"  # whose libraries every loader takes in, ours too


def labels_of(tag: str, machine: str, spec: SandboxSpec, uid: int) -> dict[str, str]:
    """Whose a container is, and what a later process needs to rescue its workspace: no variable of it, though.

    All are set on every container, so that no label of an image can pose as one of ours.
    """
    kept = {"labels": spec.labels, "limits": spec.limits.model_dump()}
    told = {OWNER_LABEL: tag, MACHINE_LABEL: machine, UID_LABEL: str(uid)}
    return told | {SPEC_LABEL: json.dumps(kept, sort_keys=True)}


def spec_of(labels: Mapping[str, str]) -> SandboxSpec:
    """The spec that `labels_of` wrote down; the default one where that cannot be read."""
    try:
        return SandboxSpec.model_validate_json(labels.get(SPEC_LABEL, ""))
    except ValidationError:
        return SandboxSpec()


def uid_of(labels: Mapping[str, str]) -> int:
    """Whose the commands of a container are. Never an id that is no agent's: its processes are killed by it."""
    told = labels.get(UID_LABEL, "")
    uid = int(told) if told.isascii() and told.isdigit() and len(told) < 10 else AGENT_UID
    return uid if AGENT_UID <= uid < AGENT_UID + AGENT_UIDS else AGENT_UID


def machine_of(identity: str, name: str) -> str:
    """A name for this machine among those that share an engine: of its machine-id and host name."""
    return hashlib.sha256(f"{identity.strip()}\n{name}".encode()).hexdigest()[:16]


def settings_of(
    profile: Profile,
    machine: str,
    *,
    uid: int,
    runtime: str | None,
    shown: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """What `Engine.create` takes for a sandbox of the project's own image; ``shown`` {inside: here}, read-only."""
    mounts = [
        {"target": inside, "source": here, "type": "bind", "read_only": True, "propagation": "rprivate"}
        for inside, here in sorted(shown.items())
    ]
    # Commands get their variables from the supervisor; the keeper and what starts one need none of a task's.
    ours = {"ulimits": rlimits(profile), "mounts": mounts, "environment": dict(ENVIRONMENT)}
    settings = docker_settings(profile, machine, uid) | ours
    if runtime:
        settings["runtime"] = runtime
    return settings


def for_stranger(settings: Mapping[str, Any], image: Image, volume: str) -> dict[str, Any]:
    """The settings with our own programs lent to an image, which chooses nothing that they load.

    A place that an image declares as a volume would be writable, outside every quota; it becomes a small tmpfs. Its
    variables are emptied, since some name libraries, and so is its list of libraries for all programs (the engine's own
    /dev/null is shown there): else its code would run as the keeper, whom nothing ends. Raises SandboxUnavailableError
    where it declares too many volumes.
    """
    if len(image.volumes) > _VOLUMES:
        raise SandboxUnavailableError(
            f"the image {image.id[:19]} declares {len(image.volumes)} volumes; mend: an image with {_VOLUMES} at most"
        )
    ours = set(settings["tmpfs"])
    lent = {"target": BORROWED, "source": volume, "type": "volume", "read_only": True, "no_copy": True}
    emptied = {"target": _PRELOAD, "source": "/dev/null", "type": "bind", "read_only": True}
    places = [
        {"target": place, "source": None, "type": "tmpfs", "tmpfs_size": 16 << 20, "tmpfs_mode": 0o1777}
        for place in sorted(image.volumes)
        if place.rstrip("/") not in ours
    ]
    return dict(settings) | {
        "mounts": [*settings["mounts"], lent, emptied, *places],
        "environment": dict.fromkeys(image.env, "") | settings["environment"],
    }
