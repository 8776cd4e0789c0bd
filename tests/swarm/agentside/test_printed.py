"""What a running agent prints reaches the journal in whole, clean lines, and never more than the journal can bear."""

from __future__ import annotations

from swarm.strategies.printed import BATCH, LINE, TOTAL, Printed, ending


def taken(*pieces: bytes) -> str:
    printed = Printed()
    for piece in pieces:
        printed.feed(piece)
    printed.end()
    return printed.taken()


def test_lines_are_given_once_they_are_whole() -> None:
    printed = Printed()
    printed.feed(b"one\ntw")
    assert printed.taken() == "one"
    assert printed.taken() == ""
    printed.feed(b"o\n")
    assert printed.taken() == "two"


def test_character_cut_in_two_is_whole_again() -> None:
    assert taken("ü".encode()[:1], "ü".encode()[1:] + b"\n") == "ü"


def test_progress_bar_leaves_its_last_state() -> None:
    assert taken(b"10%\r50%\r100%\r\ndone\n") == "100%\ndone"


def test_terminal_sequences_do_not_get_through() -> None:
    assert taken(b"\x1b[31mred\x1b[0m\x1b]0;title\x07\x07\n") == "red"


def test_long_lines_and_many_lines_are_cut() -> None:
    assert len(taken(b"x" * 5000)) == LINE
    text = taken(b"".join(b"%d\n" % number for number in range(BATCH + 10)))
    assert text.splitlines()[0] == "[10 lines]"
    assert text.splitlines()[-1] == str(BATCH + 9)


def test_line_that_never_ends_is_bounded() -> None:
    printed = Printed()
    for _ in range(100):
        printed.feed(b"y" * 10_000)
    assert len(printed._open) <= 65_536


def test_journal_gets_no_more_than_its_share() -> None:
    printed, told = Printed(), 0
    for _ in range(TOTAL // 1000):
        printed.feed((b"z" * 300 + b"\n") * 40)
        told += len(printed.taken())
    assert TOTAL < told < TOTAL + BATCH * LINE + 200
    assert printed.taken() == ""


def test_ending_is_the_last_lines() -> None:
    assert ending("a\n\x1b[1mb\x1b[0m\nc\n\n\n", 2) == "b\nc"
    assert len(ending("w" * 10_000)) <= LINE
    assert ending("\n\n") == ""
