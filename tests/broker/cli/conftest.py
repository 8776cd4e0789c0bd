"""A broker process that the command line speaks to, and an agent that offers something to it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from broker.cli.app import main
from broker.wire import Grant, Proposal, encode_proposal

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def folder(tmp_path_factory, template):
    """A broker process that all tests of this folder speak to."""
    folder = tmp_path_factory.mktemp("cli")
    shutil.copytree(template / "demo.git", folder / "demo.git")
    shutil.copytree(template / "agent.git", folder / "agent.git")
    me = str(os.getuid())
    people = ["--person", me, "--coordinator", me]
    with pytest.raises(SystemExit):
        main(["init", "-c", str(folder / "broker.toml"), "--path", str(folder / "demo.git"), *people])
    text = (folder / "broker.toml").read_text()
    text = text.replace("/run/swarm-broker", f"{folder}/run").replace("/var/lib/swarm-broker", f"{folder}/state")
    assert "# max_open_pulls = 10" in text
    (folder / "broker.toml").write_text(text.replace("# max_open_pulls = 10", "max_open_pulls = 500"))
    command = [sys.executable, "-m", "broker", "serve", "--config", str(folder / "broker.toml")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            with socket.socket(socket.AF_UNIX) as probe:
                if probe.connect_ex(f"{folder}/run/person.sock") == 0:
                    break
            time.sleep(0.05)
        yield folder
        process.terminate()


@pytest.fixture
def swarm_broker(folder, capsys):
    def run(*words, offline=False):
        name = "broker.sock" if words[0] == "explain" else "person.sock"
        place = [] if offline else ["--socket", f"{folder}/run/{name}"]
        with pytest.raises(SystemExit) as caught:
            main([*words, *place])
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return caught.value.code or 0, said.out, said.err

    return run


@pytest.fixture
def offered(folder, swarm_broker):
    """Proposes something for a task through the socket and returns the encoded proposal."""

    def offer(task, changes, grant=None, onto=None):
        if grant is None:
            _code, out, _err = swarm_broker("grant", "demo", task, "--json")
            grant = Grant.model_validate_json(out)
        agent = _Agent(folder / "agent.git")
        agent.fetch(folder / "demo.git")
        base = onto or grant.base_commit
        tree = agent.tree(base, changes)
        made = Proposal(
            id=f"{task}-p" if onto is None else f"{task}-{onto[:7]}",
            capability=grant.capability,
            task=task,
            base_commit=base,
            tree=tree,
            title="T\x1b[2J",
            update=onto is not None,
        )
        return encode_proposal(made, agent.pack(tree, base))

    return offer


class _Agent:
    def __init__(self, path):
        self._env = {"PATH": os.environ["PATH"], "GIT_DIR": str(path), "GIT_INDEX_FILE": str(path / "index.cli")}

    def _git(self, *args, stdin=b""):
        return subprocess.run(["git", *args], input=stdin, env=self._env, capture_output=True, check=True).stdout

    def fetch(self, origin):
        self._git("fetch", "-q", str(origin), "refs/heads/*:refs/remotes/o/*", "--force")

    def tree(self, base, changes):
        self._git("read-tree", base)
        for path, content in changes.items():
            oid = self._git("hash-object", "-w", "--stdin", stdin=content).decode().strip()
            self._git("update-index", "--add", "--cacheinfo", f"100644,{oid},{path}")
        return self._git("write-tree").decode().strip()

    def pack(self, tree, base):
        return self._git("pack-objects", "-q", "--revs", "--stdout", stdin=f"{tree}\n^{base}\n".encode())


@pytest.fixture
def propose(folder):
    """Sends an encoded proposal as the coordinator does; the verdict as a dict."""

    def send(body):
        with httpx.Client(transport=httpx.HTTPTransport(uds=f"{folder}/run/broker.sock"), base_url="http://b") as http:
            return http.post("/v1/propose", content=body, timeout=60).json()

    return send


@pytest.fixture(scope="session")
def stranger_key():
    """The public key of somebody else."""
    public = Ed25519PrivateKey.generate().public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
