"""What a person should know of the credential and the repository's rules before the first proposal. Reads only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from broker.forge.base import Checked
from broker.forge.github.place import Place
from broker.forge.reading import inside, items, line
from broker.forge.rest.door import Visit

_ENOUGH = {"repo", "public_repo"}
_IN_THE_WAY = {
    "creation": "branches may not be created",
    "update": "branches may not be updated",
    "pull_request": "changes must come by a pull request, which a branch of the broker's cannot",
    "required_signatures": "commits must be signed, which the broker's are not",
    "branch_name_pattern": "names of branches must fit a pattern",
    "commit_message_pattern": "commit messages must fit a pattern",
    "commit_author_email_pattern": "authors' addresses must fit a pattern",
    "committer_email_pattern": "committers' addresses must fit a pattern",
    "required_status_checks": "checks must have passed before the push",
}
_MEND = "let the rule leave out {prefix}**, or let the broker's App or user bypass it"


def examined(visit: Visit, place: Place, prefix: str) -> Iterator[Checked]:
    """Rights of the credential, state of the repository, rules over the broker's branches. Raises ForgeError."""
    reply = visit.get(place.repo(), doing="the repository")
    told = reply.mapping()
    if told.get("archived") is True:
        mend = "take it out of the archive, or out of broker.toml"
        yield Checked("scopes", "fail", f"{place.full_name} is archived: it takes nothing", mend)
    yield from _rights(told, reply.headers)
    found = visit.get_or_none(place.repo("rules", "branches", f"{prefix}probe"), doing="the branch rules")
    if found is not None:  # an older Enterprise Server has none
        yield from _rules({line(rule.get("type")) for rule in items(found.json())}, prefix)


def _rights(told: Mapping[str, Any], headers: Mapping[str, str]) -> Iterator[Checked]:
    """A classic token names its scopes in a header; for all kinds the repository tells what they may do there."""
    scopes = {scope.strip() for scope in headers.get("x-oauth-scopes", "").split(",") if scope.strip()}
    if extra := sorted(line(scope, 40) for scope in scopes - _ENOUGH):
        mend = "use a GitHub App or a fine-grained token for this repository alone (docs/broker-github.md)"
        yield Checked("scopes", "warn", f"the classic token may do more than it needs: {', '.join(extra)}", mend)
    if inside(told, "permissions", "push") is False:
        mend = "give it Contents: write and Pull requests: write"
        yield Checked("scopes", "fail", "the credential may not push to this repository", mend)
    elif inside(told, "permissions", "admin") is True:
        mend = "use an account or App without administration rights"
        yield Checked("scopes", "warn", "the credential's account administers this repository", mend)
    elif not extra:
        yield Checked("scopes", "ok", "the credential may push and is no administrator's")


def _rules(types: set[str], prefix: str) -> Iterator[Checked]:
    for kind in sorted(types & _IN_THE_WAY.keys()):
        words = f"a rule of the repository covers {prefix}**: {_IN_THE_WAY[kind]}"
        yield Checked("branch-rule", "warn", words, _MEND.format(prefix=prefix))
    if not types & _IN_THE_WAY.keys():
        yield Checked("branch-rule", "ok", f"no rule stands in the way of branches under {prefix}")
