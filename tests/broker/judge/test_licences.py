"""Licence headers and licence files that go are told; a new year, another comment style and a move are none."""

from __future__ import annotations

import time

import pytest

from broker.config.policy import Policy
from broker.judge.scan.content import Content
from broker.judge.scan.scanner import Scanner

HEADER = b"# SPDX-License-Identifier: MIT\n# Copyright (c) 2021 A. Person\n"
CODE = b"import os\n\nprint(os.name)\n"
LICENCE = (
    b"MIT License\n\nCopyright (c) 2021 A. Person\n\nPermission is hereby granted, free of charge, to any person\n"
)


@pytest.fixture(scope="module")
def scanner():
    return Scanner()


def findings(scanner, *contents):
    scan = scanner.begin(Policy(secrets="allow", hidden_text="allow"))
    return [found for content in contents for found in scan.look(content)] + list(scan.close())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (HEADER + CODE, CODE),
        (HEADER + CODE, HEADER.replace(b"MIT", b"GPL-3.0") + CODE),
        (HEADER + CODE, HEADER.replace(b"A. Person", b"E. Vil") + CODE),
        (HEADER + CODE, CODE * 100 + HEADER),
        (b"/* Licensed under the Apache License */\n" + CODE, CODE),
        ("// © 2020 Jemand\n".encode() + CODE, CODE),
    ],
)
def test_a_lost_line_is_found(scanner, old, new):
    (found,) = findings(scanner, Content("src/a.py", old, new))
    assert (found.rule, found.severity, found.path) == ("licence-header", "warn", "src/a.py")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (HEADER + CODE, HEADER + b"import sys\n"),
        (HEADER + CODE, b"#!/usr/bin/env python3\n\n" + HEADER + CODE),
        (HEADER + CODE, HEADER.replace(b"2021", b"2026") + CODE),
        (HEADER + CODE, HEADER.replace(b"# ", b"// ") + CODE),
        (CODE * 100 + HEADER, CODE),
        (CODE, CODE + b"x\n"),
        (b"", CODE),
        (HEADER + CODE, None),
    ],
)
def test_what_keeps_it_is_not(scanner, old, new):
    assert findings(scanner, Content("src/a.py", old, new)) == []


@pytest.mark.parametrize("name", ["LICENSE", "COPYING.LESSER", "licence.md", "sub/NOTICE", "LICENSE-MIT.txt"])
def test_a_licence_file_that_goes_or_is_gutted_is_found(scanner, name):
    assert len(findings(scanner, Content(name, LICENCE, None))) == 1
    assert len(findings(scanner, Content(name, LICENCE, b"Copyright (c) 2021 A. Person\n"))) == 1
    assert findings(scanner, Content(name, LICENCE, LICENCE, moved=True)) == []


def test_a_header_lost_on_the_way_to_another_folder_is_found(scanner):
    gone, come = Content("old/a.py", HEADER + CODE, None), Content("new/a.py", b"", CODE)
    assert [found.path for found in findings(scanner, gone, come)] == ["new/a.py"]
    assert findings(scanner, gone, Content("new/a.py", b"", HEADER + CODE)) == []


@pytest.mark.parametrize("part", [b"copyright ", b"subject to the terms of the ", b"(c) ", b" \t", b"0"])
def test_no_line_makes_it_slow(scanner, part):
    began = time.process_time()
    findings(scanner, Content("a.py", (part * 200_000)[: 256 * 1024], b"x"))
    assert time.process_time() - began < 1
