"""A trusted git directory that holds one commit of given files, links among them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from sandbox.trees.workspace import Workspace

GIT = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "HOME": "/nonexistent"} | {
    f"GIT_{who}_{key}": "a@b" for who in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")
}
Held = Callable[..., Awaitable[tuple[Workspace, str]]]


def git(*args: str, cwd: Path, said: bytes = b"") -> bytes:
    return subprocess.run(["git", *args], cwd=cwd, env=GIT, input=said, capture_output=True, check=True).stdout


@pytest.fixture
def held(tmp_path: Path) -> Held:
    """Commits files and links (by their targets) and hands them to a workspace; the commit's id comes with it."""
    workspace = Workspace(tmp_path / "demo.git")

    async def made(files: Mapping[str, str], links: Mapping[str, str] = {}) -> tuple[Workspace, str]:
        tree = tmp_path / "tree"
        if not tree.exists():
            git("init", "-q", "-b", "main", str(tree), cwd=tmp_path)
        for name, text in files.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)
        for name, target in links.items():
            (tree / name).symlink_to(target)
        git("add", "-f", ".", cwd=tree)
        git("commit", "-q", "-m", "x", cwd=tree)
        base = git("rev-parse", "HEAD", cwd=tree).decode().strip()
        pack = git("pack-objects", "--revs", "--stdout", "-q", cwd=tree, said=f"{base}\n".encode())
        await workspace.take_pack(pack, base)
        return workspace, base

    return made
