"""Whether a shell command merely looks, told by its words. Pure.

What is not known to look is taken to change something: the detector of circles then waits longer, which costs less than
the end of honest work.
"""

from __future__ import annotations

import re

_LOOKERS = re.compile(
    r"\[|basename|cat|cd|column|cmp|comm|cut|date|df|diff|dirname|done|du|echo|[ef]?grep|expr|false|fi|file|find|for|git|"
    r"head|id|jq|less|locate|ls|md5sum|more|nl|nproc|od|pgrep|printenv|printf|ps|pwd|readlink|realpath|rg|sed|seq|"
    r"sha256sum|sleep|sort|stat|strings|tac|tail|test|tr|tree|true|type|uname|uniq|wait|wc|which|whoami|xxd"
)
_GIT = r"blame|branch|cat-file|describe|diff|grep|log|ls-files|ls-tree|rev-parse|shortlog|show|status"
_CHANGING = {
    "find": re.compile(r"\s-(?:delete|exec(?:dir)?|ok(?:dir)?|fprintf?|fls)\b"),
    "git": re.compile(rf"^(?!git (?:-\S+ )*(?:{_GIT})\b)|\s(?:-[dDmMfcC]|--output\S*)(?=\s|$)"),
    "sed": re.compile(r"\s(?:-[nErsuz]*i\S*|--in-place\S*)"),
    "sort": re.compile(r"\s(?:-o|--output)"),
}
_HARMLESS = re.compile(r"\d?>\s*&\s*\d|[&\d]?>>?\s*/dev/null\b")
_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:[^"\\$`]|\\.)*\"""", re.DOTALL)
_WRITING = re.compile(r"[>`]|\$\(|<\(")
_PARTS = re.compile(r"&&|\|\|?|;|\n|&")
_BEFORE = re.compile(r"^(?:(?:\w+=\S*|time|command|do|then|else|if|while|!|\{|\()\s+)*")


def only_looks(command: str) -> bool:
    """Whether no part of a command line can change a file."""
    bare = _HARMLESS.sub(" ", _QUOTED.sub("''", command))
    return not _WRITING.search(bare) and all(map(_looks, _PARTS.split(bare)))


def _looks(part: str) -> bool:
    words = _BEFORE.sub("", " ".join(part.split()))
    name = words.partition(" ")[0].rpartition("/")[2]
    changing = _CHANGING.get(name)
    return not words or bool(_LOOKERS.fullmatch(name) and not (changing and changing.search(words)))
