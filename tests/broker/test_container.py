"""The container recipe lived under: the broker behind run-broker's own options, met by users of the host."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import httpx
import pytest
from packaging.requirements import Requirement

from broker.client import Client
from broker.wire import GrantRequest, Proposal, Receipt, encode_proposal

pytestmark = [pytest.mark.docker, pytest.mark.root]

ROOT = Path(__file__).parents[2]
RUN = ROOT / "examples" / "container" / "run-broker"
NEEDS = ("cryptography", "detect-secrets", "httpx", "keyring", "pydantic", "pyjwt", "rich", "securesystemslib",
         "starlette", "tenacity", "typer", "uvicorn", "markdown-it-py")  # fmt: skip
BROKER, PLAIN, CANARY = 964, 65533, "canary-4d1e-credential"
RECIPE = """FROM agent-swarm/base:1
COPY app /opt/swarm-broker
ENV PYTHONPATH=/opt/swarm-broker
USER 964:964
WORKDIR /
ENTRYPOINT ["/usr/bin/python3", "-m", "broker"]
"""


def closure(names: tuple[str, ...]) -> set[str]:
    """Distributions that these need on this machine, themselves included."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name in found:
            continue
        try:
            needs = distribution(name).requires or []
        except PackageNotFoundError:  # for another platform
            continue
        found.add(name)
        wanted = (Requirement(line) for line in needs)
        left += [one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": "crypto"})]
    return found


def installed(target: Path) -> None:
    """Copies the broker and its libraries."""
    for name in closure(NEEDS):
        for file in distribution(name).files or []:
            source = Path(str(file.locate()))
            if ".." not in file.parts and source.is_file() and "__pycache__" not in file.parts:
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target / file)
    shutil.copytree(ROOT / "broker", target / "broker", ignore=shutil.ignore_patterns("__pycache__"))


def docker(*words: str, check: bool = True) -> str:
    """The engine's own command line; its output."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    context = tmp_path_factory.mktemp("context")
    installed(context / "app")
    (context / "Dockerfile").write_text(RECIPE)
    tag = f"agent-swarm/broker-test:{os.getpid()}"
    docker("build", "-q", "-t", tag, str(context))
    yield tag
    docker("rmi", "-f", tag)


@pytest.fixture
def place(tmp_path: Path, origin: object) -> Iterator[Path]:
    """The host's three folders, as run-broker wants them, below one of the test's own."""
    tmp_path.chmod(0o755)
    root = Path("/run") / f"broker-test-{os.getpid()}"  # sockets need a short path, and everybody to reach it
    for folder, mode in (("etc", 0o755), ("var/lib", 0o700), ("run", 0o755)):
        made = root / folder / "swarm-broker"
        made.mkdir(parents=True)
        made.chmod(mode)
    etc = root / "etc" / "swarm-broker"
    shutil.copytree(tmp_path / "demo.git", root / "var/lib/swarm-broker" / "demo.git")
    (etc / "token").write_text(CANARY)
    (etc / "broker.toml").write_text(
        'socket = "/run/swarm-broker/broker.sock"\nstate = "/var/lib/swarm-broker/state"\n'
        "[roles]\nperson = [0]\ncoordinator = [0]\n"
        '[repositories.demo]\nforge = "local"\npath = "/var/lib/swarm-broker/demo.git"\n'
        'credential.token.file = "/etc/swarm-broker/token"\n'
    )
    for file in (etc / "token", etc / "broker.toml"):
        file.chmod(0o600)
    for path in (*root.rglob("*"),):
        os.chown(path, BROKER, BROKER)
    yield root
    shutil.rmtree(root)


@pytest.fixture
def running(image: str, place: Path) -> Iterator[str]:
    name = f"broker-test-{os.getpid()}"
    env = {**os.environ, "BROKER_ROOT": str(place), "BROKER_NAME": name, "BROKER_IMAGE": image}
    done = subprocess.run(["sh", str(RUN), "serve", "--config", "/etc/swarm-broker/broker.toml"], env=env,
                          capture_output=True, text=True, check=False, timeout=60)  # fmt: skip
    assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + 60
    while not (place / "run/swarm-broker/person.sock").exists():
        assert time.monotonic() < deadline, docker("logs", name)
        time.sleep(0.1)
    yield name
    docker("rm", "-f", name)


def test_the_broker_delivers_from_a_container_that_can_write_nothing_else_and_knows_its_callers(
    running, place, agent, python_of_all
):
    people, coordinator = (place / "run/swarm-broker" / name for name in ("person.sock", "broker.sock"))
    with Client(people) as client:
        grant = client.grant(GrantRequest(repository="demo", task="t1"))
    tree = agent.tree(grant.base_commit, {"src/clamp.py": b"fixed\n"})
    proposal = Proposal(id="t1-p", capability=grant.capability, task="t1", base_commit=grant.base_commit, tree=tree,
                        title="T")  # fmt: skip
    body = encode_proposal(proposal, agent.pack(tree, grant.base_commit))
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(coordinator)), base_url="http://b", timeout=60) as http:
        receipt = Receipt.model_validate_json(http.post("/v1/propose", content=body).content)
    assert receipt.branch == "swarm/t1"
    # The kernel names callers by the host's numbers: a user who is none of the roles gets nothing.
    code = (
        "import httpx\n"
        f"h = httpx.Client(transport=httpx.HTTPTransport(uds={str(people)!r}), base_url='http://b')\n"
        "print(h.get('/v1/outbox').status_code)\n"
    )
    program = ["setpriv", f"--reuid={PLAIN}", f"--regid={PLAIN}", "--clear-groups", python_of_all, "-c", code]
    shown = subprocess.run(program, capture_output=True, text=True, check=False, cwd="/")
    assert shown.stdout.strip() == "403", shown.stderr
    inside = docker("exec", running, "/usr/bin/python3", "-c", _PROBE)
    assert inside.split() == ["964", "0000000000000000", "1", "refused", "refused"]
    assert CANARY not in docker("logs", running)
    assert CANARY not in docker("inspect", running)
    docker("stop", running)
    assert docker("inspect", "-f", "{{.State.ExitCode}}", running).strip() == "0"


def test_an_image_without_its_settings_ends_with_a_mend_and_is_not_restarted_for_ever(image):
    said = docker("run", "--rm", "--user", "964:964", "--read-only", image, "serve", "--config", "/etc/none.toml",
                  check=False)  # fmt: skip
    assert "mend:" in said
    assert "Traceback" not in said


_PROBE = """
import os
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
print(os.getuid(), status["CapEff"].strip(), status["NoNewPrivs"].strip())
for path in ("/opt/swarm-broker/x", "/etc/swarm-broker/x"):
    try:
        open(path, "w")
        print("written")
    except OSError:
        print("refused")
"""
