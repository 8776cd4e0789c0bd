"""Words from a model become words that a forge does nothing with: titles, bodies and commit messages. Pure."""

from __future__ import annotations

import html
import re
import unicodedata

from broker.wire import Evidence, SandboxProof, TestResult

CAVEAT = "The tests ran beside the code they judge, which hostile code can abuse to look good: read the diff."
MAX_TITLE, MAX_BODY, MAX_LINE = 120, 60_000, 2_000

_PASSES = 10  # what one pass removes may join what another removes; in the end nothing is left to join

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_TAG = re.compile(r"<(?=[a-zA-Z/!?])")
_IMAGE = re.compile(r"!\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])?")
_LINK = re.compile(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")
_REFERENCE = re.compile(r"^[ \t>]*\[[^\]]+\]:.*$", re.MULTILINE)
_URL = re.compile(r"(://|\bwww\.|\b(?:mailto|javascript|data):)(?=\S)", re.IGNORECASE)
_ENTITY = re.compile(r"&(?=#|\w+;)")
_MENTION = re.compile(r"@(?=[\w-])")
_CLOSING = re.compile(
    r"\b(close[sd]?|closing|fix(?:e[sd])?|fixing|resolve[sd]?|resolving|implement(?:s|ed)?|implementing)\b"
    r"[\s:(\[*_`]*(?=(?:[\w./-]*[#!]\d|GH-\d|https?:))",
    re.IGNORECASE,
)
_ISSUE = re.compile(r"[#!](?=\d)|\bGH-(?=\d)", re.IGNORECASE)
_COMMAND = re.compile(r"^([\s>*+-]*)/(?=[a-zA-Z])", re.MULTILINE)
_TRAILER = re.compile(
    r"^[\s>*_]*(?:[\w-]+-(?:by|to|with)|cc|change-id|skip-checks)[*_]*[ \t]*:.*$", re.IGNORECASE | re.MULTILINE
)
_SKIP = re.compile(
    r"\[[ \t]*((?:skip|no|ci|actions)[ _-]*(?:ci|cd|skip|actions))[ \t]*\]|\*{3}(no_ci)\*{3}", re.IGNORECASE
)
_TEMPLATE = re.compile(r"[{$](?=\{)|\}(?=\})|[<{](?=%)|%(?=[>}])")


def title(words: str, prefix: str = "") -> str:
    """One line of at most MAX_TITLE characters, the prefix included. Never empty."""
    line = " ".join(clean(words).split()).strip("`#>-*+ ")
    return (prefix + (line or "Proposed change"))[:MAX_TITLE].rstrip()


def clean(words: str) -> str:
    """Text without effect: nothing hidden, nobody called, nothing closed or commanded, no markup but plain Markdown."""
    return _capped(_defused(_stripped(words)))


def _stripped(words: str) -> str:
    text = words
    for _ in range(_PASSES):
        before = text
        text = _visible(html.unescape(text))
        text = _COMMENT.sub("", text)
        text = _LINK.sub(r"\1", _IMAGE.sub(r"\1", text))
        text = _TRAILER.sub("", _REFERENCE.sub("", text))
        if text == before:
            break
    return text


def _defused(text: str) -> str:
    text = _SKIP.sub(lambda found: f"({found.group(1) or found.group(2)})", text)
    text = _TEMPLATE.sub(r"\g<0> ", text)
    text = _TAG.sub("< ", text)
    text = _CLOSING.sub(lambda found: f"{found.group(1)} (not closing) ", text)
    text = _URL.sub(r"\1 ", text)  # not put into backticks: the text may hold an odd one
    text = _ISSUE.sub("no. ", text)
    text = _MENTION.sub("(at)", text)
    text = _ENTITY.sub("&amp;", text)
    text = _COMMAND.sub(r"\1\\/", text)
    return text.replace("![", "! [").replace("](", "] (")  # at last: what stands for a mention begins with a bracket


def _capped(text: str) -> str:
    return "\n".join(line[:MAX_LINE].rstrip() for line in text.split("\n")).strip()[:MAX_BODY]


def _visible(text: str) -> str:
    text = unicodedata.normalize("NFKC", text.replace("\r\n", "\n").replace("\r", "\n"))
    shown = (" " if unicodedata.category(char) == "Zs" else char for char in text)
    return "".join(char for char in shown if char in "\n\t" or (char.isprintable() and not _selects(char)))


def _selects(char: str) -> bool:
    return "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef" or char in "\u115f\u1160\u3164\u034f"


def commit_message(subject: str, body: str, trailers: dict[str, str]) -> str:
    """The message of the one commit that the broker makes; the only trailers are its own."""
    parts = [subject, clean(body), "\n".join(f"{name}: {value}" for name, value in trailers.items())]
    return "\n\n".join(part for part in parts if part) + "\n"


def pull_request_body(body: str, evidence: Evidence, facts: dict[str, str]) -> str:
    """The cleaned body, the coordinator's evidence as its claim, and what the broker itself knows."""
    parts = [clean(body)]
    if claimed := _evidence(evidence):
        parts.append(f"### Evidence, as the coordinator reports it\n\n{claimed}\n\n{CAVEAT}")
    parts.append("### What the broker did\n\n" + "\n".join(f"- {name}: `{value}`" for name, value in facts.items()))
    return "\n\n".join(part for part in parts if part)


def _evidence(evidence: Evidence) -> str:
    rows = [
        ("tests before", _result(evidence.before)),
        ("tests after", _result(evidence.after)),
        ("fixed", _names(evidence.fixed)),
        ("broken", _names(evidence.broken)),
        ("model", _code(evidence.model)),
        ("tier", _code(evidence.tier)),
        ("strategy", _code(evidence.strategy)),
        ("sandbox", _proof(evidence.proof) if evidence.proof else _code(evidence.sandbox)),
        ("spent", f"{_many(evidence.attempts, 'attempt')}, {evidence.tokens} tokens, {evidence.seconds:.0f} s"),
    ]
    return "\n".join(f"- {name}: {value}" for name, value in rows if value)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _result(result: TestResult | None) -> str:
    if result is None:
        return ""
    passed = "an unknown number" if result.passed is None else str(result.passed)
    return f"{_code(result.command)} ended with {result.exit_code}, {passed} passed, {len(result.failed)} failed"


def _proof(proof: SandboxProof) -> str:
    runtime = proof.detail.get("runtime", "")
    if runtime in proof.detail:  # its version, less what a doctor says of it
        runtime += " " + proof.detail[runtime].partition(" (")[0]
    what = _code(proof.version or proof.backend) + (f" ({_code(runtime)})" if runtime else "")
    claims = f"{_many(len(proof.claims), 'claim')} proved at start" + (": " if proof.claims else "")
    return f"{what}, {claims}{_names(proof.claims, most=6)}, self-test `sha256:{proof.digest[:16] or 'unknown'}`"


def _names(names: tuple[str, ...], most: int = 20) -> str:
    shown = ", ".join(_code(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def _code(words: str) -> str:
    text = " ".join(clean(words).split()).replace("`", "'")[:200]
    return f"`{text}`" if text else ""
