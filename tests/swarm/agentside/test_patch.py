"""Patches: both forms read leniently, applied in one place or not at all, and nothing else touched."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.tools.editing.edit import Missed
from swarm.tools.editing.runs import LINES as MOST
from swarm.tools.patches import hunks
from swarm.tools.patches import reading as patch
from swarm.tools.patches.hunks import Applied


def applied(data: bytes, text: str) -> bytes:
    changes = patch.read(text)
    assert not isinstance(changes, Missed), changes
    made = hunks.apply(data, changes[0].hunks)
    assert isinstance(made, Applied), made
    return made.data


def missed(data: bytes, text: str) -> str:
    changes = patch.read(text)
    assert not isinstance(changes, Missed), changes
    made = hunks.apply(data, changes[0].hunks)
    assert isinstance(made, Missed), made
    return made.reason


def unified(*lines: str, head: str = "@@ -1,3 +1,3 @@") -> str:
    return "\n".join(["--- a/f.py", "+++ b/f.py", head, *lines, ""])


def begin(*lines: str, path: str = "f.py") -> str:
    return "\n".join(["*** Begin Patch", f"*** Update File: {path}", *lines, "*** End Patch"])


SMALL = b"a = 1\nb = 2\nc = 3\n"


@pytest.mark.parametrize("head", ["@@ -1,3 +1,3 @@", "@@ -40,9 +41,2 @@ def f", "@@ -1 +1 @@", "@@"])
def test_wrong_numbers_and_counts_in_a_head_do_no_harm(head: str) -> None:
    assert applied(SMALL, unified(" a = 1", "-b = 2", "+b = 5", " c = 3", head=head)) == b"a = 1\nb = 5\nc = 3\n"


def test_the_form_with_begin_and_end_is_applied() -> None:
    assert applied(SMALL, begin("@@", " a = 1", "-b = 2", "+b = 5")) == b"a = 1\nb = 5\nc = 3\n"
    assert applied(SMALL, begin("-b = 2", "+b = 5")) == b"a = 1\nb = 5\nc = 3\n"


def test_fences_and_text_around_are_passed_over() -> None:
    text = f"```diff\n{unified(' a = 1', '-b = 2', '+b = 5', ' c = 3')}\n```"
    assert applied(SMALL, text) == b"a = 1\nb = 5\nc = 3\n"
    assert (
        applied(SMALL, f"I change b.\n\n{unified(' a = 1', '-b = 2', '+b = 5', ' c = 3')}") == b"a = 1\nb = 5\nc = 3\n"
    )


def test_context_that_lost_its_blank_is_still_context() -> None:
    assert applied(b"x\n\ny\n", unified("x", "", "-y", "+z", head="@@")) == b"x\n\nz\n"


def test_whitespace_in_context_may_be_wrong_and_the_files_own_stays() -> None:
    data = b"class A:\n\tdef f(self):  \n\t\treturn 1\n"
    made = applied(data, unified(" class A:", "     def f(self):", "-        return 1", "+        return 2"))
    assert made == b"class A:\n\tdef f(self):  \n        return 2\n"


def test_indentation_left_out_is_put_back() -> None:
    data = b"def f():\n    if x:\n        return 1\n    return 2\n"
    made = applied(data, begin("@@ def f():", " if x:", "-    return 1", "+    return 3"))
    assert made == b"def f():\n    if x:\n        return 3\n    return 2\n"


def test_outer_context_may_be_wrong_where_the_rest_is_one_place() -> None:
    made = applied(SMALL, unified(" something else", "-b = 2", "+b = 5", " c = 3"))
    assert made == b"a = 1\nb = 5\nc = 3\n"


def test_context_that_tells_of_another_place_is_never_passed_over() -> None:
    data = b"def f():\n    return 1\n\ndef g():\n    return 2\n"
    lines = ("-    return 1", "+    return 3")
    assert "nearest lines" in missed(data, unified(" def g():", *lines)), "there, but elsewhere"
    assert "nearest lines" in missed(data, unified(" def h():", *lines, " ")), "the head of a definition"
    assert "nearest lines" in missed(data, unified(" x = 1", *lines)), "no context is left"
    twice = b"first\nsecond\n" * 2
    assert "nearest lines" in missed(twice, unified(" zero", " first", "-second", "+third", head="@@ -1 +1 @@")), (
        "twice"
    )


def test_a_file_goes_only_with_all_its_lines() -> None:
    def left(data: bytes, *lines: str) -> str:
        changes = patch.read("\n".join(["--- a/f.py", "+++ /dev/null", "@@ -1,3 +0,0 @@", *lines, ""]))
        assert not isinstance(changes, Missed)
        assert changes[0].kind == "delete"
        return hunks.left(data, changes[0].hunks)

    assert "does not hold" in left(b"IMPORTANT\n", "-other")
    assert "more than the lines" in left(SMALL, "-a = 1", "-b = 2")
    assert "more than the lines" in left(b"\n\nx\n\n", " x")
    for data in (SMALL, b"\xef\xbb\xbfa = 1\r\nb = 2\r\nc = 3"):
        assert left(data, "-a = 1", "-b = 2", "-c = 3") == ""
    assert hunks.left(SMALL, []) == "", "a file that is only named goes"


def test_what_was_passed_over_is_told() -> None:
    def notes(text: str) -> str:
        changes = patch.read(text)
        assert not isinstance(changes, Missed)
        made = hunks.apply(SMALL, changes[0].hunks)
        assert isinstance(made, Applied)
        return " ".join(made.notes)

    assert "'something else' of its context" in notes(unified(" something else", "-b = 2", "+b = 5", " c = 3"))
    assert "'class C:' that it names" in notes(begin("@@ class C:", "-b = 2", "+b = 5"))
    assert notes(begin("@@ a = 1", "-b = 2", "+b = 5")) == ""


def test_an_anchor_is_a_whole_line_before_it_is_the_beginning_of_one() -> None:
    data = b"class AB:\n    x = 1\nclass A:\n    x = 1\n"
    third = b"class AB:\n    x = 1\nclass A:\n    x = 2\n"
    for anchor in ("class A", "class A:", "class  A:"):
        assert applied(data, begin(f"@@ {anchor}", "-    x = 1", "+    x = 2")) == third
    assert "2 times" in missed(data, begin("@@ class", "-    x = 1", "+    x = 2")), "two lines begin so"
    twice = b"class A:\n    def f():\n        x\nclass B:\n    def f():\n        x\n"
    assert "2 times" in missed(twice, begin("@@ def f():", "-        x", "+        y"))
    assert applied(twice, begin("@@ class B:", "@@ def f():", "-        x", "+        y")).endswith(b"y\n")


@pytest.mark.parametrize("anchor", ["def g():", "def h():"])
def test_lines_outside_of_what_an_anchor_names_are_not_taken(anchor: str) -> None:
    data = b"def h():\n    pass\ndef f():\n    return 1\ndef g():\n    return 2\n"
    assert f"which is not what '{anchor}'" in missed(data, begin(f"@@ {anchor}", "-    return 1", "+    return 3"))


def test_the_line_that_git_names_may_lie_before_another_definition_and_be_cut_off() -> None:
    long = f"def f_{'a' * 90}() -> None:"
    data = f"{long}\n    return 1\ndef g():\n    return 2\n".encode()
    text = unified(" def g():", "-    return 2", "+    return 3", head=f"@@ -3,2 +3,2 @@ {long[:80]}")
    changes = patch.read(text)
    assert not isinstance(changes, Missed)
    made = hunks.apply(data, changes[0].hunks)
    assert isinstance(made, Applied)
    assert (made.data, made.notes) == (data.replace(b"2", b"3"), ())


def test_lines_are_not_added_in_the_midst_of_another_hunk() -> None:
    text = unified("-a = 1", "-b = 2", "+x", head="@@ -1,2 +1 @@") + "@@ -1,0 +1 @@\n+y\n"
    assert "in the midst" in missed(SMALL, text)


def test_a_file_of_lines_that_are_alike_takes_many_hunks_in_a_moment() -> None:
    lines = "".join(f"@@ -{at} +{at} @@ class A:\n-    x = 1\n+    x = {at}\n" for at in range(2, 2002))
    data = b"class A:\n" + b"    x = 1\n" * 40_000
    assert applied(data, f"--- a/f\n+++ b/f\n{lines}").startswith(b"class A:\n    x = 2\n    x = 3\n")


def test_more_than_can_be_searched_is_refused_by_count() -> None:
    one = "@@ -1 +1 @@\n-a\n+b\n"
    assert "too much to search: 5001 hunks" in missed(b"a\n", "--- a/f\n+++ b/f\n" + one * 5001)
    assert "too much to search: the file has" in missed(b"\n" * (MOST + 1), "--- a/f\n+++ b/f\n" + one)


def test_of_several_places_none_is_guessed() -> None:
    data = b"x = 1\npass\nx = 1\npass\n"
    assert "2 times (at lines 1, 3)" in missed(data, begin("-x = 1", "+x = 2"))
    assert "2 times" in missed(data, unified("-x = 1", "+x = 2", head="@@ -9 +9 @@"))


def test_number_anchor_order_and_end_point_to_one_of_several() -> None:
    data = b"def f():\n    x = 1\ndef g():\n    x = 1\n"
    second = b"def f():\n    x = 1\ndef g():\n    x = 2\n"
    assert applied(data, unified("-    x = 1", "+    x = 2", head="@@ -4 +4 @@")) == second
    assert applied(data, begin("@@ def g():", "-    x = 1", "+    x = 2")) == second
    assert applied(data, begin("-    x = 1", "+    x = 2", "*** End of File")) == second
    assert applied(data, begin(" def f():", "-    x = 1", "+    x = 0", "@@", "-    x = 1", "+    x = 2")) == (
        b"def f():\n    x = 0\ndef g():\n    x = 2\n"
    )


def test_hunks_out_of_order_find_their_places() -> None:
    made = applied(SMALL, begin("@@", "-c = 3", "+c = 4", "@@", "-a = 1", "+a = 0"))
    assert made == b"a = 0\nb = 2\nc = 4\n"


def test_a_miss_names_the_hunk_and_shows_the_nearest_lines() -> None:
    reason = missed(SMALL, begin("@@", "-a = 1", "+a = 0", "@@", "-b = 22", "+b = 3"))
    assert reason.startswith("hunk 2 of 2")
    assert "2\tb = 2" in reason


def test_lines_without_a_place_are_refused_and_with_one_are_put_there() -> None:
    assert "does not say where" in missed(SMALL, begin("@@", "+d = 4"))
    assert applied(SMALL, begin("@@ b = 2", "+d = 4")) == b"a = 1\nb = 2\nd = 4\nc = 3\n"
    assert applied(SMALL, unified("+d = 4", head="@@ -1,0 +2 @@")) == b"a = 1\nd = 4\nb = 2\nc = 3\n"
    assert applied(b"", unified("+d = 4", head="@@ -0,0 +1 @@")) == b"d = 4\n"


def test_line_ends_mark_and_missing_newline_stay() -> None:
    data = b"\xef\xbb\xbfa = 1\r\nb = 2\r\nc\xe9"
    assert (
        applied(data, begin(" a = 1", "-b = 2", "+b = 5", "+d = 6")) == b"\xef\xbb\xbfa = 1\r\nb = 5\r\nd = 6\r\nc\xe9"
    )
    assert applied(b"a\nb", begin("-b", "+c")) == b"a\nc"
    assert applied(b"a\nb", begin("-b")) == b"a\n"
    assert applied(b"a\nb", begin("-a", " b")) == b"b"


def test_the_patch_decides_over_the_last_newline_where_it_says_so() -> None:
    gone = "\\ No newline at end of file"
    assert applied(b"a\nb", unified(" a", "-b", gone, "+c", head="@@ -1,2 +1,2 @@")) == b"a\nc\n"
    assert applied(b"a\nb\n", unified(" a", "-b", "+c", gone, head="@@ -1,2 +1,2 @@")) == b"a\nc"


def test_an_anchor_may_be_the_beginning_of_a_line_or_the_tail_of_a_head() -> None:
    data = b"def f(a):\n    x = 1\ndef g(b):\n    x = 1\n"
    second = b"def f(a):\n    x = 1\ndef g(b):\n    x = 2\n"
    assert applied(data, begin("@@ def g", "-    x = 1", "+    x = 2")) == second
    assert applied(data, unified("-    x = 1", "+    x = 2", head="@@ -40 +40 @@ def g(b):")) == second


def test_empty_lines_after_a_hunk_and_a_missing_end_do_no_harm() -> None:
    text = "*** Begin Patch\n*** Update File: f.py\n@@ b = 2\n+d = 4\n\n*** Update File: g.py\n-x\n+y\nEOF\n```"
    assert applied(SMALL, text) == b"a = 1\nb = 2\nd = 4\nc = 3\n"
    changes = patch.read(text)
    assert not isinstance(changes, Missed)
    assert changes[1].hunks[0].lines == [("-", "x"), ("+", "y")]


def test_a_patch_that_may_be_cut_off_is_refused() -> None:
    cut = "*** Begin Patch\n*** Update File: f.py\n@@\n-x\n+y\n*** Update File: g.py\n@@\n-z"
    for text in (cut, f"{cut}\n EOF\n", "*** Begin Patch\n*** Add File: f.py\n+x"):
        result = patch.read(text)
        assert isinstance(result, Missed)
        assert "no end" in result.reason


def test_every_patch_of_several_is_read() -> None:
    changes = patch.read(f"First:\n{begin('-a', '+b')}\n\nThen:\n{begin('-c', '+d', path='g.py')}\n")
    assert not isinstance(changes, Missed)
    assert [(one.path, one.hunks[0].lines) for one in changes] == [
        ("f.py", [("-", "a"), ("+", "b")]),
        ("g.py", [("-", "c"), ("+", "d")]),
    ]


def test_no_line_of_a_new_file_is_lost() -> None:
    head = "--- /dev/null\n+++ b/f.py\n@@ -0,0 +1,3 @@\n"
    result = patch.read(f"{head}+def f():\n    return 1\n")
    assert isinstance(result, Missed)
    assert "has no + before it" in result.reason
    changes = patch.read(f"{head}+a\n\n+b\n")
    assert not isinstance(changes, Missed)
    assert changes[0].added == "a\n\nb\n"
    changes = patch.read("*** Begin Patch\n*** Add File: f\n+a\n\n+b\n\n*** Delete File: g\n*** End Patch")
    assert not isinstance(changes, Missed)
    assert changes[0].added == "a\n\nb\n"


@pytest.mark.parametrize(
    ("old", "new", "path", "to"),
    [
        ("a/f.py", "b/f.py", "f.py", None),
        ("a/f.py", "f.py", "f.py", None),
        ("f.py", "b/f.py", "f.py", None),
        ("f.py\t2026-01-01", "f.py\t2026-01-02", "f.py", None),
        ("f.py.orig", "f.py", "f.py.orig", "f.py"),
        ('"a/odd\\"name"', '"b/odd\\"name"', 'odd"name', None),
        ('"a/\\303\\251\\t.py"', '"b/\\303\\251\\t.py"', "\u00e9\t.py", None),
    ],
)
def test_names_of_files_are_read_in_every_form(old: str, new: str, path: str, to: str | None) -> None:
    changes = patch.read(f"--- {old}\n+++ {new}\n@@ -1 +1 @@\n-a\n+b\n")
    assert not isinstance(changes, Missed)
    assert (changes[0].path, changes[0].to) == (path, to)


def test_lines_that_look_like_heads_are_read_by_the_counts() -> None:
    data = b"-- old\nx\n"
    assert applied(data, unified("--- old", "+++ new", " x", head="@@ -1,2 +1,2 @@")) == b"++ new\nx\n"


GIT = """\
diff --git a/old.py b/new.py
similarity index 90%
rename from old.py
rename to new.py
--- a/old.py
+++ b/new.py
@@ -1 +1 @@
-a
+b
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-x
diff --git a/run.sh b/run.sh
new file mode 100755
--- /dev/null
+++ b/run.sh
@@ -0,0 +1 @@
+ls
diff --git a/m b/m
old mode 100644
new mode 100755
"""


def test_files_are_added_deleted_moved_and_made_executable() -> None:
    changes = patch.read(GIT)
    assert not isinstance(changes, Missed)
    assert [(one.kind, one.path, one.to, one.executable) for one in changes] == [
        ("update", "old.py", "new.py", None),
        ("delete", "gone", None, None),
        ("add", "run.sh", None, True),
        ("update", "m", None, True),
    ]
    assert changes[2].added == "ls\n"


def test_the_other_form_adds_deletes_and_moves_too() -> None:
    lines = ["*** Begin Patch", "*** Add File: a b.txt", "+one", "+", "+ two", "*** Delete File: gone"]
    lines += ["*** Update File: old.py", "*** Move to: new.py", "@@", "-a", "+b", "*** End Patch"]
    changes = patch.read("\n".join(lines))
    assert not isinstance(changes, Missed)
    assert [(one.kind, one.path, one.to) for one in changes] == [
        ("add", "a b.txt", None),
        ("delete", "gone", None),
        ("update", "old.py", "new.py"),
    ]
    assert changes[0].added == "one\n\n two\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no file is named"),
        ("hello\nworld", "no file is named"),
        ("*** Begin Patch\n*** End Patch", "no file is named"),
        ("*** Begin Patch\n+x\n*** End Patch", "before any *** Update File"),
        ("@@ -1 +1 @@\n-a\n+b", "before any file's name"),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n a\n", "changes nothing in f"),
        ("diff --git a/p b/q\nsimilarity index 100%\ncopy from p\ncopy to q\n", "copies a file"),
        ("diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+p\n", "a link"),
        ("--- a/f\n+++ b/f\n@@ -1,3 +1,9 @@\n a\n-b", "may be cut off"),
        ("diff --git a/p b/p\nGIT binary patch\nliteral 3\n", "binary"),
    ],
)
def test_what_is_no_patch_is_refused_with_the_reason(text: str, told: str) -> None:
    result = patch.read(text)
    assert isinstance(result, Missed)
    assert told in result.reason


LINE = st.sampled_from(["a", "b", "", "    c", "\td()", "--- x", "+++ y", "@@ z", "caf\u00e9", "x = 1"])
TEXT = st.lists(LINE, max_size=25).map(lambda lines: "".join(f"{line}\n" for line in lines))


@given(TEXT, TEXT, st.integers(0, 4))
def test_a_patch_that_difflib_makes_gives_its_result(before: str, after: str, context: int) -> None:
    made = difflib.unified_diff(before.splitlines(True), after.splitlines(True), "a/f", "b/f", n=context)
    text = "".join(made)
    if text:
        assert applied(before.encode(), text) == after.encode()


@given(TEXT, TEXT, TEXT, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_bytes_outside_the_hunk_never_change(before, old, after, end, closed) -> None:
    middle = "UNIQUE\n" + old
    data = (before + middle + after).replace("\n", end).encode()
    if not closed:
        data = data.removesuffix(end.encode())
    lines = middle.removesuffix("\n").split("\n")
    changes = patch.read(begin("@@", "-UNIQUE", "+NEW", *(f" {line}" for line in lines[1:])))
    assert not isinstance(changes, Missed)
    made = hunks.apply(data, changes[0].hunks)
    assert isinstance(made, Applied)
    assert made.data == data.replace(b"UNIQUE", b"NEW")


SCRAP = """--- a/f|+++ b/f|@@ -1,2 +1,2 @@|@@| a|-a|+b||x|*** Begin Patch|*** Update File: f|*** End Patch|rename to g
|\\ No newline at end of file|*** Add File: f|diff --git a/f b/f|*** End of File|*** Move to: g""".replace(
    "\n", ""
).split("|")
SCRAPS = st.lists(st.sampled_from(SCRAP), max_size=14)


@given(SCRAPS, st.binary(max_size=20))
def test_scraps_are_applied_or_refused_but_never_break(lines, data) -> None:
    changes = patch.read("\n".join(lines))
    if not isinstance(changes, Missed):
        for change in changes:
            assert isinstance(hunks.apply(data, change.hunks), Applied | Missed)
