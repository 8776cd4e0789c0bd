"""The agent's loop: listen, ask, act, observe, until finished or out of budget. What must always be lies outside it."""

from __future__ import annotations

from swarm.conversation.acting import Done, act
from swarm.conversation.asking import GaveUpError, ask
from swarm.conversation.lessons import lessons
from swarm.conversation.resuming import resume
from swarm.conversation.talk import Talk, begin
from swarm.errors import BudgetExceededError
from swarm.tools.kit import Toolkit
from swarm.types import Conclusion, Ending
from swarm.work import Work


class Agent:
    """The strategy `agent`: one model, the tools, its own judgement."""

    async def work(self, work: Work) -> Conclusion:
        """Let the model work until it finishes, asks, gives up or has spent the budget. Raises PoolError and
        SandboxError."""
        kit = Toolkit(work.sandbox, work.test_command)
        kit.recall(step.data for step in work.past)
        talk = await begin(work, kit)
        try:
            done = await resume(work, talk)
            while True:
                heard = await talk.listen()
                if done is not None and not heard:
                    return await _done(work, talk, done)
                done = await act(work, talk, kit, await ask(work, talk))
        except BudgetExceededError as error:
            await work.save()
            return _ended(talk, "limit_hit", str(error), limit=error.limit)
        except GaveUpError as error:
            await work.save()
            return _ended(talk, "gave_up", str(error))


async def _done(work: Work, talk: Talk, done: Done) -> Conclusion:
    if done.finish is None:
        await work.save()
        return _ended(talk, "asked", done.ask)
    ending: Ending = "finished" if talk.changed else "no_change"
    return _ended(talk, ending, done.finish.summary, title=done.finish.title)


def _ended(talk: Talk, ending: Ending, summary: str, *, title: str = "", limit: str = "") -> Conclusion:
    """How it ended, with what a fresh attempt should know of it."""
    said = ("", f"{title}\n{summary}") if ending == "finished" else (summary, "")
    told = lessons(talk.trail, *said) if ending in {"finished", "gave_up", "limit_hit"} else ""
    return Conclusion(ending=ending, title=title, summary=summary, model=talk.model, limit=limit, lessons=told)
