"""From a proposal to the forge and back, byte for byte: what is allowed arrives as it was, the rest is refused whole.

The tree's id on the forge is the sealed one's, which says it all; contents and modes are read back all the same.
"""

from __future__ import annotations

import os

import pytest

from broker.judge.crafted import Crafted, blob, commit, pack, tree
from broker.wire import Receipt, Refusal

pytestmark = pytest.mark.slow

NULL = bytes(range(256)) * 3
TOGETHER = {
    "crlf": {"src/dos.txt": b"one\r\ntwo\r\n"},
    "mixed line ends": {"src/mixed.txt": b"a\r\nb\nc\rd"},
    "no line end": {"src/open.txt": b"no newline at the end"},
    "byte order mark that the base has": {"src/bom.txt": b"\xef\xbb\xbfwith more\n"},
    "empty": {"src/empty.txt": b""},
    "only line ends": {"src/lines.txt": b"\n\n\n"},
    "binary": {"assets/logo.png": b"\x89PNG\r\n\x1a\n" + NULL},
    "latin 1": {"src/latin.txt": b"caf\xe9\n"},
    "utf 16 as binary": {"assets/wide.txt": "wide".encode("utf-16")},
    "keyword dollars": {"src/id.txt": b"$Id$ $Format:%H$\n"},
    "conflict marks": {"src/marks.txt": b"<<<<<<< a\n=======\n>>>>>>> b\n"},
    "a patch within": {"src/a.patch": b"---\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"},
    "spaces and quotes": {"src/it's a name.txt": b"x\n"},
    "unicode": {"src/\u65e5\u672c\u8a9e.txt": b"x\n", "src/\u00e9t\u00e9.txt": b"y\n"},
    "decomposed": {"src/e\u0301t.txt": b"x\n"},
    "odd signs": {"src/a,b;c=d+e@f#g%h&i!(j)[k]{l}^m$n.txt": b"x\n"},
    "long name": {"src/" + "n" * 251 + ".txt": b"x\n"},
    "deep": {"/".join(f"d{n}" for n in range(40)) + "/f.txt": b"deep\n"},
    "executable loses its bit": {"tool.sh": ("100644", b"#!/bin/sh\n")},
    "becomes executable": {"src/new.sh": ("100755", b"#!/bin/sh\n")},
    "link": {"src/link": ("120000", b"clamp.py")},
    "many": {f"many/f{n}.txt": b"%d\r\n" % n for n in range(50)},
}
ALLOWED = {
    "all kinds of files at once": {path: change for files in TOGETHER.values() for path, change in files.items()},
    "rename": {"src/clamp.py": None, "src/renamed.py": b"def clamp(x, low, high):\n    return max(low, min(x, low))\n"},
    "deletion": {"README.md": None},
    "file to folder": {"README.md": None, "README.md/inner.txt": b"x\n"},
    "folder to file": {"src/clamp.py": None, "src": b"a file now\n"},
}


def test_together_names_each_path_once():
    assert len(ALLOWED["all kinds of files at once"]) == sum(len(files) for files in TOGETHER.values())


@pytest.fixture
def house(build_house):
    return build_house(
        policy={"allow_symlinks": True, "allow_executables": True, "binary_paths": ["assets/**"], "protected_paths": []}
    )


@pytest.mark.parametrize("changes", ALLOWED.values(), ids=ALLOWED.keys())
def test_what_is_allowed_arrives_byte_for_byte(house, changes):
    base = house.grant().base_commit
    before = house.agent.tree(base, {"src/bom.txt": b"\xef\xbb\xbfwith\n", "tool.sh": ("100755", b"#!/bin/sh\n")})
    start = house.origin
    house.agent.git("push", "-q", str(start.path), f"{house.agent.commit(before, base)}:refs/heads/main")
    wanted = house.agent.tree(before, changes)
    grant = house.grant("t2")
    receipt = house.service.proposals.propose(house.proposal(wanted, "t2"), house.agent.pack(wanted, grant.base_commit))
    assert isinstance(receipt, Receipt), receipt
    assert start.git("rev-parse", f"{receipt.commit}^{{tree}}") == wanted
    for path, change in changes.items():
        if change is None:
            continue
        mode, content = change if isinstance(change, tuple) else ("100644", change)
        listed = start.git("ls-tree", "-z", receipt.commit, "--", path).split("\0")[0]
        assert listed.split(" ")[0] == mode
        assert start.content(listed.split(" ")[2].split("\t")[0], "blob") == content
    assert start.git("rev-list", "--parents", "-1", receipt.commit).split() == [receipt.commit, grant.base_commit]


