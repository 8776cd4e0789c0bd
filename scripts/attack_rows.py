"""Attacks with objects: what a prompt-injected agent or a taken-over sandbox may put into a proposal's pack.

Each returns by what it was stopped; it raises SurvivedError if it was not, and ToothlessError if it would not even bite
where nothing defends.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from attack_stage import BASE, GOOD, Answer, Stage, SurvivedError, ToothlessError, folder
from broker.judge.crafted import Crafted, blob, commit, entry, pack, sealed, tree

PAYLOAD = blob(b"payload\n")
EVIL_WORKFLOW = b"on: pull_request_target\njobs: {x: {runs-on: self-hosted}}\n"


@dataclass(frozen=True)
class Attack:
    """One row: ``source`` is the section or the public report it comes from; ``quick`` ones are in the test suite."""

    name: str
    source: str
    run: Callable[[Stage], str]
    quick: bool = True


def stopped(answer: Answer, *rules: str) -> str:
    """The rules that refused it. Raises SurvivedError unless one of the expected is among them."""
    if answer.kind != "refusal" or not answer.rules & set(rules):
        raise SurvivedError(f"{answer.kind} {sorted(answer.rules)}, status {answer.status}: {str(answer.body)[:300]}")
    return "refused: " + ", ".join(sorted(answer.rules & set(rules)))


def denied(answer: Answer, *codes: str) -> str:
    """The problem that it met. Raises SurvivedError unless it is one of the expected."""
    if answer.kind not in codes:
        raise SurvivedError(f"{answer.kind}, status {answer.status}: {str(answer.body)[:300]}")
    return f"denied: {answer.status} {answer.kind}"


def bites(*, really: bool, what: str) -> None:
    """Raises ToothlessError where the attack does nothing even without a defence."""
    if not really:
        raise ToothlessError(what)


def both(*said: str) -> str:
    """Several outcomes as one."""
    return "; ".join(dict.fromkeys(said))


# --- names, modes and shapes of trees

HOSTILE_NAMES = (
    b".git", b".GIT", b"git~1", b".g\xe2\x80\x8cit", b"\xef\xbb\xbf.git", b".git ", b".git.", b"..", b".", b"a/b",
    b"a\\b", b".git::$INDEX_ALLOCATION", b"GITHUB~1", b"gi7eba~1", b"\xff\xfe", b"\xe2\x80\xaetxt.exe", b"a\nb",
    b"a\x1b[31m", b"con", b"aux.c", b"-rf", b"--upload-pack=x", b"n" * 256, b"",
)  # fmt: skip


def hostile_names(stage: Stage) -> str:
    """Every one of them alone: look-alikes of .git, ways out, streams, short names, control bytes, options."""
    bad = [tree(("100644", name, PAYLOAD.oid)) for name in HOSTILE_NAMES]
    bites(really=stage.undefended(pack([*bad, PAYLOAD])), what="git itself minds")
    said = [
        stopped(stage.plant(("100644", name, PAYLOAD.oid), objects=[PAYLOAD]), "bad-tree", "odd-name", "pack-rejected")
        for name in HOSTILE_NAMES
    ]
    return f"{len(HOSTILE_NAMES)} names, {both(*said)}"


def malformed_trees(stage: Stage) -> str:
    """Duplicates, no order, padded and odd modes, a file as a folder, an object that is not there."""
    one, other = ("100644", b"z", PAYLOAD.oid), ("100755", b"z", PAYLOAD.oid)
    shapes = {
        "duplicate": [one, other],
        "unsorted": [("100644", b"zz", PAYLOAD.oid), ("100644", b"a", PAYLOAD.oid)],
        "padded": [("0100644", b"z", PAYLOAD.oid)],
        "mode 100664": [("100664", b"z", PAYLOAD.oid)],
        "setuid": [("104755", b"z", PAYLOAD.oid)],
        "file as folder": [("40000", b"z", PAYLOAD.oid)],
        "missing": [("100644", b"z", "1" * 40)],
        "case": [("100644", b"Z", PAYLOAD.oid), one],
        "composed": [("100644", "e\u0301".encode(), PAYLOAD.oid), ("100644", "\u00e9".encode(), PAYLOAD.oid)],
        "empty folder": [("40000", b"z", tree().oid)],
    }
    made = [tree(*entries) for entries in shapes.values() if entries[0][2] != "1" * 40]
    bites(really=stage.undefended(pack([*made, PAYLOAD, tree()])), what="git itself minds")
    said = []
    for name, entries in shapes.items():
        needed = [PAYLOAD, tree()] if name == "empty folder" else [PAYLOAD]
        answer = stage.plant(*entries, objects=needed, in_order=name != "unsorted")
        said.append(stopped(answer, "bad-tree", "pack-rejected", "foreign-object"))
    return f"{len(shapes)} shapes, {both(*said)}"


def tree_bomb(stage: Stage) -> str:
    """A pack of under a kilobyte that describes ten to the tenth paths."""
    objects, level = [PAYLOAD], tree(*(("100644", f"f{n}".encode(), PAYLOAD.oid) for n in range(10)))
    for _ in range(9):
        objects.append(level)
        level = tree(*(("40000", f"d{n}".encode(), level.oid) for n in range(10)))
    bites(really=len(pack(objects)) < 2000, what="the bomb is large")
    began = time.monotonic()
    said = stopped(stage.propose(level, objects), "too-large")
    return f"{said} in {time.monotonic() - began:.2f} s"


def blob_bomb(stage: Stage) -> str:
    """256 MiB in 261 KB, the same hidden behind a small size, and a delta that grows to a gigabyte."""
    packed, of = pack([big := blob(bytes(256 << 20))]), tree(("100644", b"b", big.oid))
    bites(really=len(packed) < 1_200_000, what="the bomb is large")
    lie = sealed(b"PACK\0\0\0\2\0\0\0\1" + entry(3, 10) + zlib.compress(bytes(64 << 20)))
    began = time.monotonic()
    plain = stopped(stage.propose(of, (), sent=packed), "pack-too-large")
    hidden = stopped(stage.propose(tree(), (), sent=lie), "pack-rejected")
    base = entry(3, 3) + zlib.compress(b"abc")
    grows = b"\x03" + bytes((1 << 30) >> 7 * n & 127 | 128 for n in range(4)) + b"\x04"
    delta = entry(6, len(grows)) + bytes([len(base)]) + zlib.compress(grows)
    grown = stopped(stage.propose(tree(), (), sent=sealed(b"PACK\0\0\0\2\0\0\0\2" + base + delta)), "pack-too-large")
    return f"{both(plain, hidden, grown)} in {time.monotonic() - began:.2f} s"


def wide_and_deep(stage: Stage) -> str:
    """Folders without end, a folder of 100,000 names, a pack of many tiny objects."""
    level, objects = tree(("100644", b"f", PAYLOAD.oid)), [PAYLOAD]
    for _ in range(90):
        objects.append(level)
        level = tree(("40000", b"d", level.oid))
    deep = stopped(stage.propose(level, objects), "too-large")
    wide = tree(*(("100644", f"f{n:06}".encode(), PAYLOAD.oid) for n in range(100_000)))
    broad = stopped(stage.propose(wide, [PAYLOAD]), "too-large")
    many = [blob(b"%d" % n) for n in range(12_000)]
    return both(deep, broad, stopped(stage.propose(tree(), many), "pack-too-large"))


# --- what rides along


def thin_delta(stage: Stage) -> str:
    """A delta against another branch's file, and that file by its bare id: reads what was never granted."""
    secret = blob(b"the plans of another branch, " * 40)
    of = tree(("100644", b"plans.txt", secret.oid))
    head = commit(of.oid)
    stage.give(head, of, secret)
    stage.git("update-ref", "refs/heads/private", head.oid)
    stage.known_refs["refs/heads/private"] = head.oid
    stage.own()
    stage.configure(policy='bases = ["*"]')
    time.sleep(1.2)
    stage.grant(stage.task(), base="private")  # now it is in the mirror
    stage.configure()
    size = len(secret.data)  # all of it is copied, and one byte added
    copy = _varint(size) + _varint(size + 1) + b"\xb0" + size.to_bytes(2, "little") + b"\x01x"
    thin = entry(7, len(copy)) + bytes.fromhex(secret.oid) + zlib.compress(copy)
    stolen = tree(("100644", b"README.md", blob(secret.data + b"x").oid))
    body = b"PACK\0\0\0\2\0\0\0\2" + thin + entry(2, len(stolen.data)) + zlib.compress(stolen.data)
    bites(really=stage.undefended(sealed(body), "--fix-thin"), what="plain git does not complete it")
    by_delta = stopped(stage.propose(stolen, (), sent=sealed(body)), "pack-rejected")
    by_name = stopped(stage.propose(tree(("100644", b"README.md", secret.oid)), ()), "foreign-object")
    return both(by_delta, by_name)


