"""Hostile git folders: the host runs nothing of them, and what is sealed is what lies in the workspace.

Nested hooks: codex #37081. A `.git` that is a link, a file or missing broke starts: codex #17079, #15725, #27354,
#37318, sandbox-runtime #221, claude-code #57266. fsmonitor, filters, hooks on the host: fletch #564, atlascode #1918,
mistral-vibe #962, container-use #362. Hostile trees and submodules: CVE-2014-9390, CVE-2018-11235, CVE-2018-17456,
CVE-2024-32002, CVE-2025-48384. Local clones by path: CVE-2022-39253, CVE-2024-32020, CVE-2024-32021.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sandbox.base import SandboxBackend
from sandbox.trees.workspace import Workspace
from sandbox.types import MIB
from tests.contract.inside import SPEC, sh

HOOKS = (
    "applypatch-msg pre-applypatch post-applypatch pre-commit prepare-commit-msg commit-msg post-commit pre-rebase "
    "post-checkout post-merge pre-push pre-receive update post-receive post-update reference-transaction "
    "push-to-checkout pre-auto-gc post-rewrite fsmonitor-watchman post-index-change proc-receive"
)
FIRE = "touch {canary}"
EVERY_HOOK = f"for h in {HOOKS}; do printf '#!/bin/sh\\n{{fire}}\\n' >$h; chmod +x $h; done"
HOSTILE = {
    "settings that run programs": """
        for key in core.fsmonitor core.sshCommand core.pager core.editor core.askPass core.gitProxy gpg.program \\
          core.alternateRefsCommand diff.external uploadpack.packObjectsHook filter.evil.clean filter.evil.smudge \\
          filter.evil.process merge.evil.driver diff.evil.textconv; do git config $key '{fire}'; done
        git config core.hooksPath "$PWD/evil"; git config credential.helper '!{fire}'; git config alias.status '!{fire}'
        git config include.path "$PWD/more"; git config core.worktree /
        printf '* filter=evil diff=evil merge=evil\\n' >.gitattributes
        mkdir -p evil; cd evil; {hooks}""",
    "hooks of every name": "mkdir -p .git/hooks; cd .git/hooks; {hooks}",
    "a nested repository with hooks of its own": """
        git init -q nested; cd nested; git config core.fsmonitor '{fire}'; echo in >inner
        mkdir -p .git/hooks; cd .git/hooks; {hooks}""",
    "a submodule that fetches from evil": """
        printf '[submodule "x"]\\n\\tpath = sub\\n\\turl = ext::sh -c "{fire}"\\n\\tupdate = !{fire}\\n' >.gitmodules
        git config submodule.x.url 'ext::sh -c "{fire}"'; git config submodule.x.update '!{fire}'
        mkdir -p .git/modules/x/hooks sub; printf 'gitdir: ../.git/modules/x\\n' >sub/.git
        git update-index --add --cacheinfo 160000,0123456789012345678901234567890123456789,sub; echo in >sub/inner""",
    "objects from elsewhere": """
        mkdir -p .git/objects/info; printf '/root\\n../../../../../..\\n\\"/etc\\"\\n' >.git/objects/info/alternates
        printf 'http://192.0.2.1/\\n' >.git/objects/info/http-alternates; printf 'x' >.git/objects/info/commit-graph""",
    "a git that is a file": "rm -rf .git; printf 'gitdir: /root/.git\\n' >.git",
    "a git that is a link": "rm -rf .git; ln -s /root .git",
    "a git that is a link to nothing": "rm -rf .git; ln -s /nonexistent/x .git",
    "a git that is a pipe": "rm -rf .git; mkfifo .git",
    "a git that is an empty file": "rm -rf .git; : >.git",
    "no git at all": "rm -rf .git",
    "a git that cannot be entered": "chmod 000 .git",
    "a git within links": "mv .git real; ln -s real .git; ln -s /etc .git/objects/evil",
    "worktrees elsewhere": """
        mkdir -p .git/worktrees/w; printf '/root/.git\\n' >.git/worktrees/w/gitdir; printf '/root\\n' >.git/commondir
        printf 'ref: /etc/passwd\\n' >.git/HEAD; printf '/etc\\n' >.git/gitdir""",
    "references with odd names": """
        printf '# pack-refs with: peeled\\n%s refs/heads/--upload-pack=x\\n' "$(git rev-parse HEAD)" >.git/packed-refs
        printf 'x\\n' >'.git/refs/heads/a;touch x'
        mkdir -p .git/refs/heads/deep; ln -s /etc/passwd .git/refs/heads/deep/link
        printf 'ref: refs/heads/$(x)\\n' >.git/HEAD; ln -sf /etc/passwd .git/index""",
    "names that look like git": """
        for d in 'git~1' '.git ' '.git.' sub/.Git; do mkdir -p "$d"; printf x >"$d/config"; done
        mkdir -p .GIT/hooks; cd .GIT/hooks; {hooks}""",
    "attributes and ignores that reach out": """
        printf '* filter=evil text eol=crlf ident working-tree-encoding=UTF-16\\n' >.gitattributes
        ln -s /etc/passwd .gitignore; ln -s /etc/passwd .mailmap
        mkdir -p .git/info; printf '* export-subst export-ignore\\n' >.git/info/attributes""",
}


async def held_workspace(folder: Path) -> tuple[Workspace, str]:
    """A trusted git directory with one commit: a file `kept` and a file `changed`."""
    origin = folder / "origin"
    git = ["git", "-C", str(origin), "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", "init", "-q", str(origin)], check=True)  # noqa: ASYNC221
    (origin / "kept").write_text("kept\n")
    (origin / "changed").write_text("before\n")
    for words in (["add", "."], ["commit", "-q", "-m", "base"]):
        subprocess.run([*git, *words], check=True)  # noqa: ASYNC221
    base = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()  # noqa: ASYNC221
    words = [*git, "pack-objects", "--revs", "--stdout", "-q"]
    pack = subprocess.run(words, input=base.encode(), check=True, capture_output=True).stdout  # noqa: ASYNC221
    workspace = Workspace(folder / "trusted.git")
    await workspace.take_pack(pack, base)
    return workspace, base


@pytest.mark.claim("a hostile workspace fires nothing on the host")
@pytest.mark.parametrize("how", HOSTILE)
async def test_a_hostile_git_folder_fires_nothing_and_hides_nothing(
    jail: SandboxBackend, tmp_path: Path, how: str
) -> None:
    canary = tmp_path / "fired"
    os.chmod(tmp_path, 0o777)  # noqa: S103, PTH101 - so that even the agent's user could leave the canary
    workspace, base = await held_workspace(tmp_path)
    script = HOSTILE[how].replace("{hooks}", EVERY_HOOK).replace("{fire}", FIRE).replace("{canary}", str(canary))
    async with jail.open(SPEC, workspace.checkout(base)) as box:
        outcome = await sh(box, f"({script})\necho after >changed; echo new >added; rm -f kept; ls -A")
        assert "added" in outcome.text, outcome.text
        sealed = await workspace.seal(base, box.export(), limit=8 * MIB)
        await workspace.keep("refs/salvage/x", sealed, "x")
        difference = await workspace.diff(base, sealed.tree)
        again = await workspace.seal(base, box.export(), limit=8 * MIB)
        async with jail.open(SPEC, workspace.checkout_tree(sealed.tree, base)) as fresh:
            assert await fresh.read("added") == b"new\n"
            assert (await sh(fresh, "cat changed; ls kept 2>&1")).text.startswith("after\n")
    assert not canary.exists()
    assert sealed.tree == again.tree
    assert {"changed", "added", "kept"} <= set(sealed.files)
    assert "+after" in difference
    assert not any(part.lower().rstrip(" .") == ".git" for name in sealed.files for part in name.split("/"))
    assert b"root:" not in sealed.pack


@pytest.mark.claim("a hostile workspace fires nothing on the host")
async def test_git_works_inside_for_the_agent_all_the_same(jail: SandboxBackend, tmp_path: Path) -> None:
    workspace, base = await held_workspace(tmp_path)
    async with jail.open(SPEC, workspace.checkout(base)) as box:
        steps = "git status --porcelain && echo more >>kept && git add -A && git commit -q -m mine && git log --oneline"
        steps += " && git stash list && git checkout -q -b other && git worktree list && git diff HEAD~1 --stat"
        outcome = await sh(box, steps)
        assert outcome.exit_code == 0, outcome.text
        assert "mine" in outcome.text
        fetched = await sh(box, "git clone https://192.0.2.1/x 2>&1; git fetch ext::true 2>&1; git push 2>&1")
        assert fetched.exit_code != 0
