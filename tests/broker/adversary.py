"""Runs as the coordinator's user with its socket and tries everything; prints what it got as JSON. Broker-free.

    python adversary.py spy       looks at every process and readable file until standard input ends
    python adversary.py attack    tries the sockets, the files and the process once

Standard input's first line is JSON: the canary to look for, and the places.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

import httpx

PRIVATE = ("environ", "mem", "maps", "fd", "cwd", "root", "stack", "pagemap")


def attempts(pid: int) -> list[str]:
    """Places in /proc of a process that showed something."""
    opened = []
    for name in PRIVATE:
        path = Path("/proc") / str(pid) / name
        try:
            if name == "fd":
                list(path.iterdir())
            elif name in {"cwd", "root"}:
                path.readlink()
            else:
                with path.open("rb") as file:
                    if not file.read(1):  # of a process that has just ended
                        continue
        except OSError:
            continue
        opened.append(f"{pid}/{name}")
    return opened


def owner(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def spy(told: dict) -> dict:
    """Until nobody wants it any more: the broker's processes, what they show, and what they do not."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    canaries = [one.encode() for one in told["canaries"]]
    found, opened, lines = [], set(), set()
    while not ended.is_set():
        for entry in os.listdir("/proc"):  # noqa: PTH208 - names alone, and fast
            if not entry.isdigit():
                continue
            try:
                if owner(int(entry)) not in {told["uid"], 0} or int(entry) == os.getpid():
                    continue
                line = Path(f"/proc/{entry}/cmdline").read_bytes()
                theirs = owner(int(entry)) == told["uid"]
            except OSError:
                continue
            found += [f"argv of {entry}" for one in canaries if one in line]
            if theirs or told["broker"] == int(entry):
                lines.add(line.split(b"\0")[0].decode(errors="replace"))
                opened.update(attempts(int(entry)))
        time.sleep(0.002)
    return {"found": found, "opened": sorted(opened), "programs": sorted(lines)}


def ask(place: str, verb: str, path: str, body: object = None) -> object:
    try:
        with httpx.Client(transport=httpx.HTTPTransport(uds=place), base_url="http://b", timeout=30) as http:
            return http.request(verb, path, json=body).status_code
    except httpx.TransportError as error:
        return type(error).__name__


def files(folders: list[str], canaries: list[bytes]) -> tuple[list[str], list[str]]:
    """Files below that could be read, and those that hold a canary."""
    read, found = [], []
    for folder in folders:
        for where, _, names in os.walk(folder):
            for name in names:
                path = Path(where) / name
                try:
                    data = path.read_bytes()
                except OSError:
                    continue
                read.append(str(path))
                found += [str(path) for one in canaries if one in data]
    return read, found


def trace(pid: int) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    return "attached" if libc.ptrace(16, pid, 0, 0) == 0 else os.strerror(ctypes.get_errno())


def denied(action) -> str:
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "done"


def attack(told: dict) -> dict:
    """Everything that a coordinator's user could think of."""
    mine, people, pid = told["socket"], told["people"], told["broker"]
    canaries = [one.encode() for one in told["canaries"]]
    forged = {"capability": "swc2.e30.e30"}
    read, found = files(told["folders"], canaries)
    with socket.socket(socket.AF_UNIX) as spoofed:
        bound = denied(lambda: spoofed.bind(str(Path(people).with_name("other.sock"))))
    return {
        "persons routes": [ask(mine, verb, path, {}) for verb, path in told["persons"]],
        "persons socket": [ask(people, verb, path, {}) for verb, path in told["persons"]],
        "forged": [ask(mine, "POST", f"/v1/{verb}", forged) for verb in ("mirror", "issue", "pull")],
        "health": ask(mine, "GET", "/v1/health"),
        "proc": attempts(pid),
        "ptrace": trace(pid),
        "signal": denied(lambda: os.kill(pid, 0)),
        "unlink": denied(Path(mine).unlink),
        "bind": bound,
        "read": read,
        "found": found,
    }


def main() -> int:
    told = json.loads(sys.stdin.readline())
    json.dump({"spy": spy, "attack": attack}[sys.argv[1]](told), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