def _varint(number: int) -> bytes:
    return bytes([number & 127 | 128, number >> 7]) if number > 127 else bytes([number])


def hidden_objects(stage: Stage) -> str:
    """Commits, tags and files in the pack that the tree does not reach."""
    good = folder({**BASE, **GOOD})
    tag = Crafted("tag", f"object {good.root.oid}\ntype tree\ntag t\ntagger a <a> 1 +0000\n\nx\n".encode())
    said = []
    for extra in (commit(good.root.oid), tag, blob(b"hidden\n"), tree(("100644", b"x", PAYLOAD.oid))):
        sent = pack([good.root, *good.objects, extra, PAYLOAD])
        bites(really=stage.undefended(sent), what=extra.kind)
        said.append(stopped(stage.propose(good.root, (), sent=sent), "hidden-object"))
    return both(*said)


def links_and_submodules(stage: Stage) -> str:
    """Symbolic links out of the tree, submodule pointers, .gitmodules, a link as .gitmodules."""
    link = blob(b"../../etc/passwd")
    return both(
        stopped(stage.offer({"link": ("120000", b"/etc/passwd")}), "symlink"),
        stopped(stage.offer({"src": ("120000", b"../../etc"), **dict.fromkeys(["src/clamp.py"])}), "symlink"),
        stopped(stage.offer({"vendored": ("160000", b"1" * 40)}), "submodule"),
        stopped(
            stage.offer({".gitmodules": b'[submodule "a"]\n\tpath = a\n\turl = ext::sh -c id\n'}), "protected-path"
        ),
        stopped(stage.plant(("120000", b".gitmodules", link.oid), objects=[link]), "pack-rejected"),
    )


