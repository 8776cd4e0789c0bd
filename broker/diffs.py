"""What git says has changed, for a person to read: bounded, and with nothing of a repository's own at work."""

from __future__ import annotations

from broker.gitdir import GitDir

_OPTIONS = (
    *("-r", "-p", "--no-ext-diff", "--no-textconv", "--no-renames", "--no-color", "--full-index"),
    "--ignore-submodules=none",
)


def diff_of(git: GitDir, old: str, new: str, limit: int) -> tuple[str, bool]:
    """A unified diff of two trees or commits of at most ``limit`` bytes, and whether it was cut. Raises GitError."""
    parts, size = [], 0
    output = git.stream("diff-tree", *_OPTIONS, old, new)
    for chunk in output:
        parts.append(chunk)
        size += len(chunk)
        if size > limit:
            output.close()
            break
    return b"".join(parts)[:limit].decode(errors="replace"), size > limit
