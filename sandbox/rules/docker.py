"""The profile as the Docker engine takes it. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from sandbox.rules.calls import ARCHITECTURES, RULES, Condition, Rule
from sandbox.rules.profile import AGENT_UID, CPU_PERIOD, KEEPER_UID, SHM, WORK, Folder, Profile


def docker_seccomp(machine: str, rules: Iterable[Rule] = RULES) -> str:
    """The rules as Docker's JSON, for this machine's architecture alone, so that no foreign one walks around them.

    Raises KeyError for an architecture without a known name.
    """
    return json.dumps(
        {
            "defaultAction": "SCMP_ACT_ALLOW",
            "architectures": [ARCHITECTURES[machine]],
            "syscalls": [
                {
                    "names": list(rule.names),
                    "action": "SCMP_ACT_ERRNO",
                    "errnoRet": rule.errno,
                    "args": [_condition(rule.condition)] if rule.condition else [],
                }
                for rule in rules
            ],
        }
    )


def _condition(condition: Condition) -> dict[str, Any]:
    masked = condition.compare == "MASKED_EQ"
    return {
        "index": condition.argument,
        "op": f"SCMP_CMP_{condition.compare}",
        "value": condition.mask if masked else condition.value,
        "valueTwo": condition.value if masked else 0,
    }


def docker_settings(profile: Profile, machine: str, uid: int = AGENT_UID) -> dict[str, Any]:
    """Keyword arguments of the SDK's ``containers.create``; image, name, command, labels and ulimits are the caller's.

    Commands are run in it as ``uid``. The engine masks parts of /proc and /sys by itself.
    """
    return {
        "network_mode": "none",
        "dns": ["127.0.0.1"],  # the engine would copy the host's name servers and domains into the container
        "dns_search": ["."],
        "user": f"{KEEPER_UID}:{KEEPER_UID}",
        "init": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges", f"seccomp={docker_seccomp(machine, profile.calls)}"],
        "read_only": profile.read_only_root,
        "ipc_mode": "private",
        "cgroupns": "private",
        "shm_size": profile.folder(SHM).size,
        "tmpfs": {folder.path: tmpfs_options(folder, uid) for folder in profile.folders if folder.path != SHM},
        "pids_limit": profile.processes,
        "mem_limit": profile.memory,
        "memswap_limit": profile.memory + profile.swap,
        "cpu_period": CPU_PERIOD,
        "cpu_quota": profile.cpu_quota,
        "environment": dict(profile.environment),
        "working_dir": WORK,
        "hostname": profile.hostname,
    }


def tmpfs_options(folder: Folder, uid: int = AGENT_UID) -> str:
    """Mount options of one writable place; the engine would add noexec where exec is not said."""
    owner = f",uid={uid},gid={uid}" if folder.mode & 0o002 == 0 else ""
    run = "exec" if folder.executable else "noexec"
    return f"rw,nosuid,nodev,{run},size={folder.size},nr_inodes={folder.inodes},mode={folder.mode:o}{owner}"
