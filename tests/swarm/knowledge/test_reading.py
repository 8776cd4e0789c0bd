"""Guides out of real git objects: links, imports, what lies outside, what is too long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swarm.knowledge.reading import BYTES, read_guides


async def paths(
    held: Any, files: dict[str, str], links: dict[str, str] | None = None, about: tuple[str, ...] = ()
) -> list:
    workspace, base = await held(files, links or {})
    return [(guide.path, guide.text) for guide in await read_guides(workspace, base, about)]


async def test_link_to_a_guide_is_told_once_and_one_to_elsewhere_in_the_tree_is_followed(held) -> None:
    files = {"AGENTS.md": "Use tabs.", "docs/rules.md": "Test first."}
    links = {"CLAUDE.md": "AGENTS.md", "GEMINI.md": "docs/rules.md"}
    assert await paths(held, files, links) == [("AGENTS.md", "Use tabs."), ("GEMINI.md", "Test first.")]


async def test_link_out_of_the_repository_is_not_followed(held, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    links = {
        "AGENTS.md": "../secret",
        "CLAUDE.md": "/etc/passwd",
        "GEMINI.md": "GEMINI.md",
        ".cursorrules": ".git/config",
    }
    assert await paths(held, {"a": "x"}, links) == []


@pytest.mark.slow
async def test_imports_follow_right_behind_and_end(held) -> None:
    files = {
        "CLAUDE.md": "Read @docs/a.md first.",
        "docs/a.md": "A, then @b.md and @../CLAUDE.md.",
        "docs/b.md": "B and @a.md, @missing.md, @../../x.md",
        "CONVENTIONS.md": "Last.",
    }
    assert [path for path, _ in await paths(held, files)] == ["CLAUDE.md", "docs/a.md", "docs/b.md", "CONVENTIONS.md"]


@pytest.mark.slow
async def test_nearest_guide_of_the_tasks_path_is_read(held) -> None:
    files = {"AGENTS.md": "top", "web/AGENTS.md": "web", "api/AGENTS.md": "api", "web/a.ts": "x"}
    assert [text for _, text in await paths(held, files, about=("web/a.ts",))] == ["top", "web"]


@pytest.mark.slow
async def test_huge_guide_is_read_at_its_head_alone(held) -> None:
    workspace, base = await held({"AGENTS.md": "x\n" * BYTES})
    (guide,) = await read_guides(workspace, base, ())
    assert len(guide.text) + guide.left_out <= BYTES


@pytest.mark.slow
async def test_chosen_names_alone_are_read(held) -> None:
    workspace, base = await held({"AGENTS.md": "a", "CLAUDE.md": "b", "docs/own.md": "c"})
    found = await read_guides(workspace, base, (), ("CLAUDE.md", "docs/own.md"))
    assert [guide.path for guide in found] == ["CLAUDE.md", "docs/own.md"]


@pytest.mark.slow
async def test_rules_that_do_not_fit_cost_no_place(held) -> None:
    other = {f".cursor/rules/{n:02}.mdc": f"---\nglobs:\n  - api/**\n---\nrule {n}" for n in range(50)}
    files = {
        **other,
        ".cursor/rules/zz.mdc": "---\nglobs: web/**\n---\nours",
        "AGENTS.md": "top",
        "web/AGENTS.md": "web",
    }
    found = await paths(held, files, about=("web/a.ts",))
    assert [text for _, text in found] == ["top", "ours", "web"]
