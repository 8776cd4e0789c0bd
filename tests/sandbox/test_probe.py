"""The self-test's own judgement: what is told, what is refused, and what ends it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.errors import SandboxUnavailableError
from sandbox.probe import insist, prove, source
from sandbox.rules.claims import KEPT_BY_GVISOR, MENDS
from sandbox.testing import ScriptedBackend
from sandbox.types import Command, Outcome, SelfTest


def answered(claims: dict[str, object], more: dict[str, object] | None = None):
    """A backend whose sandbox answers the examiner with these claims, and keeps the other checks."""

    def script(command: Command, work: Path) -> Outcome | None:
        words = " ".join(command.argv)
        if "The program that examines" in words:
            told = json.dumps({"claims": claims, "detail": {"kernel": "k", "landlock": "l"}} | (more or {}))
            return Outcome(exit_code=0, output=told.encode(), seconds=0.1)
        if "still here" in words:
            return Outcome(exit_code=137, output=b"", seconds=0.1, out_of_memory=True)
        if "process_time" in words:
            return Outcome(exit_code=0, output=b"0.5\n", seconds=0.1)
        if "sleep" in command.argv:
            return Outcome(exit_code=137, output=b"", seconds=0.1, timed_out=True)
        return Outcome(exit_code=0, output=b"[]\n", seconds=0.1)

    return ScriptedBackend(script)


async def test_a_claim_that_does_not_hold_is_refused_with_its_own_mend() -> None:
    backend = answered({"no route out": True, "system calls filtered": False, "disk limited": False})
    test = await prove(backend, "docker", "docker 1", {"api": "1"})
    assert test.failed == ("system calls filtered", "disk limited")
    assert test.detail == {"api": "1", "kernel": "k", "landlock": "l"}
    with pytest.raises(SandboxUnavailableError) as caught:
        insist(test, "use another")
    said = str(caught.value)
    assert f"system calls filtered: {MENDS['system calls filtered']}" in said
    assert f"disk limited: {MENDS['disk limited']}" in said
    assert "no route out" not in said
    assert "use another" in said


@pytest.mark.parametrize("told", ["no", 1, None, [], {}])
async def test_only_a_plain_true_counts_as_proof(told: object) -> None:
    test = await prove(answered({"no route out": told}), "docker", "docker 1", {})
    assert test.failed == ("no route out",)


async def test_claims_that_nobody_knows_are_not_believed() -> None:
    test = await prove(answered({"no route out": True, "everything is fine": True}), "docker", "docker 1", {})
    assert "everything is fine" not in (*test.proved, *test.failed)


@pytest.mark.parametrize("told", [{"claims": None}, {"detail": None}, {"claims": 3, "detail": 3}])
async def test_nonsense_from_inside_is_no_proof(told: dict[str, object]) -> None:
    with pytest.raises(SandboxUnavailableError, match="did not run"):
        await prove(answered({}, told), "docker", "docker 1", {})


async def test_gvisor_keeps_claims_by_being_another_kernel_but_must_be_it() -> None:
    claims = dict.fromkeys(KEPT_BY_GVISOR, False) | {"no route out": True, "really gVisor": True}
    test = await prove(answered(claims), "docker", "docker 1", {"runtime": "runsc"})
    assert test.failed == ()
    assert "really gVisor" in test.proved
    false = await prove(answered(claims | {"really gVisor": False}), "docker", "docker 1", {"runtime": "runsc"})
    assert false.failed == ("really gVisor",)


def test_all_claims_proved_is_handed_on() -> None:
    test = SelfTest(backend="bwrap", version="1", proved=("no route out",))
    assert insist(test, "x") is test


def test_the_examiner_knows_no_claim_without_a_mend_and_leans_on_nothing_of_ours() -> None:
    program = source()
    outside = {"memory limited", "CPU limited", "time limited", "nothing survives a command"}
    assert all(f'"{name}"' in program for name in MENDS if name not in outside)
    assert "import sandbox" not in program
    assert "from sandbox" not in program


def test_the_examiner_sees_that_a_bare_machine_has_no_walls() -> None:
    looks = "status('Seccomp') == '2', foreign_call_killed(), devices() == ['lo'], landlocked(landlock_abi()), gvisor()"
    code = source().replace("    main()\n", f"    sys.stdout.write(json.dumps([{looks}, opened(4096) < 1024]))\n")
    limited = ["/bin/sh", "-c", 'ulimit -n 2048; exec "$@"', "sh", sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == [False] * 6
