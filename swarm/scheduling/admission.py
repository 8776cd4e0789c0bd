"""Whether a queued task may start now and, if not, the reason that a person is shown. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from swarm.scheduling.facts import Busy, Candidate, Caps, Hold, HostFacts, Running


def may_run(candidate: Candidate, running: Running, caps: Caps, host: HostFacts) -> str:
    """Why a task waits, in words; empty when the host may start it now.

    Reasons that hold for the task alone come first: they are what a person can do something about.
    """
    return next(_reasons(candidate, running, caps, host), "")


def waits_for(candidate: Candidate, running: Running, caps: Caps, hosts: Sequence[HostFacts]) -> str:
    """Why a task waits though there are ``hosts``; empty when one of them may start it as soon as it asks."""
    if not hosts:
        return "waits for a host: no daemon that takes tasks is alive"
    able = [host for host in hosts if host.labels.issuperset(candidate.requires)]
    if not able and not candidate.needs:
        missing = ", ".join(sorted(set(candidate.requires)))
        return f"needs a host with {missing}; none of {', '.join(host.name for host in hosts[:5])} has all of it"
    found = [may_run(candidate, running, caps, host) for host in able or hosts[:1]]
    return "" if "" in found else found[0]


def _reasons(candidate: Candidate, running: Running, caps: Caps, host: HostFacts) -> Iterator[str]:
    if candidate.needs:
        yield f"waits for {_many(candidate.needs, 'task')} that it needs"
    yield from _locked(candidate, running.busy)
    yield from _held(candidate, running.holds, host)
    if candidate.not_before > running.now:
        yield f"is tried again in {candidate.not_before - running.now:.0f} s, after a fault"
    if missing := sorted(set(candidate.requires) - host.labels):
        yield f"needs a host with {', '.join(missing)}; {host.name} has not"
    working = tuple(one for one in running.busy if not one.delivering)
    yield from _capped(candidate, working, caps)
    if sum(1 for one in working if one.host == host.name) >= host.slots:
        yield f"waits for a free worker: all {host.slots} of {host.name} are busy"


def _locked(candidate: Candidate, busy: tuple[Busy, ...]) -> Iterator[str]:
    for one in busy:
        if candidate.mutex is not None and one.mutex == candidate.mutex:
            yield f'waits for task {one.task}, which has the mutex "{candidate.mutex}"'
        if candidate.pull and one.pull == candidate.pull:
            yield f"waits for task {one.task}, which works on the same pull request"


def _held(candidate: Candidate, holds: tuple[Hold, ...], host: HostFacts) -> Iterator[str]:
    scopes = scopes_of(candidate.repository, candidate.user, candidate.tier)
    goes_on = candidate.begun == host.name
    yield from (hold.reason for hold in holds if hold.scope in scopes and not (hold.fresh and goes_on))


def scopes_of(repository: str, user: str, tier: str) -> frozenset[str]:
    """Every scope that a task belongs to."""
    return frozenset({f"repository:{repository}", f"user:{user}", f"tier:{tier}", "fleet"})


def _capped(candidate: Candidate, busy: tuple[Busy, ...], caps: Caps) -> Iterator[str]:
    if caps.fleet is not None and len(busy) >= caps.fleet:
        yield f"waits: {len(busy)} of at most {caps.fleet} tasks run"
    kinds = (
        ("repository", candidate.repository, caps.repositories, caps.per_repository),
        ("user", candidate.user, caps.users, caps.per_user),
        ("tier", candidate.tier, caps.tiers, caps.per_tier),
    )
    for kind, name, own, otherwise in kinds:
        cap = _cap(name, own, otherwise)
        count = sum(1 for one in busy if getattr(one, kind) == name)
        if cap is not None and count >= cap:
            yield f"waits: {count} of at most {cap} tasks of {kind} {name or '(nobody)'} run"


def _cap(name: str, own: Mapping[str, int], otherwise: int | None) -> int | None:
    return own.get(name, otherwise)


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