# --- files that something obeys


def workflow(stage: Stage) -> str:
    """A CI file added, changed, removed, and under names that differ by case."""
    sealed_tree = folder({**BASE, ".github/workflows/evil.yml": EVIL_WORKFLOW})
    bites(really=stage.undefended(pack([sealed_tree.root, *sealed_tree.objects]), "--strict"), what="git itself minds")
    files = (".github/workflows/evil.yml", ".github/workflows/ci.yml", ".GitHub/workflows/x.yml", ".gitlab-ci.yml")
    said = [stopped(stage.offer({name: EVIL_WORKFLOW}), "workflow", "protected-path", "bad-tree") for name in files]
    return both(*said, stopped(stage.offer({".github/workflows/ci.yml": None}), "workflow", "protected-path"))


def obeyed_files(stage: Stage) -> str:
    """CODEOWNERS, manifests, what the next agent and the editor obey, by any spelling."""
    names = (
        "CODEOWNERS", "docs/codeowners", "AGENTS.md", "sub/claude.MD", ".vscode/settings.json", ".cursorrules",
        ".mcp.json", "package.json", "pyproject.toml", "requirements-dev.txt", ".gitattributes",
        ".husky/pre-commit", "setup.py", "\uff21GENTS.md",
    )  # fmt: skip
    return both(*(stopped(stage.offer({name: b"x\n"}), "protected-path", "bad-tree") for name in names))


def secret_in_code(stage: Stage) -> str:
    """A credential among the code, and one that a pragma is to hide."""
    key = b"AKIA" + b"IOSFODNN7EXAMPLA"
    answer = stage.offer({"src/key.py": b'aws = "' + key + b'"  # pragma: allowlist secret\n'})
    if key.decode() in str(answer.body):
        raise SurvivedError("the refusal repeats the secret")
    return stopped(answer, "secret")


def bidi_source(stage: Stage) -> str:
    """Trojan Source: code that reads otherwise than it runs."""
    line = "if admin: \u202e # \u2066 check done \u2069\u2066\n".encode()
    invisible = "access\u200b_level = 1\n".encode()
    first = stopped(stage.offer({"src/clamp.py": line}), "hidden-text")
    return both(first, stopped(stage.offer({"src/clamp.py": invisible}), "hidden-text"))


