"""How the project's own programs are started inside: the image's, or borrowed ones where the image is a stranger's.

A stranger's image may hold no python, no shell and another C library. Its sandbox sees the base image's /usr,
read-only, in a folder of its own, and programs from there are run through their own loader. Pure argument lists.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

BORROWED = "/.swarm/usr"
# Not below lib64: there Debian keeps an absolute link, which leads out of the borrowed folder.
LOADERS = MappingProxyType(
    {
        "x86_64": "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
        "aarch64": "lib/aarch64-linux-gnu/ld-linux-aarch64.so.1",
    }
)


def argv_of(program: str, words: Iterable[str] = (), *, usr: str = "/usr", machine: str = "x86_64") -> list[str]:
    """``usr/bin/PROGRAM`` with its words; below another ``usr`` through that folder's loader (glibc 2.33 or later).

    The loader takes no list of libraries from the image, and ``--argv0`` lets Python find its own modules. Raises
    KeyError for a machine without a known loader.
    """
    path = f"{usr}/bin/{program}"
    if usr == "/usr":
        return [path, *words]
    loader = f"{usr}/{LOADERS[machine]}"
    libraries = loader.rpartition("/")[0]
    return [loader, "--inhibit-cache", "--library-path", libraries, "--argv0", path, path, *words]
