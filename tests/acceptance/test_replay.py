"""A task that the embedded model worked on, recorded in this very run, comes to its tree again without the model."""

from __future__ import annotations

import json

import pytest

from house import House
from tests.acceptance.conftest import WORDS, MakeStack

pytestmark = [pytest.mark.model, pytest.mark.timeout(400)]


def test_a_task_of_the_embedded_model_replays_from_the_database_and_from_a_file(
    make_stack: MakeStack, one_user: House
) -> None:
    stack, _ = make_stack(one_user)
    done = stack.swarm("submit", "--repo", "sample", "--wait", WORDS, seconds=200)
    assert done.returncode == 0, done.stdout + done.stderr
    task = stack.newest()["task"]["id"]
    here = stack.swarm("replay", task, "--json", seconds=100)
    assert here.returncode == 0, here.stdout + here.stderr
    verdict = json.loads(here.stdout)
    assert (verdict["same"], verdict["recorded"]) == (True, verdict["replayed"])
    exported = stack.swarm("export", task, "-o", f"/tmp/{task}.tar.gz", seconds=60)
    assert exported.returncode == 0, exported.stdout + exported.stderr
    again = stack.swarm("replay", f"/tmp/{task}.tar.gz", "--json", seconds=100)
    assert again.returncode == 0, again.stdout + again.stderr
    assert json.loads(again.stdout)["replayed"] == verdict["recorded"]
