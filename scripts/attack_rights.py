"""Attacks by a taken-over coordinator: with capabilities, names, approvals, the sockets, the process and its files."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from attack_rows import Attack, both, denied, stopped
from attack_stage import (
    BASE,
    COORDINATOR_UID,
    GOOD,
    STRANGER_UID,
    Answer,
    Folder,
    NotHereError,
    Stage,
    SurvivedError,
    ToothlessError,
    folder,
)
from broker.audit import verify
from broker.capability import Caveat, narrow
from broker.errors import AuditError
from broker.judge.crafted import pack
from house import python_for_all

LOOKER = Path(__file__).with_name("canary.py")
PTRACE_ATTACH = 16


def require(*, holds: bool, otherwise: str) -> None:
    """Raises SurvivedError unless it holds."""
    if not holds:
        raise SurvivedError(otherwise)


# --- capabilities


def forged_capability(stage: Stage) -> str:
    """Made up, altered in its words, cut, and with another's signature."""
    real = stage.grant(stage.task())["capability"]
    other = stage.grant(stage.task())["capability"]
    prefix, block, tail = real.split(".")
    words = json.loads(base64.urlsafe_b64decode(block + "=" * (-len(block) % 4)))
    words |= {"branch": "main", "base": "private", "uses": 100, "expires": 1e12}
    widened = base64.urlsafe_b64encode(json.dumps(words).encode()).decode().rstrip("=")
    narrowed = narrow(real, Caveat(uses=1, verbs=("mirror",)))
    without_caveat = ".".join([*narrowed.split(".")[:2], narrowed.split(".")[-1]])
    forged = (
        f"{prefix}.{widened}.{tail}", f"{prefix}.{block}.{other.split('.')[2]}", f"{prefix}.{block}.", without_caveat,
        "swc2.e30.e30", "", real[:-4] + "AAAA", real + ".e30",
    )  # fmt: skip
    return both(*(denied(stage.offer(GOOD, capability=one), "capability") for one in forged))


def widened_capability(stage: Stage) -> str:
    """Caveats that would add something, and ones that this broker does not know."""
    task = stage.task()
    real = stage.grant(task)["capability"]
    more = narrow(narrow(real, Caveat(verbs=("mirror",))), Caveat(verbs=("mirror", "propose"), uses=99, expires=1e12))
    first = denied(stage.offer(GOOD, task, capability=more), "capability")
    prefix, block, tail = real.split(".")
    strange = base64.urlsafe_b64encode(b'{"branch":"main"}').decode().rstrip("=")
    return both(first, denied(stage.offer(GOOD, task, capability=f"{prefix}.{block}.{strange}.{tail}"), "capability"))


def stale_capability(stage: Stage) -> str:
    """Expired, revoked by a person, and used up."""
    real = stage.grant(stage.task())["capability"]
    expired = denied(stage.offer(GOOD, capability=narrow(real, Caveat(expires=1.0))), "capability")
    task = stage.task()
    name = stage.grant(task)["id"]
    if stage.person("POST", f"/v1/grants/{name}/revoke").status != 200:
        raise SurvivedError("a person could not revoke")
    revoked = denied(stage.offer(GOOD, task), "capability", "rights")
    spent = stage.task()
    stopped(stage.offer({"package.json": b"{}\n"}, spent), "protected-path")
    used = denied(stage.offer(GOOD, spent, id=f"{spent}-again"), "capability")
    return both(f"expired, revoked, used up, {expired}", revoked, used)


def other_places(stage: Stage) -> str:
    """Another task, another base commit, another repository, a destination of its own choice."""
    task, other = stage.task(), stage.task()
    elsewhere = stage.grant(other)["capability"]
    said = [
        denied(stage.offer(GOOD, task, capability=elsewhere), "capability"),
        denied(stage.offer(GOOD, task, base_commit="1" * 40), "capability"),
    ]
    real = stage.grant(task)["capability"]
    asks = ({"capability": real, "repository": "other"}, {"capability": real, "have": ["x"]})
    met = ("capability", "absent", "malformed", "rights")
    said += [denied(stage.adversary("POST", "/v1/mirror", ask), *met) for ask in asks]
    wishes = ("branch", "base", "remote", "repository", "url", "policy", "draft", "labels", "author", "force")
    said += [denied(raw(stage, task, **{wish: "main"}), "malformed") for wish in wishes]
    return both(*said)


