"""The stage of the attacks: a real broker process on a local forge, and an adversary with the coordinator's user.

As root the person, the broker and the coordinator are three users (by number alone: none is made); otherwise one.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.judge.crafted import Crafted, blob, commit, pack, tree
from broker.wire import Proposal, encode_proposal
from house import CHECKOUT, python_for_all

BROKER_UID, COORDINATOR_UID, STRANGER_UID = 64_811, 64_812, 64_813
Content = bytes | tuple[str, bytes] | None
BASE: dict[str, Content] = {
    "README.md": b"A sample.\n",
    "LICENSE": b"MIT License\n\nCopyright (c) 2021 A. Person\n\nPermission is hereby granted, free of charge, to all\n",
    "src/clamp.py": b"# SPDX-License-Identifier: MIT\ndef clamp(x, low, high):\n    return max(low, min(x, low))\n",
    "tests/test_clamp.py": b"from src.clamp import clamp\n\n\ndef test_high():\n    assert clamp(9, 0, 5) == 5\n",
    ".github/workflows/ci.yml": b"on: push\n",
}
GOOD: dict[str, Content] = {
    "src/clamp.py": b"# SPDX-License-Identifier: MIT\ndef clamp(x, low, high):\n    return max(low, min(x, high))\n"
}


class SurvivedError(Exception):
    """The attack got through."""


class ToothlessError(Exception):
    """The attack does not even bite where nothing defends."""


class NotHereError(Exception):
    """This machine or user cannot carry the attack out."""


@dataclass(frozen=True)
class Answer:
    """What the broker said: a status and a message."""

    status: int
    body: dict[str, Any]

    @property
    def kind(self) -> str:
        """receipt, refusal, or the code of a problem."""
        return str(self.body.get("kind") or self.body.get("code") or self.status)

    @property
    def rules(self) -> set[str]:
        """The rules of its findings."""
        return {finding["rule"] for finding in self.body.get("findings", ())}


@dataclass(frozen=True)
class Folder:
    """A tree and all objects below it."""

    root: Crafted
    objects: tuple[Crafted, ...]


def folder(files: Mapping[str, Content]) -> Folder:
    """The tree of these files, sorted as git sorts; None leaves a file out."""
    here: dict[bytes, tuple[str, Crafted | None, str]] = {}
    below: dict[str, dict[str, Content]] = {}
    for path, content in files.items():
        first, _, rest = path.partition("/")
        if rest and content is not None:
            below.setdefault(first, {})[rest] = content
        elif content is not None:
            mode, data = content if isinstance(content, tuple) else ("100644", content)
            made = None if mode == "160000" else blob(data)
            here[first.encode()] = mode, made, made.oid if made else data.decode()
    objects: list[Crafted] = [made for _, made, _ in here.values() if made]
    entries = [(mode, name, oid) for name, (mode, _, oid) in here.items()]
    for name, inner in below.items():
        made_below = folder(inner)
        objects += [made_below.root, *made_below.objects]
        entries.append(("40000", name.encode(), made_below.root.oid))
    entries.sort(key=lambda entry: entry[1] + (b"/" if entry[0] == "40000" else b""))
    return Folder(tree(*entries), tuple(objects))


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("broker", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


@dataclass
class Stage:
    """One broker, its forge, and the two sides that call it."""

    base: Path
    canary: str = field(default_factory=lambda: f"canary-{secrets.token_hex(12)}")
    process: subprocess.Popen[bytes] | None = None
    parted: bool = field(default_factory=lambda: os.geteuid() == 0)
    delivered: dict[str, str] = field(default_factory=dict)
    known_refs: dict[str, str] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _grants: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """What only the broker's user may enter."""
        return self.base / "broker"

    @property
    def forge(self) -> Path:
        """The bare repository."""
        return self.home / "demo.git"

    @property
    def socket(self) -> Path:
        """The coordinator's."""
        return self.base / "run" / "broker.sock"

    @property
    def people(self) -> Path:
        """The people's."""
        return self.base / "run" / "person.sock"

    @property
    def log(self) -> Path:
        """What the broker printed."""
        return self.base / "broker.log"

    # --- the broker

    def prepare(self) -> None:
        """Makes the forge, the settings and the credential."""
        self.base.chmod(0o755)
        for made, mode in ((self.home, 0o700), (self.base / "run", 0o755)):
            made.mkdir()
            made.chmod(mode)
        self.git("init", "-q", "--bare", "-b", "main", where=self.forge)
        start = folder(BASE)
        first = commit(start.root.oid)
        self.give(first, start.root, *start.objects)
        self.git("update-ref", "refs/heads/main", first.oid)
        self.known_refs["refs/heads/main"] = first.oid
        (self.home / "credential").write_text(self.canary + "\n")
        (self.home / "credential").chmod(0o600)
        self.configure()
        if self.parted:
            for path in (self.base / "run", self.home, *self.home.rglob("*")):
                os.chown(path, BROKER_UID, BROKER_UID)

    def configure(self, policy: str = "", more: str = "") -> None:
        """Writes broker.toml; a running broker takes it over."""
        person, coordinator = (0, COORDINATOR_UID) if self.parted else (os.getuid(), os.getuid())
        file = self.home / "broker.toml"
        draft = file.with_suffix(".draft")
        draft.write_text(
            f'socket = "{self.socket}"\nstate = "{self.home}/state"\nmax_body_bytes = 4194304\n{more}\n'
            f"[roles]\nperson = [{person}]\ncoordinator = [{coordinator}]\n"
            f'[repositories.demo]\nforge = "local"\npath = "{self.forge}"\nvisibility = "private"\n'
            f'credential.token.file = "{self.home}/credential"\n'
            f"[repositories.demo.policy]\nmax_per_hour = 500\nmax_per_day = 5000\nmax_open_pulls = 1000\n{policy}\n"
        )
        draft.chmod(0o600)
        if self.parted:
            os.chown(draft, BROKER_UID, BROKER_UID)
        draft.replace(file)

    def start(self) -> None:
        """Starts the broker and waits for its sockets. Raises RuntimeError with what it said."""
        python = python_for_all(self.base)
        as_user = {"user": BROKER_UID, "group": BROKER_UID, "extra_groups": []} if self.parted else {}
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [str(python), "-m", "broker", "serve", "--config", str(self.home / "broker.toml")],
                cwd=CHECKOUT if (python.parent.parent.parent == CHECKOUT) else "/",
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={"PATH": "/usr/bin:/bin", "HOME": str(self.home)},
                **as_user,  # type: ignore[arg-type]
            )
        deadline = time.monotonic() + 40
        while self.process.poll() is None and time.monotonic() < deadline:
            if self.listens():
                return
            time.sleep(0.05)
        raise RuntimeError(f"the broker did not start: {self.log.read_text(errors='replace')[-2000:]}")

    def listens(self) -> bool:
        """Whether somebody accepts connections on both sockets."""
        with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as other:
            return one.connect_ex(str(self.socket)) == 0 == other.connect_ex(str(self.people))

    def stop(self, number: int = signal.SIGTERM) -> int | None:
        """Ends the broker; its exit code."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(40)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()

    # --- the two sides

    def person(self, verb: str, path: str, body: object = None) -> Answer:
        """A call by the person, on the people's socket."""
        data = b"" if body is None else json.dumps(body).encode()
        return self.call(self.people, verb, path, data)

    def adversary(self, verb: str, path: str, body: object = None, *, people: bool = False) -> Answer:
        """A call by whoever took the coordinator over, with its user."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        with self.as_coordinator():
            return self.call(self.people if people else self.socket, verb, path, data)

    @contextmanager
    def as_coordinator(self, uid: int = COORDINATOR_UID) -> Iterator[None]:
        """This process with another effective user, as the kernel then tells the broker."""
        if not self.parted:
            yield
            return
        os.setegid(uid)
        os.seteuid(uid)
        try:
            yield
        finally:
            os.seteuid(0)
            os.setegid(0)

    @staticmethod
    def call(where: Path, verb: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        """One call; a body that is no JSON object is told by its length."""
        connection = _UnixConnection(where, 60)
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # turned down before all of it was sent
                connection.request(verb, path, body=body, headers=dict(headers or {}))
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        with suppress(ValueError):
            found = json.loads(said)
            return Answer(answer.status, found if isinstance(found, dict) else {"value": found})
        return Answer(answer.status, {"bytes": len(said)})

    def task(self) -> str:
        """A task's name that was not used yet."""
        return f"t{next(self._numbers)}"

    def grant(self, task: str, **more: object) -> dict[str, Any]:
        """A person's grant. Raises RuntimeError if it was not given."""
        if task not in self._grants:
            answer = self.person("POST", "/v1/grant", {"repository": "demo", "task": task, **more})
            if answer.status != 200:
                raise RuntimeError(f"no grant: {answer.body}")
            self._grants[task] = answer.body
        return self._grants[task]

    # --- proposals

    def offer(self, files: Mapping[str, Content], task: str | None = None, **words: object) -> Answer:
        """Proposes the base with these files changed."""
        sealed = folder({**BASE, **files})
        return self.propose(sealed.root, sealed.objects, task, **words)

    def plant(
        self, *entries: tuple[str, bytes, str], objects: Sequence[Crafted] = (), in_order: bool = True, **words: object
    ) -> Answer:
        """Proposes a tree made by hand: README.md and these entries, sorted as git sorts or as they are given."""
        readme = BASE["README.md"]
        assert isinstance(readme, bytes)  # noqa: S101 - a constant above
        all_of_them = [("100644", b"README.md", blob(readme).oid), *entries]
        if in_order:
            all_of_them.sort(key=lambda entry: entry[1] + (b"/" if entry[0] == "40000" else b""))
        return self.propose(tree(*all_of_them), objects, **words)

    def propose(
        self, root: Crafted, objects: Sequence[Crafted], task: str | None = None, *, sent: bytes | None = None,
        **words: object,
    ) -> Answer:  # fmt: skip
        """Proposes a tree with a pack of the objects, or with the bytes ``sent``."""
        task = task or self.task()
        grant = self.grant(task)
        known = {made.oid for made in (folder(BASE).root, *folder(BASE).objects)}
        packed = pack([root, *(made for made in objects if made.oid not in known)]) if sent is None else sent
        proposal = {
            "id": f"{task}-p", "capability": grant["capability"], "task": task, "base_commit": grant["base_commit"],
            "tree": root.oid, "title": "Fix clamp", **words,
        }  # fmt: skip
        answer = self.adversary("POST", "/v1/propose", encode_proposal(Proposal.model_validate(proposal), packed))
        if answer.kind == "receipt":
            self.delivered[answer.body["branch"]] = answer.body["commit"]
        return answer

    def intruders(self) -> list[str]:
        """Refs of the forge that no receipt of this stage explains."""
        wanted = {f"refs/heads/{branch}": commit_id for branch, commit_id in self.delivered.items()}
        pulls = set(wanted.values())
        return [
            ref
            for ref, oid in self.refs().items()
            if not (ref.startswith("refs/pull/") and oid in pulls)
            and wanted.get(ref) != oid
            and self.known_refs.get(ref) != oid
        ]

    # --- the forge

    def git(self, *args: str, stdin: bytes = b"", where: Path | None = None) -> str:
        """Plain git on the forge, or elsewhere, as this user; its output. Raises CalledProcessError."""
        env = {"PATH": "/usr/bin:/bin", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/"}
        people = {f"GIT_{who}_{key}": "a" for who in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
        where = where or self.forge
        command = ["git", "-c", "safe.directory=*", "-c", "gc.auto=0", *args]
        done = subprocess.run(
            [*command, str(where)] if args[0] == "init" else command,
            input=stdin,
            capture_output=True,
            check=True,
            env={**env, **people, **({} if args[0] == "init" else {"GIT_DIR": str(where)})},
        )
        return done.stdout.decode(errors="replace").rstrip("\n")

    def give(self, *objects: Crafted) -> None:
        """Puts objects into the forge, as a forge of others would hold them."""
        self.git("index-pack", "--stdin", stdin=pack(objects))
        self.own()

    def own(self) -> None:
        """Gives what this user wrote into the forge to the broker's user."""
        if self.parted:
            for path in (self.forge, *self.forge.rglob("*")):
                os.chown(path, BROKER_UID, BROKER_UID)

    def refs(self) -> dict[str, str]:
        """All refs of the forge."""
        lines = self.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return dict(line.split(" ") for line in lines)

    def undefended(self, sent: bytes, *options: str) -> bool:
        """Whether plain `git index-pack` takes a pack, in a fresh repository that sees the forge's objects."""
        with tempfile.TemporaryDirectory() as scratch:
            there = Path(scratch) / "g"
            self.git("init", "-q", "--bare", where=there)
            (there / "objects" / "info" / "alternates").write_text(f"{self.forge}/objects\n")
            try:
                self.git("index-pack", "--stdin", *options, stdin=sent, where=there)
            except subprocess.CalledProcessError:
                return False
        return True


@contextmanager
def staged() -> Iterator[Stage]:
    """A stage with a running broker; all gone when the block ends."""
    with tempfile.TemporaryDirectory(prefix="attack-", dir="/tmp" if Path("/tmp").is_dir() else None) as base:  # noqa: S108 - made fresh
        stage = Stage(Path(base))
        stage.prepare()
        try:
            stage.start()
            yield stage
        finally:
            stage.stop()


def python_version() -> str:
    """For the head of the table."""
    return sys.version.split()[0]
