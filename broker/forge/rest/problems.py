"""What a forge said when it refused, as a reason with its mend: pure, for GitHub, Gitea and GitLab alike.

Shapes: GitHub {message, errors[{resource, field, code, message}], documentation_url}; Gitea {message, url}; GitLab
{message: text, list or map} or {error, error_description}; a proxy's text or page. All of it is foreign: cleaned, cut.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from broker.errors import ForgeError

_LONGEST = 300
_NOISE = re.compile(r"hint:|failed to push some refs|askpass|^=+$|^To http", re.IGNORECASE)
_DEEPEST = 4
_SECRET = re.compile(
    r"gh[opusr]_\w+|github_pat_\w+|gl[a-z]{2,6}-[\w.-]{10,}|eyJ[\w-]+\.[\w-]+\.[\w-]*|(?<=://)[^/@\s]+@|\b[0-9a-f]{40}(?=@)"
)


class Reason(StrEnum):
    """Why a forge refused, for code to decide by."""

    TOKEN = "token"  # noqa: S105 - it is expired, revoked or wrong
    SCOPE = "scope"
    SSO = "sso"
    ARCHIVED = "archived"
    BLOCKED = "blocked"
    ABSENT = "absent"
    DUPLICATE = "duplicate"
    NO_DIFF = "no-diff"
    BRANCH = "branch"
    PROTECTED = "protected"
    SECRET = "secret"  # noqa: S105 - push protection found one
    WORKFLOWS = "workflows"
    CONFLICT = "conflict"
    LIMIT = "limit"
    MOVED = "moved"
    BROKEN = "broken"
    UNREACHABLE = "unreachable"
    LARGE = "large"  # the answer, which may hold what anybody wrote
    INVALID = "invalid"
    UNCLEAR = "unclear"  # turned down, in words or with a status that nobody knows


@dataclass(frozen=True)
class Problem:
    """A refusal: its reason, the words for a person, and the mend."""

    reason: Reason
    message: str
    mend: str = ""

    def error(self, *, uncertain: bool = False) -> ForgeError:
        """The same as an exception."""
        return ForgeError(self.message, self.mend, reason=self.reason, uncertain=uncertain)


@dataclass(frozen=True)
class _Rule:
    reason: Reason
    pattern: re.Pattern[str]
    message: str
    mend: str
    statuses: tuple[int, ...] = ()


def _rule(reason: Reason, pattern: str, message: str, mend: str, *statuses: int) -> _Rule:
    return _Rule(reason, re.compile(pattern, re.IGNORECASE), message, mend, statuses)


# In order: the first that fits is told. What is most particular comes first.
_RULES = (
    _rule(
        Reason.WORKFLOWS,
        r"without [`'\"]?workflows?[`'\"]? (permission|scope)",
        "the forge lets this credential touch no workflow file; it says so too where the branch only stands on an old "
        "commit whose workflows differ from the default branch's",
        "submit the task again on the base as it is now; if it is to change workflows, a person makes that change",
    ),
    _rule(
        Reason.SECRET,
        r"push protection|GH009|secret[s]? (was|were )?(found|detected)|cannot contain secrets",
        "the forge's push protection found what looks like a secret",
        "take it out of the change; if it is none, a person allows it on the forge",
    ),
    _rule(
        Reason.PROTECTED,
        r"GH013|GH006|repository rule violations|protected branch|branch is protected|not allowed to (push|force push)"
        r"|pre-receive hook declined|TF402455",
        "a rule of the forge protects this branch",
        "let the credential create branches under the broker's prefix (the forge's page in docs/ tells how)",
    ),
    _rule(
        Reason.INVALID,
        r"draft pull requests are not supported",
        "this repository's plan has no drafts",
        "set draft = false in the repository's policy",
        422,
    ),
    _rule(
        Reason.SSO,
        r"saml|single sign-on|sso authorization",
        "the organisation wants this token to be authorised for single sign-on",
        "authorise it in the token's settings on the forge, or use a GitHub App",
    ),
    _rule(
        Reason.ARCHIVED,
        r"archived|read-only",
        "the repository is archived",
        "take it out of the archive, or out of broker.toml",
    ),
    _rule(
        Reason.BLOCKED,
        r"user is blocked|blocked user|account (was|is|has been) (suspended|blocked|locked)|suspended"
        r"|repository access blocked|is blocked|has been disabled",
        "the account or its access is blocked",
        "ask the repository's owner",
    ),
    _rule(
        Reason.TOKEN,
        r"bad credentials|token (is |was |has )?(been )?(expired|revoked|invalid)|invalid_token|requires authentication"
        r"|authentication required|(?<!certificate has )expired",
        "the forge does not take the credential: it is expired, revoked or wrong",
        "put a new one where broker.toml says it lies",
        401,
    ),
    _rule(
        Reason.DUPLICATE,
        r"already exists",
        "the forge has it already",
        "",
        409,
        422,
        400,
    ),
    _rule(
        Reason.NO_DIFF,
        r"no commits between|no difference|there are no changes|nothing to compare|must be different|same branch",
        "there is nothing between the branch and its base",
        "the base has this change already: nothing is to be done",
        422,
        400,
        409,
    ),
    _rule(
        Reason.SCOPE,
        r"resource not accessible|insufficient[_ ](scope|permission)|required scope"
        r"|does not have (the )?(required|right)|must have (admin|push|write)|not authorized|permission denied"
        r"|denied to |read access|token does not have",
        "the credential lacks a permission that this needs",
        "give it the permissions of the forge's page in docs/, and no more",
        401,
        403,
        404,
    ),
    _rule(
        Reason.BRANCH,
        r"(field[\"': ]+(head|base|head_repo))"
        r"|(head|base|source_branch|target_branch)\b.{0,40}(invalid|missing|does not exist)"
        r"|branch.{0,40}(not (found|exist)|does not exist|invalid)|reference does not exist",
        "the branch or its base is not there",
        "look whether the base still exists; submit the task on another",
        422,
        400,
        404,
    ),
    _rule(
        Reason.CONFLICT,
        r"not a fast.?forward|merge conflict|sha does not match|reference update failed",
        "it was moved by someone else meanwhile",
        "look at it anew",
    ),
)
_BY_STATUS = {
    401: (Reason.TOKEN, "the forge does not take the credential", "put a new one where broker.toml says it lies"),
    403: (
        Reason.SCOPE,
        "the forge does not allow this",
        "give the credential the permissions of the forge's page in docs/, and no more",
    ),
    404: (
        Reason.ABSENT,
        "the forge knows no such thing, or hides it from this credential",
        "compare url in broker.toml; give the credential access to the repository",
    ),
    408: (Reason.UNREACHABLE, "the forge had no more time for it", "try again later"),
    409: (Reason.CONFLICT, "it collides with what is there", ""),
    410: (Reason.ABSENT, "it is gone, or that part of the forge is switched off", ""),
    413: (Reason.INVALID, "it is too large for the forge", ""),
    422: (Reason.INVALID, "the forge refused it", ""),
    423: (Reason.ARCHIVED, "the repository is archived or locked", "unlock it, or take it out of broker.toml"),
    425: (Reason.UNREACHABLE, "the forge was asked too early", "try again later"),
    429: (Reason.LIMIT, "the forge was asked too often", "nothing to do: it is tried again later"),
    451: (Reason.BLOCKED, "access is blocked for legal reasons", "ask the repository's owner"),
}
_MOVED = (
    Reason.MOVED,
    "the forge points elsewhere, and the broker does not follow",
    "the repository was renamed or moved: correct its address in broker.toml",
)
_NO_WAY = (
    r"could not resolve|failed to connect|timed out|took longer|error: (408|425|5\d\d)|ssl|certificate"
    r"|unexpected disconnect|hung up|early eof|rpc failed|curl \d+|connection (was )?(reset|closed|refused)"
)
# What git itself says of the way there; only looked at where the forge's own words named no reason.
_OF_GIT = tuple(
    (re.compile(pattern), told)
    for pattern, told in (
        (r"authentication failed|could not read username|error: 401", _BY_STATUS[401]),
        (r"error: 429|too many requests|rate.?limit (exceeded|reached)|exceeded.{0,40}rate.?limit", _BY_STATUS[429]),
        (r"error: 403", _BY_STATUS[403]),
        (r"not found|error: 404", _BY_STATUS[404]),
        (r"redirect|error: 30\d", _MOVED),
        (_NO_WAY, (Reason.UNREACHABLE, "the forge could not be reached", "try again later")),
    )
)
# An unknown word of git's may be about this very minute, so it is no verdict on the content.
_GIT_FAILED = (Reason.BROKEN, "git could not do it", "see what the forge says; it is tried again later")


def read(
    status: int,
    body: bytes,
    headers: Mapping[str, str] | None = None,
    doing: str = "",
    strike: Callable[[str], str] = str,
) -> Problem:
    """The refusal in an answer. ``doing`` names what was asked, ``headers`` have lower-case names.

    ``strike`` takes secrets out: before anything is cut, since half a secret is known to nobody.
    """
    headers = headers or {}
    words = said(body, strike=strike)
    if 300 <= status < 400:
        reason, message, mend = _MOVED
        return Problem(reason, _told(doing, message, ""), mend)
    if "x-github-sso" in headers and status == 403:
        return _by(next(rule for rule in _RULES if rule.reason is Reason.SSO), doing, words)
    for rule in _RULES:
        if (not rule.statuses or status in rule.statuses) and status < 500 and rule.pattern.search(words):
            return _by(rule, doing, words)
    if status >= 500:
        message = _told(doing, f"the forge is out of order ({status})", words)
        return Problem(Reason.BROKEN, message, "try again later")
    # What nobody knows may be a proxy's own word, or about this very minute: no verdict on the content.
    reason, message, mend = _BY_STATUS.get(status, (Reason.UNCLEAR, f"the forge refused it ({status})", ""))
    return Problem(reason, _told(doing, message, words), mend)


def of_push(said_by_remote: str, doing: str = "") -> Problem:
    """The refusal in what git and the remote printed about a push or fetch (cleaned or not)."""
    words = clean(_of_git(said_by_remote), 500)
    for rule in _RULES:
        if rule.pattern.search(words):
            return _by(rule, doing, words)
    lowered = words.lower()
    reason, message, mend = next((told for pattern, told in _OF_GIT if pattern.search(lowered)), _GIT_FAILED)
    return Problem(reason, _told(doing, message, words), mend)


def _of_git(text: str) -> str:
    """Without git's advice and what follows from the rest."""
    lines = [line.removeprefix("remote:").strip() for line in text[:20_000].replace("\r", "\n").splitlines()]
    return " ".join(line for line in lines if line and not _NOISE.search(line))