REFUSED = {
    "workflow among good files": {".github/workflows/x.yml": b"on: push\n"},
    "link among good files": {"src/l": ("120000", b"/etc/passwd")},
    "binary among good files": {"src/x.bin": NULL},
    "executable among good files": {"src/x.sh": ("100755", b"#!/bin/sh\n")},
    "quote in a name": {'src/a"b.txt': b"x\n"},
    "tab in a name": {"src/a\tb.txt": b"x\n"},
}


@pytest.mark.parametrize("changes", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_allowed_is_refused_whole_and_never_dropped(build_house, changes):
    house = build_house()
    verdict = house.offer({**house.good, **changes})
    assert isinstance(verdict, Refusal)
    (path,) = changes
    named = {finding.path for finding in verdict.findings}
    assert path.encode("unicode_escape").decode() in named
    assert "refs/heads/swarm/t1" not in house.branches()


# --- the pack's accounts


def hidden_pack(house, *more):
    base = house.grant().base_commit
    wanted = house.agent.tree(base, house.good)
    objects = [house.agent.content(oid, "blob" if kind == "blob" else "tree")
               for kind, oid in ((line.split()[1], line.split()[2]) for line in
                                 house.agent.git("ls-tree", "-r", "-t", wanted).splitlines())]  # fmt: skip
    kinds = [line.split()[1] for line in house.agent.git("ls-tree", "-r", "-t", wanted).splitlines()]
    root = Crafted("tree", house.agent.content(wanted, "tree"))
    return wanted, pack([root, *(Crafted(kind, data) for kind, data in zip(kinds, objects, strict=True)), *more])


def test_objects_of_the_base_may_ride_along(house):
    wanted, sent = hidden_pack(house)
    assert isinstance(house.service.proposals.propose(house.proposal(wanted), sent), Receipt)


@pytest.mark.parametrize(
    "extra",
    [
        [blob(b"hidden\n")],
        [tree(("100644", b"x", blob(b"hidden\n").oid)), blob(b"hidden\n")],
        [commit("4b825dc642cb6eb9a060e54bf8d69288fbee4904"), tree()],
        [Crafted("tag", b"object 4b825dc642cb6eb9a060e54bf8d69288fbee4904\ntype tree\ntag t\n\nx\n"), tree()],
    ],
    ids=["blob", "tree", "commit", "tag"],
)
def test_hidden_objects_are_refused(house, extra):
    wanted, sent = hidden_pack(house, *extra)
    verdict = house.service.proposals.propose(house.proposal(wanted), sent)
    assert house.rules(verdict) == {"hidden-object"}
    assert {finding.severity for finding in verdict.findings} == {"fatal"}


def test_an_empty_folder_is_refused(house):
    base = house.grant().base_commit
    readme = house.agent.git("rev-parse", f"{base}:README.md")
    made = tree(("100644", b"README.md", readme), ("40000", b"empty", tree().oid))
    verdict = house.service.proposals.propose(house.proposal(made.oid), pack([made, tree()]))
    assert "bad-tree" in house.rules(verdict)


def test_a_lookalike_of_a_file_that_git_obeys_is_fatal(house):
    base = house.grant().base_commit
    readme = house.agent.git("rev-parse", f"{base}:README.md")
    file = blob(os.urandom(4).hex().encode())
    for name in (b"GITMOD~1", b"gi7eba~1", b".gitmodules ", b".gitattributes::$DATA", b".GIT\xc4\xb1gnore:x"):
        made = tree(*sorted([("100644", b"README.md", readme), ("100644", name, file.oid)], key=lambda entry: entry[1]))
        explained = house.service.proposals.explain(house.proposal(made.oid), pack([made, file]))
        assert {finding.rule for finding in explained.findings if finding.severity == "fatal"} & {
            "bad-tree",
            "pack-rejected",
        }, name
