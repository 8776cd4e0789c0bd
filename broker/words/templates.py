"""The repository's own pull request template, looked for where its forge looks. It is repository content: data."""

from __future__ import annotations

from collections.abc import Iterator

from broker.config.repository import ForgeKind
from broker.errors import GitError
from broker.gitdir import GitDir, Objects

_PLAIN = ("pull_request_template.md", "pull_request_template.txt", "pull_request_template")
# GitHub "Creating a pull request template"; GitLab "Description templates"; Gitea and Forgejo "Issue and Pull Request
# Templates". Names count in any case; the first that is there wins.
PLACES: dict[ForgeKind, tuple[str, ...]] = {
    "github": tuple(f"{folder}{name}" for folder in (".github/", "", "docs/") for name in _PLAIN),
    "gitea": tuple(f"{folder}{_PLAIN[0]}" for folder in ("", ".forgejo/", ".gitea/", ".github/", "docs/")),
    "gitlab": (".gitlab/merge_request_templates/default.md",),
    "local": (".github/pull_request_template.md", ".gitlab/merge_request_templates/default.md"),
}
_MAX_TREE, _MAX_FILE = 1 << 20, 64 * 1024
_FILE_MODES = frozenset({b"100644", b"100755"})


def find_template(git: GitDir, commit: str, kind: ForgeKind) -> str:
    """The template's text in a commit's tree, undecodable bytes replaced; empty if there is none that can be read."""
    try:
        with git.objects() as objects:
            root = git.tree_of(commit)
            found = (_file(objects, root, place.split("/")) for place in PLACES[kind])
            return next((text for text in found if text), "")
    except GitError:
        return ""


def _file(objects: Objects, tree: str, steps: list[str]) -> str:
    for name, mode, oid in _entries(objects, tree):
        if name.casefold() != steps[0]:
            continue
        if len(steps) > 1 and mode == b"40000":
            return _file(objects, oid, steps[1:])
        if len(steps) == 1 and mode in _FILE_MODES:
            return objects.read(oid, "blob", _MAX_FILE).decode(errors="replace")
    return ""


def _entries(objects: Objects, tree: str) -> Iterator[tuple[str, bytes, str]]:
    data, at, size = objects.read(tree, "tree", _MAX_TREE), 0, len(tree) // 2
    while at < len(data):
        end = data.index(b"\0", at)
        mode, _, name = data[at:end].partition(b" ")
        at = end + 1 + size
        yield name.decode(errors="replace"), mode, data[end + 1 : at].hex()