def raw(stage: Stage, task: str, /, **more: object) -> Answer:
    """Proposes with a head that no model of the wire has checked before."""
    grant, sealed_tree = stage.grant(task), folder({**BASE, **GOOD})
    words: dict[str, object] = {
        "id": f"{task}-raw", "capability": grant["capability"], "task": task, "base_commit": grant["base_commit"],
        "tree": sealed_tree.root.oid, "title": "T", **more,
    }  # fmt: skip
    head = json.dumps(words).encode()
    body = b"SWP1" + len(head).to_bytes(4, "big") + head + pack([sealed_tree.root, *sealed_tree.objects])
    return stage.adversary("POST", "/v1/propose", body)


def replayed_id(stage: Stage) -> str:
    """A proposal's id again with other content, before and after the verdict."""
    task = stage.task()
    stage.grant(task, uses=5)
    first = stage.offer(GOOD, task)
    other = denied(stage.offer({"src/clamp.py": b"pass\n"}, task), "conflict")
    again = stage.offer(GOOD, task)
    require(holds=again == first, otherwise="the same proposal got another answer")
    return f"{other}; the same again is the same pull request"


def swap_after_approval(stage: Stage) -> str:
    """Approved is one content; another is then sent under its name, or the approval is given to another digest."""
    task = stage.task()
    stage.grant(task, uses=5)
    files = {**GOOD, "package.json": b'{"name": "asked"}\n'}
    refusal = stage.offer(files, task)
    stopped(refusal, "protected-path")
    name, digest = refusal.body["proposal"], refusal.body["digest"]
    own = denied(stage.adversary("POST", f"/v1/outbox/{name}/approve", {"digest": digest}), "404")
    swapped = denied(stage.offer({**files, "package.json": b'{"name": "evil"}\n'}, task), "conflict")
    wrong = denied(stage.person("POST", f"/v1/outbox/{name}/approve", {"digest": "0" * 64}), "conflict")
    receipt = stage.person("POST", f"/v1/outbox/{name}/approve", {"digest": digest})
    require(holds=receipt.kind == "receipt", otherwise=f"a person could not approve: {receipt.body}")
    stage.delivered[receipt.body["branch"]] = receipt.body["commit"]
    tree = stage.git("rev-parse", f"{receipt.body['commit']}^{{tree}}")
    require(holds=tree == folder({**BASE, **files}).root.oid, otherwise="another tree was pushed than was approved")
    bomb = stage.plant(("100664", b"z", folder(BASE).objects[0].oid))
    never = stage.person("POST", f"/v1/outbox/{bomb.body['proposal']}/approve", {"digest": bomb.body["digest"]})
    return both(own, swapped, wrong, denied(never, "never"), "delivered is what was approved")


def overwritten_people(stage: Stage) -> str:
    """A person pushed to the pull request's branch; an update, a retry and a second proposal would undo it."""
    task = stage.task()
    stage.grant(task, uses=5)
    first = stage.offer(GOOD, task)
    branch, ours = first.body["branch"], first.body["commit"]
    theirs = folder({**BASE, **GOOD, "notes.txt": b"a person wrote this\n"})
    made = stage.git("commit-tree", "-p", ours, "-m", "mine", _in_forge(stage, theirs))
    stage.git("update-ref", f"refs/heads/{branch}", made)
    stage.own()
    stage.delivered[branch] = made
    stage.known_refs[f"refs/pull/{first.body['number']}/head"] = ours
    said = []
    for number, base in enumerate((ours, stage.grant(task)["base_commit"])):
        more = {"src/clamp.py": b"# SPDX-License-Identifier: MIT\ndef clamp():\n    return %d\n" % number}
        answer = stage.offer(more, task, id=f"{task}-u{number}", update=True, base_commit=base)
        said.append(f"{answer.status} {answer.kind} {', '.join(sorted(answer.rules))}".strip())
        require(holds=answer.kind != "receipt", otherwise="the update was delivered")
    require(holds=stage.refs()[f"refs/heads/{branch}"] == made, otherwise="a person's commit was overwritten")
    return both(*said)


def _in_forge(stage: Stage, made: Folder) -> str:
    stage.give(made.root, *made.objects)
    return made.root.oid


