"""What is done when a conversation outgrows its window: in which order, at what price, and that it always ends well."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from pool.errors import ContextOverflowError, OverloadError
from pool.testing import ScriptedPool, call
from pool.types import Choice, Message, Reply, Traits, Usage
from swarm import history, prompts
from swarm.conversation import room
from swarm.conversation.asking import GaveUpError, ask
from swarm.conversation.shrinking import CONDENSE
from swarm.errors import BudgetExceededError
from swarm.known import Guide, Known
from swarm.tools.kit import Result
from swarm.types import Budget
from tests.swarm.agentside.conversation.conftest import OpenBench, Scripted, orphans

SMALL = Traits(model="small", native=True, window=4000)
NOTES = "- the cause is in b.py, line 3\n- test_b fails"


class Model:
    """Views one file after another, with a remark of its own each time, then finishes; makes notes when asked to."""

    def __init__(self, *, turns: int = 12, notes: str = NOTES, said: str = "") -> None:
        self.turns, self.notes, self.said = turns, notes, said
        self.asked = 0

    def __call__(self, request):
        if request.session.endswith(CONDENSE):
            return Choice(content=self.notes)
        self.asked += 1
        last = self.asked > self.turns
        told = call("finish", title="t") if last else call("view", path=f"f{self.asked}.py")
        choice = told.model_copy(update={"content": self.said})
        prompt = room.weight(request.messages, request.tools) // 4
        usage = Usage(prompt_tokens=prompt, completion_tokens=10)
        return Reply(choices=(choice,), usage=usage, endpoint="e", model="m", seconds=0.0)


async def worked(at, kit: Scripted) -> None:
    talk = await at.begin()
    while not await at.turn(talk, kit):
        assert not orphans(talk.messages)


def long(lines: int = 60) -> Scripted:
    return Scripted(lambda name, arguments: Result(f"{arguments.get('path')}\n" + "some line of code\n" * lines))


class TierPool(ScriptedPool):
    """Tiers that differ in their windows; who was asked about is remembered."""

    def __init__(self, script, windows: dict[str, Traits]) -> None:
        super().__init__(script)
        self.windows = windows
        self.looked: list[str] = []

    async def traits(self, tier: str) -> Traits:
        self.looked.append(tier)
        return self.windows[tier]


async def test_a_tier_with_a_longer_window_is_asked_before_anything_is_taken_out(bench: OpenBench) -> None:
    at = bench(traits=SMALL, ladder=("small", "middle", "large"))
    middle, large = SMALL.model_copy(update={"window": 4100}), SMALL.model_copy(update={"window": 64_000})
    at.pool = TierPool(Model(), {"small": SMALL, "middle": middle, "large": large})
    await worked(at, long())
    (moved,) = at.about(history.LONGER)
    assert moved["tier"] == "large"
    assert "4000" in moved["text"]
    asked = [request.tier for request in at.requests]
    assert set(asked[: asked.index("large")]) == {"small"}
    assert set(asked[asked.index("large") :]) == {"large"}
    assert at.pool.looked == ["small", "middle", "large"], "each once"
    assert not [about for about in history.BREAKS if about != history.LONGER and at.about(about)]
    assert {step.data.get("tier") for step in at.steps if step.kind == "model_call"} == {None, "large"}


async def test_a_tier_that_a_person_named_is_kept_to(bench: OpenBench) -> None:
    at = bench(traits=SMALL)
    at.pool = TierPool(Model(), {"small": SMALL, "large": SMALL.model_copy(update={"window": 64_000})})
    await worked(at, long())
    assert {request.tier for request in at.requests} == {"small"}
    assert not at.about(history.LONGER)


async def test_a_longer_tier_that_speaks_another_way_is_left_alone(bench: OpenBench) -> None:
    at = bench(traits=SMALL, ladder=("small", "large"))
    at.pool = TierPool(Model(), {"small": SMALL, "large": Traits(window=64_000, native=False)})
    await worked(at, long())
    assert {request.tier for request in at.requests} == {"small"}


async def test_what_a_later_life_goes_on_with_is_the_longer_tier(bench: OpenBench) -> None:
    at = bench(traits=SMALL, ladder=("small", "large"))
    large = SMALL.model_copy(update={"window": 64_000})
    at.pool = TierPool(Model(), {"small": SMALL, "large": large})
    await worked(at, long())
    again = await at.again()
    assert (again.tier, again.traits) == ("large", large)


async def test_older_results_go_first_and_few_breaks_are_made(bench: OpenBench) -> None:
    at = bench(Model(turns=20), traits=SMALL.model_copy(update={"window": 6000}))
    await worked(at, long())
    assert at.about(history.ELIDED)
    assert len(at.about(history.ELIDED)) + len(at.about(history.CONDENSED)) <= 7, "each makes room for a while"
    assert not at.about("overflow")


async def test_words_that_no_elision_removes_are_condensed_to_notes(bench: OpenBench) -> None:
    at = bench(Model(said="I think about it at length. " * 30), traits=SMALL)
    await worked(at, long(2))
    (first, *_more) = at.about(history.CONDENSED)
    assert NOTES in first["notes"]
    last = at.requests[-1].messages
    assert last[0] == at.requests[0].messages[0]
    assert last[1].content.startswith(at.requests[0].messages[1].content), "the opening stays, the notes follow it"
    assert NOTES in last[1].content
    assert last[2].role == "assistant"


async def test_notes_have_a_line_and_a_price_of_their_own(bench: OpenBench) -> None:
    at = bench(Model(said="I think about it at length. " * 30), traits=SMALL)
    await worked(at, long(2))
    lines = at.about(CONDENSE)
    assert lines
    assert all(line["prompt_tokens"] > 0 and line["request"] and "message" not in line for line in lines)
    steps = [step for step in at.steps if step.kind == "model_call"]
    turns = [step for step in steps if "message" in step.data]
    talk = await at.again()
    assert len(turns) == 13
    assert len(steps) == 13 + len(lines)
    assert talk.progress.events


async def test_notes_are_charged_to_the_task_but_are_no_turn_of_its_agent(bench: OpenBench) -> None:
    at = bench(Model(said="I think about it at length. " * 30), traits=SMALL)
    talk = await at.begin()
    while not await at.turn(talk, long(2)):
        pass
    calls = [step.data for step in at.steps if step.kind == "model_call"]
    spent = talk.work.ledger.spent()
    assert spent.tokens == sum(line["prompt_tokens"] + line["completion_tokens"] for line in calls)
    assert spent.steps == len([line for line in calls if "message" in line]) < len(calls)


async def test_notes_come_from_the_weakest_tier_that_may_be_asked(bench: OpenBench) -> None:
    at = bench(ladder=("small", "large"))
    at.pool = TierPool(Model(said="I think about it at length. " * 30), {"small": SMALL, "large": SMALL})
    talk = await at.begin()
    talk.tier = "large"
    while not await at.turn(talk, long(2)):
        pass
    assert {request.tier for request in at.requests if request.session.endswith(CONDENSE)} == {"small"}


@pytest.mark.parametrize("notes", ["", "   \n", "x" * 60_000])
async def test_notes_that_are_none_or_make_nothing_smaller_are_not_taken(bench: OpenBench, notes: str) -> None:
    model = Model(said="I think about it at length. " * 30, notes=notes)
    at = bench(model, traits=SMALL)
    await worked(at, long(2))
    for line in at.about(history.CONDENSED):
        assert len(line["notes"]) < 5000
    if not notes.strip():
        assert not at.about(history.CONDENSED)
        assert at.about(history.ANEW), "it still goes on"


async def test_a_pool_that_makes_no_notes_ends_nothing(bench: OpenBench) -> None:
    model = Model(said="I think about it at length. " * 30)

    def script(request):
        return OverloadError("busy") if request.session.endswith(CONDENSE) else model(request)

    at = bench(script, traits=SMALL)
    await worked(at, long(2))
    assert not at.about(history.CONDENSED)
    assert at.about("refused")


async def test_notes_that_a_task_cannot_afford_are_not_bought(bench: OpenBench) -> None:
    model = Model(turns=9, said="I think about it at length. " * 30)
    at = bench(model, traits=SMALL.model_copy(update={"window": 3000}), budget=Budget(tokens=16_000))
    with suppress(BudgetExceededError):
        await worked(at, long(2))
    assert not at.about(CONDENSE)
    assert at.about(history.ANEW), "it goes on without"


async def test_the_worst_case_begins_anew_with_what_the_work_looks_like(bench: OpenBench) -> None:
    model = Model(said="I think about it at length. " * 30, notes="")
    at = bench(model, traits=SMALL)
    at.sandbox.printed = " M b.py\ndiff --git a/b.py b/b.py\n+fixed = 1\n"
    await worked(at, long(2))
    anew = at.about(history.ANEW)[0]["messages"]
    assert len(anew) == 2
    assert "+fixed = 1" in anew[1]["content"]
    assert anew[1]["content"].startswith(at.requests[0].messages[1].content)


async def test_files_and_test_results_are_known_when_it_begins_anew(bench: OpenBench) -> None:
    model = Model(said="I think about it at length. " * 30, notes="")

    def result(name, arguments):
        return Result("edited", kind="edit", changed=True, data={"path": "deep/b.py"})

    at = bench(model, traits=SMALL)
    await worked(at, Scripted(result))
    assert "deep/b.py" in at.about(history.ANEW)[0]["messages"][1]["content"]


async def test_what_is_known_of_a_repository_never_takes_a_small_window(bench: OpenBench) -> None:
    known = Known(guides=(Guide(path="AGENTS.md", text="Tabs. " * 1900),))
    at = bench(Model(), traits=SMALL, known=known)
    await worked(at, long(3))
    opening = at.requests[0].messages[1].content
    assert "characters are left out]" in opening
    assert len(opening) < 0.2 * 4000 * 3 + 1000


async def test_a_task_that_no_window_holds_gives_up_and_says_so(bench: OpenBench) -> None:
    at = bench(Model(), traits=SMALL, instructions="Mend this. " * 3000)
    talk = await at.begin()
    with pytest.raises(GaveUpError, match="does not fit"):
        await ask(talk.work, talk)
    assert not at.requests, "a request that cannot fit is not sent"


async def test_an_answer_is_asked_for_in_the_room_that_is_left(bench: OpenBench) -> None:
    """vllm-project/vllm#42474: prompt and max_tokens over the window are refused with 400."""
    at = bench(Model(turns=20), traits=SMALL)
    await worked(at, long(20))
    for request in at.requests:
        prompt = room.weight(request.messages, request.tools) // 4  # as the scripted server counts
        assert prompt + request.max_tokens <= 4000


