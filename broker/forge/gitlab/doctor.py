"""Whether a token for GitLab can do what the broker needs, and no more than that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from broker.errors import ForgeError
from broker.forge.account import Account
from broker.forge.base import Checked
from broker.forge.gitlab.site import Site
from broker.forge.reading import inside, line, number
from broker.forge.rest.address import part
from broker.forge.rest.door import Door, Visit
from broker.forge.rest.problems import Reason

_DEVELOPER, _MAINTAINER = 30, 40
_SOON = timedelta(days=14)


def examine(door: Door, site: Site, account: Account, base: str, prefix: str) -> tuple[Checked, ...]:
    """Reads only. Raises ForgeError."""
    with door.visit() as visit:
        me = account.name(visit)
        project = visit.get(site.path, doing="the project could not be read").mapping()
        reply = visit.get_or_none(f"{site.path}/repository/branches/{part(base)}", doing=f"branch {base}")
        token = _token(visit)
    branch = {} if reply is None else reply.mapping()
    found = [Checked("credential", "ok", f"the token acts as {me}"), *_lifetime(token), *_scopes(token)]
    return (*found, *_rights(project), _rule(branch, base, prefix))


def _token(visit: Visit) -> dict[str, Any]:
    """What GitLab tells of the token itself; an OAuth token has nothing to tell."""
    try:
        reply = visit.get_or_none("/personal_access_tokens/self", doing="the token")
    except ForgeError as error:
        if error.reason not in {Reason.SCOPE, Reason.TOKEN}:
            raise
        return {}
    return {} if reply is None else reply.mapping()


def _lifetime(token: dict[str, Any]) -> list[Checked]:
    try:
        ends = datetime.fromisoformat(line(token.get("expires_at"), 40)).replace(tzinfo=UTC)
    except ValueError:
        return []
    if ends - datetime.now(UTC) > _SOON:
        return []
    return [Checked("credential", "warn", f"the token expires on {ends:%Y-%m-%d}", "make a new one in time")]


def _scopes(token: dict[str, Any]) -> list[Checked]:
    scopes = token.get("scopes")
    if not isinstance(scopes, list):
        return []
    if "api" not in scopes:
        mend = "make a project access token with the scope api: GitLab has no narrower one for merge requests"
        return [Checked("scopes", "fail", "the token has not the scope api", mend)]
    more = sorted(line(one, 40) for one in scopes if one not in {"api", "write_repository", "read_repository"})
    if {"sudo", "admin_mode"} & set(more):
        return [Checked("scopes", "warn", f"the token can do more than needed: {', '.join(more)}", "make a lesser one")]
    return []


def _rights(project: dict[str, Any]) -> list[Checked]:
    if project.get("archived") is True:
        return [Checked("scopes", "fail", "the project is archived", "take it out of the archive")]
    if project.get("merge_requests_access_level") == "disabled":
        mend = "switch them on in the project's settings"
        return [Checked("scopes", "fail", "merge requests are switched off", mend)]
    ways = (inside(project, "permissions", kind, "access_level") for kind in ("project_access", "group_access"))
    level = max(number(one) for one in ways)
    if level < _DEVELOPER:
        return [Checked("scopes", "fail", "the account is no developer here", "give its token the role Developer")]
    if level >= _MAINTAINER:
        mend = "the role Developer is enough, and may not change the project or push to protected branches"
        return [Checked("scopes", "warn", "the account is a maintainer or owner, more than needed", mend)]
    return [Checked("scopes", "ok", "the account is a developer")]


def _rule(branch: dict[str, Any], base: str, prefix: str) -> Checked:
    if not branch:
        return Checked("branch-rule", "fail", f"there is no branch {base}", "correct default_base in broker.toml")
    if branch.get("protected") is not True or branch.get("can_push") is True:
        mend = f"protect {base}: allowed to push: no one; do not protect {prefix}*"
        return Checked("branch-rule", "warn", f"GitLab itself would let this account push to {base}", mend)
    return Checked("branch-rule", "ok", f"GitLab itself keeps this account from {base}")
