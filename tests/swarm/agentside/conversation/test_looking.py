"""Which commands merely look: what is not known to is taken to change something."""

from __future__ import annotations

import pytest

from swarm.conversation.looking import only_looks


@pytest.mark.parametrize(
    "command",
    [
        "ls -la",
        "cd src && grep -rn 'a > b' . | head -20",
        "sed -n '1,40p' a.py",
        "find . -iname '*.py' 2>/dev/null | sort | uniq -c",
        "git status; git --no-pager diff HEAD~1",
        "LC_ALL=C sort a.txt 2>&1 | tail -3",
        "for f in a b; do cat $f; done",
        "/bin/cat a.py &",
        'grep "x" a.py || true',
        "grep a\\>b a.py",
        'grep "a\\"> b" a.py',
        "",
    ],
)
def test_what_looks(command: str) -> None:
    assert only_looks(command)


@pytest.mark.parametrize(
    "command",
    [
        "sed -i 's/a/b/' a.py",
        "sed -ni.bak p a.py",
        "cat a.py > b.py",
        "echo x >> a.py",
        "ls && rm a.py",
        "find . -name '*.pyc' -delete",
        "find . -exec rm {} ;",
        "git checkout a.py",
        "git -C sub commit -m x",
        "git branch -D old",
        "sort -o a.txt a.txt",
        "python fix.py",
        "echo $(rm a.py)",
        "echo `rm a.py`",
        'echo "$(rm a.py)"',
        'echo \\" > "a b"',
        "ls | xargs rm",
        "cat a | tee b",
        "cat <<EOF | python\nx\nEOF",
    ],
)
def test_what_may_change_something(command: str) -> None:
    assert not only_looks(command)


@pytest.mark.parametrize("text", ['"\\' * 25_000, "1" * 50_000, "( " * 25_000, "find " + "-iname " * 7_000])
def test_a_command_as_long_as_may_be_is_read_in_linear_time(text: str) -> None:
    """Each of the first two took over ten seconds."""
    only_looks(text)
