"""The detector of circles: what it sees, what it does not, and that it ends every loop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.conversation import events as happened
from swarm.conversation import progress
from swarm.conversation.events import Event, Silence, called, silent
from swarm.conversation.progress import LIMITS, WINDOW, Progress, stuck
from swarm.types import Step


def after(*events: Event) -> Progress:
    state = Progress()
    for event in events:
        state = state.after(event)
    return state


def call(name: str = "shell", text: str = "out", *, turn: int = 1, ok: bool = True, change: bool = False, **arguments):
    return called(turn, name, arguments, text, ok=ok, change=change)


def edit(search: str, replace: str, *, path: str = "a.py", turn: int = 1) -> Event:
    return call("edit", f"edited to {replace}", change=True, path=path, search=search, replace=replace, turn=turn)


def run(text: str, *, failed: tuple[str, ...] = (), passed: bool = False) -> Event:
    return happened.tested(call("run_tests", text, ok=passed), failed, text, passed=passed)


def test_nothing_is_said_of_an_agent_that_looks_around() -> None:
    assert stuck(after(*(call(command=f"ls {n}", text=f"file {n}" * n) for n in range(1, WINDOW)))) is None


def test_the_same_call_with_the_same_result_is_told_then_over() -> None:
    same = [call(command="ls") for _ in range(6)]
    assert stuck(after(*same[:2])) is None
    hint = stuck(after(*same[:3]))
    assert hint is not None
    assert (hint.pattern, hint.count, hint.over) == ("repetition", 3, False)
    end = stuck(after(*same))
    assert end is not None
    assert end.over


def test_numbers_addresses_and_temporary_names_do_not_make_a_result_another_one() -> None:
    texts = ("took 1.2 s at 0x7ffe01 in /tmp/ab_1", "took 3.14 s at 0xdead01 in /tmp/zz-9", "took 9 s at 0x1 in /tmp/q")
    found = stuck(after(*(call(command="ls", text=text) for text in texts)))
    assert found is not None
    assert found.pattern == "repetition"


def test_a_call_whose_result_moves_is_no_repetition() -> None:
    assert stuck(after(*(call(command="tail log", text=f"line {'x' * n}") for n in range(8)))) is None


def test_an_edit_makes_the_same_question_a_new_one() -> None:
    events = []
    for n in range(5):
        events += [edit(f"x{'y' * n}", f"x{'y' * (n + 1)}"), call("view", path="a.py", text="same")]
    assert stuck(after(*events)) is None


def test_different_calls_that_fail_alike_are_told() -> None:
    misses = [
        call("edit", "error: the text is not there", ok=False, path="a.py", search=f"s{'i' * n}") for n in range(6)
    ]
    found = stuck(after(*misses[:3]))
    assert found is not None
    assert (found.pattern, found.over) == ("error", False)
    last = stuck(after(*misses))
    assert last is not None
    assert last.over


def test_back_and_forth_between_two_steps_is_told_also_where_they_edit() -> None:
    there, back = edit("a", "b"), edit("b", "a")
    found = stuck(after(*[there, back] * 3))
    assert found is not None
    assert found.pattern in {"alternation", "undoing"}
    plain = [call("view", path="a", text="A"), call("edit", "miss", ok=False, path="b")]
    swings = after(*plain * 2)
    assert [each.pattern for each in progress._patterns(swings) if each.count >= 4] == ["alternation"]


def test_edits_that_take_one_another_back_are_told_with_other_calls_between() -> None:
    look = [call("view", path=f"{'p' * n}", text=f"{'p' * n}") for n in range(1, 5)]
    events = [edit("a", "b"), look[0], edit("b", "a"), look[1], edit("a", "b"), look[2], edit("b", "a")]
    found = stuck(after(*events))
    assert found is not None
    assert (found.pattern, found.count) == ("undoing", 2)
    assert stuck(after(*events, look[3])) is None


def test_the_same_edit_in_two_files_undoes_nothing() -> None:
    assert stuck(after(edit("a", "b", path="one"), edit("b", "a", path="two"), edit("b", "a", path="three"))) is None


def test_tests_that_do_not_move_over_changes_are_told_by_their_names() -> None:
    events: list[Event] = []
    for n in range(10):
        events += [edit(f"v{'x' * n}", f"v{'x' * (n + 1)}"), run(f"{n} s: FAILED", failed=("test_b", "test_a"))]
    heard = [stuck(after(*events[: 2 * n])) for n in range(1, 11)]
    assert [one is not None for one in heard] == [False] * 3 + [True] * 7
    assert heard[-1] is not None
    assert (heard[-1].pattern, heard[-1].count, heard[-1].over) == ("tests", 10, True)


@pytest.mark.parametrize("other", [("test_a",), ("test_a", "test_b", "test_c")])
def test_another_set_of_failing_tests_is_movement(other: tuple[str, ...]) -> None:
    events: list[Event] = []
    for n in range(6):
        names = ("test_a", "test_b") if n % 2 else other
        events += [edit(f"v{'x' * n}", f"v{'x' * (n + 1)}"), run("x", failed=names)]
    assert stuck(after(*events)) is None


def test_tests_run_again_without_a_change_say_nothing_of_edits() -> None:
    state = after(*(run("FAILED one", failed=("one",)) for _ in range(2)))
    assert state.unmoved == 1


def test_passing_tests_are_no_standstill() -> None:
    events: list[Event] = []
    for n in range(6):
        events += [edit(f"v{'x' * n}", f"v{'x' * (n + 1)}"), run("ok", passed=True)]
    assert stuck(after(*events)) is None


@pytest.mark.parametrize(("kind", "most"), [("words", 6), ("broken", 6), ("reasoning", 6), ("empty", 5)])
def test_each_kind_of_answer_without_a_call_has_its_own_end(kind: Silence, most: int) -> None:
    for count in range(1, most + 1):
        found = stuck(after(*(silent(turn, kind, "x" * turn) for turn in range(count))))
        assert found is not None
        assert found.over == (count == most), count


@pytest.mark.parametrize("kind", ["words", "broken"])
def test_the_same_answer_word_for_word_ends_sooner(kind: Silence) -> None:
    found = [stuck(after(*(silent(turn, kind, "I would call a tool.") for turn in range(n)))) for n in range(1, 5)]
    assert [one is not None and one.over for one in found] == [False, False, False, True]


def test_mixed_silence_ends_as_well() -> None:
    kinds: tuple[Silence, ...] = ("words", "reasoning", "empty", "words", "broken", "words")
    found = stuck(after(*(silent(turn, kind, kind * turn) for turn, kind in enumerate(kinds))))
    assert found is not None
    assert found.over


def test_three_broken_calls_in_one_answer_are_one_silent_answer() -> None:
    assert progress.idle(after(*(silent(7, "broken") for _ in range(3)))) == 1


def test_one_good_call_in_an_answer_makes_up_for_the_broken_ones_in_it() -> None:
    assert progress.idle(after(silent(7, "broken"), call(turn=7))) == 0
    assert progress.idle(after(call(turn=7), silent(7, "broken"))) == 0


def test_the_journal_tells_the_same_progress() -> None:
    events = [edit("a", "b"), run("x", failed=("t",)), silent(3, "words"), edit("b", "a", turn=4)]
    steps = [
        Step(task="t", attempt="a", seq=n, at=0, kind="note", data={"event": event.model_dump(exclude_defaults=True)})
        for n, event in enumerate(events)
    ]
    assert progress.of(steps) == after(*events)


@given(st.integers(min_value=0, max_value=3), st.integers(min_value=1, max_value=2))
def test_every_cycle_of_up_to_two_steps_ends(shift: int, length: int) -> None:
    """However an agent circles through one or two steps whose results stay, it is stopped within the window."""
    steps = [call(command="c" * (n + 1), text="r" * (n + 1)) for n in range(length)]
    cycle = steps[shift % length :] + steps[: shift % length]
    events = (cycle * WINDOW)[: WINDOW * 2]
    assert any((found := stuck(after(*events[:n]))) is not None and found.over for n in range(1, len(events)))


def test_each_pattern_is_told_before_it_is_over() -> None:
    assert all(hint < end for hint, end in LIMITS.values())


def worst(*happening: Event) -> tuple[str, bool] | None:
    """The worst pattern that was seen on the way, and whether it was over."""
    found = [stuck(after(*happening[:n])) for n in range(1, len(happening) + 1)]
    return max(((one.pattern, one.over) for one in found if one), key=lambda one: one[1], default=None)


def test_a_poll_whose_count_grows_is_patiently_waited_for() -> None:
    polls = [call(command="make -q; tail -1 log", text=f"[exit code 0, 0.1 s]\nCompiling {n} of 90") for n in range(50)]
    assert worst(*polls[:11]) is None
    assert worst(*polls[:39]) == ("poll", False)
    assert worst(*polls) == ("poll", True), "one without end is ended all the same"


def test_a_poll_that_stands_still_is_a_repetition() -> None:
    assert worst(*[call(command="tail -1 log", text="Compiling 7 of 90")] * 6) == ("repetition", True)


def shell(command: str, text: str = "[exit code 0, 0.0 s]\n(no output)", *, ok: bool = True) -> Event:
    return call(command=command, text=text, ok=ok)


def test_searches_that_find_nothing_are_no_errors_unless_they_are_the_same() -> None:
    misses = [
        happened.mute(shell(f"grep -rn {'x' * n} .", "[exit code 1, 0.0 s]\n(no output)", ok=False)) for n in range(12)
    ]
    assert worst(*misses) is None
    assert worst(*misses[:1] * 6)[1]


def test_edits_by_the_shell_make_the_same_question_a_new_one() -> None:
    happening = []
    for n in range(8):
        happening += [shell(f"sed -i 's/{n}/{n + 1}/' a.py"), run(f"FAILED {'x' * n}", failed=(f"test_{n}",))]
    assert worst(*happening) is None


def test_tests_that_stand_still_over_edits_by_the_shell_are_told() -> None:
    happening = []
    for n in range(10):
        happening += [shell(f"sed -i 's/{n}/{n + 1}/' a.py"), run("FAILED", failed=("test_a",))]
    assert worst(*happening[:12]) == ("tests", False)
    assert worst(*happening) == ("tests", True)


def test_commands_that_only_look_make_no_question_a_new_one() -> None:
    happening = []
    for n in range(6):
        happening += [shell(f"cat a{'x' * n}", "x" * n), run("FAILED", failed=("test_a",))]
    assert worst(*happening) == ("repetition", True)


def test_commands_that_change_something_and_fail_alike_are_given_twice_the_patience() -> None:
    tries = [shell(f"sed -i 's/{n}/{n + 1}/' a.py; make", "make: no rule", ok=False) for n in range(12)]
    assert worst(*tries[:5]) is None
    assert worst(*tries[:11]) == ("error", False)
    assert worst(*tries) == ("error", True)


@pytest.mark.parametrize("length", range(1, 7))
@pytest.mark.parametrize("name", ["ls", "make"])
def test_every_circle_of_up_to_six_steps_ends(length: int, name: str) -> None:
    steps = [shell(f"{name} {'c' * n}", "r" * n) for n in range(length)]
    assert worst(*(steps * WINDOW)[: WINDOW * 2])[1]


def test_a_circle_whose_results_move_is_none() -> None:
    assert worst(*(shell(f"ls {'c' * (n % 4)}", "x" * n) for n in range(WINDOW * 2))) is None


def wrote(state: str, *, path: str = "a.py") -> Event:
    event = call("write", f"wrote {state}", change=True, path=path, content=state)
    return happened.left(event, {"path": path, "digest": state})


def test_files_that_come_back_to_an_earlier_state_are_told_whatever_is_done_between() -> None:
    happening = []
    for n in range(6):
        happening += [wrote("one" if n % 2 else "two"), shell(f"cat {'a' * n}", "x" * n)]
    assert worst(*happening[:5]) is None, "one step back is no circle"
    assert worst(*happening[:9]) == ("undoing", False)
    assert worst(*happening) == ("undoing", True)


def test_files_that_are_written_in_turn_come_back_to_nothing() -> None:
    assert worst(*(wrote("same", path=f"{'a' * n}.py") for n in range(12))) is None
    assert worst(*(wrote(f"{n % 2}{'x' * n}") for n in range(12))) is None


def test_plans_without_deeds_end() -> None:
    plans = [call("task_list", f"step {'x' * n}", items=f"[ ] {'x' * n}") for n in range(10)]
    assert worst(*plans[:3]) is None
    assert worst(*plans) == ("planning", True)
    deeds = [shell(f"ls {'x' * n}", "x" * n) for n in range(10)]
    assert worst(*(one for pair in zip(plans, deeds, strict=True) for one in pair)) is None