def persons_verbs(stage: Stage) -> str:
    """The coordinator asks for grants, approvals, stops, the log, merges and a token; on both sockets."""
    calls: tuple[tuple[str, str, object], ...] = (
        ("POST", "/v1/grant", {"repository": "demo", "task": "mine"}), ("GET", "/v1/grants", None),
        ("POST", "/v1/stops", {"stopped": False}), ("GET", "/v1/log", None), ("GET", "/v1/outbox", None),
        ("POST", "/v1/outbox/t1-p/approve", {"digest": "0" * 64}), ("POST", "/v1/pulls/demo/1/merge", None),
        ("GET", "/v1/token", None), ("POST", "/v1/credential", {}), ("GET", "/v1/config", None),
    )  # fmt: skip
    said = [denied(stage.adversary(*call), "404", "405") for call in calls]
    if stage.parted:
        said += [denied(stage.adversary(*call, people=True), "rights", "404") for call in calls]
        with stage.as_coordinator(STRANGER_UID):
            said.append(denied(stage.call(stage.socket, "POST", "/v1/mirror", b'{"capability": "x"}'), "rights"))
    return both(*said)


def kill_switch(stage: Stage) -> str:
    """A person stopped everything; the coordinator goes on asking, and tries to take the stop back."""
    task = stage.task()
    stage.grant(task, uses=5)
    stop = {"repository": "demo", "stopped": True, "reason": "attack"}
    require(holds=stage.person("POST", "/v1/stops", stop).status == 200, otherwise="a person could not stop")
    try:
        refused = denied(stage.offer(GOOD, task), "stopped")
        denied(stage.adversary("POST", "/v1/stops", {"stopped": False}), "404")
        denied(stage.person("POST", "/v1/grant", {"repository": "demo", "task": stage.task()}), "stopped")
        require(holds=f"refs/heads/swarm/{task}" not in stage.refs(), otherwise="it was pushed while stopped")
    finally:
        stage.person("POST", "/v1/stops", {**stop, "stopped": False})
    receipt = stage.offer(GOOD, task)
    require(holds=receipt.kind == "receipt", otherwise=f"it was lost instead of kept: {receipt.body}")
    return f"{refused}; kept, and delivered once a person let it go on"


# --- names


def injected_names(stage: Stage) -> str:
    """Options, shell words, traversal, refspecs and hidden characters as task, base, id and address."""
    mark = Path(tempfile.gettempdir()) / f"ran-{os.getpid()}"
    words = (
        f"--upload-pack=touch {mark}", "-x", "../../etc", "a..b", "a.lock", "main:x", "+main", "refs/heads/main",
        "HEAD^", f"$(touch {mark})", f"`touch {mark}`", f"x;touch {mark}", "a b", "\u202emain", "x\n", "@{0}", "a//b",
        "~1", "*", "0" * 40, "x" * 300,
    )  # fmt: skip
    bad = {"malformed", "conflict", "absent", "404"}
    said = []
    for word in words:
        asks = [{"task": "t", "base": word}] if _is_plain(word) else [{"task": word}, {"task": "t", "base": word}]
        said += [denied(stage.person("POST", "/v1/grant", {"repository": "demo", **ask}), *bad) for ask in asks]
        if not _is_plain(word):
            said += [denied(raw(stage, "named", **{key: word}), *bad) for key in ("id", "tree", "task", "base_commit")]
    paths = (
        "/v1/proposals/..%2f..%2fstate",
        "/v1/proposals/%00",
        "/v1/../v1/log",
        "//v1/log",
        "/v1/provenance/..%2fx/1",
    )
    said += [denied(stage.adversary("GET", path), *bad, "405", "400") for path in paths]
    require(holds=not mark.exists(), otherwise="a command in a name ran")
    return f"{len(said)} tries, {both(*said)}"


