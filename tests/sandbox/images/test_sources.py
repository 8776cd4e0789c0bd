"""What an operator may write as an image, and what a repository may choose."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.errors import ImageError
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
