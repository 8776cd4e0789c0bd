"""How tests look in a language: which files hold them, how one begins, and what switches one off.

Every pattern is of bounded repetition, so that no line makes it slow. What a body asserts is beyond it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Language:
    """``files``: names of test files. ``case``: how a test begins; its last group names it. ``marker``: a line that
    makes the next named function a test. ``off``: what skips a test; ``anywhere``: outside test files as well."""

    files: re.Pattern[str]
    case: re.Pattern[str]
    off: re.Pattern[str]
    marker: re.Pattern[str] | None = None
    anywhere: bool = True


_JS_CASE = r"^\s*(?:await\s)?(?:it|test|describe|specify|context|suite)(?:\.\w{1,20}){0,3}\s{0,4}\(\s{0,4}(['\"`])"
_QUOTED = r"((?:(?!\1).){1,200})\1"

PYTHON = Language(
    files=re.compile(r"test_.*\.pyi?|.*_test\.py|tests?\.py|conftest\.py"),
    case=re.compile(r"^\s*(?:async\s{1,8})?(?:def|class)\s{1,8}([Tt]est\w{0,200})"),
    off=re.compile(
        r"\bmark\.(?:skip|skipif|xfail)\b|\bpytest\.(?:skip|xfail|importorskip)\s{0,4}\("
        r"|\bunittest\.(?:skip|expectedFailure)|^\s*@(?:skip|skipIf|skipUnless|skipif|xfail|expectedFailure)\b"
        r"|\bSkipTest\b|\.skipTest\s{0,4}\(|\b__test__\s{0,4}=\s{0,4}False|\bcollect_ignore(?:_glob)?\b"
    ),
)
JAVASCRIPT = Language(
    files=re.compile(r".*[._-](?:test|spec|e2e|cy)\.[cm]?[jt]sx?|(?:test|spec)\.[cm]?[jt]sx?"),
    case=re.compile(_JS_CASE + _QUOTED),
    off=re.compile(
        r"\b(?:it|test|describe|context|suite|specify)(?:\.\w{1,20}){0,3}\.(?:skip|skipIf|only|todo|fixme|failing|fails)\b"
        r"|^\s*(?:xit|xtest|xdescribe|xcontext|xspecify|fit|fdescribe|ftest)\s{0,4}[.(]|\bthis\.skip\s{0,4}\("
    ),
    anywhere=False,
)
GO = Language(
    files=re.compile(r".*_test\.go"),
    case=re.compile(r"^func\s{1,8}((?:Test|Benchmark|Fuzz|Example)\w{0,200})\s{0,8}\("),
    off=re.compile(r"\b\w{1,40}\.Skip(?:f|Now)?\s{0,4}\(|^//\s?(?:go:build|\+build)\s"),
    anywhere=False,
)
JAVA = Language(
    files=re.compile(
        r".*(?:Test|Tests|TestCase|IT|Spec)\.(?:java|kt|kts|groovy|scala|cs|php|swift)|Test.*\.(?:java|kt)"
    ),
    marker=re.compile(
        r"^\s*[@\[](?:\w{1,40}\.){0,6}(?:Test|ParameterizedTest|RepeatedTest|TestFactory|Fact|Theory|TestMethod)\b"
    ),
    case=re.compile(r"\b(?:fun|function|func|void|Task)\s{1,8}(`[^`]{1,200}`|\w{1,200})\s{0,8}\("),
    off=re.compile(
        r"^\s*[@\[](?:\w{1,40}\.){0,6}(?:Ignore|Ignored|Disabled\w{0,30}|EnabledIf\w{0,30})\b|\b[aA]ssum(?:e|ption)\w{0,30}\s{0,4}[.(]"
        r"|\bSkip\s{0,4}=\s{0,4}\"|\bmarkTestSkipped\b|\bXCTSkip\b"
    ),
)
RUBY = Language(
    files=re.compile(r".*_(?:spec|test)\.rb|test_.*\.rb"),
    case=re.compile(
        r"^\s*(?:(?:it|specify|test|describe|context|scenario)\s{0,4}\(?\s{0,4}(['\"])"
        + _QUOTED
        + r"|def\s{1,8}(test_\w{1,200}))"
    ),
    off=re.compile(
        r"^\s*(?:skip|pending|xit|xdescribe|xcontext|xspecify|xscenario|fit|fdescribe|fcontext)\b"
        r"|\b(?:skip|pending|focus):\s{0,4}(?:true|['\"])|,\s{0,4}:(?:skip|pending|focus)\b"
    ),
    anywhere=False,
)
RUST = Language(
    files=re.compile(r"(?:.*_)?tests?\.rs"),
    marker=re.compile(r"^\s*#\[(?:\w{1,40}::){0,3}(?:test|rstest|bench|test_case|quickcheck)\b"),
    case=re.compile(r"\bfn\s{1,8}(\w{1,200})\s{0,8}[(<]"),
    off=re.compile(
        r"#!?\[\s{0,4}(?:cfg_attr\([^\]]{0,200}?,\s{0,4})?ignore\b|#!?\[\s{0,4}cfg\(\s{0,4}(?:any\(\)|FALSE|not\(test\))"
    ),
)
CPP = Language(
    files=re.compile(
        r"(?:.*[_-])?(?:unit)?tests?\.(?:c|cc|cpp|cxx|h|hpp)|test[_-].*\.(?:c|cc|cpp|cxx)|.*Tests?\.(?:cc|cpp|cxx)"
    ),
    case=re.compile(
        r"^\s*(?:(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P|TEST_CASE|SCENARIO|BOOST_AUTO_TEST_CASE|START_TEST)\s{0,4}\(\s{0,4}"
        r"([^)]{1,200})|(?:static\s{1,4})?(?:void|int)\s{1,8}(test_\w{1,200})\s{0,4}\()"
    ),
    off=re.compile(
        r"\bGTEST_SKIP\b|\bDISABLED_\w|^\s*SKIP\s{0,4}\(|\[!(?:shouldfail|mayfail)\]|\bTEST_IGNORE|\bdisabled\(\)|^\s*#\s{0,4}if\s{1,4}0\b"
    ),
    anywhere=False,
)
_BY_ENDING = {
    **dict.fromkeys(("py", "pyi"), PYTHON),
    **dict.fromkeys(("js", "jsx", "ts", "tsx", "mjs", "cjs", "mts", "cts", "vue", "svelte"), JAVASCRIPT),
    "go": GO,
    **dict.fromkeys(("java", "kt", "kts", "groovy", "scala", "cs", "php", "swift"), JAVA),
    "rb": RUBY,
    "rs": RUST,
    **dict.fromkeys(("c", "cc", "cpp", "cxx", "h", "hh", "hpp", "hxx"), CPP),
}
_FOLDERS = {"test", "tests", "spec", "specs", "__tests__", "testing", "e2e"}


def language_of(path: str) -> Language | None:
    """The language that a path's ending names; None if its tests are not known here."""
    return _BY_ENDING.get(path.rsplit(".", 1)[-1].lower()) if "." in path else None


def is_test_file(path: str, language: Language) -> bool:
    """Whether the file's name, or a folder that it lies in, says that it holds tests."""
    *folders, name = path.split("/")
    return bool(language.files.fullmatch(name)) or not _FOLDERS.isdisjoint(folder.lower() for folder in folders)
