"""Where the system of a sandbox comes from, as data, and whether a repository may choose it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from pydantic import Field

from sandbox.errors import ImageError
from sandbox.types import Frozen

_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}\Z")
_DOCKERFILES = ("Dockerfile", "Containerfile")
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")


class Reference(Frozen):
    """An image that a Docker engine has, by name or id."""

    kind: Literal["reference"] = "reference"
    name: str


class Dockerfile(Frozen):
    """A Dockerfile and its context, either the operator's folder or, where that is None, folders of the checkout."""

    kind: Literal["dockerfile"] = "dockerfile"
    file: str = Field(description="relative to the context")
    context: str = Field(default=".", description="relative to the checkout, or to the operator's folder")
    folder: Path | None = None
    args: dict[str, str] = Field(default_factory=dict)


class Archive(Frozen):
    """A file system, or an image as `docker save` or an OCI tool writes it, in one tar of the operator's."""

    kind: Literal["archive"] = "archive"
    path: Path


class Folder(Frozen):
    """A file system that is unpacked already, in the operator's folder."""

    kind: Literal["folder"] = "folder"
    path: Path


ImageSource = Reference | Dockerfile | Archive | Folder


def reference(name: str) -> Reference:
    """A reference by its name. Raises ImageError for what cannot be one."""
    if not _REFERENCE.match(name) or ".." in name or "//" in name:
        raise ImageError(f"{name!r} is no image name; it looks like registry.example/team/image:tag")
    return Reference(name=name)


def source_of(text: str) -> ImageSource:
    """What an operator wrote: the path of a Dockerfile, an archive or a folder, else a name. Raises ImageError."""
    if not text.startswith("/"):
        return reference(text)
    path = Path(text)
    if path.name in _DOCKERFILES or path.suffix in {f".{name}" for name in _DOCKERFILES}:
        return Dockerfile(file=path.name, folder=path.parent)
    if path.name.endswith(_ARCHIVES):
        return Archive(path=path)
    return Folder(path=path)


def allowed(name: str, patterns: Iterable[str]) -> bool:
    """Whether an image name fits one of the operator's patterns.

    ``*`` stands for any text within one part between slashes, so that ``python*`` allows no ``python.example/image``.
    """
    parts = name.split("/")
    return any(
        len(parts) == len(wanted) and all(fnmatchcase(part, want) for part, want in zip(parts, wanted, strict=True))
        for wanted in (pattern.split("/") for pattern in patterns)
    )


def insist_allowed(name: str, patterns: Iterable[str]) -> None:
    """Raises ImageError with the mend where a repository may not choose this image."""
    if not allowed(name, patterns):
        raise ImageError(
            f"the repository asks for the image {name!r}, which this installation does not allow; "
            f"mend: add it to sandbox.images.allowed, or set the repository's own image"
        )
