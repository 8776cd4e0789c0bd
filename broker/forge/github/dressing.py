"""Labels, reviewers and assignees of a pull request: what the forge does not take is told, the rest put on."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence

from broker.errors import ForgeError
from broker.forge.base import Dressing
from broker.forge.github.place import Place
from broker.forge.github.reading import text
from broker.forge.rest.door import Visit
from broker.forge.rest.problems import Reason

_TELLABLE = {Reason.INVALID, Reason.SCOPE, Reason.ABSENT, Reason.BRANCH, Reason.DUPLICATE, Reason.CONFLICT}
_YOUNG = {Reason.ABSENT, Reason.INVALID}


def put_on(visit: Visit, place: Place, number: int, dressing: Dressing, me: str | None) -> tuple[str, ...]:
    """Puts everything on that is asked for. Raises ForgeError where the forge is out of reach or order."""
    told: list[str] = []
    if dressing.labels:
        told += _tried("labels", lambda: _label(visit, place, number, dressing.labels))
    reviewers = [one for one in dressing.reviewers if me is None or one.lower() != me.lower()]
    told += [f"{one} cannot review what it opened itself" for one in dressing.reviewers if one not in reviewers]
    told += _ask_for_review(
        visit, place.repo("pulls", number, "requested_reviewers"), reviewers, dressing.team_reviewers
    )
    if dressing.assignees:
        told += _assign(visit, place.repo("issues", number, "assignees"), dressing.assignees)
    return tuple(told)


def _tried(what: str, act: Callable[[], object]) -> list[str]:
    try:
        act()
    except ForgeError as error:
        if error.reason not in _TELLABLE:
            raise
        return [f"{what}: {error}"]
    return []


def _label(
    visit: Visit,
    place: Place,
    number: int,
    labels: Sequence[str],
    pauses: Sequence[float] = (1.0, 3.0, 6.0),
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """A pull request that was only just made may not be there yet for labels; gh-aw waits for it too."""
    for pause in (*pauses, None):
        try:
            visit.post(place.repo("issues", number, "labels"), {"labels": list(labels)}, doing="labels", again=True)
        except ForgeError as error:
            if pause is None or error.reason not in _YOUNG:
                raise
            sleep(pause)
        else:
            return


def _ask_for_review(visit: Visit, path: str, people: Sequence[str], teams: Sequence[str]) -> list[str]:
    """All at once; where one is refused GitHub takes nobody, so then one by one."""
    if not people and not teams:
        return []
    wanted = {"reviewers": list(people), "team_reviewers": list(teams)}
    if not _tried("reviewers", lambda: visit.post(path, wanted, doing="reviewers", again=True)):
        return []
    told: list[str] = []
    for key, names in wanted.items():
        for name in names:
            ask = functools.partial(visit.post, path, {key: [name]}, doing="ask for a review", again=True)
            told += _tried(f"reviewer {name}", ask)
    return told


def _assign(visit: Visit, path: str, people: Sequence[str]) -> list[str]:
    """GitHub leaves out whom it cannot assign without a word, so its answer is compared."""
    taken: set[str] = set()

    def act() -> None:
        answer = visit.post(path, {"assignees": list(people)}, doing="assignees", again=True).mapping()
        for one in answer.get("assignees") or ():
            taken.add(text(one.get("login") if isinstance(one, dict) else "", 100).lower())

    return _tried("assignees", act) or [f"{one} cannot be assigned here" for one in people if one.lower() not in taken]
