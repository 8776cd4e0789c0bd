"""One task against a real vLLM server, from the command line to a pull request."""

from __future__ import annotations

import pytest

from house import House
from proof import Proof
from tests.acceptance.conftest import WORDS, MakeStack

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(2400)]  # the first run installs vLLM


def test_task_becomes_a_pull_request_with_a_real_vllm(make_stack: MakeStack, one_user: House, vllm_url: str) -> None:
    pool = f'[[pool.endpoints]]\nname = "vllm"\nurl = "{vllm_url}/v1"\ntier = "small"\n'
    stack, canary = make_stack(one_user, pool=pool)
    words = ("submit", "--repo", "sample", "--strategy", "sampled_repair", "--wait", WORDS)
    done = stack.swarm(*words, seconds=900)
    assert done.returncode == 0, done.stdout + done.stderr
    view = stack.newest()
    assert view["state"] == "delivered"
    assert {step["data"]["endpoint"] for step in stack.journal(view["task"]["id"]) if step["kind"] == "model_call"} == {
        "vllm"
    }
    assert [claim for claim in Proof(stack, canary, view).claims() if not claim.holds] == []