def quiet_removals(stage: Stage) -> str:
    """A licence, its header, a test taken away and a test switched off: told, or refused where the operator says so."""
    taken = {"LICENSE": None, "src/clamp.py": b"def clamp(x, low, high):\n    return 1\n", "tests/test_clamp.py": None}
    off = {**GOOD, "tests/test_clamp.py": b"import pytest\n\n\n@pytest.mark.skip\ndef test_high():\n    assert 1\n"}
    stage.configure('licence_headers = "block"\ntests_deleted = "block"\ntests_skipped = "block"')
    time.sleep(1.2)
    try:
        gone, skipped = stage.offer(taken), stage.offer(off)
    finally:
        stage.configure()
        time.sleep(1.2)
    if not {"licence-header", "tests-deleted"} <= gone.rules:
        raise SurvivedError(f"only {sorted(gone.rules)} were seen")
    return both(stopped(gone, "licence-header", "tests-deleted"), stopped(skipped, "tests-skipped"))


def binary_and_executable(stage: Stage) -> str:
    """A program instead of a source file, and a file that becomes executable."""
    return both(
        stopped(stage.offer({"src/tool.bin": b"\x7fELF\0\0\0"}), "binary"),
        stopped(stage.offer({"src/run.sh": ("100755", b"#!/bin/sh\n")}), "executable"),
    )


def patch_as_text(stage: Stage) -> str:
    """A patch without a header that git would apply to a workflow; here it is a file like any other."""
    patch = b"--- /dev/null\n+++ b/.github/workflows/evil.yml\n@@ -0,0 +1 @@\n+on: push\n"
    with tempfile.TemporaryDirectory() as scratch:
        applied = subprocess.run(["git", "apply", "-"], input=patch, cwd=scratch, capture_output=True, check=False)
        bites(really=applied.returncode == 0 and (Path(scratch) / ".github").exists(), what="git does not apply it")
    answer = stage.offer({**GOOD, "docs/a.patch": patch}, body=f"See:\n\n{patch.decode()}")
    if answer.kind != "receipt":
        raise SurvivedError(f"an honest file was refused: {answer.body}")
    listed = stage.git("ls-tree", "-r", "--name-only", answer.body["commit"])
    if "evil.yml" in listed:
        raise SurvivedError("the patch was applied")
    return "neutralised: the tree is the proposed one, nothing is applied"


def not_a_pack(stage: Stage) -> str:
    """Bundles, tars, repositories and noise in the place of a pack."""
    good = folder({**BASE, **GOOD})
    honest = pack([good.root, *good.objects])
    bundle = b"# v2 git bundle\n" + b"1" * 40 + b" refs/heads/main\n\n" + honest
    tarred = b"../../../etc/cron.d/x".ljust(257, b"\0") + b"ustar\x0000"
    samples = (bundle, tarred, honest[:-9], honest + b"x", hashlib.sha256(honest).digest() * 40, b"PACK" + b"\xff" * 90)
    return both(*(stopped(stage.propose(good.root, (), sent=sample), "pack-rejected") for sample in samples))


OBJECTS = (
    Attack("names that leave, or look like .git", "1.1 hostile trees", hostile_names),
    Attack("trees that git would not write", "1.1 hostile trees", malformed_trees),
    Attack("tree bomb", "1.2 flooding; 4.4", tree_bomb),
    Attack("blob bomb and delta bomb", "1.2 flooding; 4.4", blob_bomb),
    Attack("deep, wide, and many tiny objects", "1.2 flooding; 4.4", wide_and_deep, quick=False),
    Attack("delta and id of another branch's file", "4.3", thin_delta, quick=False),
    Attack("hidden commits, tags and files", "4.3; git-proxy", hidden_objects),
    Attack("links, submodules, .gitmodules", "1.1 symlinks", links_and_submodules),
    Attack("workflow file", "1.2 malicious diff", workflow),
    Attack("CODEOWNERS, manifests, agents' files", "1.2 malicious diff", obeyed_files),
    Attack("secret in code", "1.2 exfiltration", secret_in_code),
    Attack("bidirectional and invisible source", "1.2; CVE-2021-42574", bidi_source),
    Attack("licences and tests taken away or off", "5 scan", quiet_removals, quick=False),
    Attack("binary and executable", "3", binary_and_executable),
    Attack("bundle, tar or noise as a pack", "4.3", not_a_pack),
)
