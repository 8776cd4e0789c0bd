"""What a spec becomes, in words: one row a property, one column a backend, and the raw settings beneath. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from sandbox.rules.bwrap import bwrap_arguments
from sandbox.rules.calls import RULES, Rule
from sandbox.rules.docker import docker_settings, tmpfs_options
from sandbox.rules.profile import AGENT_UID, AGENT_UIDS, CPU_PERIOD, ENVIRONMENT, SHM, Folder, Profile, profile_of
from sandbox.types import MIB, Backend, Frozen, SandboxSpec

_LAST = AGENT_UID + AGENT_UIDS - 1
_WAYS = {
    "none": "none: no device but lo, no route, no resolver",
    "model": "none but one tunnel to the model gateway, on a loopback port, through the supervisor's own stream",
    "packages": "none but one tunnel to the allowlisting packages proxy, through the supervisor's own stream",
}


class Row(Frozen):
    """One property: what is asked for, and the exact flag or mechanism that keeps it on each backend."""

    property: str
    asked: str
    docker: str
    bwrap: str


class Explanation(Frozen):
    """All of it. ``raw`` are a backend's own settings, as they are given to the engine or on the command line."""

    profile: Profile
    rows: tuple[Row, ...]
    raw: dict[Backend, list[str]]


def explain(spec: SandboxSpec, machine: str = "x86_64") -> Explanation:
    """What a spec becomes on every backend. Raises KeyError for a machine without a system call filter."""
    profile = profile_of(spec)
    raw: dict[Backend, list[str]] = {"docker": _docker_raw(profile, machine), "bwrap": _bwrap_raw(profile, spec)}
    return Explanation(profile=profile, rows=(*_walls(profile, spec), *_limits(profile)), raw=raw)


def _walls(profile: Profile, spec: SandboxSpec) -> Iterable[Row]:
    yield _row("network", _WAYS[profile.network], "network_mode=none", "--unshare-net")
    yield _row("capabilities", "none", "cap_drop=ALL", "--cap-drop ALL, in a user namespace of its own")
    yield _row("new privileges", "never", "no-new-privileges", "PR_SET_NO_NEW_PRIVS, and tmpfs with nosuid")
    calls = f"{len({name for rule in profile.calls for name in rule.names})} system calls refused or narrowed"
    calls += "; foreign architectures killed"
    yield _row("system calls", calls, "seccomp=PROFILE (the engine's default is not enough)", "--seccomp FD")
    yield _row("files, second layer", _landlock(profile), *_both("Landlock, put on each command by the supervisor"))
    shown = f"each folder of {spec.image}, extracted" if spec.image else "/usr of the host and a few files of its /etc"
    docker = f"read_only=true, {f'image {spec.image}' if spec.image else 'the configured image'}"
    yield _row("system", "read-only", docker, f"--ro-bind of {shown}, --remount-ro /")
    for folder in profile.folders:
        yield _folder(folder)
    yield _row(
        "masked",
        f"{len(profile.masked)} files of /proc",
        "the engine's default masks",
        "--ro-bind /dev/null, where present",
    )
    yield _row(
        "user",
        f"{profile.user}, nobody's uid, never root",
        f"one of {AGENT_UID}-{_LAST} for each sandbox; the container is held by another",
        f"uid {AGENT_UID} inside; outside one of {AGENT_UID}-{_LAST} for each sandbox, or the daemon's own",
    )
    yield _row("host name", profile.hostname, f"hostname={profile.hostname}", f"--hostname {profile.hostname}")
    yield _row(
        "namespaces", ", ".join(profile.namespaces), "the engine's, ipc_mode=private", "--unshare-all --disable-userns"
    )
    yield _row(
        "environment",
        f"{len(profile.environment)} variables: {_names(profile)}",
        "environment=ALLOWLIST",
        "--clearenv --setenv",
    )


