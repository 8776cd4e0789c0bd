"""Nothing of the hidden tests or of the known solution can be found in a real sandbox while an agent works in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.config import SandboxConfig
from swarm.config import Settings
from swarm.errors import EvaluationError
from swarm.evaluation.case import File, Solution
from swarm.evaluation.results import Folder
from swarm.evaluation.runner import Runner
from swarm.evaluation.trying import Means
from swarm.wiring import evaluating
from tests.swarm.evaluation.conftest import GOOD, TESTS, Writes, case, plan_of, tried

CANARY = "canary-5d1f0c66b2"
MEND = "sed -i 's/min(x, low)/min(x, high)/' clamp.py"
# The pattern is put together inside, so that the search does not find itself. All that may be read is searched: the
# file system but for the system's own old files, what git holds, and the environment and words of every process.
SEARCH = r"""
import os, subprocess, sys, time, zlib
want = bytes(reversed(b"YRANAC")); found = []; seen = 0
def look(path, data):
    global seen
    seen += 1
    if want in data: found.append(path)
    if path.startswith("/proc/"): return
    try:
        if want in zlib.decompress(data): found.append(path)
    except zlib.error: pass
for top in ("/",):
    for where, folders, files in os.walk(top):
        if where.startswith(("/proc", "/sys", "/dev")): folders[:] = []; continue
        for name in files:
            path = os.path.join(where, name)
            try:
                stat = os.lstat(path)
                if where.startswith("/usr") and time.time() - stat.st_ctime > 86400: continue
                if want in os.fsencode(path): found.append(path)
                if os.path.isfile(path) and stat.st_size < 50_000_000: look(path, open(path, "rb").read())
            except OSError: pass
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline"):
        try: look(f"/proc/{pid}/{name}", open(f"/proc/{pid}/{name}", "rb").read())
        except OSError: pass
objects = subprocess.run(["git", "cat-file", "--batch", "--batch-all-objects", "--unordered"], capture_output=True)
look("git", objects.stdout); look("env", repr(dict(os.environ)).encode())
print("seen", seen, "git", len(objects.stdout)); print("found", found)
""".replace("YRANAC", CANARY[::-1])


def marked(**more: object) -> object:
    """A case with the canary in all that an agent may not know."""
    mark = f"# {CANARY}\n".encode()
    hidden = {
        "files": (File(path="test_hidden.py", content=TESTS + mark), File(path=f"{CANARY}.txt", content=mark)),
        "command": f"python3 -m unittest -v test_hidden # {CANARY}",
        "env": {"CANARY": CANARY},
    }
    return case(hidden=hidden, solution=Solution(files=(File(path="clamp.py", content=GOOD + mark),)), **more)


@pytest.mark.slow
async def test_an_agent_finds_nothing_of_the_judges(tmp_path: Path) -> None:
    one = marked()
    looks = Writes(f"cat > /tmp/look.py <<'E'\n{SEARCH}\nE\npython3 /tmp/look.py\n{MEND}")
    (tmp_path / "state").mkdir()
    settings, told = Settings(sandbox=SandboxConfig(backend="bwrap")), []
    async with evaluating(settings, tmp_path / "state", models=False) as real:
        means = Means(real.rooms, real.repositories, real.spec, {"looks": looks}.__getitem__, unseen=real.unseen)
        plan = plan_of([one], "reference", "looks")  # the reference goes first: its sandbox must leave nothing either
        await Runner(plan, {one.id: one}, means, Folder(tmp_path / "run"), told=told.append).run()
    said = looks.output.decode()
    assert "found []" in said, said
    seen, git = (int(said.split(word)[1].split()[0]) for word in ("seen", "git"))
    assert seen > 50
    assert git > 100
    assert {row.strategy: row.outcome for row in tried(told)} == {"reference": "solved", "looks": "solved"}


@pytest.mark.slow
async def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    one = case(files={"clamp.py": b"# " + CANARY.encode(), "b": b"x"}, solution=None)
    looks = Writes(f"cat > /tmp/look.py <<'E'\n{SEARCH}\nE\nA={CANARY} python3 /tmp/look.py")
    (tmp_path / "state").mkdir()
    async with evaluating(Settings(sandbox=SandboxConfig(backend="bwrap")), tmp_path / "state", models=False) as real:
        means = Means(real.rooms, real.repositories, real.spec, {"looks": looks}.__getitem__)
        await Runner(plan_of([one], "looks"), {one.id: one}, means, Folder(tmp_path / "run")).run()
    said = looks.output.decode()
    assert "clamp.py" in said
    assert "'git'" in said
    assert "'env'" in said


@pytest.mark.slow
async def test_where_a_sandbox_sees_the_sets_nothing_is_begun(means: Means, tmp_path: Path) -> None:
    own = Means(means.rooms, means.repositories, means.spec, means.strategy, unseen=(tmp_path,))
    one = case()
    with pytest.raises(EvaluationError, match="agents would see the hidden tests"):
        await Runner(plan_of([one], "nothing"), {one.id: one}, own, Folder(tmp_path / "run")).run()
