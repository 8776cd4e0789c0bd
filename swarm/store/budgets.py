"""What was spent, by whom, on which day: kept in the transaction that writes an attempt's own sum, so each is exact.

An attempt writes its whole sum each time. What it grew by since is added to the day's, so a sum that is written twice,
or late, counts once. Hosts add to rows of their own and do not wait for one another; readers sum these up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from swarm.budgets.scopes import FLEET, DayBudgets, Standing, day_of, limits_of, scopes_of, shut, together
from swarm.budgets.sums import granted
from swarm.shown import BudgetsView, Scope
from swarm.store import sums
from swarm.store.database import Database
from swarm.store.schema import attempts, spending, tasks
from swarm.types import Budget, Spent

OWN = tuple(name for name in Spent.model_fields if name != "attempts")
DAILY = ("steps", "tokens", "gpu_seconds", "money")
SHOWN = 1000  # scopes that one view holds

_WHOSE = (
    sa.select(attempts, tasks.c.repository, tasks.c.user, tasks.c.root, tasks.c.host.label("holder"))
    .join(tasks, tasks.c.id == attempts.c.task)
    .where(attempts.c.id == sa.bindparam("attempt"))
    .with_for_update(of=attempts)
)
# Built once: each step of each agent runs these, and to build one costs more than to run it.
_GROWN = attempts.update().where(attempts.c.id == sa.bindparam("whose")).values({n: sa.bindparam(n) for n in OWN})
_KIN = sa.select(tasks.c.id, tasks.c.follows, tasks.c.grants, tasks.c.budget).where(
    tasks.c.root == sa.bindparam("whose")
)


class Budgets:
    """The spending of a database. ``limits`` are the settings' budgets of a day, ``currency`` is that of all money.

    Every method raises StoreError when the database fails.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self.limits = DayBudgets()
        self.currency = "USD"

    def spend(self, attempt: str, spent: Spent, heard: Callable[[tuple[Standing, ...]], None] | None = None) -> None:
        """Write down what an attempt has spent so far. Returns at once; anything written later is later on disk too.

        ``heard`` is then told, on another thread, how the budgets stand that it counts in beside its task's own.
        """

        def act(connection: sa.Connection) -> None:
            row = connection.execute(_WHOSE, {"attempt": attempt}).one()
            self._count(connection, row, spent)
            if heard is not None:
                heard(self._around(connection, row))

        self._db.soon(act)

    async def standings(self, attempt: str) -> tuple[Standing, ...]:
        """How the budgets stand that an attempt counts in beside its task's own."""

        def act(connection: sa.Connection) -> tuple[Standing, ...]:
            return self._around(connection, connection.execute(_WHOSE, {"attempt": attempt}).one())

        return await self._db.do(act)

    async def view(self) -> BudgetsView:
        """What was spent today by everyone who spent or has a budget of their own."""

        def act(connection: sa.Connection) -> BudgetsView:
            day = day_of(self._db.clock())
            named = (
                *(f"repository:{name}" for name in self.limits.repositories),
                *(f"user:{name}" for name in self.limits.users),
            )
            found = {name: Spent() for name in (FLEET, *named)} | _spent(connection, day)
            scopes = [self._standing(scope, found[scope]) for scope in sorted(found)[:SHOWN]]
            shown = (Scope(scope=one.scope, spent=one.spent, limits=dict(one.limits), shut=shut(one)) for one in scopes)
            return BudgetsView(day=day, currency=self.currency, scopes=tuple(shown))

        return await self._db.do(act)

    def closed(self, connection: sa.Connection, now: float) -> tuple[tuple[str, str], ...]:
        """The scopes whose budget of the day is spent, each with the reason that people are shown."""
        if self.limits == DayBudgets():
            return ()
        found = _spent(connection, day_of(now))
        standings = (self._standing(scope, spent) for scope, spent in found.items())
        return tuple((one.scope, why) for one in standings if (why := shut(one)))

    def _count(self, connection: sa.Connection, row: sa.Row[Any], spent: Spent) -> None:
        grown = {name: max(0, getattr(spent, name) - getattr(row, name)) for name in OWN}
        values = {name: getattr(row, name) + more for name, more in grown.items()}
        connection.execute(_GROWN, {**values, "whose": row.id})
        daily = {name: grown[name] for name in DAILY}
        if any(daily.values()):
            key = {"day": day_of(self._db.clock()), "host": row.holder or ""}
            scopes = scopes_of(row.repository, row.user)
            sums.add(connection, spending, [{**key, "scope": scope, **daily} for scope in scopes])

    def _around(self, connection: sa.Connection, row: sa.Row[Any]) -> tuple[Standing, ...]:
        lineage = _lineage(connection, row.root)
        scopes = [scope for scope in scopes_of(row.repository, row.user) if limits_of(self.limits.of(scope))]
        spent = _spent(connection, day_of(self._db.clock()), scopes) if scopes else {}
        days = (self._standing(scope, spent.get(scope, Spent())) for scope in scopes)
        return (*([lineage] if lineage else ()), *days)

    def _standing(self, scope: str, spent: Spent) -> Standing:
        return Standing(scope, limits_of(self.limits.of(scope)), spent)


def _spent(connection: sa.Connection, day: str, scopes: list[str] | None = None) -> dict[str, Spent]:
    """What was spent on a day, by scope; of all hosts together."""
    query = sa.select(spending.c.scope, *(sa.func.sum(spending.c[name]).label(name) for name in DAILY))
    query = query.where(spending.c.day == day).group_by(spending.c.scope)
    if scopes is not None:
        query = query.where(spending.c.scope.in_(scopes))
    return {
        row.scope: Spent(
            steps=int(row.steps), tokens=int(row.tokens), gpu_seconds=float(row.gpu_seconds), money=float(row.money)
        )
        for row in connection.execute(query)
    }


def _lineage(connection: sa.Connection, root: str) -> Standing | None:
    """How the first task's budget stands over all that came of it; None where it is alone.

    What a person asks for grants more: a retry of whichever of them the first one's once more, a fork its own.
    """
    rows = connection.execute(_KIN, {"whose": root}).all()
    first = next((row.budget for row in rows if row.id == root), None)
    if len(rows) < 2 or first is None:
        return None
    given = [
        granted(Budget.model_validate_json(first if row.follows else row.budget), row.grants - bool(row.follows))
        for row in rows
        if row.grants > bool(row.follows)
    ]
    columns = (sa.func.coalesce(sa.func.sum(attempts.c[name]), 0).label(name) for name in OWN)
    query = sa.select(*columns).join(tasks, tasks.c.id == attempts.c.task).where(tasks.c.root == root)
    row = connection.execute(query).one()
    return Standing("lineage", together(given), Spent(**{name: _plain(getattr(row, name)) for name in OWN}))


def _plain(value: Any) -> float | int:
    """A sum as Python has it: Postgres gives decimals."""
    return value if isinstance(value, float) else int(value)