async def test_a_window_is_learned_from_a_servers_refusal(bench: OpenBench) -> None:
    def script(request):
        prompt = room.weight(request.messages, request.tools) // 4
        if prompt + request.max_tokens > 3000:
            return ContextOverflowError("maximum context length is 3000 tokens", window=3000, prompt=prompt)
        return call("finish", title="t")

    at = bench(script, traits=Traits(native=True))
    await worked(at, long())
    first, second = at.requests
    assert second.messages == first.messages, "a shorter answer was enough"
    assert second.max_tokens < first.max_tokens
    past = history.rebuild(at.steps)
    assert past is not None
    assert past.traits is not None
    assert past.traits.window == 3000


async def test_a_window_that_nobody_tells_is_found_by_shorter_answers(bench: OpenBench) -> None:
    def script(request):
        return ContextOverflowError("too long") if request.max_tokens > 1000 else call("finish", title="t")

    at = bench(script, traits=Traits(native=True))
    await worked(at, long())
    assert [request.max_tokens for request in at.requests] == [4096, 2048, 1024, 512]


async def test_a_conversation_in_notes_is_gone_on_with_after_a_crash(bench: OpenBench) -> None:
    at = bench(Model(said="I think about it at length. " * 30), traits=SMALL)
    await worked(at, long(2))
    cut = max(n for n, step in enumerate(at.steps) if step.data.get("about") == history.CONDENSED)
    for point in range(cut - 2, cut + 3):
        later = bench(Model(turns=0), traits=SMALL)
        later.steps = list(at.steps[:point])
        talk = await later.again()
        assert not orphans(talk.messages)
        assert talk.messages[-1].role != "assistant"
        again = replace(talk.work, past=tuple(later.steps))
        assert again.past
        await later.turn(talk, long(2))