def _is_plain(word: str) -> bool:
    return bool(re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", word))  # as good an id or a task as any other


def flood(stage: Stage) -> str:
    """One grant, many proposals: its uses are counted once, whatever the ids."""
    task = stage.task()
    stage.grant(task, uses=1)
    kinds = [stage.offer({"src/clamp.py": b"# %d\n" % n}, task, id=f"{task}-{n}").kind for n in range(6)]
    require(holds=kinds.count("receipt") == 1 and set(kinds[1:]) == {"capability"}, otherwise=str(kinds))
    return "denied: 403 capability; one pull request"


# --- the door


_SMUGGLED = (
    b"POST /v1/propose HTTP/1.1\r\nHost: b\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    b"GET /v1/log HTTP/1.1\r\n\r\n"
)


def malformed_http(stage: Stage) -> str:
    """Bodies that lie about themselves, requests that are none, and one over the limit."""
    bodies = (
        b"", b"SWP1", b"SWP1\xff\xff\xff\xff{}", b"XXXX\0\0\0\2{}", b"SWP1\0\0\0\2{}", b"SWP1\0\0\0\4null",
        b"SWP1" + (60_000).to_bytes(4, "big") + b"[" * 60_000, b'SWP1\0\0\0\x09{"id": 1}', os.urandom(5000),
    )  # fmt: skip
    said = [denied(stage.adversary("POST", "/v1/propose", body), "malformed") for body in bodies]
    said.append(denied(stage.adversary("POST", "/v1/mirror", b"[" * 50_000), "malformed"))
    said.append(denied(stage.adversary("POST", "/v1/propose", bytes(5 << 20)), "413", "too-large"))
    requests = (
        b"\0\0\0\0\r\n\r\n", b"GET /v1/log HTTP/9.9\r\n\r\n", b"GET " + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /v1/propose HTTP/1.1\r\nHost: b\r\nContent-Length: -1\r\n\r\n",
        _SMUGGLED,
        b"POST /v1/propose HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /v1/health HTTP/1.1\r\nHost: b\r\n" + b"X: y\r\n" * 20_000,
    )  # fmt: skip
    for sent in requests:
        answer = _spoken(stage, sent)
        require(holds=b" 200 " not in answer[:20], otherwise=f"{sent[:40]!r} was answered {answer[:60]!r}")
    require(holds=stage.adversary("GET", "/v1/health").status == 200, otherwise="the broker no longer answers")
    return f"{both(*said)}; {len(requests)} malformed requests turned down"


def _spoken(stage: Stage, sent: bytes) -> bytes:
    with stage.as_coordinator(), socket.socket(socket.AF_UNIX) as line:
        line.settimeout(5)
        line.connect(str(stage.socket))
        with contextlib.suppress(OSError):
            line.sendall(sent)
            return line.recv(4096)
    return b""


def slow_http(stage: Stage) -> str:
    """Thirty connections that never end their request: the person's socket and the next caller are still served."""
    half = b"POST /v1/propose HTTP/1.1\r\nHost: b\r\nContent-Length: 1000\r\n\r\nSWP1"
    with contextlib.ExitStack() as lines:
        for number in range(30):
            line = lines.enter_context(socket.socket(socket.AF_UNIX))
            with stage.as_coordinator():
                line.connect(str(stage.socket))
            line.sendall(half if number % 2 else half[:20])
        began = time.monotonic()
        person = stage.person("GET", "/v1/health").status
        caller = stage.adversary("GET", "/v1/health").status
        took = time.monotonic() - began
    require(holds=person == caller == 200 and took < 5, otherwise=f"person {person}, caller {caller}, {took:.1f} s")
    return f"neutralised: others served in {took:.2f} s"


# --- the process and its files


def reading_the_broker(stage: Stage) -> str:
    """As the coordinator's user: its environment, arguments, memory and files, ptrace, and the people's socket."""
    if not stage.parted or stage.process is None:
        raise NotHereError("needs root, to be another user than the broker")
    if stage.canary not in (stage.home / "credential").read_text():
        raise ToothlessError("there is no credential to be found")
    process = Path("/proc") / str(stage.process.pid)
    files = [stage.home / name for name in ("", "state", "credential", "broker.toml", "demo.git")]
    places = [*files, *(process / name for name in ("environ", "mem", "maps", "fd", "stack"))]
    ask = {
        "secret": stage.canary, "folders": [str(stage.base)], "shut": [str(place) for place in places],
        "trees": [stage.process.pid],
    }  # fmt: skip
    looked = subprocess.run(
        [str(python_for_all(stage.base)), str(LOOKER)], input=json.dumps(ask), capture_output=True, text=True,
        check=True, user=COORDINATOR_UID, group=COORDINATOR_UID, extra_groups=[], cwd="/", env={},
    )  # fmt: skip
    found = json.loads(looked.stdout)
    require(holds=found == [], otherwise=str(found))
    libc = ctypes.CDLL(None, use_errno=True)
    with stage.as_coordinator():
        attached = libc.ptrace(PTRACE_ATTACH, stage.process.pid, 0, 0)
    require(holds=attached == -1, otherwise="ptrace attached")
    mode = stat.S_IMODE((stage.home / "state").stat().st_mode)
    require(holds=mode == 0o700, otherwise=f"the state folder has mode {mode:o}")
    return "denied: no file, environment, memory or trace of it can be read"


def secrets_that_leak(stage: Stage) -> str:
    """The credential in arguments, environment, output, log, outbox, mirror, answers or the pull request."""
    seen: set[str] = set()
    task = stage.task()
    stage.grant(task)
    with _watched(stage.canary, seen):
        receipt = stage.offer(GOOD, task)
    require(holds=not seen, otherwise=f"seen in {sorted(seen)}")
    require(holds=stage.canary not in str(receipt.body), otherwise="the answer holds it")
    for path in stage.base.rglob("*"):
        if path.is_file() and path != stage.home / "credential" and stage.canary.encode() in path.read_bytes():
            raise SurvivedError(f"{path.relative_to(stage.base)} holds it")
    return "neutralised: nowhere but in its own file"


@contextlib.contextmanager
def _watched(secret: str, seen: set[str]) -> Iterator[None]:
    code = (
        "import os, sys\nsecret = sys.stdin.readline().strip().encode()\nprint('on', flush=True)\n"
        "while os.getppid() > 1:\n"
        "  for pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "    for name in ('cmdline', 'environ'):\n"
        "      try:\n        data = open(f'/proc/{pid}/{name}', 'rb').read()\n"
        "      except OSError:\n        continue\n"
        "      if secret in data: print(pid, name, flush=True)\n"
    )
    watcher = subprocess.Popen(["python3", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert watcher.stdin is not None and watcher.stdout is not None  # noqa: S101, PT018 - pipes, as asked for above
    watcher.stdin.write(secret + "\n")
    watcher.stdin.flush()
    watcher.stdout.readline()
    try:
        yield
    finally:
        watcher.terminate()
        seen.update(watcher.communicate()[0].split("\n"))
        seen.discard("")


def log_tampering(stage: Stage) -> str:
    """A line changed, one taken out, the end cut off, and one made up: none verifies, and the broker will not start."""
    log = stage.home / "state" / "audit.log"
    lines, head = log.read_bytes().splitlines(keepends=True), log.with_suffix(".head").read_bytes()
    forged = {
        "changed": [lines[0].replace(b'"start"', b'"stopt"'), *lines[1:]],
        "taken out": [lines[0], *lines[2:]],
        "cut": lines[:-2],
        "made up": [*lines, lines[-1]],
        "swapped": [lines[1], lines[0], *lines[2:]],
    }
    with tempfile.TemporaryDirectory() as scratch:
        for name, content in forged.items():
            copy = Path(scratch) / "audit.log"
            copy.write_bytes(b"".join(content))
            copy.with_suffix(".head").write_bytes(head)
            with contextlib.suppress(AuditError):
                verify(copy)
                raise SurvivedError(f"a log with a line {name} verifies")
        shutil.copy(log, Path(scratch) / "whole")
        stage.stop()
        after = log.read_bytes()
        log.write_bytes(after.replace(b'"proposal"', b'"propasal"', 1))
        try:
            stage.start()
        except RuntimeError as error:
            said = str(error)
        else:
            raise SurvivedError("the broker works on with a broken log")
        finally:
            log.write_bytes(after)
    require(holds="line" in said, otherwise=f"it does not say where: {said[-300:]}")
    stage.start()
    return "refused: five forgeries, and the broker does not start on one"


RIGHTS = (
    Attack("forged capability", "1.4", forged_capability),
    Attack("widened capability", "1.4", widened_capability),
    Attack("expired, revoked, used-up capability", "1.4", stale_capability),
    Attack("another task, base, repository, branch", "1.4; securefix", other_places),
    Attack("proposal id used again", "1.4 replay", replayed_id),
    Attack("swap after approval", "1.4; OneKey #10922", swap_after_approval),
    Attack("a person's commit overwritten", "3 create-only push", overwritten_people),
    Attack("a person's verbs, and a token", "1.4", persons_verbs),
    Attack("kill switch bypassed", "3 kill switch", kill_switch),
    Attack("names as options, paths, commands, refs", "1.4; gogs GHSA-2grc-qr7q-6m36", injected_names),
    Attack("many proposals on one grant", "1.2 flooding", flood),
    Attack("malformed and oversized HTTP", "1.4", malformed_http),
    Attack("slow HTTP", "1.4", slow_http),
    Attack("environment, memory, files of the broker", "1.2; 1.4", reading_the_broker, quick=False),
    Attack("credential in argv, output, log, answers", "1.2; open-swe #1784", secrets_that_leak),
    Attack("log tampering", "1.4; 8.10", log_tampering, quick=False),
)
