"""Replacements of a line by rule, without a model: what programmers get wrong most often, the other way round. Pure.

The operators are those of mutation testing (DeMillo, Lipton and Sayward, 1978; Offutt et al., 1996: relational,
arithmetic and logical operators, constants, statement deletion), used backwards as repairs (Debroy and Wong, 2010), and
the exchange of names in scope, as PAR's and jMutRepair's templates have it. Which of them is right is for tests to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from swarm.strategies.spectrum import Suspect

MOST = 48
"""Replacements of one line."""
_STRING = r"[rbfuRBFU]{0,2}(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')"
_TOKEN = re.compile(
    rf"(?P<string>{_STRING})|(?P<comment>#.*|(?:^|(?<=[;{{}}])|(?<=[;{{}}] ))//.*$)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<number>\d+(?:\.\d+)?)"
    r"|(?P<sign>\*\*=|//=|<<=|>>=|===|!==|\*\*|//|<<|>>|<=|>=|==|!=|&&|\|\||\+=|-=|\*=|/=|%=|\+\+|--|->|[-+*/%<>=&|^~!])"
    r"|(?P<other>[^\s\w])|(?P<space>\s+)"
)
_SIGNS = {
    "<": ("<=", ">", ">="), "<=": ("<", ">=", ">"), ">": (">=", "<", "<="), ">=": (">", "<=", "<"),
    "==": ("!=", "<=", ">="), "!=": ("==",), "===": ("!==",), "!==": ("===",),
    "+": ("-", "*"), "-": ("+",), "*": ("+", "/", "**"), "/": ("//", "*"), "//": ("/", "%"), "%": ("//",), "**": ("*",),
    "+=": ("-=", "*="), "-=": ("+=",), "*=": ("/=", "+="), "/=": ("//=", "*="), "//=": ("/=",),
    "++": ("--",), "--": ("++",),
    "&": ("|", "^"), "|": ("&", "^"), "^": ("&", "|"), "<<": (">>",), ">>": ("<<",), "&&": ("||",), "||": ("&&",),
}  # fmt: skip
_PAIRS = (
    ("and", "or"), ("True", "False"), ("true", "false"), ("min", "max"), ("any", "all"), ("append", "extend"),
    ("upper", "lower"), ("startswith", "endswith"), ("find", "rfind"), ("index", "rindex"), ("lstrip", "rstrip"),
    ("left", "right"), ("first", "last"), ("floor", "ceil"), ("break", "continue"), ("head", "tail"), ("start", "end"),
    ("keys", "values"), ("union", "intersection"), ("popleft", "pop"), ("insert", "append"), ("is", "is not"),
    ("in", "not in"), ("next", "prev"),
)  # fmt: skip
_NAMES: dict[str, list[str]] = {}
for _one, _other in _PAIRS:
    _NAMES.setdefault(_one, []).append(_other)
    if " " not in _other:
        _NAMES.setdefault(_other, []).append(_one)
_KEYWORDS = frozenset({
    "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif", "else",
    "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal", "not",
    "or", "pass", "raise", "return", "try", "while", "with", "yield", "None", "True", "False", "let", "const",
    "var", "function", "new", "this", "public", "private", "static", "void", "int", "float", "double", "bool",
    "string", "self", "cls"
})  # fmt: skip
_COMPARES = frozenset({"<", "<=", ">", ">=", "==", "!="})
_CLOSES = {"(": ")", "[": "]"}


def mutants(suspect: Suspect, most: int = MOST) -> tuple[str, ...]:
    """Distinct replacements of a suspected line, the likeliest kinds of mistake first."""
    tokens = _tokens(suspect.text)
    if not tokens:
        return ()
    found: dict[str, None] = {}
    for text in _all(suspect, tokens):
        if text != suspect.text and text.strip():
            found.setdefault(text.strip(), None)
    return tuple(found)[:most]


def _all(suspect: Suspect, tokens: list[tuple[str, str]]) -> Iterator[str]:
    yield from _swapped(tokens, _signs)
    yield from _swapped(tokens, _words)
    yield from _off_by_one(tokens)
    yield from _swapped(tokens, _numbers)
    yield from _negated(suspect.text)
    yield from _exchanged(tokens)
    yield from _dropped(tokens)
    yield from _renamed(suspect, tokens)
    if not suspect.text.rstrip().endswith((":", "{")):
        yield "pass"


def _tokens(text: str) -> list[tuple[str, str]]:
    """Kinds and texts; nothing where the line holds what these tokens cannot tell apart."""
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.end() == at:
            return []
        found.append((match.lastgroup or "", match[0]))
        at = match.end()
    return found


def _swapped(tokens: list[tuple[str, str]], others: object) -> Iterator[str]:
    """Each token in turn replaced by each of its others."""
    for at, (kind, text) in enumerate(tokens):
        for other in others(kind, text, tokens, at):  # type: ignore[operator]
            yield _joined(tokens, {at: other})


def _signs(kind: str, text: str, tokens: list[tuple[str, str]], at: int) -> Iterable[str]:
    if kind != "sign":
        return ()
    if text in "+-" and _unary(tokens, at):
        return ("",) if text == "-" else ()
    return _SIGNS.get(text, ())


def _words(kind: str, text: str, tokens: list[tuple[str, str]], at: int) -> Iterable[str]:
    if kind != "name":
        return ()
    if text == "not":
        return ("",)
    if text in {"in", "is"} and (_before(tokens, at) == "not" or _after(tokens, at) == "not" or _is_for(tokens, at)):
        return ()
    return _NAMES.get(text, ())


def _numbers(kind: str, text: str, _tokens: list[tuple[str, str]], _at: int) -> Iterable[str]:
    if kind != "number" or "." in text or len(text) > 9:
        return ()
    value = int(text)
    return [str(other) for other in dict.fromkeys((value + 1, value - 1, 0, 1, -value)) if other != value]


def _off_by_one(tokens: list[tuple[str, str]]) -> Iterator[str]:
    """A name or a closing bracket that is an index, a bound or one side of a comparison, one more and one less."""
    depth = 0
    compares = any(text in _COMPARES for _, text in tokens)
    for at, (kind, text) in enumerate(tokens):
        depth += (text in _CLOSES) - (text in _CLOSES.values())
        if kind != "name" or text in _KEYWORDS or _after(tokens, at) in {"(", ".", "[", "=", ":="}:
            continue
        if depth > 0 or compares or tokens[0][1] == "return":
            after = _after(tokens, at)
            if after in {"-", "+"} and _second_after(tokens, at) == "1":
                yield _without_term(tokens, at)
            else:
                yield _joined(tokens, {at: f"{text} - 1"})
                yield _joined(tokens, {at: f"{text} + 1"})


def _negated(text: str) -> Iterator[str]:
    """A condition, or what is returned, the other way round."""
    match = re.fullmatch(r"(if|elif|while|return|assert)\s+(.+?)(:?)", text)
    if match is None:
        return
    word, condition, colon = match.groups()
    if condition.startswith("not "):
        yield f"{word} {condition.removeprefix('not ')}{colon}"
    elif word != "return" or re.search(r"[<>=]=|[<>]|\bin\b|\band\b|\bor\b", condition):
        yield f"{word} not ({condition}){colon}"


def _exchanged(tokens: list[tuple[str, str]]) -> Iterator[str]:
    """Two arguments, or both sides of an operator, changed for one another."""
    for at, (kind, text) in enumerate(tokens):
        if text not in {",", "-", "/", "//", "%", "<", ">", "**"} or kind == "string":
            continue
        left, right = ((_argument if text == "," else _operand)(tokens, at, step) for step in (-1, 1))
        if left is None or right is None:
            continue
        one = "".join(text for _, text in tokens[left[0] : left[1]])
        other = "".join(text for _, text in tokens[right[0] : right[1]])
        if one != other:
            between = "".join(text for _, text in tokens[left[1] : right[0]])
            before = "".join(text for _, text in tokens[: left[0]])
            yield before + other + between + one + "".join(text for _, text in tokens[right[1] :])


def _dropped(tokens: list[tuple[str, str]]) -> Iterator[str]:
    """A term left out: an operand with its operator."""
    for at, (kind, text) in enumerate(tokens):
        if text not in {"and", "or", "+", "-", "*", "/", "//", "%"} or kind == "string" or _unary(tokens, at):
            continue
        left, right = _operand(tokens, at, -1), _operand(tokens, at, 1)
        if left is None or right is None:
            continue
        yield "".join(text for _, text in (*tokens[: left[1]], *tokens[right[1] :]))
        yield "".join(text for _, text in (*tokens[: left[0]], *tokens[right[0] :]))


def _renamed(suspect: Suspect, tokens: list[tuple[str, str]]) -> Iterator[str]:
    """A name changed for another one that the function around it uses."""
    known = list(dict.fromkeys(_variables(suspect.around)))
    for at, (kind, text) in enumerate(tokens):
        if kind != "name" or text in _KEYWORDS or _before(tokens, at) == "." or _after(tokens, at) in {"(", "."}:
            continue
        for other in known:
            if other not in {text, suspect.function}:
                yield _joined(tokens, {at: other})


def _variables(text: str) -> Iterator[str]:
    """Names that are neither called nor attributes."""
    for line in text.splitlines():
        tokens = _tokens(line)
        for at, (kind, name) in enumerate(tokens):
            if kind == "name" and name not in _KEYWORDS and _before(tokens, at) != "." and _after(tokens, at) != "(":
                yield name


def _joined(tokens: list[tuple[str, str]], changes: dict[int, str]) -> str:
    text = "".join(changes.get(at, text) for at, (_, text) in enumerate(tokens))
    return re.sub(r"(?<=\S)  +", " ", text) if "" in changes.values() else text


def _without_term(tokens: list[tuple[str, str]], at: int) -> str:
    """The name at ``at`` without the ``- 1`` or ``+ 1`` behind it."""
    end = at + 1
    dropped = 0
    while dropped < 2:
        dropped += tokens[end][0] != "space"
        end += 1
    return "".join(text for _, text in (*tokens[: at + 1], *tokens[end:]))


def _operand(tokens: list[tuple[str, str]], at: int, step: int) -> tuple[int, int] | None:
    """Where the operand beside an operator begins and ends: a name, a number, a text, with calls and indexes."""
    index = at + step
    while 0 <= index < len(tokens) and tokens[index][0] == "space":
        index += step
    first, depth = index, 0
    while 0 <= index < len(tokens):
        kind, text = tokens[index]
        turn = _turn(kind, text, step)
        if depth + turn < 0:
            break
        depth += turn
        part = kind in {"name", "number", "string"} and text not in _KEYWORDS
        if not turn and not depth and not part and text != ".":
            break
        index += step
    if index == first or depth:
        return None
    return (first, index) if step > 0 else (index + 1, first + 1)


def _argument(tokens: list[tuple[str, str]], at: int, step: int) -> tuple[int, int] | None:
    """Where the argument beside a comma begins and ends; None where it is not between brackets."""
    index, depth = at + step, 0
    while 0 <= index < len(tokens):
        kind, text = tokens[index]
        turn = _turn(kind, text, step)
        if depth + turn < 0 or (not depth and text == ","):
            first, last = (at + 1, index) if step > 0 else (index + 1, at)
            inner = [place for place in range(first, last) if tokens[place][0] != "space"]
            return (inner[0], inner[-1] + 1) if inner else None
        depth += turn
        index += step
    return None


def _turn(kind: str, text: str, step: int) -> int:
    """1 where brackets open, as one goes in this direction, -1 where they close."""
    if kind != "other" or text not in "()[]":
        return 0
    return step if text in "([" else -step


def _before(tokens: list[tuple[str, str]], at: int) -> str:
    return next((text for kind, text in reversed(tokens[:at]) if kind != "space"), "")


def _after(tokens: list[tuple[str, str]], at: int) -> str:
    return next((text for kind, text in tokens[at + 1 :] if kind != "space"), "")


def _second_after(tokens: list[tuple[str, str]], at: int) -> str:
    return next(iter([text for kind, text in tokens[at + 1 :] if kind != "space"][1:]), "")


def _unary(tokens: list[tuple[str, str]], at: int) -> bool:
    before = _before(tokens, at)
    return not before or before in _KEYWORDS or before in "([{,:=" or before in _SIGNS


def _is_for(tokens: list[tuple[str, str]], at: int) -> bool:
    """Whether an ``in`` belongs to a loop, which has no other way round."""
    return any(text == "for" for _, text in tokens[:at])
