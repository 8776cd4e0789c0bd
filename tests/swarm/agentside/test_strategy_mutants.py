"""Rules make of a line what its writer may have meant, and tests say whether it was; no model is asked."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.strategies.mutants import MOST, mutants
from swarm.strategies.repair import Bounds, SampledRepair
from swarm.strategies.spectrum import Suspect

TESTS = "/usr/bin/python3 -m unittest -v"


def of(text: str, around: str = "", **more: str) -> tuple[str, ...]:
    return mutants(Suspect("m.py", 1, text, 1.0, around or text, **more))


@pytest.mark.parametrize(
    ("broken", "mended", "around"),
    [
        ("n ^= n - 1", "n &= n - 1", ""),  # the mistakes of QuixBugs, as they are known from its paper
        ("return gcd(a % b, b)", "return gcd(b, a % b)", "def gcd(a, b):"),
        ("return max(low, min(x, low))", "return max(low, min(x, high))", "def clamp(x, low, high):"),
        ("while lo <= hi:", "while lo < hi:", ""),
        ("for i in range(len(items) - 1):", "for i in range(len(items)):", ""),
        ("if arr[i] > pivot:", "if arr[i] >= pivot:", ""),
        ("return False", "return True", ""),
        ("if not found:", "if found:", ""),
        ("return a and b", "return a or b", ""),
        ("total -= price", "total += price", ""),
        ("return x // y", "return y // x", ""),
        ("return items[i]", "return items[i + 1]", ""),
        ("return items[n - 1]", "return items[n]", "return items[n - 1]"),
        ("return name.lower()", "return name.upper()", ""),
        ("return min(values)", "return max(values)", ""),
        ("if (a && !b) {", "if (a || !b) {", ""),
        ("return -x", "return x", ""),
        ("if key is None:", "if key is not None:", ""),
        ("if key in seen:", "if key not in seen:", ""),
        ("count = 1", "count = 0", ""),
        ("break", "continue", ""),
    ],
)
def test_common_mistakes_are_turned_round(broken: str, mended: str, around: str) -> None:
    assert mended in of(broken, around or broken)


def test_texts_and_comments_stay_as_they_are() -> None:
    for text in of("print('a < b and c', \"x - 1\")  # a < b"):
        assert text == "pass" or text.endswith("# a < b")
        assert text == "pass" or ("'a < b and c'" in text and '"x - 1"' in text)


def test_the_name_of_a_loop_is_never_turned_round() -> None:
    assert not any("not in" in text for text in of("for x in items:"))


@given(st.text(alphabet="abi1 +-*/<>=!()[]{},.:'\"#not&|%\\", max_size=60))
def test_every_line_gives_a_few_other_lines(line: str) -> None:
    found = of(line.strip())
    assert len(found) <= MOST
    assert len(set(found)) == len(found)
    assert line.strip() not in found
    assert not any("\n" in text or not text.strip() for text in found)


@given(st.sampled_from(["a", "b[i]", "f(x, y)", "1", "'s'"]), st.sampled_from(["+", "<", "and", "%", "=="]))
def test_what_parses_mostly_gives_what_parses(operand: str, sign: str) -> None:
    found = of(f"return {operand} {sign} b")
    good = 0
    for text in found:
        try:
            ast.parse(f"def f():\n    {text}")
            good += 1
        except SyntaxError:
            continue
    assert good >= 0.8 * len(found)


FILES = {
    "m.py": "def clamp(x, low, high):\n    return max(low, min(x, low))\n",
    "test_m.py": "import unittest\nfrom m import clamp\n\n\nclass T(unittest.TestCase):\n"
    "    def test_in(self):\n        self.assertEqual(clamp(2, 0, 5), 2)\n"
    "    def test_low(self):\n        self.assertEqual(clamp(-2, 0, 5), 0)\n"
    "    def test_high(self):\n        self.assertEqual(clamp(9, 0, 5), 5)\n",
}


@pytest.mark.slow
async def test_a_bug_is_mended_without_a_token(desk) -> None:
    at = await desk(FILES, [], native=True, test_command=TESTS)
    done = await SampledRepair(rules=True, samples=False).work(at.work)
    assert (done.ending, done.model) == ("finished", "")
    assert at.text("m.py") == "def clamp(x, low, high):\n    return max(low, min(x, high))\n"
    assert at.work.ledger.spent().tokens == at.work.ledger.spent().steps == 0
    assert at.pool.requests == []
    assert "Found by mutation rules" in done.summary


@pytest.mark.slow
async def test_rules_that_find_nothing_give_up_within_their_bounds(desk) -> None:
    files = {**FILES, "m.py": "def clamp(x, low, high):\n    return 'none of these'\n"}
    at = await desk(files, [], test_command=TESTS)
    done = await SampledRepair(rules=True, samples=False, bounds=Bounds(ruled=3)).work(at.work)
    assert done.ending == "gave_up"
    assert len(at.kinds("candidate")) <= 3
    assert at.text("m.py") == files["m.py"]


@pytest.mark.slow
async def test_rules_follow_the_first_samples(desk) -> None:
    at = await desk(FILES, lambda _: "return 7", native=False, test_command=TESTS)
    done = await SampledRepair(rules=True).work(at.work)
    assert done.ending == "finished"
    assert "Found by mutation rules" in done.summary
    assert "made by rule: " in done.summary
    assert {request.temperature for request in at.pool.requests} == {0.7}
