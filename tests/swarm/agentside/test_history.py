"""Text for models, elision, and the conversation out of the journal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pool.types import Message, ToolCall
from swarm.history import clean, elide, rebuild, shorten, size
from swarm.types import Step


def test_terminal_sequences_and_controls_are_stripped() -> None:
    assert (
        clean("\x1b[31mred\x1b[0m \x1b]0;title\x07ok\x00\x08\x7f\x9b\r\nnext\rlast\ttab") == "red ok\nnext\nlast\ttab"
    )


@given(st.text())
def test_cleaned_text_holds_no_control_character(text: str) -> None:
    assert all(char in "\n\t" or char.isprintable() or ord(char) >= 0xA0 for char in clean(text))


def test_short_text_stays() -> None:
    assert shorten("abc", 3) == "abc"


def test_long_text_keeps_head_and_tail_and_says_what_is_missing() -> None:
    text = "\n".join(f"line {number}" for number in range(1000))
    short = shorten(text, 400)
    assert short.startswith("line 0\n")
    assert short.endswith("line 999")
    assert "left out" in short
    assert len(short) < 520


@given(st.text(max_size=400), st.integers(min_value=20, max_value=100))
def test_shortened_text_is_bounded(text: str, limit: int) -> None:
    assert len(shorten(text, limit)) <= limit + 80


def talk(results: int) -> tuple[Message, ...]:
    messages = [Message(role="system", content="s" * 900), Message(role="user", content="u" * 900)]
    for number in range(results):
        call = ToolCall(id=f"c{number}", name="shell", arguments="{}")
        messages.append(Message(role="assistant", tool_calls=(call,)))
        messages.append(Message(role="tool", content="r" * 900, tool_call_id=f"c{number}"))
    return tuple(messages)


def test_elision_spares_opening_calls_and_the_last_results() -> None:
    before = talk(4)
    after = elide(before, 1)
    assert after[:2] == before[:2]
    assert after[-1] == before[-1]
    assert [m.tool_calls for m in after] == [m.tool_calls for m in before]
    assert [m.tool_call_id for m in after] == [m.tool_call_id for m in before]
    assert sum("removed" in m.content for m in after) == 3
    assert size(after) < size(before)


def test_elision_of_nothing_more_changes_nothing() -> None:
    assert elide(talk(2), 5) == talk(2)
    once = elide(talk(3), 0)
    assert elide(once, 0) == once


def step(seq: int, kind: str, **data: object) -> Step:
    return Step(task="t", attempt="a", seq=seq, at=0, kind=kind, data=data)


def dumped(message: Message) -> dict[str, object]:
    return message.model_dump(mode="json", exclude_defaults=True)


def journal(messages: tuple[Message, ...], *, native: bool = True) -> list[Step]:
    opening = step(1, "note", about="opening", native=native, messages=[dumped(m) for m in messages[:2]])
    return [opening, *(step(2 + n, "model_call", message=dumped(m)) for n, m in enumerate(messages[2:]))]


def test_no_conversation_in_the_journal_is_none() -> None:
    assert rebuild(()) is None
    assert rebuild([step(1, "model_call", texts=["a"], ask=["line"])]) is None


def test_conversation_comes_back_as_it_was() -> None:
    past = rebuild(journal(talk(2)))
    assert past is not None
    assert past.messages == talk(2)
    assert past.answers == 2


def test_results_are_counted_from_the_last_answer_on() -> None:
    answer, result = dumped(talk(1)[2]), dumped(Message(role="user", content="r"))
    lines = [
        *journal(talk(0)),
        step(2, "model_call", message=answer),
        step(3, "command", tool="shell", message=result),
        step(4, "model_call", message=answer, prompt_tokens=7),
        step(5, "command", tool="shell", message=result),
        step(6, "message", author="ann", message=result),
        step(7, "note", text="the last command was interrupted", message=result),
    ]
    counts = [(past.answers, past.told) for n in range(1, 8) if (past := rebuild(lines[:n])) is not None]
    assert counts == [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 1), (2, 2)]
    past = rebuild(lines)
    assert past is not None
    assert past.answer["prompt_tokens"] == 7


def test_elision_is_replayed() -> None:
    past = rebuild([*journal(talk(3)), step(90, "note", about="elided", keep=1)])
    assert past is not None
    assert past.messages == elide(talk(3), 1)
