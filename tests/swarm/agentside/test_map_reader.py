"""The process that parses strangers' files: what it finds in each language, what it cannot do, and that it survives."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from swarm.tools.mapping import asking
from swarm.tools.mapping.grammars import QUERIES

pytestmark = pytest.mark.slow

SAMPLES = {
    "python": (
        "a.py",
        "class Basket(Base):\n    def total(self):\n        return add(self.x)\n\nRATE = 1\n",
        "Basket total RATE",
        "Base add",
    ),
    "javascript": (
        "a.js",
        "import {load} from './x'\nclass Cart extends Box { total() { return sum(1) } }\nconst go = () => new Cart()\n",
        "Cart total go",
        "load Box sum Cart",
    ),
    "typescript": (
        "a.ts",
        (
            "interface Shape { area(): number }\n"
            "export class Cart<T> implements Shape { area() { return calc() } }\n"
            "type Id = string\n"
            "enum Kind { A }\n"
        ),
        "Shape area Cart Id Kind",
        "Shape calc",
    ),
    "tsx": (
        "a.tsx",
        "export function App(props: Props) { return <div>{render(1)}</div> }\n",
        "App",
        "Props render",
    ),
    "go": (
        "a.go",
        (
            "package x\n"
            "type Server struct{}\n"
            "func (s *Server) Listen(p Port) { start(p) }\n"
            "func New() *Server { return nil }\n"
        ),
        "Server Listen New",
        "Port start",
    ),
    "rust": (
        "a.rs",
        (
            "pub struct Tree;\n"
            "impl Tree { pub fn parse(t: &Token) -> Self { grow(t) } }\n"
            "trait Leaf { fn fall(&self); }\n"
            "macro_rules! mk { () => {} }\n"
        ),
        "Tree parse Leaf fall mk",
        "Token grow",
    ),
    "java": (
        "A.java",
        "public class A extends B { A() {} int total(Order o) { return sum(o); } }\ninterface Shape {}\n",
        "A total Shape",
        "Order sum",
    ),
    "c": (
        "a.c",
        (
            "struct node { int x; };\n"
            "typedef int id_t2;\n"
            "static int *count(struct node *n) { return walk(n); }\n"
            "#define MAX(a) (a)\n"
        ),
        "node id_t2 count MAX",
        "walk",
    ),
    "cpp": (
        "a.cpp",
        (
            "namespace shop { class Cart { int total() { return 1; } }; }\n"
            "int shop_sum(Cart c) { return std::accumulate(c); }\n"
            "int Cart::size() { return 0; }\n"
        ),
        "shop Cart total shop_sum size",
        "accumulate",
    ),
    "ruby": (
        "a.rb",
        "module Shop\n  class Cart < Box\n    def total\n      sum(1)\n    end\n    def self.make; end\n  end\nend\n",
        "Shop Cart total make",
        "Box sum",
    ),
    "php": (
        "a.php",
        (
            "<?php\n"
            "class Cart extends Box { function total(Order $o) { return sum($o); } }\n"
            "function go() { return new Cart(); }\n"
        ),
        "Cart total go",
        "Order sum Cart",
    ),
    "c_sharp": (
        "A.cs",
        (
            "namespace X { public class Cart : Box { public int Total() { return Sum(1); } public int Size "
            "{ get; set; } } }\n"
        ),
        "Cart Total Size",
        "Box Sum",
    ),
}
"""By language: a file, what it defines, and what it mentions."""


def test_there_is_a_sample_of_every_grammar() -> None:
    assert set(SAMPLES) == set(QUERIES)


async def test_definitions_and_mentions_of_every_language_are_found() -> None:
    found = await asking.read({path: text.encode() for path, text, _, _ in SAMPLES.values()})
    for language, (path, _, defined, mentioned) in SAMPLES.items():
        names = [one.name for one in found[path].definitions]
        assert set(defined.split()) <= set(names), language
        assert set(mentioned.split()) <= set(found[path].mentions), language


HOSTILE = {
    "deep.py": b"(" * 250_000,
    "nested.py": b"".join(b" " * n + b"if x:\n" for n in range(700)),
    "quotes.py": b"'''" * 90_000,
    "generics.ts": b"a<" * 140_000,
    "heredoc.rb": b"<<A;" * 70_000,
    "attributes.rs": b"#[a(" * 70_000,
    "long.go": b"x" * 290_000,
    "zeros.java": b"\x00" * 290_000,
    "odd.php": bytes(range(256)) * 1000,
    "many.py": b"def f(): pass\n" * 20_000,
    "names.c": b"int " + b"a" * 200_000 + b"(void) { return 1; }\n",
}


async def test_hostile_files_cost_no_more_than_themselves() -> None:
    found = await asking.read(HOSTILE | {"z.py": b"def last(): pass\n"})
    assert [one.name for one in found["z.py"].definitions] == ["last"]
    assert len(found["many.py"].definitions) == 2000
    for source in found.values():
        assert all(len(one.name) <= 100 and len(one.signature) <= 160 for one in source.definitions)


async def test_time_that_is_up_leaves_files_out_and_nothing_running() -> None:
    many = {f"{n}.py": b"def f(): pass\n" * 20_000 for n in range(60)}
    found = await asking.read(many, 0.5)
    assert len(found) < len(many)
    assert not [line for line in await children() if "mapping.reader" in line]


async def test_a_reading_that_is_called_off_leaves_nothing_running() -> None:
    task = asyncio.create_task(asking.read({f"{n}.py": b"def f(): pass\n" * 20_000 for n in range(60)}))
    await asyncio.sleep(0.4)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not [line for line in await children() if "mapping.reader" in line]


async def children() -> list[str]:
    process = await asyncio.create_subprocess_exec(
        "ps", "--ppid", str(os.getpid()), "-o", "args=", stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return out.decode().splitlines()


TRIES = """
import os, socket, mmap
from swarm.tools.mapping import jail
jail.limit()
assert jail.lock()
def tried(what):
    try:
        what()
    except OSError as error:
        return error.errno
    return 0
print([tried(one) for one in (
    lambda: os.open("/etc/passwd", os.O_RDONLY),
    lambda: socket.socket(),
    lambda: os.fork(),
    lambda: os.execv("/bin/true", ["true"]),
    lambda: os.kill(os.getppid(), 0),
    lambda: os.unlink("/nowhere"),
    lambda: os.pipe(),
    lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC),
    lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE),
)], sum(range(1000)))
"""


def test_the_reader_can_compute_and_nothing_else() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-c", TRIES], capture_output=True, text=True, check=False, env={}, timeout=60
    )
    assert done.stdout == f"{[1] * 8 + [0]} 499500\n", done.stderr