def _limits(profile: Profile) -> Iterable[Row]:
    limit = str(profile.memory)
    yield _row(
        "memory",
        f"{_size(profile.memory)}, the writable folders included; swap {profile.swap}",
        f"mem_limit={limit}, memswap_limit={profile.memory + profile.swap}",
        f"memory.max={limit}, memory.swap.max={profile.swap} (version 1: memory.limit_in_bytes, memsw)",
    )
    yield _row(
        "processes",
        f"{profile.processes} with threads",
        f"pids_limit={profile.processes}",
        f"pids.max={profile.processes}",
    )
    quota = f"{profile.cpu_quota} of {CPU_PERIOD} µs"
    yield _row("processors", f"{profile.cpus:g}", f"cpu_quota: {quota}", f"cpu.max: {quota}")
    yield _row("largest file", _size(profile.file_size), "ulimit fsize", "RLIMIT_FSIZE")
    yield _row("open files", f"{profile.open_files} a process", "ulimit nofile", "RLIMIT_NOFILE")
    yield _row("core dumps", "none", "ulimit core=0", "RLIMIT_CORE=0")
    yield _row(
        "output kept", f"{_size(profile.output)} a command, head and tail", *_both("cut inside by the supervisor")
    )
    yield _row("time", f"{profile.wall:g} s a command", *_both("then everything inside is killed"))
    yield _row(
        "left-overs", "none: all processes die with their command", *_both("kill(-1) by the supervisor after each")
    )


def _row(name: str, asked: str, docker: str, bwrap: str) -> Row:
    return Row(property=name, asked=asked, docker=docker, bwrap=bwrap)


def _both(mechanism: str) -> tuple[str, str]:
    return mechanism, mechanism


def _folder(folder: Folder) -> Row:
    asked = f"writable, {_size(folder.size)}, {folder.inodes} files, no set-user-id, no devices"
    asked += "" if folder.executable else ", nothing executed"
    docker = f"shm_size={folder.size}" if folder.path == SHM else f"tmpfs {tmpfs_options(folder)}"
    run = "" if folder.executable else ",noexec"
    bwrap = f"tmpfs nosuid,nodev{run},size={folder.size},nr_inodes={folder.inodes},mode={folder.mode:o}; --bind"
    return _row(folder.path, asked, docker, bwrap)


def _landlock(profile: Profile) -> str:
    lock = profile.landlock
    scoped = ", no signal and no abstract socket beyond the command" if lock.scoped else ""
    return f"write {', '.join((*lock.write, *lock.write_data))} and {len(lock.devices)} devices; read the rest{scoped}"


def _names(profile: Profile) -> str:
    more = [name for name, _ in profile.environment if name not in ENVIRONMENT]
    return ", ".join([*ENVIRONMENT, *more])


def _size(count: int) -> str:
    return f"{count / MIB:g} MiB" if count >= MIB else f"{count / 1024:g} KiB"


def _docker_raw(profile: Profile, machine: str) -> list[str]:
    settings: dict[str, Any] = docker_settings(profile, machine)
    return [f"{name} = {json.dumps(value, ensure_ascii=True)}" for name, value in sorted(settings.items())]


def _bwrap_raw(profile: Profile, spec: SandboxSpec) -> list[str]:
    held = {folder.path: f"KEPT{folder.path}" for folder in profile.folders}
    root = ["--ro-bind", "IMAGE/EACH", "/EACH"] if spec.image else ["--ro-bind", "/usr", "/usr"]
    environment = dict(profile.environment)
    words = bwrap_arguments(profile, root, held=held, environment=environment, masked=profile.masked)
    lines: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not lines:
            lines.append([])
        lines[-1].append(word)
    return [" ".join(line) for line in lines]


def calls_told(rules: Iterable[Rule] = RULES) -> list[tuple[str, str]]:
    """Why, and which calls, in the order of the rules; rules of one reason together, narrowed calls in brackets."""
    told: dict[str, list[str]] = {}
    for rule in rules:
        names = [f"({name})" if rule.condition else name for name in rule.names]
        told.setdefault(rule.why, []).extend(name for name in names if name not in told.get(rule.why, []))
    return [(why, " ".join(names)) for why, names in told.items()]
