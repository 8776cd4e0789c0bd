"""What a forge, its CI or a bot would do on reading a text, taken out of it: one rule each, shown rather than dropped.

Sources: GitHub "Linking a pull request to an issue", "Skipping workflow runs"; GitLab "Quick actions", "Default closing
pattern", "References"; Gitea and Forgejo "Automatically linked references"; Jira "Smart commits"; Conventional Commits
and release-please (footers, overrides); Azure Pipelines ***NO_CI***; gh-aw's sanitiser. Pure.
"""

from __future__ import annotations

import re

from broker.words import links
from broker.words.dialect import Dialect

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_TAG = re.compile(r"<(?=[a-zA-Z/!?])")
_ENTITY = re.compile(r"&(?=#|\w+;)")
_MENTION = re.compile(r"@(?=[\w\\*~`\[-])")
_NUMBER = r"(?=[\\*_~`]{0,4}\d)"
_ISSUE = re.compile(rf"(?<=\w)[#!]{_NUMBER}|(?<![A-Za-z0-9])GH-(?=\d)|[#!]{_NUMBER}", re.IGNORECASE)
_CLOSING = re.compile(
    r"\b(close[sd]?|closing|fix(?:e[sd])?|fixing|resolve[sd]?|resolving|implement(?:s|ed)?|implementing|reopen(?:s|ed)?"
    r"|complete[sd]?|completing)\b"
    r"[\s:(\[*_`~]{0,20}(?=[\w./-]{0,200}[#!][\\*_~`]{0,4}\d|GH-\d|https?:|[A-Za-z][A-Za-z0-9]{1,20}-\d"
    r"|(?-i:[A-Z][A-Z0-9_]{1,40}(?:-[A-Z0-9_]{1,40}){0,3}-[A-Z]{0,6}\d))",
    re.IGNORECASE,
)
# A smart commit of Jira's: after an issue's key, on its line, "#" and any word that the workflow knows.
_KEYED = re.compile(r"\b[A-Z][A-Z0-9_]{1,40}-\d.*$", re.IGNORECASE | re.MULTILINE)
_SMART = re.compile(r"(?<![\w/#])#(?=[A-Za-z])")
_BRACKET = re.compile(
    r"(\[\s*(?:issue|work\\?_item|epic|merge\\?_request|vulnerability|feature\\?_flag|snippet|wiki\\?_page|contact)s?"
    r"[\\*_~`]{0,4}:)(?=\S)",
    re.IGNORECASE,
)
# Release bots: the footer that makes a new major version, and the marks that put another message in the place of this.
_BREAKING = re.compile(r"^([^\w\n]*)(?=breaking[ \t_-]+change)", re.IGNORECASE | re.MULTILINE)
_OVERRIDE = re.compile(r"\b(BEGIN|END)_(?=[A-Z]+_?(?:OVERRIDE|COMMIT))", re.IGNORECASE)
# A bot may look at any line that begins with a slash, in code too; a path into the system is no command of any.
_COMMAND = re.compile(
    r"^((?:[^\w/\\\n]|\d{1,9}[.)][ \t])*)/(?=[a-zA-Z])"
    r"(?!(?:usr|bin|etc|opt|home|tmp|var|dev|proc|sys|lib|lib64|sbin|srv|mnt|root|run|boot|nix)/[\w.])",
    re.MULTILINE,
)
_TRAILER = re.compile(
    r"^[ \t>*_]*(?:[\w-]+-(?:by|to|with|as)|cc|change-id|skip-checks|swarm-[\w-]+)[*_]*[ \t]*(?P<colon>:).*$",
    re.IGNORECASE | re.MULTILINE,
)
# GitLab takes "ci_skip", Woodpecker "ciskip" and any number of blanks; a git host may join the lines of a message.
_BRACKETED = re.compile(r"\[([^\[\]]+)\]|\*{3}(no_ci)\*{3}", re.IGNORECASE)
_SKIPS = re.compile(r"skip|(?<![a-z])no[ _-]*ci", re.IGNORECASE)
_MOST_SKIP = 60  # what is longer between two brackets is prose or code
_TICKED = re.compile(r"^([ \t>]*(?:[-*+]|\d{1,3}[.)])[ \t]+)\[[xX]\]", re.MULTILINE)
_DELIMITER = re.compile(r"\{(?=[{%])|\}(?=\})|\$(?=\{ ?\{|\$)|<(?=%)|%(?=[>}])")
_HIDDEN_OPENING = re.compile(r"<(?=!--)")


def without_hidden(text: str) -> str:
    """Less what a reader of the page would not see, or not as what it is: comments, images, titles, trailers."""
    return _TRAILER.sub("", links.without_links(_COMMENT.sub("", text)))


def defused_prose(text: str, dialect: Dialect) -> str:
    """Prose that calls nobody, closes and commands nothing and holds no markup but plain Markdown."""
    text = _BRACKETED.sub(_unskipped, text)
    text = _TICKED.sub(r"\1(x)", text)
    text = _DELIMITER.sub(r"\g<0> ", text)
    text = _TAG.sub("< ", text)
    text = _unheard(text)
    text = links.defused(text, dialect)
    text = _ISSUE.sub(lambda found: " no. " if found.start() and text[found.start() - 1].isalnum() else "no. ", text)
    text = _references(text, dialect)
    text = _MENTION.sub("(at)", text)
    text = _ENTITY.sub("& ", text)
    text = _COMMAND.sub(r"\1\\/", text)
    return _unlinked(text)


def defused_code(text: str, dialect: Dialect) -> str:
    """Code within a fence: still readable as code, though whoever reads the text past its fences is told nothing."""
    text = _BRACKETED.sub(_unskipped, text)
    text = _DELIMITER.sub(r"\g<0> ", text)
    text = _HIDDEN_OPENING.sub("< ", text)
    text = _unheard(text)
    text = links.defused(text, dialect)
    text = _ISSUE.sub(r"\g<0> ", text)
    text = _references(text, dialect)
    text = _MENTION.sub("@ ", text)
    text = _TRAILER.sub(lambda found: found.group().replace(":", " -", 1), text)
    return _COMMAND.sub(r"\1\\/", text)


def _unskipped(found: re.Match[str]) -> str:
    words = " ".join((found.group(1) or found.group(2)).split())
    return f"({words})" if len(words) <= _MOST_SKIP and _SKIPS.search(words) else found.group()


def _unheard(text: str) -> str:
    """Less what trackers and release bots obey."""
    text = _CLOSING.sub(lambda found: f"{found.group(1)} (not closing) ", text)
    text = _KEYED.sub(lambda found: _SMART.sub("# ", found.group()), text)
    text = _BRACKET.sub(r"\1 ", text)
    text = _OVERRIDE.sub(r"\1 ", text)
    return _BREAKING.sub(r"\1a ", text)


def _references(text: str, dialect: Dialect) -> str:
    signs = "".join(sign for sign in dialect.references if sign not in "#!")
    return re.sub(rf"[{re.escape(signs)}]{_NUMBER}", r"\g<0> ", text) if signs else text


def _unlinked(text: str) -> str:
    # At last, since what stands for a mention begins with a bracket.
    return text.replace("![", "! [").replace("](", "] (").replace("][", "] [").replace("]:", "] :")