@pytest.mark.parametrize(("notes", "about"), [(NOTES, history.CONDENSED), ("", history.ANEW)])
async def test_what_a_person_said_stays_word_for_word(bench: OpenBench, notes: str, about: str) -> None:
    at = bench(Model(said="I think about it at length. " * 30, notes=notes), traits=SMALL)
    at.hear("Never touch the vendored folder. " * 12)
    await worked(at, long(2))
    assert at.about(about)
    last = "".join(message.content for message in at.requests[-1].messages)
    assert "Never touch the vendored folder. " * 12 in last


def test_elision_spares_what_a_person_said_but_not_what_nobody_types() -> None:
    opening = [Message(role="system", content="s"), Message(role="user", content="t")]
    spoken = Message(role="user", content=prompts.said("ann", "mind the bound " * 40))
    dumped = Message(role="user", content=prompts.said("ann", "x" * 100_000))
    kept = history.elide([*opening, spoken, dumped, Message(role="user", content="result " * 100)], 0)
    assert kept[2] == spoken
    assert "removed" in kept[3].content
    assert "removed" in kept[4].content


async def test_notes_that_never_help_are_not_asked_for_without_end(bench: OpenBench) -> None:
    at = bench(Model(turns=40, said="I think about it at length. " * 30, notes=""), traits=SMALL)
    await worked(at, long(2))
    assert 1 <= len(at.about(CONDENSE)) <= 3
