"""Whether a token for Gitea can do what the broker needs, and no more than that."""

from __future__ import annotations

from typing import Any

from broker.forge.account import Account
from broker.forge.base import Checked
from broker.forge.gitea.site import Site
from broker.forge.reading import inside
from broker.forge.rest.address import part
from broker.forge.rest.door import Door


def examine(door: Door, site: Site, account: Account, base: str, prefix: str) -> tuple[Checked, ...]:
    """Reads only. Raises ForgeError."""
    with door.visit() as visit:
        me = account.name(visit)
        repository = visit.get(site.path, doing="the repository could not be read").mapping()
        reply = visit.get_or_none(f"{site.path}/branches/{part(base)}", doing=f"branch {base}")
    branch = {} if reply is None else reply.mapping()
    return (_credential(me), *_rights(repository), _rule(branch, base, prefix))


def _credential(me: str | None) -> Checked:
    if me is None:
        mend = "give the token the scope read:user: without it the broker cannot tell its comments from others'"
        return Checked("credential", "fail", "the token may not read its own account", mend)
    return Checked("credential", "ok", f"the token acts as {me}")


def _rights(repository: dict[str, Any]) -> list[Checked]:
    told = []
    if repository.get("archived") is True:
        told.append(Checked("scopes", "fail", "the repository is archived", "take it out of the archive"))
    if repository.get("has_pull_requests") is False:
        mend = "switch them on in the repository's settings"
        told.append(Checked("scopes", "fail", "pull requests are switched off", mend))
    if inside(repository, "permissions", "push") is not True:
        mend = "make the account a collaborator with write access"
        told.append(Checked("scopes", "fail", "the account may not push", mend))
    elif inside(repository, "permissions", "admin") is True:
        mend = "give it write access; then only who may be assigned counts as permitted to start tasks"
        told.append(Checked("scopes", "warn", "the account administers the repository, more than pushing needs", mend))
    return told or [Checked("scopes", "ok", "the account may push and open pull requests")]


def _rule(branch: dict[str, Any], base: str, prefix: str) -> Checked:
    if not branch:
        return Checked("branch-rule", "fail", f"there is no branch {base}", "correct default_base in broker.toml")
    if branch.get("protected") is not True or branch.get("user_can_push") is True:
        mend = f"protect {base} on the forge, without push for this account; leave {prefix}* open to it"
        return Checked("branch-rule", "warn", f"the forge itself would let this account push to {base}", mend)
    return Checked("branch-rule", "ok", f"the forge itself keeps this account from {base}")