def _by(rule: _Rule, doing: str, words: str) -> Problem:
    return Problem(rule.reason, _told(doing, rule.message, words), rule.mend)


def _told(doing: str, message: str, words: str) -> str:
    lead = f"{doing}: {message}" if doing else message
    return f"{lead} (it says: {words})" if words else lead


def clean(text: str, longest: int = _LONGEST) -> str:
    """Foreign words on one line: no control or invisible characters, nothing that looks like a token, cut."""
    # Cut before the patterns run, so that their cost is bounded; then again.
    shown = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in text[: 8 * longest])
    shown = _SECRET.sub("[hidden]", " ".join(shown.split()))
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def said(body: bytes, longest: int = _LONGEST, *, strike: Callable[[str], str] = str) -> str:
    """The words of an error body of any shape."""
    text = body[:65_536].decode("utf-8", errors="replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        page = text.lstrip()[:1] == "<"  # a proxy's page tells nothing that fits in a line
        return "" if page else clean(strike(text), longest)
    return clean(strike("; ".join(dict.fromkeys(_words(value, 0)))), longest)


def _words(value: Any, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value[:10]:
            yield from _words(item, depth + 1)
    elif isinstance(value, dict):
        yield from _map_words(value, depth)


def _map_words(value: dict[str, Any], depth: int) -> Iterator[str]:
    if "code" in value and "field" in value:  # GitHub's list of what is wrong
        yield f"field {value['field']}: {value.get('code')} {value.get('message') or ''}".strip()
        return
    known = [key for key in ("message", "error", "error_description", "errors") if value.get(key)]
    for key in known:
        yield from _words(value[key], depth + 1)
    if not known and depth:  # GitLab's map of fields
        for key, item in list(value.items())[:10]:
            yield from (f"{key} {word}" for word in _words(item, depth + 1))
