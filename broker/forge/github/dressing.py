"""Labels, reviewers and assignees of a pull request: what the forge does not take is told, the rest put on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from broker.errors import ForgeError
from broker.forge.base import Dressing
from broker.forge.dressed import Complaints
from broker.forge.github.place import Place
from broker.forge.reading import items, login
from broker.forge.rest.door import Visit
from broker.forge.rest.problems import Reason

_PAUSES = (1.0, 3.0, 6.0)  # seconds


def put_on(
    visit: Visit, place: Place, number: int, dressing: Dressing, me: str | None, sleep: Callable[[float], None]
) -> tuple[str, ...]:
    """Puts everything on that is asked for. Raises ForgeError where the forge is out of reach or order."""
    told = Complaints()
    if dressing.labels:
        with told.of("labels"):
            _label(visit, place.repo("issues", number, "labels"), dressing.labels, sleep)
    reviewers = [one for one in dressing.reviewers if me is None or one.lower() != me.lower()]
    for one in set(dressing.reviewers) - set(reviewers):
        told.add(f"{one} cannot review what it opened itself")
    wanted = {"reviewers": reviewers, "team_reviewers": list(dressing.team_reviewers)}
    if any(wanted.values()):
        _ask_for_review(visit, place.repo("pulls", number, "requested_reviewers"), wanted, told)
    if dressing.assignees:
        with told.of("assignees"):
            _assign(visit, place.repo("issues", number, "assignees"), dressing.assignees, told)
    return told.all


def _label(visit: Visit, path: str, labels: Sequence[str], sleep: Callable[[float], None]) -> None:
    """A pull request that was only just made may not be there yet for labels; gh-aw waits for it too."""
    for pause in (*_PAUSES, None):
        try:
            visit.post(path, {"labels": list(labels)}, doing="put labels on", again=True)
        except ForgeError as error:
            if pause is None or error.reason != Reason.ABSENT:
                raise
            sleep(pause)
        else:
            return


def _ask_for_review(visit: Visit, path: str, wanted: Mapping[str, Sequence[str]], told: Complaints) -> None:
    """All at once; where one is refused GitHub takes nobody, so then one by one."""
    together = Complaints()
    with together.of("reviewers"):
        visit.post(path, wanted, doing="ask for reviews", again=True)
    if not together.all:
        return
    for key, names in wanted.items():
        for name in names:
            with told.of(f"reviewer {name}"):
                visit.post(path, {key: [name]}, doing="ask for a review", again=True)


def _assign(visit: Visit, path: str, people: Sequence[str], told: Complaints) -> None:
    """GitHub leaves out whom it cannot assign without a word, so its answer is compared."""
    answer = visit.post(path, {"assignees": list(people)}, doing="assign", again=True).mapping()
    taken = {login(one.get("login")).lower() for one in items(answer.get("assignees"))}
    for one in people:
        if one.lower() not in taken:
            told.add(f"assignee {one}: cannot be assigned here")
