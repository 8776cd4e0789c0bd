"""An answer is waited for by what it has to do: the prompt, the queue, and whether the engine moves."""

from __future__ import annotations

from pool.patience import Watch, first_budget


def test_long_prompts_and_queues_get_longer_to_begin() -> None:
    """agentic-api#220, llama-swap#1090: 30 s and 300 s for any prompt cut off those that needed 250."""
    assert first_budget(30, 100_000) > first_budget(30, 1000) > 30
    assert first_budget(30, 1000, ahead=500_000) > first_budget(30, 1000)
    assert first_budget(30, 100_000, forecast=250) > 30 + 250


def test_what_is_known_of_an_endpoint_replaces_the_guess() -> None:
    assert first_budget(30, 100_000, forecast=1.0) < first_budget(30, 100_000)


def watch() -> Watch:
    return Watch(first=10, idle=2, until=100, sent=0)


def test_before_the_first_piece_the_long_limit_holds_and_after_it_the_short_one() -> None:
    """maximhq/bifrost#5504: a stream hung for ever."""
    waiting = watch()
    assert waiting.left(4, moved_at=0) == 6
    waiting.heard(4)
    assert waiting.left(4, moved_at=0) == 2
    assert waiting.left(7, moved_at=0) < 0
    assert "stopped for 2 s" in waiting.verdict


def test_moving_engine_extends_both() -> None:
    """vllm-project/vllm#20520: giving up on a busy server and sending again doubled its load."""
    waiting = watch()
    assert waiting.left(15, moved_at=14) == 9
    waiting.heard(15)
    assert waiting.left(30, moved_at=29) == 1


def test_movement_before_it_was_sent_is_none_of_its_own() -> None:
    assert Watch(first=10, idle=2, until=100, sent=50).left(50, moved_at=3) == 10
